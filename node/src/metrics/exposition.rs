//! The two formats that Prometheus reads: its own text format 0.0.4, and OpenMetrics 1.0. They differ in how counters are
//! named in the head of a family, in a few types, and in the end mark, so that a cut answer is not taken for a whole one.

use std::fmt::Write;

/// The format of an answer to a scraper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, for whoever does not ask for another.
    Text,
    /// OpenMetrics 1.0, for whoever asks for it rather than for text.
    OpenMetrics,
}

impl Format {
    /// The one that an `Accept` header likes best.
    pub fn of(accept: Option<&str>) -> Format {
        let (mut text, mut open_metrics) = (0.0f32, 0.0f32);
        for range in accept.unwrap_or("*/*").split(',') {
            let mut parts = range.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default().to_ascii_lowercase();
            let (mut quality, mut version) = (1.0f32, None);
            for parameter in parts {
                match parameter.split_once('=') {
                    Some(("q", value)) => quality = value.parse().unwrap_or(0.0),
                    Some(("version", value)) => version = Some(value.trim_matches('"')),
                    _ => {}
                }
            }
            match media.as_str() {
                // Of 0.0.1, its draft, the same answer is understood.
                "application/openmetrics-text" if matches!(version, None | Some("1.0.0" | "0.0.1")) => {
                    open_metrics = open_metrics.max(quality);
                }
                "text/plain" | "text/*" | "*/*" => text = text.max(quality),
                _ => {}
            }
        }
        if open_metrics > 0.0 && open_metrics >= text { Format::OpenMetrics } else { Format::Text }
    }

    /// What the answer is called.
    pub fn content_type(self) -> &'static str {
        match self {
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// The type of a family of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It goes up and down.
    Gauge,
    /// Only grows, but for a start of the daemon; its samples end in `_total`, which is not part of the family's name.
    Counter,
    /// Words in labels, and the value 1; its samples end in `_info`.
    Info,
    /// Samples `_bucket`, `_sum` and `_count`.
    Histogram,
}

/// An answer in the making. Families are written one after the other and never come back.
pub struct Exposition {
    format: Format,
    out: String,
}

/// One family in the making.
pub struct Family<'a> {
    out: &'a mut String,
    sample: String,
}

impl Exposition {
    /// An answer with nothing in it yet.
    pub fn new(format: Format) -> Exposition {
        Exposition { format, out: String::new() }
    }

    /// Begins a family. `name` is without the suffix that its type adds.
    pub fn family(&mut self, kind: Kind, name: &str, help: &str) -> Family<'_> {
        let suffix = match kind {
            Kind::Counter => "_total",
            Kind::Info => "_info",
            Kind::Gauge | Kind::Histogram => "",
        };
        let (head, word) = match (self.format, kind) {
            (Format::Text, Kind::Info) => (format!("{name}{suffix}"), "gauge"),
            (Format::Text, _) => (format!("{name}{suffix}"), kind.word()),
            (Format::OpenMetrics, _) => (name.to_owned(), kind.word()),
        };
        let _ = writeln!(self.out, "# TYPE {head} {word}");
        if self.format == Format::OpenMetrics
            && let Some(unit) = ["seconds", "bytes", "ratio"].iter().find(|unit| name.ends_with(&format!("_{unit}")))
        {
            let _ = writeln!(self.out, "# UNIT {head} {unit}");
        }
        let _ = writeln!(self.out, "# HELP {head} {}", escaped(help));
        Family { out: &mut self.out, sample: format!("{name}{suffix}") }
    }

    /// The whole answer, with its end mark where the format has one.
    pub fn finish(mut self) -> String {
        if self.format == Format::OpenMetrics {
            self.out.push_str("# EOF\n");
        }
        self.out
    }
}

impl Kind {
    fn word(self) -> &'static str {
        match self {
            Kind::Gauge => "gauge",
            Kind::Counter => "counter",
            Kind::Info => "info",
            Kind::Histogram => "histogram",
        }
    }
}

impl Family<'_> {
    /// One sample with these labels.
    pub fn sample(&mut self, labels: &[(&str, &str)], value: f64) {
        self.line("", labels, None, value);
    }

    /// One histogram: (upper edge, samples at or below it) with growing edges, then all of them, and their sum.
    pub fn histogram(&mut self, labels: &[(&str, &str)], buckets: &[(f64, u64)], count: u64, sum: f64) {
        for (edge, below) in buckets {
            self.line("_bucket", labels, Some(&edge_text(*edge)), *below as f64);
        }
        self.line("_bucket", labels, Some("+Inf"), count as f64);
        self.line("_sum", labels, None, sum);
        self.line("_count", labels, None, count as f64);
    }

    fn line(&mut self, suffix: &str, labels: &[(&str, &str)], edge: Option<&str>, value: f64) {
        let _ = write!(self.out, "{}{suffix}", self.sample);
        let mut open = '{';
        for (name, text) in labels.iter().copied().chain(edge.map(|edge| ("le", edge))) {
            let _ = write!(self.out, "{open}{name}=\"{}\"", escaped(text));
            open = ',';
        }
        if open == ',' {
            self.out.push('}');
        }
        let _ = writeln!(self.out, " {value}");
    }
}

/// OpenMetrics has an edge look like a float also where it is whole.
fn edge_text(edge: f64) -> String {
    if edge.fract() == 0.0 { format!("{edge:.1}") } else { edge.to_string() }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn format_is_the_one_that_is_liked_best() {
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                          text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(Format::of(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::of(Some("application/openmetrics-text; version=1.0.0")), Format::OpenMetrics);
        assert_eq!(Format::of(Some("Application/OpenMetrics-Text")), Format::OpenMetrics);
        for text in [
            None,
            Some("*/*"),
            Some("text/html,*/*;q=0.8"),
            Some("application/openmetrics-text;version=2.0.0, */*"),
            Some("application/openmetrics-text;q=0.3, text/plain"),
            Some("application/openmetrics-text;q=0"),
            Some("application/openmetrics-text;q=nonsense"),
            Some(""),
        ] {
            assert_eq!(Format::of(text), Format::Text, "{text:?}");
        }
    }

    fn example(format: Format) -> String {
        let mut out = Exposition::new(format);
        out.family(Kind::Gauge, "a_seconds", "Age.").sample(&[], 2.5);
        out.family(Kind::Counter, "b", "Steps.").sample(&[("v", "x")], 3.0);
        out.family(Kind::Info, "c", "Words.").sample(&[("why", "a \"quoted\" \\ word\nand a line")], 1.0);
        out.family(Kind::Histogram, "d_seconds", "Times.").histogram(&[("v", "x")], &[(0.000016, 1), (1.0, 2)], 3, 7.5);
        out.finish()
    }

    #[test]
    fn text_format_byte_by_byte() {
        let expected = r#"# TYPE a_seconds gauge
# HELP a_seconds Age.
a_seconds 2.5
# TYPE b_total counter
# HELP b_total Steps.
b_total{v="x"} 3
# TYPE c_info gauge
# HELP c_info Words.
c_info{why="a \"quoted\" \\ word\nand a line"} 1
# TYPE d_seconds histogram
# HELP d_seconds Times.
d_seconds_bucket{v="x",le="0.000016"} 1
d_seconds_bucket{v="x",le="1.0"} 2
d_seconds_bucket{v="x",le="+Inf"} 3
d_seconds_sum{v="x"} 7.5
d_seconds_count{v="x"} 3
"#;
        assert_eq!(example(Format::Text), expected);
    }

    #[test]
    fn open_metrics_names_families_without_suffix_and_ends_with_a_mark() {
        let text = example(Format::OpenMetrics);
        assert!(
            text.starts_with("# TYPE a_seconds gauge\n# UNIT a_seconds seconds\n# HELP a_seconds Age.\n"),
            "{text}"
        );
        assert!(text.contains("# TYPE b counter\n# HELP b Steps.\nb_total{v=\"x\"} 3\n"), "{text}");
        assert!(text.contains("# TYPE c info\n"), "{text}");
        assert!(text.ends_with("d_seconds_count{v=\"x\"} 3\n# EOF\n"), "{text}");
    }
}
