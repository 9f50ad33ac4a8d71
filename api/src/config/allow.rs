//! `[backings]` and `[tiers]`: what this node serves, and where it keeps logs, when somebody else than its own administrator names the
//! place: another node, by the coordinator, or a caller of the API over TCP.

use anyhow::{Result, bail};
use forebay_io::backing::nbd::uri::NbdUri;
use serde::Deserialize;
use std::path::{Component, Path};

/// Where storage is mounted by custom, and nothing of the system lies.
const BACKINGS_DEFAULT: [&str; 3] = ["/mnt", "/media", "/srv"];
/// Models that stand before a backing; each is named by its word.
const WRAPPERS: [&str; 2] = ["slow:", "faulty:"];

/// The section `[backings]`: which backings a volume may have.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackingsConfig {
    /// Folders, files, devices, NBD URIs, and wrappers.
    pub allow: Vec<String>,
}

impl Default for BackingsConfig {
    fn default() -> BackingsConfig {
        BackingsConfig { allow: BACKINGS_DEFAULT.map(str::to_owned).to_vec() }
    }
}

/// The section `[tiers]`: where a volume's tier may lie.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TiersConfig {
    /// Folders, files and devices that tiers may lie in or be.
    pub allow: Vec<String>,
}

impl BackingsConfig {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        for entry in &self.allow {
            if WRAPPERS.contains(&entry.as_str()) {
                continue;
            }
            if NbdUri::is_meant(entry) {
                if let Err(why) = NbdUri::parse(entry) {
                    bail!("[backings] allow = {entry:?}: {why}");
                }
                continue;
            }
            check_path("[backings]", entry)?;
        }
        Ok(())
    }
}

impl TiersConfig {
    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<()> {
        self.allow.iter().try_for_each(|entry| check_path("[tiers]", entry))
    }
}

fn check_path(table: &str, entry: &str) -> Result<()> {
    let path = Path::new(entry);
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if !path.is_absolute() || !plain {
        bail!("{table} allow = {entry:?}: write a whole path, such as \"/mnt/nas\"");
    }
    if path.parent().is_none() {
        bail!(
            "{table} allow = {entry:?}: that is everything on this machine; name the folders and devices that are meant"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    #[test]
    fn what_is_allowed_is_named_whole() {
        let config = Config::parse("").unwrap();
        assert_eq!(
            (config.backings.allow, config.tiers.allow.len()),
            (["/mnt", "/media", "/srv"].map(str::to_owned).to_vec(), 0)
        );
        let text = "[backings]\nallow = [\"/data\", \"/dev/vg0/vm1\", \"nbd://nas/vm1\", \"slow:\"]\n[tiers]\nallow = [\"/fast\"]\n";
        assert_eq!(Config::parse(text).unwrap().backings.allow.len(), 4);
        let none = Config::parse("[backings]\nallow = []\n").unwrap();
        assert!(none.backings.allow.is_empty());
        for wrong in ["/", "data", "/data/../etc", "", "nbd:///x", "slow:/data", "http://a/b"] {
            let error = Config::parse(&format!("[backings]\nallow = [{wrong:?}]\n")).expect_err(wrong);
            assert!(format!("{error:#}").contains("[backings]"), "{error:#}");
        }
        assert!(Config::parse("[tiers]\nallow = [\"nbd://nas/vm1\"]\n").is_err());
        assert!(Config::parse("[backings]\nfolders = []\n").is_err());
    }
}
