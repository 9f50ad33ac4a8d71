//! A connection that goes on elsewhere: nothing is answered twice, nothing is forgotten, and no frame stays behind.

use super::*;

impl Pair {
    /// Takes the connection away from the volume.
    fn pack(&mut self) -> Option<Packed> {
        let other = pair(Session::default()).connection;
        core::mem::replace(&mut self.connection, other).pack(&mut self.volume)
    }

    /// It goes on, with a volume that answers.
    fn resume(&mut self, packed: Packed) {
        self.volume.memory.hold_requests(false);
        self.connection = Connection::resume(packed, 8, self.now);
    }
}

#[test]
fn what_was_not_answered_is_asked_again_and_what_was_not_sent_is_sent() {
    let mut pair = pair(Session::default());
    let content = pattern(1, SIZE as usize);
    assert!(pair.pump(&write(1, 0, &content)).is_empty());
    pair.take_received();
    // More than a socket takes: a part of it has left, the rest has not.
    pair.client_reads = false;
    assert!(pair.pump(&request(Command::Read, 0, 2, 0, SIZE as u32)).is_empty());
    pair.volume.memory.hold_requests(true);
    let (whole, parted) = (pattern(3, 9000), pattern(6, 30_000));
    let last = write(6, 200_100, &parted);
    let (arrived, missing) = last.split_at(10_001);
    let asked = [
        write(3, 100, &whole),
        request(Command::Read, 0, 4, 0, 512),
        request(Command::Flush, 0, 5, 0, 0),
        request(Command::Trim, command_flags::FUA, 9, 40_960, 4096),
        arrived.to_vec(),
    ];
    assert!(pair.pump(&asked.concat()).is_empty());

    let packed = pair.pack().expect("everything can be asked again");
    pair.assert_no_frame_lost();
    assert_eq!(pair.volume.memory.held(), 0);
    pair.resume(packed);
    pair.client_reads = true;
    assert!(pair.pump(missing).is_empty());

    let mut first = content[..512].to_vec();
    first[100..].copy_from_slice(&whole[..412]);
    let expected = [
        &simple_reply(0, 2)[..],
        &content,
        &simple_reply(0, 3),
        &simple_reply(0, 4),
        &first,
        &simple_reply(0, 5),
        &simple_reply(0, 9),
        &simple_reply(0, 6),
    ];
    assert!(pair.take_received() == expected.concat());
    let mut model = content;
    model[100..9100].copy_from_slice(&whole);
    model[40_960..45_056].fill(0);
    model[200_100..230_100].copy_from_slice(&parted);
    assert!(pair.content() == model);
    pair.assert_no_frame_lost();
}

#[test]
fn a_session_with_extended_headers_moves_too() {
    let mut pair = pair(Session { framing: Framing::Extended, ..Session::default() });
    pair.volume.memory.hold_requests(true);
    let payload = pattern(1, 5000);
    let flags = command_flags::PAYLOAD_LEN | command_flags::FUA;
    let head = RequestHead { flags, command: Command::Write, cookie: 1, offset: 8192, length: 5000 };
    let zeros = RequestHead { flags: 0, command: Command::WriteZeroes, cookie: 2, offset: 0, length: 4096 };
    let bytes = [&head.encode_extended()[..], &payload, &zeros.encode_extended()].concat();
    assert!(pair.pump(&bytes).is_empty());
    let packed = pair.pack().expect("everything can be asked again");
    pair.resume(packed);
    pair.turn();
    pair.turn();
    let done = |cookie, offset| extended_chunk(ChunkKind::None, true, cookie, offset, 0);
    assert_eq!(pair.take_received(), [done(1, 8192), done(2, 0)].concat());
    pair.assert_no_frame_lost();
}

#[test]
fn a_write_that_the_volume_has_taken_ends_the_connection() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    assert!(pair.pump(&write(1, 0, &pattern(1, 4096))).is_empty());
    assert!(pair.pack().is_none());
    pair.assert_no_frame_lost();
    let mut client = pair.client.take().unwrap();
    client.set_nonblocking(false).unwrap();
    assert_eq!(client.read(&mut [0; 1]).unwrap(), 0, "the client is told by a closed connection");
}

#[test]
fn who_has_said_good_bye_still_has_all_answers() {
    let mut pair = pair(Session::default());
    pair.volume.memory.hold_requests(true);
    let bytes = [write(1, 0, &pattern(1, 512)), request(Command::Disconnect, 0, 2, 0, 0)].concat();
    assert!(pair.pump(&bytes).is_empty());
    let packed = pair.pack().expect("everything can be asked again");
    pair.resume(packed);
    pair.turn();
    assert_eq!(pair.take_received(), simple_reply(0, 1));
    assert_eq!(pair.connection.closed(), Some(&Closed::Disconnected));
    pair.assert_no_frame_lost();
}
