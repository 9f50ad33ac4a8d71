//! What is mounted where, by `/proc/self/mountinfo`, and how full the host's own file systems are.
//!
//! How full one is shows in no file. The living host is asked by statvfs, which local file systems answer from memory: no disk wakes.
//! Those of other hosts, those that a program serves, and pools of ZFS may hang and are never asked, nor is what lies below one of the
//! first two, nor what is on a disk that does not run. A recorded tree has the answers in [`ROOM`].

use super::system::{RECORDED, Seen, System};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

/// Where the kernel shows what is mounted.
pub const MOUNTS: &str = "/proc/self/mountinfo";
/// Where a recorded tree has how full its file systems were: a file below [`RECORDED`].
const ROOM: &str = "room.json";
/// File systems of disks of this host; others are in memory, of a network, or served by a program.
const OF_DISKS: &[&str] = &["ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "bcachefs", "jfs"];
/// Mounts that are looked at: a host of a thousand containers has more, which repeat each other.
const MOUNTS_MAX: usize = 4096;
/// File systems that are asked.
pub const FILE_SYSTEMS_MAX: usize = 256;
/// Devices below a file system that are looked at before it is asked.
const DEVICES_MAX: usize = 1024;
/// A mount below so many others is no path that anybody has.
const DEPTH_MAX: usize = 64;
/// What has not answered by then hangs.
const ANSWERS_WITHIN: Duration = Duration::from_secs(2);

/// A mount of `/proc/self/mountinfo`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mount {
    id: u64,
    parent: u64,
    /// `major:minor` of the device; those of btrfs, ZFS and networks have a major of 0, which is no device's.
    pub number: String,
    /// Where it is mounted.
    pub place: String,
    /// The file system: `ext4`, `nfs4` ...
    pub kind: String,
    /// What is mounted: a device's file, a pool's data set, another host's folder.
    pub source: String,
    /// Options of the mount, and after them those of the file system.
    pub options: Vec<String>,
    read_only: bool,
}

impl Mount {
    /// Of one line.
    fn read(line: &str) -> Option<Mount> {
        let (before, after) = line.split_once(" - ")?;
        let (mut before, mut after) = (before.split(' '), after.split(' '));
        let (id, parent) = (before.next()?.parse().ok()?, before.next()?.parse().ok()?);
        let number = before.next()?.to_owned();
        let (place, options) = (unescaped(before.nth(1)?), before.next()?);
        let (kind, source) = (after.next()?.to_owned(), unescaped(after.next()?));
        let of_system = after.next().unwrap_or_default();
        let read_only = of_system.split(',').any(|option| option == "ro");
        let options = options.split(',').chain(of_system.split(','));
        let options = options.filter(|option| !option.is_empty()).map(str::to_owned).collect();
        Some(Mount { id, parent, number, place, kind, source, options, read_only })
    }

    /// Whether an option is set that has no value.
    pub fn has(&self, word: &str) -> bool {
        self.options.iter().any(|option| option == word)
    }

    /// The value of an option: `65536` of `rsize=65536`.
    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.iter().find_map(|option| option.strip_prefix(name)?.strip_prefix('='))
    }

    /// On disks of this host, whose kernel answers for it.
    pub fn is_of_disks(&self) -> bool {
        OF_DISKS.contains(&self.kind.as_str())
    }

    /// The file system can be written to, if not by this mount of it: services are often shown all but their own folders read-only.
    pub fn is_writable(&self) -> bool {
        !self.read_only
    }

    /// How full it is may be asked: a pool of ZFS that is suspended never answers.
    pub fn is_asked(&self) -> bool {
        self.is_of_disks() && self.is_writable() && self.kind != "zfs"
    }

    fn holds(&self, path: &str) -> bool {
        let rest = path.strip_prefix(self.place.as_str());
        self.place == "/" || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Blanks, tabs, line feeds and backslashes stand there as `\040`, `\011`, `\012` and `\134`.
fn unescaped(text: &str) -> String {
    let codes = [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")];
    codes.into_iter().fold(text.to_owned(), |text, (code, letter)| text.replace(code, letter))
}

/// All mounts that this process sees, in the kernel's order.
pub fn mounts(system: &System) -> Seen<Vec<Mount>> {
    system.text(MOUNTS).map(|text| text.lines().take(MOUNTS_MAX).filter_map(Mount::read).collect())
}

/// Whether there are more mounts than are looked at.
pub fn has_more(system: &System) -> bool {
    system.text(MOUNTS).known().is_some_and(|text| text.lines().nth(MOUNTS_MAX).is_some())
}

/// The mount that a path is in, by its name: the longest that holds it, and of several at one place the last.
pub fn holding<'a>(mounts: &'a [Mount], path: &str) -> Option<&'a Mount> {
    mounts.iter().filter(|mount| mount.holds(path)).max_by_key(|mount| mount.place.len())
}

/// File systems of this host's disks, each once, by the shortest path that leads to it through nothing that could hang.
pub fn of_disks(mounts: &[Mount]) -> Vec<&Mount> {
    let by_id: BTreeMap<u64, &Mount> = mounts.iter().map(|mount| (mount.id, mount)).collect();
    let can_be_reached = |mount: &&Mount| {
        let above = std::iter::successors(Some(*mount), |below| {
            by_id.get(&below.parent).copied().filter(|above| above.id != below.id)
        });
        let way: Vec<&Mount> = above.take(DEPTH_MAX).collect();
        let is_local = |mount: &&Mount| {
            mount.is_of_disks() || ["tmpfs", "rootfs", "overlay", "devtmpfs"].contains(&mount.kind.as_str())
        };
        // Another one that lies over a part of the path leads elsewhere.
        let ids: BTreeSet<u64> = way.iter().map(|mount| mount.id).collect();
        let covered = mounts.iter().any(|other| other.holds(&mount.place) && !ids.contains(&other.id));
        way.iter().all(is_local) && !covered
    };
    let mut chosen: BTreeMap<&str, &Mount> = BTreeMap::new();
    for mount in mounts.iter().filter(|mount| mount.is_asked()) {
        let is_better = match chosen.get(mount.number.as_str()) {
            Some(best) => mount.place.len() < best.place.len(),
            None => chosen.len() < FILE_SYSTEMS_MAX,
        };
        if is_better && can_be_reached(&mount) {
            chosen.insert(&mount.number, mount);
        }
    }
    let mut chosen: Vec<&Mount> = chosen.into_values().collect();
    chosen.sort_by(|a, b| a.place.cmp(&b.place));
    chosen
}

/// What a file system has room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Room {
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes that everybody may still take; some file systems keep more for root.
    pub free_bytes: u64,
    /// Files that there may be; 0: as many as there is room for.
    pub files: u64,
    /// Files that may still be made.
    pub free_files: u64,
}

/// Room of this host's file systems on disks, by where they are mounted. The living host is asked, and its answer recorded.
pub fn room(system: &System) -> Seen<BTreeMap<String, Seen<Room>>> {
    let path = format!("{RECORDED}/{ROOM}");
    if !system.is_live() {
        return match system.text(&path) {
            Seen::Is(text) => {
                serde_json::from_str(&text).unwrap_or_else(|e| Seen::Hidden(format!("understand {path}: {e}")))
            }
            Seen::Absent => Seen::Absent,
            Seen::Hidden(why) => Seen::Hidden(why),
        };
    }
    let room = match mounts(system) {
        Seen::Is(mounts) => {
            let (mut places, mut still) = (Vec::new(), BTreeMap::new());
            for mount in of_disks(&mounts) {
                match stands(system, mount) {
                    Some(why) => drop(still.insert(mount.place.clone(), Seen::Hidden(why))),
                    None => places.push(mount.place.clone()),
                }
            }
            match asked(places) {
                Seen::Is(room) => Seen::Is(room.into_iter().chain(still).collect()),
                Seen::Absent if !still.is_empty() => Seen::Is(still),
                other => other,
            }
        }
        Seen::Absent => Seen::Absent,
        Seen::Hidden(why) => Seen::Hidden(why),
    };
    system.told(&path, &serde_json::to_string(&room).expect("names and numbers are JSON"));
    room
}

/// The file by which a device below a file system does not answer: a disk that does not run, a mapping that is suspended.
fn stands(system: &System, mount: &Mount) -> Option<String> {
    let real = match mount.number.starts_with("0:") {
        true if mount.source.starts_with("/dev/") && !mount.source.contains("..") => system.real(&mount.source),
        true => Seen::Absent,
        false => system.real(&format!("/sys/dev/block/{}", mount.number)),
    };
    let (mut left, mut known) = (vec![real.known()?.rsplit('/').next()?.to_owned()], BTreeSet::new());
    while let Some(name) = left.pop() {
        if known.len() == DEVICES_MAX {
            return Some(format!("/sys/class/block/{name}: below {}", mount.place));
        }
        if !known.insert(name.clone()) {
            continue;
        }
        let folder = format!("/sys/class/block/{name}");
        let says = |file: &str| system.text(&format!("{folder}/{file}")).known();
        if says("dm/suspended").as_deref() == Some("1") {
            return Some(format!("{folder}/dm/suspended: 1"));
        }
        if let Some(state) = says("device/state").filter(|state| !["running", "live"].contains(&state.as_str())) {
            return Some(format!("{folder}/device/state: {state}"));
        }
        if says("partition").is_some() {
            // A partition lies in its disk's folder.
            let whole = system.real(&folder).known().and_then(|real| Some(real.rsplit('/').nth(1)?.to_owned()));
            left.extend(whole);
        }
        left.extend(system.list(&format!("{folder}/slaves")).known().unwrap_or_default());
    }
    None
}

/// Asked in a thread, because a pool that is suspended never answers. While one waits no other is begun.
fn asked(places: Vec<String>) -> Seen<BTreeMap<String, Seen<Room>>> {
    static ASKING: AtomicBool = AtomicBool::new(false);
    if places.is_empty() {
        return Seen::Absent;
    }
    let silent = || Seen::Hidden(format!("statvfs of {}: no answer within {ANSWERS_WITHIN:?}", places.join(", ")));
    if ASKING.swap(true, Ordering::AcqRel) {
        return silent();
    }
    let (send, answer) = mpsc::channel();
    let asker = {
        let places = places.clone();
        move || {
            let room: BTreeMap<_, _> = places.into_iter().map(|place| (place.clone(), ask(&place))).collect();
            ASKING.store(false, Ordering::Release);
            // Who asked may have gone on.
            let _ = send.send(room);
        }
    };
    if std::thread::Builder::new().name("doctor-room".to_owned()).spawn(asker).is_err() {
        ASKING.store(false, Ordering::Release);
        return silent();
    }
    answer.recv_timeout(ANSWERS_WITHIN).map_or_else(|_| silent(), Seen::Is)
}

fn ask(place: &str) -> Seen<Room> {
    let Ok(path) = CString::new(place) else { return Seen::Absent };
    // SAFETY: an all-zero statvfs is a valid one.
    let mut about: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: a terminated path and a place for one statvfs, both alive during the call.
    if unsafe { libc::statvfs(path.as_ptr(), &mut about) } != 0 {
        return Seen::Hidden(format!("{place}: {}", std::io::Error::last_os_error()));
    }
    let bytes = |blocks: u64| blocks.saturating_mul(about.f_frsize);
    Seen::Is(Room {
        used_bytes: bytes(about.f_blocks.saturating_sub(about.f_bfree)),
        free_bytes: bytes(about.f_bavail),
        files: about.f_files,
        free_files: about.f_ffree,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    const LINES: &str = "1 1 0:2 / / rw - rootfs rootfs rw\n\
        22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
        23 22 0:40 / /net rw - nfs4 nas:/share rw,rsize=65536,addr=10.0.0.2\n\
        24 23 8:17 / /net/disk rw - xfs /dev/sdb1 rw\n\
        25 22 8:33 / /a\\040b rw - ext4 /dev/sdc1 rw\n\
        26 22 8:33 / /twin-of-it rw - ext4 /dev/sdc1 rw\n\
        27 22 8:49 / /old/x rw - ext4 /dev/sdd1 rw\n\
        28 22 0:50 / /old rw - tmpfs tmpfs rw\n\
        29 22 7:0 / /snap ro - squashfs /dev/loop0 ro\n\
        30 22 8:65 / /cd ro - ext4 /dev/sde1 ro\n\
        31 22 8:81 / /shown ro - ext4 /dev/sdf1 rw\n\
        damaged\n";

    fn read() -> Vec<Mount> {
        mounts(&Tree::new().file(MOUNTS, LINES).system()).known().expect("it is there")
    }

    #[test]
    fn mounts_are_read_with_the_options_of_both_sides() {
        let all = read();
        assert_eq!(all.len(), 11);
        let net = holding(&all, "/net/x").expect("held");
        assert_eq!((net.kind.as_str(), net.option("rsize"), net.option("wsize")), ("nfs4", Some("65536"), None));
        let root = holding(&all, "/etc").expect("held");
        assert_eq!((root.source.as_str(), root.has("relatime"), root.is_writable()), ("/dev/sda1", true, true));
        assert_eq!(holding(&all, "/a b/c").expect("held").number, "8:33");
        assert_eq!(holding(&all, "/network").expect("held").place, "/", "a name that only begins alike");
        assert!(matches!(mounts(&Tree::new().hidden(MOUNTS).system()), Seen::Hidden(_)));
        assert_eq!(mounts(&Tree::new().system()), Seen::Absent);
    }

    #[test]
    fn only_file_systems_of_this_host_that_nothing_covers_are_asked_and_each_once() {
        let all = read();
        let places: Vec<&str> = of_disks(&all).into_iter().map(|mount| mount.place.as_str()).collect();
        // Not the one below a share, not the one that is covered, not what cannot be written to.
        assert_eq!(places, ["/", "/a b", "/shown"]);
    }

    #[test]
    fn many_mounts_of_one_file_system_are_one_and_pools_of_zfs_are_not_asked() {
        let twins: String = (0..600).map(|n| format!("{} 1 8:1 / /a/{n} rw - ext4 /dev/sda rw\n", n + 9)).collect();
        let lines = format!(
            "1 0 8:1 / / rw - ext4 /dev/sda rw\n{twins}900 1 0:7 / /z rw - zfs t rw\n901 1 8:2 / /b rw - xfs /dev/sdb rw\n"
        );
        let all = mounts(&Tree::new().file(MOUNTS, &lines).system()).known().expect("there");
        let places: Vec<&str> = of_disks(&all).into_iter().map(|mount| mount.place.as_str()).collect();
        assert_eq!(places, ["/", "/b"]);
    }

    #[test]
    fn what_is_on_a_disk_that_does_not_run_is_not_asked() {
        let tree = |state: &str, suspended: &str| {
            Tree::new()
                .file("/sys/block/sda/device/state", state)
                .file("/sys/block/sda/sda1/partition", "1")
                .link("/sys/class/block/sda", "../../block/sda")
                .link("/sys/class/block/sda1", "../../block/sda/sda1")
                .file("/sys/block/dm-0/dm/suspended", suspended)
                .file("/sys/block/dm-0/slaves/sda1/x", "")
                .file("/sys/block/dm-0/slaves/dm-0/x", "")
                .link("/sys/class/block/dm-0", "../../block/dm-0")
                .link("/sys/dev/block/253:0", "../../block/dm-0")
        };
        let mount = Mount { number: "253:0".to_owned(), ..Mount::default() };
        let says = |state: &str, suspended: &str| stands(&tree(state, suspended).system(), &mount);
        assert_eq!(says("running\n", "0"), None);
        assert_eq!(says("blocked\n", "0").as_deref(), Some("/sys/class/block/sda/device/state: blocked"));
        assert_eq!(says("running\n", "1").as_deref(), Some("/sys/class/block/dm-0/dm/suspended: 1"));
        assert_eq!(stands(&Tree::new().system(), &mount), None);
    }

    #[test]
    fn circles_of_mounts_end() {
        let circle = "5 6 8:1 / /a rw - ext4 /dev/sda rw\n6 5 8:2 / /b rw - ext4 /dev/sdb rw\n";
        let all = mounts(&Tree::new().file(MOUNTS, circle).system()).known().expect("there");
        assert_eq!(of_disks(&all).len(), 2);
    }

    #[test]
    fn this_host_answers_and_what_is_not_there_does_not() {
        let Seen::Is(of_root) = ask("/") else { panic!("the root is there") };
        assert!(of_root.used_bytes > 0);
        assert!(matches!(ask("/no such place"), Seen::Hidden(why) if why.starts_with("/no such place: ")));
        let (system, recorder) = System::live().recording();
        let live = room(&system);
        // A container may have no file system of disks that it sees.
        assert!(!matches!(&live, Seen::Is(all) if all.is_empty()), "{live:?}");
        assert!(recorder.finish([]).to_json().expect("JSON").contains("/forebay/room.json"));
    }

    #[test]
    fn a_record_has_what_was_answered_and_a_damaged_one_is_told() {
        let told =
            r#"{"is":{"/":{"is":{"used_bytes":9,"free_bytes":1,"files":5,"free_files":4}},"/b":{"hidden":"why"}}}"#;
        let tree = Tree::new().file("/forebay/room.json", told);
        let Seen::Is(all) = room(&tree.system()) else { panic!("it is there") };
        assert_eq!(all["/"], Seen::Is(Room { used_bytes: 9, free_bytes: 1, files: 5, free_files: 4 }));
        assert_eq!(all["/b"], Seen::Hidden("why".to_owned()));
        assert_eq!(room(&Tree::new().system()), Seen::Absent);
        let damaged = room(&Tree::new().file("/forebay/room.json", "{").system());
        assert!(matches!(damaged, Seen::Hidden(why) if why.contains("/forebay/room.json")));
    }
}
