//! What a volume, or the image behind it, may hold after a fault, given the journal of the load.
//!
//! | fault | what each sector may hold |
//! |---|---|
//! | daemon killed ([`volume_after_kill`]) | the newest acknowledged write, or a later one that has no reply; once read, it stays |
//! | power lost ([`volume_after_power_loss`]) | the newest write covered by an acknowledged flush or FUA, or any later one |
//! | all logs lost ([`image`]) | one barrier group g for all sectors: everything up to g, and of group g+1 any part |
//!
//! A request that was answered with an error, or not at all, may have happened or not, sector by sector.

use super::journal::{History, Op, Record};
use super::{SECTOR_BYTES, Seen, see};
use crate::nbd::{Client, Target};
use std::collections::HashMap;
use std::fmt::Write as _;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

/// Verdict of a check that passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Sectors that were read.
    pub sectors: u64,
    /// Sectors that hold a pattern.
    pub written: u64,
    /// Sectors where several contents were allowed.
    pub open: u64,
    /// Requests of the load that the promise covers.
    pub promised: u64,
    /// For [`image`]: the barrier groups that explain it, lowest and highest, and the number of groups begun.
    pub groups: Option<(u32, u32, u32)>,
    /// For [`volume_after_kill`]: what was open and is settled now; to be appended to the journal.
    pub settled: Vec<Record>,
}

/// One request as the journal tells it.
#[derive(Clone, Debug)]
struct Request {
    seq: u64,
    op: Op,
    fua: bool,
    offset: u64,
    length: u64,
    acknowledged: bool,
    /// Covered by an acknowledged flush, or FUA and acknowledged.
    durable: bool,
    /// Barrier group: barriers acknowledged before it was issued.
    group: u32,
}

impl Request {
    fn content(&self) -> Seen {
        match self.op {
            Op::Write => Seen::Write(self.seq),
            Op::Zero | Op::Trim => Seen::Zeros,
            Op::Flush => unreachable!("a flush has no sectors"),
        }
    }

    fn describe(&self) -> String {
        let answer = if self.acknowledged { "acknowledged" } else { "not acknowledged" };
        let durable = if self.durable { ", flushed" } else { "" };
        let fua = if self.fua { " with FUA" } else { "" };
        format!(
            "#{} ({:?}{fua} of bytes {}..{}, group {}, {answer}{durable})",
            self.seq,
            self.op,
            self.offset,
            self.offset + self.length,
            self.group
        )
    }
}

/// What the versions of a sector are made of.
#[derive(Clone, Copy, Debug)]
enum Version {
    Request(u32),
    Settled(Seen),
}

struct Model {
    run: u64,
    from: u64,
    to: u64,
    requests: Vec<Request>,
    /// Versions of each sector in the order of their issue.
    sectors: Vec<Vec<Version>>,
    groups: u32,
}

impl Model {
    /// `durable_from` is the part of the journal whose acknowledged barriers count; the rest is "later".
    fn new(history: &History, durable_from: &[Record]) -> Model {
        let mut requests: Vec<Request> = Vec::new();
        let mut index: HashMap<u64, u32> = HashMap::new();
        let sectors = ((history.area_to - history.area_from) / SECTOR_BYTES) as usize;
        let mut versions: Vec<Vec<Version>> = vec![Vec::new(); sectors];
        let mut group = 0;
        let sector_of = |byte: u64| ((byte - history.area_from) / SECTOR_BYTES) as usize;
        for record in &history.records {
            match *record {
                Record::Begin { .. } => {}
                Record::Issue { seq, op, fua, offset, length } => {
                    let number = requests.len() as u32;
                    index.insert(seq, number);
                    requests.push(Request { seq, op, fua, offset, length, acknowledged: false, durable: false, group });
                    if op != Op::Flush {
                        for sector in &mut versions[sector_of(offset)..sector_of(offset + length)] {
                            sector.push(Version::Request(number));
                        }
                    }
                }
                Record::Reply { seq, error: 0 } => {
                    let request = &mut requests[index[&seq] as usize];
                    request.acknowledged = true;
                    group += u32::from(request.fua || request.op == Op::Flush);
                }
                Record::Reply { .. } => {}
                Record::Settled { offset, seq } => {
                    let seen = if seq == 0 { Seen::Zeros } else { Seen::Write(seq) };
                    versions[sector_of(offset)].push(Version::Settled(seen));
                }
            }
        }
        // What an acknowledged flush covers: every request answered before the flush was issued.
        let mut answered: Vec<u32> = Vec::new();
        let mut answered_before: HashMap<u64, usize> = HashMap::new();
        let mut covered = 0;
        for record in durable_from {
            match *record {
                Record::Issue { seq, op: Op::Flush, .. } => {
                    answered_before.insert(seq, answered.len());
                }
                Record::Reply { seq, error: 0 } => {
                    let number = index[&seq];
                    if let Some(&before) = answered_before.get(&seq) {
                        for &n in answered.get(covered..before).unwrap_or_default() {
                            requests[n as usize].durable = true;
                        }
                        covered = covered.max(before);
                    } else {
                        answered.push(number);
                        if requests[number as usize].fua {
                            requests[number as usize].durable = true;
                        }
                    }
                }
                Record::Begin { .. } | Record::Issue { .. } | Record::Reply { .. } | Record::Settled { .. } => {}
            }
        }
        Model {
            run: history.run,
            from: history.area_from,
            to: history.area_to,
            requests,
            sectors: versions,
            groups: group + 1,
        }
    }

    fn content(&self, version: Version) -> Seen {
        match version {
            Version::Request(number) => self.requests[number as usize].content(),
            Version::Settled(seen) => seen,
        }
    }

    fn describe(&self, version: Version) -> String {
        match version {
            Version::Request(number) => self.requests[number as usize].describe(),
            Version::Settled(seen) => format!("{seen}, as an earlier check found it"),
        }
    }

    /// The newest version for which `firm` holds, if any, and everything after it.
    fn newest_firm<'m>(
        &self,
        versions: &'m [Version],
        firm: impl Fn(&Request) -> bool,
    ) -> (Option<Version>, &'m [Version]) {
        let at = versions.iter().rposition(|version| match *version {
            Version::Request(number) => firm(&self.requests[number as usize]),
            Version::Settled(_) => true,
        });
        match at {
            Some(at) => (Some(versions[at]), &versions[at + 1..]),
            None => (None, versions),
        }
    }

    fn history_of(&self, sector: usize) -> String {
        let versions = &self.sectors[sector];
        let mut text = String::new();
        if versions.len() > 8 {
            let _ = write!(text, "\n    ({} earlier ones)", versions.len() - 8);
        }
        for &version in &versions[versions.len().saturating_sub(8)..] {
            let _ = write!(text, "\n    {}", self.describe(version));
        }
        if versions.is_empty() {
            text.push_str("\n    nothing was ever written to it");
        }
        text
    }
}

/// Reads sectors of the thing under test.
trait Sectors {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), String>;
}

impl Sectors for Client {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        let piece = self.request_bytes_max as usize / SECTOR_BYTES as usize * SECTOR_BYTES as usize;
        for (i, part) in buffer.chunks_mut(piece).enumerate() {
            let at = offset + (i * piece) as u64;
            let length = part.len();
            let read = Client::read(self, at, part).map_err(|e| format!("read of {length} bytes at {at}: {e}"))?;
            read.map_err(|e| format!("read of {length} bytes at {at}: {e}"))?;
        }
        Ok(())
    }
}

impl Sectors for File {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<(), String> {
        // A backing may be shorter than the volume: what was never written to it reads as zeros.
        let mut done = 0;
        while done < buffer.len() {
            match self.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(format!("read of the image at {offset}: {e}")),
            }
        }
        buffer[done..].fill(0);
        Ok(())
    }
}

fn scan(model: &Model, source: &mut dyn Sectors, mut visit: impl FnMut(usize, Seen)) -> Result<Verdict, String> {
    let mut verdict = Verdict::default();
    let mut buffer = vec![0; 1 << 20];
    let mut at = model.from;
    while at < model.to {
        let length = (model.to - at).min(buffer.len() as u64) as usize;
        source.read(at, &mut buffer[..length])?;
        for sector in buffer[..length].chunks_exact(SECTOR_BYTES as usize) {
            let seen = see(sector, model.run, at);
            verdict.written += u64::from(seen != Seen::Zeros);
            visit(verdict.sectors as usize, seen);
            verdict.sectors += 1;
            at += SECTOR_BYTES;
        }
    }
    Ok(verdict)
}

/// Collects failures: the first in full, the others counted.
#[derive(Default)]
struct Failures {
    first: Option<String>,
    count: u64,
}

impl Failures {
    fn add(&mut self, describe: impl FnOnce() -> String) {
        self.count += 1;
        self.first.get_or_insert_with(describe);
    }

    fn into_result(self, verdict: Verdict) -> Result<Verdict, String> {
        match self.first {
            None => Ok(verdict),
            Some(first) => Err(format!("{} of {} sectors are wrong. The first: {first}", self.count, verdict.sectors)),
        }
    }
}

fn check_volume(
    model: &Model,
    source: &mut dyn Sectors,
    firm: impl Fn(&Request) -> bool + Copy,
    promise: &str,
) -> Result<Verdict, String> {
    let mut failures = Failures::default();
    let mut settled = Vec::new();
    let mut open = 0;
    let mut verdict = scan(model, source, |sector, seen| {
        let versions = &model.sectors[sector];
        let (newest, later) = model.newest_firm(versions, firm);
        let floor = newest.map_or(Seen::Zeros, |v| model.content(v));
        let allowed = seen == floor || later.iter().any(|&v| model.content(v) == seen);
        let offset = model.from + sector as u64 * SECTOR_BYTES;
        if !allowed {
            failures.add(|| {
                let must = newest.map_or("zeros (nothing before it counts)".into(), |v| model.describe(v));
                format!(
                    "the sector at byte {offset} (block {}) holds {seen}. By {promise} it must hold {must}, or one of the {} versions after it. Its versions, oldest first:{}",
                    offset / 4096,
                    later.len(),
                    model.history_of(sector)
                )
            });
        } else if !later.is_empty() {
            open += 1;
            let seq = if let Seen::Write(seq) = seen { seq } else { 0 };
            settled.push(Record::Settled { offset, seq });
        }
    })?;
    verdict.open = open;
    verdict.promised = model.requests.iter().filter(|request| firm(request)).count() as u64;
    verdict.settled = settled;
    failures.into_result(verdict)
}

fn connect(target: &Target) -> Result<Client, String> {
    Client::connect_within(target, Duration::from_secs(10)).map_err(|e| format!("connect to {target:?}: {e}"))
}

/// The daemon was killed and has been started again: every acknowledged write is there.
///
/// The verdict's `settled` records are to be appended to the journal: what was open may not change once it was read.
pub fn volume_after_kill(history: &History, target: &Target) -> Result<Verdict, String> {
    let model = Model::new(history, &[]);
    let mut client = connect(target)?;
    check_volume(&model, &mut client, |r| r.acknowledged, "the promise for acknowledged writes")
}

/// Checks and settles in one step.
pub fn settle_after_kill(journal: &Path, target: &Target) -> Result<Verdict, String> {
    let verdict = volume_after_kill(&History::read(journal)?, target)?;
    super::journal::append_settled(journal, &verdict.settled)?;
    Ok(verdict)
}

/// Power was lost after the reply to request `until` had been recorded (`None`: after the whole journal): everything
/// that an acknowledged flush or FUA covers is there.
pub fn volume_after_power_loss(history: &History, target: &Target, until: Option<u64>) -> Result<Verdict, String> {
    let model = power_model(history, until)?;
    let mut client = connect(target)?;
    check_volume(&model, &mut client, |r| r.durable, "the promise for flushed writes")
}

/// The same for an image that a drained volume has left, or any plain disk.
pub fn disk_after_power_loss(history: &History, image: &Path, until: Option<u64>) -> Result<Verdict, String> {
    let model = power_model(history, until)?;
    let mut file = open(image)?;
    check_volume(&model, &mut file, |r| r.durable, "the promise for flushed writes")
}

fn power_model(history: &History, until: Option<u64>) -> Result<Model, String> {
    let counting = match until {
        None => &history.records[..],
        Some(0) => &[],
        Some(seq) => history.until_reply(seq).ok_or_else(|| format!("the journal has no reply to request #{seq}"))?,
    };
    Ok(Model::new(history, counting))
}

fn open(image: &Path) -> Result<File, String> {
    File::open(image).map_err(|e| format!("image {}: {e}", image.display()))
}

/// The image holds every acknowledged write (a volume that was drained and stopped).
pub fn image_complete(history: &History, image: &Path) -> Result<Verdict, String> {
    let model = Model::new(history, &[]);
    let mut file = open(image)?;
    check_volume(&model, &mut file, |r| r.acknowledged, "the promise of a drained volume")
}

/// All logs are lost: the image alone must be everything up to some barrier group g, plus any part of group g+1.
///
/// Each sector allows a range of g (or several, where zeros have several explanations); the ranges of all sectors
/// must have a g in common.
pub fn image(history: &History, image: &Path) -> Result<Verdict, String> {
    if !history.exact {
        return Err("the journal was not made with exact groups: which group a write belongs to is not known".into());
    }
    let model = Model::new(history, &[]);
    let mut file = open(image)?;
    let mut failures = Failures::default();
    // allowed[g] counts the sectors that g explains, as a difference array; g runs from 0 (nothing but part of group
    // 0) to `groups` (everything). Here g means: all groups below g are complete, group g may be there in part.
    let mut steps = vec![0i64; model.groups as usize + 2];
    let mut checked = 0i64;
    let mut lowest: Option<(u32, usize, Seen)> = None;
    let mut highest: Option<(u32, usize, Seen)> = None;
    let mut open = 0;
    let mut verdict = scan(&model, &mut file, |sector, seen| {
        let ranges = model.groups_explaining(sector, seen);
        let offset = model.from + sector as u64 * SECTOR_BYTES;
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else {
            failures.add(|| {
                format!(
                    "the sector at byte {offset} of the image holds {seen}, which no state of it explains. Its versions, oldest first:{}",
                    model.history_of(sector)
                )
            });
            return;
        };
        checked += 1;
        open += u64::from(first.0 != last.1);
        if lowest.is_none_or(|(g, ..)| first.0 > g) {
            lowest = Some((first.0, sector, seen));
        }
        if highest.is_none_or(|(g, ..)| last.1 < g) {
            highest = Some((last.1, sector, seen));
        }
        for &(from, to) in &ranges {
            steps[from as usize] += 1;
            steps[to as usize + 1] -= 1;
        }
    })?;
    verdict.open = open;
    if failures.count == 0 {
        let mut sum = 0;
        let mut explaining = None;
        for g in 0..=model.groups {
            sum += steps[g as usize];
            if sum == checked {
                explaining = Some(explaining.map_or((g, g), |(from, _)| (from, g)));
            }
        }
        match (explaining, lowest, highest) {
            (Some((from, to)), ..) => verdict.groups = Some((from, to, model.groups)),
            (None, Some((low, low_sector, low_seen)), Some((high, high_sector, high_seen))) => failures.add(|| {
                let at = |sector: usize| model.from + sector as u64 * SECTOR_BYTES;
                format!(
                    "no barrier explains the image. The sector at byte {} holds {low_seen}: it says that all groups before {low} are complete. Its versions, oldest first:{}\n  But the sector at byte {} holds {high_seen}: it says that group {high} is at most there in part. Its versions:{}",
                    at(low_sector),
                    model.history_of(low_sector),
                    at(high_sector),
                    model.history_of(high_sector)
                )
            }),
            (None, ..) => verdict.groups = Some((0, model.groups, model.groups)),
        }
    }
    failures.into_result(verdict)
}

impl Model {
    /// The values of g (all groups below g complete, of group g any part) under which this sector may hold what was
    /// seen, as disjoint ascending ranges, both ends included.
    fn groups_explaining(&self, sector: usize, seen: Seen) -> Vec<(u32, u32)> {
        let requests: Vec<&Request> = self.sectors[sector]
            .iter()
            .filter_map(|version| match *version {
                Version::Request(number) => Some(&self.requests[number as usize]),
                // What a restarted daemon showed says nothing about the image alone.
                Version::Settled(_) => None,
            })
            .collect();
        let mut ranges: Vec<(u32, u32)> = Vec::new();
        // Candidate -1 is the sector as it was before the load: zeros.
        for candidate in -1..requests.len() as isize {
            let (content, from) = match usize::try_from(candidate) {
                Err(_) => (Seen::Zeros, 0),
                Ok(i) => (requests[i].content(), requests[i].group),
            };
            if content != seen {
                continue;
            }
            // The next version that certainly happened must not be in a complete group.
            let next = requests[(candidate + 1) as usize..].iter().find(|r| r.acknowledged);
            let to = next.map_or(self.groups, |r| r.group);
            if from > to {
                continue;
            }
            match ranges.last_mut() {
                Some(last) if from <= last.1.saturating_add(1) => last.1 = last.1.max(to),
                _ => ranges.push((from, to)),
            }
        }
        ranges
    }
}

#[cfg(test)]
mod tests {
    use super::super::fill;
    use super::*;
    use std::path::PathBuf;

    const RUN: u64 = 77;
    const AREA: u64 = 1 << 20;

    struct Script {
        records: Vec<Record>,
        seq: u64,
    }

    impl Script {
        fn new() -> Script {
            Script { records: vec![Record::Begin { run: RUN, area_from: 0, area_to: AREA, exact: true }], seq: 0 }
        }
        fn issue(&mut self, op: Op, fua: bool, offset: u64, length: u64) -> u64 {
            self.seq += 1;
            self.records.push(Record::Issue { seq: self.seq, op, fua, offset, length });
            self.seq
        }
        fn ack(&mut self, seq: u64) {
            self.records.push(Record::Reply { seq, error: 0 });
        }
        fn done(&mut self, op: Op, fua: bool, offset: u64, length: u64) -> u64 {
            let seq = self.issue(op, fua, offset, length);
            self.ack(seq);
            seq
        }
        fn write(&mut self, offset: u64) -> u64 {
            self.done(Op::Write, false, offset, 512)
        }
        fn flush(&mut self) -> u64 {
            self.done(Op::Flush, false, 0, 0)
        }
        fn history(&self) -> History {
            History::from_records(self.records.clone()).unwrap()
        }
    }

    /// An image with the given `(offset, write)` sectors.
    fn image_of(name: &str, sectors: &[(u64, u64)]) -> PathBuf {
        let mut bytes = vec![0; AREA as usize];
        for &(offset, seq) in sectors {
            fill(&mut bytes[offset as usize..offset as usize + 512], RUN, offset, seq);
        }
        let path = std::env::temp_dir().join(format!("forebay-check-{}-{name}", std::process::id()));
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn check_image(script: &Script, name: &str, sectors: &[(u64, u64)]) -> Result<Verdict, String> {
        let path = image_of(name, sectors);
        let result = image(&script.history(), &path);
        std::fs::remove_file(path).unwrap();
        result
    }

    /// The power rule and the kill rule are the same code over NBD; here they look at an image.
    fn check_power(script: &Script, name: &str, until: Option<u64>, sectors: &[(u64, u64)]) -> Result<Verdict, String> {
        let path = image_of(name, sectors);
        let result = disk_after_power_loss(&script.history(), &path, until);
        std::fs::remove_file(path).unwrap();
        result
    }

    fn check_kill(script: &Script, name: &str, sectors: &[(u64, u64)]) -> Result<Verdict, String> {
        let path = image_of(name, sectors);
        let result = image_complete(&script.history(), &path);
        std::fs::remove_file(path).unwrap();
        result
    }

    #[test]
    fn after_a_kill_acknowledged_writes_are_there_and_open_ones_are_either() {
        let mut s = Script::new();
        let a = s.write(0);
        let b = s.issue(Op::Write, false, 0, 512);
        let c = s.issue(Op::Write, false, 1024, 512);
        assert!(check_kill(&s, "kill1", &[(0, a)]).is_ok());
        let both = check_kill(&s, "kill2", &[(0, b), (1024, c)]).unwrap();
        assert_eq!(
            both.settled,
            [Record::Settled { offset: 0, seq: b }, Record::Settled { offset: 1024, seq: c }],
            "what was open is settled by being read"
        );
        let lost = check_kill(&s, "kill3", &[(1024, c)]).unwrap_err();
        assert!(lost.contains("byte 0") && lost.contains("holds zeros") && lost.contains("#1 (Write"), "{lost}");
        assert!(check_kill(&s, "kill4", &[(0, c)]).is_err(), "the write of another place");
        s.records.extend(both.settled);
        assert!(check_kill(&s, "kill5", &[(0, b), (1024, c)]).is_ok());
        let flipped = check_kill(&s, "kill6", &[(0, a), (1024, c)]).unwrap_err();
        assert!(flipped.contains("as an earlier check found it"), "{flipped}");
    }

    #[test]
    fn an_acknowledged_trim_must_read_as_zeros() {
        let mut s = Script::new();
        let a = s.write(512);
        s.done(Op::Trim, false, 0, 4096);
        assert!(check_kill(&s, "trim1", &[]).is_ok());
        assert!(check_kill(&s, "trim2", &[(512, a)]).is_err());
    }

    #[test]
    fn a_request_answered_with_an_error_may_have_happened() {
        let mut s = Script::new();
        let a = s.write(0);
        let b = s.issue(Op::Write, false, 0, 512);
        s.records.push(Record::Reply { seq: b, error: 5 });
        assert!(check_kill(&s, "error1", &[(0, a)]).is_ok());
        assert!(check_kill(&s, "error2", &[(0, b)]).is_ok());
        assert!(check_kill(&s, "error3", &[]).is_err());
    }

    #[test]
    fn after_power_loss_flushed_writes_are_there_and_later_ones_are_any() {
        let mut s = Script::new();
        let a = s.write(0);
        let other = s.write(512);
        let open = s.issue(Op::Write, false, 1024, 512);
        let flush = s.flush();
        s.ack(open);
        let b = s.write(0);
        let c = s.write(0);
        for (name, newest) in [("power1", a), ("power2", b), ("power3", c)] {
            assert!(check_power(&s, name, None, &[(0, newest), (512, other)]).is_ok());
        }
        assert!(check_power(&s, "power4", None, &[(512, other)]).is_err(), "a flushed write is lost");
        assert!(check_power(&s, "power5", None, &[(0, a)]).is_err(), "the other flushed write is lost");
        // A write answered after the flush was issued is not covered by it.
        assert!(check_power(&s, "power6", None, &[(0, c), (512, other), (1024, open)]).is_ok());
        // Before the flush was answered nothing was promised.
        assert!(check_power(&s, "power7", Some(other), &[]).is_ok());
        assert!(check_power(&s, "power8", Some(flush), &[]).is_err());
    }

    #[test]
    fn fua_makes_only_its_own_write_durable() {
        let mut s = Script::new();
        s.write(0);
        let fua = s.done(Op::Write, true, 512, 512);
        assert!(check_power(&s, "fua1", None, &[(512, fua)]).is_ok());
        assert!(check_power(&s, "fua2", None, &[]).is_err());
    }

    #[test]
    fn an_image_of_whole_groups_and_a_part_of_the_next_is_legal() {
        let mut s = Script::new();
        let a = s.write(0);
        let b = s.write(512);
        s.flush();
        let c = s.write(0);
        let d = s.write(1024);
        s.flush();
        let e = s.write(0);
        assert_eq!(check_image(&s, "legal0", &[]).unwrap().groups, Some((0, 0, 3)));
        assert_eq!(check_image(&s, "legal1", &[(0, a)]).unwrap().groups, Some((0, 0, 3)));
        assert_eq!(check_image(&s, "legal2", &[(0, a), (512, b)]).unwrap().groups, Some((0, 1, 3)));
        assert_eq!(check_image(&s, "legal3", &[(0, a), (512, b), (1024, d)]).unwrap().groups, Some((1, 1, 3)));
        assert_eq!(check_image(&s, "legal4", &[(0, e), (512, b), (1024, d)]).unwrap().groups, Some((2, 3, 3)));
        assert_eq!(check_image(&s, "legal5", &[(0, c), (512, b), (1024, d)]).unwrap().groups, Some((1, 2, 3)));
    }

    #[test]
    fn an_image_with_groups_reordered_is_caught_and_named() {
        let mut s = Script::new();
        let a = s.write(0);
        let b = s.write(512);
        s.flush();
        let c = s.write(0);
        s.flush();
        s.write(1024);
        let torn = check_image(&s, "reordered1", &[(0, c)]).unwrap_err();
        assert!(torn.contains("no barrier explains the image"), "{torn}");
        assert!(torn.contains("byte 0 holds write #4") && torn.contains("byte 512 holds zeros"), "{torn}");
        // The image went back: group 1 was complete (its neighbour shows it), and its sector is old again.
        let mut back = Script::new();
        let (x, y) = (back.write(0), back.write(512));
        back.flush();
        back.write(0);
        back.write(512);
        back.flush();
        let z = back.write(1024);
        assert!(check_image(&back, "reordered2", &[(0, x), (512, y), (1024, z)]).is_err());
        assert!(check_image(&s, "reordered3", &[(0, a), (512, b)]).is_ok());
    }

    #[test]
    fn a_foreign_or_damaged_sector_of_an_image_is_caught() {
        let mut s = Script::new();
        let a = s.write(0);
        s.write(4096);
        assert!(check_image(&s, "foreign1", &[(0, a), (8192, 1)]).unwrap_err().contains("nothing was ever written"));
        assert!(check_image(&s, "foreign2", &[(0, 2)]).is_err(), "a write at the place of another");
    }

    #[test]
    fn an_unacknowledged_write_binds_nothing_by_its_absence() {
        let mut s = Script::new();
        let a = s.write(0);
        s.issue(Op::Write, false, 0, 512);
        s.flush();
        let z = s.write(512);
        s.flush();
        assert!(check_image(&s, "absent", &[(0, a), (512, z)]).is_ok());
    }

    #[test]
    fn zeros_with_several_explanations_allow_each_of_them() {
        let mut s = Script::new();
        s.write(0);
        s.flush();
        s.done(Op::Zero, false, 0, 512);
        s.flush();
        let far = s.write(1024);
        // Zeros at 0 fit g = 0 (before the write) and g >= 1 (after the zeroing); the far write needs g >= 2.
        assert_eq!(check_image(&s, "zeros1", &[(1024, far)]).unwrap().groups, Some((2, 3, 3)));
        assert_eq!(check_image(&s, "zeros2", &[]).unwrap().groups, Some((0, 2, 3)));
    }
}
