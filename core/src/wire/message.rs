//! Bodies of messages: the envelope, a kind, and its fields.

use super::{Bytes, PAYLOAD_BLOCKS_MAX, RECORDS_MAX, code, of_code, put_host, put_u16, put_u32, put_u64};
use crate::cluster::*;
use crate::format::{DESCRIPTOR_BYTES, Descriptor, Kind, Reason, payload_checksum};
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
        Message::Begin { .. } => kind::BEGIN,
        Message::Append { .. } => kind::APPEND,
        Message::Mark(_) => kind::MARK,
        Message::Held { .. } => kind::HELD,
        Message::Beacon { .. } => kind::BEACON,
        Message::Granted { .. } => kind::GRANTED,
        Message::Seal => kind::SEAL,
        Message::Sealed { .. } => kind::SEALED,
        Message::Fetch { .. } => kind::FETCH,
        Message::TakeOver => kind::TAKE_OVER,
        Message::Refused { .. } => kind::REFUSED,
        Message::Who { .. } => kind::WHO,
        Message::Here { .. } => kind::HERE,
        Message::Learn { .. } => kind::LEARN,
        Message::Ask { .. } => kind::ASK,
        Message::Cached { .. } => kind::CACHED,
        Message::Know { .. } => kind::KNOW,
        Message::Known { .. } => kind::KNOWN,
        Message::Said { .. } => kind::SAID,
    }
}

/// The records of a message that has any.
pub fn records_of(message: &Message) -> &[Descriptor] {
    match message {
        Message::Append { records, .. } | Message::Cached { records, .. } => records,
        Message::Begin { .. }
        | Message::Mark(_)
        | Message::Held { .. }
        | Message::Said { .. }
        | Message::Beacon { .. }
        | Message::Granted { .. }
        | Message::Seal
        | Message::Sealed { .. }
        | Message::Fetch { .. }
        | Message::TakeOver
        | Message::Refused { .. }
        | Message::Who { .. }
        | Message::Here { .. }
        | Message::Learn { .. }
        | Message::Know { .. }
        | Message::Known { .. }
        | Message::Ask { .. } => &[],
    }
}

/// Payload blocks that go with a message: one for each record that has a payload, in order.
pub fn payload_blocks(message: &Message) -> usize {
    records_of(message).iter().filter(|record| record.has_payload()).count()
}

/// Oldest version whose speakers know the message: one of an older version would take it for a damaged one.
pub fn version_of(message: &Message) -> u16 {
    match message {
        Message::Know { .. } | Message::Known { .. } | Message::Said { .. } => 3,
        Message::Ask { .. } | Message::Cached { .. } => 2,
        Message::Begin { .. }
        | Message::Append { .. }
        | Message::Mark(_)
        | Message::Held { .. }
        | Message::Beacon { .. }
        | Message::Granted { .. }
        | Message::Seal
        | Message::Sealed { .. }
        | Message::Fetch { .. }
        | Message::TakeOver
        | Message::Refused { .. }
        | Message::Who { .. }
        | Message::Here { .. }
        | Message::Learn { .. } => 1,
    }
}

/// Gives each record of a [`Message::Cached`] the checksum of its block, which core does not know: clean cache has none.
pub fn seal_cached<'a>(volume: &[u8; 16], message: &mut Message, bytes_of: impl Fn(usize) -> &'a [u8]) {
    let Message::Cached { records, .. } = message else { return };
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
    put_u32(out, envelope.config.0);
    for incarnation in [&envelope.from, &envelope.to] {
        put_u64(out, incarnation.node.0);
        put_u64(out, incarnation.tier);
        put_u32(out, incarnation.life);
    }
    out.extend_from_slice(&[kind_of(message), 0, 0, 0, 0, 0, 0, 0]);
    match message {
        Message::Begin { tail, committed, whole_from, mark } => {
            [tail, committed, whole_from].iter().for_each(|lsn| put_u64(out, lsn.0));
            put_mark(out, mark);
        }
        Message::Append { from, through, committed, sync, records, mark } => {
            assert!(records.len() <= RECORDS_MAX && payload_blocks(message) <= PAYLOAD_BLOCKS_MAX);
            [from, through, committed, sync].iter().for_each(|lsn| put_u64(out, lsn.0));
            put_u16(out, records.len() as u16);
            put_u16(out, u16::from(mark.is_some()));
            for (index, record) in records.iter().enumerate() {
                out.extend_from_slice(&record.encode(&envelope.volume, record_place(*from, index)));
            }
            mark.iter().for_each(|mark| put_mark(out, mark));
        }
        Message::Mark(mark) => put_mark(out, mark),
        Message::Held { accepted, held, synced, mark, room, host } => {
            [accepted.0, held.0, synced.map_or(NO_POSITION, |lsn| lsn.0)].iter().for_each(|lsn| put_u64(out, *lsn));
            put_u64(out, mark.0);
            put_u32(out, room.blocks);
            put_u32(out, room.ranges);
            put_host(out, host);
        }
        Message::Beacon { sent } | Message::Granted { sent } | Message::Who { sent } => put_u64(out, sent.0),
        Message::Seal | Message::TakeOver => {}
        Message::Learn { sent, at } => [sent, at].iter().for_each(|time| put_u64(out, time.0)),
        Message::Here { sent, at, host, fresh } => {
            [sent, at].iter().for_each(|time| put_u64(out, time.0));
            put_host(out, host);
            out.push(u8::from(*fresh));
        }
        Message::Sealed { held, mark, host } => {
            put_u64(out, held.0);
            put_mark(out, mark);
            put_host(out, host);
        }
        Message::Fetch { from } => put_u64(out, from.0),
        Message::Ask { number, first, blocks } => {
            [*number, first.0].iter().for_each(|word| put_u64(out, *word));
            put_u32(out, *blocks);
        }
        Message::Cached { number, kept, records } => {
            assert!(records.len() <= ASK_BLOCKS_MAX as usize);
            put_u64(out, *number);
            put_u32(out, *kept);
            put_u16(out, records.len() as u16);
            for (index, record) in records.iter().enumerate() {
                out.extend_from_slice(&record.encode(&envelope.volume, record_place(Lsn(*number), index)));
            }
        }
        Message::Know { sent, rewinds } | Message::Known { sent, rewinds } => {
            put_u64(out, sent.0);
            let Rewinds { open, settled } = rewinds;
            put_u32(out, open.len().min(REWINDS_TOLD_MAX) as u32);
            put_u32(out, settled.len().min(REWINDS_TOLD_MAX) as u32);
            let told = open.iter().take(REWINDS_TOLD_MAX).chain(settled.iter().take(REWINDS_TOLD_MAX));
            told.for_each(|id| put_u64(out, id.0));
        }
        Message::Said { held, mark } => [held.0, mark.0].iter().for_each(|number| put_u64(out, *number)),
        Message::Refused { why } => out.push(code(&REFUSALS, *why)),
    }
}

/// From a body whose checksum was found right.
pub fn decode_message(body: &[u8]) -> Result<(Envelope, Message), Reason> {
    let mut bytes = Bytes { rest: body };
    let volume = bytes.array()?;
    let (term, config) = (Term(bytes.u32()?), Config(bytes.u32()?));
    // Whatever is taken as seen must leave room for what comes after it.
    if term > TERM_MAX || config > CONFIG_MAX {
        return Err("message: a term or config that no volume reaches");
    }
    let (from, to) = (bytes.incarnation()?, bytes.incarnation()?);
    let [kind, padding @ ..] = bytes.array::<8>()?;
    if padding != [0; 7] {
        return Err("message: something where nothing may be");
    }
    let envelope = Envelope { volume, term, config, from, to };
    let message = match kind {
        kind::BEGIN => {
            let [tail, committed, whole_from] = [bytes.lsn()?, bytes.lsn()?, bytes.lsn()?];
            Message::Begin { tail, committed, whole_from, mark: bytes.mark()? }
        }
        kind::APPEND => bytes.append(&volume)?,
        kind::MARK => Message::Mark(bytes.mark()?),
        kind::HELD => {
            let (accepted, held) = (bytes.lsn()?, bytes.lsn()?);
            let synced = bytes.lsn_or_none()?;
            let mark = bytes.mark_number()?;
            let room = Room { blocks: bytes.u32()?, ranges: bytes.u32()? };
            Message::Held { accepted, held, synced, mark, room, host: bytes.host()? }
        }
        kind::BEACON => Message::Beacon { sent: bytes.instant()? },
        kind::GRANTED => Message::Granted { sent: bytes.instant()? },
        kind::SEAL => Message::Seal,
        kind::SEALED => Message::Sealed { held: bytes.lsn()?, mark: bytes.mark()?, host: bytes.host()? },
        kind::FETCH => Message::Fetch { from: bytes.lsn()? },
        kind::TAKE_OVER => Message::TakeOver,
        kind::REFUSED => {
            Message::Refused { why: of_code(&REFUSALS, bytes.u8()?).ok_or("message: refused for an unknown reason")? }
        }
        kind::WHO => Message::Who { sent: bytes.instant()? },
        kind::HERE => {
            let (sent, at) = (bytes.instant()?, bytes.instant()?);
            Message::Here { sent, at, host: bytes.host()?, fresh: bytes.truth()? }
        }
        kind::LEARN => Message::Learn { sent: bytes.instant()?, at: bytes.instant()? },
        kind::KNOW => Message::Know { sent: bytes.instant()?, rewinds: bytes.rewinds()? },
        kind::KNOWN => Message::Known { sent: bytes.instant()?, rewinds: bytes.rewinds()? },
        kind::SAID => Message::Said { held: bytes.lsn()?, mark: bytes.mark_number()? },
        kind::ASK => bytes.ask()?,
        kind::CACHED => bytes.cached(&volume)?,
        _ => return Err("message: unknown kind"),
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

    fn ask(&mut self) -> Result<Message, Reason> {
        let (number, first, blocks) = (self.u64()?, BlockIndex(self.u64()?), self.u32()?);
        if blocks == 0 || blocks > ASK_BLOCKS_MAX {
            return Err("ask: for no block, or for more than an answer may have");
        }
        Ok(Message::Ask { number, first, blocks })
    }

    fn cached(&mut self, volume: &[u8; 16]) -> Result<Message, Reason> {
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
        Ok(Message::Cached { number, kept, records })
    }

    fn append(&mut self, volume: &[u8; 16]) -> Result<Message, Reason> {
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
        if records.iter().filter(|record| record.has_payload()).count() > PAYLOAD_BLOCKS_MAX {
            return Err("append: more payload than a message may have");
        }
        let mark = if marked == 1 { Some(self.mark()?) } else { None };
        Ok(Message::Append { from, through, committed, sync, records, mark })
    }
}
