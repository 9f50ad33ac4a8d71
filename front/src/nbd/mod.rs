//! Network block device: the protocol that QEMU, the Linux kernel, libnbd, nbdkit and fio speak.
//!
//! - [`proto`]: the bytes, pure encode and decode.
//! - [`handshake`]: negotiation, bytes in and bytes out.
//! - [`greeter`]: negotiation on a socket.
//! - [`channel`]: a client's bytes, plain or under TLS ([`tls`]).
//! - [`connection`]: the transmission phase over a non-blocking socket; its answers on their way out: [`replies`].
//! - [`client`]: a load generator.
//! - [`limit`]: a null server that does only what cannot be left out, the yardstick for the others.
//!
//! Left out, and refused in the protocol's own words: oldstyle negotiation, TLS for some exports only.

pub mod client;
pub mod connection;
pub mod greeter;
pub mod handshake;
pub mod limit;
pub mod proto;
mod replies;
pub mod tls;

pub use forebay_io::channel;
