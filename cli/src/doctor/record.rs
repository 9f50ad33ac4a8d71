//! `forebay doctor record`: written by [`forebay_host::system::record`], kept in a file here.

use super::Asked;
use anyhow::{Context, Result, ensure};
use forebay_doctor::Host;
use forebay_io::folder::Folder;
use std::io::Write;
use std::path::PathBuf;

#[derive(clap::Args)]
pub struct RecordArgs {
    /// A new file. It is JSON, and can be read before it is sent; `--sysroot FILE` looks at it
    file: PathBuf,
}

impl RecordArgs {
    /// Looks as always, and writes what was read.
    pub fn run(&self, asked: Asked) -> Result<bool> {
        ensure!(asked.system.is_live(), "record this host: --sysroot looks at another one, which is recorded already");
        let (system, recorder) = asked.system.recording();
        let host = Host::look(system);
        host.examine();
        let record = forebay_doctor::record::finish(recorder, &host);
        let what = || format!("write what was read of this host to the new file {}", self.file.display());
        let made = Folder::of(&self.file).and_then(|(folder, name)| folder.make_file(name, 0o600));
        let mut file = made.with_context(what)?;
        file.write_all(record.to_json()?.as_bytes()).with_context(what)?;
        println!(
            "{}: {} files, without serial numbers, hardware addresses and configurations, with the network's addresses. \
             Look through it before you send it; `forebay doctor --sysroot {0}` reads it.",
            self.file.display(),
            record.file_count(),
        );
        Ok(true)
    }
}
