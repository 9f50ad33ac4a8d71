//! What operators want of a cluster's volumes, and what they are told of them.
//!
//! Left to others: who serves (core, asked through [`super::driver`]), and what the coordinator keeps ([`super::control`]).

use super::control::Cluster;
use super::driver::{Shown, ToDriver};
use super::marker::ImageMarker;
use super::report::{ClusterNodeReport, of_nodes, of_volume};
use crate::config::address::{AddressChange, VirtualAddress};
use crate::config::{self, VolumeSpec};
use crate::coordinator::words::{self, Definition, FlushName, Kept, NodeEntry, TierChoice};
use crate::coordinator::{Error, Occupied, Outcome};
use crate::node::{Change, Failure, FailureKind, volume_memory};
use crate::report::VolumeReport;
use crate::volume_store::VolumeId;
use anyhow::{Context, Result, bail};
use forebay_core::cluster::{LogState, Record};
use forebay_core::ownership::{Command, CommandError, State};
use forebay_core::types::*;
use forebay_io::fence::ReservableDevice;
use forebay_io::{Backing, BackingOptions, LockAttempt};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration as Time;
use tokio::sync::oneshot;

/// How long an operator waits for a volume to be served that was opened.
const SERVED_WAIT: Time = Time::from_secs(20);
/// Between two looks at that.
const SERVED_LOOK: Time = Time::from_millis(20);

pub(super) type Answer<T> = std::result::Result<T, Failure>;

pub(super) fn failure<T>(kind: FailureKind, message: impl Into<String>) -> Answer<T> {
    Err(Failure { kind, message: message.into() })
}

impl Cluster {
    /// The volume of this name.
    pub fn find(&self, name: &str) -> Option<VolumeId> {
        self.known().values().find(|known| known.definition.name == name).map(|known| known.definition.volume)
    }

    /// Names of all volumes.
    pub fn names(&self) -> Vec<String> {
        self.known().values().map(|known| known.definition.name.clone()).collect()
    }

    /// Creates a volume in the cluster, and serves it here.
    pub async fn create(self: &Arc<Cluster>, spec: &VolumeSpec) -> Answer<VolumeReport> {
        let admin = self.admin.lock().await;
        let mut definition = definition_of(spec).map_err(|error| invalid(&error))?;
        if let Some(address) = &definition.address {
            self.check_address(&spec.name, address)?;
        }
        let (volume, options) = (definition.volume, creation(spec));
        let wanted = (definition.backing.clone(), spec.size, spec.reserve);
        let work = move || prepare_backing(volume, &wanted.0, wanted.1, wanted.2, options);
        let prepared = tokio::task::spawn_blocking(work).await;
        let size_bytes = match prepared {
            Ok(Ok(size_bytes)) => size_bytes,
            Ok(Err(error)) => {
                return failure(FailureKind::Failed, format!("cannot create volume {}: {error:#}", spec.name));
            }
            Err(_) => return failure(FailureKind::Failed, "opening the backing panicked; this is a bug"),
        };
        if definition.tier.size_bytes == 0 {
            definition.tier.size_bytes = config::tier_size_default(size_bytes);
        }
        let record = Record::of_new_volume(self.place.node, size_bytes);
        match self.coordinator.create(&definition, &Kept::Record(record)).await {
            Ok(Outcome::Won) => {}
            Ok(Outcome::Lost(Occupied::Name(_) | Occupied::Identity)) => {
                return failure(FailureKind::Conflict, format!("the cluster has a volume {} already", spec.name));
            }
            Ok(Outcome::Unknown(why)) => {
                let message = format!("whether volume {} was created is not known yet: {why}", spec.name);
                return failure(FailureKind::Failed, message);
            }
            Err(error) => return failure(FailureKind::Failed, format!("cannot create volume {}: {error}", spec.name)),
        }
        if let Some(new) = self.take_definition(definition).await {
            self.take_up(new).await;
        }
        drop(admin);
        self.command(volume, &spec.name, Command::Open { accept_loss: false }).await?;
        self.until_served(volume).await;
        self.addresses.settle().await;
        self.report(&spec.name).await
    }

    pub(super) async fn until_served(&self, volume: VolumeId) {
        let until = std::time::Instant::now() + SERVED_WAIT;
        while std::time::Instant::now() < until {
            let shown = self.show(volume).await;
            if shown.is_none_or(|shown| matches!(shown.ownership.state, State::Owner | State::Custodian)) {
                return;
            }
            tokio::time::sleep(SERVED_LOOK).await;
        }
    }

    pub(super) async fn command(&self, volume: VolumeId, name: &str, command: Command) -> Answer<()> {
        match self.try_command(volume, name, command).await? {
            Ok(()) => Ok(()),
            Err(error) => failure(FailureKind::Conflict, format!("volume {name}: {}", command_words(error))),
        }
    }

    /// A command, and why it was not carried out.
    pub(super) async fn try_command(
        &self,
        volume: VolumeId,
        name: &str,
        command: Command,
    ) -> Answer<std::result::Result<(), CommandError>> {
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::Command { volume, command, answer });
        match answered.await {
            Ok(carried_out) => Ok(carried_out),
            Err(_) => {
                failure(FailureKind::Failed, format!("volume {name}: it is being opened, or its data path has ended"))
            }
        }
    }

    /// Makes a member the owner.
    pub async fn hand_over(&self, name: &str, to: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let Some(node) = self.nodes().iter().find(|entry| entry.name == to).map(NodeEntry::node) else {
            let message = format!("there is no node {to}; `forebay node list` shows those there are");
            return failure(FailureKind::NotFound, message);
        };
        self.command(volume, name, Command::HandOver { to: node }).await?;
        self.report(name).await
    }

    /// The node is about to end: whatever it owns goes to another member. What stays here, and why.
    pub async fn leave(&self) -> Vec<String> {
        let names: Vec<(VolumeId, String)> =
            self.known().values().map(|known| (known.definition.volume, known.definition.name.clone())).collect();
        let mut left = Vec::new();
        for (volume, name) in names {
            if let Some(why) = self.leave_one(volume, &name).await {
                left.push(format!("{name}: {why}"));
            }
        }
        let addresses = self.addresses.clone();
        // What panics there has been said.
        let _ = tokio::task::spawn_blocking(move || addresses.end()).await;
        left
    }

    async fn leave_one(&self, volume: VolumeId, name: &str) -> Option<String> {
        let shown = self.show(volume).await?;
        if !matches!(shown.ownership.state, State::Owner | State::Custodian) {
            return None;
        }
        let record = shown.ownership.record?;
        let Some(to) = record.members.iter().map(|member| member.node).find(|node| *node != self.place.node) else {
            return Some("no other node has its log; it is served again when this one starts".to_owned());
        };
        let handed = self.command(volume, name, Command::HandOver { to }).await;
        handed.err().map(|failure| format!("it could not be handed over: {}", failure.message))
    }

    /// Asks something else of a volume.
    pub async fn set(self: &Arc<Cluster>, name: &str, change: Change) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        if change.destage.is_some() {
            let message = format!("volume {name}: volumes of a cluster are destaged in order; leave destage out");
            return failure(FailureKind::Invalid, message);
        }
        if change.interface.is_some() && change.address.is_none() {
            let message = format!("volume {name}: an interface is where an address goes; give that as well");
            return failure(FailureKind::Invalid, message);
        }
        let failed = |error: Error| Failure { kind: FailureKind::Failed, message: format!("volume {name}: {error}") };
        let mut from = self.coordinator.definition(volume).await.map_err(failed)?;
        loop {
            let mut to = from.clone();
            to.policy = change.policy.unwrap_or(to.policy);
            to.drain_max_s = change.drain_max_s.unwrap_or(to.drain_max_s);
            if let Some(peers) = change.peers {
                (to.peers, to.min_peers) = (peers, peers.min(1));
            }
            if let Some(asked) = change.address {
                to.address = address_of(asked, change.interface.clone()).map_err(|error| invalid(&error))?;
                if let Some(address) = to.address.as_ref().filter(|_| to.address != from.address) {
                    self.check_address(name, address)?;
                }
            }
            match self.coordinator.redefine(&from, &to).await.map_err(failed)? {
                Outcome::Won => break,
                Outcome::Lost(now) if now == to => break,
                Outcome::Lost(now) => from = now,
                Outcome::Unknown(why) => {
                    let message = format!("whether volume {name} was changed is not known yet: {why}");
                    return failure(FailureKind::Failed, message);
                }
            }
        }
        self.refresh_definitions().await;
        self.addresses.settle().await;
        self.report(name).await
    }

    /// An address that this node can hold, and that nothing else of the cluster has.
    fn check_address(&self, name: &str, address: &VirtualAddress) -> Answer<()> {
        let ip = address.address.ip;
        let taken = |message: String| failure(FailureKind::Conflict, format!("volume {name}: {message}"));
        let of_link = |text: &String| text.parse::<SocketAddr>().is_ok_and(|link| link.ip() == ip);
        if let Some(node) = self.nodes().iter().find(|node| node.addresses.iter().any(of_link)) {
            return taken(format!("{ip} is an address of the node {}: choose one that nobody has", node.name));
        }
        let has = |definition: &Definition| definition.address.as_ref().is_some_and(|other| other.address.ip == ip);
        let known = self.known();
        if let Some(other) = known.values().find(|known| known.definition.name != name && has(&known.definition)) {
            return taken(format!("{ip} is the address of volume {}: each has its own", other.definition.name));
        }
        self.addresses.check(address).map_err(|error| invalid(&error.context(format!("volume {name}"))))
    }

    // --- reports ---

    pub(super) async fn show(&self, volume: VolumeId) -> Option<Shown> {
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::Show { volume, answer });
        answered.await.ok()
    }

    /// A volume of the cluster, as this node sees it.
    pub async fn report(&self, name: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let Some((definition, facts)) =
            self.known().get(&volume).map(|known| (known.definition.clone(), known.facts.clone()))
        else {
            return no_such_volume(name);
        };
        let Some(shown) = self.show(volume).await else {
            let waits = self.known().get(&volume).and_then(|known| known.waits.clone());
            let why = waits.map(|waits| format!("; it waits for {waits}")).unwrap_or_default();
            return failure(FailureKind::Conflict, format!("volume {name} is being opened{why}"));
        };
        let mut cluster = of_volume(&definition, &shown, &self.nodes(), self.addresses.report(volume));
        cluster.fence = Some(self.fence_report(&definition, &shown));
        let size_bytes = shown.ownership.record.as_ref().map_or(0, |record| record.size_bytes);
        let mut report = match (&shown.volume, facts) {
            (Some(snapshot), Some(facts)) => VolumeReport::running(&facts, snapshot, None),
            (None, _) | (_, None) => self.place.absent(&definition, size_bytes, &cluster),
        };
        if !matches!(shown.ownership.state, State::Owner | State::Custodian | State::Agreeing) {
            owned_elsewhere(&mut report, &definition, &shown);
        }
        report.cluster = Some(cluster);
        Ok(report)
    }

    /// Bound on the memory of its volumes on this node.
    pub fn memory_bytes_max(&self) -> u64 {
        self.known().values().filter_map(|known| known.facts.as_ref()).map(volume_memory).sum()
    }

    /// The nodes of the cluster.
    pub async fn node_reports(&self) -> Vec<ClusterNodeReport> {
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::ShowLinks { answer });
        let links = answered.await.unwrap_or_default();
        of_nodes(&self.nodes(), self.place.node, &links)
    }
}

/// What only the owner knows is told as far as the record tells it.
fn owned_elsewhere(report: &mut VolumeReport, definition: &Definition, shown: &Shown) {
    let log = shown.ownership.record.as_ref().map(|record| record.log);
    report.backing.state = "closed".to_owned();
    report.policy.requested = definition.policy;
    report.policy.effective = match log {
        Some(LogState::Needed) => definition.policy,
        Some(LogState::Through | LogState::Released) | None => config::PolicyName::Through,
    };
    report.policy.reason = "owned-elsewhere".to_owned();
}

fn address_of(asked: AddressChange, interface: Option<String>) -> Result<Option<VirtualAddress>> {
    match (asked, interface) {
        (AddressChange::To(address), interface) => VirtualAddress::new(address, interface).map(Some),
        (AddressChange::None, None) => Ok(None),
        (AddressChange::None, Some(_)) => {
            bail!("an interface is where an address goes, and none is asked for; leave it out")
        }
    }
}

pub(super) fn no_such_volume<T>(name: &str) -> Answer<T> {
    failure(FailureKind::NotFound, format!("there is no volume {name}; `forebay volume list` shows those there are"))
}

fn invalid(error: &anyhow::Error) -> Failure {
    Failure { kind: FailureKind::Invalid, message: format!("{error:#}") }
}

pub(super) fn command_words(error: CommandError) -> &'static str {
    match error {
        CommandError::NotOwner => "this node does not own it; ask its owner, which `forebay volume show` names",
        CommandError::Busy => "another command is being carried out; try again when it has ended",
        CommandError::NotMember => "that node is no member of it; `forebay volume show` lists the members",
        CommandError::TimedOut => "it did not become quiet in time, and is served on as before",
        CommandError::Unfenced => {
            "former owners may still write to its backing; it can be released when they can no more"
        }
        CommandError::Served => "it has an owner, or a member that may become it",
        CommandError::LossSuspected => "the logs that are gone may hold the only copy of acknowledged writes",
        CommandError::MemberAlive => "a member is alive and has the log: it takes over by itself",
        CommandError::NeedsProof => "nothing proves that its owner can write no more",
        CommandError::NoRecord => "the coordinator does not answer, or has no record of it",
        CommandError::RecordWentBack => "the coordinator went back in time; nothing is changed until that is resolved",
        CommandError::NothingToDo => "it is so already",
        CommandError::Superseded => "another node was faster, or this one has lost the volume meanwhile",
    }
}

fn definition_of(spec: &VolumeSpec) -> Result<Definition> {
    spec.check()?;
    let peers = spec.peers.unwrap_or(0);
    let min_peers = spec.min_peers.unwrap_or(peers.min(1));
    if min_peers > peers {
        bail!("volume {}: min_peers = {min_peers} is more than peers = {peers}", spec.name);
    }
    if spec.tier_path.is_some() || spec.adopt_changed_backing || spec.journal_size.is_some() {
        bail!(
            "volume {}: tier_path, journal_size and adopt_changed_backing are for volumes of one node; leave them out, or peers",
            spec.name
        );
    }
    let address = spec.address.map(|address| VirtualAddress::new(address, spec.interface.clone())).transpose()?;
    Ok(Definition {
        version: words::VERSION,
        name: spec.name.clone(),
        volume: VolumeId::random()?,
        backing: config::absolute_spec(&spec.backing),
        format_raw: spec.format.is_some(),
        policy: spec.policy.unwrap_or_default(),
        peers,
        min_peers,
        tier: TierChoice { kind: spec.tier.unwrap_or_default(), size_bytes: spec.tier_size.unwrap_or(0) },
        flush: FlushName::Auto,
        memory_bytes: spec.memory.unwrap_or(0),
        destage: config::DestageName::Ordered,
        journal_bytes: 0,
        drain_max_s: spec.drain_max_s.unwrap_or(0),
        reserves: spec.reserve,
        address,
    })
}

fn creation(spec: &VolumeSpec) -> BackingOptions {
    BackingOptions { create: spec.size.filter(|_| spec.create), format_raw: spec.format.is_some() }
}

/// Looks at the backing of a new volume, or makes it: the volume's size.
fn prepare_backing(
    volume: VolumeId,
    spec: &str,
    size: Option<u64>,
    reserves: bool,
    options: BackingOptions,
) -> Result<u64> {
    let mut backing = Backing::open(spec, options)?;
    if reserves {
        let path = backing.path().context("an NBD export cannot be reserved; leave --reserve out")?;
        ReservableDevice::open(path).context("leave --reserve out, or give another backing")?;
    }
    let has = backing.size().with_context(|| format!("cannot read the size of {}", backing.name()))?;
    let wanted = size.unwrap_or(has / SECTOR_BYTES * SECTOR_BYTES);
    if has < wanted {
        bail!("the backing {} has {has} usable bytes, and {wanted} were asked for", backing.name());
    }
    if let LockAttempt::HeldBy(holder) =
        backing.try_lock().with_context(|| format!("cannot lock {}", backing.name()))?
    {
        bail!("the backing {} is in use by {holder}; end that use first", backing.name());
    }
    if let Some(marker) = ImageMarker::of(&backing) {
        marker.check(volume)?;
    }
    Ok(wanted)
}
