//! `[[fence]]`: how another node's machine is switched off when nothing else shows that its writes have ended.
//!
//! Secrets stay in files of their own, which are read anew for each use: so a password can be changed while the daemon runs.

use crate::secret::read_secret;
use anyhow::{Result, bail};
use forebay_io::fence::Agent;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Longest time that one action of an agent may be given.
const TIMEOUT_S_MAX: u64 = 3600;

/// How a node of the cluster can be switched off.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FenceConfig {
    /// The node whose machine it is.
    pub node: String,
    /// Installed fence agent, such as `fence_ipmilan`.
    pub agent: String,
    /// What the agent is told, by the names of its options.
    #[serde(default)]
    pub options: BTreeMap<String, String>,
    /// Options whose value is the first line of a file, such as a password.
    #[serde(default)]
    pub option_files: BTreeMap<String, PathBuf>,
    /// Most seconds for each action of the agent.
    #[serde(default = "timeout_default")]
    pub timeout_s: u64,
}

fn timeout_default() -> u64 {
    60
}

impl FenceConfig {
    /// The agent with its options, as they are on this machine now.
    pub fn agent(&self) -> Result<Agent> {
        let mut options: Vec<(String, String)> =
            self.options.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        for (name, file) in &self.option_files {
            options.push((name.clone(), read_secret(file)?));
        }
        Ok(Agent::find(&self.agent, options, Duration::from_secs(self.timeout_s))?)
    }

    fn check(&self) -> Result<()> {
        let node = &self.node;
        if let Some(secret) = self.options.keys().find(|name| name.contains("passw")) {
            bail!("[[fence]] node = {node:?}: put {secret} into a file of mode 0600, and name that in option_files");
        }
        if let Some(both) = self.options.keys().find(|name| self.option_files.contains_key(*name)) {
            bail!("[[fence]] node = {node:?}: {both} is in options and in option_files; give it once");
        }
        if self.timeout_s == 0 || self.timeout_s > TIMEOUT_S_MAX {
            bail!("[[fence]] node = {node:?}: timeout_s = {}: from 1 to {TIMEOUT_S_MAX}", self.timeout_s);
        }
        Ok(())
    }
}

/// Refuses what cannot be meant.
pub fn check(fences: &[FenceConfig], in_cluster: bool) -> Result<()> {
    if !in_cluster && !fences.is_empty() {
        bail!("[[fence]] without [cluster]: fences are for the nodes of a cluster");
    }
    for (at, fence) in fences.iter().enumerate() {
        if fences[..at].iter().any(|other| other.node == fence.node) {
            bail!("[[fence]] node = {:?} is there twice; a node has one fence", fence.node);
        }
        fence.check()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::config::Config;

    const CLUSTER: &str =
        "[cluster]\nidentity = \"/i\"\netcd = [\"http://10.0.0.1:2379\"]\n[[link]]\nown = \"10.0.0.1\"\n";
    const FENCE: &str = "[[fence]]\nnode = \"beta\"\nagent = \"fence_ipmilan\"\noptions = { ip = \"10.0.0.12\" }\n\
                         option_files = { password = \"/etc/forebay/beta.bmc\" }\ntimeout_s = 20\n";

    #[test]
    fn a_fence_is_read_and_what_cannot_be_meant_is_refused() {
        let config = Config::parse(&format!("{CLUSTER}{FENCE}")).unwrap();
        assert_eq!((config.fence[0].node.as_str(), config.fence[0].timeout_s), ("beta", 20));
        let refused = |text: String, why: &str| {
            let error = format!("{:#}", Config::parse(&text).unwrap_err());
            assert!(error.contains(why), "{text}: {error}");
        };
        refused(FENCE.into(), "[[fence]] without [cluster]");
        refused(format!("{CLUSTER}{FENCE}{FENCE}"), "twice");
        refused(format!("{CLUSTER}{}", FENCE.replace("ip =", "password =")), "mode 0600");
        refused(format!("{CLUSTER}{}", FENCE.replace("password =", "ip =")), "give it once");
        refused(format!("{CLUSTER}{}", FENCE.replace("= 20", "= 0")), "timeout_s = 0");
        refused(format!("{CLUSTER}{}", FENCE.replace("timeout_s", "timeout")), "timeout");
    }
}
