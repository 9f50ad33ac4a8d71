//! What systemd is told of the daemon: that it serves, that it needs more time, and, as its status, what it waits for.
//!
//! Invariant: the status is made anew from all that is waited for whenever some of it changes, so that nothing in it outlasts its cause.

use sd_notify::NotifyState;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard};

/// Names that are listed in a status at most.
const NAMES_MAX: usize = 8;
/// What a request for more time asks for, in microseconds; it is made again each second.
const MORE_TIME_US: u32 = 30_000_000;

/// What the daemon waits for; see the module's text.
#[derive(Default)]
pub struct Unit(Mutex<Waits>);

#[derive(Default)]
struct Waits {
    opening: BTreeSet<String>,
    failed: BTreeSet<String>,
    http: Option<SocketAddr>,
    is_ready: bool,
}

impl Waits {
    fn status(&self) -> String {
        let mut words = Vec::new();
        if !self.opening.is_empty() {
            words.push(format!("waiting for {} to open", names(&self.opening)));
        }
        if !self.failed.is_empty() {
            words.push(format!("{} could not be opened, tried again", names(&self.failed)));
        }
        if let Some(address) = self.http {
            words.push(format!("HTTP is not served, because {address} cannot be had"));
        }
        match words.is_empty() {
            true => "the volumes are served".to_owned(),
            false => words.join("; "),
        }
    }
}

/// In words, with the number of those that are too many to be listed.
fn names(of: &BTreeSet<String>) -> String {
    let listed: Vec<&str> = of.iter().take(NAMES_MAX).map(String::as_str).collect();
    let more = match of.len() - listed.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("{} {}{more}", if of.len() == 1 { "volume" } else { "volumes" }, listed.join(", "))
}

impl Unit {
    fn waits(&self) -> MutexGuard<'_, Waits> {
        self.0.lock().expect("nobody panics while holding it")
    }

    /// Changes what is waited for, and tells it once the daemon has said that it serves.
    fn change(&self, change: impl FnOnce(&mut Waits)) {
        let mut waits = self.waits();
        change(&mut waits);
        if waits.is_ready {
            notify(&[NotifyState::Status(&waits.status())]);
        }
    }

    /// A volume is being opened.
    pub fn opens(&self, name: &str) {
        self.change(|waits| waits.opening.extend([name.to_owned()]));
    }

    /// That has ended; `failed`: and it will be tried again.
    pub fn opened(&self, name: &str, failed: bool) {
        self.change(|waits| {
            waits.opening.remove(name);
            waits.failed.remove(name);
            waits.failed.extend(failed.then(|| name.to_owned()));
        });
    }

    /// The address for HTTP that cannot be had; none: it is served.
    pub fn http_waits_for(&self, address: Option<SocketAddr>) {
        self.change(|waits| waits.http = address);
    }

    /// The volumes that are being opened, in words.
    pub fn waits_for(&self) -> String {
        names(&self.waits().opening)
    }

    /// The start takes longer than it usually does: for what.
    pub fn needs_time(&self) {
        let status = self.waits().status();
        notify(&[NotifyState::ExtendTimeoutUsec(MORE_TIME_US), NotifyState::Status(&status)]);
    }

    /// Clients are served.
    pub fn is_ready(&self) {
        let mut waits = self.waits();
        waits.is_ready = true;
        notify(&[NotifyState::Ready, NotifyState::Status(&waits.status())]);
    }

    /// The end begins.
    pub fn stops(&self) {
        self.waits().is_ready = false;
        notify(&[NotifyState::Stopping]);
    }

    /// The stop takes its time.
    pub fn still_stops(&self) {
        notify(&[NotifyState::ExtendTimeoutUsec(MORE_TIME_US)]);
    }
}

fn notify(states: &[NotifyState<'_>]) {
    // Without systemd there is nobody to tell.
    let _ = sd_notify::notify(states);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_names_what_is_waited_for_and_nothing_that_is_over() {
        let unit = Unit::default();
        let status = || unit.waits().status();
        assert_eq!(status(), "the volumes are served");
        let address = "127.0.0.1:7070".parse().unwrap();
        unit.http_waits_for(Some(address));
        unit.opens("vm1");
        unit.opens("vm2");
        assert_eq!(
            status(),
            "waiting for volumes vm1, vm2 to open; HTTP is not served, because 127.0.0.1:7070 cannot be had"
        );
        unit.http_waits_for(None);
        unit.opened("vm1", true);
        assert_eq!(status(), "waiting for volume vm2 to open; volume vm1 could not be opened, tried again");
        unit.opened("vm2", false);
        unit.opens("vm1");
        unit.opened("vm1", false);
        assert_eq!(status(), "the volumes are served");
        for at in 0..10 {
            unit.opens(&format!("v{at}"));
        }
        assert_eq!(status(), "waiting for volumes v0, v1, v2, v3, v4, v5, v6, v7 and 2 more to open");
    }
}
