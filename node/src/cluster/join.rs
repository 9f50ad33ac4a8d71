//! How a node becomes part of its cluster: identity, links, registration, and what all nodes have agreed on.
//!
//! Invariant: nothing of a volume is looked at before the coordinator has been found to be the cluster's, and knows this node.

use super::control::Cluster;
use crate::addresses::Addresses;
use crate::log;

use super::fencing::Fence;
use super::link_diagnosis::LinkDiagnosis;
use super::member::Place;
use super::own_addresses::OwnLinks;
use super::own_identity::OwnIdentity;
use super::pins::Pins;
use super::registration::Registration;
use super::revocations::{self, Revocations};
use super::watchdog::OwnWatchdog;
use crate::datapath::acceptor::{AcceptorHandle, House, ToAcceptor};
use crate::datapath::driver::{Asked, DriverSetup};

use crate::allowed::Allowed;
use crate::cluster::resolve::Resolved;
use crate::coordinator::etcd::Etcd;
use forebay_api::config::Config;
use forebay_api::config::cluster::{ClusterConfig, SecurityName};

use crate::coordinator::etcd::EtcdConfig;
use crate::coordinator::memory::Memory;
use crate::coordinator::schema::{ClusterIdentity, NodeEntry, Settings};
use crate::coordinator::store::Store as Keys;
use crate::coordinator::{Coordinator, Error, Registered};
use crate::datapath::directory::Directory;
use forebay_api::checked::{FaultDomain, NodeName};
use forebay_api::config::fence::FenceConfig;

use crate::datapath::mailbox::{ShardHandle, ToShard};
use crate::placement::Placement;
use crate::volume_store::Store;
use anyhow::{Context, Result, bail};

use forebay_api::record::VolumeId;
use forebay_core::cluster::Host;
use forebay_core::ownership::Timing;
use forebay_core::types::Duration;
use forebay_core::wire::{WIRE_VERSION, WIRE_VERSION_MIN};
use forebay_host::identity;
use forebay_host::proofs::Proofs;
use forebay_host::seals::Seals;
use forebay_io::link::{Identity, PeerTls, Security};
use forebay_io::machine::random_bytes;
use rustls::RootCertStore;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration as Time;
use tokio::sync::{mpsc, oneshot};

/// Between two attempts at a coordinator that does not answer.
const RETRY: Time = Time::from_secs(1);
/// Clients are let in after so long, though it is not known yet which volumes the cluster has.
const FIRST_LOOK_MAX: Time = Time::from_secs(5);
/// Between two looks, as long as none has succeeded.
const FIRST_LOOK_AGAIN: Time = Time::from_millis(200);

/// What the daemon has by then, and lends to the volumes of the cluster.
pub struct Lent {
    /// The shard of the links.
    pub shard: ShardHandle,
    /// Where other nodes come in.
    pub acceptor: AcceptorHandle,
    /// Where threads and memory are.
    pub placement: Arc<Placement>,
    /// Keys of volumes at the shards.
    pub keys: Arc<AtomicU64>,
    /// Exports, and who may use them.
    pub directory: Arc<Directory>,
    /// Which places this node opens.
    pub allowed: Arc<Allowed>,
}

impl Cluster {
    /// Joins: listens for the other nodes, registers with the coordinator, and takes up what volumes there are.
    pub async fn start(all: &Config, config: &ClusterConfig, store: &Store, lent: Lent) -> Result<Arc<Cluster>> {
        let Lent { shard, acceptor, placement, keys, directory, allowed } = lent;
        let (fences, shm_size) = (&all.fence, all.node.shm_size);
        let Resolved { identity, etcd, links } = super::resolve::resolve(config, &all.link)?;
        let name = NodeName::new(&identity.name).map_err(anyhow::Error::msg)?;
        let (node, host) = (identity.node, this_host()?);
        warn_of_identity(&identity);
        let words = ClusterIdentity::new(&identity.cluster, identity.cluster_id);
        let coordinator = Coordinator::new(Keys::Etcd(Etcd::new(&etcd)?), words, Memory::open(store.dir())?);
        warn_of_way_to(&etcd);
        check_fences(fences, &name);
        let links = OwnLinks::new(&all.link, config, links);
        let doors = links.doors()?;
        let mut entry = NodeEntry::new(name.clone(), node, host);
        entry.addresses = links.announced();
        entry.fault_domain = FaultDomain::new(&config.fault_domain).map_err(anyhow::Error::msg)?;
        entry.wire_versions = (WIRE_VERSION_MIN, WIRE_VERSION);

        let (control, asked) = mpsc::unbounded_channel();
        let revocations = revocations_kept(store, &identity)?;
        let security = security(config.security, &identity, &revocations)?;
        let seals = Seals::new(&identity, revocations.revoked())?;
        let own_identity = OwnIdentity::new(config.identity.clone(), identity.ends.clone());
        let identity = Arc::new(link_identity(&identity, host, &revocations)?);
        let (answer, answered) = oneshot::channel();
        let (compression, multipath) = (config.compression(), config.mptcp);
        let addresses = Arc::new(Addresses::start(&all.listen.nbd)?);
        let house = Box::new(House { identity: identity.clone(), security: security.clone(), shard: shard.clone() });
        let setup = DriverSetup { identity, security, compression, multipath, control, addresses: addresses.clone() };
        let setup = Box::new(setup);
        shard.send(ToShard::JoinCluster { setup, answer });
        answered.await.context("the data-path thread has ended")?.context("cannot join the cluster")?;
        let (answer, answered) = oneshot::channel();
        acceptor.send(ToAcceptor::JoinCluster { house, doors, answer });
        answered.await.context("the accepting thread has ended")?.context("cannot listen for the other nodes")?;

        let own_watchdog = OwnWatchdog::begin(store.dir(), &host)?;
        // Not with its watchdog yet: nobody counts on what is not armed.
        let timing = register(&coordinator, &entry, &revocations).await?;
        let pins = Arc::new(Pins::open(store.dir())?);
        let place = Place { store: store.clone(), shm_size, placement, node, host, timing, allowed, pins };
        let cluster = Arc::new(Cluster {
            coordinator,
            place,
            name,
            links,
            addresses,
            shard,
            acceptor,
            directory,
            keys,
            volumes: Mutex::default(),
            nodes: Mutex::default(),
            nodes_looks: Default::default(),
            loads: Mutex::default(),
            evacuations: Mutex::default(),
            ended: super::ended_terms::Ended::default(),
            migrations: Mutex::default(),
            calls_taken: Default::default(),
            nonces: Default::default(),
            seals,
            forged_said: Mutex::default(),
            answered: tokio::sync::Notify::new(),
            link_diagnosis: LinkDiagnosis::new(multipath),
            heard: Mutex::default(),
            leftovers_seen: Mutex::default(),
            fences: fences.iter().cloned().map(Fence::new).collect(),
            own_watchdog,
            own_identity,
            revocations,
            proofs: Proofs::below(store.dir()),
            searches: Mutex::default(),
            registration: Registration::new(entry),
            admin: tokio::sync::Mutex::new(()),
            look_again: tokio::sync::Notify::new(),
            images: Default::default(),
        });
        cluster.begin(all, asked);
        Ok(cluster)
    }

    /// Before clients are let in: who asks for a volume of the cluster is to wait for it, and not to be told that there is none.
    pub async fn look_first(self: &Arc<Cluster>) {
        let (cluster, begun) = (self.clone(), std::time::Instant::now());
        let look = async move {
            while !cluster.refresh_definitions().await && begun.elapsed() < FIRST_LOOK_MAX {
                tokio::time::sleep(FIRST_LOOK_AGAIN).await;
            }
        };
        // A look goes on where it takes longer: what it has begun is not broken off.
        let _ = tokio::time::timeout(FIRST_LOOK_MAX, tokio::spawn(look)).await;
    }

    /// What this node does from now on, each in a task of its own.
    fn begin(self: &Arc<Cluster>, all: &Config, asked: mpsc::UnboundedReceiver<Asked>) {
        tokio::spawn(self.clone().serve_asked(asked));
        tokio::spawn(self.clone().watch());
        tokio::spawn(self.clone().watch_health());
        tokio::spawn(self.clone().publish_nonces());
        tokio::spawn(self.clone().publish_load());
        tokio::spawn(self.clone().publish_owner_status());
        tokio::spawn(self.clone().evacuate_this_node());
        tokio::spawn(self.clone().prove_own_ends());
        tokio::spawn(self.clone().migrate_tiers());
        tokio::spawn(self.clone().follow_own_addresses());
        tokio::spawn(self.clone().watch_own_identity());
        tokio::spawn(self.clone().watch_revocations());
        if let Some(watchdog) = &all.watchdog {
            tokio::spawn(self.clone().use_watchdog(watchdog.clone()));
        }
    }
}

/// Whose identities count no more, as far as this node knows. Its own is none of them.
fn revocations_kept(store: &Store, identity: &identity::Identity) -> Result<Arc<Revocations>> {
    let revocations = Revocations::open(store.dir(), identity)?;
    match revocations.own() {
        Some(why) => bail!(why),
        None => Ok(revocations),
    }
}

/// What an operator should do about this node's identity, besides what its end asks for.
fn warn_of_identity(identity: &identity::Identity) {
    let name = &identity.name;
    if identity.lacks_role {
        log::say!(
            Warning,
            "the identity of {name} is older than roles of certificates, and is taken until it ends: renew it \
             with `forebay node enrol {name} --renew` where the cluster's authority is"
        );
    }
}

fn warn_of_way_to(etcd: &EtcdConfig) {
    if !etcd.is_protected() {
        log::say!(
            Warning,
            "etcd is asked without TLS: whoever is on the way to it, or reaches it, decides who owns each volume; give its members certificates, and https:// with etcd_tls in [cluster] (docs/install.md, etcd)"
        );
    }
}

/// A fence that cannot be used is told now, not when it is needed. It is tried all the same then.
fn check_fences(fences: &[FenceConfig], own: &str) {
    for fence in fences {
        if fence.node == own {
            log::say!(Warning, "[[fence]] node = {own:?} is this node, which never switches itself off");
        } else if let Err(error) = fence.agent() {
            log::say!(Warning, "the fence of {} cannot be used: {error:#}", fence.node);
        }
    }
}

/// The machine in its present boot.
fn this_host() -> Result<Host> {
    let id = |path: &str, cure: &str| -> Result<[u8; 16]> {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}; {cure}"))?;
        let id = VolumeId::try_from(text.trim().to_owned());
        Ok(id.with_context(|| format!("{path} does not hold 32 hexadecimal digits; {cure}"))?.0)
    };
    Ok(Host {
        machine: id("/etc/machine-id", "a node of a cluster needs it: make it with `systemd-machine-id-setup`")?,
        boot: id("/proc/sys/kernel/random/boot_id", "a node of a cluster needs it from its kernel")?,
    })
}

/// Times of the protocol, as the cluster has set them.
fn timing(settings: &Settings) -> Result<Timing> {
    let usual = Timing::default();
    let lease = Duration::from_millis(settings.lease_ms.into());
    let timing = Timing {
        member_drop: Duration::from_millis(settings.dropped_ms.into()),
        lease,
        grace: Duration::from_millis(settings.grace_ms.into()),
        // Several fall into a lease, and none is sent before the one before it could be answered.
        beacon: Duration((lease.0 / 6).clamp(usual.channel_dead.0, usual.beacon.0)),
        ..usual
    };
    match timing.check() {
        Ok(()) => Ok(timing),
        Err(why) => bail!("the cluster's settings cannot be used: {why}"),
    }
}

fn security(name: SecurityName, identity: &identity::Identity, revocations: &Revocations) -> Result<Security> {
    match name {
        SecurityName::Plain => {
            log::say!(Warning, "links are plain: whoever reaches them may read and change every volume");
            Ok(Security::Plain)
        }
        SecurityName::Tls => {
            let mut roots = RootCertStore::empty();
            roots.add(identity.authority.clone()).context("the identity's authority cannot be used")?;
            let chain = vec![identity.certificate.clone()];
            let tls = PeerTls::new(chain, identity.key.clone_key(), roots, &revocations.revoked());
            Ok(Security::Tls(tls.context("the identity cannot be used for TLS")?))
        }
    }
}

fn link_identity(identity: &identity::Identity, host: Host, revocations: &Revocations) -> Result<Identity> {
    let mut session = [0; 8];
    random_bytes(&mut session)?;
    Ok(Identity {
        cluster: identity.cluster_id.0,
        node: identity.node,
        name: forebay_core::wire::NodeName::new(&identity.name).map_err(|why| anyhow::anyhow!("{why}"))?,
        host,
        session: u64::from_le_bytes(session),
        revoked: revocations.revoked(),
    })
}

/// Waits for the coordinator, makes this node known to it, unless its identity was revoked, and learns what all nodes have agreed on.
async fn register(coordinator: &Coordinator, entry: &NodeEntry, revocations: &Arc<Revocations>) -> Result<Timing> {
    let mut told = false;
    loop {
        let registered = match coordinator.join().await {
            Ok(()) => match revocations::look_first(coordinator, revocations).await {
                Ok(()) => match revocations.own() {
                    Some(why) => bail!(why),
                    None => coordinator.register(entry).await,
                },
                Err(error) => Err(error),
            },
            Err(error) => Err(error),
        };
        let why = match registered {
            Ok(Registered::Done) => match coordinator.settings().await {
                Ok(settings) => return timing(&settings),
                Err(Error::Unreachable(why)) => why,
                Err(error) => bail!("{error}"),
            },
            Ok(Registered::NameTaken(other)) => bail!(
                "another node of this cluster is called {}: number {:016x}, on another machine; enrol this one under another name",
                entry.name,
                other.node().0
            ),
            Ok(Registered::NumberTaken(other)) => {
                bail!("the node {other} has this node's number: its identity was copied")
            }
            Ok(Registered::Unknown(why)) => why,
            Err(Error::Unreachable(why)) => why,
            Err(error) => bail!("{error}"),
        };
        if !std::mem::replace(&mut told, true) {
            log::say!(Error, "waiting for the coordinator: {why}");
        }
        tokio::time::sleep(RETRY).await;
    }
}
