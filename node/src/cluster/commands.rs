//! What operators want of a cluster's volumes, and what they are told of them.
//!
//! Left to others: who serves (core, asked through [`crate::datapath::driver`]), and what the coordinator keeps ([`super::control`]).

use super::clients::KnownClients;
use super::control::Cluster;
use super::new_image;
use super::status::{of_nodes, of_volume};
use crate::allowed::NamedBy;
use crate::coordinator::schema::{Definition, Document, NotDone, OwnerCommand, StoredRecord, TierChoice};
use crate::coordinator::{Audit, Error, Occupied, Outcome, schema};
use crate::datapath::driver::{LinkShown, Shown, ToDriver};
use crate::datapath::mailbox::ToShard;
use crate::facts::volume_memory;
use crate::failure::{Failure, FailureKind, command_failure};
use anyhow::{Context, Result, bail};
use forebay_api::checked::VolumeName;
use forebay_api::cluster::ClusterNodeReport;
use forebay_api::config;
use forebay_api::config::address::{AddressChange, VirtualAddress};
use forebay_api::config::volume::{Change, Common, VolumeSpec};
use forebay_api::config::{FlushName, TierName};
use forebay_api::record::VolumeId;
use forebay_api::status::VolumeReport;
use forebay_api::words::{BackingState, PolicyReason};
use forebay_core::api::Control;
use forebay_core::cluster::{LogState, Record};
use forebay_core::ownership::{Command, CommandError, State};
use forebay_core::record::MEMBERS_MAX;
use forebay_core::stats::Stats;
use forebay_core::status::Unrest;
use forebay_core::types::*;
use forebay_io::backing::BackingSpec;
use forebay_io::file::kind_of;
use forebay_io::folder::FileKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration as Time;
use tokio::sync::oneshot;

/// How long an operator waits for a volume to be served that was opened.
const SERVED_WAIT: Time = Time::from_secs(20);
/// How long a node that has not seen it yet waits for a change that is done.
const KNOWN_WAIT: Time = Time::from_secs(5);
/// Between two looks at that.
const SERVED_LOOK: Time = Time::from_millis(20);
/// How often a creation is asked for whose fate is not known.
const CREATE_ATTEMPTS: usize = 5;
/// Between two of these.
const CREATE_RETRY: Time = Time::from_millis(500);

/// What became of a command.
pub(super) type Answer<T> = std::result::Result<T, Failure>;

/// Why something was not done here.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Another node owns the volume, which may do it.
    NotOwner,
    /// For whoever has asked.
    Failure(Failure),
}

impl Trouble {
    /// What the owner of a volume has said to a command.
    pub(super) fn of_command(
        volume: &str,
        outcome: std::result::Result<(), CommandError>,
    ) -> std::result::Result<(), Trouble> {
        outcome.map_err(|error| match error {
            CommandError::NotOwner => Trouble::NotOwner,
            error => Trouble::of(NotDone::Conflict, format!("volume {volume}: {}", command_words(error))),
        })
    }

    pub(super) fn failed(message: String) -> Trouble {
        Trouble::Failure(Failure { kind: FailureKind::Failed, message })
    }

    /// As another node has said it.
    pub(super) fn of(kind: NotDone, message: String) -> Trouble {
        let kind = match kind {
            NotDone::NotOwner => return Trouble::NotOwner,
            NotDone::NotFound => FailureKind::NotFound,
            NotDone::Invalid => FailureKind::Invalid,
            NotDone::Conflict => FailureKind::Conflict,
            NotDone::Failed => FailureKind::Failed,
        };
        Trouble::Failure(Failure { kind, message })
    }

    /// For whoever has asked this node.
    pub(super) fn into_failure(self) -> Failure {
        match self {
            Trouble::Failure(failure) => failure,
            Trouble::NotOwner => Failure {
                kind: FailureKind::Conflict,
                message: "another node has become its owner meanwhile; ask again".to_owned(),
            },
        }
    }

    /// For another node.
    pub(super) fn into_words(self) -> (NotDone, String) {
        let Trouble::Failure(Failure { kind, message }) = self else {
            return (NotDone::NotOwner, "this node does not own it".to_owned());
        };
        let kind = match kind {
            FailureKind::NotFound => NotDone::NotFound,
            FailureKind::Invalid => NotDone::Invalid,
            FailureKind::Conflict => NotDone::Conflict,
            FailureKind::Failed => NotDone::Failed,
        };
        (kind, message)
    }
}

pub(super) fn failure<T>(kind: FailureKind, message: impl Into<String>) -> Answer<T> {
    Err(Failure { kind, message: message.into() })
}

impl Cluster {
    /// The volume of this name.
    pub fn find(&self, name: &str) -> Option<VolumeId> {
        self.known().values().find(|known| known.definition.name == name).map(|known| known.definition.volume)
    }

    /// Name of this node in the cluster.
    pub fn own_name(&self) -> &str {
        &self.name
    }

    /// Names of all volumes of the cluster that this node knows.
    pub fn names(&self) -> Vec<String> {
        self.known().values().map(|known| known.definition.name.to_string()).collect()
    }

    /// Creates a volume in the cluster, and serves it here.
    pub async fn create(self: &Arc<Cluster>, spec: &VolumeSpec, by: NamedBy) -> Answer<VolumeReport> {
        if self.is_evacuated(&self.name) {
            let message = format!(
                "volume {}: this node is to be evacuated; create it at another one, or `forebay node evacuate {} --undo`",
                spec.name, self.name
            );
            return failure(FailureKind::Conflict, message);
        }
        let admin = self.admin.lock().await;
        let mut definition = definition_of(spec).map_err(|error| invalid(&error))?;
        if let Some(address) = &definition.address {
            self.check_address(&spec.name, address)?;
        }
        self.check_known(&definition).await?;
        let (volume, options) = (definition.volume, new_image::options(spec));
        let wanted = (definition.backing.clone(), spec.size, spec.reserve);
        let allowed = self.place.allowed.clone();
        let open = move || allowed.open(&wanted.0, by, options);
        let work = move || new_image::prepare(volume, open()?, wanted.1, wanted.2);
        let prepared = tokio::task::spawn_blocking(work).await;
        let (size_bytes, image) = match prepared {
            Ok(Ok(prepared)) => prepared,
            Ok(Err(error)) => {
                return failure(FailureKind::Failed, format!("cannot create volume {}: {error:#}", spec.name));
            }
            Err(_) => return failure(FailureKind::Failed, "opening the backing panicked; this is a bug"),
        };
        if definition.tier.size_bytes == 0 {
            definition.tier.size_bytes = config::tier_size_default(size_bytes);
        }
        // Known here before anybody else can know of it: by whose word it is opened here.
        if let Err(error) = self.place.admit(&definition, by) {
            image.take_back().await;
            return failure(FailureKind::Conflict, format!("volume {}: {error:#}", spec.name));
        }
        self.define(&definition, size_bytes, image).await?;
        match self.take_definition(definition, by, None).await {
            Ok((Some(new), _)) => self.take_up(new).await,
            Ok((None, _)) => {}
            Err(error) => {
                let message = format!("volume {}: {error:#}; {}", spec.name, is_there(&spec.name));
                return failure(FailureKind::Failed, message);
            }
        }
        drop(admin);
        let opened = self.command(volume, &spec.name, Command::Open { accept_loss: false }).await;
        opened.map_err(|not| Failure { message: format!("{}; {}", not.message, is_there(&spec.name)), ..not })?;
        self.until_served(volume).await;
        self.addresses.settle().await;
        self.report(&spec.name).await
    }

    /// Has the coordinator know of a new volume. Its image is its own from then on, and goes where it is certain that there is none.
    async fn define(&self, definition: &Definition, size_bytes: u64, image: new_image::NewImage) -> Answer<()> {
        let record = Record::of_new_volume(self.place.node, size_bytes);
        let record = StoredRecord::Record(record);
        let mut created = self.coordinator.create(definition, &record).await;
        // The last is said of one that is there, though nobody can have seen a later state of a new identity.
        let is_certain = !matches!(created, Ok(Outcome::Unknown(_)) | Err(Error::WentBack { .. }));
        // To ask again is to ask what has become of it: it has an identity of its own.
        for _ in 1..CREATE_ATTEMPTS {
            if !matches!(created, Ok(Outcome::Unknown(_))) {
                break;
            }
            tokio::time::sleep(CREATE_RETRY).await;
            // An error says nothing of what was asked before.
            if let Ok(known) = self.coordinator.create(definition, &record).await {
                created = Ok(known);
            }
        }
        // Where it may be there, its image is its own.
        match &created {
            Ok(Outcome::Lost(_)) | Err(_) if is_certain => image.take_back().await,
            Ok(_) | Err(_) => image.give_up_lock().await,
        }
        match created {
            Ok(Outcome::Won) => Ok(()),
            Ok(Outcome::Lost(Occupied::Name(_) | Occupied::Identity)) => {
                self.forget_pin(definition.volume);
                failure(FailureKind::Conflict, format!("the cluster has a volume {} already", definition.name))
            }
            Ok(Outcome::Unknown(why)) => {
                let message = format!(
                    "whether volume {0} was created is not known yet: {why}; where `forebay volume list` shows it, `forebay volume open {0}` \
                     serves it",
                    definition.name
                );
                failure(FailureKind::Failed, message)
            }
            Err(error) => {
                self.forget_pin(definition.volume);
                failure(FailureKind::Failed, format!("cannot create volume {}: {error}", definition.name))
            }
        }
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

    /// A command for the owner of the volume, given here.
    pub(super) async fn command_owner(
        &self,
        volume: VolumeId,
        name: &str,
        command: Command,
    ) -> std::result::Result<(), Trouble> {
        let outcome = self.try_command(volume, name, command).await.map_err(Trouble::Failure)?;
        Trouble::of_command(name, outcome)
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
        self.try_audited(volume, name, command, None).await
    }

    /// The same, with the line of the audit log that goes with what it allows.
    pub(super) async fn try_audited(
        &self,
        volume: VolumeId,
        name: &str,
        command: Command,
        audit: Option<Audit>,
    ) -> Answer<std::result::Result<(), CommandError>> {
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::Command { volume, command, audit: audit.map(Box::new), answer });
        match answered.await {
            Ok(carried_out) => Ok(carried_out),
            Err(_) => {
                failure(FailureKind::Failed, format!("volume {name}: it is being opened, or its data path has ended"))
            }
        }
    }

    /// A command for the volume itself, which this node owns.
    pub(super) async fn control(
        &self,
        volume: VolumeId,
        name: &str,
        command: Control,
    ) -> std::result::Result<(), Trouble> {
        let shown = self.show(volume).await.ok_or(Trouble::NotOwner)?;
        let (State::Owner, Some(key)) = (shown.ownership.state, shown.key) else { return Err(Trouble::NotOwner) };
        let (answer, answered) = oneshot::channel();
        self.shard.send(ToShard::Control { key, command, answer });
        match answered.await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(Trouble::Failure(command_failure(name, &error))),
            Err(_) => Err(Trouble::failed(format!(
                "volume {name}: it went to another owner, or was closed, before this was done; do it again"
            ))),
        }
    }

    /// The owner's part of a growth. The backing grows before anybody relies on it, and here: on the data path a file system that is
    /// slow would hold up every volume.
    async fn resize_owned(&self, volume: VolumeId, name: &str, size_bytes: u64) -> std::result::Result<(), Trouble> {
        let _turn = self.turn_at_image(volume).await;
        let shown = self.show(volume).await.ok_or(Trouble::NotOwner)?;
        if shown.volume.is_some_and(|snapshot| snapshot.status.hold_left.is_some()) {
            let message = format!("volume {name}: {}", crate::failure::HELD_IMAGE);
            return Err(Trouble::Failure(Failure { kind: FailureKind::Conflict, message }));
        }
        let Some(definition) = self.definition(volume) else { return Err(Trouble::NotOwner) };
        let place = self.place.clone();
        let grow = move || -> Result<()> {
            // What is no file does not grow here, and a device is claimed by the owner's opening: the data path looks at its size.
            let spec = BackingSpec::parse(&definition.backing)?;
            if !spec.path().is_some_and(|path| kind_of(path).is_ok_and(|kind| kind == FileKind::Regular)) {
                return Ok(());
            }
            let backing = place.open_backing(&definition)?;
            backing.grow(size_bytes).with_context(|| format!("cannot grow the backing {}", backing.name()))
        };
        match tokio::task::spawn_blocking(grow).await {
            Ok(Ok(())) => self.control(volume, name, Control::Resize(size_bytes)).await,
            Ok(Err(error)) => Err(Trouble::failed(format!("volume {name}: {error:#}"))),
            Err(_) => Err(Trouble::failed(format!("volume {name}: growing its backing panicked; this is a bug"))),
        }
    }

    async fn turn_at_image(&self, volume: VolumeId) -> tokio::sync::OwnedMutexGuard<()> {
        let images = || self.images.lock().expect("nobody panics while holding it");
        let turn = images().entry(volume).or_default().clone();
        turn.lock_owned().await
    }

    /// What this node is asked for as the owner of a volume.
    pub(super) async fn execute(
        self: &Arc<Cluster>,
        volume: VolumeId,
        name: &str,
        wish: &OwnerCommand,
    ) -> std::result::Result<(), Trouble> {
        match wish {
            OwnerCommand::HandOver { to } => self.hand_to(volume, name, to).await,
            OwnerCommand::Drain { through: false } => self.control(volume, name, Control::Drain).await,
            OwnerCommand::Drain { through: true } => self.control(volume, name, Control::DrainThrough).await,
            OwnerCommand::Hold { seconds } => {
                let _turn = self.turn_at_image(volume).await;
                self.control(volume, name, Control::Hold(Duration::from_secs(*seconds))).await
            }
            OwnerCommand::Release => self.control(volume, name, Control::Release).await,
            OwnerCommand::Resize { size_bytes } => self.resize_owned(volume, name, *size_bytes).await,
            OwnerCommand::Delete { discard_dirty } => self.delete_owned(volume, name, *discard_dirty).await,
        }
    }

    /// Hands over, to a node that is made a member first where it is none.
    pub(super) async fn hand_to(&self, volume: VolumeId, name: &str, to: &str) -> std::result::Result<(), Trouble> {
        let node = self.node_called(to).map_err(Trouble::Failure)?.node();
        let shown = self.show(volume).await.ok_or(Trouble::NotOwner)?;
        let is_member = shown.ownership.record.is_some_and(|record| record.member(node).is_some());
        if !is_member {
            self.command_owner(volume, name, Command::Recruit { node }).await?;
        }
        self.command_owner(volume, name, Command::HandOver { to: node }).await
    }

    /// Makes another node the owner.
    pub async fn hand_over(self: &Arc<Cluster>, name: &str, to: &str) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let entry = self.node_called(to)?;
        let node = entry.node();
        if self.is_evacuated(to) {
            let message = format!("node {to} is to be evacuated; `forebay node evacuate {to} --undo` takes that back");
            return failure(FailureKind::Conflict, message);
        }
        let (_caller, mut gone) = oneshot::channel();
        self.at_owner(volume, name, OwnerCommand::HandOver { to: entry.name.clone() }, &mut gone).await?;
        self.until_known(volume, |record| record.owner == node).await;
        self.report(name).await
    }

    /// Destages everything that is in the log now; `through`: and keeps the backing complete until a release.
    pub async fn drain(self: &Arc<Cluster>, name: &str, through: bool) -> Answer<VolumeReport> {
        let (_caller, mut gone) = oneshot::channel();
        self.have_done(name, OwnerCommand::Drain { through }, &mut gone).await
    }

    /// Drains, then leaves the backing unchanged for at most so long, unless the caller goes away before.
    pub async fn hold(
        self: &Arc<Cluster>,
        name: &str,
        seconds: u64,
        mut gone: oneshot::Receiver<()>,
    ) -> Answer<VolumeReport> {
        let held = self.have_done(name, OwnerCommand::Hold { seconds }, &mut gone).await;
        if held.is_ok() && gone.try_recv() == Err(oneshot::error::TryRecvError::Closed) {
            let _ = self.release(name).await;
            return failure(FailureKind::Conflict, format!("volume {name}: who asked for the hold has gone away"));
        }
        held
    }

    /// Ends a hold, or a drain that keeps the backing complete.
    pub async fn release(self: &Arc<Cluster>, name: &str) -> Answer<VolumeReport> {
        let (_caller, mut gone) = oneshot::channel();
        self.have_done(name, OwnerCommand::Release, &mut gone).await
    }

    /// Grows a volume: its backing, what every member knows, the record, and then what clients may ask for (A7).
    pub async fn resize(self: &Arc<Cluster>, name: &str, size_bytes: u64) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let (_caller, mut gone) = oneshot::channel();
        self.at_owner(volume, name, OwnerCommand::Resize { size_bytes }, &mut gone).await?;
        self.until_known(volume, |record| record.size_bytes >= size_bytes).await;
        self.report(name).await
    }

    async fn have_done(
        self: &Arc<Cluster>,
        name: &str,
        wish: OwnerCommand,
        gone: &mut oneshot::Receiver<()>,
    ) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        self.at_owner(volume, name, wish, gone).await?;
        self.report(name).await
    }

    /// Waits, not for long, until this node has read a record that another one has changed.
    async fn until_known(&self, volume: VolumeId, is_so: impl Fn(&Record) -> bool) {
        let until = std::time::Instant::now() + KNOWN_WAIT;
        while std::time::Instant::now() < until {
            let shown = self.show(volume).await;
            if shown.is_none_or(|shown| shown.ownership.record.is_some_and(|record| is_so(&record))) {
                return;
            }
            tokio::time::sleep(SERVED_LOOK).await;
        }
    }

    pub(super) fn ids_and_names(&self) -> Vec<(VolumeId, String)> {
        self.known().values().map(|known| (known.definition.volume, known.definition.name.to_string())).collect()
    }

    /// Asks something else of a volume.
    pub async fn set(self: &Arc<Cluster>, name: &str, change: Change) -> Answer<VolumeReport> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        check_change(name, &change)?;
        let failed = |error: Error| Failure { kind: FailureKind::Failed, message: format!("volume {name}: {error}") };
        let mut from = self.coordinator.definition(volume).await.map_err(failed)?;
        loop {
            // What somebody else has put there is not made ours by a change of something else.
            if let Err(error) = self.place.admit(&from, NamedBy::Elsewhere) {
                return failure(FailureKind::Conflict, format!("volume {name}: {error:#}"));
            }
            let word = match self.coordinator.clients_word(volume).await {
                // What is there is none, and gives way to what this node says.
                Err(Error::Damaged { .. }) => None,
                found => found.map_err(failed)?,
            };
            let objection = self.judge_clients(&mut from.clone(), word.as_ref().map(|(word, _)| word)).await;
            if let Some(why) = objection.filter(|_| change.clients.is_none()) {
                return failure(FailureKind::Conflict, format!("volume {name}: {why}"));
            }
            let clients = match &change.clients {
                Some(clients) => Some(self.publish_clients(volume, clients, word.as_ref()).map_err(|error| {
                    let message = format!("volume {name}: who may use it is not said: {error:#}");
                    Failure { kind: FailureKind::Failed, message }
                })?),
                None => None,
            };
            let to = self.changed(name, &from, &change)?;
            self.check_known(&to).await?;
            check_volatile(name, &from, &to, &change)?;
            self.check_migration(&from, &to)?;
            match self.coordinator.redefine(&from, &to, clients.as_ref()).await.map_err(failed)? {
                Outcome::Won => {
                    // What was there before cannot be put back any more, not at this node.
                    if let Some((word, _)) = &clients {
                        let (number, clients) = (word.number, word.clients.clone());
                        self.place.pins.set_clients(volume, &KnownClients { number, clients });
                    }
                    break;
                }
                // With the same list, but without this node's word for it: once more.
                Outcome::Lost(now) if now == to && clients.is_none() => break,
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

    /// What a definition becomes by a change, where that can be.
    fn changed(&self, name: &str, from: &Definition, change: &Change) -> Answer<Definition> {
        let mut to = from.clone();
        to.policy = change.policy.unwrap_or(to.policy);
        to.drain_max_s = change.drain_max_s.unwrap_or(to.drain_max_s);
        to.flush = change.flush.unwrap_or(to.flush);
        if let Some(peers) = change.peers {
            (to.peers, to.min_peers) = (peers, peers.min(1));
        }
        to.min_peers = change.min_peers.unwrap_or(to.min_peers);
        to.tier.kind = change.tier.unwrap_or(to.tier.kind);
        to.common = to.common.with(&change.into());
        if let Some(asked) = change.address {
            to.address = address_of(asked, change.interface.clone()).map_err(|error| invalid(&error))?;
            if let Some(address) = to.address.as_ref().filter(|_| to.address != from.address) {
                self.check_address(name, address)?;
            }
        }
        check(&to).map_err(|error| invalid(&error))?;
        Ok(to)
    }

    /// Some settings are words that older nodes do not know, and a definition with one of them would be none to those.
    async fn check_known(&self, definition: &Definition) -> Answer<()> {
        let Some((since, what)) = definition.common.known_since() else { return Ok(()) };
        let name = &definition.name;
        let nodes = self.coordinator.nodes().await;
        let nodes =
            nodes.map_err(|error| Failure { kind: FailureKind::Failed, message: format!("volume {name}: {error}") })?;
        match nodes.iter().find(|node| node.record_version < since) {
            None => Ok(()),
            Some(older) => failure(
                FailureKind::Conflict,
                format!(
                    "volume {name}: the node {} is of a version that knows no {what}, and could not serve it; upgrade all nodes first",
                    older.name
                ),
            ),
        }
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
        self.show_with(volume, false).await
    }

    async fn show_with(&self, volume: VolumeId, with_seen: bool) -> Option<Shown> {
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::Show { volume, with_seen, answer });
        answered.await.ok()
    }

    /// A volume of the cluster, as this node sees it.
    pub async fn report(&self, name: &str) -> Answer<VolumeReport> {
        Ok(self.look(name, false).await?.0)
    }

    /// The same, and what it has measured, where that is asked for and a tier of it is open here.
    pub async fn look(&self, name: &str, with_seen: bool) -> Answer<(VolumeReport, Option<Box<Stats>>)> {
        let Some(volume) = self.find(name) else { return no_such_volume(name) };
        let Some((definition, facts)) =
            self.known().get(&volume).map(|known| (known.definition.clone(), known.facts.clone()))
        else {
            return no_such_volume(name);
        };
        let Some(mut shown) = self.show_with(volume, with_seen).await else {
            let waits = self.known().get(&volume).and_then(|known| known.waits.clone());
            let why = waits.map(|waits| format!("; it waits for {waits}")).unwrap_or_default();
            return failure(FailureKind::Conflict, format!("volume {name} is being opened{why}"));
        };
        let seen = shown.volume.as_mut().and_then(|snapshot| snapshot.seen.take());
        let mut cluster = of_volume(&definition, &shown, &self.nodes(), self.addresses.report(volume));
        cluster.fence = Some(self.fence_report(&definition, &shown));
        cluster.missing_replicas = self.missing_replicas(&definition, &cluster).await;
        let size_bytes = shown.ownership.record.as_ref().map_or(0, |record| record.size_bytes);
        let mut report = match (&shown.volume, facts) {
            (Some(snapshot), Some(facts)) => crate::status::volume_running(&facts, &definition.common, snapshot, None),
            (None, _) | (_, None) => self.place.absent(&definition, size_bytes, &cluster),
        };
        if !matches!(shown.ownership.state, State::Owner | State::Custodian | State::Agreeing) {
            owned_elsewhere(&mut report, &definition, &shown);
            self.add_owner_status(volume, &shown, &mut report, &mut cluster);
        }
        report.cluster = Some(cluster);
        report.tier.changing = self.migration_report(&definition);
        Ok((report, seen))
    }

    /// Bound on the memory of its volumes on this node.
    pub fn memory_bytes_max(&self) -> u64 {
        let known = self.known();
        let forwarding = known.len() as u64 * crate::datapath::forward::VOLUME_BYTES;
        forwarding + known.values().filter_map(|known| known.facts.as_ref()).map(volume_memory).sum::<u64>()
    }

    pub(super) async fn links(&self) -> Vec<LinkShown> {
        let (answer, answered) = oneshot::channel();
        self.mail(ToDriver::ShowLinks { answer });
        answered.await.unwrap_or_default()
    }

    /// The nodes of the cluster.
    pub async fn node_reports(&self) -> Vec<ClusterNodeReport> {
        let (nodes, links) = (self.nodes(), self.links().await);
        let mut reports = of_nodes(&nodes, self.place.node, &links);
        for (report, entry) in reports.iter_mut().zip(&nodes) {
            report.evacuation = self.evacuation_report(&nodes, entry).await;
            if report.own {
                report.duplicated = self.twin_found();
            }
        }
        reports
    }
}

/// What only the owner knows is told as far as the record tells it.
fn owned_elsewhere(report: &mut VolumeReport, definition: &Definition, shown: &Shown) {
    let log = shown.ownership.record.as_ref().map(|record| record.log);
    report.backing.state = BackingState::Closed;
    report.policy.requested = definition.policy;
    report.policy.effective = match log {
        Some(LogState::Needed) => definition.policy,
        Some(LogState::Through | LogState::Released) | None => config::PolicyName::Through,
    };
    report.policy.reason = PolicyReason::OwnedElsewhere;
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

/// Other nodes know of it by now, and may have begun to keep its log: it is not taken back behind them.
fn is_there(name: &str) -> String {
    format!(
        "it is created, and not served: `forebay volume open {name}` serves it, `forebay volume delete {name}` removes it"
    )
}

fn invalid(error: &anyhow::Error) -> Failure {
    Failure { kind: FailureKind::Invalid, message: format!("{error:#}") }
}

/// What a volume waited for that did not become quiet in time.
fn unrest_words(unrest: Unrest) -> &'static str {
    match unrest {
        Unrest::Reads => {
            "a read of a client was not answered by the backing or the tier in time, so it did not become quiet, and is served on as before"
        }
        Unrest::Writes => {
            "a write of a client waited too long for room, or for what lies beside it in the backing, so it did not become quiet, and is \
             served on as before"
        }
        Unrest::Answers => {
            "a write or flush of a client waited too long for the other members, the tier or the backing, so it did not become quiet, and \
             is served on as before"
        }
        Unrest::Member => "that node did not get the whole log in time; it is served on as before",
        Unrest::Records => "its log could not be emptied into the backing in time; it is served on as before",
        Unrest::Backing => {
            "the backing did not end what was under way to it or to the journal, or did not sync it, in time; it is served on as before"
        }
        Unrest::Journal => "what its journal holds did not get into the backing in time; it is served on as before",
        Unrest::Checkpoint => "its tier did not take a checkpoint in time; it is served on as before",
    }
}

pub(super) fn command_words(error: CommandError) -> &'static str {
    match error {
        CommandError::NotOwner => "this node does not own it; ask its owner, which `forebay volume show` names",
        CommandError::Busy => "another command is being carried out; try again when it has ended",
        CommandError::NotMember => "that node is no member of it; `forebay volume show` lists the members",
        CommandError::NotRecruited => {
            "that node did not become a member: it cannot be reached, has no room, or could not be brought up to date; see its \
             messages"
        }
        CommandError::TimedOut => {
            "whether it changes hands could not be decided in time: the coordinator or the other node did not answer; it is served on as \
             before"
        }
        CommandError::NotQuiet(unrest) => {
            unrest.map_or("it did not become quiet in time, and is served on as before", unrest_words)
        }
        CommandError::Unfenced => {
            "former owners may still write to its backing; it can be released when they can no more"
        }
        CommandError::Served => "it has an owner, or a member that may become it",
        CommandError::LossSuspected => "the logs that are gone may hold the only copy of acknowledged writes",
        CommandError::MemberAlive => "a member is alive and has the log: it takes over by itself",
        CommandError::LogsAnswer => {
            "a member answers with what of its log a loss of power has left; that is not given up, see `forebay volume show`"
        }
        CommandError::Undecided => {
            "a member answers by now, and the coordinator has not said whether the opening that was sent before it did takes effect: \
             see `forebay volume show`, and decide again"
        }
        CommandError::RecordChanged => {
            "it was served, or has lost other logs, since this node last knew; see `forebay volume show`, and decide again"
        }
        CommandError::NeedsProof => "nothing proves that its owner can write no more",
        CommandError::NoRecord => "the coordinator does not answer, or has no record of it",
        CommandError::RecordWentBack => "the coordinator went back in time; nothing is changed until that is resolved",
        CommandError::KnownElsewhere => {
            "another node knows a newer record of it; see what `forebay volume show` says at each node, and speak where the newest is"
        }
        CommandError::NotAsSeen => "it is not as you have seen it: look again, and say what is there now",
        CommandError::Unheard => {
            "the coordinator went back in time, and not all nodes have said what they know of before; `forebay volume show` names \
             them: start them, or say which cannot answer: `forebay node cannot-answer NODE --yes-what-it-knows-may-be-lost`"
        }
        CommandError::Answered => "that node has said what it knows",
        CommandError::NoTier => "the tier could not be made at this node: its messages say why",
        CommandError::NothingToDo => "it is so already",
        CommandError::Superseded => "another node was faster, or this one has lost the volume meanwhile",
    }
}

fn definition_of(spec: &VolumeSpec) -> Result<Definition> {
    spec.check()?;
    let peers = spec.peers.unwrap_or(0);
    let min_peers = spec.min_peers.unwrap_or(peers.min(1));
    if spec.tier_path.is_some() || spec.adopt_changed_backing || spec.same_image || spec.journal_size.is_some() {
        bail!(
            "volume {}: tier_path, journal_size, same_image and adopt_changed_backing are for volumes of one node; leave them out, or peers",
            spec.name
        );
    }
    let address = spec.address.map(|address| VirtualAddress::new(address, spec.interface.clone())).transpose()?;
    let definition = Definition {
        version: schema::VERSION,
        name: VolumeName::new(&spec.name).map_err(anyhow::Error::msg)?,
        volume: VolumeId::random()?,
        backing: config::absolute_spec(&spec.backing),
        format_raw: spec.format.is_some(),
        policy: spec.policy.unwrap_or_default(),
        peers,
        min_peers,
        tier: TierChoice { kind: spec.tier.unwrap_or_default(), size_bytes: spec.tier_size.unwrap_or(0) },
        flush: spec.flush.unwrap_or_default(),
        memory_bytes: spec.memory.unwrap_or(0),
        destage: config::DestageName::Ordered,
        journal_bytes: 0,
        drain_max_s: spec.drain_max_s.unwrap_or(0),
        address,
        reserves: spec.reserve,
        common: Common::default().with(&spec.into()),
    };
    check(&definition)?;
    // Nothing is written that whoever reads it refuses: such a volume could not even be deleted by its name.
    let taken = Definition::decode(&definition.encode());
    taken.map_err(|why| anyhow::anyhow!("volume {}: {why}", definition.name))
}

/// What cannot be asked of a volume of a cluster.
fn check_change(name: &str, change: &Change) -> Answer<()> {
    if change.destage.is_some() {
        let message = format!("volume {name}: volumes of a cluster are destaged in order; leave destage out");
        return failure(FailureKind::Invalid, message);
    }
    if change.tier_size.is_some() {
        let message = format!("volume {name}: the tiers of a volume of a cluster keep their size; leave tier_size out");
        return failure(FailureKind::Invalid, message);
    }
    Ok(())
}

/// What flushes have promised is not given up by the way.
fn check_volatile(name: &str, from: &Definition, to: &Definition, change: &Change) -> Answer<()> {
    if change.tier == Some(TierName::Memory) && from.tier.kind != TierName::Memory && to.peers == 0 && !change.volatile
    {
        let message = format!(
            "volume {name}: without peers a crash of the host loses what is not destaged, flushed writes too; accept \
             that with --volatile"
        );
        return failure(FailureKind::Invalid, message);
    }
    Ok(())
}

/// Whether all that is asked for can be had together.
fn check(definition: &Definition) -> Result<()> {
    let Definition { name, peers, min_peers, flush, tier, .. } = definition;
    if min_peers > peers {
        bail!("volume {name}: min_peers = {min_peers} is more than peers = {peers}");
    }
    if usize::from(*peers) >= MEMBERS_MAX {
        bail!("volume {name}: {peers} peers; at most {} are possible", MEMBERS_MAX - 1);
    }
    if (*flush, tier.kind) == (FlushName::Media, config::TierName::Memory) {
        bail!(
            "volume {name}: a flush to media needs tiers on flash, and its tiers are in memory; use replicated, or destage"
        );
    }
    Ok(())
}
