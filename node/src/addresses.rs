//! The addresses by which clients reach the volumes of the cluster: each is on the node that serves its volume.
//!
//! Invariants:
//! - An address is here only while its volume is served here, and for a moment longer ([`FAREWELL`]), in which the ends of the
//!   sessions reach the clients. A daemon that is killed or stopped loses it to the kernel ([`LIFE`]); one that has stood still
//!   gives it up when it wakes, because another one may have it meanwhile ([`LATE`]).
//! - An address that this host has for good is never taken away.
//! - No data depends on where an address is: who serves is decided elsewhere, and whoever reaches a node that does not serve the
//!   volume is not answered.
//!
//! All of it is done by one thread, because the kernel may make it wait.

use crate::log;
use anyhow::{Context, Result, bail};
use forebay_api::cluster::{AddressReport, AddressState};
use forebay_api::config::NbdAddress;
use forebay_api::config::address::VirtualAddress;
use forebay_api::record::VolumeId;
use forebay_core::types::{Duration, Instant};
use forebay_io::address::{Addresses as Kernel, Assigned, Interface, LIFE, announce, own_address};
use forebay_io::clock;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration as Time;
use tokio::sync::oneshot;

/// An address is given anew so often: some attempts may come late before the kernel takes it away.
const RENEW_EVERY: Duration = Duration::from_secs(2);
const _: () = assert!(RENEW_EVERY.0 * 4 <= LIFE.as_nanos() as u64);
/// Who comes so late for that has stood still, perhaps for longer than the members' grace.
const LATE: Duration = Duration::from_secs(3);
/// What wakes asks first whether it still serves: the data path is given so long to find out.
const HOLD_BACK: Duration = Duration::from_secs(2);
/// After the sessions of clients have ended, so long: what tells them so may have to be sent once more.
const FAREWELL: Duration = Duration::from_secs(1);
/// The network is told at once, then again and again with twice the pause each time, up to the second.
const ANNOUNCE_PAUSE_MIN: Duration = Duration::from_millis(250);
const ANNOUNCE_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long the end is waited for, and the effect of a change.
const END_WAIT: Time = Time::from_secs(5);
const SETTLE_WAIT: Time = Time::from_secs(5);

/// Bits of `CapEff`: what the kernel wants of whoever changes addresses, and of whoever announces them.
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
const CAPABILITIES_ARE_MISSING: &str = "the daemon needs the capabilities CAP_NET_ADMIN and CAP_NET_RAW (as root, or in its unit: \
                                        AmbientCapabilities and CapabilityBoundingSet)";

enum Mail {
    Define {
        volume: VolumeId,
        name: String,
        wanted: Option<VirtualAddress>,
    },
    Serve {
        volume: VolumeId,
        here: bool,
    },
    /// What was told before is done, as far as it can be done at once.
    Settle(oneshot::Sender<()>),
    End(mpsc::Sender<()>),
}

/// See the module's text.
#[derive(Debug)]
pub struct Addresses {
    mail: mpsc::Sender<Mail>,
    shown: Arc<Mutex<BTreeMap<VolumeId, AddressReport>>>,
    moving: Mutex<BTreeMap<VolumeId, IpAddr>>,
    listens: Vec<NbdAddress>,
}

impl Addresses {
    /// Begins, with nothing. `listens`: where clients of this node connect.
    pub fn start(listens: &[NbdAddress]) -> Result<Addresses> {
        let (mail, inbox) = mpsc::channel();
        let shown: Arc<Mutex<BTreeMap<VolumeId, AddressReport>>> = Arc::default();
        let worker = Worker { shown: shown.clone(), entries: BTreeMap::new(), settling: Vec::new() };
        std::thread::Builder::new()
            .name("addresses".to_owned())
            .spawn(move || worker.run(&inbox))
            .context("cannot start the thread of the virtual addresses")?;
        Ok(Addresses { mail, shown, moving: Mutex::default(), listens: listens.to_vec() })
    }

    /// What is asked of a volume from now on.
    pub fn define(&self, volume: VolumeId, name: &str, wanted: Option<&VirtualAddress>) {
        {
            let mut moving = self.moving.lock().expect("nobody panics while holding it");
            match wanted {
                Some(wanted) => moving.insert(volume, wanted.address.ip),
                None => moving.remove(&volume),
            };
        }
        self.notify(Mail::Define { volume, name: name.to_owned(), wanted: wanted.cloned() });
    }

    /// Whether a volume is served here. Never waits.
    pub fn serve(&self, volume: VolumeId, here: bool) {
        self.notify(Mail::Serve { volume, here });
    }

    /// Until what was told before is done or has failed, and shown.
    pub async fn settle(&self) {
        let (settled, waiting) = oneshot::channel();
        self.notify(Mail::Settle(settled));
        // Only a kernel that does not answer takes longer.
        let _ = tokio::time::timeout(SETTLE_WAIT, waiting).await;
    }

    /// The daemon ends: addresses of volumes that are not served here any more are taken away. One whose volume is served to
    /// the end stays for [`LIFE`]: by it the kernel tells the clients that the daemon is gone.
    pub fn end(&self) {
        let (ended, end) = mpsc::channel();
        self.notify(Mail::End(ended));
        // What is not done by then is the kernel's to do.
        let _ = end.recv_timeout(END_WAIT);
    }

    fn notify(&self, mail: Mail) {
        // Its thread ends when the daemon does.
        let _ = self.mail.send(mail);
    }

    /// Whether a client has come by an address that moves: its session must not outlast the address's time here.
    pub fn have_brought(&self, client: BorrowedFd<'_>) -> bool {
        let moving = self.moving.lock().expect("nobody panics while holding it");
        own_address(client).is_some_and(|own| moving.values().any(|ip| *ip == own))
    }

    /// Whether it is an address that moves, whoever has it now.
    pub fn moves(&self, ip: IpAddr) -> bool {
        self.moving.lock().expect("nobody panics while holding it").values().any(|moving| *moving == ip)
    }

    /// Address by which clients reach a volume; none: it has none.
    pub fn ip_of(&self, volume: VolumeId) -> Option<IpAddr> {
        let report = self.report(volume)?;
        report.address.split('/').next()?.parse().ok()
    }

    /// What is told of a volume's address; none: it has none.
    pub fn report(&self, volume: VolumeId) -> Option<AddressReport> {
        self.shown.lock().expect("nobody panics while holding it").get(&volume).cloned()
    }

    /// Refuses what this node could not hold, or what no client would reach here.
    pub fn check(&self, wanted: &VirtualAddress) -> Result<()> {
        let ip = wanted.address.ip;
        if !self.listens.iter().any(|place| accepts(place, ip)) {
            let any = if ip.is_ipv4() { "0.0.0.0" } else { "[::]" };
            bail!(
                "no client would be let in by {ip}: add \"tcp:{any}:10809\" to [listen] nbd of each node of the cluster, with \
                 nbd_tls to keep others out"
            );
        }
        let mut kernel = Kernel::open().context("cannot look at this machine's addresses")?;
        place_of(wanted, &kernel.interfaces()?, &kernel.assigned()?)?;
        let needed = 1 << CAP_NET_ADMIN | 1 << CAP_NET_RAW;
        if capabilities().is_none_or(|have| have & needed != needed) {
            bail!("this node could not take the address {ip}: {CAPABILITIES_ARE_MISSING}");
        }
        Ok(())
    }
}

/// Whether clients of an address come in there.
fn accepts(place: &NbdAddress, ip: IpAddr) -> bool {
    let NbdAddress::Tcp(text) = place else { return false };
    let resolved = text.to_socket_addrs().map(Iterator::collect::<Vec<_>>).unwrap_or_default();
    // One that listens on all addresses of IPv6 takes those of IPv4 as well.
    resolved.iter().any(|at| at.ip() == ip || (at.ip().is_unspecified() && (at.is_ipv6() || ip.is_ipv4())))
}

fn capabilities() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(effective.trim(), 16).ok()
}

/// Which interface gets an address.
fn place_of(wanted: &VirtualAddress, interfaces: &[Interface], assigned: &[Assigned]) -> Result<Interface> {
    let address = wanted.address;
    let name_of = |index: u32| interfaces.iter().find(|i| i.index == index).map_or("?", |i| i.name.as_str());
    if let Some(own) = assigned.iter().find(|own| own.address == address.ip && !own.is_lent()) {
        bail!(
            "{} is an address that {} of this machine has for good: choose one that nobody has",
            address.ip,
            name_of(own.interface)
        );
    }
    let index = match &wanted.interface {
        Some(name) => match interfaces.iter().find(|interface| interface.name == *name) {
            Some(interface) => interface.index,
            None => {
                let names: Vec<&str> = interfaces.iter().map(|interface| interface.name.as_str()).collect();
                bail!("there is no interface {name} for the address {address}; there are {}", names.join(", "));
            }
        },
        None => {
            let near = assigned.iter().filter(|own| !own.is_lent() && address.contains(own.address));
            let near: BTreeSet<u32> = near.map(|own| own.interface).collect();
            match near.iter().copied().collect::<Vec<_>>()[..] {
                [index] => index,
                [] => bail!("no interface has an address of the network of {address}; name one with --interface"),
                [..] => {
                    let names: Vec<&str> = near.iter().map(|index| name_of(*index)).collect();
                    bail!(
                        "more than one interface has an address of the network of {address} ({}); name one with --interface",
                        names.join(", ")
                    );
                }
            }
        }
    };
    let interface =
        interfaces.iter().find(|interface| interface.index == index).context("an interface has just gone")?;
    if !interface.up {
        bail!("the interface {} for the address {address} is down; bring it up", interface.name);
    }
    Ok(interface.clone())
}

/// An address that is here.
struct Placed {
    wanted: VirtualAddress,
    interface: Interface,
    /// When it is given anew, and when the network is told once more.
    renew_at: Instant,
    announce_at: Instant,
    announce_pause: Duration,
    /// It is not wanted any more, and is taken away then.
    goes_at: Option<Instant>,
}

#[derive(Default)]
struct Entry {
    name: String,
    wanted: Option<VirtualAddress>,
    served: bool,
    placed: Option<Placed>,
    /// When what has failed is tried again.
    retry_at: Option<Instant>,
    problem: Option<String>,
}

struct Worker {
    shown: Arc<Mutex<BTreeMap<VolumeId, AddressReport>>>,
    entries: BTreeMap<VolumeId, Entry>,
    settling: Vec<oneshot::Sender<()>>,
}

impl Worker {
    fn run(mut self, inbox: &mpsc::Receiver<Mail>) {
        loop {
            let now = clock::now();
            let next = self.entries.values_mut().filter_map(|entry| entry.tend(now)).min();
            self.show();
            for settled in self.settling.drain(..) {
                // Whoever waited may have given up.
                let _ = settled.send(());
            }
            let mail = match next {
                Some(at) => inbox.recv_timeout(clock::until(at, clock::now())),
                None => inbox.recv().map_err(mpsc::RecvTimeoutError::from),
            };
            match mail {
                Ok(Mail::Define { volume, name, wanted }) => {
                    let known = self.entries.contains_key(&volume);
                    let entry = self.entries.entry(volume).or_default();
                    (entry.name, entry.wanted, entry.retry_at) = (name, wanted, None);
                    if !known {
                        entry.clear_left_over();
                    }
                }
                Ok(Mail::Serve { volume, here }) => {
                    let entry = self.entries.entry(volume).or_default();
                    (entry.served, entry.retry_at) = (here, None);
                }
                Ok(Mail::Settle(settled)) => self.settling.push(settled),
                Ok(Mail::End(ended)) => {
                    self.end();
                    // Whoever waited may have given up.
                    let _ = ended.send(());
                    return;
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn show(&self) {
        let report = |(volume, entry): (&VolumeId, &Entry)| Some((*volume, entry.report()?));
        *self.shown.lock().expect("nobody panics while holding it") = self.entries.iter().filter_map(report).collect();
    }

    fn end(&mut self) {
        let leaves = |entry: &&mut Entry| !entry.served && entry.placed.is_some();
        for entry in self.entries.values_mut().filter(leaves) {
            let goes_at = entry.placed.as_ref().and_then(|placed| placed.goes_at);
            let now = clock::now();
            std::thread::sleep(clock::until(goes_at.unwrap_or(now + FAREWELL), now));
            entry.take();
        }
    }
}

impl Entry {
    /// Does what is due. When something will be next.
    fn tend(&mut self, now: Instant) -> Option<Instant> {
        let target = self.wanted.clone().filter(|_| self.served);
        if let Some(placed) = &mut self.placed {
            match &target {
                Some(target) if *target == placed.wanted => placed.goes_at = None,
                Some(_) | None => {
                    let goes_at = *placed.goes_at.get_or_insert(now + FAREWELL);
                    if now < goes_at {
                        return Some(goes_at);
                    }
                    self.take();
                }
            }
        }
        let Some(target) = target else {
            self.problem = None;
            return None;
        };
        if self.placed.as_ref().is_some_and(|placed| now > placed.renew_at + LATE) {
            self.take();
            self.fail("this daemon has stood still: its address waits until it is known who serves".to_owned());
            self.retry_at = Some(now + HOLD_BACK);
        }
        let due = self.placed.as_ref().is_none_or(|placed| placed.renew_at <= now);
        if due && self.retry_at.is_none_or(|at| at <= now) {
            self.place(target, now);
        }
        self.announce(now);
        let placed = self.placed.as_ref().map(|placed| placed.renew_at.min(placed.announce_at));
        [placed, self.retry_at].into_iter().flatten().min()
    }

    fn place(&mut self, target: VirtualAddress, now: Instant) {
        self.retry_at = None;
        match lend(&target) {
            Ok(interface) => match &mut self.placed {
                Some(placed) if placed.interface == interface => placed.renew_at = now + RENEW_EVERY,
                Some(_) | None => {
                    log::say!(
                        Notice,
                        volume(self.name),
                        "its address {} is here now, on {}",
                        target.address,
                        interface.name
                    );
                    self.problem = None;
                    self.placed = Some(Placed {
                        wanted: target,
                        interface,
                        renew_at: now + RENEW_EVERY,
                        announce_at: now,
                        announce_pause: ANNOUNCE_PAUSE_MIN,
                        goes_at: None,
                    });
                }
            },
            Err(error) => {
                self.fail(format!("{error:#}"));
                // What is still there of it, the kernel takes away.
                self.placed = None;
                self.retry_at = Some(now + RENEW_EVERY);
            }
        }
    }

    fn announce(&mut self, now: Instant) {
        let Some(placed) = self.placed.as_mut().filter(|placed| placed.announce_at <= now) else { return };
        let announced = announce(placed.wanted.address.ip, &placed.interface);
        placed.announce_at = now + placed.announce_pause;
        placed.announce_pause = Duration(placed.announce_pause.0 * 2).min(ANNOUNCE_PAUSE_MAX);
        match announced {
            Ok(()) => self.problem = None,
            Err(error) => {
                let (address, interface) = (placed.wanted.address, placed.interface.name.clone());
                let why = with_cure(&error);
                self.fail(format!("cannot tell the network of {interface} that {address} is here: {why}"));
            }
        }
    }

    /// Says it once.
    fn fail(&mut self, problem: String) {
        if self.problem.as_ref() != Some(&problem) {
            log::say!(Notice, volume(self.name), "{problem}");
            self.problem = Some(problem);
        }
    }

    fn take(&mut self) {
        let Some(Placed { wanted, interface, .. }) = self.placed.take() else { return };
        let address = wanted.address;
        let taken = Kernel::open().and_then(|mut kernel| kernel.take(address.ip, address.bits, interface.index));
        match taken {
            Ok(()) => log::say!(Notice, volume(self.name), "its address {address} is not here any more"),
            Err(error) => log::say!(
                Error,
                volume(self.name),
                "cannot take the address {address} from {}: {error}; the kernel does so within {} s",
                interface.name,
                LIFE.as_secs()
            ),
        }
    }

    /// What an earlier life of this daemon has left.
    fn clear_left_over(&self) {
        let Some(wanted) = &self.wanted else { return };
        let Ok(mut kernel) = Kernel::open() else { return };
        let assigned = kernel.assigned().unwrap_or_default();
        for left in assigned.iter().filter(|found| found.address == wanted.address.ip && found.is_lent()) {
            // Else the kernel does so.
            let _ = kernel.take(left.address, left.bits, left.interface);
        }
    }

    fn report(&self) -> Option<AddressReport> {
        let wanted = self.wanted.as_ref()?;
        let placed = self.placed.as_ref().filter(|placed| placed.wanted == *wanted && placed.goes_at.is_none());
        let state = match (self.served, placed, &self.problem) {
            (true, Some(_), None) => AddressState::Here,
            (true, Some(_), Some(_)) | (true, None, _) => AddressState::Failed,
            (false, _, _) => AddressState::Elsewhere,
        };
        Some(AddressReport {
            address: wanted.address.to_string(),
            interface: placed.map(|placed| placed.interface.name.clone()).or_else(|| wanted.interface.clone()),
            state,
            problem: self.problem.clone(),
        })
    }
}

/// Gives an address to its interface, and takes it from any other one.
fn lend(wanted: &VirtualAddress) -> Result<Interface> {
    let address = wanted.address;
    let mut kernel = Kernel::open().context("cannot look at this machine's addresses")?;
    let (interfaces, assigned) = (kernel.interfaces()?, kernel.assigned()?);
    let interface = place_of(wanted, &interfaces, &assigned)?;
    let elsewhere = |found: &&Assigned| (found.interface, found.bits) != (interface.index, address.bits);
    for other in assigned.iter().filter(|found| found.address == address.ip).filter(elsewhere) {
        // Else the kernel does so.
        let _ = kernel.take(other.address, other.bits, other.interface);
    }
    if let Err(error) = kernel.lend(address.ip, address.bits, interface.index) {
        bail!("cannot give the address {address} to {}: {}", interface.name, with_cure(&error));
    }
    Ok(interface)
}

fn with_cure(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => format!("{error}; {CAPABILITIES_ARE_MISSING}"),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(index: u32, name: &str) -> Interface {
        Interface { index, name: name.into(), hardware: vec![2, 0, 0, 0, 0, index as u8], up: true }
    }

    fn own(address: &str, interface: u32) -> Assigned {
        Assigned { address: address.parse().unwrap(), bits: 24, interface, left: None }
    }

    fn wanted(address: &str, interface: Option<&str>) -> VirtualAddress {
        VirtualAddress::new(address.parse().unwrap(), interface.map(str::to_owned)).unwrap()
    }

    #[test]
    fn an_address_goes_where_its_network_is() {
        let interfaces = [interface(1, "lo"), interface(2, "eth0"), interface(3, "eth1")];
        let mut assigned = vec![own("127.0.0.1", 1), own("10.0.0.1", 2), own("10.0.1.1", 3)];
        let place = |text: &str, name: Option<&str>, assigned: &[Assigned]| {
            place_of(&wanted(text, name), &interfaces, assigned).map(|interface| interface.name)
        };
        assert_eq!(place("10.0.1.50/24", None, &assigned).unwrap(), "eth1");
        assert_eq!(place("10.9.9.9/32", Some("eth0"), &assigned).unwrap(), "eth0");
        let refused = |text: &str, name: Option<&str>, assigned: &[Assigned], why: &str| {
            let error = format!("{:#}", place(text, name, assigned).unwrap_err());
            assert!(error.contains(why), "{error}");
        };
        refused("10.9.9.9/24", None, &assigned, "--interface");
        refused("10.0.0.50/16", None, &assigned, "eth0, eth1");
        refused("10.0.0.50/24", Some("eth7"), &assigned, "lo, eth0, eth1");
        refused("10.0.0.1/24", None, &assigned, "for good");
        // What this daemon, or its former life, has put there is neither in the way nor a sign of the network.
        assigned.push(Assigned { left: Some(LIFE), ..own("10.0.0.50", 2) });
        assert_eq!(place("10.0.0.50/24", None, &assigned).unwrap(), "eth0");
        refused("10.0.0.50/24", None, &assigned[3..], "--interface");
    }

    #[test]
    fn an_interface_that_is_down_gets_nothing() {
        let down = [Interface { up: false, ..interface(2, "eth0") }];
        let error = place_of(&wanted("10.0.0.50/24", Some("eth0")), &down, &[]).unwrap_err();
        assert!(error.to_string().contains("down"), "{error}");
    }

    #[test]
    fn clients_come_in_where_the_address_is_listened_on() {
        let place = |text: &str| text.parse::<NbdAddress>().unwrap();
        let ip: IpAddr = "10.0.0.50".parse().unwrap();
        for text in ["tcp:0.0.0.0:10809", "tcp:10.0.0.50:10809", "tcp:[::]:10809"] {
            assert!(accepts(&place(text), ip), "{text}");
        }
        for text in ["unix:/run/forebay/nbd.sock", "tcp:127.0.0.1:10809", "tcp:10.0.0.1:10809"] {
            assert!(!accepts(&place(text), ip), "{text}");
        }
        assert!(!accepts(&place("tcp:0.0.0.0:10809"), "fd00::1".parse().unwrap()));
    }

    #[test]
    fn what_is_shown_follows_who_serves() {
        let mut entry = Entry { name: "vm1".into(), ..Entry::default() };
        assert_eq!(entry.report(), None);
        entry.wanted = Some(wanted("10.0.0.50/24", None));
        assert_eq!(entry.report().unwrap().state, AddressState::Elsewhere);
        entry.served = true;
        assert_eq!(entry.report().unwrap().state, AddressState::Failed);
    }

    #[test]
    fn a_daemon_that_has_stood_still_gives_its_address_up_first() {
        let begun = clock::now();
        let address = wanted("192.0.2.50/24", None);
        let placed = |renew_at| Placed {
            wanted: address.clone(),
            // No host has so many.
            interface: interface(i32::MAX as u32, "gone"),
            renew_at,
            announce_at: begun + Duration::from_secs(60),
            announce_pause: ANNOUNCE_PAUSE_MIN,
            goes_at: None,
        };
        let mut entry = Entry { wanted: Some(address.clone()), served: true, ..Entry::default() };
        entry.placed = Some(placed(begun));
        let woken = begun + LATE + Duration::from_millis(1);
        assert_eq!(entry.tend(woken), Some(woken + HOLD_BACK));
        assert!(entry.placed.is_none() && entry.problem.is_some());
        // What comes a little late is none.
        entry.placed = Some(placed(woken + HOLD_BACK));
        entry.tend(woken);
        assert!(entry.placed.is_some());
    }

    #[test]
    fn what_fails_is_tried_again() {
        let now = clock::now();
        let mut entry =
            Entry { wanted: Some(wanted("192.0.2.50/24", Some("no-such-one"))), served: true, ..Entry::default() };
        let next = entry.tend(now).expect("it is tried again");
        assert_eq!(next, now + RENEW_EVERY);
        let report = entry.report().unwrap();
        assert_eq!((report.state, report.interface.as_deref()), (AddressState::Failed, Some("no-such-one")));
        assert!(report.problem.unwrap().contains("no-such-one"));
        entry.served = false;
        assert_eq!((entry.tend(now), entry.report().unwrap().problem), (None, None));
    }
}
