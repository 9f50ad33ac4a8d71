//! Bodies of messages: the envelope, a kind, and its fields.

use super::{Bytes, PAYLOAD_BLOCKS_MAX, RECORDS_MAX, code, of_code, put_host, put_u16, put_u32, put_u64};
use crate::cluster::*;
use crate::format::{DESCRIPTOR_BYTES, Descriptor, Kind, Reason, payload_checksum};
use crate::message::*;
use crate::types::*;
use alloc::vec::Vec;

/// Where a position may be missing. No log comes that far.
const NO_POSITION: u64 = u64::MAX;

/// Bytes of the envelope and the kind behind it.
pub(super) const ENVELOPE_BYTES: usize = 72;
const PART_BYTES: usize = 12;
const PIN_BYTES: usize = 24 + PART_BYTES;
const MARK_BYTES_MAX: usize = 40 + PART_BYTES + PINS_MAX * PIN_BYTES;

const _: () = assert!(
    ENVELOPE_BYTES + 48 + RECORDS_MAX * DESCRIPTOR_BYTES + MARK_BYTES_MAX <= super::BODY_BYTES_MAX as usize,
    "the largest message fits"
);

/// Number of each kind of message on the wire.
mod kind {
    pub(super) const BEGIN: u8 = 1;
    pub(super) const APPEND: u8 = 2;
    pub(super) const MARK: u8 = 3;
    pub(super) const HELD: u8 = 4;
    pub(super) const BEACON: u8 = 5;
    pub(super) const GRANTED: u8 = 6;
    pub(super) const SEAL: u8 = 7;
    pub(super) const SEALED: u8 = 8;
    pub(super) const FETCH: u8 = 9;
    pub(super) const TAKE_OVER: u8 = 10;
    pub(super) const REFUSED: u8 = 11;
    pub(super) const WHO: u8 = 12;
    pub(super) const HERE: u8 = 13;
    pub(super) const LEARN: u8 = 14;
    pub(super) const ASK: u8 = 15;
    pub(super) const CACHED: u8 = 16;
    pub(super) const KNOW: u8 = 17;
    pub(super) const KNOWN: u8 = 18;
    pub(super) const SAID: u8 = 19;
}

const REFUSALS: [(Refusal, u8); 7] = [
    (Refusal::OldTerm, 1),
    (Refusal::OtherIncarnation, 2),
    (Refusal::BeyondTail, 3),
    (Refusal::NoRoom, 4),
    (Refusal::BeyondSize, 5),
    (Refusal::TierFailed, 6),
    (Refusal::UnknownVolume, 7),
];

fn kind_of(message: &Message) -> u8 {
    match message {
        Message::Log(message) => match message {
            LogMessage::Begin { .. } => kind::BEGIN,
            LogMessage::Append { .. } => kind::APPEND,
            LogMessage::Mark(_) => kind::MARK,
            LogMessage::Held(_) => kind::HELD,
            LogMessage::Said { .. } => kind::SAID,
            LogMessage::Fetch { .. } => kind::FETCH,
            LogMessage::Ask { .. } => kind::ASK,
            LogMessage::Cached { .. } => kind::CACHED,
        },
        Message::Ownership(message) => match message {
            OwnershipMessage::Beacon { .. } => kind::BEACON,
            OwnershipMessage::Granted { .. } => kind::GRANTED,
            OwnershipMessage::Seal => kind::SEAL,
            OwnershipMessage::Sealed { .. } => kind::SEALED,
            OwnershipMessage::TakeOver => kind::TAKE_OVER,
            OwnershipMessage::Who { .. } => kind::WHO,
            OwnershipMessage::Here { .. } => kind::HERE,
            OwnershipMessage::Know { .. } => kind::KNOW,
            OwnershipMessage::Known { .. } => kind::KNOWN,
            OwnershipMessage::Learn { .. } => kind::LEARN,
        },
        Message::Refused { .. } => kind::REFUSED,
    }
}

/// The records of a message that has any.
pub fn records_of(message: &Message) -> &[Descriptor] {
    match message {
        Message::Log(message) => message.records(),
        Message::Ownership(_) | Message::Refused { .. } => &[],
    }
}

/// Payload blocks that go with a message: one for each record that has a payload, in order.
pub fn payload_blocks(message: &Message) -> usize {
    payloads_of(records_of(message))
}

fn payloads_of(records: &[Descriptor]) -> usize {
    records.iter().filter(|record| record.has_payload()).count()
}

/// Oldest version whose speakers know the message: one of an older version would take it for a damaged one.
pub fn version_of(message: &Message) -> u16 {
    match message {
        Message::Log(LogMessage::Said { .. })
        | Message::Ownership(OwnershipMessage::Know { .. } | OwnershipMessage::Known { .. }) => 3,
        Message::Log(LogMessage::Ask { .. } | LogMessage::Cached { .. }) => 2,
        Message::Log(
            LogMessage::Begin { .. }
            | LogMessage::Append { .. }
            | LogMessage::Mark(_)
            | LogMessage::Held(_)
            | LogMessage::Fetch { .. },
        )
        | Message::Ownership(
            OwnershipMessage::Beacon { .. }
            | OwnershipMessage::Granted { .. }
            | OwnershipMessage::Seal
            | OwnershipMessage::Sealed { .. }
            | OwnershipMessage::TakeOver
            | OwnershipMessage::Who { .. }
            | OwnershipMessage::Here { .. }
            | OwnershipMessage::Learn { .. },
        )
        | Message::Refused { .. } => 1,
    }
}

/// Gives each record of a [`LogMessage::Cached`] the checksum of its block, which core does not know: clean cache has none.
pub fn seal_cached<'a>(volume: &[u8; 16], message: &mut Message, bytes_of: impl Fn(usize) -> &'a [u8]) {
    let Message::Log(LogMessage::Cached { records, .. }) = message else { return };
    for (index, record) in records.iter_mut().enumerate() {
        let checksum = payload_checksum(volume, record.block, SectorMask::FULL, record.term, bytes_of(index));
        record.kind = Kind::Data { mask: SectorMask::FULL, checksum };
    }
}

/// What seals a record: its place among the others of its `Append`. Each ends in its own CRC, and CRC is linear: without
/// the place, the body's checksum would not see two records change places.
fn record_place(from: Lsn, index: usize) -> u64 {
    from.0.rotate_left(32) ^ index as u64
}

/// Appends the body.
///
/// # Panics
/// When an `Append` or a mark goes beyond its bounds: who makes messages keeps them.
pub fn encode_message(envelope: &Envelope, message: &Message, out: &mut Vec<u8>) {
    out.extend_from_slice(&envelope.volume);
    put_u32(out, envelope.term.0);
    put_u32(out, envelope.epoch.0);
    for incarnation in [&envelope.from, &envelope.to] {
        put_u64(out, incarnation.node.0);
        put_u64(out, incarnation.tier);
        put_u32(out, incarnation.life);
    }
    out.extend_from_slice(&[kind_of(message), 0, 0, 0, 0, 0, 0, 0]);
    match message {
        Message::Log(message) => put_log_message(out, &envelope.volume, message),
        Message::Ownership(message) => put_ownership_message(out, message),
        Message::Refused { why } => out.push(code(&REFUSALS, *why)),
    }
}

fn put_log_message(out: &mut Vec<u8>, volume: &[u8; 16], message: &LogMessage) {
    match message {
        LogMessage::Begin { tail, committed, whole_from, mark } => {
            [tail, committed, whole_from].iter().for_each(|lsn| put_u64(out, lsn.0));
            put_mark(out, mark);
        }
        LogMessage::Append { from, through, committed, sync, records, mark } => {
            assert!(records.len() <= RECORDS_MAX && payloads_of(records) <= PAYLOAD_BLOCKS_MAX);
            [from, through, committed, sync].iter().for_each(|lsn| put_u64(out, lsn.0));
            put_u16(out, records.len() as u16);
            put_u16(out, u16::from(mark.is_some()));
            for (index, record) in records.iter().enumerate() {
                out.extend_from_slice(&record.encode(volume, record_place(*from, index)));
            }
            mark.iter().for_each(|mark| put_mark(out, mark));
        }
        LogMessage::Mark(mark) => put_mark(out, mark),
        LogMessage::Held(Held { accepted, held, synced, mark, room, host }) => {
            [accepted.0, held.0, synced.map_or(NO_POSITION, |lsn| lsn.0)].iter().for_each(|lsn| put_u64(out, *lsn));
            put_u64(out, mark.0);
            put_u32(out, room.blocks);
            put_u32(out, room.ranges);
            put_host(out, host);
        }
        LogMessage::Said { held, mark } => [held.0, mark.0].iter().for_each(|number| put_u64(out, *number)),
        LogMessage::Fetch { from } => put_u64(out, from.0),
        LogMessage::Ask { number, first, blocks } => {
            [*number, first.0].iter().for_each(|word| put_u64(out, *word));
            put_u32(out, *blocks);
        }
        LogMessage::Cached { number, kept, records } => {
            assert!(records.len() <= ASK_BLOCKS_MAX as usize);
            put_u64(out, *number);
            put_u32(out, *kept);
            put_u16(out, records.len() as u16);
            for (index, record) in records.iter().enumerate() {
                out.extend_from_slice(&record.encode(volume, record_place(Lsn(*number), index)));
            }
        }
    }
}

fn put_ownership_message(out: &mut Vec<u8>, message: &OwnershipMessage) {
    match message {
        OwnershipMessage::Beacon { sent } | OwnershipMessage::Granted { sent } | OwnershipMessage::Who { sent } => {
            put_u64(out, sent.0);
        }
        OwnershipMessage::Seal | OwnershipMessage::TakeOver => {}
        OwnershipMessage::Learn { sent, at } => [sent, at].iter().for_each(|time| put_u64(out, time.0)),
        OwnershipMessage::Here { sent, at, host, fresh } => {
            [sent, at].iter().for_each(|time| put_u64(out, time.0));
            put_host(out, host);
            out.push(u8::from(*fresh));
        }
        OwnershipMessage::Sealed { held, mark, host } => {
            put_u64(out, held.0);
            put_mark(out, mark);
            put_host(out, host);
        }
        OwnershipMessage::Know { sent, rewinds } | OwnershipMessage::Known { sent, rewinds } => {
            put_u64(out, sent.0);
            let Rewinds { open, settled } = rewinds;
            put_u32(out, open.len().min(REWINDS_TOLD_MAX) as u32);
            put_u32(out, settled.len().min(REWINDS_TOLD_MAX) as u32);
            let told = open.iter().take(REWINDS_TOLD_MAX).chain(settled.iter().take(REWINDS_TOLD_MAX));
            told.for_each(|id| put_u64(out, id.0));
        }
    }
}

/// From a body whose checksum was found right.
pub fn decode_message(body: &[u8]) -> Result<(Envelope, Message), Reason> {
    let mut bytes = Bytes { rest: body };
    let volume = bytes.array()?;
    let (term, epoch) = (Term(bytes.u32()?), Epoch(bytes.u32()?));
    // Whatever is taken as seen must leave room for what comes after it.
    if term > TERM_MAX || epoch > EPOCH_MAX {
        return Err("message: a term or epoch that no volume reaches");
    }
    let (from, to) = (bytes.incarnation()?, bytes.incarnation()?);
    let [kind, padding @ ..] = bytes.array::<8>()?;
    if padding != [0; 7] {
        return Err("message: something where nothing may be");
    }
    let envelope = Envelope { volume, term, epoch, from, to };
    let message = match kind {
        kind::REFUSED => {
            Message::Refused { why: of_code(&REFUSALS, bytes.u8()?).ok_or("message: refused for an unknown reason")? }
        }
        _ => match bytes.log_message(kind, &volume)? {
            Some(message) => Message::Log(message),
            None => Message::Ownership(bytes.ownership_message(kind)?.ok_or("message: unknown kind")?),
        },
    };
    bytes.end((envelope, message))
}

fn put_part(out: &mut Vec<u8>, part: Part) {
    put_u64(out, part.block.0);
    put_u32(out, part.blocks);
}

fn put_mark(out: &mut Vec<u8>, mark: &Mark) {
    assert!(mark.pins.len() <= PINS_MAX);
    for number in [mark.number.0, mark.watermark.0, mark.through.0, mark.size_bytes] {
        put_u64(out, number);
    }
    put_part(out, mark.part);
    put_u32(out, mark.pins.len() as u32);
    for pin in &mark.pins {
        put_u64(out, u64::from(pin.term.0));
        put_u64(out, pin.above.0);
        put_u64(out, pin.through.0);
        put_part(out, pin.part);
    }
}

impl Bytes<'_> {
    /// None: the kind is none of the log's.
    fn log_message(&mut self, kind: u8, volume: &[u8; 16]) -> Result<Option<LogMessage>, Reason> {
        let message = match kind {
            kind::BEGIN => {
                let [tail, committed, whole_from] = [self.lsn()?, self.lsn()?, self.lsn()?];
                LogMessage::Begin { tail, committed, whole_from, mark: self.mark()? }
            }
            kind::APPEND => self.append(volume)?,
            kind::MARK => LogMessage::Mark(self.mark()?),
            kind::HELD => {
                let (accepted, held) = (self.lsn()?, self.lsn()?);
                let synced = self.lsn_or_none()?;
                let mark = self.mark_number()?;
                let room = Room { blocks: self.u32()?, ranges: self.u32()? };
                LogMessage::Held(Held { accepted, held, synced, mark, room, host: self.host()? })
            }
            kind::SAID => LogMessage::Said { held: self.lsn()?, mark: self.mark_number()? },
            kind::FETCH => LogMessage::Fetch { from: self.lsn()? },
            kind::ASK => self.ask()?,
            kind::CACHED => self.cached(volume)?,
            _ => return Ok(None),
        };
        Ok(Some(message))
    }

    /// None: the kind is none of ownership's.
    fn ownership_message(&mut self, kind: u8) -> Result<Option<OwnershipMessage>, Reason> {
        let message = match kind {
            kind::BEACON => OwnershipMessage::Beacon { sent: self.instant()? },
            kind::GRANTED => OwnershipMessage::Granted { sent: self.instant()? },
            kind::SEAL => OwnershipMessage::Seal,
            kind::SEALED => OwnershipMessage::Sealed { held: self.lsn()?, mark: self.mark()?, host: self.host()? },
            kind::TAKE_OVER => OwnershipMessage::TakeOver,
            kind::WHO => OwnershipMessage::Who { sent: self.instant()? },
            kind::HERE => {
                let (sent, at) = (self.instant()?, self.instant()?);
                OwnershipMessage::Here { sent, at, host: self.host()?, fresh: self.truth()? }
            }
            kind::LEARN => OwnershipMessage::Learn { sent: self.instant()?, at: self.instant()? },
            kind::KNOW => OwnershipMessage::Know { sent: self.instant()?, rewinds: self.rewinds()? },
            kind::KNOWN => OwnershipMessage::Known { sent: self.instant()?, rewinds: self.rewinds()? },
            _ => return Ok(None),
        };
        Ok(Some(message))
    }

    fn lsn(&mut self) -> Result<Lsn, Reason> {
        match self.u64()? {
            position @ ..=POSITION_MAX => Ok(Lsn(position)),
            _ => Err("message: a position that no log reaches"),
        }
    }

    fn lsn_or_none(&mut self) -> Result<Option<Lsn>, Reason> {
        if self.rest.starts_with(&NO_POSITION.to_le_bytes()) {
            self.u64()?;
            return Ok(None);
        }
        self.lsn().map(Some)
    }

    fn mark_number(&mut self) -> Result<MarkNumber, Reason> {
        self.lsn().map(|number| MarkNumber(number.0))
    }

    fn instant(&mut self) -> Result<Instant, Reason> {
        self.u64().map(Instant)
    }

    fn rewinds(&mut self) -> Result<Rewinds, Reason> {
        let (open, settled) = (self.u32()? as usize, self.u32()? as usize);
        if open.max(settled) > REWINDS_TOLD_MAX {
            return Err("message: more rewinds than one tells of");
        }
        let mut list = |count: usize| -> Result<Vec<RewindId>, Reason> {
            (0..count)
                .map(|_| match RewindId(self.u64()?) {
                    id if id.is_name() => Ok(id),
                    _ => Err("message: a rewind without a name"),
                })
                .collect()
        };
        Ok(Rewinds { open: list(open)?, settled: list(settled)? })
    }

    fn truth(&mut self) -> Result<bool, Reason> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err("message: neither no nor yes"),
        }
    }

    fn incarnation(&mut self) -> Result<Incarnation, Reason> {
        Ok(Incarnation { node: NodeId(self.u64()?), tier: self.u64()?, life: self.u32()? })
    }

    fn part(&mut self) -> Result<Part, Reason> {
        Ok(Part { block: BlockIndex(self.u64()?), blocks: self.u32()? })
    }

    fn mark(&mut self) -> Result<Mark, Reason> {
        let [number, watermark, through, size_bytes] = [self.u64()?, self.u64()?, self.u64()?, self.u64()?];
        let part = self.part()?;
        let count = self.u32()? as usize;
        if count > PINS_MAX {
            return Err("mark: more pins than there may be");
        }
        let mut pins = Vec::with_capacity(count);
        for _ in 0..count {
            let term = u32::try_from(self.u64()?).map_err(|_| "mark: the term of a pin is too large")?;
            pins.push(Pin { term: Term(term), above: self.lsn()?, through: self.lsn()?, part: self.part()? });
        }
        let (number, watermark, through) = (MarkNumber(number), Lsn(watermark), Lsn(through));
        let mark = Mark { number, watermark, through, part, size_bytes, pins };
        if !mark.is_possible() {
            return Err("mark: of what no volume has");
        }
        Ok(mark)
    }

    fn ask(&mut self) -> Result<LogMessage, Reason> {
        let (number, first, blocks) = (self.u64()?, BlockIndex(self.u64()?), self.u32()?);
        if blocks == 0 || blocks > ASK_BLOCKS_MAX {
            return Err("ask: for no block, or for more than an answer may have");
        }
        Ok(LogMessage::Ask { number, first, blocks })
    }

    fn cached(&mut self, volume: &[u8; 16]) -> Result<LogMessage, Reason> {
        let (number, kept, count) = (self.u64()?, self.u32()?, usize::from(self.u16()?));
        if count > ASK_BLOCKS_MAX as usize {
            return Err("cached: more blocks than an answer may have");
        }
        let mut records: Vec<Descriptor> = Vec::with_capacity(count);
        for index in 0..count {
            let place = record_place(Lsn(number), index);
            let record = Descriptor::decode(volume, place, self.take(DESCRIPTOR_BYTES)?)?;
            let record = record.filter(|record| matches!(record.kind, Kind::Data { mask: SectorMask::FULL, .. }));
            records.push(record.ok_or("cached: a record that is not one of a whole block")?);
        }
        Ok(LogMessage::Cached { number, kept, records })
    }

    fn append(&mut self, volume: &[u8; 16]) -> Result<LogMessage, Reason> {
        let [from, through, committed, sync] = [self.lsn()?, self.lsn()?, self.lsn()?, self.lsn()?];
        if from > through || sync > through {
            return Err("append: its positions are out of order");
        }
        let (count, marked) = (usize::from(self.u16()?), self.u16()?);
        if count > RECORDS_MAX || marked > 1 {
            return Err("append: more records or marks than there may be");
        }
        let mut records: Vec<Descriptor> = Vec::with_capacity(count);
        let mut last = from;
        for index in 0..count {
            let record = Descriptor::decode(volume, record_place(from, index), self.take(DESCRIPTOR_BYTES)?)?;
            let record = record.ok_or("append: a record is missing")?;
            if record.lsn <= last || record.lsn > through {
                return Err("append: a record is out of order");
            }
            last = record.lsn;
            records.push(record);
        }
        if payloads_of(&records) > PAYLOAD_BLOCKS_MAX {
            return Err("append: more payload than a message may have");
        }
        let mark = if marked == 1 { Some(self.mark()?) } else { None };
        Ok(LogMessage::Append { from, through, committed, sync, records, mark })
    }
}
