//! Files in folders that others may change.
//!
//! Below a folder of another user a name may be a link to elsewhere, a pipe at which a reader waits for ever, or another file a
//! moment later. A process that may do more than that user must not be led by such names. Who opens files that may lie in such a
//! folder does it here; `cargo xtask tidy` refuses other ways outside of the functions that it lists.
//!
//! Invariants:
//! - Each step of a path is opened from the one before, so that what is renamed meanwhile leads nowhere else.
//! - A link is followed only where root or this process's user made it, in a folder in which nobody else can put names
//!   ([`Links::Trusted`]); or, in the tree of a recorded host, as that host would, and never out of it ([`Links::Inside`]).
//! - Only regular files are opened, without waiting, and no more of them is read than was said.
//! - A file is replaced by another one that was made new under a name that did not exist, in the folder that is held open.

mod calls;
mod held;

pub use held::{FileKind, Held};

use calls::{Kind, Stat};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

/// As many links as Linux follows.
const LINKS_MAX: usize = 40;
/// Attempts at a name that somebody else makes anew each time it is removed.
const NEW_NAME_ATTEMPTS: usize = 8;

/// Which links of a path are followed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Links {
    /// Those that nobody but root and this process's user can have put there.
    Trusted,
    /// All, as on a host whose root is the folder at which the path begins: none leads out of it.
    Inside,
    /// None: a link in the path is an error.
    Never,
}

/// A folder, held open: what its path leads to later does not matter.
#[derive(Debug)]
pub struct Folder {
    fd: OwnedFd,
    path: PathBuf,
}

/// What a path has led through so far.
struct Walk<'a> {
    /// The first is the root that no `..` leads out of.
    steps: Vec<OwnedFd>,
    links: Links,
    /// Each step must be such that only root and this process's user can change names in it.
    is_private: bool,
    /// Rights of folders that are made where there are none.
    make: Option<u32>,
    shown: &'a Path,
}

/// Whether only root and this process's user can put, rename or remove names in a folder. Why not, in words.
fn kept_from_others(stat: &Stat, may_be_sticky: bool) -> Result<(), String> {
    if !calls::is_ours(stat.user) {
        return Err(format!("belongs to user {}", stat.user));
    }
    if may_be_sticky && stat.is_sticky {
        return Ok(());
    }
    if stat.mode & 0o002 != 0 {
        return Err("may be written by everybody".into());
    }
    // Rights for single users (an ACL) show as those of the group.
    if stat.mode & 0o020 != 0 && !calls::is_own_group(stat.group) {
        return Err(format!("may be written by the group {}", stat.group));
    }
    Ok(())
}

fn cannot_trust(asked: &Path, here: &Path, why: &str) -> io::Error {
    refused(format!(
        "{}: {} {why}, so what lies there is not to be trusted; nothing was read or written. Have it owned by user {} \
         and written by nobody else (chown, chmod go-w), or name another place",
        asked.display(),
        here.display(),
        calls::own_user(),
    ))
}

fn refused(why: String) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, why)
}

impl Walk<'_> {
    fn here(&self) -> BorrowedFd<'_> {
        self.steps.last().expect("the root is never left").as_fd()
    }

    /// Goes along a path to its folder; to the last name in it, where that is asked for, whatever it is the name of, if not of a link.
    fn go(&mut self, path: &Path, to_name: bool) -> io::Result<Option<OsString>> {
        let mut left = parts_of(path);
        let mut links = 0;
        while let Some(part) = left.pop() {
            if part == ".." {
                if self.steps.len() > 1 {
                    self.steps.pop();
                }
                continue;
            }
            let is_last = left.is_empty();
            let stat = match calls::stat_at(self.here(), &part) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && is_last && to_name => return Ok(Some(part)),
                Err(error) if error.kind() == io::ErrorKind::NotFound && self.make.is_some() => {
                    self.make_one(&part, is_last)?;
                    calls::stat_at(self.here(), &part)?
                }
                stat => stat?,
            };
            match stat.kind {
                Kind::Link => {
                    links += 1;
                    if links > LINKS_MAX {
                        return Err(io::Error::from_raw_os_error(libc::ELOOP));
                    }
                    let target = self.follow(&part, &stat)?;
                    if target.is_absolute() {
                        self.steps.truncate(1);
                    }
                    left.extend(parts_of(&target));
                }
                _ if is_last && to_name => return Ok(Some(part)),
                Kind::Folder => self.enter(&part, is_last)?,
                Kind::Regular | Kind::Block | Kind::Socket | Kind::Other => {
                    return Err(io::Error::from_raw_os_error(libc::ENOTDIR));
                }
            }
        }
        Ok(None)
    }

    fn make_one(&self, name: &OsStr, is_last: bool) -> io::Result<()> {
        let mode = self.make.filter(|_| is_last).unwrap_or(0o755);
        match calls::make_folder_at(self.here(), name, mode) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
            _ => Ok(()),
        }
    }

    fn enter(&mut self, name: &OsStr, is_last: bool) -> io::Result<()> {
        let next = calls::open_folder_at(self.here(), name)?;
        self.steps.push(next);
        self.check(is_last)
    }

    fn check(&self, is_last: bool) -> io::Result<()> {
        if !self.is_private {
            return Ok(());
        }
        let stat = calls::stat_of(self.here())?;
        kept_from_others(&stat, !is_last).map_err(|why| {
            let here = calls::name_of(self.here()).unwrap_or_else(|| self.shown.to_owned());
            cannot_trust(self.shown, &here, &why)
        })
    }

    fn follow(&self, name: &OsStr, link: &Stat) -> io::Result<PathBuf> {
        let why = match self.links {
            Links::Inside => None,
            Links::Never => Some("no link is followed there".to_owned()),
            Links::Trusted if !calls::is_ours(link.user) => Some(format!("user {} made it", link.user)),
            Links::Trusted => kept_from_others(&calls::stat_of(self.here())?, true)
                .err()
                .map(|why| format!("the folder that it lies in {why}")),
        };
        match why {
            None => calls::read_link_at(self.here(), name),
            Some(why) => Err(refused(format!(
                "{}: {} is a link, which is not followed: {why}. Name the place itself that it leads to",
                self.shown.display(),
                name.display(),
            ))),
        }
    }
}

/// The parts of a path, the first one last.
fn parts_of(path: &Path) -> Vec<OsString> {
    let part = |part: Component<'_>| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    };
    path.components().rev().filter_map(part).collect()
}

/// How a folder is looked for.
#[derive(Clone, Copy, Default)]
struct How {
    is_private: bool,
    make: Option<u32>,
}

fn walk(path: &Path, how: How, to_name: bool) -> io::Result<(Folder, Option<OsString>)> {
    let absolute = std::path::absolute(if path.as_os_str().is_empty() { Path::new(".") } else { path })?;
    let steps = vec![calls::open_root()?];
    let How { is_private, make } = how;
    let mut walk = Walk { steps, links: Links::Trusted, is_private, make, shown: path };
    walk.check(false)?;
    let name = walk.go(&absolute, to_name)?;
    let folder = if to_name { absolute.parent().unwrap_or(Path::new("/")).to_owned() } else { absolute };
    Ok((Folder { fd: walk.steps.pop().expect("the root at least"), path: folder }, name))
}

impl Folder {
    /// Opens a folder that others may change.
    pub fn open(path: &Path) -> io::Result<Folder> {
        Ok(walk(path, How::default(), false)?.0)
    }

    /// Opens a folder of which only root and this process's user can change what lies in it, or what its path leads to.
    pub fn open_private(path: &Path) -> io::Result<Folder> {
        Ok(walk(path, How { is_private: true, make: None }, false)?.0)
    }

    /// The same; where it is missing it is made with these rights.
    pub fn make_private(path: &Path, mode: u32) -> io::Result<Folder> {
        Ok(walk(path, How { is_private: true, make: Some(mode) }, false)?.0)
    }

    /// Makes a folder, and those above it, where they are missing.
    pub fn make_all(path: &Path, mode: u32) -> io::Result<Folder> {
        Ok(walk(path, How { is_private: false, make: Some(mode) }, false)?.0)
    }

    /// Its own name: absolute, and without links.
    pub fn own_path(&self) -> io::Result<PathBuf> {
        let name = calls::name_of(self.fd.as_fd());
        name.ok_or_else(|| io::Error::other(format!("{}: the folder has no path", self.path.display())))
    }

    /// The folder in which a file lies, or is to lie, and the file's name in it. Where the name is that of a trusted link, those of the file
    /// that it leads to.
    pub fn of(path: &Path) -> io::Result<(Folder, OsString)> {
        let (folder, name) = walk(path, How::default(), true)?;
        Ok((folder, name.ok_or_else(|| is_folder(path))?))
    }

    /// The same of a file in a folder of which only root and this process's user can change what lies in it, or what its path leads to.
    pub fn of_private(path: &Path) -> io::Result<(Folder, OsString)> {
        let (folder, name) = walk(path, How { is_private: true, make: None }, true)?;
        let name = name.ok_or_else(|| is_folder(path))?;
        let stat = calls::stat_of(folder.fd.as_fd())?;
        // A name in a sticky folder is its owner's, who is looked at by whoever opens it.
        kept_from_others(&stat, true).map_err(|why| cannot_trust(path, folder.path(), &why))?;
        Ok((folder, name))
    }

    /// The path of a program that only root and this process's user can change.
    pub fn check_program(&self, name: &OsStr) -> io::Result<PathBuf> {
        let stat = calls::stat_at(self.fd.as_fd(), name)?;
        let path = self.path.join(name);
        if stat.kind != Kind::Regular || stat.mode & 0o111 == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        kept_from_others(&stat, false).map_err(|why| cannot_trust(&path, &path, &why))?;
        Ok(path)
    }

    /// What a name is that of, and the open file, with these flags. Only a regular file or a block device is opened.
    pub fn open_device(&self, name: &OsStr, flags: i32) -> io::Result<File> {
        let stat = calls::stat_at(self.fd.as_fd(), name)?;
        if !matches!(stat.kind, Kind::Regular | Kind::Block) {
            let shown = self.path.join(name);
            let why = format!("{} is neither a regular file nor a block device", shown.display());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        // Somebody may have put a pipe there since, which nobody is to wait for.
        let file = calls::open_file_at(self.fd.as_fd(), name, flags, 0).map_err(|error| self.about(name, error))?;
        if !matches!(calls::stat_of(file.as_fd())?.kind, Kind::Regular | Kind::Block) {
            let why = format!("{}: somebody has put something else in its place", self.path.join(name).display());
            return Err(refused(why));
        }
        calls::let_wait(file.as_fd())?;
        Ok(file)
    }

    /// Gives a socket these rights, and this group where the kernel allows it; never what a link leads to.
    pub fn open_socket_to(&self, name: &OsStr, mode: u32, group: Option<u32>) -> io::Result<()> {
        let socket = calls::open_name_at(self.fd.as_fd(), name)?;
        if calls::stat_of(socket.as_fd())?.kind != Kind::Socket {
            let why =
                format!("{}: somebody has put something else in the socket's place", self.path.join(name).display());
            return Err(refused(why));
        }
        // The descriptor stands for the socket, whatever has its name by now.
        let path = calls::path_of(socket.as_fd());
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))?;
        if let Some(group) = group {
            // Allowed for root and for members only; for all others the socket stays their own.
            let _ = std::os::unix::fs::chown(&path, None, Some(group));
        }
        Ok(())
    }

    /// Whether the name is that of a socket. None: there is nothing of this name.
    pub fn is_socket(&self, name: &OsStr) -> io::Result<Option<bool>> {
        match calls::stat_at(self.fd.as_fd(), name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            stat => Ok(Some(stat?.kind == Kind::Socket)),
        }
    }

    /// The same folder once more.
    pub fn again(&self) -> io::Result<Folder> {
        Ok(Folder { fd: self.fd.try_clone()?, path: self.path.clone() })
    }

    /// Where it was when it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What a path leads to whose root is this folder: the folder, and the last name in it.
    pub fn inside(&self, path: &str, links: Links, make: Option<u32>) -> io::Result<(Folder, OsString)> {
        let mut walk = self.walk_inside(path, links, make)?;
        let name = walk.go(Path::new(path), true)?.ok_or_else(|| is_folder(Path::new(path)))?;
        let path = self.path.join(path.trim_start_matches('/'));
        let folder = path.parent().unwrap_or(&self.path).to_owned();
        Ok((Folder { fd: walk.steps.pop().expect("the root at least"), path: folder }, name))
    }

    /// The folder that a path leads to whose root is this folder.
    pub fn folder_inside(&self, path: &str, links: Links, make: Option<u32>) -> io::Result<Folder> {
        if matches!((links, make), (Links::Inside, None)) {
            match calls::place_inside(self.fd.as_fd(), Path::new(path)) {
                Err(error) if is_missing(&error) => return Err(error),
                Ok(Some(fd)) if calls::stat_of(fd.as_fd())?.kind == Kind::Folder => {
                    return Ok(Folder { fd, path: self.path.join(path.trim_start_matches('/')) });
                }
                // What says in words why not.
                Ok(_) | Err(_) => {}
            }
        }
        let mut walk = self.walk_inside(path, links, make)?;
        walk.go(Path::new(path), false)?;
        let fd = walk.steps.pop().expect("the root at least");
        Ok(Folder { fd, path: self.path.join(path.trim_start_matches('/')) })
    }

    /// Reads a regular file that a path leads to whose root is this folder, as [`Folder::inside`] with its own links and [`Folder::read`] do,
    /// with a few calls of the kernel instead of a few for each part of the path. It has no more than this many bytes.
    pub fn read_inside(&self, path: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let place = match calls::place_inside(self.fd.as_fd(), Path::new(path)) {
            Err(error) if is_missing(&error) => return Err(error),
            place => place.ok().flatten(),
        };
        if let Some(place) = place
            && calls::stat_of(place.as_fd())?.kind == Kind::Regular
            && let Ok(file) = calls::open_again(place.as_fd())
        {
            return read_all(file, bytes_max, &self.path.join(path.trim_start_matches('/')));
        }
        // What says in words why not.
        let (folder, name) = self.inside(path, Links::Inside, None)?;
        folder.read(name, bytes_max)
    }

    /// Where what a path leads to has its place, for a path whose root is this folder: with all of that root's links followed, and below
    /// the folder's own name. None: the kernel cannot tell it so.
    pub fn place_inside(&self, path: &str) -> io::Result<Option<PathBuf>> {
        let Some(place) = calls::place_inside(self.fd.as_fd(), Path::new(path))? else { return Ok(None) };
        Ok(calls::name_of(place.as_fd()))
    }

    fn walk_inside<'a>(&self, path: &'a str, links: Links, make: Option<u32>) -> io::Result<Walk<'a>> {
        let steps = vec![self.fd.try_clone()?];
        Ok(Walk { steps, links, is_private: false, make, shown: Path::new(path) })
    }

    fn about(&self, name: &OsStr, error: io::Error) -> io::Error {
        match error.raw_os_error() {
            Some(libc::ELOOP) => refused(format!(
                "{} is a link, which is not followed in a folder that others may change",
                self.path.join(name).display()
            )),
            _ => error,
        }
    }

    /// Opens a regular file, and waits for nobody.
    fn open_regular(&self, name: &OsStr, flags: i32, mode: u32) -> io::Result<File> {
        let not_regular = || {
            let shown = self.path.join(name);
            io::Error::new(io::ErrorKind::InvalidInput, format!("{} is not a regular file", shown.display()))
        };
        match calls::stat_at(self.fd.as_fd(), name) {
            Ok(stat) if stat.kind == Kind::Link => {
                return Err(self.about(name, io::Error::from_raw_os_error(libc::ELOOP)));
            }
            Ok(stat) if stat.kind != Kind::Regular => return Err(not_regular()),
            // Looked at again below: this only keeps devices from being opened.
            _ => {}
        }
        let file = calls::open_file_at(self.fd.as_fd(), name, flags, mode).map_err(|error| self.about(name, error))?;
        match calls::stat_of(file.as_fd())?.kind {
            Kind::Regular => Ok(file),
            Kind::Folder | Kind::Link | Kind::Block | Kind::Socket | Kind::Other => Err(not_regular()),
        }
    }

    /// Opens a regular file for reading.
    pub fn open_file(&self, name: impl AsRef<OsStr>) -> io::Result<File> {
        self.open_regular(name.as_ref(), libc::O_RDONLY, 0)
    }

    /// Reads a regular file that has no more than this many bytes.
    pub fn read(&self, name: impl AsRef<OsStr>, bytes_max: u64) -> io::Result<Vec<u8>> {
        let name = name.as_ref();
        read_all(self.open_file(name)?, bytes_max, &self.path.join(name))
    }

    /// Opens a file of this process's own, or makes it, for reading and for writing at its end.
    pub fn open_to_append(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let name = name.as_ref();
        let file = self.open_regular(name, libc::O_RDWR | libc::O_APPEND | libc::O_CREAT, mode)?;
        let stat = calls::stat_of(file.as_fd())?;
        if !calls::is_ours(stat.user) || stat.names != 1 {
            let shown = self.path.join(name);
            return Err(refused(format!(
                "{} belongs to user {} and has {} names: this process did not make it so; remove it",
                shown.display(),
                stat.user,
                stat.names
            )));
        }
        Ok(file)
    }

    /// Makes a file that was not there, for writing.
    pub fn make_file(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL;
        calls::open_file_at(self.fd.as_fd(), name.as_ref(), flags, mode)
    }

    /// Makes a file that was not there, for reading and writing.
    pub fn make_readable_file(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<File> {
        let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
        calls::open_file_at(self.fd.as_fd(), name.as_ref(), flags, mode)
    }

    /// Writes over a regular file that is there, in one call.
    pub fn overwrite(&self, name: impl AsRef<OsStr>, bytes: &[u8]) -> io::Result<()> {
        let mut file = self.open_regular(name.as_ref(), libc::O_WRONLY, 0)?;
        if calls::stat_of(file.as_fd())?.names > 1 {
            let shown = self.path.join(name.as_ref());
            return Err(refused(format!(
                "{}: a second name of some other file, which is not written to",
                shown.display()
            )));
        }
        file.set_len(0)?;
        file.write_all(bytes)
    }

    /// Replaces a file whole and durably, or makes it.
    pub fn replace(&self, name: impl AsRef<OsStr>, bytes: &[u8], mode: u32) -> io::Result<()> {
        let name = name.as_ref();
        let mut aside = name.to_owned();
        aside.push(".new");
        let mut file = self.make_anew(&aside, mode)?;
        let written = file.write_all(bytes).and_then(|()| file.sync_all()).and_then(|()| self.rename(&aside, name));
        if written.is_err() {
            // It costs its space at most, and the next attempt removes it as well.
            let _ = self.remove(&aside);
        }
        written?;
        self.sync()
    }

    /// A new file at a name at which there may be another one, of whatever kind.
    fn make_anew(&self, name: &OsStr, mode: u32) -> io::Result<File> {
        for _ in 1..NEW_NAME_ATTEMPTS {
            self.remove(name)?;
            match self.make_file(name, mode) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => return made,
            }
        }
        self.make_file(name, mode)
    }

    /// Makes a folder that was not there.
    pub fn make_folder(&self, name: impl AsRef<OsStr>, mode: u32) -> io::Result<Folder> {
        let name = name.as_ref();
        calls::make_folder_at(self.fd.as_fd(), name, mode)?;
        let fd = calls::open_folder_at(self.fd.as_fd(), name)?;
        let user = calls::stat_of(fd.as_fd())?.user;
        let path = self.path.join(name);
        if user != calls::own_user() {
            return Err(refused(format!("{}: user {user} has put another folder in its place", path.display())));
        }
        Ok(Folder { fd, path })
    }

    /// Removes a name that is not a folder's; whether there was one.
    pub fn remove(&self, name: impl AsRef<OsStr>) -> io::Result<bool> {
        match calls::remove_at(self.fd.as_fd(), name.as_ref()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            // A file system that is read-only says so before it looks whether there is anything of this name.
            Err(error) => match calls::stat_at(self.fd.as_fd(), name.as_ref()) {
                Err(missing) if missing.kind() == io::ErrorKind::NotFound => Ok(false),
                Ok(_) | Err(_) => Err(error),
            },
        }
    }

    /// Renames within the folder, over whatever has the new name.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        calls::rename_at(self.fd.as_fd(), from.as_ref(), to.as_ref())
    }

    /// Gives a file a second name.
    pub fn link(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) -> io::Result<()> {
        calls::link_at(self.fd.as_fd(), from.as_ref(), to.as_ref())
    }

    /// Makes a link that leads to `target`.
    pub fn link_to(&self, target: &str, name: impl AsRef<OsStr>) -> io::Result<()> {
        calls::symlink_at(self.fd.as_fd(), target.as_ref(), name.as_ref())
    }

    /// Whether there is such a name, of whatever kind.
    pub fn has(&self, name: impl AsRef<OsStr>) -> bool {
        calls::stat_at(self.fd.as_fd(), name.as_ref()).is_ok()
    }

    /// Whether two names are those of one file.
    pub fn are_one(&self, one: impl AsRef<OsStr>, other: impl AsRef<OsStr>) -> bool {
        let identity = |name: &OsStr| Some(calls::stat_at(self.fd.as_fd(), name).ok()?.identity);
        identity(one.as_ref()).is_some_and(|one| identity(other.as_ref()) == Some(one))
    }

    /// Whether the name is that of a folder.
    pub fn is_folder(&self, name: impl AsRef<OsStr>) -> bool {
        calls::stat_at(self.fd.as_fd(), name.as_ref()).is_ok_and(|stat| stat.kind == Kind::Folder)
    }

    /// Where a link leads, as it is written. None: there is no link of this name.
    pub fn target(&self, name: impl AsRef<OsStr>) -> Option<PathBuf> {
        calls::read_link_at(self.fd.as_fd(), name.as_ref()).ok()
    }

    /// The names in it, in order.
    pub fn names(&self) -> io::Result<Vec<OsString>> {
        let mut names = calls::names_of(self.fd.as_fd())?;
        names.sort();
        Ok(names)
    }

    /// Has the names in it on the medium.
    pub fn sync(&self) -> io::Result<()> {
        calls::open_readable(self.fd.as_fd())?.sync_all()
    }

    /// User id of its owner.
    pub fn user(&self) -> io::Result<u32> {
        Ok(calls::stat_of(self.fd.as_fd())?.user)
    }

    /// Where this process can name it by its descriptor, for calls that know only paths.
    pub fn by_descriptor(&self) -> PathBuf {
        calls::path_of(self.fd.as_fd())
    }
}

/// Whether there is nothing at a path, or a file where a folder would be.
fn is_missing(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// Whether two paths lead to one file or folder of one mount. Both are followed as the kernel does, magic links of `/proc` included, so that
/// a path and its canonical form differ only where the path goes through what another process sees.
pub fn are_one_place(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(calls::identity_of(one)? == calls::identity_of(other)?)
}

fn is_folder(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::IsADirectory, format!("{} is a folder, where a file is asked for", path.display()))
}

/// Reads a file that is open to its end, which must be within this many bytes.
pub fn read_all(file: File, bytes_max: u64, shown: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let why = format!("{}: longer than {bytes_max} bytes, which no such file is", shown.display());
        return Err(io::Error::new(io::ErrorKind::InvalidData, why));
    }
    Ok(bytes)
}

/// Reads a regular file of no more than this many bytes, in a folder that others may change.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let (folder, name) = Folder::of(path)?;
    folder.read(name, bytes_max)
}

/// The same of a file that is text.
pub fn read_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    text_of(read(path, bytes_max)?, path)
}

/// Reads a text that only root and this process's user can have written: no more than this many bytes.
pub fn read_private_text(path: &Path, bytes_max: u64) -> io::Result<String> {
    let (folder, name) = Folder::of_private(path)?;
    let file = folder.open_file(&name)?;
    let shown = folder.path().join(name);
    kept_from_others(&calls::stat_of(file.as_fd())?, false).map_err(|why| cannot_trust(path, &shown, &why))?;
    text_of(read_all(file, bytes_max, path)?, path)
}

fn text_of(bytes: Vec<u8>, path: &Path) -> io::Result<String> {
    String::from_utf8(bytes)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, format!("{} is not a text", path.display())))
}

/// Opens a regular file for reading, in a folder that others may change.
pub fn open_file(path: &Path) -> io::Result<File> {
    let (folder, name) = Folder::of(path)?;
    folder.open_file(name)
}

/// Opens a regular file or a block device for reading, in a folder that others may change.
pub fn open_image(path: &Path) -> io::Result<File> {
    let (folder, name) = Folder::of(path)?;
    folder.open_device(&name, libc::O_RDONLY)
}

/// Replaces a file whole and durably, or makes it, in a folder that others may change.
pub fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (folder, name) = Folder::of(path)?;
    folder.replace(name, bytes, mode)
}

/// Removes a file durably, in a folder that others may change; whether there was one.
pub fn remove(path: &Path) -> io::Result<bool> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let name = path.file_name().ok_or_else(|| is_folder(path))?;
    let folder = match Folder::open(parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        folder => folder?,
    };
    let removed = folder.remove(name)?;
    if removed {
        folder.sync()?;
    }
    Ok(removed)
}

#[cfg(test)]
mod tests;
