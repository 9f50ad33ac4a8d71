//! What bounds a data path: every resource that its bytes pass, how often each byte passes it, and what is left of it for this path.
//!
//! ```text
//! bound = min over all resources of (capacity - other traffic) / multiplicity
//! ```
//!
//! A byte that is delivered once may pass a resource several times: memory is written by a device and read by another, a copy reads and writes,
//! a link between sockets carries what lies on the wrong one. What it is that bounds, what would bound next, and what does not by far, all
//! follow from this one formula.

pub mod ends;
mod hops;
pub mod path;
pub mod rate;
mod traffic;

use super::findings::{Evidence, Sentence};
use crate::formulas;
use serde::Serialize;

/// One resource of a path.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Hop {
    /// Tells it from the others, in the names of the kernel: what shares the resource has the same.
    pub resource: String,
    /// What it is, in words.
    pub text: Sentence,
    /// Bytes a second that it can carry. None: not known; such a hop is shown, and bounds nothing.
    pub capacity: Option<f64>,
    /// Bytes a second of these that others use.
    pub other: f64,
    /// Bytes that pass it for each byte delivered.
    pub multiplicity: f64,
    /// The files and counters that show its capacity.
    pub evidence: Vec<Evidence>,
    /// What would widen it; none: nothing that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<Sentence>,
}

impl Hop {
    /// What the path could deliver if only this hop were in its way.
    pub fn bound(&self) -> Option<f64> {
        (self.multiplicity > 0.0).then_some((self.capacity? - self.other).max(0.0) / self.multiplicity)
    }

    /// How full it is while the path delivers this, with what others use.
    pub fn used_at(&self, delivered: f64) -> Option<f64> {
        Some((delivered * self.multiplicity + self.other) / self.capacity?)
    }

    /// How many times more it could carry than this delivery asks of it.
    pub fn headroom(&self, delivered: f64) -> Option<f64> {
        Some(self.bound()? / delivered)
    }
}

/// The hops of one path.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Chain {
    /// The hops, in the order in which bytes pass them.
    pub hops: Vec<Hop>,
}

/// How far a measured rate is from its bound.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Reached {
    /// Nothing is left but what the bound itself would give.
    Physics(f64),
    /// The hop bounds: what is missing is its own overhead.
    Bound(f64),
    /// Not far below: the hop may bound with more overhead than most, or something beside the chain does.
    Near(f64),
    /// No hop of the chain bounds: what does is not among them.
    NotTheChain(f64),
    /// More than the chain can carry: one of its capacities is not what it was taken for.
    MoreThanThat(f64),
}

/// From here on, nothing is left to win but by changing the hop: 97.5 % and 99.8 % of what TCP can carry were measured over two NICs.
const PHYSICS: f64 = 0.97;
/// From here on, the hop is what bounds: 93 % were measured where a PCIe link was the bound, whose own traffic takes 5 %. As much again for how runs
/// differ.
const BOUND: f64 = formulas::PCIE_AFTER_DLLPS - 0.05;
/// From here on the figure alone does not tell whether the hop bounds: runs differ by a tenth, so nothing turns around at one percent.
const NEAR: f64 = BOUND - 0.10;
/// Hops whose bounds differ by less are about equal: formulas leave out as much of each, and so no figure tells which is the lower one.
const ABOUT_EQUAL: f64 = 1.05;
/// Capacities are rounded, and so are rates that people type.
const ROUNDING: f64 = 1.02;

impl Chain {
    /// Adds a hop; of a resource that is there already, only its multiplicity grows.
    pub fn pass(&mut self, hop: Hop) {
        match self.hops.iter_mut().find(|there| there.resource == hop.resource) {
            Some(there) => there.multiplicity += hop.multiplicity,
            None => self.hops.push(hop),
        }
    }

    /// The hops that may bound, the lowest bound first.
    pub fn by_bound(&self) -> Vec<(&Hop, f64)> {
        let mut hops: Vec<(&Hop, f64)> = self.hops.iter().filter_map(|hop| Some((hop, hop.bound()?))).collect();
        hops.sort_by(|a, b| a.1.total_cmp(&b.1));
        hops
    }

    /// What bounds, and at how much.
    pub fn bound(&self) -> Option<(&Hop, f64)> {
        self.by_bound().into_iter().next()
    }

    /// The hops that are about equal to the bound: two slots of one kind bound together, and are cured together.
    pub fn bounding(&self) -> Vec<&Hop> {
        let Some((_, bound)) = self.bound() else { return Vec::new() };
        let hops = self.by_bound().into_iter();
        hops.take_while(|(_, value)| *value <= bound * ABOUT_EQUAL).map(|(hop, _)| hop).collect()
    }

    /// What would bound if what bounds now did not.
    pub fn next_bound(&self) -> Option<(&Hop, f64)> {
        let (_, bound) = self.bound()?;
        self.by_bound().into_iter().find(|(_, value)| *value > bound * ABOUT_EQUAL)
    }

    /// What a measured rate says about the bound.
    pub fn reached(&self, measured: f64) -> Option<Reached> {
        let share = measured / self.bound()?.1;
        Some(match share {
            share if share > ROUNDING => Reached::MoreThanThat(share),
            share if share >= PHYSICS => Reached::Physics(share),
            share if share >= BOUND => Reached::Bound(share),
            share if share >= NEAR => Reached::Near(share),
            share => Reached::NotTheChain(share),
        })
    }

    /// What will be measured once another bound takes the place of this one: the same share of it as of this one.
    pub fn predicted(&self, measured: f64, changed: &Chain) -> Option<f64> {
        let then = changed.bound()?.1;
        match self.reached(measured)? {
            Reached::Physics(share) | Reached::Bound(share) => Some(then * share),
            // What bounds is not in the chain, and stays.
            Reached::NotTheChain(_) => Some(measured),
            Reached::Near(_) | Reached::MoreThanThat(_) => None,
        }
    }

    /// The same chain without what bounds it.
    pub fn cured(&self) -> Chain {
        let bounding: Vec<&str> = self.bounding().iter().map(|hop| hop.resource.as_str()).collect();
        let hops = self.hops.iter().filter(|hop| !bounding.contains(&hop.resource.as_str()));
        Chain { hops: hops.cloned().collect() }
    }
}

#[cfg(test)]
mod tests;
