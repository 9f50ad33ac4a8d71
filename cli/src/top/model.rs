//! What is shown: the fleet, the last two minutes of each volume, and what the user has chosen.

use super::feed::Update;
use super::terminal::Key;
use crate::words::Sentence;
use forebay_api::status::{Degraded, NodeReport, VolumeReport};
use serde::Deserialize;
use serde_json::Value;
use std::cmp::Ordering;
use std::collections::{BTreeMap, VecDeque};

/// How many seconds of each series are kept.
pub const SECONDS: usize = 120;

/// The series that are shown.
pub const SERIES: [&str; 25] = [
    "read_iops",
    "write_iops",
    "read_bytes_per_s",
    "write_bytes_per_s",
    "read_hit_ratio",
    "dirty_bytes",
    "drain_s",
    "destage_bytes_per_s",
    "throttled_per_s",
    "read_client_us",
    "read_local_us",
    "read_network_us",
    "read_backing_us",
    "write_client_us",
    "write_local_us",
    "write_network_us",
    "write_backing_us",
    "read_client_p99_us",
    "read_local_p99_us",
    "read_network_p99_us",
    "read_backing_p99_us",
    "write_client_p99_us",
    "write_local_p99_us",
    "write_network_p99_us",
    "write_backing_p99_us",
];

/// The cluster as `/v1/fleet` shows it.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct Fleet {
    /// The nodes of the cluster, this one first.
    pub nodes: Vec<FleetNode>,
    /// Volumes that any node tells of.
    pub volumes: Vec<FleetVolume>,
    /// What is not as it should be.
    pub degraded: Vec<Degraded>,
}

/// A node with its figures.
#[derive(Deserialize)]
pub struct FleetNode {
    /// The node's name in the cluster.
    pub name: String,
    /// It is the one that answers.
    pub own: bool,
    /// What it says of itself.
    #[serde(default)]
    pub report: Option<NodeReport>,
    /// Figures of the last second.
    #[serde(default)]
    pub now: BTreeMap<String, f64>,
}

/// A volume with its figures.
#[derive(Deserialize)]
pub struct FleetVolume {
    /// What the volume says of itself.
    #[serde(flatten)]
    pub report: VolumeReport,
    /// Figures of the last second.
    #[serde(default)]
    pub now: BTreeMap<String, f64>,
}

/// By what volumes are sorted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    /// From a to z.
    Name,
    /// The most requests first.
    Requests,
    /// The most bytes first.
    Bytes,
    /// The slowest first.
    Latency,
    /// The most dirty first.
    Dirty,
    /// The longest to drain first.
    Drain,
}

impl Sort {
    const ALL: [Sort; 6] = [Sort::Name, Sort::Requests, Sort::Bytes, Sort::Latency, Sort::Dirty, Sort::Drain];

    /// Its word among those of the screen.
    pub fn word(self) -> &'static str {
        match self {
            Sort::Name => "name",
            Sort::Requests => "requests",
            Sort::Bytes => "bytes",
            Sort::Latency => "latency",
            Sort::Dirty => "dirty",
            Sort::Drain => "drain",
        }
    }

    fn next(self) -> Sort {
        let place = Sort::ALL.iter().position(|sort| *sort == self).expect("all are in the list");
        Sort::ALL[(place + 1) % Sort::ALL.len()]
    }
}

/// What is on the screen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Screen {
    /// All volumes that the filter lets through.
    List,
    /// The volume of this name.
    Detail(String),
    /// The keys; behind it, what was there before.
    Help(Box<Screen>),
}

/// Everything that the screen is drawn from.
pub struct Model {
    /// What the last look has shown.
    pub fleet: Fleet,
    /// Why the daemon does not answer, while it does not.
    pub lost: Option<Sentence>,
    /// Something was heard from the daemon.
    pub heard: bool,
    /// What is on the screen.
    pub screen: Screen,
    /// What is new is passed over, so that the screen stands still.
    pub paused: bool,
    /// Volumes whose names have this in them.
    pub filter: String,
    /// The filter is being typed.
    pub typing: bool,
    /// By what volumes are sorted.
    pub sort: Sort,
    /// Volumes are sorted the other way round.
    pub reversed: bool,
    selected: Option<String>,
    past: BTreeMap<String, BTreeMap<&'static str, VecDeque<f64>>>,
}

impl Model {
    /// A model that has heard nothing yet.
    pub fn new(screen: Screen) -> Model {
        Model {
            fleet: Fleet::default(),
            lost: None,
            heard: false,
            screen,
            paused: false,
            filter: String::new(),
            typing: false,
            sort: Sort::Name,
            reversed: false,
            selected: None,
            past: BTreeMap::new(),
        }
    }

    /// Takes over what is new, unless the screen is to stand still.
    pub fn take(&mut self, update: Update) {
        match update {
            Update::Lost(why) => {
                self.lost = Some(Sentence::new("top.lost").with("why", why));
                return;
            }
            Update::Fleet(_) | Update::Past(..) | Update::Point(_) => {
                self.heard = true;
                self.lost = None;
            }
        }
        if self.paused {
            return;
        }
        match update {
            Update::Lost(_) => {}
            Update::Fleet(fleet) => {
                match serde_json::from_value(fleet) {
                    Ok(fleet) => self.fleet = fleet,
                    Err(error) => {
                        self.lost = Some(Sentence::new("top.other-version").with("why", error));
                        return;
                    }
                }
                let names: Vec<&String> = self.fleet.volumes.iter().map(|volume| &volume.report.name).collect();
                self.past.retain(|name, _| names.contains(&name));
            }
            Update::Past(volume, past) => {
                let lines = self.past.entry(volume).or_default();
                for name in SERIES {
                    let values = past["series"][name]["avg"].as_array().into_iter().flatten();
                    let values = values.map(|value| value.as_f64().unwrap_or(f64::NAN));
                    lines.insert(name, values.collect());
                }
                lines.values_mut().for_each(shorten);
            }
            Update::Point(point) => self.take_point(&point),
        }
    }

    fn take_point(&mut self, point: &Value) {
        for (name, values) in point["volumes"].as_object().into_iter().flatten() {
            let lines = self.past.entry(name.clone()).or_default();
            for series in SERIES {
                let line = lines.entry(series).or_default();
                line.push_back(values[series].as_f64().unwrap_or(f64::NAN));
                shorten(line);
            }
            if let Some(volume) = self.fleet.volumes.iter_mut().find(|volume| volume.report.name == *name) {
                volume.now = serde_json::from_value(values.clone()).unwrap_or_default();
            }
        }
        for (name, values) in point["nodes"].as_object().into_iter().flatten() {
            if let Some(node) = self.fleet.nodes.iter_mut().find(|node| node.name == *name) {
                node.now = serde_json::from_value(values.clone()).unwrap_or_default();
            }
        }
    }

    /// The last minutes of a series of a volume.
    pub fn line(&self, volume: &str, series: &str) -> Vec<f64> {
        let line = self.past.get(volume).and_then(|lines| lines.get(series));
        line.map(|line| line.iter().copied().collect()).unwrap_or_default()
    }

    /// The volumes that the filter leaves, in their order.
    pub fn volumes(&self) -> Vec<&FleetVolume> {
        let wanted = |volume: &&FleetVolume| volume.report.name.contains(&self.filter);
        let mut volumes: Vec<&FleetVolume> = self.fleet.volumes.iter().filter(wanted).collect();
        let sum = |volume: &FleetVolume, names: &[&str]| -> f64 { names.iter().map(|name| figure(volume, name)).sum() };
        let key = |volume: &FleetVolume| match self.sort {
            Sort::Name => 0.0,
            Sort::Requests => sum(volume, &["read_iops", "write_iops"]),
            Sort::Bytes => sum(volume, &["read_bytes_per_s", "write_bytes_per_s"]),
            Sort::Latency => figure(volume, "read_client_p99_us").max(figure(volume, "write_client_p99_us")),
            Sort::Dirty => volume.report.dirty.bytes as f64,
            Sort::Drain => volume.report.dirty.drain_s.unwrap_or(0.0),
        };
        volumes.sort_by(|a, b| {
            let order = key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal);
            order.then_with(|| a.report.name.cmp(&b.report.name))
        });
        if self.reversed {
            volumes.reverse();
        }
        volumes
    }

    /// Place of the chosen one among [`Model::volumes`].
    pub fn selected(&self) -> usize {
        let chosen = self.selected.as_ref();
        let volumes = self.volumes();
        volumes.iter().position(|volume| Some(&volume.report.name) == chosen).unwrap_or(0)
    }

    fn select(&mut self, place: usize) {
        let volumes = self.volumes();
        let place = place.min(volumes.len().saturating_sub(1));
        self.selected = volumes.get(place).map(|volume| volume.report.name.clone());
    }

    /// Does what a key means; false: it ends.
    pub fn press(&mut self, key: Key, page: usize) -> bool {
        if key == Key::Interrupt {
            return false;
        }
        if self.typing {
            match key {
                Key::Char(c) => self.filter.push(c),
                Key::Backspace => drop(self.filter.pop()),
                Key::Enter => self.typing = false,
                Key::Escape => {
                    self.filter.clear();
                    self.typing = false;
                }
                _ => {}
            }
            return true;
        }
        if let Screen::Help(behind) = &self.screen {
            let behind = (**behind).clone();
            if key == Key::Char('q') {
                return false;
            }
            self.screen = behind;
            return true;
        }
        let place = self.selected();
        match key {
            Key::Char('q') => return false,
            Key::Char('?') | Key::Char('h') => self.screen = Screen::Help(Box::new(self.screen.clone())),
            Key::Char('p') | Key::Char(' ') => self.paused = !self.paused,
            Key::Char('s') => self.sort = self.sort.next(),
            Key::Char('r') => self.reversed = !self.reversed,
            Key::Char('/') if self.screen == Screen::List => self.typing = true,
            Key::Escape | Key::Left | Key::Backspace => {
                if self.screen == Screen::List {
                    self.filter.clear();
                }
                self.screen = Screen::List;
            }
            Key::Up | Key::Char('k') => self.select(place.saturating_sub(1)),
            Key::Down | Key::Char('j') => self.select(place + 1),
            Key::PageUp => self.select(place.saturating_sub(page)),
            Key::PageDown => self.select(place + page),
            Key::Home | Key::Char('g') => self.select(0),
            Key::End | Key::Char('G') => self.select(usize::MAX),
            Key::Enter | Key::Right => {
                self.select(place);
                if let (Screen::List, Some(name)) = (&self.screen, &self.selected) {
                    self.screen = Screen::Detail(name.clone());
                }
            }
            Key::Interrupt | Key::Char(_) => {}
        }
        // In the details of one the arrows lead to the next.
        if let (Screen::Detail(shown), Some(name)) = (&mut self.screen, &self.selected)
            && self.selected.as_ref() != Some(shown)
            && matches!(key, Key::Up | Key::Down | Key::Char('j' | 'k'))
        {
            shown.clone_from(name);
        }
        true
    }
}

fn shorten(line: &mut VecDeque<f64>) {
    line.drain(..line.len().saturating_sub(SECONDS));
}

/// A figure of the last second; 0 where there is none.
pub fn figure(volume: &FleetVolume, name: &str) -> f64 {
    volume.now.get(name).copied().unwrap_or(0.0)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use serde_json::json;

    pub(crate) fn fleet(names: &[(&str, f64)]) -> Value {
        let (node, volume) = (forebay_api::status::example_node(), forebay_api::status::example_volume());
        let volumes: Vec<Value> = names
            .iter()
            .map(|(name, iops)| {
                let mut volume = serde_json::to_value(&volume).unwrap();
                volume["name"] = json!(name);
                volume["now"] = json!({ "write_iops": iops, "write_client_p99_us": 1e6 / iops });
                volume
            })
            .collect();
        let node = json!({ "name": "alpha", "own": true, "report": node, "now": { "cpu_ratio": 0.25 } });
        let degraded =
            json!({ "volume": "vm1", "code": "tier-error", "text": "write-through for a reason", "since_s": 90.0 });
        json!({ "at": 1, "nodes": [node], "volumes": volumes, "degraded": [degraded], "totals": {} })
    }

    fn names(model: &Model) -> Vec<&str> {
        model.volumes().iter().map(|volume| volume.report.name.as_str()).collect()
    }

    #[test]
    fn keys_sort_filter_choose_and_show() {
        let mut model = Model::new(Screen::List);
        model.take(Update::Fleet(fleet(&[("vm1", 10.0), ("vm2", 30.0), ("db", 20.0)])));
        let mut press =
            |text: &str| text.chars().all(|c| model.press(super::super::terminal::parse_keys(&[c as u8])[0], 10));
        assert!(press("s"));
        assert_eq!(names(&model), ["vm2", "db", "vm1"]);
        assert!(model.press(Key::Down, 10) && model.press(Key::Enter, 10));
        assert_eq!(model.screen, Screen::Detail("db".into()));
        assert!(model.press(Key::Down, 10));
        assert_eq!(model.screen, Screen::Detail("vm1".into()), "the next one");
        assert!(model.press(Key::Escape, 10));
        let mut press = |text: &str| text.chars().all(|c| model.press(Key::Char(c), 10));
        assert!(press("/vm"), "typed");
        assert!(model.press(Key::Enter, 10));
        assert_eq!(names(&model), ["vm2", "vm1"]);
        assert!(model.press(Key::Char('r'), 10));
        assert_eq!(names(&model), ["vm1", "vm2"]);
        assert!(model.press(Key::Char('?'), 10) && model.press(Key::Char('x'), 10));
        assert_eq!(model.screen, Screen::List);
        assert!(model.press(Key::End, 10) && model.selected() == 1);
        assert!(!model.press(Key::Char('q'), 10) && !model.press(Key::Interrupt, 10));
    }

    #[test]
    fn points_become_lines_and_a_pause_holds_them() {
        let mut model = Model::new(Screen::List);
        model.take(Update::Fleet(fleet(&[("vm1", 10.0)])));
        let past = json!({ "series": { "write_iops": { "avg": [1.0, null, 3.0] } } });
        model.take(Update::Past("vm1".into(), past));
        let point = |iops: f64| json!({ "at": 2, "volumes": { "vm1": { "write_iops": iops } }, "nodes": { "alpha": { "cpu_ratio": 0.5 } } });
        model.take(Update::Point(point(4.0)));
        assert_eq!(model.line("vm1", "write_iops")[2..], [3.0, 4.0]);
        assert!(model.line("vm1", "write_iops")[1].is_nan());
        assert_eq!(model.fleet.nodes[0].now["cpu_ratio"], 0.5);
        assert!(model.press(Key::Char('p'), 10));
        model.take(Update::Point(point(5.0)));
        assert_eq!(figure(&model.fleet.volumes[0], "write_iops"), 4.0);
        for second in 0..500 {
            model.paused = false;
            model.take(Update::Point(point(f64::from(second))));
        }
        assert_eq!(model.line("vm1", "write_iops").len(), SECONDS);
        model.take(Update::Fleet(json!({ "volumes": [{ "name": 7 }] })));
        assert!(model.lost.as_ref().is_some_and(|why| why.key == "top.other-version"), "{:?}", model.lost);
        model.take(Update::Lost("it is gone".into()));
        assert!(model.lost.is_some());
        model.take(Update::Fleet(fleet(&[])));
        assert!(model.lost.is_none() && model.line("vm1", "write_iops").is_empty());
    }
}
