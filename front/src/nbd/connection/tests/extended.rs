//! Requests and replies with extended headers: each reply's bytes, lengths beyond 32 bits, and what is refused.

use super::*;

fn extended(command: Command, flags: u16, cookie: u64, offset: u64, length: u64) -> Vec<u8> {
    RequestHead { flags, command, cookie, offset, length }.encode_extended().to_vec()
}

fn extended_error(cookie: u64, offset: u64, error: ErrorCode, text: &str) -> Vec<u8> {
    let mut b = extended_chunk(ChunkKind::Error, true, cookie, offset, 6 + text.len() as u64).to_vec();
    b.extend_from_slice(&(error as u32).to_be_bytes());
    b.extend_from_slice(&(text.len() as u16).to_be_bytes());
    b.extend_from_slice(text.as_bytes());
    b
}

const EXTENDED: Session = Session { framing: Framing::Extended, read_only: false, contexts: true };

#[test]
fn extended_headers_frame_every_reply() {
    let mut pair = pair(EXTENDED);
    let data = pattern(3, 4096);
    let done = |cookie, offset| extended_chunk(ChunkKind::None, true, cookie, offset, 0).to_vec();
    let bytes = [
        extended(Command::Write, command_flags::PAYLOAD_LEN, 1, 8192, 4096),
        data.clone(),
        extended(Command::Flush, 0, 2, 0, 0),
        extended(Command::Read, 0, 3, 4096, 8192),
        extended(Command::WriteZeroes, 0, 4, 8192, SIZE - 8192),
        extended(Command::Cache, 0, 5, 0, SIZE),
        extended(Command::Trim, 0, 6, 0, SIZE),
    ];
    assert!(pair.pump(&bytes.concat()).is_empty());
    let expected = [
        done(1, 8192),
        done(2, 0),
        // The header repeats the request's offset, the payload tells the chunk's.
        extended_chunk(ChunkKind::OffsetHole, false, 3, 4096, 12).to_vec(),
        4096u64.to_be_bytes().to_vec(),
        4096u32.to_be_bytes().to_vec(),
        extended_chunk(ChunkKind::OffsetData, true, 3, 4096, 8 + 4096).to_vec(),
        8192u64.to_be_bytes().to_vec(),
        data,
        done(4, 8192),
        done(5, 0),
        done(6, 0),
    ];
    assert!(pair.take_received() == expected.concat());
    pair.assert_no_frame_lost();
}

#[test]
fn extended_block_status_has_wide_lengths_and_answers_the_contexts_asked_for() {
    let mut pair = pair(EXTENDED);
    let flag = command_flags::PAYLOAD_LEN;
    assert!(pair.pump(&[extended(Command::Write, flag, 1, 4096, 4096), vec![1; 4096]].concat()).is_empty());
    pair.take_received();
    let status = |done, context: u32, runs: &[(u64, u64)]| {
        let mut b = extended_chunk(ChunkKind::BlockStatusExt, done, 2, 0, 8 + 16 * runs.len() as u64).to_vec();
        b.extend_from_slice(&context.to_be_bytes());
        b.extend_from_slice(&(runs.len() as u32).to_be_bytes());
        runs.iter().for_each(|(bytes, state)| {
            b.extend_from_slice(&bytes.to_be_bytes());
            b.extend_from_slice(&state.to_be_bytes());
        });
        b
    };
    let allocation = [(4096, 3), (4096, 0), (SIZE - 8192, 3)];
    let present = [(4096, 0), (4096, 1), (SIZE - 8192, 0)];
    assert!(pair.pump(&extended(Command::BlockStatus, 0, 2, 0, SIZE)).is_empty());
    let all = [status(false, 1, &allocation), status(false, 2, &present), status(true, 3, &present)];
    assert_eq!(pair.take_received(), all.concat());
    let ask = |length: u64, ids: &[u32]| {
        let mut b = extended(Command::BlockStatus, flag, 2, 0, 8 + 4 * ids.len() as u64);
        b.extend_from_slice(&length.to_be_bytes());
        ids.iter().for_each(|id| b.extend_from_slice(&id.to_be_bytes()));
        b
    };
    for byte in ask(SIZE, &[3, 1]) {
        assert!(pair.pump(&[byte]).is_empty());
    }
    assert_eq!(pair.take_received(), [status(false, 1, &allocation), status(true, 3, &present)].concat());
    // Nothing asked for, one unknown, one twice, too many, no length, past the end: refused, the payload passed over.
    for bytes in [
        ask(SIZE, &[]),
        ask(SIZE, &[9]),
        ask(SIZE, &[1, 1]),
        ask(SIZE, &[1, 2, 3, 1]),
        ask(0, &[1]),
        ask(SIZE + 1, &[1]),
        ask(u64::MAX, &[1]),
        [extended(Command::BlockStatus, flag, 2, 0, 7), vec![0; 7]].concat(),
        [extended(Command::BlockStatus, flag, 2, 0, 100_000), vec![0; 100_000]].concat(),
    ] {
        assert!(pair.pump(&bytes).is_empty());
        assert_eq!(
            pair.take_received(),
            extended_error(
                2,
                0,
                ErrorCode::Invalid,
                "invalid: an unknown command, out of range, or larger than the export's maximum block size"
            )
        );
    }
    assert_eq!(pair.connection.in_flight(), 0);
}

#[test]
fn a_context_that_was_not_selected_is_not_answered() {
    let mut pair = pair(EXTENDED);
    pair.connection.contexts = ContextSet::default();
    pair.connection.contexts.insert(Context::Allocation);
    let ask = |id: u32| {
        let head = extended(Command::BlockStatus, command_flags::PAYLOAD_LEN, 2, 0, 12);
        [head, SIZE.to_be_bytes().to_vec(), id.to_be_bytes().to_vec()].concat()
    };
    assert!(pair.pump(&ask(Context::Tier.id())).is_empty());
    assert_eq!(
        pair.take_received(),
        extended_error(
            2,
            0,
            ErrorCode::Invalid,
            "invalid: an unknown command, out of range, or larger than the export's maximum block size"
        )
    );
    assert!(pair.pump(&ask(Context::Allocation.id())).is_empty());
    assert_eq!(pair.take_received()[..32], extended_chunk(ChunkKind::BlockStatusExt, true, 2, 0, 24));
}

#[test]
fn wrong_extended_requests_have_their_answer_and_harm_nothing() {
    let flag = command_flags::PAYLOAD_LEN;
    let invalid = (
        ErrorCode::Invalid,
        "invalid: an unknown command, out of range, or larger than the export's maximum block size",
    );
    let no_space = (ErrorCode::NoSpace, "past the end of the volume, or no space left");
    let mut pair = pair(EXTENDED);
    for (command, flags, offset, length, (error, text)) in [
        // Lengths that only an extended header can name.
        (Command::Read, 0, 0, 1 << 32, invalid),
        (Command::Read, 0, 0, u64::MAX, invalid),
        (Command::Trim, 0, 0, (1 << 32) + 4096, invalid),
        (Command::Trim, 0, 4096, u64::MAX - 4095, invalid),
        (Command::WriteZeroes, 0, 0, 1 << 40, no_space),
        (Command::WriteZeroes, 0, 1, u64::MAX, no_space),
        (Command::Cache, 0, 0, 1 << 33, invalid),
        (Command::BlockStatus, 0, 0, 1 << 33, invalid),
        // Without its flag a write has no payload, and nothing to write.
        (Command::Write, 0, 0, 4096, invalid),
        // A payload where none belongs is passed over.
        (Command::Read, flag, 0, 512, invalid),
        (Command::Flush, flag, 0, 3, invalid),
        (Command::Trim, flag, 0, 4096, invalid),
        (Command::Unknown(9), flag, 0, 5000, invalid),
        (Command::Unknown(9), 0, 0, 5000, invalid),
        (Command::Write, flag, SIZE - 512, 4096, no_space),
        (Command::Write, flag, 0, 0, invalid),
        (Command::Write, flag, 0, 33 << 20, invalid),
    ] {
        let mut bytes = extended(command, flags, 5, offset, length);
        if flags & flag != 0 {
            bytes.resize(bytes.len() + length as usize, 0xee);
        }
        assert!(pair.pump(&bytes).is_empty());
        assert_eq!(pair.take_received(), extended_error(5, offset, error, text), "{command:?} {flags:x} {length}");
    }
    assert!(pair.pump(&extended(Command::Read, 0, 6, 0, SIZE)).is_empty());
    let hole = [extended_chunk(ChunkKind::OffsetHole, true, 6, 0, 12).to_vec(), vec![0; 8], vec![0, 0x10, 0, 0]];
    assert_eq!(pair.take_received(), hole.concat(), "nothing of it was executed");
    pair.assert_no_frame_lost();
    // An absurd payload ends it, whatever the command.
    for command in [Command::Write, Command::Trim, Command::BlockStatus] {
        let mut pair = self::pair(EXTENDED);
        pair.pump(&extended(command, flag, 5, 0, u64::from(SKIPPED_PAYLOAD_BYTES_MAX) + 1));
        assert!(matches!(pair.connection.closed(), Some(Closed::Violation(_))), "{command:?}");
    }
    // A compact header is out of step.
    pair.pump(&[request(Command::Flush, 0, 1, 0, 0), vec![0; 4]].concat());
    assert!(matches!(pair.connection.closed(), Some(Closed::Violation(_))));
}
