//! `forebay doctor --peer NODE`: asked of the daemon, which asks the other node; told here.

use super::fold;
use crate::client::Client;
use anyhow::{Context, Result, bail};
use forebay_doctor::peer::compare::compare;
use forebay_doctor::peer::look::look;
use forebay_doctor::peer::{BothEnds, Pair};
use forebay_doctor::words::Language;
use serde_json::Value;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct PeerArgs {
    /// Look at the links to another node of the cluster, from both ends; asks the daemon of this node
    #[arg(long, value_name = "NODE", conflicts_with = "sysroot")]
    peer: Option<String>,
    /// With --peer: the daemon's API socket [default: /run/forebay/api.sock, or below $XDG_RUNTIME_DIR]
    #[arg(long, env = "FOREBAY_API", value_name = "PATH")]
    api: Option<PathBuf>,
    /// Look at this host's ends of these pairs of addresses; started by the daemon
    #[arg(long, hide = true, value_name = "JSON", conflicts_with_all = ["sysroot", "peer"])]
    ends: Option<String>,
}

impl PeerArgs {
    /// Does what is asked for, if anything is.
    pub(super) fn run(&self, language: Language, json: bool) -> Result<Option<bool>> {
        if let Some(pairs) = &self.ends {
            let pairs: Vec<Pair> = serde_json::from_str(pairs).context("understand the pairs of addresses")?;
            println!("{}", serde_json::to_string(&look(&pairs))?);
            return Ok(Some(true));
        }
        let Some(peer) = &self.peer else { return Ok(None) };
        if peer.is_empty() || !peer.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_')) {
            bail!("{peer:?} is no name of a node: those have lower-case letters, digits, - and _");
        }
        let client = Client::new(self.api.clone());
        let asked = client.call("GET", &format!("/v1/doctor/peers/{peer}"), None);
        let answer = asked.with_context(|| format!("cannot look at the links to {peer}"))?;
        let sides: BothEnds = serde_json::from_value(answer.clone())
            .context("the daemon's answer is not understood: it is of another version; restart it")?;
        let compared = compare(&sides, language);
        if json {
            let mut value = answer;
            let said = serde_json::to_value(&compared)?;
            if let (Value::Object(value), Value::Object(said)) = (&mut value, said) {
                value.extend(said);
            }
            println!("{}", serde_json::to_string_pretty(&value)?);
        } else {
            fold::print(&compared.text(&sides, language));
        }
        Ok(Some(true))
    }
}
