//! `[placement]`: on which NUMA node the daemon's data path runs.

use crate::placement::NodeNumber;
use anyhow::{Result, bail};
use serde::Deserialize;

/// Who decides where threads and memory are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlacementMode {
    /// The daemon, by where its interfaces and tiers are.
    #[default]
    Auto,
    /// The kernel, which may move threads at any time.
    Off,
}

/// What the configuration asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wish {
    /// Threads and memory are placed as the devices lie.
    #[default]
    Auto,
    /// Threads and memory are placed on this NUMA node.
    Node(NodeNumber),
    /// Nothing is placed: the kernel decides.
    Off,
}

/// The section `[placement]`: where data-path threads and their memory are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct PlacementConfig {
    /// Who decides where threads and memory are.
    pub mode: PlacementMode,
    /// This node, wherever the devices are.
    pub node: Option<u32>,
}

impl PlacementConfig {
    /// Refuses what cannot be meant. Whether there is such a node is seen at the start, and is no reason not to serve.
    pub fn check(&self) -> Result<()> {
        match (self.mode, self.node) {
            (PlacementMode::Off, Some(node)) => {
                bail!("[placement] mode = \"off\" and node = {node}: leave one of them out")
            }
            (PlacementMode::Off, None) | (PlacementMode::Auto, _) => Ok(()),
        }
    }

    /// What the two settings ask for together.
    pub fn wish(&self) -> Wish {
        match (self.mode, self.node) {
            (PlacementMode::Off, _) => Wish::Off,
            (PlacementMode::Auto, None) => Wish::Auto,
            (PlacementMode::Auto, Some(node)) => Wish::Node(node),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn placement_is_automatic_unless_a_node_or_off_is_asked_for() {
        let wish = |text: &str| Config::parse(text).map(|config| config.placement.wish());
        assert_eq!(wish("").unwrap(), Wish::Auto);
        assert_eq!(wish("[placement]\nmode = \"auto\"\n").unwrap(), Wish::Auto);
        assert_eq!(wish("[placement]\nmode = \"off\"\n").unwrap(), Wish::Off);
        assert_eq!(wish("[placement]\nnode = 1\n").unwrap(), Wish::Node(1));
        let refused = |text: &str, why: &str| {
            let error = format!("{:#}", wish(text).unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        };
        refused("[placement]\nmode = \"off\"\nnode = 1\n", "leave one of them out");
        refused("[placement]\nmode = \"on\"\n", "on");
        refused("[placement]\nnode = -1\n", "-1");
        refused("[placement]\ncpus = \"0-3\"\n", "cpus");
    }
}
