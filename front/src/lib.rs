//! Client protocols. A front end turns a client's bytes into requests and answers into bytes.
//!
//! It knows one seam, [`Backend`]: a queue of requests, each named by a token that is answered or abandoned. It knows
//! nothing of logs, owners or peers, keeps no clock and starts no thread: the shard that owns a connection calls it
//! when its socket is ready and tells it the time.

pub mod backend;
pub mod memory;
pub mod nbd;

pub use backend::Backend;
