//! What a client may be shown. Each sector has the last write that was acknowledged, and those that were asked for since
//! and may be there or not. What a read has shown of them neither comes nor goes any more.

use std::collections::BTreeMap;

/// A write's number; 0 is zeros.
pub type Stamp = u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Open {
    stamp: Stamp,
    session: u64,
}

#[derive(Clone, Debug, Default)]
struct Sector {
    sure: Stamp,
    /// In the order of asking.
    open: Vec<Open>,
}

/// See the module.
#[derive(Default)]
pub struct Oracle {
    sectors: BTreeMap<u64, Sector>,
    /// Of the present owner; what was asked of earlier ones is never carried out any more once another is seen.
    pub session: u64,
}

impl Oracle {
    /// A write was handed in.
    pub fn asked(&mut self, sectors: impl Iterator<Item = u64>, stamp: Stamp) {
        for sector in sectors {
            self.sectors.entry(sector).or_default().open.push(Open { stamp, session: self.session });
        }
    }

    /// It was acknowledged. Writes of one sector are not asked for at the same time in one session.
    pub fn acknowledged(&mut self, sectors: impl Iterator<Item = u64>, stamp: Stamp) {
        for sector in sectors {
            let known = self.sectors.get_mut(&sector).expect("what is acknowledged was asked for");
            match known.open.iter().position(|open| open.stamp == stamp) {
                Some(place) => drop(known.open.drain(..=place)),
                None => assert_eq!(known.sure, stamp, "a read has shown it before"),
            }
            known.sure = stamp;
        }
    }

    /// A read has shown this, or it lies there at the end.
    pub fn shown(&mut self, sector: u64, stamp: Stamp, what: &str) {
        let session = self.session;
        let known = self.sectors.entry(sector).or_default();
        if known.sure == stamp && known.open.iter().all(|open| open.session == session) {
            return;
        }
        let place = known.open.iter().position(|open| open.stamp == stamp);
        assert!(
            known.sure == stamp || place.is_some(),
            "{what}: sector {sector} holds {stamp}; acknowledged is {}, asked for since {:?}",
            known.sure,
            known.open
        );
        if let Some(place) = place {
            known.open.drain(..=place);
        }
        known.sure = stamp;
        // What earlier sessions left open is decided by this.
        known.open.retain(|open| open.session == session);
    }
}
