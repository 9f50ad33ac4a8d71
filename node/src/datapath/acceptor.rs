//! Where clients and other nodes come in: a thread of its own hears them until it is known who asks for what.
//!
//! ```text
//! NBD socket -> negotiates -> ToShard::Connection, or ToForwarder::Client
//! links' socket -> hello   -> ToDriver::Arrived
//! ```
//!
//! Invariants:
//! - What strangers do (TLS handshakes, floods of connections, lines of the log) costs no thread of the data path anything. This one comes
//!   after those where cores are short.
//! - Nothing of a volume is touched here: who has said what it wants is handed over, and who serves that may have changed meanwhile.

mod clients;

use crate::datapath::directory::Directory;
use crate::datapath::driver::ToDriver;
use crate::datapath::mailbox::{ShardHandle, ToShard};
use crate::log;
use clients::Clients;
use forebay_core::types::Instant;
use forebay_front::nbd::tls::TlsServer;
use forebay_io::link::{Arrival, Door, Identity, Security, TurnedAway};
use forebay_io::{Completion, ModeChoice, Reactor, Waker, clock};
use std::io;
use std::net::{IpAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::{Arc, mpsc};
use tokio::sync::oneshot;

/// Watch tokens of doors; the lower half says which one.
const DOOR: u64 = 4 << 32;
/// How much later than other threads this one comes where cores are short (setpriority(2)).
const NICENESS: libc::c_int = 5;

/// Mails with nodes that have called, under way to the data path; more are sent away, and call again.
const ARRIVALS_UNDER_WAY_MAX: usize = 64;

/// Something for the thread to do.
pub enum ToAcceptor {
    /// Accept NBD clients on this socket.
    Listen {
        /// A listening socket that does not block.
        socket: OwnedFd,
        /// Its clients must use TLS; none: they are served in the clear.
        tls: Option<TlsServer>,
        /// Most clients at one time.
        connections_max: u32,
    },
    /// Accept no more NBD clients on any socket.
    StopListening,
    /// This node joins a cluster: let other nodes in.
    JoinCluster {
        /// Who this node is, and how links to other nodes are protected.
        house: Box<House>,
        /// Listeners where other nodes call.
        doors: Vec<TcpListener>,
        /// Told whether all of them can be used.
        answer: oneshot::Sender<io::Result<()>>,
    },
    /// This node has other addresses than before.
    Doors {
        /// Listeners at those that are new.
        new: Vec<TcpListener>,
        /// All that it has now: where it has others no more, nobody is let in.
        own: Vec<IpAddr>,
        /// Told whether all of the new ones can be used; if not, everything is as before.
        answer: oneshot::Sender<io::Result<()>>,
    },
}

/// What other nodes come to.
pub struct House {
    /// Who this node is, with its certificate and key.
    pub identity: Arc<Identity>,
    /// How links to other nodes are protected.
    pub security: Security,
    /// Where those go who were found to be who they say.
    pub shard: ShardHandle,
}

/// The end at which others hand things over to the thread.
#[derive(Clone)]
pub struct AcceptorHandle {
    sender: mpsc::Sender<ToAcceptor>,
    waker: Waker,
}

impl AcceptorHandle {
    /// Hands something over.
    pub fn send(&self, mail: ToAcceptor) {
        if self.sender.send(mail).is_ok() {
            self.waker.wake();
        }
    }
}

/// Starts the thread, which ends with the process.
pub fn spawn(directory: Arc<Directory>) -> io::Result<AcceptorHandle> {
    let (started, start) = mpsc::channel();
    std::thread::Builder::new().name("acceptor".to_owned()).spawn(move || {
        give_way_to_others();
        // No disk is read or written here.
        let reactor = match Reactor::new(ModeChoice::Threads) {
            Ok(reactor) => reactor,
            Err(error) => return drop(started.send(Err(error))),
        };
        let (sender, mail) = mpsc::channel();
        let handle = AcceptorHandle { sender, waker: reactor.waker() };
        if started.send(Ok(handle)).is_ok() {
            Acceptor::new(reactor, mail, directory).run();
        }
    })?;
    start.recv().map_err(|_| io::Error::other("the accepting thread ended while it started"))?
}

/// Where the system does not allow it, this thread takes its share like others.
fn give_way_to_others() {
    // SAFETY: a call with numbers only; 0 is this thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICENESS) };
}

struct Acceptor {
    reactor: Reactor,
    mail: mpsc::Receiver<ToAcceptor>,
    clients: Clients,
    house: Option<Box<House>>,
    /// Each mail that was not taken yet has it, too.
    under_way: Arc<()>,
    doors: Vec<Door>,
    arrivals: Vec<Arrival>,
    turned_away: Vec<TurnedAway>,
}

impl Acceptor {
    fn new(reactor: Reactor, mail: mpsc::Receiver<ToAcceptor>, directory: Arc<Directory>) -> Acceptor {
        let (clients, doors) = (Clients::new(directory), Vec::new());
        let (arrivals, turned_away) = (Vec::new(), Vec::new());
        Acceptor { reactor, mail, clients, house: None, under_way: Arc::default(), doors, arrivals, turned_away }
    }

    fn run(mut self) -> ! {
        let mut completions = Vec::new();
        loop {
            let now = clock::now();
            let doors = self.doors.iter().filter_map(Door::deadline);
            let next = doors.chain(self.clients.deadline()).min();
            if let Err(error) = self.reactor.wait(next.map(|at| clock::until(at, now)), &mut completions) {
                panic!("cannot wait for clients and other nodes: {error}");
            }
            let now = clock::now();
            for completion in completions.drain(..) {
                match completion {
                    Completion::Done { .. } => unreachable!("nothing is submitted here"),
                    Completion::Woken => self.take_mail(),
                    Completion::Ready { token, .. } if Clients::has_token(token) => {
                        self.clients.ready(&mut self.reactor, token, now);
                    }
                    Completion::Ready { token, .. } => {
                        // Of a door that was closed in this round: its sockets are closed as well.
                        if let Some(door) = self.doors.iter_mut().find(|door| door.has_token(token)) {
                            door.ready(&mut self.reactor, token, now, &mut self.arrivals, &mut self.turned_away);
                        }
                    }
                }
            }
            self.clients.timers(&mut self.reactor, now);
            self.tend_doors(now);
        }
    }

    fn tend_doors(&mut self, now: Instant) {
        for door in &mut self.doors {
            if door.deadline().is_some_and(|at| at <= now) {
                door.timers(&mut self.reactor, now, &mut self.turned_away);
            }
        }
        for TurnedAway { address, why } in self.turned_away.drain(..) {
            log::say!(Error, "nobody was let in from {address}: {why}");
        }
        if let Some(house) = self.house.as_ref().filter(|_| !self.arrivals.is_empty()) {
            let arrivals = std::mem::take(&mut self.arrivals);
            if Arc::strong_count(&self.under_way) <= ARRIVALS_UNDER_WAY_MAX {
                let arrived = ToDriver::Arrived { arrivals, under_way: self.under_way.clone() };
                house.shard.send(ToShard::Cluster(Box::new(arrived)));
            }
        }
    }

    fn take_mail(&mut self) {
        while let Ok(mail) = self.mail.try_recv() {
            match mail {
                ToAcceptor::Listen { socket, tls, connections_max } => {
                    self.clients.listen(&mut self.reactor, socket, tls, connections_max);
                }
                ToAcceptor::StopListening => self.clients.stop_listening(&mut self.reactor),
                ToAcceptor::JoinCluster { house, doors, answer } => {
                    self.house = Some(house);
                    // Whoever asked may have gone.
                    let _ = answer.send(self.open_doors(doors));
                }
                ToAcceptor::Doors { new, own, answer } => drop(answer.send(self.set_doors(new, &own))),
            }
        }
    }

    /// Opens doors at all of these, or at none.
    fn open_doors(&mut self, listeners: Vec<TcpListener>) -> io::Result<()> {
        let House { identity, security, .. } = &**self.house.as_ref().expect("a node of a cluster has doors");
        let mut open: Vec<Door> = Vec::new();
        for listener in listeners {
            let is_free = |token: &u64| !self.doors.iter().chain(&open).any(|door| door.has_token(*token));
            let mut tokens = (0..).map(|at| DOOR + at * Door::TOKENS);
            let token = tokens.find(is_free).expect("there are few doors");
            match Door::new(&mut self.reactor, listener, identity.clone(), security.clone(), token) {
                Ok(door) => open.push(door),
                Err(error) => {
                    open.into_iter().for_each(|door| door.close(&mut self.reactor));
                    return Err(error);
                }
            }
        }
        self.doors.extend(open);
        Ok(())
    }

    /// Opens doors at new addresses, and then closes those at addresses that this node has no more.
    fn set_doors(&mut self, new: Vec<TcpListener>, own: &[IpAddr]) -> io::Result<()> {
        self.open_doors(new)?;
        let is_own = |door: &Door| door.address().is_ok_and(|address| own.contains(&address.ip()));
        let (stay, gone): (Vec<Door>, Vec<Door>) = std::mem::take(&mut self.doors).into_iter().partition(is_own);
        gone.into_iter().for_each(|door| door.close(&mut self.reactor));
        self.doors = stay;
        Ok(())
    }
}
