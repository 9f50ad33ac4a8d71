//! What a link shows of itself.

use super::compression_policy::CompressionStatus;
use super::connection::Counts;
use super::failure::Failure;
use super::follow::Standing;
use super::multipath::is_multipath;
use super::{AddressPair, Link, Slot, State};
use forebay_core::types::{Duration, Instant};
use forebay_core::wire::NodeName;
use std::net::SocketAddr;

/// How far a channel is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ChannelPhase {
    /// In use: messages may go by it.
    Up,
    /// A connection is being made, or who is there is being asked.
    Beginning,
    /// Not there, and why; nothing where it was never there.
    Down(Option<Failure>),
}

/// What one channel of a link shows.
#[derive(Clone, Debug)]
pub struct ChannelStatus {
    /// Its addresses, at the end that calls.
    pub pair: Option<AddressPair>,
    /// Address of the other end, where that is known.
    pub address: Option<SocketAddr>,
    /// Whether it is in use, and if not why.
    pub phase: ChannelPhase,
    /// It is Multipath TCP, at both ends.
    pub multipath: bool,
    /// When its state last changed.
    pub since: Instant,
    /// Bytes sent, over all its lives.
    pub sent_bytes: u64,
    /// Bytes received, over all its lives.
    pub received_bytes: u64,
    /// Bytes sent and not acknowledged.
    pub in_flight_bytes: u64,
    /// Bytes a second that it was seen to carry.
    pub rate: Option<f64>,
    /// Smallest of the last round trips.
    pub round_trip: Option<Duration>,
    /// Messages that it carried because another channel had died with them, or was late.
    pub resent: u64,
    /// Times that it has ended, or did not come about for another reason than before.
    pub failures: u64,
}

/// What a whole link shows.
#[derive(Clone, Debug)]
pub struct LinkStatus {
    /// Name of the other node.
    pub peer: NodeName,
    /// What each of its channels shows, in the order of their indices.
    pub channels: Vec<ChannelStatus>,
    /// Bytes of messages that are not acknowledged.
    pub open_bytes: u64,
    /// Of these, bytes that wait for a channel.
    pub waiting_bytes: u64,
    /// Messages that were given up with the last channel.
    pub given_up: u64,
    /// What came in, over all channels.
    pub counts: Counts,
    /// What is done with payload that goes out.
    pub compression: CompressionStatus,
}

impl Slot {
    fn status(&self) -> ChannelStatus {
        let (sent, received) = self.connection().map_or((0, 0), |live| live.traffic());
        ChannelStatus {
            pair: self.pair,
            address: self.address,
            phase: match &self.state {
                State::Up(_) => ChannelPhase::Up,
                State::Calling { .. } | State::Greeting { .. } => ChannelPhase::Beginning,
                State::Down { .. } => ChannelPhase::Down(self.why.clone()),
            },
            multipath: self.connection().is_some_and(|live| is_multipath(live.channel().socket())),
            since: self.since,
            sent_bytes: self.traffic.0 + sent,
            received_bytes: self.traffic.1 + received,
            in_flight_bytes: self.connection().map_or(0, |live| live.in_flight()),
            rate: self.connection().and_then(|live| live.pace.rate()),
            round_trip: self.connection().map(|live| live.pace.round_trip_min()),
            resent: self.resent,
            failures: self.failures,
        }
    }
}

impl Link {
    /// What the link shows now.
    pub fn status(&self) -> LinkStatus {
        LinkStatus {
            peer: self.peer().clone(),
            channels: self.slots.iter().filter(|slot| slot.standing != Standing::Vacant).map(Slot::status).collect(),
            open_bytes: self.outbox.bytes(),
            waiting_bytes: self.outbox.backlog(),
            given_up: self.given_up,
            counts: self.counts,
            compression: self.compression.status(),
        }
    }
}
