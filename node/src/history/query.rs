//! From slots to what a chart asks for: which ring, which step, and how slots become one.

use forebay_api::history::format::{RINGS, Ring, SERIES_MAX, Slot};
use forebay_api::history::series::Kind;
use forebay_api::history::{History, Line};
use std::collections::BTreeMap;

/// Most series of one request.
pub const SERIES_ASKED_MAX: usize = 64;
/// Most points of one request.
pub const POINTS_MAX: u64 = 2000;
/// The longest window: as far as the coarsest ring reaches.
pub const WINDOW_MAX_S: u64 = RINGS[3].span_s();

/// Which time and series are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// From this second on, since 1970.
    pub from: u64,
    /// Up to this one, which is not in it.
    pub to: u64,
    /// Steps of the answer, at most.
    pub points: u64,
    /// Places of the series that are asked for.
    pub series: Vec<usize>,
}

/// How a query is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The ring whose slots are read.
    pub ring: Ring,
    /// Seconds of a step of the answer; whole slots.
    pub step_s: u64,
    /// The first step's begin, in seconds since 1970.
    pub from: u64,
    /// The last step's end, in seconds since 1970.
    pub to: u64,
}

/// The ring that is as coarse as the points allow; of those that reach back far enough, if one does.
pub fn plan(query: &Query, now: u64) -> Plan {
    let wanted = (query.to - query.from).div_ceil(query.points).max(1);
    let reaches = |ring: &&Ring| query.from + ring.span_s() >= now;
    let fine_enough = RINGS.iter().rev().find(|ring| u64::from(ring.step_s) <= wanted).unwrap_or(&RINGS[0]);
    let ring = match reaches(&fine_enough) {
        true => fine_enough,
        false => RINGS.iter().filter(|ring| ring.step_s > fine_enough.step_s).find(reaches).unwrap_or(&RINGS[3]),
    };
    let step_s = wanted.next_multiple_of(u64::from(ring.step_s));
    let to = query.to.next_multiple_of(step_s);
    // Rounded outward there may be one step too many: the newest ones count.
    let from = (query.from - query.from % step_s).max(to.saturating_sub(step_s * query.points.max(1)));
    Plan { ring: *ring, step_s, from, to }
}

/// Mean, smallest and largest of what was put in.
#[derive(Clone, Copy)]
pub struct Fold {
    weight: f64,
    sum: f64,
    min: f32,
    max: f32,
}

impl Fold {
    /// What there is before anything was put in.
    pub const NOTHING: Fold = Fold { weight: 0.0, sum: 0.0, min: f32::NAN, max: f32::NAN };

    /// NaN for what there is not; `f32::min` and `max` take the other then.
    pub fn put(&mut self, seconds: f64, avg: f32, min: f32, max: f32) {
        if avg.is_finite() {
            self.weight += seconds;
            self.sum += f64::from(avg) * seconds;
        }
        self.min = self.min.min(min);
        self.max = self.max.max(max);
    }

    /// Mean; `largest`: of a figure that is a largest one.
    pub fn avg(&self, largest: bool) -> f32 {
        match (largest, self.weight > 0.0) {
            (true, _) => self.max,
            (false, true) => (self.sum / self.weight) as f32,
            (false, false) => f32::NAN,
        }
    }

    /// Smallest of what was put in; NaN if there was nothing.
    pub fn min(&self) -> f32 {
        self.min
    }

    /// Largest of what was put in; NaN if there was nothing.
    pub fn max(&self) -> f32 {
        self.max
    }
}

/// A figure whose mean says nothing: the largest of the parts is that of the whole.
pub fn is_largest(name: &str) -> bool {
    name.ends_with("_max_us")
}

/// Two accounts of parts of one step become one.
pub fn merge(one: &Slot, other: &Slot, kind: Kind) -> Slot {
    let mut merged = Slot::empty(one.at);
    merged.seconds = one.seconds.saturating_add(other.seconds);
    for (place, name) in kind.names().iter().enumerate() {
        let mut fold = Fold::NOTHING;
        for slot in [one, other] {
            fold.put(f64::from(slot.seconds.max(1)), slot.avg[place], slot.min[place], slot.max[place]);
        }
        (merged.avg[place], merged.min[place], merged.max[place]) =
            (fold.avg(is_largest(name)), fold.min(), fold.max());
    }
    merged
}

/// Collects slots into the steps of an answer.
pub struct Collector<'a> {
    plan: Plan,
    kind: Kind,
    series: &'a [usize],
    folds: Vec<Fold>,
}

impl<'a> Collector<'a> {
    /// An empty collector for an answer of this plan.
    pub fn new(plan: Plan, kind: Kind, series: &'a [usize]) -> Collector<'a> {
        assert!(series.iter().all(|&place| place < SERIES_MAX));
        let steps = (plan.to - plan.from) / plan.step_s;
        Collector { plan, kind, series, folds: vec![Fold::NOTHING; steps as usize * series.len()] }
    }

    /// A slot of the plan's ring; one that is not within the answer is passed over.
    pub fn take(&mut self, slot: &Slot) {
        if slot.at < self.plan.from || slot.at >= self.plan.to {
            return;
        }
        let step = ((slot.at - self.plan.from) / self.plan.step_s) as usize;
        for (number, &place) in self.series.iter().enumerate() {
            self.folds[step * self.series.len() + number].put(
                f64::from(slot.seconds.max(1)),
                slot.avg[place],
                slot.min[place],
                slot.max[place],
            );
        }
    }

    /// The answer, made of what was taken.
    pub fn finish(self) -> History {
        let Plan { step_s, from, to, .. } = self.plan;
        let some = |value: f32| value.is_finite().then_some(value);
        let mut series = BTreeMap::new();
        for (number, &place) in self.series.iter().enumerate() {
            let name = self.kind.names()[place];
            let folds = || self.folds.iter().skip(number).step_by(self.series.len());
            let avg = folds().map(|fold| some(fold.avg(is_largest(name)))).collect();
            let bounds = step_s > 1;
            let line = Line {
                avg,
                min: bounds.then(|| folds().map(|fold| some(fold.min())).collect()),
                max: bounds.then(|| folds().map(|fold| some(fold.max())).collect()),
            };
            series.insert(name.to_owned(), line);
        }
        let at = (from..to).step_by(step_s as usize).collect();
        History { volume: None, node: None, from, to, step_s, at, series }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;

    fn query(window: u64, points: u64) -> Query {
        Query { from: NOW - window, to: NOW, points, series: vec![0] }
    }

    #[test]
    fn rings_are_as_coarse_as_the_points_allow_and_reach_back_far_enough() {
        let of = |window, points| {
            let plan = plan(&query(window, points), NOW);
            (plan.ring.step_s, plan.step_s)
        };
        assert_eq!(of(600, 600), (1, 1));
        assert_eq!(of(3600, 600), (1, 6));
        assert_eq!(of(8 * 3600, 600), (10, 50));
        assert_eq!(of(86400, 600), (60, 180));
        assert_eq!(of(7 * 86400, 600), (600, 1200));
        assert_eq!(of(7 * 86400, 2000), (60, 360));
        // What is too old for the fine ring is taken from a coarser one, and said to be so coarse.
        let old = Query { from: NOW - 7200, to: NOW - 7100, points: 100, series: vec![0] };
        assert_eq!((plan(&old, NOW).ring.step_s, plan(&old, NOW).step_s), (10, 10));
        let ancient = Query { from: 0, to: 100, points: 100, series: vec![0] };
        assert_eq!(plan(&ancient, NOW).ring.step_s, 600);
    }

    #[test]
    fn no_answer_has_more_steps_than_were_asked_for() {
        for window in [1, 7, 59, 61, 600, 3599, 3601, 86399, 604_800, WINDOW_MAX_S] {
            for points in [1, 2, 599, 600, 2000] {
                for shift in [0, 1, 599] {
                    let query = Query { from: NOW - window - shift, to: NOW - shift, points, series: vec![0] };
                    let plan = plan(&query, NOW);
                    let steps = (plan.to - plan.from) / plan.step_s;
                    assert!(steps >= 1 && steps <= points, "{window} s in {points} points: {steps}");
                    assert_eq!(plan.from % plan.step_s, 0);
                    assert!(plan.step_s.is_multiple_of(u64::from(plan.ring.step_s)));
                }
            }
        }
    }

    fn slot(at: u64, seconds: u16, avg: f32, min: f32, max: f32) -> Slot {
        let mut slot = Slot::empty(at);
        slot.seconds = seconds;
        (slot.avg[0], slot.min[0], slot.max[0]) = (avg, min, max);
        slot
    }

    #[test]
    fn steps_have_means_by_seconds_and_the_bounds_of_their_slots() {
        let plan = Plan { ring: RINGS[1], step_s: 20, from: 1000, to: 1060 };
        let mut collector = Collector::new(plan, Kind::Volume, &[0, 1]);
        collector.take(&slot(1000, 10, 10.0, 1.0, 50.0));
        collector.take(&slot(1010, 5, 40.0, 2.0, 60.0));
        collector.take(&slot(1040, 10, f32::NAN, f32::NAN, f32::NAN));
        collector.take(&slot(1060, 10, 7.0, 7.0, 7.0));
        collector.take(&slot(990, 10, 7.0, 7.0, 7.0));
        let history = collector.finish();
        assert_eq!(history.at, [1000, 1020, 1040]);
        let line = &history.series["read_iops"];
        assert_eq!(line.avg, [Some(20.0), None, None]);
        assert_eq!(line.min.as_deref().unwrap(), [Some(1.0), None, None]);
        assert_eq!(line.max.as_deref().unwrap(), [Some(60.0), None, None]);
        assert_eq!(history.series["write_iops"].avg, [None; 3]);
    }

    #[test]
    fn parts_of_a_step_become_one() {
        let merged = merge(&slot(600, 100, 10.0, 1.0, 20.0), &slot(600, 300, 30.0, 5.0, 40.0), Kind::Volume);
        assert_eq!((merged.seconds, merged.avg[0], merged.min[0], merged.max[0]), (400, 25.0, 1.0, 40.0));
    }
}
