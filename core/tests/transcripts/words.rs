//! The words in which a trace tells of messages, records and effects. They are the protocol's, and not those of the code, so that
//! a renaming there changes no transcript.

use crate::oracle::Stamp;
use forebay_core::api::{Own, PeerFailure, Report};
use forebay_core::cluster::*;
use forebay_core::format::{Descriptor, Kind};
use forebay_core::message::*;
use forebay_core::status::Phase;
use forebay_core::types::*;

/// Nodes are `n1`, `n2` and so on, in the order in which they were added.
pub fn node(id: NodeId) -> String {
    format!("n{}", id.0)
}

pub fn nodes<'a>(members: impl IntoIterator<Item = &'a Incarnation>) -> String {
    members.into_iter().map(|member| node(member.node)).collect::<Vec<_>>().join(" ")
}

/// Positions above the first up to the second.
fn stretch(from: Lsn, through: Lsn) -> String {
    format!("({from}, {through}]")
}

fn sectors(mask: SectorMask) -> String {
    if mask.is_full() {
        return String::new();
    }
    let run = |(first, count): (u32, u32)| match count {
        1 => format!("{first}"),
        _ => format!("{first}-{}", first + count - 1),
    };
    format!(" sectors {}", mask.runs().map(run).collect::<Vec<_>>().join(","))
}

/// Where it is in the log, what it is of, its barrier group, and its term where that is not the message's.
pub fn record(record: &Descriptor, term: Term) -> String {
    let block = record.block;
    let what = match record.kind {
        Kind::Data { mask, .. } => format!("block {block}{}", sectors(mask)),
        Kind::ZeroSectors { mask } => format!("zeros in block {block}{}", sectors(mask)),
        Kind::ZeroBlocks { blocks, .. } => format!("zeros in blocks {block}-{}", block.0 + u64::from(blocks) - 1),
    };
    let of = if record.term == term { String::new() } else { format!(" t{}", record.term) };
    format!("{}: {what} g{}{of}", record.lsn, record.group.0)
}

pub fn mark(mark: &Mark) -> String {
    let part = match mark.part.blocks {
        0 => String::new(),
        blocks => format!(", part blocks {}-{}", mark.part.block, mark.part.block.0 + u64::from(blocks) - 1),
    };
    let pin = |pin: &Pin| format!(", pinned t{} {}", pin.term, stretch(pin.above, pin.through));
    let pins: String = mark.pins.iter().map(pin).collect();
    format!(
        "mark {}: watermark {}, window {}{part}{pins}",
        mark.number,
        mark.watermark,
        stretch(mark.watermark, mark.through)
    )
}

fn log_message(message: &LogMessage, term: Term) -> String {
    match message {
        LogMessage::Begin { tail, committed, whole_from, mark: sent } => {
            format!("Begin tail {tail}, committed {committed}, whole from {whole_from}; {}", mark(sent))
        }
        LogMessage::Append { from, through, committed, sync, records, mark: rides } => {
            let records: Vec<String> = records.iter().map(|sent| record(sent, term)).collect();
            let sync = if sync.0 == 0 { String::new() } else { format!(", sync to {sync}") };
            let rides = rides.as_ref().map_or(String::new(), |rides| format!("; {}", mark(rides)));
            let list = if records.is_empty() { String::new() } else { format!(" [{}]", records.join(", ")) };
            format!("Append {}{list}, committed {committed}{sync}{rides}", stretch(*from, *through))
        }
        LogMessage::Mark(sent) => format!("Mark; {}", mark(sent)),
        LogMessage::Held(Held { accepted, held, synced, mark, .. }) => {
            let synced = synced.map_or(String::new(), |synced| format!(", synced {synced}"));
            format!("Held accepted {accepted}, held {held}{synced}, mark {mark}")
        }
        LogMessage::Said { held, mark } => format!("Said held {held}, mark {mark}"),
        LogMessage::Fetch { from } => format!("Fetch above {from}"),
        LogMessage::Ask { number, first, blocks } => {
            format!("Ask {number}: blocks {first}-{}", first.0 + u64::from(*blocks) - 1)
        }
        LogMessage::Cached { number, records, .. } => format!("Cached {number}: {} blocks", records.len()),
    }
}

pub fn refusal(why: Refusal) -> &'static str {
    match why {
        Refusal::OldTerm => "old term",
        Refusal::OtherIncarnation => "other incarnation",
        Refusal::BeyondTail => "beyond tail",
        Refusal::NoRoom => "no room",
        Refusal::BeyondSize => "beyond size",
        Refusal::TierFailed => "tier failed",
        Refusal::UnknownVolume => "unknown volume",
    }
}

/// Of whom, for whom, in which term and epoch, and what it says. `arrow` tells whether it arrives.
pub fn message(arrow: &str, envelope: &Envelope, message: &Message) -> String {
    let Envelope { term, epoch, from, to, .. } = envelope;
    let life = if to.life == 0 { String::new() } else { format!(" life {}", to.life) };
    let what = match message {
        Message::Log(message) => log_message(message, *term),
        Message::Refused { why } => format!("Refused: {}", refusal(*why)),
        Message::Ownership(_) => unreachable!("volumes alone send none"),
    };
    format!("{} {arrow} {}{life}  t{term} e{epoch}  {what}", node(from.node), node(to.node))
}

/// What lies in sectors, by block where it is a whole one: `#7` is the content of the seventh write, `zeros` that of none.
pub fn content(sectors: &[(u64, Stamp)]) -> String {
    let stamp = |stamp: Stamp| if stamp == 0 { "zeros".into() } else { format!("#{stamp}") };
    let mut told: Vec<String> = Vec::new();
    for run in sectors.chunk_by(|a, b| a.0 + 1 == b.0 && a.1 == b.1 && a.0 / 8 == b.0 / 8) {
        let (first, last) = (run[0], run[run.len() - 1]);
        let place = match run.len() {
            8 => String::new(),
            1 => format!(" sector {}", first.0 % 8),
            _ => format!(" sectors {}-{}", first.0 % 8, last.0 % 8),
        };
        told.push(format!("block {}{place} = {}", first.0 / 8, stamp(first.1)));
    }
    told.join(", ")
}

pub fn phase(phase: Phase) -> String {
    match phase {
        Phase::Recovering => "recovers".into(),
        Phase::Following => "follows".into(),
        Phase::Agreeing => "agrees on the tail".into(),
        Phase::Serving => "serves".into(),
        Phase::Stopping => "stops".into(),
        Phase::Stopped => "has stopped".into(),
        Phase::Refused(why) => format!("is refused: {why}"),
    }
}

pub fn io_error(error: IoError) -> &'static str {
    match error {
        IoError::Failed => "failed",
        IoError::NoSpace => "no space",
        IoError::Gone => "gone",
        IoError::Checksum => "checksum",
        IoError::Unsupported => "unsupported",
    }
}

pub fn report(report: &Report) -> String {
    match report {
        Report::Remembered { term, epoch } => format!("remembers t{term} e{epoch}"),
        Report::Agreed { term } => format!("all agree on the tail of t{term}"),
        Report::PeerFailed { peer, why } => {
            let why = match why {
                PeerFailure::Stalled => "stalled".into(),
                PeerFailure::Slow => "slow".into(),
                PeerFailure::Refused(why) => format!("refused: {}", refusal(*why)),
            };
            format!("{} has failed, {why}", node(peer.node))
        }
        Report::LearnerReady { peer } => format!("learner {} is ready", node(peer.node)),
        Report::Covered { proposal } => format!("proposal {proposal} is covered"),
        Report::Quiet => "quiet".into(),
        Report::NotQuiet(unrest) => format!("not quiet: {unrest:?}"),
        Report::Outdated { term, epoch } => format!("somebody knows t{term} e{epoch}"),
        Report::Grown(bytes) => format!("all have room for {bytes} bytes"),
        Report::PinsEnded => "pins have ended".into(),
        Report::TierFailed { answers } => format!("the tier has failed, and it answers: {answers}"),
        Report::WentBack => "went back".into(),
        Report::BackingQuiet => "the backing is quiet".into(),
    }
}

/// What a new owner is told.
pub fn own(own: &Own) -> String {
    let fetch =
        own.fetch.map_or(String::new(), |(from, end)| format!(", fetches up to {end} from {}", node(from.node)));
    let terms: Vec<String> = own.unfenced.iter().map(|term| format!("t{term}")).collect();
    let unfenced = if terms.is_empty() { String::new() } else { format!(", unfenced {}", terms.join(" ")) };
    let (term, epoch, members, watermark) = (own.term, own.epoch, nodes(&own.members), own.watermark);
    format!("t{term} e{epoch}, members {members}, watermark {watermark}{fetch}{unfenced}")
}
