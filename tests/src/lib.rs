//! Proofs against the real `forebay` binary: what the black-box tests, the `pattern` and the `replay` tools share.
//!
//! - [`harness`]: starts and kills the daemon, runs foreign tools with time limits, says what is missing.
//! - [`hosts`]: hosts as network namespaces, with cables that are slow, cut or silent; [`etcd`] runs a real one there, or here.
//! - [`cluster`]: daemons of one cluster on such hosts; [`eyes`] asks them what they see, with a time limit.
//! - [`watcher`] asks them all the time, for what must never be.
//! - [`late`]: a way to an NBD server on which requests arrive late, also those of a client that is dead by then.
//! - [`stall`]: a tier that takes no write for a while, and reports no error.
//! - [`failing`]: a folder that is full, read-only or failing from any call on.
//! - [`calls`]: system calls of the daemon, seen one by one and held.
//! - [`kernel`]: control groups, loop devices, mounts and FUSE, given back when they are dropped; [`locks`] of files.
//! - [`pattern`]: self-describing load with a journal, and the checkers of what may be left after a fault.
//! - [`scene`]: volumes that were loaded and killed, which several tests begin with.
//! - [`certificates`]: authorities and certificates, good and bad, for TLS.
//! - [`curl`] asks the daemon by HTTP, and so does [`mod@prometheus`], a real one.
//! - [`logwrites`]: replays a dm-log-writes recording to any moment of a power cut.
//! - [`transcript`]: what is asked and answered, recorded as text and compared.
//! - [`nodes`]: a machine with several NUMA nodes, emulated.
//! - [`flood`]: what a hostile client sends.
//! - [`nbd`]: a client of the tests' own. Nothing here uses the product's code: one bug must not hide another.

pub mod bmc;
pub mod calls;
pub mod certificates;
pub mod cluster;
pub mod curl;
pub mod etcd;
pub mod eyes;
pub mod failing;
pub mod flood;
pub mod harness;
pub mod hosts;
pub mod kernel;
pub mod late;
pub mod locks;
pub mod logwrites;
pub mod nbd;
pub mod nodes;
pub mod pattern;
pub mod preload;
pub mod prometheus;
pub mod rng;
pub mod scene;
pub mod stall;
pub mod transcript;
pub mod watcher;
