//! What a command line of QEMU says of a virtual machine's disks: `-drive`, `-blockdev` and `-device`, as words or as JSON.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Words of a command line that are read; libvirt writes a few hundred.
const WORDS_MAX: usize = 4096;
/// Bytes of one of them.
const WORD_BYTES_MAX: usize = 64 << 10;
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
type Options = BTreeMap<String, String>;

impl Guest {
    /// Of a command line, whose words end with zeros.
    pub fn of(pid: u32, line: &[u8]) -> Guest {
        let words: Vec<String> = line
            .split(|byte| *byte == 0)
            .take(WORDS_MAX)
            .map(|word| String::from_utf8_lossy(&word[..word.len().min(WORD_BYTES_MAX)]).into_owned())
            .collect();
        let of = |option: &str, first: &str| -> Vec<Options> {
            let is = |word: &str| word.strip_prefix('-').is_some_and(|word| word.trim_start_matches('-') == option);
            words.windows(2).filter(|pair| is(&pair[0])).map(|pair| read(&pair[1], first)).collect()
        };
        let name = of("name", "guest").into_iter().find_map(|name| name.get("guest").cloned());
        let (devices, drives) = (of("device", "driver"), of("drive", "file"));
        let nodes: BTreeMap<String, Options> = of("blockdev", "driver")
            .into_iter()
            .filter_map(|node| Some((node.get("node-name")?.clone(), node)))
            .collect();
        let known = Known { devices: &devices, drives: &drives, nodes: &nodes };
        let of_devices = devices.iter().filter_map(|device| known.disk(device));
        // A drive that is a disk by itself: `if=virtio`.
        let of_drives = drives.iter().filter(|drive| drive.get("if").is_some_and(|kind| kind == "virtio"));
        let of_drives = of_drives.filter_map(|drive| {
            let (cache, aio) = of_drive(drive)?;
            let id = drive.get("id").cloned().unwrap_or_else(|| "virtio".to_owned());
            Some(Disk { id, cache, aio, iothread: Some(false) })
        });
        Guest { pid, name, disks: of_devices.chain(of_drives).take(DISKS_MAX).collect() }
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

/// A word of options: an object of JSON; or `a=b,c=d`, in which two commas stand for one, and the first may be a value alone.
fn read(word: &str, first: &str) -> Options {
    let mut options = Options::new();
    if word.starts_with('{') {
        if let Ok(value) = serde_json::from_str::<serde_json::Value>(word) {
            flatten(&value, "", &mut options);
        }
        return options;
    }
    let word = word.replace(",,", "\0");
    for (at, part) in word.split(',').enumerate() {
        let (name, value) = match part.split_once('=') {
            Some(pair) => pair,
            None if at == 0 => (first, part),
            // A word alone switches on.
            None => (part, "on"),
        };
        options.insert(name.to_owned(), value.replace('\0', ","));
    }
    options
}

/// Objects in objects, as deep as JSON is read at all.
fn flatten(value: &serde_json::Value, above: &str, options: &mut Options) {
    use serde_json::Value;
    let text = match value {
        Value::Object(parts) => {
            for (name, part) in parts {
                let name = if above.is_empty() { name.clone() } else { format!("{above}.{name}") };
                flatten(part, &name, options);
            }
            return;
        }
        Value::Bool(is) => if *is { "on" } else { "off" }.to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string(),
        Value::Array(parts) => format!("{} parts", parts.len()),
        Value::Null => return,
    };
    options.insert(above.to_owned(), text);
}

fn is_on(options: &Options, name: &str) -> Option<bool> {
    options.get(name).map(|value| ["on", "true", "yes"].contains(&value.as_str()))
}

/// What a command line defines.
struct Known<'a> {
    devices: &'a [Options],
    drives: &'a [Options],
    nodes: &'a BTreeMap<String, Options>,
}

impl Known<'_> {
    /// The disk that a device is; none: it is none that is written to, or its drive is not known.
    fn disk(&self, device: &Options) -> Option<Disk> {
        let driver = device.get("driver")?.as_str();
        let is_virtio = driver.starts_with("virtio-blk");
        if !is_virtio && !["scsi-hd", "ide-hd", "nvme", "usb-storage"].contains(&driver) {
            return None;
        }
        let drive = device.get("drive")?;
        let of_drives = self.drives.iter().find(|known| known.get("id") == Some(drive));
        let (mut cache, aio) = match of_drives {
            Some(options) => of_drive(options)?,
            None => self.of_node(drive)?,
        };
        cache.through |= is_on(device, "write-cache") == Some(false);
        let iothread = match driver {
            _ if is_virtio => Some(has_thread(device)),
            "scsi-hd" => self.controller(device).map(has_thread),
            _ => None,
        };
        let id = device.get("id").unwrap_or(drive).clone();
        Some(Disk { id, cache, aio, iothread })
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
    fn of_node(&self, name: &str) -> Option<(Cache, Option<String>)> {
        let (mut cache, mut node) = (Cache::default(), self.nodes.get(name)?);
        if is_on(node, "read-only") == Some(true) {
            return None;
        }
        for _ in 0..LAYERS_MAX {
            let nested = |name: &str| is_on(node, &format!("file.{name}"));
            let set = |name: &str| nested(name).or_else(|| is_on(node, name)).unwrap_or(false);
            cache.direct = set("cache.direct");
            cache.no_flush |= set("cache.no-flush");
            let Some(below) = node.get("file") else { break };
            node = self.nodes.get(below)?;
        }
        let driver = node.get("file.driver").or_else(|| node.get("driver"))?;
        let aio = node.get("file.aio").or_else(|| node.get("aio")).map_or("threads", String::as_str);
        let is_local = ["file", "host_device"].contains(&driver.as_str());
        Some((cache, is_local.then(|| aio.to_owned())))
    }
}

fn has_thread(device: &Options) -> bool {
    device.keys().any(|name| name == "iothread" || name.starts_with("iothread-vq-mapping"))
}

/// Of a drive; none: it is not written to.
fn of_drive(drive: &Options) -> Option<(Cache, Option<String>)> {
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
    // `rbd:pool/image` and `nbd://host` are of others.
    let file = drive.get("file").or_else(|| drive.get("file.filename")).map(String::as_str).unwrap_or_default();
    let is_local = file.starts_with('/') || !file.is_empty() && !file.contains(':');
    let aio = drive.get("aio").or_else(|| drive.get("file.aio")).map_or("threads", String::as_str);
    Some((cache, is_local.then(|| aio.to_owned())))
}
