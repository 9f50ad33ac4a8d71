//! A host in one file, for a report of a fault: what the doctor read of it, and nothing else.
//!
//! The system that is recorded notes each file, folder and link as it is read, so there is no list of paths that could miss one. The
//! file is JSON, so that whoever sends it can read it before. (Files of sysfs lie about their sizes, which archivers stumble over.)
//!
//! Left out: serial numbers of memory modules, hardware addresses (each becomes another one, the same everywhere), arguments of
//! commands, and all that is not the kernel's, such as configurations. Addresses of the network stay: whether two interfaces are in one
//! subnet is one of the questions.

use crate::system::{LOCALITY_FILE, OWN_FOLDER, RECORDED, Seen, follow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_io::folder::{Folder, Links};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// What a file of this kind begins with.
const KIND: &str = "forebay-doctor-1";
/// Rights of the folders that a record is laid out in.
const FOLDER_MODE: u32 = 0o700;
/// What is recorded: the kernel's files, what the doctor itself has measured, and what it was told of where devices are.
const KEPT: [&str; 6] = ["/proc", "/sys", "/dev/cpu_dma_latency", OWN_FOLDER, LOCALITY_FILE, RECORDED];

/// What was read of a host's files, for looking at it elsewhere.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Record {
    kind: String,
    /// Files that are text.
    files: BTreeMap<String, String>,
    /// Other files, in base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    bytes: BTreeMap<String, String>,
    links: BTreeMap<String, String>,
    folders: BTreeSet<String>,
    /// Files that were there and could not be read, and why.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    hidden: BTreeMap<String, String>,
}

/// Notes what is read of a system.
#[derive(Clone, Debug)]
pub struct Recorder {
    root: PathBuf,
    record: Arc<Mutex<Record>>,
}

impl Recorder {
    /// Of the system below a folder.
    pub fn of(root: &Path) -> Recorder {
        Recorder { root: root.to_owned(), record: Arc::default() }
    }

    fn note(&self, path: &str, what: impl FnOnce(&mut Record, String)) {
        let mut record = self.record.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(real) = record.follow(&self.root, path)
            && KEPT.iter().any(|kept| Path::new(&real).starts_with(kept))
        {
            what(&mut record, real);
        }
    }

    /// Notes that a file was read, with what came of it.
    pub fn file(&self, path: &str, content: &Seen<Vec<u8>>) {
        self.note(path, |record, real| match content {
            Seen::Is(bytes) => record.put(real, bytes),
            Seen::Hidden(why) => {
                record.hidden.insert(real, why.clone());
            }
            Seen::Absent => {}
        });
    }

    /// Notes that a folder was listed, with what came of it.
    pub fn folder(&self, path: &str, names: &Seen<Vec<String>>) {
        self.note(path, |record, real| match names {
            Seen::Is(names) => {
                // Of the processes those are there of which something was read.
                let processes = |name: &&String| real != "/proc" || name.parse::<u32>().is_err();
                for name in names.iter().filter(processes) {
                    record.there(&self.root, &format!("{real}/{name}"));
                }
                record.folders.insert(real);
            }
            Seen::Hidden(why) => {
                record.hidden.insert(real, why.clone());
            }
            Seen::Absent => {}
        });
    }

    /// It was asked whether something is there, or where it leads.
    pub fn place(&self, path: &str) {
        self.note(path, |record, real| record.there(&self.root, &real));
    }

    /// What no file shows was asked, and is a file of the record.
    pub fn told(&self, path: &str, text: &str) {
        self.note(path, |record, real| record.put(real, text.as_bytes()));
    }

    /// All of it, with files of what was asked where no file shows it.
    pub fn finish(self, asked: impl IntoIterator<Item = (String, String)>) -> Record {
        let mut record = std::mem::take(&mut *self.record.lock().unwrap_or_else(PoisonError::into_inner));
        KIND.clone_into(&mut record.kind);
        record.files.extend(asked);
        record.leave_out();
        record
    }
}

impl Record {
    /// Where a path leads, each link on the way noted. None: it leads nowhere.
    fn follow(&mut self, root: &Path, path: &str) -> Option<String> {
        let passed = |name: &str, to: &str| {
            if KEPT.iter().any(|kept| Path::new(name).starts_with(kept)) {
                self.links.insert(name.to_owned(), to.to_owned());
            }
        };
        follow(root, path, passed).ok()
    }

    /// Something is there of which no more is known than that.
    fn there(&mut self, root: &Path, path: &str) {
        let Some(real) = self.follow(root, path) else { return };
        match std::fs::metadata(root.join(real.trim_start_matches('/'))) {
            Ok(metadata) if metadata.is_dir() => {
                self.folders.insert(real);
            }
            Ok(_) if !self.bytes.contains_key(&real) => {
                self.files.entry(real).or_default();
            }
            _ => {}
        }
    }

    fn put(&mut self, path: String, bytes: &[u8]) {
        match std::str::from_utf8(bytes) {
            Ok(text) => {
                self.bytes.remove(&path);
                self.files.insert(path, text.to_owned());
            }
            Err(_) => {
                self.files.remove(&path);
                self.bytes.insert(path, BASE64.encode(bytes));
            }
        }
    }

    /// Takes out what belongs to the host's owner.
    fn leave_out(&mut self) {
        let hidden = &self.hidden;
        self.files.retain(|path, _| !hidden.contains_key(path));
        let process = |path: &str| path.strip_prefix("/proc/")?.split_once('/')?.0.parse::<u32>().ok();
        let is_name = |path: &str| path.ends_with("/comm") || path.ends_with("/cmdline");
        // Of most processes only the name was read, to see that they are none of the data path's.
        let told: BTreeSet<u32> =
            self.files.keys().filter(|path| !is_name(path)).filter_map(|path| process(path)).collect();
        self.files.retain(|path, _| process(path).is_none_or(|process| told.contains(&process)));
        self.bytes.retain(|path, _| process(path).is_none_or(|process| told.contains(&process)));
        let mut others = BTreeMap::new();
        for (path, text) in &mut self.files {
            if process(path).is_some() && path.ends_with("/cmdline") {
                // The program and what it is asked to do; more may be names of files, and secrets.
                *text = text.split_inclusive('\0').take(2).collect();
            }
            *text = without_hardware_addresses(text, &mut others);
        }
        for (path, text) in &mut self.bytes {
            if process(path).is_some() && path.ends_with("/cmdline") {
                let line = BASE64.decode(&*text).unwrap_or_default();
                let first: Vec<u8> = line.split_inclusive(|byte| *byte == 0).take(2).flatten().copied().collect();
                *text = BASE64.encode(first);
            }
        }
        let is_module = |path: &str| path.starts_with("/sys/firmware/dmi/entries/17-") && path.ends_with("/raw");
        let modules: Vec<String> =
            self.bytes.keys().chain(self.files.keys()).filter(|path| is_module(path)).cloned().collect();
        for path in modules {
            let raw = match self.files.get(&path) {
                Some(text) => text.clone().into_bytes(),
                None => self.bytes.get(&path).and_then(|text| BASE64.decode(text).ok()).unwrap_or_default(),
            };
            self.put(path, &without_serial_numbers(raw));
        }
    }

    /// How many files it has.
    pub fn file_count(&self) -> usize {
        self.files.len() + self.bytes.len()
    }

    /// As it is written.
    pub fn to_json(&self) -> serde_json::Result<String> {
        serde_json::to_string_pretty(self)
    }

    /// Lays it out below a folder. It may come from anybody: nothing is written outside of the folder, nor through a link.
    pub fn unpack(text: &[u8], root: &Folder) -> io::Result<()> {
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let record: Record = serde_json::from_slice(text).map_err(|e| invalid(format!("no record of a host: {e}")))?;
        if record.kind != KIND {
            return Err(invalid(format!("a record of the kind {:?}, and this program reads {KIND:?}", record.kind)));
        }
        let at = |path: &str, e: io::Error| io::Error::new(e.kind(), format!("lay out {path} of the record: {e}"));
        // Links are laid out last, and none is followed: not even by another link.
        let inside = |path: &str| match path.starts_with('/') && path.split('/').all(|part| part != "..") {
            true => root.inside(path, Links::Never, Some(FOLDER_MODE)),
            false => Err(invalid(format!("{path} is not a path below the root"))),
        };
        // What cannot be read is a folder where a file is asked for, and so cannot be read here either.
        for path in record.folders.iter().chain(record.hidden.keys()) {
            inside(path)
                .and_then(|_| root.folder_inside(path, Links::Never, Some(FOLDER_MODE)))
                .map_err(|e| at(path, e))?;
        }
        for (path, text) in &record.files {
            let (folder, name) = inside(path).map_err(|e| at(path, e))?;
            folder
                .make_file(name, 0o600)
                .and_then(|mut file| file.write_all(text.as_bytes()))
                .map_err(|e| at(path, e))?;
        }
        for (path, text) in &record.bytes {
            let bytes = BASE64.decode(text).map_err(|e| invalid(format!("{path}: {e}")))?;
            let (folder, name) = inside(path).map_err(|e| at(path, e))?;
            folder.make_file(name, 0o600).and_then(|mut file| file.write_all(&bytes)).map_err(|e| at(path, e))?;
        }
        for (path, to) in &record.links {
            inside(path).and_then(|(folder, name)| folder.link_to(to, name)).map_err(|e| at(path, e))?;
        }
        Ok(())
    }
}

/// The text with other hardware addresses: six pairs and more, as Ethernet and InfiniBand write them. The same for the same.
fn without_hardware_addresses(text: &str, others: &mut BTreeMap<String, String>) -> String {
    let is_part = |byte: u8| byte.is_ascii_hexdigit() || byte == b':';
    let mut result = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.bytes().position(is_part) {
        let length = rest[start..].bytes().take_while(|&byte| is_part(byte)).count();
        let (word, after) = rest[start..].split_at(length);
        result.push_str(&rest[..start]);
        let pairs = word.split(':').count();
        if pairs >= 6 && word.split(':').all(|pair| pair.len() == 2) {
            let number = others.len() + 1;
            let other = others.entry(word.to_ascii_lowercase()).or_insert_with(|| {
                format!("{}{:02x}:{:02x}", "02:".repeat(pairs - 2), number >> 8 & 0xff, number & 0xff)
            });
            result.push_str(other);
        } else {
            result.push_str(word);
        }
        rest = after;
    }
    result.push_str(rest);
    result
}

/// A memory module's structure with its serial number and asset tag blotted out (SMBIOS, type 17).
fn without_serial_numbers(mut raw: Vec<u8>) -> Vec<u8> {
    const SERIAL_AND_ASSET: [usize; 2] = [0x18, 0x19];
    let length = usize::from(raw.get(1).copied().unwrap_or(0));
    let numbers = SERIAL_AND_ASSET.map(|at| raw.get(at).copied().filter(|_| at < length).unwrap_or(0));
    if let Some(strings) = raw.get_mut(length..) {
        for (at, text) in (1..).zip(strings.split_mut(|&byte| byte == 0)) {
            if numbers.contains(&at) {
                text.fill(b'x');
            }
        }
    }
    raw
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hardware_addresses_become_others_and_addresses_of_pci_functions_stay() {
        let mut others = BTreeMap::new();
        let mut of = |text: &str| without_hardware_addresses(text, &mut others);
        assert_eq!(of("HW addr: AA:bb:cc:dd:ee:01\nup"), "HW addr: 02:02:02:02:00:01\nup");
        assert_eq!(of("aa:bb:cc:dd:ee:02 aa:bb:cc:dd:ee:01"), "02:02:02:02:00:02 02:02:02:02:00:01");
        for same in ["0000:82:00.0", "mlx5_comp0@pci:0000:3b:00.0", "fe80::1", "10:20:30", "é aa:bb", ""] {
            assert_eq!(of(same), same);
        }
    }

    #[test]
    fn of_command_lines_that_are_no_text_the_first_words_are_kept_as_well() {
        let mut record = Record::default();
        record.put("/proc/7/status".to_owned(), b"");
        record.put("/proc/7/cmdline".to_owned(), b"smbd\0-F\xff\0--password=secret\0");
        record.leave_out();
        assert_eq!(record.bytes["/proc/7/cmdline"], BASE64.encode(b"smbd\0-F\xff\0"));
    }

    #[test]
    fn serial_numbers_of_modules_are_blotted_out() {
        let mut raw = vec![0; 0x22];
        (raw[0], raw[1], raw[0x10], raw[0x18]) = (17, 0x22, 1, 2);
        raw.extend(b"DIMM_A1\0SN123\0\0");
        let blotted = without_serial_numbers(raw);
        assert!(blotted.ends_with(b"DIMM_A1\0xxxxx\0\0"));
        assert_eq!(without_serial_numbers(vec![17, 200]), [17, 200]);
    }

    #[test]
    fn a_record_of_somebody_else_writes_nothing_outside() {
        let folder = tempfile::tempdir().expect("a folder");
        let inside = folder.path().join("inside");
        std::fs::create_dir(&inside).expect("made");
        let open = || Folder::open(&inside).expect("it is there");
        let of = |files: &str, links: &str| {
            let text = format!(r#"{{"kind":"{KIND}","files":{files},"links":{links},"folders":[]}}"#);
            Record::unpack(text.as_bytes(), &open())
        };
        assert!(of(r#"{"/../evil":""}"#, "{}").is_err());
        assert!(of(r#"{"evil":""}"#, "{}").is_err());
        assert!(of(r#"{"/sys/out/evil":""}"#, r#"{"/sys/out":"../../.."}"#).is_err());
        // A link below a link would be made where that one leads.
        let outside = format!(r#"{{"/a":"{}","/a/evil":"/etc/passwd"}}"#, folder.path().display());
        assert!(of("{}", &outside).is_err());
        assert!(std::fs::symlink_metadata(folder.path().join("evil")).is_err());
        assert!(Record::unpack(b"{}", &open()).is_err());
        assert!(Record::unpack(br#"{"kind":"other","files":{},"links":{},"folders":[]}"#, &open()).is_err());
    }
}
