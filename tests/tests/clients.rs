//! Foreign clients against the real daemon: what QEMU's tools, libnbd, fio and raw sockets make of it.

use forebay_tests::harness::{
    Daemon, IoMode, TempDir, Tier, VOLUME_NAME, Volume, free_port, require_tool, run_command, run_script, run_tool,
};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::{
    Address, Ask, Client, Command as Nbd, FLAG_FUA, FLAG_PAYLOAD, Stream, Target, extended_request, go_payload, greet,
    receive, receive_extended, receive_option_reply, request_header, send, send_option,
};
use forebay_tests::pattern;
use forebay_tests::rng::Rng;
use std::io::{Read, Write};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

fn served(name: &str, size: u64, tier: Tier, io: IoMode) -> (TempDir, Volume, Daemon) {
    let folder = TempDir::new(name);
    let volume = Volume::new(&folder, size, tier, io);
    let daemon = volume.start();
    (folder, volume, daemon)
}

/// Journal number in the sectors of these tests.
const RUN: u64 = 0x5ec7;

/// A read or a write of 512 bytes to `sectors_max` sectors, whose sectors say which write they belong to.
fn random_ask(rng: &mut Rng, offset: u64, sectors_max: u64) -> Ask {
    let length = (rng.below(sectors_max) + 1) * 512;
    if rng.chance(60) {
        let mut payload = vec![0; length as usize];
        pattern::fill(&mut payload, RUN, offset, rng.next());
        Ask { command: Nbd::Write, flags: 0, offset, length: length as u32, payload }
    } else {
        Ask { command: Nbd::Read, flags: 0, offset, length: length as u32, payload: Vec::new() }
    }
}

/// Reads must agree with the shadow copy, writes go into it. The requests of a batch do not overlap.
fn compare(asks: &[Ask], answers: &[(u32, Vec<u8>)], shadow: &mut [u8], what: &str) {
    for (ask, (error, data)) in asks.iter().zip(answers) {
        assert_eq!(*error, 0, "{what}: {:?} at {}", ask.command, ask.offset);
        let range = ask.offset as usize..ask.offset as usize + ask.length as usize;
        if ask.command == Nbd::Write {
            shadow[range].copy_from_slice(&ask.payload);
        } else if data != &shadow[range.clone()] {
            let mut text = String::new();
            for (i, (seen, right)) in data.chunks(512).zip(shadow[range].chunks(512)).enumerate() {
                let at = ask.offset + i as u64 * 512;
                let (seen, right) = (pattern::see(seen, RUN, at), pattern::see(right, RUN, at));
                text += &format!("\n  {at} (block {}, sector {}): {seen}, should be {right}", at / 4096, at / 512 % 8);
            }
            panic!("{what}: a read of {} bytes at {} differs:{text}", ask.length, ask.offset);
        }
    }
}

in_both_io_modes! {
    fn nbdinfo_sees_the_size_the_flags_and_the_map(io: IoMode) {
        let (_folder, volume, mut daemon) = served("nbdinfo", 64 * MIB, Tier::Flash, io);
        let uri = volume.uri();
        let info = run_tool(MINUTE, "nbdinfo", ["--json", &uri]).expect_success();
        let info: serde_json::Value = serde_json::from_str(&info.stdout).unwrap();
        assert_eq!(info["protocol"], "newstyle-fixed");
        let export = &info["exports"][0];
        assert_eq!(export["export-size"], 64 * MIB);
        for able in ["can_fua", "can_flush", "can_trim", "can_zero", "can_multi_conn", "can_df", "can_cache", "can_fast_zero"] {
            assert_eq!(export[able], true, "{able} in {export}");
        }
        assert_eq!(export["is_read_only"], false);
        assert!(export["contexts"].to_string().contains("base:allocation"), "{export}");
        let list = run_tool(MINUTE, "nbdinfo", ["--list", "--json", &uri]).expect_success();
        assert!(list.stdout.contains(&format!("\"{VOLUME_NAME}\"")), "{}", list.stdout);
        // By name, and a name that is not there.
        let named = uri.replace(":///?", &format!(":///{VOLUME_NAME}?"));
        run_tool(MINUTE, "nbdinfo", ["--size", &named]).expect_success();
        run_tool(MINUTE, "nbdinfo", ["--size", &uri.replace(":///?", ":///absent?")]).expect_failure();

        run_tool(MINUTE, "qemu-io", ["-f", "raw", "-c", "write -P 0x11 1M 1M", &uri]).expect_success();
        let map = run_tool(MINUTE, "nbdinfo", ["--map", "--json", &uri]).expect_success();
        let map: serde_json::Value = serde_json::from_str(&map.stdout).unwrap();
        let extents: Vec<(u64, u64, u64)> = map
            .as_array()
            .unwrap()
            .iter()
            .map(|e| (e["offset"].as_u64().unwrap(), e["length"].as_u64().unwrap(), e["type"].as_u64().unwrap()))
            .collect();
        assert_eq!(extents.iter().map(|e| e.1).sum::<u64>(), 64 * MIB, "the map covers the volume: {extents:?}");
        for (offset, length, kind) in &extents {
            let written = *offset < 2 * MIB && offset + length > MIB;
            assert!(!written || kind & 2 == 0, "written bytes must not be called zero: {extents:?}");
        }
        daemon.assert_healthy();
    }

    fn nbdcopy_brings_an_image_in_and_out_unchanged(io: IoMode) {
        let (folder, volume, _daemon) = served("nbdcopy", 48 * MIB, Tier::Memory, io);
        let mut image = vec![0u8; 48 << 20];
        let mut rng = Rng::new(4);
        // Data, holes and odd edges.
        for start in [0, 5 << 20, (17 << 20) + 512, 40 << 20] {
            for byte in &mut image[start..start + (3 << 20) + 1536] {
                *byte = rng.next() as u8 | 1;
            }
        }
        let (source, back) = (folder.join("in"), folder.join("out"));
        std::fs::write(&source, &image).unwrap();
        run_tool(MINUTE, "nbdcopy", ["--flush", source.to_str().unwrap(), &volume.uri()]).expect_success();
        run_tool(MINUTE, "nbdcopy", [&volume.uri(), back.to_str().unwrap()]).expect_success();
        assert!(std::fs::read(&back).unwrap() == image, "the copy differs");
        run_tool(MINUTE, "qemu-img", ["compare", "-f", "raw", "-F", "raw", source.to_str().unwrap(), &volume.uri()]).expect_success();
    }

    fn qemu_io_patterns_zeros_discards_and_fua_hold_over_a_restart(io: IoMode) {
        let (_folder, volume, daemon) = served("qemu-io", 64 * MIB, Tier::Flash, io);
        let uri = volume.uri();
        let qemu_io = |commands: &[&str]| {
            let mut arguments = vec!["-f", "raw", "-d", "unmap"];
            for command in commands {
                arguments.extend(["-c", command]);
            }
            arguments.push(&uri);
            let output = run_tool(MINUTE, "qemu-io", arguments).expect_success();
            // qemu-io ends with 0 after a failed verification.
            assert!(!output.text().contains("Pattern verification failed"), "{}", output.describe());
        };
        qemu_io(&[
            "write -P 0xaa 0 1M", "write -z 256k 256k", "read -P 0 256k 256k", "read -P 0xaa 512k 512k",
            "write -f -P 0xbb 3M 64k", "discard 3M 32k", "read -P 0 3M 32k", "read -P 0xbb 3104k 32k",
            "write -P 0xcc 5000k 3k", "write -P 0xdd 5001k 1k", "read -P 0xcc 5000k 1k", "read -P 0xdd 5001k 1k",
            "write -z -u 8M 8M", "write -P 0xee 12M 512", "aio_write -P 0x21 20M 1M", "aio_write -P 0x22 21M 1M", "aio_flush",
            "flush",
        ]);
        let checks = [
            "read -P 0xaa 0 256k", "read -P 0 256k 256k", "read -P 0 3M 32k", "read -P 0xbb 3104k 32k", "read -P 0xcc 5002k 1k",
            "read -P 0xdd 5001k 1k", "read -P 0 8M 2M", "read -P 0 10M 2M", "read -P 0xee 12M 512", "read -P 0x21 20M 1M", "read -P 0x22 21M 1M",
        ];
        qemu_io(&checks);
        daemon.kill9();
        let daemon = volume.start();
        qemu_io(&checks);
        daemon.stop(MINUTE);
        // Stopped and drained: the image alone says the same.
        for command in checks {
            let output = run_tool(MINUTE, "qemu-io", ["-f", "raw", "-r", "-c", command, volume.image().to_str().unwrap()]);
            let output = output.expect_success();
            assert!(!output.text().contains("Pattern verification failed"), "{}", output.describe());
        }
    }

    fn qemu_img_bench_completes_with_flushes(io: IoMode) {
        let (_folder, volume, mut daemon) = served("qemu-bench", 64 * MIB, Tier::Flash, io);
        let uri = volume.uri();
        run_tool(MINUTE, "qemu-img", ["bench", "-f", "raw", "-w", "-c", "4000", "-d", "32", "-s", "4096", "--flush-interval=64", &uri]).expect_success();
        run_tool(MINUTE, "qemu-img", ["bench", "-f", "raw", "-c", "4000", "-d", "32", "-s", "65536", &uri]).expect_success();
        daemon.assert_healthy();
    }

    fn fio_verifies_what_it_wrote_in_all_sizes(io: IoMode) {
        let (folder, volume, mut daemon) = served("fio", 128 * MIB, Tier::Flash, io);
        let mut command = Command::new("timeout");
        // fio's nbd engine ignores SIGTERM while its connect hangs.
        command.args(["-s", "KILL", "90"]).arg(require_tool("fio")).current_dir(folder.path());
        command.args(["--name=v", "--ioengine=nbd", &format!("--uri={}", volume.uri()), "--size=96m", "--rw=randwrite"]);
        command.args(["--bsrange=512-64k", "--iodepth=32", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256"]);
        run_command(Duration::from_secs(100), command).expect_success();
        daemon.assert_healthy();
    }

    fn hostile_requests_get_an_error_and_the_connection_lives(io: IoMode) {
        let (_folder, volume, mut daemon) = served("hostile", 64 * MIB, Tier::Flash, io);
        let script = r#"
import nbd, sys, errno
uri = sys.argv[1]
def fresh():
    h = nbd.NBD(); h.set_strict_mode(0); h.connect_uri(uri); return h
size = fresh().get_size()
def refused(what, call, allowed):
    h = fresh()
    try:
        call(h)
    except nbd.Error as e:
        assert e.errno in allowed, f"{what}: {e.errno} is none of {allowed}"
    else:
        raise AssertionError(f"{what}: served")
    h.pread(512, 0)
    h.shutdown()
refused("read past the end", lambda h: h.pread(4096, size - 512), ["EINVAL"])
refused("read at 2^63", lambda h: h.pread(512, 2**63 - 512), ["EINVAL"])
refused("read of nothing", lambda h: h.pread(0, 0), ["EINVAL"])
refused("trim behind the end", lambda h: h.trim(4096, size), ["EINVAL"])
refused("zeroing over the end", lambda h: h.zero(8192, size - 4096), ["ENOSPC", "EINVAL"])
refused("write with an unknown flag", lambda h: h.pwrite(bytes(512), 0, 1 << 15), ["EINVAL"])
refused("write over the end", lambda h: h.pwrite(bytes(4096), size - 512), ["ENOSPC"])
refused("block status behind the end", lambda h: (h.block_status(4096, size + 4096, lambda *a: 0)), ["EINVAL", "ENOTSUP", "EOPNOTSUPP"])
# What is too large may be refused or served, but costs at most its own connection.
for call in (lambda h: h.pread(40 << 20, 0), lambda h: h.pwrite(bytes(40 << 20), 0), lambda h: h.pread(64 << 20, 0)):
    try:
        call(fresh())
    except nbd.Error as e:
        assert e.errno in ("EINVAL", "EOVERFLOW", "ENOMEM", "ERANGE", None, "ENOTCONN", "EPIPE", "ECONNRESET"), e.errno
h = fresh()
largest = h.get_block_size(nbd.SIZE_MAXIMUM)
assert 1 << 20 <= largest <= 32 << 20, largest
h.pwrite(b"x" * largest, 0)
assert h.pread(largest, 0) == b"x" * largest, "the largest request that it names is served"
h.pwrite(b"abc", 4095)
assert h.pread(5, 4094) == b"xabcx", "any alignment is served"
h.flush()
print("done")
"#;
        let mut command = Command::new("/usr/bin/python3");
        command.args(["-c", script, &volume.uri()]);
        let output = run_command(MINUTE, command).expect_success();
        assert!(output.stdout.contains("done"));
        daemon.assert_healthy();
    }

    fn wrong_bytes_on_the_wire_cost_their_own_connection_only(io: IoMode) {
        let (_folder, volume, mut daemon) = served("wire", 64 * MIB, Tier::Flash, io);
        let address = Address::Unix(volume.socket());
        let mut bystander = Client::connect(&volume.target()).unwrap();
        let mut check_bystander = |what: &str| {
            let mut bytes = [0; 4096];
            bystander.read(0, &mut bytes).unwrap_or_else(|e| panic!("after {what}: {e}")).unwrap();
        };
        let connect = || {
            let mut stream = Stream::connect(&address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(15))).unwrap();
            greet(&mut stream, 3).unwrap();
            stream
        };
        let go = || Client::connect(&volume.target()).unwrap();
        let closed = |stream: &mut Stream, what: &str| {
            let mut rest = [0; 1024];
            loop {
                match stream.read(&mut rest) {
                    Ok(0) => return,
                    Ok(_) => {}
                    Err(e) if e.kind() == std::io::ErrorKind::ConnectionReset => return,
                    Err(e) => panic!("{what}: the server should have hung up: {e}"),
                }
            }
        };

        // Handshake.
        let mut stream = connect();
        stream.write_all(&[0x55; 4096]).unwrap();
        closed(&mut stream, "an option without its magic");
        check_bystander("an option without its magic");

        let mut stream = connect();
        send_option(&mut stream, 0xdead, b"whatever").unwrap();
        let reply = receive_option_reply(&mut stream).unwrap();
        assert_eq!((reply.option, reply.kind), (0xdead, 0x8000_0001), "an unknown option is unsupported");
        send_option(&mut stream, 7, &go_payload("absent")).unwrap();
        assert_eq!(receive_option_reply(&mut stream).unwrap().kind, 0x8000_0006, "an unknown export");
        let mut bad = go_payload("vm1");
        bad[..4].copy_from_slice(&1000u32.to_be_bytes());
        send_option(&mut stream, 7, &bad).unwrap();
        assert_eq!(receive_option_reply(&mut stream).unwrap().kind, 0x8000_0003, "a name longer than its option");
        send_option(&mut stream, 5, &[]).unwrap();
        assert!(receive_option_reply(&mut stream).unwrap().kind >= 0x8000_0000, "no TLS here: refused");
        send_option(&mut stream, 7, &go_payload(VOLUME_NAME)).unwrap();
        while receive_option_reply(&mut stream).unwrap().kind != 1 {}
        stream.write_all(&request_header(0, 0, 9, 0, 512)).unwrap();
        assert_eq!(receive(&mut stream).unwrap(), (9, 0), "after four refusals the connection still serves");

        let mut stream = connect();
        let mut huge = 0x4948_4156_454f_5054u64.to_be_bytes().to_vec();
        huge.extend_from_slice(&7u32.to_be_bytes());
        huge.extend_from_slice(&u32::MAX.to_be_bytes());
        stream.write_all(&huge).unwrap();
        // Either the length is refused at once, or the server goes on reading into nothing; it must not keep it.
        let _ = stream.write_all(&[0; 100_000]);
        check_bystander("an option of 4 GiB");
        drop(stream);

        // Transmission.
        let mut client = go();
        client.stream.write_all(&[0xaa; 28]).unwrap();
        closed(&mut client.stream, "a request without its magic");
        check_bystander("a request without its magic");

        let mut client = go();
        client.stream.write_all(&request_header(0, 77, 1, 0, 512)).unwrap();
        assert_eq!(client.receive().unwrap(), (1, 22), "an unknown command is EINVAL");
        client.send(Nbd::Write, 0, 2, 0, 0, &[]).unwrap();
        assert_eq!(client.receive().unwrap().0, 2, "a write of nothing is answered, whatever the answer");
        client.send(Nbd::Read, 0, 3, u64::MAX - 100, 512, &[]).unwrap();
        assert_eq!(client.receive().unwrap(), (3, 22), "offset plus length wraps around");
        client.send(Nbd::Trim, 0, 4, u64::MAX, u32::MAX, &[]).unwrap();
        assert_eq!(client.receive().unwrap(), (4, 22));
        client.send(Nbd::Read, 0, 5, 0, 512, &[]).unwrap();
        assert_eq!(client.receive().unwrap(), (5, 0));

        // Half a request, half a payload, then silence and a hang-up.
        for cut in [1, 4, 27, 28, 28 + 100, 28 + 4096] {
            let mut client = go();
            let mut bytes = request_header(0, 1, 1, 0, 8192).to_vec();
            bytes.resize(28 + 8192, 0x77);
            client.stream.write_all(&bytes[..cut]).unwrap();
            client.stream.shutdown();
        }
        check_bystander("requests cut off");
        let mut bytes = [0; 8192];
        go().read(0, &mut bytes).unwrap().unwrap();
        assert!(bytes.iter().all(|&b| b == 0), "a write whose payload never arrived whole was executed");

        // A client that asks and never reads the answers.
        let mut deaf = go();
        deaf.stream.set_read_timeout(None).unwrap();
        if let Stream::Unix(s) = &deaf.stream {
            s.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        }
        for cookie in 0..2000 {
            if send(&mut deaf.stream, Nbd::Read, 0, cookie, 0, 1 << 20, &[]).is_err() {
                break;
            }
        }
        check_bystander("a client that never reads");
        drop(deaf);
        daemon.assert_healthy();
    }

    /// The cases of the reference implementation's own test client.
    fn the_reference_clients_cases_hold(io: IoMode) {
        let (_folder, volume, mut daemon) = served("reference", 50 * MIB, Tier::Flash, io);
        let target = volume.target();
        // Handshake and orderly end.
        Client::connect(&target).unwrap().disconnect().unwrap();
        // Throughput read: the whole export in 1 KiB pieces would be slow here, 64 KiB do.
        let mut client = Client::connect(&target).unwrap();
        let mut bytes = vec![0; 65536];
        for offset in (0..50 * MIB).step_by(65536) {
            client.read(offset, &mut bytes).unwrap().unwrap();
        }
        // Write, write with flush and FUA alternating, read back.
        for (i, offset) in (0..8 * MIB).step_by(65536).enumerate() {
            bytes.fill(i as u8 + 1);
            client.write(offset, &bytes, if i % 3 == 0 { FLAG_FUA } else { 0 }).unwrap().unwrap();
            if i % 5 == 0 {
                client.flush().unwrap().unwrap();
            }
        }
        for (i, offset) in (0..8 * MIB).step_by(65536).enumerate() {
            client.read(offset, &mut bytes).unwrap().unwrap();
            assert!(bytes.iter().all(|&b| b == i as u8 + 1), "at {offset}");
        }
        // Oversize: a request longer than the export.
        client.send(Nbd::Read, 0, 7, 0, 51 << 20, &[]).unwrap();
        assert_eq!(client.receive().unwrap(), (7, 22));
        // Integrity: many requests in flight, each reply for the right cookie, reads see what was replied to before.
        let mut rng = Rng::new(50);
        let mut shadow = vec![0u8; 50 << 20];
        let mut reader = Client::connect(&target).unwrap();
        for piece in 0..8 {
            reader.read(piece * MIB, &mut shadow[(piece << 20) as usize..((piece + 1) << 20) as usize]).unwrap().unwrap();
        }
        for round in 0..40u64 {
            let mut asks = Vec::new();
            for i in 0..32u64 {
                // Disjoint within a round: one megabyte and a bit each.
                let offset = i * (50 * MIB / 32) / 512 * 512 + rng.below(1024) * 512;
                asks.push(random_ask(&mut rng, offset, 64));
            }
            let answers = client.exchange(&asks).unwrap();
            compare(&asks, &answers, &mut shadow, &format!("round {round}"));
        }
        daemon.assert_healthy();
    }

    /// As its test of huge requests; ours are bounded by what the server says that it takes.
    fn integrity_holds_for_requests_of_every_size_up_to_the_largest(io: IoMode) {
        let (_folder, volume, mut daemon) = served("huge", 96 * MIB, Tier::Memory, io);
        let size = 96 * MIB;
        let mut client = Client::connect(&volume.target()).unwrap();
        let largest = u64::from(client.request_bytes_max);
        assert!(largest >= MIB, "{largest}");
        let mut rng = Rng::new(33);
        let mut shadow = vec![0u8; size as usize];
        for offset in (0..size).step_by(MIB as usize) {
            client.zero(offset, MIB as u32, 0).unwrap().unwrap();
        }
        for round in 0..40u64 {
            // The largest one, then sizes of all magnitudes, at any byte.
            let magnitude = rng.below(16);
            let length = if round == 0 { largest } else { 1 + rng.below(largest >> magnitude) };
            let offset = rng.below(size - length + 1);
            let mut payload = vec![0; length as usize];
            payload.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i as u64 * 7 + (i as u64 >> 8) + round) as u8);
            client.write(offset, &payload, 0).unwrap().unwrap();
            shadow[offset as usize..][..payload.len()].copy_from_slice(&payload);
            let length = 1 + rng.below(largest);
            let offset = rng.below(size - length + 1);
            let mut seen = vec![0; length as usize];
            client.read(offset, &mut seen).unwrap().unwrap();
            assert!(seen == shadow[offset as usize..][..seen.len()], "round {round}: {length} bytes at {offset} differ");
        }
        assert_eq!(client.write(0, &vec![1; largest as usize + 1], 0).unwrap().unwrap_err().0, 22, "one byte too many");
        daemon.assert_healthy();
    }

    /// Several exports of one server are listed, found by name, and are not the same disk.
    fn exports_are_listed_and_kept_apart(io: IoMode) {
        let (folder, volume, mut daemon) = served("exports", 32 * MIB, Tier::Flash, io);
        let image = folder.join("second.img");
        let second = ["create", "second", "--backing", image.to_str().unwrap(), "--size", "16M", "--create", "--tier-size", "64M"];
        daemon.volume_command(second).expect_success();
        let list = run_tool(MINUTE, "nbdinfo", ["--list", "--json", &volume.uri()]).expect_success();
        let list: serde_json::Value = serde_json::from_str(&list.stdout).unwrap();
        let mut names: Vec<&str> = list["exports"].as_array().unwrap().iter().map(|e| e["export-name"].as_str().unwrap()).collect();
        names.sort_unstable();
        assert_eq!(names, ["second", VOLUME_NAME]);
        let target = |export: &str| Target { address: Address::Unix(volume.socket()), export: export.into() };
        let mut clients = ["", VOLUME_NAME, "second"].map(|export| Client::connect(&target(export)).unwrap());
        assert_eq!(clients.each_ref().map(|c| c.size), [32 * MIB, 32 * MIB, 16 * MIB]);
        clients[1].write(MIB, &[1; 4096], 0).unwrap().unwrap();
        clients[2].write(MIB, &[2; 4096], 0).unwrap().unwrap();
        for (client, expected) in clients.iter_mut().zip([1, 1, 2]) {
            let mut bytes = [0; 4096];
            client.read(MIB, &mut bytes).unwrap().unwrap();
            assert_eq!(bytes, [expected; 4096]);
        }
        assert_eq!(Client::connect(&target("third")).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
        daemon.assert_healthy();
    }

    fn eight_connections_with_64_requests_each_agree_with_a_shadow_copy(io: IoMode) {
        let (_folder, volume, mut daemon) = served("parallel", 64 * MIB, Tier::Memory, io);
        let size = 64 * MIB;
        struct Shared {
            shadow: Vec<u8>,
            busy: Vec<(u64, u64)>,
        }
        let shared = Mutex::new(Shared { shadow: vec![0; size as usize], busy: Vec::new() });
        let end = Instant::now() + Duration::from_secs(2);
        let done: u64 = std::thread::scope(|scope| {
            let workers: Vec<_> = (0..8u64)
                .map(|number| {
                    let (shared, target) = (&shared, volume.target());
                    scope.spawn(move || {
                        let mut client = Client::connect(&target).unwrap();
                        let mut rng = Rng::new(900 + number);
                        let mut done = 0u64;
                        while Instant::now() < end {
                            let mut asks = Vec::new();
                            for _ in 0..64 {
                                let ask = {
                                    let offset = rng.below(size / 512 - 64) * 512;
                                    random_ask(&mut rng, offset, 64)
                                };
                                let (from, to) = (ask.offset, ask.offset + u64::from(ask.length));
                                let mut shared = shared.lock().unwrap();
                                if shared.busy.iter().all(|&(f, t)| t <= from || to <= f) {
                                    shared.busy.push((from, to));
                                    asks.push(ask);
                                }
                            }
                            let answers = client.exchange(&asks).unwrap();
                            let mut shared = shared.lock().unwrap();
                            compare(&asks, &answers, &mut shared.shadow, &format!("connection {number}"));
                            shared.busy.retain(|&(f, _)| asks.iter().all(|a| a.offset != f));
                            done += asks.len() as u64;
                        }
                        done
                    })
                })
                .collect();
            workers.into_iter().map(|w| w.join().expect("a worker saw wrong data")).sum()
        });
        assert!(done > 1000, "only {done} requests in two seconds");
        let mut client = Client::connect(&volume.target()).unwrap();
        let shadow = &shared.lock().unwrap().shadow;
        let mut bytes = vec![0; MIB as usize];
        for offset in (0..size).step_by(MIB as usize) {
            client.read(offset, &mut bytes).unwrap().unwrap();
            assert!(bytes == shadow[offset as usize..(offset + MIB) as usize], "the volume differs near {offset}");
        }
        daemon.assert_healthy();
    }

    fn tcp_and_several_sockets_serve_the_same_volume(io: IoMode) {
        let folder = TempDir::new("tcp");
        let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, io);
        let port = free_port();
        volume.arguments = vec!["--nbd".into(), format!("tcp:127.0.0.1:{port}").into()];
        let mut daemon = volume.start();
        let uri = format!("nbd://127.0.0.1:{port}/{VOLUME_NAME}");
        run_tool(MINUTE, "qemu-io", ["-f", "raw", "-c", "write -P 0x77 1M 2M", "-c", "flush", &uri]).expect_success();
        let read = ["-f", "raw", "-c", "read -P 0x77 1M 2M", &volume.uri()];
        let output = run_tool(MINUTE, "qemu-io", read).expect_success();
        assert!(!output.text().contains("verification failed"), "{}", output.describe());
        let mut client = Client::connect(&Target::parse(&uri).unwrap()).unwrap();
        let mut bytes = [0; 4096];
        client.read(MIB, &mut bytes).unwrap().unwrap();
        assert_eq!(bytes, [0x77; 4096]);
        daemon.assert_healthy();
    }

    fn nobody_takes_the_last_places_and_who_finds_none_is_told(io: IoMode) {
        let folder = TempDir::new("places");
        let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, io);
        let port = free_port();
        volume.arguments = vec!["--nbd".into(), format!("tcp:127.0.0.1:{port}").into()];
        volume.connections_max = Some(8);
        let mut daemon = volume.start();
        let tcp = Target::parse(&format!("nbd://127.0.0.1:{port}/{VOLUME_NAME}")).unwrap();
        let mut held: Vec<Client> = (0..6).map(|_| Client::connect(&tcp).unwrap()).collect();
        let refused = Client::connect(&tcp).map(drop).unwrap_err().to_string();
        assert!(refused.contains("0x80000002") && refused.contains("127.0.0.1 has 6 of the 8 places"), "{refused}");
        let begun = Instant::now();
        while !daemon.output().contains("an NBD client was not let in") {
            assert!(begun.elapsed() < MINUTE, "{}", daemon.output());
            std::thread::sleep(Duration::from_millis(20));
        }
        held.pop();
        held.push(Client::connect_within(&tcp, MINUTE).unwrap());
        // Whom this daemon's own user starts is no stranger, and every listener has its own places.
        held.extend((0..8).map(|_| Client::connect(&volume.target()).unwrap()));
        let refused = Client::connect(&volume.target()).map(drop).unwrap_err().to_string();
        assert!(refused.contains("all 8 places") && refused.contains("connections_max"), "{refused}");
        let mut bytes = [0; 4096];
        for client in &mut held {
            client.read(0, &mut bytes).unwrap().unwrap();
        }
        daemon.assert_healthy();
    }

    fn a_flush_on_one_connection_covers_the_others(io: IoMode) {
        // What CAN_MULTI_CONN promises; the durability itself is proved by the power cuts. Here: nothing of another
        // connection is stale, and a flush is answered while another connection has a request half sent.
        let (_folder, volume, _daemon) = served("multi-conn", 32 * MIB, Tier::Flash, io);
        let mut a = Client::connect(&volume.target()).unwrap();
        let mut b = Client::connect(&volume.target()).unwrap();
        let mut half = Client::connect(&volume.target()).unwrap();
        half.stream.write_all(&request_header(0, 1, 1, 0, 4096)).unwrap();
        for i in 0..200u64 {
            let bytes = [i as u8 | 1; 1024];
            a.write(i * 1024, &bytes, 0).unwrap().unwrap();
            let mut seen = [0; 1024];
            b.read(i * 1024, &mut seen).unwrap().unwrap();
            assert_eq!(seen, bytes);
            b.flush().unwrap().unwrap();
        }
    }

    fn extended_headers_carry_lengths_beyond_four_gib(io: IoMode) {
        const GIB: u64 = 1 << 30;
        let (_folder, volume, mut daemon) = served("extended", 6 * GIB, Tier::Flash, io);
        let mut stream = Stream::connect(&Address::Unix(volume.socket())).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        greet(&mut stream, 3).unwrap();
        // Extended headers without structured replies before them, then a context.
        send_option(&mut stream, 11, &[]).unwrap();
        assert_eq!(receive_option_reply(&mut stream).unwrap().kind, 1);
        send_option(&mut stream, 8, &[]).unwrap();
        assert_eq!(receive_option_reply(&mut stream).unwrap().kind, 0x8000_000a, "they cannot be taken back");
        let name = b"base:allocation";
        let mut contexts = go_payload(VOLUME_NAME)[..4 + VOLUME_NAME.len()].to_vec();
        contexts.extend_from_slice(&1u32.to_be_bytes());
        contexts.extend_from_slice(&(name.len() as u32).to_be_bytes());
        contexts.extend_from_slice(name);
        send_option(&mut stream, 10, &contexts).unwrap();
        let context = receive_option_reply(&mut stream).unwrap();
        assert_eq!((context.kind, &context.data[4..]), (4, &name[..]));
        assert_eq!(receive_option_reply(&mut stream).unwrap().kind, 1);
        send_option(&mut stream, 7, &go_payload(VOLUME_NAME)).unwrap();
        let mut flags = 0;
        loop {
            let reply = receive_option_reply(&mut stream).unwrap();
            match (reply.kind, reply.data.first_chunk::<2>()) {
                (1, _) => break,
                (3, Some([0, 0])) => flags = u16::from_be_bytes(reply.data[10..].try_into().unwrap()),
                _ => {}
            }
        }
        assert_ne!(flags & (1 << 12), 0, "contexts can be chosen in each request");

        let id = context.data[..4].to_vec();
        let mut cookie = 0;
        let mut ask = |flags: u16, command: u16, offset: u64, length: u64, payload: &[u8]| {
            cookie += 1;
            stream.write_all(&extended_request(flags, command, cookie, offset, length)).unwrap();
            stream.write_all(payload).unwrap();
            let mut chunks = Vec::new();
            loop {
                let chunk = receive_extended(&mut stream).unwrap();
                assert_eq!((chunk.cookie, chunk.offset), (cookie, offset), "a chunk repeats its request's names");
                chunks.push(chunk);
                if chunks.last().unwrap().done {
                    return chunks;
                }
            }
        };
        let (read, write, flush, trim, zero, status) = (0, 1, 3, 4, 6, 7);
        let ok = |chunks: Vec<forebay_tests::nbd::ExtendedChunk>| {
            assert!(chunks.len() == 1 && chunks[0].kind == 0 && chunks[0].data.is_empty(), "{chunks:?}");
        };
        // One request over all of it: what a new image holds is data, as far as the daemon can tell.
        ok(ask(0, zero, 0, 6 * GIB, &[]));
        for offset in [0, 5 * GIB - 4096, 6 * GIB - 4096] {
            ok(ask(FLAG_PAYLOAD, write, offset, 4096, &[0x5a; 4096]));
        }
        ok(ask(0, flush, 0, 0, &[]));
        let data = ask(0, read, 5 * GIB - 8192, 12288, &[]);
        let of_kind = |kind: u16| data.iter().filter(|c| c.kind == kind).flat_map(|c| c.data[8..].to_vec()).collect::<Vec<_>>();
        assert!(of_kind(1) == [0x5a; 4096], "the data between two holes");
        assert_eq!(of_kind(2), [4096u32.to_be_bytes(), 4096u32.to_be_bytes()].concat());
        // What lies beyond a trim of more than 4 GiB stays.
        ok(ask(0, trim, 4096, 5 * GIB - 4096, &[]));
        let extents = |chunks: Vec<forebay_tests::nbd::ExtendedChunk>| {
            assert_eq!((chunks.len(), chunks[0].kind), (1, 6), "{chunks:?}");
            assert_eq!(chunks[0].data[..4], id[..]);
            let word = |at: usize| u64::from_be_bytes(chunks[0].data[at..at + 8].try_into().unwrap());
            let count = u32::from_be_bytes(chunks[0].data[4..8].try_into().unwrap()) as usize;
            assert_eq!(chunks[0].data.len(), 8 + 16 * count);
            (0..count).map(|i| (word(8 + 16 * i), word(16 + 16 * i))).collect::<Vec<_>>()
        };
        let expected = [(4096, 0), (6 * GIB - 8192, 3), (4096, 0)];
        // A server may tell less than it is asked for.
        let (mut found, mut at): (Vec<(u64, u64)>, u64) = (Vec::new(), 0);
        while at < 6 * GIB {
            for (length, state) in extents(ask(0, status, at, 6 * GIB - at, &[])) {
                at += length;
                match found.last_mut() {
                    Some(last) if last.1 == state => last.0 += length,
                    _ => found.push((length, state)),
                }
            }
        }
        assert_eq!(found, expected);
        let query = [&(6 * GIB).to_be_bytes()[..], &id].concat();
        assert!(extents(ask(FLAG_PAYLOAD, status, 0, query.len() as u64, &query))[0] == (4096, 0));
        ok(ask(0, zero, 4096, 6 * GIB - 4096, &[]));
        let hole = ask(0, read, 6 * GIB - 4096, 4096, &[]);
        assert_eq!((hole.len(), hole[0].kind), (1, 2), "zeroed");
        // Refused: a write that does not say that its payload follows, and one byte too far.
        for (flags, command, length) in [(0, write, 4096), (0, trim, 6 * GIB + 1), (0, zero, u64::MAX)] {
            let refused = ask(flags, command, 0, length, &[]);
            assert_eq!((refused.len(), refused[0].kind), (1, 0x8001), "{refused:?}");
        }
        let kept = ask(0, read, 0, 4096, &[]);
        assert!(kept[0].data[8..] == [0x5a; 4096]);
        daemon.assert_healthy();
    }

    fn two_hundred_silent_sockets_do_not_keep_a_new_client_out(io: IoMode) {
        let (_folder, volume, daemon) = served("silent", 32 * MIB, Tier::Flash, io);
        let address = Address::Unix(volume.socket());
        let silent: Vec<Stream> = (0..200).map(|_| Stream::connect(&address).unwrap()).collect();
        let begun = Instant::now();
        let mut client = Client::connect(&volume.target()).unwrap();
        let mut bytes = [0; 512];
        client.read(0, &mut bytes).unwrap().unwrap();
        // The silent ones are hung up on after ten seconds.
        assert!(begun.elapsed() < Duration::from_secs(8), "a new client waited {:?}", begun.elapsed());
        // And the daemon can be stopped while they are there.
        drop(client);
        daemon.stop(Duration::from_secs(20));
        drop(silent);
    }

    fn a_client_that_reconnects_sees_no_difference_after_a_restart(io: IoMode) {
        let (_folder, volume, daemon) = served("reconnect", 32 * MIB, Tier::Flash, io);
        let mut client = Client::connect(&volume.target()).unwrap();
        client.write(4096, &[7; 4096], 0).unwrap().unwrap();
        daemon.stop(MINUTE);
        assert!(client.read(4096, &mut [0; 4096]).is_err(), "a stopped daemon hangs up");
        let daemon = volume.start();
        let mut client = Client::connect(&volume.target()).unwrap();
        let mut bytes = [0; 4096];
        client.read(4096, &mut bytes).unwrap().unwrap();
        assert_eq!(bytes, [7; 4096]);
        daemon.stop(MINUTE);
    }
}

/// QEMU's own reconnection: its block layer holds the requests while the daemon is killed and started again.
#[test]
fn qemu_with_reconnect_delay_sees_no_error_over_a_sigkill() {
    let (folder, volume, daemon) = served("qemu-reconnect", 64 * MIB, Tier::Flash, IoMode::Threads);
    let socket = volume.socket();
    let options = format!(
        "driver=raw,file.driver=nbd,file.server.type=unix,file.server.path={},file.reconnect-delay=30",
        socket.display()
    );
    let fifo = folder.join("commands");
    let script = r#"
mkfifo "$1"
qemu-io --image-opts "$2" < "$1" > "$3" 2>&1 &
exec 3> "$1"
echo 'write -P 0x31 0 1M' >&3
while ! grep -q wrote "$3"; do sleep 0.05; done
kill -9 "$4"
sleep 0.3
echo 'write -P 0x32 1M 1M' >&3
echo 'read -P 0x31 0 1M' >&3
echo 'read -P 0x32 1M 1M' >&3
echo 'flush' >&3
exec 3>&-
wait
"#;
    let out = folder.join("out");
    let again = volume.clone();
    let output = std::thread::scope(|scope| {
        let pid = daemon.pid().to_string();
        let arguments = [fifo.to_str().unwrap(), &options, out.to_str().unwrap(), &pid].map(str::to_owned);
        let qemu = scope.spawn(move || run_script(MINUTE, script, arguments));
        let mut daemon = daemon;
        while daemon.alive() && !qemu.is_finished() {
            std::thread::sleep(Duration::from_millis(20));
        }
        std::thread::sleep(Duration::from_secs(1));
        let second = again.start();
        let output = qemu.join().expect("qemu-io runs");
        drop(second);
        output
    });
    output.expect_success();
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(!text.contains("failed") && !text.contains("rror"), "{text}");
    assert_eq!(text.matches("wrote").count(), 2, "{text}");
}
