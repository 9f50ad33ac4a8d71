//! A node that forwards comes in by the door of the links, with the same certificates, and speaks first when it has been let in.

use super::*;
use crate::reactor::Interest;
use std::net::TcpListener;

const ENTERED: Entered = Entered { term: Term(9), size_bytes: 1 << 30, request_bytes_max: 32 << 20 };

struct Called {
    door: Door,
    reactor: Reactor,
    calling: std::thread::JoinHandle<Result<(Channel, Entered), Failure>>,
}

impl Called {
    /// Alpha calls beta as the owner of the volume.
    fn begin(alpha: Security, beta: Security) -> Called {
        let mut reactor = Reactor::new(ModeChoice::Threads).unwrap();
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let pair = AddressPair { own: IpAddr::from([127, 0, 0, 1]), peer: listener.local_addr().unwrap() };
        let door = Door::new(&mut reactor, listener, Arc::new(identity("beta", 2)), beta, DOOR).unwrap();
        let calling = std::thread::spawn(move || {
            let owner = (&name("beta"), NodeId(u64::from(b'b')));
            call_owner(&identity("alpha", 1), &alpha, owner, &pair, VOLUME)
        });
        Called { door, reactor, calling }
    }

    fn arrival(&mut self) -> Option<Arrival> {
        arrival(&mut self.door, &mut self.reactor)
    }
}

/// The first who comes; none: it was turned away.
pub(super) fn arrival(door: &mut Door, reactor: &mut Reactor) -> Option<Arrival> {
    let (mut arrivals, mut turned_away, mut found) = (Vec::new(), Vec::new(), Vec::new());
    let deadline = clock::now() + PATIENCE;
    while arrivals.is_empty() && turned_away.is_empty() {
        assert!(clock::now() < deadline, "nobody comes");
        reactor.wait(Some(std::time::Duration::from_millis(20)), &mut found).unwrap();
        for completion in found.drain(..) {
            let Completion::Ready { token, .. } = completion else { continue };
            door.ready(reactor, token, clock::now(), &mut arrivals, &mut turned_away);
        }
    }
    arrivals.pop()
}

#[test]
fn the_owner_lets_it_in_and_both_speak_on() {
    let authority = Authority::new();
    let tls = || (authority.issue("alpha", None), authority.issue("beta", None));
    for (alpha, beta) in [(Security::Plain, Security::Plain), tls()] {
        let mut called = Called::begin(alpha, beta);
        let arrival = called.arrival().expect("it is let in");
        assert_eq!((arrival.volume(), arrival.name(), arrival.node()), (Some(VOLUME), &name("alpha"), NodeId(97)));
        let mut far = arrival.enter(&identity("beta", 2), ENTERED).unwrap();
        let deadline = clock::now() + PATIENCE;
        while far.has_unsent() && clock::now() < deadline {
            // SAFETY: no vectors: only what waits.
            let _ = unsafe { far.send(&[]) };
        }
        let (mut near, entered) = called.calling.join().unwrap().expect("it is let in");
        assert_eq!(entered, ENTERED);
        // SAFETY: the vector names a static string.
        assert!(matches!(unsafe { near.send(&[vector(b"request".as_ptr(), 7)]) }, Moved::Bytes(7)));
        called.reactor.watch(far.socket().as_raw_fd(), 5, Interest::READ).unwrap();
        let (mut bytes, mut filled, mut found) = ([0; 16], 0, Vec::new());
        while filled < 7 {
            assert!(clock::now() < deadline, "the request does not arrive");
            called.reactor.wait(Some(std::time::Duration::from_millis(20)), &mut found).unwrap();
            if let Moved::Bytes(got) = far.receive(&mut bytes[filled..]) {
                filled += got;
            }
        }
        assert_eq!(&bytes[..7], b"request");
    }
}

#[test]
fn who_is_not_the_owner_says_so() {
    let mut called = Called::begin(Security::Plain, Security::Plain);
    called.arrival().expect("it is who it says").refuse(Rejection::NotServed);
    let why = called.calling.join().unwrap().map(|(_, entered)| entered);
    assert_eq!(why, Err(Failure::RefusedByPeer(Rejection::NotServed)));
}

#[test]
fn nobody_forwards_without_a_certificate_of_the_cluster() {
    let (authority, other) = (Authority::new(), Authority::new());
    // It trusts the right ones, and is of another one.
    let alpha = other.issue("alpha", Some(&authority));
    let mut called = Called::begin(alpha, authority.issue("beta", None));
    assert!(called.arrival().is_none());
    assert!(called.calling.join().unwrap().is_err());
}
