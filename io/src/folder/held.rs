//! A file that a path has led to, held open: what is found out about it is true of what is opened afterwards, whatever its path leads to
//! by then.

use super::calls::{self, Kind};
use super::{Folder, refused};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How long another process's lease on a file is awaited.
const LEASE_WAIT: Duration = Duration::from_secs(2);
/// Between two attempts.
const LEASE_PAUSE: Duration = Duration::from_millis(20);

/// Regular file or block device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    Regular,
    /// A block device.
    Block,
}

/// See the module's text.
#[derive(Debug)]
pub struct Held {
    folder: Folder,
    name: OsString,
    /// The file itself (O_PATH): nothing that could notice it.
    place: OwnedFd,
    kind: Kind,
    path: PathBuf,
}

impl Held {
    /// What a path leads to. A link is followed only where no other user can have put it.
    pub fn of(path: &Path) -> io::Result<Held> {
        let (folder, name) = Folder::of(path)?;
        folder.hold(&name, path)
    }

    /// The same; none where there is nothing of that name.
    pub fn found(path: &Path) -> io::Result<Option<Held>> {
        match Held::of(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            held => held.map(Some),
        }
    }

    /// Regular file or block device; an error of anything else, which holds neither a volume nor a tier.
    pub fn kind(&self) -> io::Result<FileKind> {
        match self.kind {
            Kind::Regular => Ok(FileKind::Regular),
            Kind::Block => Ok(FileKind::Block),
            Kind::Folder | Kind::Link | Kind::Socket | Kind::Other => {
                let why = format!("{} is neither a regular file nor a block device", self.path.display());
                Err(io::Error::new(io::ErrorKind::InvalidInput, why))
            }
        }
    }

    /// The path as it was given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder in which it was found.
    pub fn folder(&self) -> &Folder {
        &self.folder
    }

    /// Where this process can name it by its descriptor, for calls that know only paths.
    pub fn by_descriptor(&self) -> PathBuf {
        calls::path_of(self.place.as_fd())
    }

    /// The descriptor, as a file that can be looked at and not read.
    pub fn place(&self) -> io::Result<File> {
        Ok(self.place.try_clone()?.into())
    }

    /// Opens it with these flags besides. Another process's lease is awaited for a moment, in which an honest one is given back,
    /// and never as long as the kernel would let it last.
    pub fn open(&self, writes: bool, flags: i32) -> io::Result<File> {
        self.kind()?;
        let end = Instant::now() + LEASE_WAIT;
        let file = loop {
            let mut options = OpenOptions::new();
            options.read(true).write(writes).custom_flags(flags | libc::O_NONBLOCK);
            match options.open(self.by_descriptor()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if Instant::now() >= end {
                        let path = self.path.display();
                        let why = format!(
                            "{path}: another process has a lease on it and does not give it back; end that process"
                        );
                        return Err(io::Error::new(io::ErrorKind::WouldBlock, why));
                    }
                    std::thread::sleep(LEASE_PAUSE);
                }
                opened => break opened?,
            }
        };
        calls::let_wait(file.as_fd())?;
        Ok(file)
    }

    /// Where it lies, whatever links have led to it: by its folder, which is held, wherever the path leads by now.
    pub fn own_path(&self) -> io::Result<PathBuf> {
        Ok(self.folder.own_path()?.join(&self.name))
    }

    /// Whether an open file is this one.
    pub fn is(&self, file: &File) -> io::Result<bool> {
        Ok(calls::stat_of(self.place.as_fd())?.identity == calls::stat_of(file.as_fd())?.identity)
    }

    /// An error where its name is another's by now, or nobody's.
    pub fn still_has_its_name(&self) -> io::Result<()> {
        if calls::stat_at(self.folder.fd.as_fd(), &self.name)?.identity == calls::stat_of(self.place.as_fd())?.identity
        {
            return Ok(());
        }
        Err(refused(format!("{}: somebody has put something else in its place", self.path.display())))
    }

    /// Removes it durably, if its name is still its own.
    pub fn remove(&self) -> io::Result<()> {
        self.still_has_its_name()?;
        self.folder.remove(&self.name)?;
        self.folder.sync()
    }

    /// Whether its name is still its own: false where it is another's by now, or nobody's.
    pub fn has_its_name(&self) -> io::Result<bool> {
        match calls::stat_at(self.folder.fd.as_fd(), &self.name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            there => Ok(there?.identity == calls::stat_of(self.place.as_fd())?.identity),
        }
    }

    /// Removes it durably, if its name is still its own; what has its name by now stays, and false comes back.
    pub fn remove_own(&self) -> io::Result<bool> {
        match self.has_its_name()? {
            true => self.remove().map(|()| true),
            false => Ok(false),
        }
    }

    /// Renames it durably within its folder, if its name is still its own.
    pub fn rename(&self, to: &OsStr) -> io::Result<()> {
        self.still_has_its_name()?;
        self.folder.rename(&self.name, to)?;
        self.folder.sync()
    }
}

impl Folder {
    /// Removes a name durably, if it is still that of an open file; false: it is another's by now, or nobody's. Nothing is opened for that.
    pub fn remove_if_is(&self, name: &OsStr, file: &File) -> io::Result<bool> {
        let there = match calls::stat_at(self.fd.as_fd(), name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            there => there?,
        };
        if there.identity != calls::stat_of(file.as_fd())?.identity {
            return Ok(false);
        }
        self.remove(name)?;
        self.sync()?;
        Ok(true)
    }

    /// Holds what a name in this folder is that of, under the path by which it was asked for; never what a link leads to.
    pub fn hold(&self, name: &OsStr, path: &Path) -> io::Result<Held> {
        let place = calls::open_name_at(self.fd.as_fd(), name)?;
        let kind = calls::stat_of(place.as_fd())?.kind;
        if kind == Kind::Link {
            return Err(self.about(name, io::Error::from_raw_os_error(libc::ELOOP)));
        }
        Ok(Held { folder: self.again()?, name: name.to_owned(), place, kind, path: path.to_owned() })
    }
}
