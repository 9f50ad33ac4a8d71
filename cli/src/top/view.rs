//! The model as lines of text. A sign stands beside every colour, and nothing is lost where there are none.

use super::model::{FleetVolume, Model, Screen, figure};
use crate::words::{self, Language, Sentence, cut, left, right, say};
use forebay_api::config::PolicyName;
use forebay_api::units::{show_seconds, show_size};
use forebay_api::words::{BackingState, VolumePhase};

/// What a terminal can do, and in which language it is read.
#[derive(Clone, Copy)]
pub struct Look {
    /// The user's language.
    pub language: Language,
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

impl Look {
    fn say(self, sentence: &Sentence) -> String {
        say(self.language, sentence)
    }

    fn text(self, key: &'static str) -> String {
        words::text(self.language, key)
    }

    fn word(self, list: &str, word: &str) -> String {
        words::word(self.language, list, word)
    }

    /// The one of this language.
    fn of<T: Copy>(self, each: [T; 3]) -> T {
        each[self.language as usize]
    }
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
    /// Columns that are taken.
    used: usize,
    text: String,
}

impl Line {
    fn new(look: Look) -> Line {
        Line { look, used: 0, text: String::new() }
    }

    fn put(mut self, style: Style, text: &str) -> Line {
        let cut = cut(text, self.look.width - self.used);
        // Behind what was cut off nothing more comes, also where half of a wide letter was left.
        self.used = if cut.len() < text.len() { self.look.width } else { self.used + words::width(cut) };
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
        self.text.push_str(cut);
        if !code.is_empty() {
            self.text.push_str("\x1b[0m");
        }
        self
    }

    /// Fills the line up to a column.
    fn to(self, column: usize) -> Line {
        let missing = column.min(self.look.width).saturating_sub(self.used);
        self.put(Style::Plain, &" ".repeat(missing))
    }
}

fn alert(look: Look, text: &str) -> String {
    line(look, Style::Alert, &format!("! {text}"))
}

fn line(look: Look, style: Style, text: &str) -> String {
    Line::new(look).put(style, text).text
}

/// All lines of the screen, as the model is now.
pub fn frame(model: &Model, look: Look) -> Vec<String> {
    let mut lines = vec![head(model, look)];
    if let Some(why) = &model.lost {
        lines.push(alert(look, &look.say(why)));
    }
    let degraded_max = look.height.map_or(usize::MAX, |height| (height / 6).max(1));
    for found in model.fleet.degraded.iter().take(degraded_max) {
        let what = found.volume.as_ref().or(found.node.as_ref()).map_or("", String::as_str);
        // In English the daemon's text says it all; else the reason's word stands before it.
        let text = match look.language {
            Language::En => found.text.clone(),
            Language::Ja | Language::Ko => format!("{}: {}", look.word("degraded", &found.code), found.text),
        };
        let degraded = Sentence::new("top.degraded").with("since", show_seconds(found.since_s));
        lines.push(alert(look, &look.say(&degraded.with("what", what).with("text", text))));
    }
    if let Some(more) = model.fleet.degraded.len().checked_sub(degraded_max).filter(|more| *more > 0) {
        lines.push(alert(look, &look.say(&Sentence::new("top.more").with("count", more))));
    }
    let room = look.height.map(|height| height.saturating_sub(lines.len() + 1));
    match &model.screen {
        Screen::List => list(model, look, room, &mut lines),
        Screen::Detail(name) => match model.fleet.volumes.iter().find(|volume| volume.report.name == *name) {
            Some(volume) => detail(model, volume, look, &mut lines),
            None if model.heard => lines.push(alert(look, &look.say(&Sentence::new("top.gone").with("name", name)))),
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
        let dirty: u64 = model.fleet.volumes.iter().map(|volume| volume.report.dirty.bytes).sum();
        let nodes = model.fleet.nodes.len();
        let parts = [
            Some(
                Sentence::new("top.head")
                    .with("version", &report.version)
                    .with("node", &node.name)
                    .with("uptime", show_seconds(report.uptime_s)),
            ),
            now("cpu_ratio").map(|cpu| Sentence::new("top.cpu").with("share", format!("{:.0}", cpu * 100.0))),
            now("memory_bytes").map(|memory| Sentence::new("top.memory").with("size", size(memory))),
            Some(Sentence::new("top.dirty").with("size", size(dirty as f64))),
            (nodes > 1).then(|| Sentence::new("top.nodes").with("count", nodes)),
        ];
        text = parts.iter().flatten().map(|part| look.say(part)).collect::<Vec<_>>().join("  ");
    }
    let line = Line::new(look).put(Style::Head, &text);
    if model.paused { line.put(Style::Alert, &format!("  {}", look.text("top.paused"))).text } else { line.text }
}

fn foot(model: &Model, look: Look) -> String {
    if model.typing {
        let filter = Sentence::new("top.foot.filter").with("filter", &model.filter);
        return line(look, Style::Head, &look.say(&filter));
    }
    let text = match &model.screen {
        Screen::Help(_) => look.text("top.foot.help"),
        Screen::Detail(_) => look.text("top.foot.detail"),
        Screen::List => {
            let filter = if model.filter.is_empty() { String::new() } else { format!(" ({})", model.filter) };
            let mut sort = look.word("sort", model.sort.word());
            if model.reversed {
                sort = look.say(&Sentence::new("top.foot.reversed").with("sort", sort));
            }
            look.say(&Sentence::new("top.foot.list").with("sort", sort).with("filter", filter))
        }
    };
    line(look, Style::Weak, &text)
}

/// Keys and heads of columns, and what they are.
const HELP: [(&str, &str); 9] = [
    ("top.key.choose", "top.help.choose"),
    ("top.key.enter", "top.help.enter"),
    ("top.key.sort", "top.help.sort"),
    ("top.key.filter", "top.help.filter"),
    ("top.key.pause", "top.help.pause"),
    ("top.key.quit", "top.help.quit"),
    ("top.column.p99", "top.help.p99"),
    ("top.column.hit", "top.help.hit"),
    ("top.column.drain", "top.help.drain"),
];

fn help(look: Look, lines: &mut Vec<String>) {
    lines.push(String::new());
    for (key, what) in HELP {
        let line = Line::new(look).put(Style::Head, &format!("  {}", look.text(key))).to(20);
        lines.push(line.put(Style::Plain, &look.text(what)).text);
    }
}

/// The columns behind the name: the head, and in each language the width with the space before it.
const COLUMNS: [(&str, [usize; 3]); 9] = [
    ("top.column.policy", [9, 9, 12]),
    ("top.column.reads", [8, 7, 7]),
    ("top.column.writes", [8, 7, 7]),
    ("top.column.read", [7, 7, 8]),
    ("top.column.written", [8, 7, 7]),
    ("top.column.hit", [5, 7, 5]),
    ("top.column.p99", [11, 9, 9]),
    ("top.column.dirty", [7, 9, 7]),
    ("top.column.drain", [7, 7, 7]),
];

fn name_width(look: Look) -> usize {
    let others = COLUMNS.iter().map(|(_, widths)| look.of(*widths)).sum();
    look.width.saturating_sub(others).clamp(8, 40)
}

fn list(model: &Model, look: Look, room: Option<usize>, lines: &mut Vec<String>) {
    let volumes = model.volumes();
    let name_width = name_width(look);
    let mut head = left(&format!("  {}", look.text("top.column.volume")), name_width);
    for (title, widths) in COLUMNS {
        head.push_str(&right(&look.text(title), look.of(widths)));
    }
    lines.push(line(look, Style::Head, &head));
    if volumes.is_empty() {
        let text = match (model.heard, model.filter.is_empty()) {
            (false, _) => "top.waiting",
            (true, true) => "top.no-volumes",
            (true, false) => "top.no-match",
        };
        lines.push(line(look, Style::Weak, &format!("  {}", look.text(text))));
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
        let name = cut(&volume.report.name, name_width.saturating_sub(2));
        let mut text = left(&format!("{mark} {name}"), name_width);
        for (cell, (_, widths)) in cells(volume, look).iter().zip(COLUMNS) {
            text.push_str(&right(cell, look.of(widths)));
        }
        let style = match (chosen, alert) {
            (true, _) => Style::Chosen,
            (false, true) => Style::Alert,
            (false, false) => Style::Plain,
        };
        lines.push(line(look, style, &text));
    }
}

fn policy_word(policy: PolicyName) -> &'static str {
    match policy {
        PolicyName::Through => "through",
        PolicyName::Back => "back",
    }
}

fn needs_a_look(volume: &FleetVolume) -> bool {
    let report = &volume.report;
    report.policy.requested != report.policy.effective
        || matches!(report.backing.state, BackingState::Failing | BackingState::AwaitingFence)
        || matches!(report.phase, VolumePhase::Failed | VolumePhase::Waiting)
}

fn cells(volume: &FleetVolume, look: Look) -> [String; 9] {
    let report = &volume.report;
    let now = |name: &str| volume.now.get(name).copied();
    let policy = look.word("top.policy", policy_word(report.policy.effective));
    let changed = if report.policy.requested == report.policy.effective { "" } else { "!" };
    let p99 = ["read_client_p99_us", "write_client_p99_us"].iter().filter_map(|name| now(name)).reduce(f64::max);
    let text = |value: Option<f64>, show: fn(f64) -> String| value.map_or("-".to_owned(), show);
    [
        if report.phase == VolumePhase::Serving {
            format!("{changed}{policy}")
        } else {
            cut(&look.word("phase", report.phase.as_str()), look.of(COLUMNS[0].1) - 1).to_owned()
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

/// What the volume is, and where its bytes are.
fn described(volume: &FleetVolume, look: Look) -> [String; 2] {
    let report = &volume.report;
    let clients = if report.connections == 1 { "top.client" } else { "top.clients" };
    let what = Sentence::new("top.volume")
        .with("name", &report.name)
        .with("size", show_size(report.size_bytes))
        .with("policy", look.word("policy", policy_word(report.policy.effective)))
        .with("phase", look.word("phase", report.phase.as_str()))
        .with("clients", look.say(&Sentence::new(clients).with("count", report.connections)));
    let owner = report.cluster.as_ref().map(|cluster| Sentence::new("top.owner").with("node", &cluster.owner));
    let journaled = report.destage.effective == forebay_api::config::DestageName::Journaled;
    let places = Sentence::new("top.places")
        .with("tier", look.word("tier", report.tier.kind.word()))
        .with("size", show_size(report.tier.size_bytes))
        .with("destage", look.word("destage", if journaled { "journaled" } else { "ordered" }))
        .with("state", look.word("backing", report.backing.state.as_str()))
        .with("backing", &report.backing.spec);
    let owner = owner.map_or(String::new(), |owner| look.say(&owner));
    [format!("{}{owner}", look.say(&what)), look.say(&places)]
}

fn detail(model: &Model, volume: &FleetVolume, look: Look, lines: &mut Vec<String>) {
    let report = &volume.report;
    let [what, places] = described(volume, look);
    lines.push(line(look, Style::Head, &what));
    lines.push(line(look, Style::Weak, &places));
    let spark_at = 40;
    // Of the title, of what is now, and of the 99th percentile.
    let [title_width, now_width, p99_width] = look.of([[16, 10, 11], [21, 9, 9], [16, 10, 11]]);
    let seconds = look.width.saturating_sub(spark_at).min(super::model::SECONDS);
    let head = format!("{}{}", right(&look.text("top.now"), title_width + now_width), right("P99", p99_width));
    let past = look.say(&Sentence::new("top.past").with("seconds", seconds));
    lines.push(Line::new(look).put(Style::Head, &head).to(spark_at).put(Style::Head, &past).text);
    let mut row = |title: &str, name: &str, p99: Option<String>, show: fn(f64) -> String| {
        let now = volume.now.get(name).map_or("-".to_owned(), |value| show(*value));
        let p99 = p99.map_or(String::new(), |name| volume.now.get(&name).map_or("-".to_owned(), |value| show(*value)));
        let past = model.line(&report.name, name);
        let past = &past[past.len().saturating_sub(seconds)..];
        let spark = sparkline(past, look.unicode);
        let figures = format!("{}{}{}", left(title, title_width), right(&now, now_width), right(&p99, p99_width));
        lines.push(Line::new(look).put(Style::Plain, &figures).to(spark_at).put(Style::Plain, &spark).text);
    };
    for side in ["write", "read"] {
        for leg in ["client", "local", "network", "backing"] {
            let p99 = Some(format!("{side}_{leg}_p99_us"));
            let title = format!("{} {}", look.word("side", side), look.word("leg", leg));
            row(&title, &format!("{side}_{leg}_us"), p99, micros);
        }
    }
    row(&look.text("top.line.writes"), "write_iops", None, count);
    row(&look.text("top.line.reads"), "read_iops", None, count);
    row(&look.text("top.line.written"), "write_bytes_per_s", None, size);
    row(&look.text("top.line.read"), "read_bytes_per_s", None, size);
    row(&look.text("top.line.hits"), "read_hit_ratio", None, |ratio| format!("{:.1} %", ratio * 100.0));
    row(&look.text("top.line.dirty"), "dirty_bytes", None, size);
    row(&look.text("top.line.drain"), "drain_s", None, show_seconds);
    row(&look.text("top.line.destage"), "destage_bytes_per_s", None, size);
    let waits = Sentence::new("top.waits")
        .with("most", show_size(report.dirty.bytes_max))
        .with("oldest", show_seconds(report.dirty.oldest_s))
        .with("groups", report.dirty.groups_waiting)
        .with("writes", report.dirty.waiting_writes)
        .with("throttled", count(figure(volume, "throttled_per_s")));
    lines.push(line(look, Style::Weak, &look.say(&waits)));
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
    use crate::words::tests::{LANGUAGES, all_is_said};
    use serde_json::json;

    const PLAIN: Look =
        Look { language: Language::En, width: 80, height: Some(24), styles: false, colours: false, unicode: true };

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
        for (screen, language) in [Screen::List, Screen::Detail("vm1".into()), Screen::Help(Box::new(Screen::List))]
            .into_iter()
            .flat_map(|screen| LANGUAGES.map(|language| (screen.clone(), language)))
        {
            let mut model = model(screen.clone());
            model.lost = Some(Sentence::new("top.lost").with("why", "a long reason ".repeat(20)));
            for (width, height) in [(80, 24), (200, 60), (40, 10), (41, 10), (1, 1), (20, 3)] {
                let lines = frame(&model, Look { language, width, height: Some(height), ..PLAIN });
                assert_eq!(lines.len(), height, "{screen:?} {width}x{height}");
                assert!(
                    lines.iter().all(|line| words::width(line) <= width),
                    "{screen:?} {width}x{height}: {lines:#?}"
                );
                all_is_said(&lines.concat());
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
    fn at_80_columns_nothing_is_cut_off_in_any_language() {
        for language in LANGUAGES {
            let look = Look { language, ..PLAIN };
            let mut model = model(Screen::List);
            model.sort = super::super::model::Sort::Requests;
            model.reversed = true;
            let phases = forebay_api::words::VolumePhase::WORDS;
            for (volume, phase) in model.fleet.volumes.iter_mut().zip(phases) {
                volume.report.phase = (*phase).into();
                volume.report.policy.effective = PolicyName::Back;
            }
            let lines = frame(&model, Look { height: Some(60), ..look });
            let first = 2;
            let head = &lines[first];
            // Each column ends where its head does, with a space before it.
            let mut end = name_width(look);
            for (place, (title, widths)) in COLUMNS.iter().enumerate() {
                assert!(words::width(&look.text(title)) < look.of(*widths), "{title}");
                end += look.of(*widths);
                assert!(cut(head, end).ends_with(&look.text(title)), "{title} in {head}");
                for (volume, row) in model.volumes().iter().zip(&lines[first + 1..]) {
                    let cell = &cells(volume, look)[place];
                    assert!(cut(row, end).ends_with(&format!(" {cell}")), "{cell} in {row}");
                }
            }
            assert!(words::width(head) == end && end <= 80, "{head}");
            let cut_off = |phase: &&&str| !lines.iter().any(|line| line.contains(&look.word("phase", phase)));
            let cut_off: Vec<_> = phases.iter().filter(|phase| **phase != "serving").filter(cut_off).collect();
            assert!(cut_off.is_empty() || language == Language::En, "{cut_off:?} {lines:#?}");
            // What is no list is the same where there is more room.
            let wide = Look { width: 200, ..look };
            for screen in [Screen::List, Screen::Detail("vm1".into()), Screen::Help(Box::new(Screen::List))] {
                model.screen = screen;
                assert_eq!(foot(&model, look), foot(&model, wide));
                assert_eq!(frame(&model, look)[..2], frame(&model, wide)[..2]);
            }
            let volume = &model.fleet.volumes[0];
            assert!(described(volume, look).iter().all(|line| words::width(line) <= 80));
            let explained = HELP.iter().map(|(key, what)| (look.text(key), look.text(what)));
            let too_long: Vec<_> =
                explained.filter(|(key, what)| words::width(key) > 16 || words::width(what) > 60).collect();
            assert!(too_long.is_empty() || language == Language::En, "{too_long:?}");
        }
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
    fn details_are_in_columns_in_every_language() {
        for language in LANGUAGES {
            let look = Look { language, ..PLAIN };
            let lines = frame(&model(Screen::Detail("vm1".into())), look);
            let past = look.say(&Sentence::new("top.past").with("seconds", 40));
            let head = lines.iter().position(|line| line.ends_with(&past)).unwrap();
            assert_eq!(words::width(&lines[head]), 40 + words::width(&past), "{lines:#?}");
            let now = words::width(lines[head].split_once("P99").unwrap().0) + 3;
            for line in &lines[head + 1..head + 9] {
                assert!(cut(line, now).ends_with(" -") && words::width(line) <= 80, "{line}");
            }
            assert!(lines[head + 1].ends_with('█') && words::width(&lines[head + 1]) == 80, "{lines:#?}");
            assert!(lines[head + 17].starts_with(&look.text("top.line.dirty")), "{lines:#?}");
        }
        let lines = frame(&model(Screen::Detail("vm1".into())), Look { language: Language::Ja, ..PLAIN });
        for part in
            ["ライトスルー、サービス中", "フラッシュティア 64M", "（バッキング障害）/x.img", "書き込み ネットワーク"]
        {
            assert!(lines.iter().any(|line| line.contains(part)), "no {part} in {lines:#?}");
        }
        assert!(lines[1].starts_with("! vm1: ティア障害: write-through for a reason（1m30s 前から）"), "{lines:#?}");
    }

    #[test]
    fn nothing_comes_behind_what_was_cut_off() {
        let look = Look { width: 5, ..PLAIN };
        let text = Line::new(look).put(Style::Plain, "名前名").put(Style::Plain, "x").text;
        assert_eq!(text, "名前");
        assert_eq!(Line::new(look).put(Style::Plain, "名").to(4).put(Style::Plain, "xyz").text, "名  x");
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
