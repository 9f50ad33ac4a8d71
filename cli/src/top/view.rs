//! The model as lines of text. A sign stands beside every colour, and nothing is lost where there are none.

use super::model::{FleetVolume, Model, Screen, figure};
use forebay_api::config::PolicyName;
use forebay_api::units::{show_seconds, show_size};
use forebay_api::words::{BackingState, VolumePhase};

/// What a terminal can do.
#[derive(Clone, Copy)]
pub struct Look {
    /// Columns of the terminal.
    pub width: usize,
    /// Lines; none: as many as there are.
    pub height: Option<usize>,
    /// It can show bold, dim and reverse.
    pub styles: bool,
    /// Colours, beside the signs that say the same.
    pub colours: bool,
    /// It can show characters beyond ASCII.
    pub unicode: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Plain,
    Head,
    Weak,
    Chosen,
    Alert,
}

/// A line in the making; never longer than the terminal is wide.
struct Line {
    look: Look,
    length: usize,
    text: String,
}

impl Line {
    fn new(look: Look) -> Line {
        Line { look, length: 0, text: String::new() }
    }

    fn put(mut self, style: Style, text: &str) -> Line {
        let room = self.look.width - self.length;
        let cut: String = text.chars().take(room).collect();
        self.length += cut.chars().count();
        let code = match style {
            _ if !self.look.styles => "",
            Style::Plain => "",
            Style::Head => "\x1b[1m",
            Style::Weak => "\x1b[2m",
            Style::Chosen => "\x1b[7m",
            Style::Alert if self.look.colours => "\x1b[1;33m",
            Style::Alert => "\x1b[1m",
        };
        self.text.push_str(code);
        self.text.push_str(&cut);
        if !code.is_empty() {
            self.text.push_str("\x1b[0m");
        }
        self
    }

    /// Fills the line up to a column.
    fn to(self, column: usize) -> Line {
        let missing = column.min(self.look.width).saturating_sub(self.length);
        self.put(Style::Plain, &" ".repeat(missing))
    }
}

fn line(look: Look, style: Style, text: &str) -> String {
    Line::new(look).put(style, text).text
}

/// All lines of the screen, as the model is now.
pub fn frame(model: &Model, look: Look) -> Vec<String> {
    let mut lines = vec![head(model, look)];
    if let Some(why) = &model.lost {
        lines.push(line(look, Style::Alert, &format!("! the daemon does not answer, trying again: {why}")));
    }
    let degraded_max = look.height.map_or(usize::MAX, |height| (height / 6).max(1));
    for found in model.fleet.degraded.iter().take(degraded_max) {
        let what = found.volume.as_ref().or(found.node.as_ref()).map_or("", String::as_str);
        let text = format!("! {what}: {} ({})", found.text, show_seconds(found.since_s));
        lines.push(line(look, Style::Alert, &text));
    }
    if let Some(more) = model.fleet.degraded.len().checked_sub(degraded_max).filter(|more| *more > 0) {
        lines.push(line(look, Style::Alert, &format!("! and {more} more")));
    }
    let room = look.height.map(|height| height.saturating_sub(lines.len() + 1));
    match &model.screen {
        Screen::List => list(model, look, room, &mut lines),
        Screen::Detail(name) => match model.fleet.volumes.iter().find(|volume| volume.report.name == *name) {
            Some(volume) => detail(model, volume, look, &mut lines),
            None if model.heard => {
                lines.push(line(look, Style::Alert, &format!("! there is no volume {name} any more")))
            }
            None => {}
        },
        Screen::Help(_) => help(look, &mut lines),
    }
    if let Some(height) = look.height {
        lines.truncate(height.saturating_sub(1));
        lines.resize(height.saturating_sub(1), String::new());
        lines.push(foot(model, look));
        lines.truncate(height);
    }
    lines
}

fn head(model: &Model, look: Look) -> String {
    let own = model.fleet.nodes.iter().find(|node| node.own);
    let mut text = "forebay".to_owned();
    if let Some((node, report)) = own.and_then(|node| Some((node, node.report.as_ref()?))) {
        let now = |name: &str| node.now.get(name).copied();
        text = format!("forebay {} on {}  up {}", report.version, node.name, show_seconds(report.uptime_s));
        if let Some(cpu) = now("cpu_ratio") {
            text.push_str(&format!("  cpu {:.0} %", cpu * 100.0));
        }
        if let Some(memory) = now("memory_bytes") {
            text.push_str(&format!("  memory {}", size(memory)));
        }
        let dirty: u64 = model.fleet.volumes.iter().map(|volume| volume.report.dirty.bytes).sum();
        text.push_str(&format!("  dirty {}", size(dirty as f64)));
        if model.fleet.nodes.len() > 1 {
            text.push_str(&format!("  {} nodes", model.fleet.nodes.len()));
        }
    }
    let line = Line::new(look).put(Style::Head, &text);
    if model.paused { line.put(Style::Alert, "  PAUSED").text } else { line.text }
}

fn foot(model: &Model, look: Look) -> String {
    if model.typing {
        return Line::new(look).put(Style::Head, &format!("filter: {}_", model.filter)).text;
    }
    let text = match &model.screen {
        Screen::Help(_) => "any key goes back  q quit".to_owned(),
        Screen::Detail(_) => "Esc back  up, down: the next one  p pause  ? keys  q quit".to_owned(),
        Screen::List => {
            let filter = if model.filter.is_empty() { String::new() } else { format!(" ({})", model.filter) };
            let way = if model.reversed { ", reversed" } else { "" };
            format!("Enter more  s sort: {}{way}  / filter{filter}  p pause  ? keys  q quit", model.sort.word())
        }
    };
    line(look, Style::Weak, &text)
}

const KEYS: [(&str, &str); 9] = [
    ("up, down, k, j", "choose a volume; also page up and down, home and end"),
    ("Enter", "all about it; Esc goes back"),
    ("s, r", "sort by the next column; the other way round"),
    ("/", "show only names that have this in them; Esc ends it"),
    ("p", "pause: nothing moves until it is pressed again"),
    ("q, Ctrl-C", "quit"),
    ("CLIENT P99", "99 of 100 requests of clients in the last second were quicker"),
    ("HIT", "share of read blocks that memory or the tier had; writes do not count"),
    ("DRAIN", "time that the slow storage needs for what is dirty"),
];

fn help(look: Look, lines: &mut Vec<String>) {
    lines.push(String::new());
    for (keys, what) in KEYS {
        lines.push(Line::new(look).put(Style::Head, &format!("  {keys}")).to(20).put(Style::Plain, what).text);
    }
}

/// Widths of the columns behind the name: of a column and the space before it.
const COLUMNS: [(&str, usize); 9] = [
    ("POLICY", 9),
    ("READ/s", 8),
    ("WRITE/s", 8),
    ("READ", 7),
    ("WRITTEN", 8),
    ("HIT", 5),
    ("CLIENT P99", 11),
    ("DIRTY", 7),
    ("DRAIN", 7),
];

fn list(model: &Model, look: Look, room: Option<usize>, lines: &mut Vec<String>) {
    let volumes = model.volumes();
    let name_width = look.width.saturating_sub(COLUMNS.iter().map(|(_, width)| width).sum::<usize>()).clamp(8, 40);
    let mut head = format!("{:name_width$}", "  VOLUME");
    for (title, width) in COLUMNS {
        head.push_str(&format!("{title:>width$}"));
    }
    lines.push(line(look, Style::Head, &head));
    if volumes.is_empty() {
        let text = match (model.heard, model.filter.is_empty()) {
            (false, _) => "  waiting for the daemon",
            (true, true) => "  there is no volume yet",
            (true, false) => "  no volume has that in its name",
        };
        lines.push(line(look, Style::Weak, text));
        return;
    }
    let selected = model.selected();
    let shown = room.map_or(usize::MAX, |room| room.saturating_sub(1).max(1));
    let first = selected.saturating_sub(shown.saturating_sub(1));
    for (place, volume) in volumes.iter().enumerate().skip(first).take(shown) {
        let chosen = place == selected && look.height.is_some();
        let alert = needs_a_look(volume);
        let mark = match (chosen, alert) {
            (_, true) => '!',
            (true, false) => '>',
            (false, false) => ' ',
        };
        let name: String = volume.report.name.chars().take(name_width.saturating_sub(2)).collect();
        let mut text = format!("{:name_width$}", format!("{mark} {name}"));
        for (cell, (_, width)) in cells(volume).iter().zip(COLUMNS) {
            text.push_str(&format!("{cell:>width$}"));
        }
        let style = match (chosen, alert) {
            (true, _) => Style::Chosen,
            (false, true) => Style::Alert,
            (false, false) => Style::Plain,
        };
        lines.push(line(look, style, &text));
    }
}

fn needs_a_look(volume: &FleetVolume) -> bool {
    let report = &volume.report;
    report.policy.requested != report.policy.effective
        || matches!(report.backing.state, BackingState::Failing | BackingState::AwaitingFence)
        || matches!(report.phase, VolumePhase::Failed | VolumePhase::Waiting)
}

fn cells(volume: &FleetVolume) -> [String; 9] {
    let report = &volume.report;
    let now = |name: &str| volume.now.get(name).copied();
    let policy = match report.policy.effective {
        PolicyName::Through => "through",
        PolicyName::Back => "back",
    };
    let changed = if report.policy.requested == report.policy.effective { "" } else { "!" };
    let p99 = ["read_client_p99_us", "write_client_p99_us"].iter().filter_map(|name| now(name)).reduce(f64::max);
    let text = |value: Option<f64>, show: fn(f64) -> String| value.map_or("-".to_owned(), show);
    [
        if report.phase == VolumePhase::Serving {
            format!("{changed}{policy}")
        } else {
            report.phase.as_str().chars().take(8).collect()
        },
        text(now("read_iops"), count),
        text(now("write_iops"), count),
        text(now("read_bytes_per_s"), size),
        text(now("write_bytes_per_s"), size),
        text(now("read_hit_ratio"), |ratio| format!("{:.0}%", ratio * 100.0)),
        text(p99, micros),
        size(report.dirty.bytes as f64),
        text(report.dirty.drain_s, show_seconds),
    ]
}

fn detail(model: &Model, volume: &FleetVolume, look: Look, lines: &mut Vec<String>) {
    let report = &volume.report;
    let word = |policy: PolicyName| match policy {
        PolicyName::Through => "write-through",
        PolicyName::Back => "write-back",
    };
    let mut text = format!(
        "{}  {}, {}, {}, {} client{}",
        report.name,
        show_size(report.size_bytes),
        word(report.policy.effective),
        report.phase,
        report.connections,
        if report.connections == 1 { "" } else { "s" }
    );
    if let Some(cluster) = &report.cluster {
        text.push_str(&format!(", owner {}", cluster.owner));
    }
    lines.push(line(look, Style::Head, &text));
    let places = format!(
        "{} tier of {}, {} destage; backing {} ({})",
        report.tier.kind.word(),
        show_size(report.tier.size_bytes),
        if report.destage.effective == forebay_api::config::DestageName::Journaled { "journaled" } else { "ordered" },
        report.backing.spec,
        report.backing.state
    );
    lines.push(line(look, Style::Weak, &places));
    let spark_at = 40;
    let seconds = look.width.saturating_sub(spark_at).min(super::model::SECONDS);
    let heading = Line::new(look).put(Style::Head, &format!("{:>26}{:>11}", "NOW", "P99")).to(spark_at);
    lines.push(heading.put(Style::Head, &format!("LAST {seconds} s")).text);
    let mut row = |title: &str, name: &str, p99: Option<String>, show: fn(f64) -> String| {
        let now = volume.now.get(name).map_or("-".to_owned(), |value| show(*value));
        let p99 = p99.map_or(String::new(), |name| volume.now.get(&name).map_or("-".to_owned(), |value| show(*value)));
        let past = model.line(&report.name, name);
        let past = &past[past.len().saturating_sub(seconds)..];
        let spark = sparkline(past, look.unicode);
        lines.push(
            Line::new(look)
                .put(Style::Plain, &format!("{title:<16}{now:>10}{p99:>11}"))
                .to(spark_at)
                .put(Style::Plain, &spark)
                .text,
        );
    };
    for side in ["write", "read"] {
        for leg in ["client", "local", "network", "backing"] {
            let p99 = Some(format!("{side}_{leg}_p99_us"));
            row(&format!("{side} {leg}"), &format!("{side}_{leg}_us"), p99, micros);
        }
    }
    row("writes/s", "write_iops", None, count);
    row("reads/s", "read_iops", None, count);
    row("written/s", "write_bytes_per_s", None, size);
    row("read/s", "read_bytes_per_s", None, size);
    row("read hit rate", "read_hit_ratio", None, |ratio| format!("{:.1} %", ratio * 100.0));
    row("dirty", "dirty_bytes", None, size);
    row("to drain", "drain_s", None, show_seconds);
    row("to backing/s", "destage_bytes_per_s", None, size);
    let waits = figure(volume, "throttled_per_s");
    let text = format!(
        "dirty at most {}, oldest {}, {} groups wait, {} writes wait, {} throttled/s",
        show_size(report.dirty.bytes_max),
        show_seconds(report.dirty.oldest_s),
        report.dirty.groups_waiting,
        report.dirty.waiting_writes,
        count(waits)
    );
    lines.push(line(look, Style::Weak, &text));
}

/// Values as bars of eight heights, the largest the full one; a gap where there was none.
pub fn sparkline(values: &[f64], unicode: bool) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    const ASCII: [char; 8] = ['_', '.', ':', '-', '=', '+', '*', '#'];
    let bars = if unicode { BARS } else { ASCII };
    let largest = values.iter().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let bar = |value: &f64| match value {
        value if !value.is_finite() => ' ',
        value if largest <= 0.0 || *value <= 0.0 => bars[0],
        value => bars[((value / largest * 8.0).ceil() as usize).clamp(1, 8) - 1],
    };
    values.iter().map(bar).collect()
}

/// A number in at most six characters.
fn count(value: f64) -> String {
    match value {
        v if v < 9.95 && v.fract() != 0.0 => format!("{v:.1}"),
        v if v < 99_999.5 => format!("{v:.0}"),
        v if v < 9_999_500.0 => format!("{:.0}k", v / 1e3),
        v => format!("{:.0}M", v / 1e6),
    }
}

/// Bytes in at most six characters.
fn size(bytes: f64) -> String {
    let mut value = bytes.max(0.0);
    for unit in ["", "K", "M", "G", "T"] {
        if value < 1023.5 {
            let digits = usize::from(value < 99.95 && !unit.is_empty());
            return format!("{value:.digits$}{unit}");
        }
        value /= 1024.0;
    }
    format!("{value:.0}P")
}

/// A time in at most eight characters.
pub fn micros(us: f64) -> String {
    match us {
        us if us < 999.5 => format!("{us:.0} us"),
        us if us < 99_950.0 => format!("{:.1} ms", us / 1e3),
        us if us < 999_500.0 => format!("{:.0} ms", us / 1e3),
        us => format!("{:.1} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::super::feed::Update;
    use super::super::model::tests::fleet;
    use super::*;
    use serde_json::json;

    const PLAIN: Look = Look { width: 80, height: Some(24), styles: false, colours: false, unicode: true };

    fn model(screen: Screen) -> Model {
        let mut model = Model::new(screen);
        let names: Vec<String> = (1..=40).map(|n| format!("a-volume-with-a-long-name-{n:02}")).collect();
        let volumes: Vec<(&str, f64)> = names.iter().map(|name| (name.as_str(), 10.0)).chain([("vm1", 10.0)]).collect();
        model.take(Update::Fleet(fleet(&volumes)));
        for second in 0..200 {
            model.take(Update::Point(json!({ "at": second, "volumes": { "vm1": { "write_client_us": second } } })));
        }
        model
    }

    #[test]
    fn every_screen_fits_into_any_terminal() {
        for screen in [Screen::List, Screen::Detail("vm1".into()), Screen::Help(Box::new(Screen::List))] {
            let mut model = model(screen.clone());
            model.lost = Some("a long reason ".repeat(20));
            for (width, height) in [(80, 24), (200, 60), (40, 10), (1, 1), (20, 3)] {
                let lines = frame(&model, Look { width, height: Some(height), ..PLAIN });
                assert_eq!(lines.len(), height, "{screen:?} {width}x{height}");
                assert!(
                    lines.iter().all(|line| line.chars().count() <= width),
                    "{screen:?} {width}x{height}: {lines:#?}"
                );
            }
        }
    }

    #[test]
    fn at_80_columns_nothing_of_a_list_is_cut_off() {
        let lines = frame(&model(Screen::List), PLAIN);
        let head = lines.iter().find(|line| line.contains("VOLUME")).unwrap();
        assert!(head.ends_with("DRAIN") && head.chars().count() <= 80, "{head:?}");
        assert!(lines[1].starts_with("! vm1: write-through for a reason (1m30s)"), "{lines:#?}");
        assert!(lines.iter().any(|line| line.starts_with("! a-volu") && line.contains("!through")), "{lines:#?}");
        assert!(lines[23].contains("q quit") && lines[23].contains("s sort: name"), "{lines:#?}");
        assert!(lines[0].contains("cpu 25 %"), "{lines:#?}");
    }

    #[test]
    fn details_have_every_leg_with_its_line_and_fit_24_lines() {
        let lines = frame(&model(Screen::Detail("vm1".into())), PLAIN);
        for side in ["write", "read"] {
            for leg in ["client", "local", "network", "backing"] {
                assert!(lines.iter().any(|line| line.starts_with(&format!("{side} {leg}"))), "{lines:#?}");
            }
        }
        let client = lines.iter().find(|line| line.starts_with("write client")).unwrap();
        assert!(client.contains("199 us") && client.ends_with('█'), "{client}");
        assert!(lines.iter().any(|line| line.starts_with("dirty at most")), "{lines:#?}");
    }

    #[test]
    fn without_colours_and_styles_the_signs_remain() {
        let escape = |look| frame(&model(Screen::List), look).iter().any(|line| line.contains('\x1b'));
        assert!(!escape(PLAIN));
        assert!(escape(Look { styles: true, ..PLAIN }));
        let colour = |look| frame(&model(Screen::List), look).iter().any(|line| line.contains(";33m"));
        assert!(!colour(Look { styles: true, ..PLAIN }) && colour(Look { styles: true, colours: true, ..PLAIN }));
    }

    #[test]
    fn lines_are_scaled_to_their_largest_and_show_gaps() {
        assert_eq!(sparkline(&[0.0, 1.0, f64::NAN, 4.0, 8.0], true), "▁▁ ▄█");
        assert_eq!(sparkline(&[0.0, 1.0, f64::NAN, 4.0, 8.0], false), "__ -#");
        assert_eq!(sparkline(&[0.0, 0.0], true), "▁▁");
        assert_eq!(sparkline(&[], true), "");
    }

    #[test]
    fn figures_have_their_columns() {
        assert_eq!([0.0, 0.5, 12.3, 99_999.4, 123_456.0, 1e8].map(count), ["0", "0.5", "12", "99999", "123k", "100M"]);
        assert_eq!([0.0, 512.0, 1536.0, 1e9].map(size), ["0", "512", "1.5K", "954M"]);
        assert_eq!([0.4, 120.0, 1500.0, 150_000.0, 2.5e6].map(micros), ["0 us", "120 us", "1.5 ms", "150 ms", "2.5 s"]);
    }
}
