//! What this node is for the volume, and whether it may still act as that.
//!
//! - From follower to owner is the only change of a role: an owner that is none any more ends with its process.
//! - Nobody who is outdated, has gone back, or steps down ever ceases to be so.
//! - An owner that is outdated or steps down is mute: it answers nothing, not even errors (T9). One that has gone back to
//!   an earlier state of itself is outdated, too (S10).
//!
//! Left to others: how a term begins and what follows from all this ([`super::replica_role`]).

use super::*;

/// What this node is for the volume.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// The only one that ever has it.
    Alone,
    /// A member, a learner, or nobody yet.
    Follower,
    /// Of the term.
    Owner,
}

/// See the module.
pub(super) struct OwnRole {
    role: Role,
    /// Somebody knows of a higher term than the own: nothing more is acknowledged.
    outdated: bool,
    /// It was put back to an earlier state of itself (S10).
    went_back: bool,
    stepping_down: bool,
    /// Ownership waits to hear that what it has seen is remembered.
    remember_wanted: bool,
}

impl OwnRole {
    /// At the begin of a process.
    pub(super) fn new(role: Role) -> OwnRole {
        OwnRole { role, outdated: false, went_back: false, stepping_down: false, remember_wanted: false }
    }

    /// A follower owns a term.
    pub(super) fn own(&mut self) {
        self.role = Role::Owner;
    }

    /// Somebody knows of a higher term, or another will take over. True: that is news.
    pub(super) fn outdate(&mut self) -> bool {
        !core::mem::replace(&mut self.outdated, true)
    }

    /// Nothing more is acknowledged.
    pub(super) fn is_outdated(&self) -> bool {
        self.outdated
    }

    /// Others rely on more than is here. True: that is news.
    pub(super) fn go_back(&mut self) -> bool {
        let news = !core::mem::replace(&mut self.went_back, true);
        self.outdated |= news && self.role == Role::Owner;
        news
    }

    /// It was put back to an earlier state of itself.
    pub(super) fn went_back(&self) -> bool {
        self.went_back
    }

    /// Nothing is answered from here on, and nothing begun.
    pub(super) fn step_down(&mut self) {
        self.stepping_down = true;
    }

    /// It ends when nothing is under way any more.
    pub(super) fn is_stepping_down(&self) -> bool {
        self.stepping_down
    }

    /// It answers nothing.
    pub(super) fn is_mute(&self) -> bool {
        self.stepping_down || self.outdated
    }

    /// Ownership is to be told when what it has seen is remembered.
    pub(super) fn want_remembered(&mut self) {
        self.remember_wanted = true;
    }

    /// It is remembered. True: somebody waits to hear so.
    pub(super) fn take_remembered(&mut self) -> bool {
        core::mem::take(&mut self.remember_wanted)
    }
}

impl Volume {
    /// What this node is for the volume.
    pub(super) fn role(&self) -> Role {
        self.replication.own_role.role
    }
}
