//! `forebay node`: what the nodes of a cluster can do about each other.

use crate::fence_test::FenceTestArgs;
use anyhow::Result;
use clap::Subcommand;

/// What to do.
#[derive(Subcommand)]
pub enum Command {
    /// Prove that a node can be kept from writing, or find out whether it could be
    ///
    /// A successor may end what a failed node had under way to the slow storage: by switching that
    /// node off, or by a device that refuses it. This tries such a fence, with nothing served, and
    /// says what it is worth. Without --power-off, --expel or --be-expelled it only asks, and changes
    /// nothing that lasts.
    ///
    /// Power: the installed fence agents (fence_ipmilan and its like) switch the node off; off counts
    /// when it is confirmed.
    ///
    ///     forebay node fence-test --agent fence_ipmilan --node beta --option ip=10.0.0.12 \
    ///         --option lanplus=1 --option username=admin \
    ///         --option-file password=/etc/forebay/beta.bmc --power-off
    ///
    /// Reservation (SCSI-3, NVMe), on a device that nothing uses: on the node that is to be refused
    /// the first line, which prints a key and writes the device's last block again and again, with
    /// what it holds; on another node the second, with that key.
    ///
    ///     forebay node fence-test --reservation /dev/sdx --be-expelled
    ///     forebay node fence-test --reservation /dev/sdx --expel 0x8c12...
    ///
    /// With --json, --be-expelled prints the key as a document of its own first.
    #[command(verbatim_doc_comment)]
    FenceTest(Box<FenceTestArgs>),
}

/// Does it.
pub fn run(command: Command) -> Result<bool> {
    match command {
        Command::FenceTest(args) => crate::fence_test::run(*args),
    }
}
