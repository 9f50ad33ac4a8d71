//! One slow client costs its own connection only: it neither takes its answers nor finishes its payloads, and what it holds
//! of the volume's memory leaves enough for the others.

use forebay_tests::harness::{Daemon, IoMode, TempDir, Tier, Volume};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::{Client, Stream, request_header};
use std::io::Write;
use std::time::{Duration, Instant};

const SIZE: u64 = 256 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;
/// Well below the time after which a connection that does not move is closed, and no measure of speed.
const PROMPT: Duration = Duration::from_secs(30);

/// A volume with less memory than one connection may have in flight, with something everywhere.
fn served(name: &str, tier: Tier, io: IoMode) -> (TempDir, Volume, Daemon) {
    let folder = TempDir::new(name);
    let mut volume = Volume::new(&folder, SIZE, tier, io);
    if tier == Tier::Flash {
        // What waits, waits for memory and not for room in the tier.
        volume.tier_size = 512 << 20;
        volume.arguments.extend(["--memory".into(), "64M".into()]);
    }
    let daemon = volume.start();
    let mut client = Client::connect(&volume.target()).unwrap();
    for offset in (0..SIZE).step_by(1 << 20) {
        client.write(offset, &[0x3c; 1 << 20], 0).unwrap().unwrap();
    }
    drop(client);
    daemon.drain();
    (folder, volume, daemon)
}

/// Asks for reads of this length, by default of the largest, until the daemon takes no more of them for a while, and takes no
/// answer. The stream stays open.
fn reads_never_taken(volume: &Volume, length: Option<u32>) -> Stream {
    let client = Client::connect(&volume.target()).unwrap();
    let length = length.unwrap_or(client.request_bytes_max);
    let (mut stream, kept) = client.split().unwrap();
    let (sender, sent) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for number in 0..4096 {
            let offset = number * 7 * u64::from(length) % (SIZE - u64::from(length)) / 4096 * 4096;
            // It ends with the connection.
            let asked = stream.write_all(&request_header(0, READ, number, offset, length));
            if asked.is_err() || sender.send(()).is_err() {
                return;
            }
        }
    });
    let mut requests = 0;
    while sent.recv_timeout(Duration::from_millis(700)).is_ok() {
        requests += 1;
    }
    println!("{requests} reads of {length} bytes were asked for");
    kept
}

fn half_a_payload(volume: &Volume) -> Stream {
    let client = Client::connect(&volume.target()).unwrap();
    let length = client.request_bytes_max;
    let (mut stream, kept) = client.split().unwrap();
    std::thread::spawn(move || {
        let half = [&request_header(0, WRITE, 0, 0, length)[..], &vec![7; length as usize / 2]].concat();
        // It may find no room for all of it, and ends with the connection.
        let _ = stream.write_all(&half);
    });
    std::thread::sleep(Duration::from_millis(500));
    kept
}

/// Reads and writes of all sizes, by one who does his part.
#[track_caller]
fn others_go_on(volume: &Volume, lengths: &[usize], what: &str) {
    let mut client = Client::connect(&volume.target()).unwrap();
    let most = client.request_bytes_max as usize;
    let begun = Instant::now();
    for (number, &length) in lengths.iter().cycle().take(2 * lengths.len()).enumerate() {
        let round = Instant::now();
        let length = length.min(most);
        let offset = (number as u64 * 13_000_000 % (SIZE - length as u64)) / 4096 * 4096;
        let bytes = vec![number as u8 | 1; length];
        client.write(offset, &bytes, 0).unwrap().unwrap();
        let mut read = vec![0; length];
        client.read(offset, &mut read).unwrap().unwrap();
        assert!(read == bytes, "{what}: {length} bytes at {offset}");
        // What no memory holds any more.
        let elsewhere = (offset + SIZE / 2) % (SIZE - length as u64) / 4096 * 4096;
        client.read(elsewhere, &mut read).unwrap().unwrap();
        assert!(round.elapsed() < PROMPT, "{what}: round {number} took {:?}", round.elapsed());
    }
    client.flush().unwrap().unwrap();
    println!("{what}: the others took {:?}", begun.elapsed());
}

const SMALL_TO_LARGEST: [usize; 4] = [4096, 100_000, 1 << 20, usize::MAX];
const SMALL_TO_USUAL: [usize; 3] = [4096, 100_000, 1 << 20];

in_both_io_modes! {
    fn a_client_that_takes_no_answers_leaves_room_for_others(io: IoMode) {
        for tier in [Tier::Flash, Tier::Memory] {
            let (_folder, volume, mut daemon) = served("takes-nothing", tier, io);
            for length in [None, Some(256 << 10), Some(4096), Some(512)] {
                let slow = reads_never_taken(&volume, length);
                others_go_on(&volume, &SMALL_TO_LARGEST, &format!("{tier:?}, reads of {length:?}"));
                slow.shutdown();
            }
            daemon.assert_healthy();
        }
    }

    fn a_client_that_stops_within_its_payload_leaves_room_for_others(io: IoMode) {
        let (_folder, volume, mut daemon) = served("half-payload", Tier::Flash, io);
        let slow = half_a_payload(&volume);
        others_go_on(&volume, &SMALL_TO_LARGEST, "half a payload");
        slow.shutdown();
        daemon.assert_healthy();
    }

    fn many_slow_clients_of_every_kind_leave_room_for_usual_requests(io: IoMode) {
        let (_folder, volume, mut daemon) = served("many-slow", Tier::Flash, io);
        let slow: Vec<Stream> = (0..6)
            .map(|number| match number % 3 {
                0 => reads_never_taken(&volume, None),
                1 => half_a_payload(&volume),
                _ => reads_never_taken(&volume, Some(128 << 10)),
            })
            .collect();
        others_go_on(&volume, &SMALL_TO_USUAL, "six slow clients");
        slow.iter().for_each(Stream::shutdown);
        // And all of it is given back.
        others_go_on(&volume, &SMALL_TO_LARGEST, "after the slow clients");
        daemon.assert_healthy();
    }
}
