//! What every coordinator can do, and all that is asked of it: compare keys, then change them or read them, as one step.
//!
//! - [`etcd`](super::etcd) keeps the keys; for tests that need none, a map in this process does.
//! - A transaction takes effect whole or not at all, in an order that all who ask see alike (it is linearizable), and is
//!   durable before it is answered.
//! - Nothing of etcd beyond this is used for safety: no lock, no lease, no revision.

use super::etcd::Etcd;
use super::etcd::health::Trouble;
#[cfg(test)]
use super::tests::in_memory::InMemory;
use forebay_core::types::Instant;
use std::fmt;

/// What is done if every comparison holds, and what is read if one does not.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Transaction {
    /// All of these must hold.
    pub compare: Vec<Compare>,
    /// Done in this order then.
    pub then: Vec<Operation>,
    /// Read if one comparison does not hold.
    pub otherwise: Vec<Read>,
}

impl Transaction {
    /// One that only reads may be asked again, of another member too.
    pub fn changes(&self) -> bool {
        self.then.iter().any(|operation| !matches!(operation, Operation::Read(_)))
    }
}

/// A key with what it must hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Compare {
    /// The key that is looked at.
    pub key: String,
    /// Its whole value; none: the key does not exist.
    pub value: Option<String>,
}

/// One step of a transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Look at keys, and change nothing.
    Read(Read),
    /// Write a key's whole value.
    Put {
        /// The key that is written.
        key: String,
        /// The value that it has from now on.
        value: String,
    },
    /// Remove a key; one that is not there is as good.
    Delete(String),
}

/// Which keys are looked at.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The key of this name alone.
    Key(String),
    /// Keys that begin with this, in order.
    Prefix {
        /// What all of them begin with.
        prefix: String,
        /// Only those behind this one.
        after: Option<String>,
        /// Not more than so many.
        most: usize,
    },
}

/// A key and its value.
pub type Entry = (String, String);

/// What a transaction came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Every comparison held, and all was done.
    pub held: bool,
    /// What was found, for each read of the side that was taken.
    pub found: Vec<Vec<Entry>>,
}

/// Why a transaction has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Failure {
    /// It has had no effect, and will have none.
    Nothing(String),
    /// The coordinator does not let us; it has had no effect, and will have none.
    Denied(String),
    /// It may have taken effect, or may still (C2).
    Unknown(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Nothing(why) | Failure::Denied(why) | Failure::Unknown(why) => f.write_str(why),
        }
    }
}

/// Says that something may have changed. Never relied upon: it may be missing, late, or about nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Changed {
    /// The value of this key may be another one.
    Key(String),
    /// Anything: what was missed meanwhile is not known.
    Anything,
}

/// Changes that a store tells of, until it is dropped.
pub type Changes = tokio::sync::mpsc::Receiver<Changed>;

/// Changes that wait to be looked at; then the store waits.
pub const CHANGES_MAX: usize = 64;

/// Where the keys of the cluster lie.
pub enum Store {
    /// In the members of an etcd cluster.
    Etcd(Etcd),
    /// In this process; whoever shares it sees one order.
    #[cfg(test)]
    InMemory(std::sync::Arc<InMemory>),
}

impl Store {
    /// Carries out a transaction, as a whole or not at all. It has left this host by an instant, if one is given, or never does.
    pub async fn transact(&self, transaction: &Transaction, leaves_by: Option<Instant>) -> Result<Answer, Failure> {
        match self {
            Store::Etcd(etcd) => etcd.transact(transaction, leaves_by).await,
            #[cfg(test)]
            Store::InMemory(all) => Ok(all.transact(transaction)),
        }
    }

    /// How often what answers was seen to have gone back, or to have become another one: an answer of an older state than one before. It
    /// is a sign to be careful, and nothing rests on it.
    pub fn rewinds_seen(&self) -> u32 {
        match self {
            Store::Etcd(etcd) => etcd.rewinds_seen(),
            #[cfg(test)]
            Store::InMemory(_) => 0,
        }
    }

    /// What an operator should do about it, as it was found last.
    pub fn trouble(&self) -> Vec<Trouble> {
        match self {
            Store::Etcd(etcd) => etcd.trouble(),
            #[cfg(test)]
            Store::InMemory(_) => Vec::new(),
        }
    }

    /// Asks it how it is; every wait is bounded.
    pub async fn look_at_health(&self) {
        match self {
            Store::Etcd(etcd) => etcd.look_at_health().await,
            #[cfg(test)]
            Store::InMemory(_) => {}
        }
    }

    /// Tells of changes of keys that begin with `prefix`; needs a runtime.
    pub fn changes(&self, prefix: &str) -> Changes {
        match self {
            Store::Etcd(etcd) => etcd.changes(prefix),
            #[cfg(test)]
            Store::InMemory(all) => all.changes(prefix),
        }
    }
}
