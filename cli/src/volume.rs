//! `forebay volume` and `forebay status`: one call each, then a table for people or the daemon's JSON.

use super::client::{Client, volume_path};
use super::seconds;
use anyhow::{Context, Result};
use clap::Subcommand;
use forebay_api::cluster::{AddressReport, ClusterReport, FenceReport, KnownReport, PredecessorCacheReport};
use forebay_api::config::volume::{Change, VolumeSpec};
use forebay_api::config::{DestageName, PolicyName};
use forebay_api::status::{CoordinatorTrouble, NodeReport, NotUsed, TierChangeReport, VolumeReport};
use forebay_api::units::{parse_size, show_seconds, show_size};
use forebay_api::words::{BackingState, DestageReason, FlushedBy, PolicyReason};
use forebay_host::proofs::ago;
use serde_json::{Value, json};
use std::io::{IsTerminal, Write};
use std::time::Duration;

#[derive(Subcommand)]
pub enum Command {
    /// Create a volume and serve it
    Create(Box<VolumeSpec>),
    /// List the volumes
    List,
    /// Show a volume
    Show {
        /// Name of the volume
        name: String,
    },
    /// Show a volume's figures over time: rates, hit ratio, dirty bytes, and the latency of each leg
    Stats(super::telemetry::StatsArgs),
    /// Change a volume while it serves
    Set {
        /// Name of the volume
        name: String,
        #[command(flatten)]
        change: Box<Change>,
    },
    /// Make another node the owner of a volume of the cluster; one that has no copy gets one first
    HandOver {
        /// Name of the volume
        name: String,
        /// Name of the node that is to own it
        to: String,
    },
    /// Serve here a volume of the cluster that nobody serves, and that no member can take over
    Open {
        /// Name of the volume
        name: String,
        /// Although acknowledged writes are lost that only the logs of its members had; it needs the next word as well
        #[arg(long, requires = "yes_lose_acknowledged_writes")]
        accept_loss: bool,
        /// The second word
        #[arg(long, requires = "accept_loss")]
        yes_lose_acknowledged_writes: bool,
        /// With what the media of this node and of the members that answer have synced, although what was not synced is lost; it
        /// needs the next word as well
        #[arg(long, requires = "yes_lose_unsynced_writes", conflicts_with = "accept_loss")]
        take_synced: bool,
        /// The second word
        #[arg(long, requires = "take_synced")]
        yes_lose_unsynced_writes: bool,
    },
    /// Say that former owners can write to the backing no more, because you have seen to it
    ///
    /// Their machines are off, or were started anew, or cannot reach the backing any more: for certain, and
    /// with what they had sent. If it is not so, a late write may lie over newer content, and no check can tell.
    #[command(verbatim_doc_comment)]
    Fenced {
        /// Name of the volume
        name: String,
        /// The node that was switched off, and the term in which it was the owner, as `volume show` has them (such as alpha@5); all of
        /// those that it waits for have to be named, and it is refused when others have come since
        #[arg(long = "i-fenced-it", value_name = "NODE@TERM", required = true)]
        nodes: Vec<String>,
    },
    /// Write a volume's record anew as this node knows it, after the coordinator was put back to an older state
    RestoreRecord {
        /// Name of the volume
        name: String,
        /// The second word: the coordinator was restored from a backup, and the record is to be what this node knows
        #[arg(long, required = true)]
        yes_the_coordinator_went_back: bool,
        /// What `volume show` says at this node that it knows: term and epoch. Compare it with what the other nodes know
        #[arg(long, value_name = "TERM/EPOCH")]
        i_saw: Option<String>,
    },
    /// Destage everything that has been written; returns when the backing has it
    Drain {
        /// Name of the volume
        name: String,
        /// Then leave the backing unchanged for so long at most, such as 30m; see `release`
        #[arg(long, value_parser = seconds, value_name = "TIME")]
        hold: Option<u64>,
        /// Then keep the backing complete while writes go on, as with policy through, until `release`
        #[arg(long, conflicts_with = "hold")]
        through: bool,
    },
    /// End a hold or a `drain --through`; fails if the hold had ended before, because what was copied under it is void then
    Release {
        /// Name of the volume
        name: String,
    },
    /// Grow a volume and its backing
    Resize {
        /// Name of the volume
        name: String,
        /// New size, such as 20G
        #[arg(value_parser = parse_size)]
        size: u64,
    },
    /// Forget a volume and remove its tier; the backing stays
    Delete {
        /// Name of the volume
        name: String,
        /// Although acknowledged writes in the tier are lost by it
        #[arg(long)]
        discard_dirty: bool,
        /// A node of which nothing proves that it can write to the backing no more, and of which you have made sure, with the term in
        /// which it was the owner, as the command asks for them without this
        #[arg(long = "i-fenced-it", value_name = "NODE@TERM", requires = "discard_dirty")]
        fenced: Vec<String>,
    },
}

/// Carries out a subcommand of `forebay volume`, and prints what came of it.
pub fn run(client: &Client, json: bool, command: Command) -> Result<bool> {
    // In place of the volume's report, for people.
    let mut said = None;
    let answer = match command {
        Command::Create(spec) => create(client, *spec)?,
        Command::List => client.call("GET", "/v1/volumes", None)?,
        Command::Stats(args) => return super::telemetry::stats(client, json, &args),
        Command::Show { name } => client.call("GET", &volume_path(&name, ""), None)?,
        Command::Set { name, change } => {
            client.call("PATCH", &volume_path(&name, ""), Some(&serde_json::to_value(change)?))?
        }
        Command::HandOver { name, to } => {
            said = Some(format!("handed over to {to}"));
            client.call("POST", &volume_path(&name, "/hand-over"), Some(&json!({ "to": to })))?
        }
        Command::Open { name, accept_loss, yes_lose_acknowledged_writes, take_synced, yes_lose_unsynced_writes } => {
            said = Some("served here".to_owned());
            let body = match take_synced {
                true => json!({ "take_synced": true, "yes_lose_unsynced_writes": yes_lose_unsynced_writes }),
                false => json!({
                    "accept_loss": accept_loss,
                    "yes_lose_acknowledged_writes": yes_lose_acknowledged_writes,
                }),
            };
            client.call("POST", &volume_path(&name, "/open"), Some(&body))?
        }
        Command::Fenced { name, nodes } => {
            said = Some(format!("{} can write to its backing no more, by your word", nodes.join(", ")));
            client.call("POST", &volume_path(&name, "/fenced"), Some(&json!({ "i_fenced": nodes })))?
        }
        Command::RestoreRecord { name, yes_the_coordinator_went_back, i_saw } => {
            said = Some("its record is written anew".to_owned());
            let mut body = json!({ "yes_the_coordinator_went_back": yes_the_coordinator_went_back });
            if let Some(saw) = i_saw {
                body["i_saw"] = json!(saw);
            }
            client.call("POST", &volume_path(&name, "/restore-record"), Some(&body))?
        }
        Command::Drain { name, hold, through } => {
            said = Some(drained(hold, through));
            drain(client, &name, hold, through, json)?
        }
        Command::Release { name } => {
            said = Some("released; the hold, or `drain --through`, was in effect until now".to_owned());
            client.call("POST", &volume_path(&name, "/release"), None)?
        }
        Command::Resize { name, size } => {
            said = Some(format!("it has {} now; clients see that when they connect anew", show_size(size)));
            client.call("POST", &volume_path(&name, "/resize"), Some(&json!({ "size_bytes": size })))?
        }
        Command::Delete { name, discard_dirty, fenced } => {
            let mut how = format!("?discard_dirty={discard_dirty}");
            if !fenced.is_empty() {
                fenced.iter().try_for_each(|former| {
                    let node = former.split_once('@').map_or(former.as_str(), |(node, _)| node);
                    forebay_host::identity::check_label("node name", node)
                })?;
                how.push_str(&format!("&fenced={}", fenced.join(",")));
            }
            client.call("DELETE", &volume_path(&name, &how), None)?;
            said = Some("deleted; its backing stays as it is".to_owned());
            json!({ "name": name, "deleted": true })
        }
    };
    match said {
        Some(said) if !json => println!("volume {}: {said}", answer["name"].as_str().unwrap_or_default()),
        Some(_) | None => print(&answer, json)?,
    }
    Ok(true)
}

/// Paths are those of whoever types them, and not the daemon's.
fn create(client: &Client, mut spec: VolumeSpec) -> Result<Value> {
    spec.backing = forebay_api::config::absolute_spec(&spec.backing);
    spec.tier_path = spec.tier_path.map(|path| std::path::absolute(&path).unwrap_or(path));
    spec.check()?;
    client.call("POST", "/v1/volumes", Some(&serde_json::to_value(&spec)?))
}

/// What a drain has brought about, and what is to be done next.
fn drained(hold: Option<u64>, through: bool) -> String {
    match (hold, through) {
        (Some(seconds), _) => format!(
            "the image is complete and stays unchanged for {} at most; `release` it when you have copied it, and \
             throw the copy away if that fails",
            show_seconds(seconds as f64)
        ),
        (None, true) => "the image is complete and is kept so, at the backing's speed, until `release`".to_owned(),
        (None, false) => "the image has everything that was written before the drain".to_owned(),
    }
}

/// `forebay status`: prints what the daemon tells of itself.
pub fn status(client: &Client, json: bool) -> Result<bool> {
    let answer = client.call("GET", "/v1/status", None)?;
    if json {
        println!("{}", serde_json::to_string_pretty(&answer)?);
        return Ok(true);
    }
    let node: NodeReport = serde_json::from_value(answer).context("the daemon is of another version")?;
    println!("forebay {} on {}, process {}, up {}", node.version, node.host, node.pid, show_seconds(node.uptime_s));
    println!("io       {} ({}), {} shards", node.io_mode, node.io_why, node.shards);
    for (at, line) in node.placement.lines().iter().enumerate() {
        println!("{:<9}{line}", if at == 0 { "place" } else { "" });
    }
    println!("memory   at most {}", show_size(node.memory_bytes_max));
    println!("state    {}", node.state);
    let problem = node.history.problem.as_ref().map(|why| format!("; {why}")).unwrap_or_default();
    println!("history  {} files of {}{problem}", node.history.files, show_size(node.history.bytes));
    if let Some(doctor) = &node.doctor {
        let hidden = match doctor.hidden {
            0 => String::new(),
            hidden => format!(", {hidden} checks could not look"),
        };
        if let Some(at) = &doctor.at {
            println!(
                "doctor   {} errors, {} warnings, {} notes at {at}{hidden}; `forebay doctor` tells them",
                doctor.errors, doctor.warnings, doctor.notes
            );
        }
        if let Some(why) = &doctor.problem {
            println!("doctor   the last look failed: {why}");
        }
    }
    for address in &node.nbd {
        println!("nbd      {address}");
    }
    if let Some(why) = &node.no_page {
        println!("page     none: {why}");
    }
    println!("volumes  {}", node.volumes);
    for CoordinatorTrouble { code, text } in &node.coordinator {
        println!("warning  {code}: {text}");
    }
    for found in node.degraded.iter().filter(|found| node.coordinator.iter().all(|told| told.code != found.code)) {
        println!("degraded {} of {}: {}", found.code, found.node.as_deref().unwrap_or(&node.name), found.text);
    }
    for NotUsed { key, why } in &node.not_used {
        println!("not used {key}: {why}");
    }
    Ok(true)
}

/// Waits for the drain and meanwhile shows on a terminal what is left.
fn drain(client: &Client, name: &str, hold: Option<u64>, through: bool, json: bool) -> Result<Value> {
    let (target, body) = match hold {
        Some(seconds) => (volume_path(name, "/hold"), json!({ "seconds": seconds })),
        None => (volume_path(name, "/drain"), json!({ "through": through })),
    };
    let show = std::io::stderr().is_terminal() && !json;
    std::thread::scope(|scope| {
        let work = scope.spawn(|| client.call("POST", &target, Some(&body)));
        while !work.is_finished() {
            std::thread::sleep(Duration::from_millis(50));
            if show
                && let Ok(answer) = client.call("GET", &volume_path(name, ""), None)
                && let Ok(v) = serde_json::from_value::<VolumeReport>(answer)
            {
                let left = show_size(v.dirty.bytes);
                eprint!("\r\x1b[K{name}: {left} to destage, {}", drain_text(&v));
                let _ = std::io::stderr().flush();
                std::thread::sleep(Duration::from_millis(450));
            }
        }
        if show {
            eprint!("\r\x1b[K");
        }
        work.join().expect("the call does not panic")
    })
}

fn print(answer: &Value, json: bool) -> Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(answer)?);
        return Ok(());
    }
    const OTHER: &str = "the daemon is of another version; use its own forebay binary, or --json";
    if answer.is_array() {
        let volumes: Vec<VolumeReport> = serde_json::from_value(answer.clone()).context(OTHER)?;
        print_list(&volumes);
    } else {
        print_one(&serde_json::from_value(answer.clone()).context(OTHER)?);
    }
    Ok(())
}

fn policy_text(v: &VolumeReport) -> String {
    let word = |p: PolicyName| match p {
        PolicyName::Through => "through",
        PolicyName::Back => "back",
    };
    if v.policy.reason == PolicyReason::AsRequested {
        word(v.policy.effective).to_owned()
    } else {
        format!(
            "{} (asked: {}; {} for {})",
            word(v.policy.effective),
            word(v.policy.requested),
            v.policy.reason,
            show_seconds(v.policy.since_s)
        )
    }
}

fn destage_text(v: &VolumeReport) -> String {
    let word = |name: DestageName| match name {
        DestageName::Ordered => "ordered",
        DestageName::Journaled => "journaled",
        DestageName::Auto => "auto",
    };
    let d = &v.destage;
    let asked = if d.reason == DestageReason::AsRequested {
        String::new()
    } else {
        format!(" (asked: {}; {})", word(d.requested), d.reason)
    };
    let journal = match (&d.journal, &d.no_journal, d.journal_bytes) {
        (Some(path), _, bytes) if bytes > 0 => format!("journal {path} of {}", show_size(bytes)),
        (_, Some(why), _) => format!("no journal: {why}"),
        (Some(_) | None, None, _) => "no journal".to_owned(),
    };
    format!("{}{asked}, mean group {}, {journal}", word(d.effective), show_size(d.group_bytes_mean))
}

/// Time to drain, if it is known, and its limit, if there is one.
fn drain_text(v: &VolumeReport) -> String {
    let left = match v.dirty.drain_s {
        // The speed of a backing that takes nothing is a thing of the past.
        Some(_)
            if v.dirty.bytes > 0 && matches!(v.backing.state, BackingState::Failing | BackingState::AwaitingFence) =>
        {
            "time left not known".to_owned()
        }
        Some(left) => format!("{} left at {}/s", show_seconds(left), show_size(v.dirty.destage_bytes_per_s)),
        None => "time left not yet known".to_owned(),
    };
    match v.dirty.drain_max_s {
        0 => left,
        most => format!("{left}, slowed at {}", show_seconds(most as f64)),
    }
}

fn print_list(volumes: &[VolumeReport]) {
    if volumes.is_empty() {
        return println!("no volumes; `forebay volume create` makes one");
    }
    let described = if volumes.iter().any(|v| v.common.description.is_some()) { "DESCRIPTION" } else { "" };
    let head = ["NAME", "SIZE", "PHASE", "POLICY", "DIRTY", "DRAIN", "CLIENTS", "BACKING", described];
    let mut rows = vec![head.map(str::to_owned)];
    for v in volumes {
        rows.push([
            v.name.clone(),
            show_size(v.size_bytes),
            v.phase.to_string(),
            policy_text(v),
            show_size(v.dirty.bytes),
            v.dirty.drain_s.map_or("-".to_owned(), show_seconds),
            v.connections.to_string(),
            format!("{} {}", v.backing.state, v.backing.spec),
            v.common.description.as_ref().map_or(String::new(), |text| text.to_string()),
        ]);
    }
    let widths: Vec<usize> = (0..rows[0].len()).map(|i| rows.iter().map(|r| r[i].len()).max().unwrap_or(0)).collect();
    for row in &rows {
        let line: Vec<String> = row.iter().zip(&widths).map(|(cell, &width)| format!("{cell:<width$}")).collect();
        println!("{}", line.join("  ").trim_end());
    }
    for v in volumes {
        for problem in v.problem.iter().chain(&v.backing.displaced) {
            println!("{}: {problem}", v.name);
        }
    }
}

fn print_one(v: &VolumeReport) {
    println!("volume    {} {} ({})", v.name, v.volume, show_size(v.size_bytes));
    if let Some(description) = &v.common.description {
        println!("about     {description}");
    }
    println!("phase     {}{}", v.phase, v.problem.as_ref().map(|p| format!(": {p}")).unwrap_or_default());
    println!("policy    {}", policy_text(v));
    let error = v.backing.error.as_ref().map(|e| format!(": {e}")).unwrap_or_default();
    let left = v.backing.hold_left_s.map(|left| format!(", {} left", show_seconds(left))).unwrap_or_default();
    println!("backing   {} ({}), {}{left}{error}", v.backing.spec, v.backing.access, v.backing.state);
    if let Some(displaced) = &v.backing.displaced {
        println!("warning   {displaced}");
    }
    let kind = v.tier.kind.word();
    let volatile = if v.tier.volatile { ", volatile" } else { "" };
    println!("tier      {kind} {} ({}{volatile}), term {}", v.tier.path, show_size(v.tier.size_bytes), v.term);
    if let Some(change) = &v.tier.changing {
        println!("changing  {}", change_text(kind, change));
    }
    println!(
        "dirty     {} of {}, oldest {}, groups waiting {}, {}",
        show_size(v.dirty.bytes),
        show_size(v.dirty.bytes_max),
        show_seconds(v.dirty.oldest_s),
        v.dirty.groups_waiting,
        drain_text(v)
    );
    println!("destage   {}", destage_text(v));
    println!("cache     {} clean, {} dead", show_size(v.dirty.clean_bytes), show_size(v.dirty.dead_bytes));
    println!(
        "log       accepted {}, held {}, synced {}, destaged {}",
        v.positions.accepted, v.positions.held, v.positions.synced, v.positions.destaged
    );
    println!("clients   {}", v.connections);
    println!("by TLS    {}", v.common.clients);
    if let Some(cluster) = &v.cluster {
        print_cluster(cluster);
    }
    let of_cluster = v.cluster.iter().flat_map(|cluster| &cluster.counters);
    let counters = v.counters.iter().chain(of_cluster).filter(|(_, value)| **value > 0);
    for (number, (name, value)) in counters.enumerate() {
        println!("{:<9} {name} {value}", if number == 0 { "counters" } else { "" });
    }
}

fn change_text(from: &str, change: &TierChangeReport) -> String {
    let left = change.left_bytes.map(|bytes| format!(", {} to drain", show_size(bytes))).unwrap_or_default();
    let nodes = match change.nodes.as_slice() {
        [] => String::new(),
        nodes => format!(", still to change: {}", nodes.join(", ")),
    };
    let waits = change.waits.as_ref().map(|why| format!(": {why}")).unwrap_or_default();
    format!("tier from {from} to {} ({}{left}{nodes}){waits}", change.to.word(), change.stage)
}

fn address_text(address: &AddressReport) -> String {
    let AddressReport { address, interface, state, problem } = address;
    let on = interface.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
    let why = problem.as_ref().map(|problem| format!(": {problem}")).unwrap_or_default();
    format!("{address}{on}, {}{why}", state.word())
}

fn print_cluster(c: &ClusterReport) {
    println!("cluster   {} for {} ({})", c.state, show_seconds(c.since_s), c.reason);
    println!("owner     {}, term {}, epoch {}, log {}", c.owner, c.term, c.epoch, c.log);
    if let (Some(reason), Some(since), Some(ago)) = (&c.owner_reason, c.owner_since_s, c.told_ago_s) {
        println!("told      {reason} for {}, told {} ago", show_seconds(since), show_seconds(ago));
    }
    for (number, member) in c.members.iter().enumerate() {
        let lag = member.lag.map(|lag| format!(", {lag} records behind")).unwrap_or_default();
        let medium = member.tier.map(|medium| format!(", {}", medium.word())).unwrap_or_default();
        println!(
            "{:<9} {} ({}{medium}{lag})",
            if number == 0 { "members" } else { "" },
            member.node,
            member.role.word()
        );
    }
    println!("peers     {} asked for, write-through with less than {}", c.peers, c.min_peers);
    match &c.flushed {
        FlushedBy::Durable => println!("flushed   survives a loss of power of all members, by the record"),
        FlushedBy::Held => println!("flushed   is held by all members, and no more is promised by the record"),
        FlushedBy::Unrecorded | FlushedBy::Other(_) => {}
    }
    if !c.left.is_empty() {
        println!("left      power was lost; what was synced of the log is at {}", c.left.join(", "));
    }
    for without in &c.missing_replicas {
        println!("          none at {}: {}", without.node, without.why);
    }
    if let Some(address) = &c.address {
        println!("address   {}", address_text(address));
    }
    if let Some(fence) = &c.fence {
        print_fence(fence);
    }
    if c.forwarding.clients > 0 {
        let to = if c.forwarding.connected { c.owner.as_str() } else { "nobody: they wait for an owner" };
        println!("clients   {} here, forwarded to {to}; {} requests wait", c.forwarding.clients, c.forwarding.waiting);
    }
    if !c.forwarders.is_empty() {
        println!("clients   of {}, which forward here", c.forwarders.join(", "));
    }
    if let Some(PredecessorCacheReport { node, hits, misses, left_s }) = &c.predecessor_cache {
        let left = show_seconds(*left_s);
        println!("reads     from the cache of {node}: {hits} blocks found, {misses} not, for {left} more at most");
    }
    if let Some(known) = &c.known {
        print_known(known);
    }
    if c.unfenced > 0 {
        println!("warning   {} former owners may still write to the backing: not a crash image by itself", c.unfenced);
    }
}

fn print_fence(fence: &FenceReport) {
    println!("fence     {}: allows {}", fence.class, fence.allows);
    for means in &fence.means {
        let by = means.by.as_ref().map(|by| format!(" by {by}")).unwrap_or_default();
        let proven =
            means.last_proven_unix_s.map_or("never proven from here".to_owned(), |at| format!("proven {}", ago(at)));
        let proven = if means.class == "fence" { format!(", {proven}") } else { String::new() };
        println!("          {} of {}{by} ({}{proven})", means.means, means.of, means.class);
    }
    for former in &fence.former {
        println!("unfenced  {}@{} (node and term), for {}", former.node, former.term, show_seconds(former.waiting_s));
        for words in &former.why {
            println!("          {words}");
        }
    }
}

/// What this node knows where the coordinator shows less, or nodes are waited for since it did.
fn print_known(known: &KnownReport) {
    println!("known     here: term {}, epoch {}, owner {}", known.term, known.epoch, known.owner);
    if let (Some(term), Some(epoch)) = (known.shown_term, known.shown_epoch) {
        println!("          the coordinator shows term {term}, epoch {epoch}: it went back");
    }
    if !known.unheard.is_empty() {
        println!("          not heard since: {}", known.unheard.join(", "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_reach_another_path() {
        assert_eq!(volume_path("../x?y", "/drain"), "/v1/volumes/.._x_y/drain");
    }
}
