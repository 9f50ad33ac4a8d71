//! Network block device: the protocol that QEMU, the Linux kernel, libnbd, nbdkit and fio speak.
//!
//! - [`proto`]: the bytes, pure encode and decode.
//! - [`handshake`]: negotiation, bytes in and bytes out.
//! - [`greeter`]: negotiation on a socket.
//! - [`connection`]: the transmission phase over a non-blocking socket.
//! - [`client`]: a load generator.
//! - [`limit`]: a null server that does only what cannot be left out, the yardstick for the others.
//!
//! Left out, and refused in the protocol's own words: TLS, extended headers, oldstyle negotiation.

pub mod client;
pub mod connection;
pub mod greeter;
pub mod handshake;
pub mod limit;
pub mod proto;
mod socket;
