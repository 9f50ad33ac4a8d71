//! The places of a listener's clients: as many as the configuration says, of which nobody but root and the daemon's own user gets the
//! last quarter. Who has no place is told why.
//!
//! A lock is held while a place is taken or given back, which is when clients come and go, and for no longer than that takes.

use forebay_core::roles::Client;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

/// Where a client has come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Origin {
    /// A process of this user, by a unix socket; none: the kernel does not say.
    User(Option<u32>),
    /// This network ([`network_of`](forebay_io::socket::network_of)), over TCP; none: it has gone meanwhile.
    Network(Option<IpAddr>),
}

/// Whose places are counted together.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Principal {
    /// All that come from there.
    From(Origin),
    /// All that show this certificate, in words.
    Certificate(String),
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Principal::From(Origin::User(Some(uid))) => write!(f, "the user with uid {uid}"),
            Principal::From(Origin::User(None)) => f.write_str("users that the kernel does not name"),
            Principal::From(Origin::Network(Some(ip @ IpAddr::V4(_)))) => write!(f, "the address {ip}"),
            Principal::From(Origin::Network(Some(ip @ IpAddr::V6(_)))) => write!(f, "the network {ip}/64"),
            Principal::From(Origin::Network(None)) => f.write_str("addresses that the kernel does not name"),
            Principal::Certificate(words) => write!(f, "the certificate {words}"),
        }
    }
}

/// Why there is no place.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Crowded {
    /// All are taken.
    All {
        /// How many there are.
        places: u64,
    },
    /// This one has as many as anybody may have.
    One {
        /// Whose they are.
        whose: String,
        /// How many it has.
        own: u64,
        /// How many there are.
        places: u64,
    },
}

impl fmt::Display for Crowded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Crowded::All { places } => write!(
                f,
                "all {places} places for clients of this listener are taken: close some, or raise [listen] connections_max"
            ),
            Crowded::One { whose, own, places } => write!(
                f,
                "{whose} has {own} of the {places} places for clients of this listener, and nobody gets the last quarter: close some, or \
                 raise [listen] connections_max"
            ),
        }
    }
}

#[derive(Default, Debug)]
struct Taken {
    all: u64,
    by: HashMap<Principal, u64>,
}

/// See the module.
#[derive(Debug)]
pub struct Seats {
    places: u64,
    /// The daemon's own user.
    own_uid: u32,
    taken: Mutex<Taken>,
}

impl Seats {
    /// So many, and all are free.
    pub fn new(places: u64) -> Arc<Seats> {
        // SAFETY: it has no arguments, cannot fail and touches no memory.
        let own_uid = unsafe { libc::geteuid() };
        Arc::new(Seats { places, own_uid, taken: Mutex::default() })
    }

    /// Places that nobody has.
    pub fn left(&self) -> u64 {
        self.places - self.taken.lock().expect("nothing panics while it is held").all
    }

    /// A place for a client.
    pub fn take(self: &Arc<Seats>, from: Origin, client: &Client) -> Result<Seat, Crowded> {
        let principal = match (client, from) {
            (Client::Certified(certified), _) => Some(Principal::Certificate(certified.described())),
            (_, Origin::User(Some(uid))) if uid == 0 || uid == self.own_uid => None,
            (Client::Local | Client::Anonymous, from) => Some(Principal::From(from)),
        };
        let mut taken = self.taken.lock().expect("nothing panics while it is held");
        if taken.all >= self.places {
            return Err(Crowded::All { places: self.places });
        }
        if let Some(principal) = &principal {
            let own = taken.by.get(principal).copied().unwrap_or(0);
            if own >= self.places - self.places / 4 {
                return Err(Crowded::One { whose: principal.to_string(), own, places: self.places });
            }
            taken.by.insert(principal.clone(), own + 1);
        }
        taken.all += 1;
        drop(taken);
        Ok(Seat(Some((self.clone(), principal))))
    }
}

/// One client's place. Given back by dropping it, on whatever thread that happens.
#[derive(Debug)]
pub struct Seat(Option<(Arc<Seats>, Option<Principal>)>);

impl Seat {
    /// Of a node, which takes no client's place.
    pub fn of_node() -> Seat {
        Seat(None)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let Some((seats, principal)) = self.0.take() else { return };
        let mut taken = seats.taken.lock().expect("nothing panics while it is held");
        taken.all -= 1;
        let Some(principal) = principal else { return };
        match taken.by.get_mut(&principal) {
            Some(own) if *own > 1 => *own -= 1,
            Some(_) | None => drop(taken.by.remove(&principal)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Origin {
        Origin::Network(Some(IpAddr::from([10, 0, 0, last])))
    }

    #[test]
    fn nobody_gets_the_last_quarter_but_root() {
        let seats = Seats::new(8);
        let many = || seats.take(address(1), &Client::Anonymous);
        let mut held: Vec<Seat> = std::iter::from_fn(|| many().ok()).collect();
        assert_eq!(held.len(), 6);
        let why = many().unwrap_err().to_string();
        assert!(why.contains("10.0.0.1 has 6 of the 8 places"), "{why}");
        held.pop();
        held.push(many().expect("one was given back"));
        let certified =
            Client::Certified(forebay_core::roles::Certified::new(["a"].into_iter(), [].into_iter(), [1; 32]));
        held.push(seats.take(address(1), &certified).expect("it is known by its certificate"));
        held.push(seats.take(Origin::User(Some(0)), &Client::Local).expect("root has a place"));
        let full = seats.take(Origin::User(Some(0)), &Client::Local).unwrap_err();
        assert_eq!(full, Crowded::All { places: 8 });
        drop(held);
        let taken = seats.taken.lock().unwrap();
        assert!(taken.all == 0 && taken.by.is_empty(), "nothing is kept of who has gone: {taken:?}");
    }

    #[test]
    fn a_single_place_is_anybodys() {
        let seats = Seats::new(1);
        let seat = seats.take(address(1), &Client::Anonymous).expect("it is free");
        assert!(seats.take(address(2), &Client::Anonymous).is_err());
        drop(seat);
        assert!(seats.take(address(2), &Client::Anonymous).is_ok());
    }
}
