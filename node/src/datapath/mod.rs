//! The data path: threads that own volumes, their rings and their clients, and what reaches them.
//!
//! - [`shard`] is the one loop, reached by its [`mailbox`]; [`directory`] says which shard serves an export.
//! - [`acceptor`] hears clients and other nodes until it is known who asks for what.
//! - [`connections`] are clients, [`forward`] serves those of volumes that other nodes own.
//! - [`driver`] ties the volumes of a cluster, their ownership and the links to other nodes together, on the first shard.

pub mod acceptor;
pub mod connections;
pub mod directory;
pub mod driver;
pub mod forward;
pub mod mailbox;
pub mod seats;
pub mod shard;
