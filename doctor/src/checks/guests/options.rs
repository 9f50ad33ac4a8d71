//! What a command line of QEMU says of a virtual machine's disks: `-drive`, `-blockdev` and `-device`, as words or as JSON.

use super::super::processes::COMMAND_LINE_MAX;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Words of a command line that are read; libvirt writes a few hundred.
const WORDS_MAX: usize = 4096;
/// Bytes of one of them.
const WORD_BYTES_MAX: usize = 64 << 10;
/// Options of one word.
const OPTIONS_MAX: usize = 512;
/// Options of all words of a command line.
const OPTIONS_OF_ALL_MAX: usize = 16 << 10;
/// Bytes of an option's name, those of the objects around it among them; QEMU has none as long.
const NAME_BYTES_MAX: usize = 128;
/// Disks of one virtual machine.
const DISKS_MAX: usize = 128;
/// Layers of block nodes above a file.
const LAYERS_MAX: usize = 8;

/// A virtual machine, and its disks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Guest {
    /// Number of its process.
    pub pid: u32,
    /// What it is called; none: it has no name, or it was left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Disks that are written to.
    pub disks: Vec<Disk>,
    /// It may have more disks than these: its command line is longer than what is read, or names what it does not define.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub partly: bool,
}

/// A disk of a virtual machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    /// What its device, or else its drive, is called.
    pub id: String,
    /// How the host keeps what is written to it.
    pub cache: Cache,
    /// How requests go to the kernel: `threads`, `native`, `io_uring`. None: it is no file or device of this host.
    pub aio: Option<String>,
    /// A thread has its requests besides QEMU's main one. None: its device cannot have one, or it is not known.
    pub iothread: Option<bool>,
}

/// How the host keeps what a guest has written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cache {
    /// It passes by the host's page cache.
    pub direct: bool,
    /// Each write is flushed before it is acknowledged.
    pub through: bool,
    /// Flushes that the guest asks for are left out.
    pub no_flush: bool,
}

impl Disk {
    /// As it is shown as evidence.
    pub fn shown(&self) -> String {
        let word = |is| if is { "on" } else { "off" };
        let Cache { direct, through, no_flush } = self.cache;
        let aio = self.aio.as_deref().unwrap_or("-");
        let thread = self.iothread.map_or("-", word);
        let (direct, write, no_flush) = (word(direct), word(!through), word(no_flush));
        format!(
            "{}: cache.direct={direct}, write-cache={write}, cache.no-flush={no_flush}, aio={aio}, iothread={thread}",
            self.id
        )
    }
}

/// Options by name, those of nested objects with dots between.
pub(super) type Options = BTreeMap<String, String>;

impl Guest {
    /// Of a command line, whose words end with zeros.
    pub fn of(pid: u32, line: &[u8]) -> Guest {
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).take(WORDS_MAX + 1).collect();
        let is_long = |words: &[&[u8]]| words.len() > WORDS_MAX || words.iter().any(|word| word.len() > WORD_BYTES_MAX);
        if line.len() > COMMAND_LINE_MAX || is_long(&words) {
            return Guest { pid, partly: true, ..Guest::default() };
        }
        let words: Vec<String> = words.into_iter().map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        let mut reader = Reader::new();
        let mut of = |option: &str, first: &str| -> Vec<Options> {
            let is = |word: &str| word.strip_prefix('-').is_some_and(|word| word.trim_start_matches('-') == option);
            words.windows(2).filter(|pair| is(&pair[0])).map(|pair| reader.read(&pair[1], first)).collect()
        };
        let name = of("name", "guest").into_iter().find_map(|name| name.get("guest").map(|name| shortened(name)));
        let (devices, drives) = (of("device", "driver"), of("drive", "file"));
        let nodes: BTreeMap<String, Options> = of("blockdev", "driver")
            .into_iter()
            .filter_map(|node| Some((node.get("node-name")?.clone(), node)))
            .collect();
        if reader.cut {
            return Guest { pid, name, partly: true, ..Guest::default() };
        }
        let by_id = drives.iter().filter_map(|drive| Some((drive.get("id")?, drive))).collect();
        let known = Known { devices: &devices, drives: by_id, nodes: &nodes };
        let (mut disks, mut partly) = (Vec::new(), false);
        for device in &devices {
            if disks.len() > DISKS_MAX {
                break;
            }
            match known.disk(device) {
                Ok(disk) => disks.extend(disk),
                Err(Unknown) => partly = true,
            }
        }
        // A drive that no device names is a disk by itself, of the machine's own kind where it has none.
        let named: BTreeSet<&String> = devices.iter().filter_map(|device| device.get("drive")).collect();
        disks.extend(drives.iter().filter(|drive| drive.get("id").is_none_or(|id| !named.contains(id))).filter_map(
            |drive| {
                let kind = drive.get("if").map(String::as_str);
                if !matches!(kind, None | Some("virtio" | "scsi" | "ide"))
                    || !drive.keys().any(|name| name.starts_with("file"))
                {
                    return None;
                }
                let (cache, aio) = of_drive(drive)?;
                let id = shortened(drive.get("id").map_or(kind.unwrap_or("drive"), String::as_str));
                Some(Disk { id, cache, aio, iothread: (kind == Some("virtio")).then_some(false) })
            },
        ));
        partly |= disks.len() > DISKS_MAX;
        disks.truncate(DISKS_MAX);
        Guest { pid, name, disks, partly }
    }

    /// What a person knows it by.
    pub fn called(&self) -> String {
        self.name.clone().unwrap_or_else(|| format!("PID {}", self.pid))
    }

    /// The same for a record.
    pub fn without_name(&self) -> Guest {
        Guest { name: None, ..self.clone() }
    }
}

/// Reads words of options, as many as a virtual machine has.
pub(super) struct Reader {
    left: usize,
    /// Some were left out.
    cut: bool,
}

impl Reader {
    pub(super) fn new() -> Reader {
        Reader { left: OPTIONS_OF_ALL_MAX, cut: false }
    }

    /// A word of options: an object of JSON; or `a=b,c=d`, in which two commas stand for one, and the first may be a value alone.
    pub(super) fn read(&mut self, word: &str, first: &str) -> Options {
        let mut options = Options::new();
        let whole = match word.starts_with('{') {
            true => match serde_json::from_str::<serde_json::Value>(word) {
                Ok(value) => flatten(&value, "", self.left.min(OPTIONS_MAX), &mut options),
                Err(_) => true,
            },
            false => split(word, first, self.left.min(OPTIONS_MAX), &mut options),
        };
        self.cut |= !whole;
        self.left -= options.len();
        options
    }
}

/// Options with commas between. False: there are more than `most`, or a name is too long.
fn split(word: &str, first: &str, most: usize, options: &mut Options) -> bool {
    let mut whole = true;
    let word = word.replace(",,", "\0");
    for (at, part) in word.split(',').enumerate() {
        let (name, value) = match part.split_once('=') {
            Some(pair) => pair,
            None if at == 0 => (first, part),
            // A word alone switches on.
            None => (part, "on"),
        };
        if options.len() == most {
            return false;
        }
        if name.len() > NAME_BYTES_MAX {
            whole = false;
            continue;
        }
        options.insert(name.to_owned(), value.replace('\0', ","));
    }
    whole
}

/// Objects in objects, as deep as their names together are short. False: there are more than `most`, or a name is too long.
fn flatten(value: &serde_json::Value, above: &str, most: usize, options: &mut Options) -> bool {
    use serde_json::Value;
    let text = match value {
        Value::Object(parts) => {
            let mut whole = true;
            for (name, part) in parts {
                if options.len() == most {
                    return false;
                }
                if above.len() + 1 + name.len() > NAME_BYTES_MAX {
                    whole = false;
                    continue;
                }
                let name = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                whole &= flatten(part, &name, most, options);
            }
            return whole;
        }
        Value::Bool(is) => if *is { "on" } else { "off" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(parts) => format!("{} parts", parts.len()),
        Value::Null => return true,
    };
    if options.len() == most {
        return false;
    }
    options.insert(above.to_owned(), text);
    true
}

/// A name or a word that is kept: many disks may share one that is long.
fn shortened(text: &str) -> String {
    text.chars().take(NAME_BYTES_MAX).collect()
}

fn is_on(options: &Options, name: &str) -> Option<bool> {
    options.get(name).map(|value| ["on", "true", "yes"].contains(&value.as_str()))
}

/// The command line does not define what it names: it was added while the machine ran.
struct Unknown;

/// How a file is kept, and how it is asked; none: it is not written to.
type Way = Option<(Cache, Option<String>)>;

/// What a command line defines.
struct Known<'a> {
    devices: &'a [Options],
    drives: BTreeMap<&'a String, &'a Options>,
    nodes: &'a BTreeMap<String, Options>,
}

impl Known<'_> {
    /// The disk that a device is; none: it is none that is written to.
    fn disk(&self, device: &Options) -> Result<Option<Disk>, Unknown> {
        let driver = device.get("driver").map(String::as_str).unwrap_or_default();
        let is_virtio = driver.starts_with("virtio-blk");
        if !is_virtio && !["scsi-hd", "ide-hd", "nvme", "usb-storage"].contains(&driver) {
            return Ok(None);
        }
        let Some(drive) = device.get("drive") else { return Ok(None) };
        let way = match self.drives.get(drive) {
            Some(options) => of_drive(options),
            None => self.of_node(drive)?,
        };
        let Some((mut cache, aio)) = way else { return Ok(None) };
        cache.through |= is_on(device, "write-cache") == Some(false);
        let iothread = match driver {
            _ if is_virtio => Some(has_thread(device)),
            "scsi-hd" => self.controller(device).map(has_thread),
            _ => None,
        };
        let id = shortened(device.get("id").unwrap_or(drive));
        Ok(Some(Disk { id, cache, aio, iothread }))
    }

    /// The virtio-scsi controller of a disk: its bus is `scsi0.0` of `scsi0`. None: it is another one, or not known.
    fn controller(&self, device: &Options) -> Option<&Options> {
        let mut controllers = self
            .devices
            .iter()
            .filter(|device| device.get("driver").is_some_and(|driver| driver.starts_with("virtio-scsi")));
        match device.get("bus").and_then(|bus| bus.rsplit_once('.')) {
            Some((name, _)) => controllers.find(|controller| controller.get("id").is_some_and(|id| id == name)),
            None => controllers.next().filter(|_| controllers.next().is_none()),
        }
    }

    /// Of a block node: of the file at its end, and whether any layer leaves flushes out.
    fn of_node(&self, name: &str) -> Result<Way, Unknown> {
        let (mut cache, mut node) = (Cache::default(), self.nodes.get(name).ok_or(Unknown)?);
        if is_on(node, "read-only") == Some(true) {
            return Ok(None);
        }
        // Layers that are written inside of others have names such as `file.file.driver`.
        let mut inside = String::new();
        for _ in 0..LAYERS_MAX {
            let set = |name: &str| is_on(node, &format!("{inside}{name}"));
            // What is inside has what is said around it, and what is named has not.
            cache.direct = set("cache.direct").unwrap_or(cache.direct && !inside.is_empty());
            cache.no_flush |= set("cache.no-flush").unwrap_or(false);
            let below = format!("{inside}file");
            if node.contains_key(&format!("{below}.driver")) {
                inside = format!("{below}.");
            } else if let Some(name) = node.get(&below) {
                (node, inside) = (self.nodes.get(name).ok_or(Unknown)?, String::new());
            } else {
                let of = |name: &str| node.get(&format!("{inside}{name}")).map(String::as_str);
                let is_local = of("driver").is_some_and(|driver| ["file", "host_device"].contains(&driver));
                return Ok(Some((cache, is_local.then(|| shortened(of("aio").unwrap_or("threads"))))));
            }
        }
        Err(Unknown)
    }
}

fn has_thread(device: &Options) -> bool {
    device.keys().any(|name| name == "iothread" || name.starts_with("iothread-vq-mapping"))
}

/// Of a drive; none: it is not written to.
fn of_drive(drive: &Options) -> Way {
    let is = |name: &str, value: &str| drive.get(name).is_some_and(|found| found == value);
    if is("media", "cdrom") || is_on(drive, "readonly") == Some(true) || is_on(drive, "read-only") == Some(true) {
        return None;
    }
    let mut cache = match drive.get("cache").map(String::as_str) {
        Some("none" | "off") => Cache { direct: true, ..Cache::default() },
        Some("directsync") => Cache { direct: true, through: true, no_flush: false },
        Some("writethrough") => Cache { through: true, ..Cache::default() },
        Some("unsafe") => Cache { no_flush: true, ..Cache::default() },
        _ => Cache::default(),
    };
    cache.direct = is_on(drive, "cache.direct").unwrap_or(cache.direct);
    cache.no_flush = is_on(drive, "cache.no-flush").unwrap_or(cache.no_flush);
    cache.through = is_on(drive, "cache.writeback").map_or(cache.through, |back| !back);
    let mut inside = String::new();
    while inside.len() < NAME_BYTES_MAX && drive.contains_key(&format!("{inside}file.driver")) {
        inside += "file.";
    }
    let of = |name: &str| drive.get(&format!("{inside}{name}")).map(String::as_str);
    // `rbd:pool/image` and `nbd://host` are of others.
    let file = drive.get("file").or_else(|| drive.get("file.filename")).map(String::as_str).unwrap_or_default();
    let is_local = match of("driver").filter(|_| !inside.is_empty()) {
        Some(driver) => ["file", "host_device"].contains(&driver),
        None => file.starts_with('/') || !file.is_empty() && !file.contains(':'),
    };
    let aio = drive.get("aio").map(String::as_str).or_else(|| of("aio")).unwrap_or("threads");
    Some((cache, is_local.then(|| shortened(aio))))
}
