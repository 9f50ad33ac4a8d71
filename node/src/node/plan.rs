//! What a change makes of a volume of one node, worked out from its record before anything is done.
//!
//! Invariant: nothing here does anything, so what is refused here has changed nothing.

use super::{Answer, failure};
use crate::failure::FailureKind;
use forebay_api::config::volume::{Change, CommonChange};
use forebay_api::config::{DestageName, PolicyName, TierName};
use forebay_api::record::Record;
use forebay_api::units::show_size;
use forebay_core::types::BLOCK_BYTES;

/// Settings that get other values; what is none stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) policy: Option<PolicyName>,
    pub(super) drain_max_s: Option<u64>,
    pub(super) destage: Option<DestageName>,
    pub(super) common: CommonChange,
}

impl Settings {
    /// Writes them into a record.
    pub(super) fn put_into(&self, record: &mut Record) {
        record.policy = self.policy.unwrap_or(record.policy);
        record.drain_max_s = self.drain_max_s.unwrap_or(record.drain_max_s);
        record.destage = self.destage.unwrap_or(record.destage);
        record.common = record.common.with(&self.common);
    }

    /// The same settings with the values that a record has: what takes them back.
    pub(super) fn as_in(&self, record: &Record) -> Settings {
        Settings {
            policy: self.policy.map(|_| record.policy),
            drain_max_s: self.drain_max_s.map(|_| record.drain_max_s),
            destage: self.destage.map(|_| record.destage),
            common: self.common.back_to(&record.common),
        }
    }
}

/// A tier on another medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) kind: TierName,
    /// Bytes, in whole blocks.
    pub(super) size_bytes: u64,
}

/// All of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// In effect at once, or, with another tier, from when the volume is on that.
    pub(super) settings: Settings,
    /// None: it has that medium already, or none was asked for.
    pub(super) tier: Option<Wanted>,
}

/// Works out a change, or says what is against it.
pub(super) fn plan(change: &Change, record: &Record) -> Answer<Plan> {
    let name = &record.name;
    if change.is_of_cluster() {
        let message = format!(
            "volume {name} is of this node alone, and has neither peers nor an address that moves: those are for volumes \
             that a node of a cluster creates with --peers"
        );
        return failure(FailureKind::Conflict, message);
    }
    let settings = Settings {
        policy: change.policy,
        drain_max_s: change.drain_max_s,
        destage: change.destage,
        common: change.into(),
    };
    let asked_bytes = change.tier_size.map(|bytes| bytes / BLOCK_BYTES * BLOCK_BYTES);
    let tier = match change.tier {
        None => None,
        Some(kind) if kind == record.tier.kind => {
            if asked_bytes.is_some_and(|bytes| bytes != record.tier.size_bytes) {
                let message = format!(
                    "volume {name} has a {} tier of {} already; its size changes only with its medium",
                    kind.word(),
                    show_size(record.tier.size_bytes)
                );
                return failure(FailureKind::Conflict, message);
            }
            None
        }
        Some(TierName::Memory) if !(record.volatile || change.volatile) => {
            let message = format!(
                "volume {name}: on a memory tier a crash of the host loses what is not destaged, flushed writes too; accept that \
                 with --volatile"
            );
            return failure(FailureKind::Invalid, message);
        }
        Some(kind) => Some(Wanted { kind, size_bytes: asked_bytes.unwrap_or(record.tier.size_bytes) }),
    };
    if tier.is_some() && settings.common.clients.is_some() {
        let message = format!(
            "volume {name}: say who may use it by itself, and then ask for the other tier: together, who is to be kept out would be let in \
             until the volume is on that"
        );
        return failure(FailureKind::Invalid, message);
    }
    Ok(Plan { settings, tier })
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::checked::Line;
    use forebay_api::config::certificates::Clients;
    use forebay_api::record::{STORE_VERSION, TierRecord, VolumeId};

    fn record() -> Record {
        Record {
            version: STORE_VERSION,
            name: "vm1".to_owned(),
            volume: VolumeId([1; 16]),
            backing: "/x.img".to_owned(),
            size_bytes: 1 << 30,
            policy: PolicyName::Back,
            drain_max_s: 30,
            volatile: false,
            format_raw: false,
            memory_bytes: 1 << 24,
            destage: DestageName::Auto,
            journal_bytes: 0,
            spare: None,
            common: Default::default(),
            tier: TierRecord { kind: TierName::Flash, path: "/t".into(), size_bytes: 1 << 26, made: true },
        }
    }

    #[test]
    fn a_change_of_which_a_part_is_refused_is_refused_whole() {
        let policy = Some(PolicyName::Through);
        let memory = Change { policy, tier: Some(TierName::Memory), ..Change::default() };
        let refused = plan(&memory, &record()).unwrap_err();
        assert!(refused.kind == FailureKind::Invalid && refused.message.contains("--volatile"), "{refused:?}");
        let larger = Change { policy, tier: Some(TierName::Flash), tier_size: Some(1 << 27), ..Change::default() };
        let refused = plan(&larger, &record()).unwrap_err();
        assert!(refused.kind == FailureKind::Conflict && refused.message.contains("already"), "{refused:?}");
        let peers = Change { policy, peers: Some(1), ..Change::default() };
        assert_eq!(plan(&peers, &record()).unwrap_err().kind, FailureKind::Conflict);

        // Whoever is kept out is kept out at once, and not when a tier has been drained.
        let barred = Change { clients: Some(Clients::Any), volatile: true, ..memory.clone() };
        assert_eq!(plan(&barred, &record()).unwrap_err().kind, FailureKind::Invalid);

        let taken = plan(&Change { volatile: true, ..memory }, &record()).unwrap();
        assert_eq!(taken.tier, Some(Wanted { kind: TierName::Memory, size_bytes: 1 << 26 }));
        assert_eq!(taken.settings, Settings { policy, ..Settings::default() });
        let same = Change { policy, tier: Some(TierName::Flash), tier_size: Some((1 << 26) + 1), ..Change::default() };
        assert_eq!(plan(&same, &record()).unwrap().tier, None, "it has that one already");
    }

    #[test]
    fn an_empty_description_is_none_and_what_takes_it_back_restores_it() {
        let (text, before) = (|text: &str| Some(Line::new(text).unwrap()), record());
        let described =
            |text| Settings { common: CommonChange { description: text, clients: None }, ..Settings::default() };
        let mut changed = before.clone();
        described(text("the mail store")).put_into(&mut changed);
        assert_eq!(changed.common.description, text("the mail store"));
        let taken = described(text(""));
        let mut without = changed.clone();
        taken.put_into(&mut without);
        assert_eq!(without, before);
        taken.as_in(&changed).put_into(&mut without);
        assert_eq!(without, changed);
    }

    #[test]
    fn what_takes_settings_back_leaves_the_others_alone() {
        let before = record();
        let settings = Settings { policy: Some(PolicyName::Through), drain_max_s: Some(5), ..Settings::default() };
        let mut changed = before.clone();
        settings.put_into(&mut changed);
        assert_eq!((changed.policy, changed.drain_max_s), (PolicyName::Through, 5));
        // Somebody else's change in between stays.
        changed.destage = DestageName::Ordered;
        settings.as_in(&before).put_into(&mut changed);
        assert_eq!(changed, Record { destage: DestageName::Ordered, ..before });
    }
}
