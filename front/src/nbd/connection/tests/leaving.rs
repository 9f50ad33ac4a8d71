use super::*;

/// Clients take an error for good, and connect anew where the connection ends.
#[test]
fn what_a_stop_abandons_ends_the_connection_after_the_answers_that_there_are() {
    let mut pair = pair(Session::default());
    pair.holds_answers = true;
    let reads: Vec<u8> = (1..4).flat_map(|cookie| request(Command::Read, 0, cookie, 0, 512)).collect();
    assert!(pair.pump(&reads).is_empty());
    let (id, result) = pair.answers.remove(1);
    drop_reply(&mut pair.volume, result);
    pair.connection.reply(&mut pair.volume, id, Err(RequestError::Shutdown));
    pair.turn();
    assert_eq!((pair.connection.closed(), pair.connection.waits_for()), (None, WaitsFor::Nothing));
    pair.pump(&request(Command::Read, 0, 4, 0, 512));
    assert_eq!(pair.answers.len(), 2, "nothing more is taken");
    pair.answer();
    pair.turn();
    assert_eq!(pair.connection.closed(), Some(&Closed::Stopped));
    let zeros = [0; 512];
    assert_eq!(pair.take_received(), [&simple_reply(0, 1)[..], &zeros, &simple_reply(0, 3), &zeros].concat());
    assert!(pair.volume.memory.take_hangups().is_empty(), "the volume has done with all of them");
    pair.assert_no_frame_lost();
}

#[test]
fn what_a_stopping_volume_does_not_take_ends_the_connection_without_an_answer() {
    for bytes in [request(Command::Read, 0, 1, 0, 512), write(2, 0, &[1; 5000]), request(Command::Flush, 0, 3, 0, 0)] {
        let mut pair = pair(Session::default());
        pair.volume.inadmissible = Some(RequestError::Shutdown);
        pair.pump(&bytes);
        assert_eq!(pair.connection.closed(), Some(&Closed::Stopped));
        assert!(pair.take_received().is_empty());
        pair.assert_no_frame_lost();
    }
    // It begins to stop while the bytes of a write arrive.
    let mut pair = pair(Session::default());
    let bytes = write(1, 0, &[1; 5000]);
    pair.pump(&bytes[..3000]);
    pair.volume.inadmissible = Some(RequestError::Shutdown);
    pair.pump(&bytes[3000..]);
    assert_eq!(pair.connection.closed(), Some(&Closed::Stopped));
    assert!(pair.take_received().is_empty());
    pair.assert_no_frame_lost();
}
