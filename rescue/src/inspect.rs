//! `forebay inspect`: what lies on a tier, or in the journal beside an image, for people and scripts. Never writes.

use crate::tier_reader::{Damage, Found, TierContent, TierReader};
use anyhow::Result;
use forebay_api::checked::without_controls;
use forebay_api::units::show_size;
use forebay_core::cluster::{Part, Pin};
use forebay_core::format::{Checkpoint, Kind, Standing, TierKind, Version};
use forebay_core::types::{BLOCK_BYTES, Lsn};
use forebay_io::journal::{self, AreaState, BatchFound, Uuid, Verdict};
use serde::Serialize;
use std::path::Path;

#[derive(Serialize)]
struct Inspection {
    path: String,
    version: u16,
    /// Identity of this tier, random; none in version 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    tier: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_use_by: Option<String>,
    volume: String,
    name: String,
    size_bytes: u64,
    created_unix_s: u64,
    kind: &'static str,
    tier_bytes: u64,
    layout: Layout,
    checkpoints: Vec<CheckpointLine>,
    synced_through_batch: u64,
    records: usize,
    records_dirty: usize,
    records_discarded: usize,
    payloads_bad: usize,
    log: Vec<RecordLine>,
    damage: Vec<Damage>,
}

#[derive(Serialize)]
struct Layout {
    payload_first: u32,
    payload_blocks: u32,
    ranges_max: u32,
    segments: u32,
    segment_blocks: u32,
    summary_blocks: u32,
    table_blocks: u32,
}

#[derive(Serialize)]
struct CheckpointLine {
    sequence: u64,
    start: u32,
    term: u32,
    destaged: u64,
    accepted: u64,
    batches_synced: u64,
    size_bytes: u64,
    clean: bool,
    life: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<HostLine>,
    /// Of one of several tiers that hold the volume's log.
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<MemberLine>,
}

#[derive(Serialize)]
struct HostLine {
    machine: String,
    boot: String,
}

#[derive(Serialize)]
struct MemberLine {
    config: u32,
    agreed: bool,
    committed: u64,
    mark: u64,
    window: WindowLine,
    size_bytes: u64,
    pins: Vec<PinLine>,
}

/// What may be under way to the backing: records above one position up to another, and of a zeroed range a part only.
#[derive(Serialize)]
struct WindowLine {
    above: u64,
    through: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    part: Option<PartLine>,
}

#[derive(Serialize)]
struct PartLine {
    offset: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct PinLine {
    term: u32,
    window: WindowLine,
}

fn window(above: Lsn, through: Lsn, part: Part) -> WindowLine {
    let bytes = u64::from(part.blocks) * BLOCK_BYTES;
    let part = (bytes > 0).then(|| PartLine { offset: part.block.0.saturating_mul(BLOCK_BYTES), bytes });
    WindowLine { above: above.0, through: through.0, part }
}

impl From<&Checkpoint> for CheckpointLine {
    fn from(c: &Checkpoint) -> CheckpointLine {
        let member = |standing: &Standing| {
            let mark = &standing.mark;
            let pin = |pin: &Pin| PinLine { term: pin.term.0, window: window(pin.above, pin.through, pin.part) };
            MemberLine {
                config: standing.epoch.0,
                agreed: standing.agreed,
                committed: standing.committed.0,
                mark: mark.number.0,
                window: window(mark.watermark, mark.through, mark.part),
                size_bytes: mark.size_bytes,
                pins: mark.pins.iter().map(pin).collect(),
            }
        };
        let id = |bytes: &[u8; 16]| Uuid(bytes).to_string();
        CheckpointLine {
            sequence: c.sequence,
            start: c.start.0,
            term: c.term.0,
            destaged: c.destaged.0,
            accepted: c.accepted.0,
            batches_synced: c.batches_synced,
            size_bytes: c.size_bytes,
            clean: c.clean,
            life: c.life,
            host: c.host.map(|host| HostLine { machine: id(&host.machine), boot: id(&host.boot) }),
            member: c.standing.as_ref().map(member),
        }
    }
}

#[derive(Serialize)]
struct RecordLine {
    lsn: u64,
    term: u32,
    group: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    batch: Option<u64>,
    kind: &'static str,
    offset: u64,
    bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sectors: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_block: Option<u32>,
    dirty: bool,
    superseded: bool,
}

fn line(found: &Found, content: &TierContent) -> RecordLine {
    let r = &found.record;
    let (kind, bytes, sectors) = match r.kind {
        Kind::Data { mask, .. } => ("data", mask.bytes(), Some(mask.0)),
        Kind::ZeroSectors { mask } => ("zero-sectors", mask.bytes(), Some(mask.0)),
        Kind::ZeroBlocks { blocks, hole: false } => ("zero", u64::from(blocks) * BLOCK_BYTES, None),
        Kind::ZeroBlocks { blocks, hole: true } => ("trim", u64::from(blocks) * BLOCK_BYTES, None),
    };
    RecordLine {
        lsn: r.lsn.0,
        term: r.term.0,
        group: r.group.0,
        batch: found.sequence,
        kind,
        offset: r.block.byte(),
        bytes,
        sectors,
        payload_block: found.payload.filter(|_| r.has_payload()).map(|b| b.0),
        dirty: r.lsn > content.destaged(),
        superseded: found.superseded,
    }
}

#[derive(Serialize)]
struct JournalInspection {
    path: String,
    volume: String,
    areas_bytes: u64,
    areas: Vec<AreaLine>,
    /// The batch that a replay without the tier would apply.
    newest: Option<u64>,
}

#[derive(Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
enum AreaLine {
    Empty,
    Incomplete { sequence: Option<u64>, reason: String },
    Complete { sequence: u64, term: u32, through: u64, records: usize, payload_blocks: u32 },
}

impl From<AreaState> for AreaLine {
    fn from(state: AreaState) -> AreaLine {
        match state {
            AreaState::Empty => AreaLine::Empty,
            AreaState::Incomplete { sequence, reason } => AreaLine::Incomplete { sequence, reason },
            AreaState::Complete(BatchFound { sequence, through, term, records, payload_blocks }) => {
                AreaLine::Complete { sequence, term: term.0, through: through.0, records, payload_blocks }
            }
        }
    }
}

/// What a journal holds. An incomplete batch is no damage: it is what a loss of power leaves.
fn inspect_journal(path: &Path) -> Result<JournalInspection> {
    let found = journal::inspect(path)?;
    Ok(JournalInspection {
        path: found.path.display().to_string(),
        volume: Uuid(&found.volume).to_string(),
        areas_bytes: u64::from(found.blocks) * BLOCK_BYTES,
        newest: match found.verdict {
            Verdict::NothingToApply => None,
            Verdict::AlreadyInBacking(batch) | Verdict::Apply(batch) => Some(batch.sequence),
        },
        areas: found.areas.into_iter().map(AreaLine::from).collect(),
    })
}

fn journal_text(i: &JournalInspection) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let _ = writeln!(out, "journal   {} ({})", i.path, show_size(i.areas_bytes));
    let _ = writeln!(out, "volume    {}", i.volume);
    for (number, area) in i.areas.iter().enumerate() {
        let text = match area {
            AreaLine::Empty => "empty".to_owned(),
            AreaLine::Incomplete { sequence, reason } => {
                let batch = sequence.map_or("a batch".to_owned(), |sequence| format!("batch {sequence}"));
                format!("{batch}, incomplete and never applied: {reason}")
            }
            AreaLine::Complete { sequence, term, through, records, payload_blocks } => format!(
                "batch {sequence} of term {term}, complete: {records} records, {payload_blocks} payload blocks, \
                 everything up to log position {through}"
            ),
        };
        let _ = writeln!(out, "area {number}    {text}");
    }
    let _ = match i.newest {
        Some(sequence) => writeln!(out, "replay    batch {sequence}, unless the tier says that the image has it"),
        None => writeln!(out, "replay    nothing"),
    };
    out
}

/// Prints everything; true when nothing was damaged.
pub fn run(path: &Path, json: bool) -> Result<bool> {
    let (text, whole) = describe(path, json)?;
    // A closed pipe (`| head`) is no failure worth a word.
    let _ = std::io::Write::write_all(&mut std::io::stdout().lock(), text.as_bytes());
    Ok(whole)
}

/// Everything that a tier or journal holds, as text or JSON, and whether nothing was damaged.
pub fn describe(path: &Path, json: bool) -> Result<(String, bool)> {
    let as_json = |of: serde_json::Result<String>| of.map(|text| text + "\n");
    if journal::is_journal(path).unwrap_or(false) {
        let found = inspect_journal(path)?;
        let text =
            if json { as_json(serde_json::to_string_pretty(&found))? } else { without_controls(&journal_text(&found)) };
        return Ok((text, true));
    }
    let found = inspect_tier(path)?;
    // The name in it is the tier's, which anybody may have written.
    let text = if json { as_json(serde_json::to_string_pretty(&found))? } else { without_controls(&tier_text(&found)) };
    Ok((text, found.damage.is_empty()))
}

fn inspect_tier(path: &Path) -> Result<Inspection> {
    let reader = TierReader::open(path)?;
    let in_use_by = reader.in_use_by();
    let mut content = reader.content()?;
    let volume = content.superblock.volume;
    let destaged = content.destaged();
    let mut payloads_bad = 0;
    // Other slots may be in use for something newer already.
    for found in content.records.iter().filter(|f| f.payload.is_some() && !f.superseded && f.record.lsn > destaged) {
        if let Err(damage) = reader.payload(&volume, found) {
            payloads_bad += 1;
            content.damage.push(damage);
        }
    }
    let layout = &content.superblock.layout;
    Ok(Inspection {
        path: path.display().to_string(),
        version: content.superblock.version as u16,
        tier: match content.superblock.version {
            Version::One => None,
            Version::Two => Some(format!("{:016x}", content.superblock.tier)),
        },
        in_use_by,
        volume: Uuid(&volume).to_string(),
        name: content.name(),
        size_bytes: content.size_bytes(),
        created_unix_s: content.superblock.created_unix_s,
        kind: match layout.kind {
            TierKind::Memory => "memory",
            TierKind::Flash => "flash",
        },
        tier_bytes: u64::from(layout.tier_blocks) * BLOCK_BYTES,
        layout: Layout {
            payload_first: layout.payload_first,
            payload_blocks: layout.payload_blocks,
            ranges_max: layout.ranges_max,
            segments: layout.segments(),
            segment_blocks: layout.segment_blocks,
            summary_blocks: layout.summary_blocks,
            table_blocks: layout.table_blocks,
        },
        checkpoints: content.checkpoints.iter().map(CheckpointLine::from).collect(),
        synced_through_batch: content.synced_through,
        records: content.records.len(),
        records_dirty: content.records.iter().filter(|f| f.record.lsn > content.destaged()).count(),
        records_discarded: content.discarded,
        payloads_bad,
        log: content.records.iter().map(|f| line(f, &content)).collect(),
        damage: content.damage,
    })
}

/// What one of several tiers must remember, below its checkpoint.
fn member_text(c: &CheckpointLine, m: &MemberLine) -> String {
    use std::fmt::Write;
    let window_text = |w: &WindowLine| {
        let part = w.part.as_ref().map(|part| format!(", of it {} bytes at {}", part.bytes, part.offset));
        format!("{} to {}{}", w.above, w.through, part.unwrap_or_default())
    };
    let mut out = String::new();
    let agreed = if m.agreed { "agreed" } else { "sealed" };
    let _ = writeln!(
        out,
        "  member: life {}, epoch {}, {agreed}, committed {}, mark {}: window {}, size {}",
        c.life,
        m.config,
        m.committed,
        m.mark,
        window_text(&m.window),
        show_size(m.size_bytes)
    );
    for pin in &m.pins {
        let _ = writeln!(out, "  pinned: window of term {}: {}", pin.term, window_text(&pin.window));
    }
    out
}

fn tier_text(i: &Inspection) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    let tier = i.tier.as_ref().map_or(String::new(), |tier| format!(", {tier}"));
    let _ =
        writeln!(out, "tier      {} ({}, {}, version {}{tier})", i.path, i.kind, show_size(i.tier_bytes), i.version);
    if let Some(holder) = &i.in_use_by {
        let _ = writeln!(
            out,
            "in use    by {holder}: the log moves while it is read, so what looks damaged below may be a write under way"
        );
    }
    let _ = writeln!(out, "volume    {} {} ({})", i.name, i.volume, show_size(i.size_bytes));
    for c in &i.checkpoints {
        let _ = writeln!(
            out,
            "checkpoint {}: start {}, term {}, destaged {}, accepted {}, batches synced {}, size {}{}",
            c.sequence,
            c.start,
            c.term,
            c.destaged,
            c.accepted,
            c.batches_synced,
            show_size(c.size_bytes),
            if c.clean { ", clean" } else { "" }
        );
        if let Some(member) = &c.member {
            out += &member_text(c, member);
        }
    }
    let _ = writeln!(
        out,
        "records   {} ({} not yet in the backing), {} discarded",
        i.records, i.records_dirty, i.records_discarded
    );
    if !i.log.is_empty() {
        let _ = writeln!(
            out,
            "\n{:>10} {:>5} {:>7} {:>8}  {:<12} {:>16} {:>12}  state",
            "lsn", "term", "group", "batch", "kind", "offset", "bytes"
        );
    }
    for r in &i.log {
        let batch = r.batch.map_or("-".to_owned(), |b| b.to_string());
        let state = match (r.dirty, r.superseded) {
            (true, false) => "dirty",
            (true, true) => "superseded",
            (false, _) => "destaged",
        };
        let _ = writeln!(
            out,
            "{:>10} {:>5} {:>7} {:>8}  {:<12} {:>16} {:>12}  {state}",
            r.lsn, r.term, r.group, batch, r.kind, r.offset, r.bytes
        );
    }
    if i.damage.is_empty() {
        let _ = writeln!(out, "\nno damage found");
    } else {
        let _ = writeln!(out, "\ndamage:");
        for d in &i.damage {
            let _ = writeln!(out, "  at byte {}: {}", d.byte, d.reason);
        }
    }
    out
}
