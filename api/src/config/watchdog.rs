//! `[watchdog]`: the hardware that resets this machine when the daemon hangs, so that a successor need not switch it off.

use anyhow::{Result, bail};
use forebay_core::types::Duration;
use forebay_core::watchdog::Feeding;
use serde::Deserialize;
use std::path::PathBuf;

/// Shortest and longest timer, in seconds: a machine that swaps may stand still for some, and a successor waits for all of it.
const TIMEOUT_S: std::ops::RangeInclusive<u32> = 5..=600;

/// The watchdog of this machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WatchdogConfig {
    /// Its device, such as `/dev/watchdog0`.
    pub device: PathBuf,
    /// Seconds after which it resets the machine when it is not fed.
    #[serde(default = "timeout_default")]
    pub timeout_s: u32,
    /// Seconds for which a write to a backing may hang after its lease has ended, before the machine is reset for it.
    #[serde(default = "patience_default")]
    pub patience_s: u32,
}

fn timeout_default() -> u32 {
    30
}

fn patience_default() -> u32 {
    60
}

impl WatchdogConfig {
    /// How it is fed when its timer is this long.
    pub fn feeding(&self, timeout: Duration) -> Result<Feeding> {
        match Feeding::new(timeout, Duration::from_secs(u64::from(self.patience_s))) {
            Ok(feeding) => Ok(feeding),
            Err(why) => bail!("[watchdog] timeout_s = {}, patience_s = {}: {why}", self.timeout_s, self.patience_s),
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self, in_cluster: bool) -> Result<()> {
        if !in_cluster {
            bail!("[watchdog] without [cluster]: it is a fence for the nodes of a cluster");
        }
        if !TIMEOUT_S.contains(&self.timeout_s) {
            bail!("[watchdog] timeout_s = {}: from {} to {}", self.timeout_s, TIMEOUT_S.start(), TIMEOUT_S.end());
        }
        if !self.device.is_absolute() {
            bail!("[watchdog] device = {:?}: give its path, such as /dev/watchdog0", self.device);
        }
        self.feeding(Duration::from_secs(u64::from(self.timeout_s))).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const CLUSTER: &str =
        "[cluster]\nidentity = \"/i\"\netcd = [\"http://10.0.0.1:2379\"]\n[[link]]\nown = \"10.0.0.1\"\n";

    #[test]
    fn a_watchdog_is_read_and_what_cannot_be_meant_is_refused() {
        let text = "[watchdog]\ndevice = \"/dev/watchdog0\"\n";
        let config = Config::parse(&format!("{CLUSTER}{text}")).unwrap();
        assert_eq!(config.watchdog.as_ref().map(|watchdog| (watchdog.timeout_s, watchdog.patience_s)), Some((30, 60)));
        let refused = |text: String, why: &str| {
            let error = format!("{:#}", Config::parse(&text).unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        };
        refused(text.into(), "[watchdog] without [cluster]");
        refused(format!("{CLUSTER}{text}timeout_s = 2\n"), "timeout_s = 2");
        refused(format!("{CLUSTER}{text}patience_s = 20\n"), "patience must be at least");
        refused(format!("{CLUSTER}[watchdog]\ndevice = \"watchdog0\"\n"), "give its path");
        refused(format!("{CLUSTER}{text}feed_s = 20\n"), "feed_s");
    }
}
