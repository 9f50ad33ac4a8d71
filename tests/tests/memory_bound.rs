//! The memory bound that the daemon prints is true: under hostile clients, in a control group of that size plus ten
//! percent, it is not killed and goes on serving.

use forebay_tests::harness::{Daemon, IoMode, TempDir, Tier, Volume, rounds, skip};
use forebay_tests::in_both_io_modes;
use forebay_tests::kernel::ControlGroup;
use forebay_tests::nbd::{Client, Stream, request_header};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const SIZE: u64 = 256 << 20;
const READ: u16 = 0;
const WRITE: u16 = 1;

/// The bound that the daemon says it keeps.
fn bound_of(daemon: &Daemon) -> u64 {
    let json = daemon.command(["status", "--json"]).expect_success().stdout;
    let status: serde_json::Value = serde_json::from_str(&json).unwrap_or_else(|e| panic!("{e}: {json}"));
    status["memory_bytes_max"].as_u64().expect("a number of bytes")
}

/// What a hostile client does for ever.
#[derive(Clone, Copy, Debug)]
enum Hostility {
    /// Asks for the largest reads and takes the answers a little at a time.
    SlowReader,
    /// The head and half of the payload of a large write, then nothing.
    HalfPayload,
    /// Small writes, as many as the queue takes, and never an answer read.
    FullQueue,
    /// Large writes without end, without waiting for the answers.
    LargeWrites,
    /// Nothing after the handshake.
    Silent,
}

/// Who attacks together: readers and writers, and writers alone, who then get further.
const ATTACKS: [&[Hostility]; 2] = [
    &[Hostility::SlowReader, Hostility::HalfPayload, Hostility::FullQueue, Hostility::LargeWrites, Hostility::Silent],
    &[Hostility::LargeWrites, Hostility::HalfPayload, Hostility::FullQueue],
];

/// Sends until the socket is shut down by somebody else; the bytes sent. The payload, of the largest write, is one for all
/// clients: hundreds of their own would take more memory than the machine may have.
fn attack(stream: &mut Stream, hostility: Hostility, payload: &[u8], seed: u64) -> u64 {
    let length = payload.len() as u32;
    let blocks = SIZE / u64::from(length);
    let mut sent = 0;
    for number in 0.. {
        let offset = (seed + number * 7) % blocks * u64::from(length);
        let (command, asked, payload) = match hostility {
            Hostility::SlowReader => (READ, length, &[][..]),
            Hostility::HalfPayload => (WRITE, length, &payload[..payload.len() / 2]),
            Hostility::FullQueue => (WRITE, 4096, &payload[..4096]),
            Hostility::LargeWrites => (WRITE, length, payload),
            Hostility::Silent => return 0,
        };
        for mut rest in [&request_header(0, command, number, offset, asked)[..], payload] {
            while !rest.is_empty() {
                let Ok(taken) = stream.write(rest) else { return sent };
                sent += taken as u64;
                rest = &rest[taken..];
            }
        }
        if matches!(hostility, Hostility::HalfPayload) {
            return sent;
        }
    }
    sent
}

/// Takes what the daemon answers, as the kind of client does, until the socket is shut down.
fn take_answers(stream: &mut Stream, hostility: Hostility) -> u64 {
    let mut bytes = vec![0; 64 << 10];
    let (most, pause) = match hostility {
        Hostility::SlowReader => (4096, Duration::from_millis(5)),
        Hostility::LargeWrites => (bytes.len(), Duration::ZERO),
        Hostility::HalfPayload | Hostility::FullQueue | Hostility::Silent => return 0,
    };
    let mut all = 0;
    while let Ok(taken @ 1..) = stream.read(&mut bytes[..most]) {
        all += taken as u64;
        std::thread::sleep(pause);
    }
    all
}

/// Clients that attack together for a while. The bytes that went both ways.
fn attack_by(volume: &Volume, clients: u64, hostilities: &[Hostility], time: Duration) -> u64 {
    let moved = AtomicU64::new(0);
    let payload = vec![0xa5; Client::connect(&volume.target()).unwrap().request_bytes_max as usize];
    std::thread::scope(|scope| {
        let mut ends = Vec::new();
        for number in 0..clients {
            let client = Client::connect(&volume.target()).unwrap_or_else(|e| panic!("client {number}: {e}"));
            let (mut stream, end) = client.split().unwrap();
            let mut answers = end.try_clone().unwrap();
            ends.push(end);
            let (moved, payload) = (&moved, &payload);
            let hostility = hostilities[number as usize % hostilities.len()];
            scope.spawn(move || moved.fetch_add(take_answers(&mut answers, hostility), Ordering::Relaxed));
            scope.spawn(move || {
                moved.fetch_add(attack(&mut stream, hostility, payload, number), Ordering::Relaxed);
            });
        }
        std::thread::sleep(time);
        ends.iter().for_each(Stream::shutdown);
    });
    moved.into_inner()
}

fn served(name: &str, tier: Tier, io: IoMode, connections_max: u32) -> (TempDir, Volume) {
    let folder = TempDir::new(name);
    let mut volume = Volume::new(&folder, SIZE, tier, io);
    volume.connections_max = Some(connections_max);
    // Slower than the clients, so that everything piles up, and fast enough that they are never all stuck.
    volume.backing = format!("slow:iops=20000,latency=1ms,depth=32:{}", volume.backing);
    (folder, volume)
}

/// `Err`: what is missing here.
fn stays_within_its_bound(tier: Tier, io: IoMode, connections_max: u32) -> Result<(), String> {
    let (_plain_folder, plain) = served("bound", tier, io, connections_max);
    let bound = bound_of(&plain.start());
    let (_folder, mut volume) = served("bounded", tier, io, connections_max);
    let name = format!("{tier:?}-{}-{connections_max}", io.word()).to_lowercase();
    let group = ControlGroup::new(&name, bound + bound / 10)?;
    volume.in_control_group(group.folder());
    let mut daemon = volume.start();
    // Every frame has been in use before: an attack on a daemon that was never busy meets memory it never touched.
    let mut client = Client::connect(&volume.target()).unwrap();
    for offset in (0..128 << 20).step_by(1 << 20) {
        client.write(offset, &[0x3c; 1 << 20], 0).unwrap().unwrap();
    }
    drop(client);
    let time = Duration::from_secs(rounds(3, 60));
    let attack = |hostilities: &&[Hostility]| attack_by(&volume, u64::from(connections_max) - 1, hostilities, time);
    let moved: u64 = ATTACKS.iter().map(attack).sum();
    let peak = group.peak_bytes();
    println!("{name}: bound {} MiB, peak {} MiB with page cache, {} MiB moved", bound >> 20, peak >> 20, moved >> 20);
    assert!(moved > 64 << 20, "{name}: {moved} bytes are no attack");
    assert_eq!(group.killed_for_memory(), 0, "{name}: the daemon was killed; its bound of {bound} bytes is not true");
    daemon.assert_healthy();
    // An honest client is served, once those that hung up are gone.
    let begun = Instant::now();
    let mut client = Client::connect_within(&volume.target(), Duration::from_secs(30)).unwrap();
    let mut bytes = [0; 4096];
    // What those had sent who hung up is theirs to write, and may come after.
    while bytes != [7; 4096] {
        assert!(begun.elapsed() < Duration::from_secs(60), "{name}: somebody else writes for ever");
        client.write(0, &[7; 4096], 0).unwrap().unwrap();
        client.flush().unwrap().unwrap();
        client.read(0, &mut bytes).unwrap().unwrap();
    }
    println!("{name}: an honest client waited for {:?}", begun.elapsed());
    drop((client, daemon));
    Ok(())
}

in_both_io_modes! {
    fn few_hostile_clients_stay_within_the_printed_bound(io: IoMode) {
        for tier in [Tier::Flash, Tier::Memory] {
            if let Err(reason) = stays_within_its_bound(tier, io, 16) {
                return skip(&reason);
            }
        }
    }

    fn as_many_hostile_clients_as_there_may_be_stay_within_the_printed_bound(io: IoMode) {
        for tier in [Tier::Flash, Tier::Memory] {
            if let Err(reason) = stays_within_its_bound(tier, io, 256) {
                return skip(&reason);
            }
        }
    }
}

/// The limit is one: far below the bound the kernel does kill.
#[test]
fn a_control_group_that_is_too_small_is_noticed() {
    let (_folder, mut volume) = served("starved", Tier::Memory, IoMode::Threads, 4);
    let group = match ControlGroup::new("starved", 24 << 20) {
        Ok(group) => group,
        Err(reason) => return skip(&reason),
    };
    volume.in_control_group(group.folder());
    match volume.try_start() {
        // Version 2 is looked at before the tier is made.
        Err(refusal) if refusal.text.contains("memory limit") => {}
        Err(_) => assert!(group.killed_for_memory() > 0, "it neither serves nor was it killed"),
        Ok(daemon) => panic!("64 MiB of tier in 24 MiB: {}", daemon.output()),
    }
}
