//! A breadth-first checker of finite models: every reachable state, shortest counterexamples, and recovery.
//!
//! States are known by 64 bits of a hash; with 10^7 states the chance that two share one is 3 in a million. A trace is
//! found again by running the model once more along the hashes. *Recovery* is what most checkers do not offer (`AG EF`):
//! from each reachable state, a good one must be reachable by steps that are no faults. That, and 45 packages less, is why
//! there is a checker of our own: stateright's `eventually` passes over whatever closes a cycle, by its own documentation.

use std::collections::HashMap;
use std::fmt::Debug;
use std::hash::{BuildHasherDefault, Hash, Hasher};

/// A system whose every reachable state is to be looked at.
pub trait Model {
    /// Everything there is at one moment.
    type State: Clone + Eq + Hash + Debug;
    /// What leads from one to the next.
    type Step: Clone + Debug;
    /// The state that everything begins with.
    fn initial(&self) -> Self::State;
    /// Appends every step that may be taken, with the state after it.
    fn steps(&self, state: &Self::State, out: &mut Vec<(Self::Step, Self::State)>);
    /// What is wrong in a state.
    fn violation(&self, state: &Self::State) -> Option<String>;
    /// A step that only bad luck or an operator takes.
    fn is_fault(&self, before: &Self::State, after: &Self::State) -> bool;
    /// A state in which all is well, or from which nobody expects a recovery.
    fn is_good(&self, state: &Self::State) -> bool;
}

/// What a run found.
#[derive(Debug)]
pub struct Outcome<S> {
    /// How many different states were seen.
    pub states: usize,
    /// What is wrong, the steps that lead there, and the state.
    pub found: Option<(String, Vec<S>, String)>,
    /// The run ended at its bound of states: what lies behind was not seen.
    pub cut_off: bool,
}

/// Looks at every state; with `recovery`, also whether each can recover. At most `most` states.
pub fn check<M: Model>(model: &M, recovery: bool, most: usize) -> Outcome<M::Step> {
    let initial = model.initial();
    let mut graph = Graph::new(fingerprint(&initial));
    let mut level = vec![(0u32, initial)];
    let mut steps = Vec::new();
    while !level.is_empty() {
        let mut next = Vec::new();
        for (number, state) in level {
            if let Some(wrong) = model.violation(&state) {
                return graph.counterexample(model, number, wrong, &state);
            }
            if recovery && model.is_good(&state) {
                graph.good.push(number);
            }
            model.steps(&state, &mut steps);
            for (_, after) in steps.drain(..) {
                let fault = recovery && model.is_fault(&state, &after);
                let (to, new) = graph.add(fingerprint(&after), number);
                if recovery && !fault {
                    graph.edges.push((to, number));
                }
                if new {
                    next.push((to, after));
                }
            }
            if graph.parents.len() > most {
                return Outcome { states: graph.parents.len(), found: None, cut_off: true };
            }
        }
        level = next;
    }
    match recovery.then(|| graph.first_stuck()).flatten() {
        Some(number) => {
            let (steps, state) = graph.replay(model, number);
            let wrong = "no recovery: without further faults no state is reachable in which all is well".to_string();
            Outcome { states: graph.parents.len(), found: Some((wrong, steps, format!("{state:?}"))), cut_off: false }
        }
        None => Outcome { states: graph.parents.len(), found: None, cut_off: false },
    }
}

/// What is kept of the states seen: numbers in the order of their discovery.
struct Graph {
    numbers: HashMap<u64, u32, BuildHasherDefault<Mix>>,
    /// By number: own fingerprint, and the number of the state that it was first reached from.
    parents: Vec<(u64, u32)>,
    /// Backwards, of steps that are no faults.
    edges: Vec<(u32, u32)>,
    good: Vec<u32>,
}

impl Graph {
    fn new(initial: u64) -> Graph {
        let numbers = HashMap::from_iter([(initial, 0)]);
        Graph { numbers, parents: vec![(initial, 0)], edges: Vec::new(), good: Vec::new() }
    }

    fn add(&mut self, print: u64, from: u32) -> (u32, bool) {
        let new = self.parents.len() as u32;
        let number = *self.numbers.entry(print).or_insert(new);
        if number == new {
            self.parents.push((print, from));
        }
        (number, number == new)
    }

    /// The earliest state from which no good one is reachable.
    fn first_stuck(&mut self) -> Option<u32> {
        self.edges.sort_unstable();
        let mut recovers = vec![false; self.parents.len()];
        let mut open = std::mem::take(&mut self.good);
        while let Some(number) = open.pop() {
            if !std::mem::replace(&mut recovers[number as usize], true) {
                let first = self.edges.partition_point(|edge| edge.0 < number);
                open.extend(self.edges[first..].iter().take_while(|edge| edge.0 == number).map(|edge| edge.1));
            }
        }
        recovers.iter().position(|recovers| !recovers).map(|at| at as u32)
    }

    fn replay<M: Model>(&self, model: &M, number: u32) -> (Vec<M::Step>, M::State) {
        let mut path = vec![number];
        while let Some(&last) = path.last()
            && last != 0
        {
            path.push(self.parents[last as usize].1);
        }
        let (mut state, mut taken) = (model.initial(), Vec::new());
        for number in path.iter().rev().skip(1) {
            let mut steps = Vec::new();
            model.steps(&state, &mut steps);
            let wanted = self.parents[*number as usize].0;
            let (step, after) =
                steps.into_iter().find(|(_, after)| fingerprint(after) == wanted).expect("it was there");
            taken.push(step);
            state = after;
        }
        (taken, state)
    }

    fn counterexample<M: Model>(&self, model: &M, number: u32, wrong: String, state: &M::State) -> Outcome<M::Step> {
        let (steps, _) = self.replay(model, number);
        Outcome { states: self.parents.len(), found: Some((wrong, steps, format!("{state:?}"))), cut_off: false }
    }
}

fn fingerprint<T: Hash>(state: &T) -> u64 {
    let mut hasher = Mix::default();
    state.hash(&mut hasher);
    hasher.finish()
}

/// Multiply and fold, a word at a time: ten times as fast as the standard hasher, whose defence against hostile keys is
/// of no use here.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, value: u8) {
        self.write_u64(u64::from(value) + 1);
    }

    fn write_u64(&mut self, value: u64) {
        let wide = u128::from(self.0 ^ value) * 0xd6e8_feb8_6659_fd93;
        self.0 = (wide as u64 ^ (wide >> 64) as u64).wrapping_add(0x9e37_79b9_7f4a_7c15);
    }

    fn finish(&self) -> u64 {
        let folded = (self.0 ^ (self.0 >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        folded ^ (folded >> 32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers below ten: one more, twice as many, or by bad luck a trap at nine that nothing leads out of.
    struct Numbers {
        wrong: u8,
        trap_is_open: bool,
    }

    impl Model for Numbers {
        type State = u8;
        type Step = &'static str;

        fn initial(&self) -> u8 {
            1
        }

        fn steps(&self, state: &u8, out: &mut Vec<(&'static str, u8)>) {
            match *state {
                9 if !self.trap_is_open => {}
                9 => out.push(("out", 1)),
                8 => out.push(("back", 1)),
                number => out.extend([("one more", number + 1), ("twice", (number * 2).min(8)), ("luck", 9)]),
            }
        }

        fn violation(&self, state: &u8) -> Option<String> {
            (*state == self.wrong).then(|| "wrong".to_string())
        }

        fn is_fault(&self, _: &u8, after: &u8) -> bool {
            *after == 9
        }

        fn is_good(&self, state: &u8) -> bool {
            *state == 8
        }
    }

    #[test]
    fn a_shortest_trace_is_found() {
        let outcome = check(&Numbers { wrong: 6, trap_is_open: true }, false, 100);
        let (wrong, steps, state) = outcome.found.expect("6 is reachable");
        assert_eq!((wrong.as_str(), steps.len(), state.as_str()), ("wrong", 3, "6"));
    }

    #[test]
    fn a_state_without_recovery_is_found_and_one_with_it_is_not() {
        let stuck = check(&Numbers { wrong: 0, trap_is_open: false }, true, 100);
        assert_eq!(stuck.found.map(|(_, steps, state)| (steps, state)), Some((vec!["luck"], "9".to_string())));
        let free = check(&Numbers { wrong: 0, trap_is_open: true }, true, 100);
        assert!(free.found.is_none() && free.states == 9, "{free:?}");
    }

    #[test]
    fn what_is_cut_off_is_said() {
        let outcome = check(&Numbers { wrong: 8, trap_is_open: true }, false, 3);
        assert!(outcome.cut_off && outcome.found.is_none());
    }
}
