//! The host's files as the kernel shows them, of this host or below a prefix (`--sysroot`), and what could not be seen of them.
//!
//! What no file shows (links' modes, queues, counters of drivers) lies in a recorded tree as files of its own, below
//! [`RECORDED`]: whoever reads it from the kernel on the living host does so in one place, and the rest sees one kind of answer.

pub mod record;

use forebay_io::folder::{self, Folder, Links};
use forebay_io::machine::random_bytes;
use record::{Record, Recorder};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a recorded tree has what no file of the kernel shows.
pub const RECORDED: &str = "/forebay";
/// Where a host has the doctor's own files. It is root's: what lies in it decides what root writes to the kernel at each boot, so it is not
/// below the state folder, which belongs to the daemon's user.
pub const OWN_FOLDER: &str = "/var/lib/forebay-doctor";
/// Where the operator writes down on which nodes devices are, where the firmware does not tell it, or tells it wrongly.
pub const LOCALITY_FILE: &str = "/etc/forebay/locality";
/// Its rights: everybody's doctor compares with what root has measured there.
const OWN_FOLDER_MODE: u32 = 0o755;
/// On a living host what begins with these is the kernel's, whose links lead to the kernel's.
const OF_THE_KERNEL: [&str; 3] = ["/proc/", "/sys/", "/dev/"];
/// Bytes that are read of one file: thousands of changes in a journal, or the interrupts of a thousand CPUs.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a record of a whole host.
const RECORD_BYTES_MAX: u64 = 128 << 20;

/// What was asked for, or why there is none.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Seen<T> {
    /// It is there, and this is it.
    Is(T),
    /// This host has no such thing.
    #[default]
    Absent,
    /// It may be there: why it could not be read, in words.
    Hidden(String),
}

impl<T> Seen<T> {
    /// What is there; none if it is absent or hidden.
    pub fn known(self) -> Option<T> {
        match self {
            Seen::Is(value) => Some(value),
            Seen::Absent | Seen::Hidden(_) => None,
        }
    }

    /// What is made of it.
    pub fn map<U>(self, make: impl FnOnce(T) -> U) -> Seen<U> {
        self.and_then(|value| Some(make(value)))
    }

    /// The same by reference, for looking at it.
    pub fn as_ref(&self) -> Seen<&T> {
        match self {
            Seen::Is(value) => Seen::Is(value),
            Seen::Absent => Seen::Absent,
            Seen::Hidden(why) => Seen::Hidden(why.clone()),
        }
    }

    /// What is made of it; what makes nothing of it says that it is not there.
    pub fn and_then<U>(self, make: impl FnOnce(T) -> Option<U>) -> Seen<U> {
        match self {
            Seen::Is(value) => make(value).map_or(Seen::Absent, Seen::Is),
            Seen::Absent => Seen::Absent,
            Seen::Hidden(why) => Seen::Hidden(why),
        }
    }
}

/// A host's files.
#[derive(Clone, Debug)]
pub struct System {
    /// Absolute; `/` for this host.
    root: PathBuf,
    /// The same folder, held open, of a recorded host; none of this one.
    tree: Option<Arc<Folder>>,
    recorder: Option<Recorder>,
    /// How often its files were asked for, by all that look at it.
    asked: Arc<AtomicU64>,
    /// The folder that a record was unpacked to goes with the last that looks at it.
    _unpacked: Option<Arc<Unpacked>>,
}

/// A folder of this process alone, removed at the end.
#[derive(Debug)]
struct Unpacked(PathBuf);

impl Unpacked {
    /// A new one, whose name nobody can know before, held open.
    fn new() -> io::Result<(Unpacked, Folder)> {
        let mut word = [0; 8];
        random_bytes(&mut word).map_err(io::Error::other)?;
        let word = u64::from_ne_bytes(word);
        let (beside, name) = Folder::of(&std::env::temp_dir().join(format!("forebay-doctor-{word:016x}")))?;
        let unpacked = Unpacked(beside.path().join(&name));
        Ok((unpacked, beside.make_folder(&name, 0o700)?))
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        // What stays is in the folder for temporary files, and nobody is left to tell.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl System {
    /// The host that this process runs on.
    pub fn live() -> System {
        System { root: PathBuf::from("/"), tree: None, recorder: None, asked: Arc::default(), _unpacked: None }
    }

    /// A recorded one: a folder with its `sys` and `proc`, or a file of `forebay doctor record`.
    pub fn recorded(root: &Path) -> io::Result<System> {
        check_own(root)?;
        // Not a tree by which what is root's alone would be found elsewhere.
        if root.canonicalize()? == Path::new("/") {
            return Ok(System::live());
        }
        if root.is_dir() {
            let tree = Some(Arc::new(Folder::open(root)?));
            let root = root.canonicalize()?;
            return Ok(System { root, tree, recorder: None, asked: Arc::default(), _unpacked: None });
        }
        let text = folder::read(root, RECORD_BYTES_MAX)?;
        let (unpacked, tree) = Unpacked::new()?;
        Record::unpack(&text, &tree)?;
        let root = unpacked.0.canonicalize()?;
        let (tree, unpacked) = (Some(Arc::new(tree)), Some(Arc::new(unpacked)));
        Ok(System { root, tree, recorder: None, asked: Arc::default(), _unpacked: unpacked })
    }

    /// The same, with everything noted that is read of it from now on.
    pub fn recording(self) -> (System, Recorder) {
        let recorder = Recorder::of(&self.root);
        (System { recorder: Some(recorder.clone()), ..self }, recorder)
    }

    /// What no file shows was asked of the living host: it is a file, below [`RECORDED`], of its record.
    pub fn told(&self, path: &str, text: &str) {
        if let Some(recorder) = &self.recorder {
            recorder.told(path, text);
        }
    }

    /// Whether it is this host, which can be asked what no file shows.
    pub fn is_live(&self) -> bool {
        self.tree.is_none()
    }

    /// The doctor's own folder of this host. On the living one it is root's, and so is all that leads to it. None: there is none.
    pub fn own_folder(&self) -> io::Result<Option<Folder>> {
        let folder = match &self.tree {
            None => Folder::open_private(Path::new(OWN_FOLDER)),
            Some(tree) => tree.folder_inside(OWN_FOLDER, Links::Inside, None),
        };
        match folder {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            folder => folder.map(Some),
        }
    }

    /// The same; it is made where it is missing.
    pub fn make_own_folder(&self) -> io::Result<Folder> {
        match &self.tree {
            None => Folder::make_private(Path::new(OWN_FOLDER), OWN_FOLDER_MODE),
            Some(tree) => tree.folder_inside(OWN_FOLDER, Links::Inside, Some(OWN_FOLDER_MODE)),
        }
    }

    /// Where a path of the host lies for this process. `path` begins with `/`.
    pub fn place(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    /// A file's content, without the white space at its end; nor with the zero that a kernel (5.15-rc1) had there in lists of CPUs.
    pub fn text(&self, path: &str) -> Seen<String> {
        let is_end = |end: char| end.is_whitespace() || end == '\0';
        self.bytes(path).map(|bytes| {
            // Without a copy: of a large host some files have megabytes.
            let mut text =
                String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
            text.truncate(text.trim_end_matches(is_end).len());
            text.shrink_to_fit();
            text
        })
    }

    /// A file's content as it is.
    pub fn bytes(&self, path: &str) -> Seen<Vec<u8>> {
        self.count();
        let bytes = seen(path, self.read(path));
        if let Some(recorder) = &self.recorder {
            recorder.file(path, &bytes);
        }
        bytes
    }

    /// A number in a file.
    pub fn number<T: std::str::FromStr>(&self, path: &str) -> Seen<T> {
        self.text(path).and_then(|text| text.trim().parse().ok())
    }

    /// The names in a folder, in order.
    pub fn list(&self, path: &str) -> Seen<Vec<String>> {
        self.count();
        let folder = match &self.tree {
            None => Folder::open(&self.place(path)),
            Some(tree) => tree.folder_inside(path, Links::Inside, None),
        };
        let names = folder.and_then(|folder| folder.names());
        let names = seen(path, names).and_then(|names| {
            Some(names.into_iter().map(|name| name.to_string_lossy().into_owned()).collect::<Vec<String>>())
        });
        if let Some(recorder) = &self.recorder {
            recorder.folder(path, &names);
        }
        names
    }

    /// Whether there is such a file or folder.
    pub fn has(&self, path: &str) -> bool {
        if let Some(recorder) = &self.recorder {
            recorder.place(path);
        }
        self.count();
        match self.is_live() {
            true => self.place(path).exists(),
            false => self.canonical(path).is_ok(),
        }
    }

    /// Where a path leads when all links are followed, as a path of the host.
    pub fn real(&self, path: &str) -> Seen<String> {
        if let Some(recorder) = &self.recorder {
            recorder.place(path);
        }
        self.count();
        seen(path, self.canonical(path))
            .and_then(|real| Some(format!("/{}", real.strip_prefix(&self.root).ok()?.display())))
    }

    /// Where a path leads for this process, all links followed; an error where nothing is there.
    fn canonical(&self, path: &str) -> io::Result<PathBuf> {
        match self.tree.as_ref().map(|tree| tree.place_inside(path)) {
            Some(Ok(Some(place))) if place.starts_with(&self.root) => Ok(place),
            Some(Err(error)) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                Err(error)
            }
            // The kernel cannot tell it so, or has another reason why not.
            Some(Ok(_) | Err(_)) | None => self.resolve(path)?.canonicalize(),
        }
    }

    /// How often its files and folders were asked for until now: what a look costs, where no clock may judge it.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    fn count(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        match &self.tree {
            Some(tree) => tree.read_inside(path, FILE_BYTES_MAX),
            None if OF_THE_KERNEL.iter().any(|place| path.starts_with(place)) => std::fs::read(path),
            None => match path.strip_prefix(OWN_FOLDER).and_then(|path| path.strip_prefix('/')) {
                Some(name) => Folder::open_private(Path::new(OWN_FOLDER))?.read(name, FILE_BYTES_MAX),
                None => folder::read(Path::new(path), FILE_BYTES_MAX),
            },
        }
    }

    /// Writes over a file that is there, in one call as the kernel wants it.
    pub fn write(&self, path: &str, value: &[u8]) -> io::Result<()> {
        if let Some(tree) = &self.tree {
            let (folder, name) = tree.inside(path, Links::Inside, None)?;
            return folder.overwrite(name, value);
        }
        let mut file = std::fs::OpenOptions::new().write(true).open(path)?;
        io::Write::write_all(&mut file, value)
    }

    /// Where it lies for this process, links followed inside the host's tree.
    fn resolve(&self, path: &str) -> io::Result<PathBuf> {
        if self.is_live() {
            return Ok(self.place(path));
        }
        follow(&self.root, path, |_, _| {}).map(|real| self.place(&real))
    }
}

/// Fails where a path goes through a magic link of `/proc` into what another process sees (`/proc/PID/root`): by the link's text, which is all
/// that can be followed step by step, it would be a place of this host.
fn check_own(root: &Path) -> io::Result<()> {
    let real = root.canonicalize();
    let is_own = real.as_ref().is_ok_and(|real| folder::are_one_place(root, real).unwrap_or(false));
    let is_there = || root.metadata().is_ok_and(|found| found.is_dir() || found.is_file());
    if is_own || !is_there() {
        return real.map(|_| ());
    }
    let process = root.strip_prefix("/proc").ok().and_then(|path| path.iter().next()?.to_str());
    let process = process.filter(|process| process.bytes().all(|digit| digit.is_ascii_digit())).unwrap_or("PID");
    let why = format!(
        "{}: this leads to the files of another process's host, and would be read as a place of this one; give a record \
         made inside of it: nsenter -t {process} -m forebay doctor record FILE",
        root.display()
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, why))
}

/// Where a path of the host below `root` leads when all links are followed as that host would: one that begins with `/` leads below
/// the root, and none leads out of it. What is not there leads to itself. `passed` is told each link on the way, and its target.
pub fn follow(root: &Path, path: &str, mut passed: impl FnMut(&str, &str)) -> io::Result<String> {
    /// As many as Linux follows.
    const LINKS_MAX: usize = 40;
    let parts =
        |path: &str| path.split('/').rev().filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let mut left = parts(path);
    let (mut at, mut links) = (Vec::new(), 0);
    while let Some(part) = left.pop() {
        match part.as_str() {
            "." => {}
            ".." => {
                at.pop();
            }
            _ => {
                at.push(part);
                let here = at.join("/");
                let Ok(to) = std::fs::read_link(root.join(&here)) else { continue };
                links += 1;
                if links > LINKS_MAX {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP));
                }
                let to = to.to_str().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidFilename))?;
                passed(&format!("/{here}"), to);
                at.pop();
                if to.starts_with('/') {
                    at.clear();
                }
                left.extend(parts(to));
            }
        }
    }
    Ok(format!("/{}", at.join("/")))
}

/// The chosen one of the choices that a file of the kernel shows: `always [madvise] never`. None where none is in brackets.
pub fn chosen(text: &str) -> Option<&str> {
    let (_, rest) = text.split_once('[')?;
    rest.split_once(']').map(|(chosen, _)| chosen).filter(|chosen| !chosen.is_empty())
}

fn seen<T>(path: &str, result: io::Result<T>) -> Seen<T> {
    match result {
        Ok(value) => Seen::Is(value),
        Err(e) => match e.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Seen::Absent,
            // What sysfs says of an attribute that this device does not have.
            _ if matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EOPNOTSUPP | libc::ENODEV | libc::ENXIO)) => {
                Seen::Absent
            }
            _ => Seen::Hidden(format!("{path}: {e}")),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_of_a_recorded_tree_stay_in_it_and_what_is_hidden_is_told_from_what_is_absent() {
        let tree = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(tree.path().join("sys/devices/pci0/card")).expect("made");
        std::fs::write(tree.path().join("sys/devices/pci0/card/speed"), "10000\n").expect("written");
        std::os::unix::fs::symlink("/sys/devices/pci0/card", tree.path().join("sys/eth0")).expect("linked");
        std::os::unix::fs::symlink("../../../../../../../etc", tree.path().join("sys/out")).expect("linked");
        let system = System::recorded(tree.path()).expect("it is there");
        assert_eq!(system.number("/sys/eth0/speed"), Seen::Is(10_000));
        assert_eq!(system.real("/sys/eth0/speed"), Seen::Is("/sys/devices/pci0/card/speed".to_owned()));
        assert_eq!(system.list("/sys"), Seen::Is(["devices", "eth0", "out"].map(str::to_owned).to_vec()));
        assert_eq!(system.text("/sys/out/passwd"), Seen::Absent);
        assert_eq!(system.text("/sys/eth0/duplex"), Seen::Absent);
        assert_eq!(system.number::<u32>("/sys/eth0/speed/unit"), Seen::Absent);
        assert!(matches!(system.bytes("/sys/devices"), Seen::Hidden(why) if why.starts_with("/sys/devices: ")));
    }

    #[test]
    fn more_links_than_linux_follows_lead_nowhere_and_not_to_the_host_that_looks() {
        let tree = tempfile::tempdir().expect("a folder");
        std::fs::create_dir_all(tree.path().join("etc/recorded")).expect("made");
        let link = |to: &str, name: &str| std::os::unix::fs::symlink(to, tree.path().join(name)).expect("linked");
        (0..40).for_each(|n| link(&format!("/l{}", n + 1), &format!("l{n}")));
        link("/etc", "l40");
        let system = System::recorded(tree.path()).expect("it is there");
        assert_eq!(system.list("/l1"), Seen::Is(vec!["recorded".to_owned()]), "forty are followed");
        assert!(matches!(system.list("/l0"), Seen::Hidden(why) if why.starts_with("/l0: ")));
        assert!(!system.has("/l0"));
    }

    #[test]
    fn the_root_of_another_process_is_not_this_host() {
        use std::io::BufRead;
        use std::process::{Command, Stdio};
        assert!(System::recorded(Path::new("/proc/self/root")).expect("this host").is_live());
        // The text of a magic link is the name of another folder.
        let beside = tempfile::tempdir().expect("a folder");
        let at = |name: &str| beside.path().join(name);
        std::fs::create_dir(at("gone")).expect("made");
        let gone = Folder::open(&at("gone")).expect("open");
        std::fs::remove_dir(at("gone")).expect("removed");
        std::fs::create_dir_all(at("gone (deleted)/sys")).expect("made");
        let error = System::recorded(&gone.by_descriptor()).expect_err("another folder");
        assert!(error.to_string().contains("nsenter -t PID -m forebay doctor record"), "{error}");
        let mut other = Command::new("unshare");
        other.args(["--mount", "sh", "-c", "echo; cat"]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let Ok(mut other) = other.stderr(Stdio::null()).spawn() else { return };
        let mut line = String::new();
        io::BufReader::new(other.stdout.take().expect("piped")).read_line(&mut line).expect("read");
        if line == "\n" {
            let id = other.id();
            for path in ["root", "root/proc"] {
                let path = format!("/proc/{id}/{path}");
                let error = System::recorded(Path::new(&path)).expect_err("another host");
                assert!(error.to_string().contains(&format!("nsenter -t {id} -m")), "{error}");
            }
        }
        drop(other.stdin.take());
        other.wait().expect("it ends");
    }

    #[test]
    fn a_file_that_would_make_wait_is_hidden() {
        let error = io::Error::from_raw_os_error(libc::EAGAIN);
        assert!(matches!(seen::<()>("/proc/kmsg", Err(error)), Seen::Hidden(why) if why.starts_with("/proc/kmsg: ")));
    }

    #[test]
    fn of_choices_the_one_in_brackets_is_chosen() {
        assert_eq!(chosen("always defer [madvise] never"), Some("madvise"));
        assert_eq!(chosen("[none] mq-deadline"), Some("none"));
        for none in ["none", "", "[]", "a [b", "1024"] {
            assert_eq!(chosen(none), None, "{none:?}");
        }
    }
}
