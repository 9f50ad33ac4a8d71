//! NBD over TLS: real clients with certificates, and what happens to those who have none, the wrong one, or no manners.

use forebay_tests::certificates::{Authority, Validity};
use forebay_tests::harness::{
    Daemon, IoMode, Nbdkit, Output, TempDir, Tier, VOLUME_NAME, Volume, free_port, require_tool, run_command, run_tool,
};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::{Address, Client, Stream, greet, receive_option_reply, send_option};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const MINUTE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;
const STARTTLS: u32 = 5;

/// A daemon that serves over TCP to clients with certificates of its own authority only. (QEMU wants one authority for
/// both sides.)
struct Site {
    folder: TempDir,
    authority: Authority,
    volume: Volume,
    daemon: Daemon,
    port: u16,
}

impl Site {
    fn new(name: &str, io: IoMode) -> Site {
        let folder = TempDir::new(name);
        let authority = Authority::new("authority");
        let server = authority.server(&folder, "server", Validity::Current);
        let mut volume = Volume::new(&folder, 64 * MIB, Tier::Flash, io);
        let port = free_port();
        volume.arguments = vec!["--nbd".into(), format!("tcp:127.0.0.1:{port}").into()];
        for (flag, path) in [
            ("--tls-cert", server.join("server-cert.pem")),
            ("--tls-key", server.join("server-key.pem")),
            ("--tls-client-ca", server.join("ca-cert.pem")),
        ] {
            volume.arguments.extend([flag.into(), path.into_os_string()]);
        }
        let daemon = volume.start();
        Site { folder, authority, volume, daemon, port }
    }

    /// The folder of a client that is let in.
    fn member(&self) -> PathBuf {
        self.authority.client(&self.folder, "member", Some((&self.authority, Validity::Current)))
    }

    fn uri(&self, certificates: &Path) -> String {
        format!("nbds://localhost:{}/{VOLUME_NAME}?tls-certificates={}", self.port, certificates.display())
    }

    fn connect(&self) -> Stream {
        let mut stream = Stream::connect(&Address::Tcp(format!("127.0.0.1:{}", self.port))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        greet(&mut stream, 3).unwrap();
        stream
    }

    fn qemu_io(&self, certificates: &Path, commands: &[&str]) -> Output {
        let object = format!("tls-creds-x509,id=tls0,endpoint=client,dir={}", certificates.display());
        let image = format!(
            "driver=raw,file.driver=nbd,file.server.type=inet,file.server.host=localhost,file.server.port={},\
             file.export={VOLUME_NAME},file.tls-creds=tls0",
            self.port
        );
        let mut arguments = vec!["--object", &object, "--image-opts"];
        for command in commands {
            arguments.extend(["-c", command]);
        }
        arguments.push(&image);
        run_tool(MINUTE, "qemu-io", arguments)
    }
}

in_both_io_modes! {
    fn real_clients_with_certificates_are_served(io: IoMode) {
        let mut site = Site::new("tls", io);
        let member = site.member();
        let uri = site.uri(&member);
        let info = run_tool(MINUTE, "nbdinfo", ["--json", &uri]).expect_success();
        let info: serde_json::Value = serde_json::from_str(&info.stdout).unwrap();
        assert_eq!(info["TLS"], true, "{info}");
        assert_eq!(info["exports"][0]["export-size"], 64 * MIB);
        assert_eq!(info["structured"], true);

        // In by nbdcopy with several connections, out by qemu-io and nbdcopy.
        let image: Vec<u8> = (0..64 * MIB).map(|at| (at / 4096 * 31 + at % 251) as u8 | 1).collect();
        let (source, back) = (site.folder.join("in"), site.folder.join("out"));
        std::fs::write(&source, &image).unwrap();
        run_tool(MINUTE, "nbdcopy", ["--flush", "--connections=4", source.to_str().unwrap(), &uri]).expect_success();
        run_tool(MINUTE, "nbdcopy", [&uri, back.to_str().unwrap()]).expect_success();
        assert!(std::fs::read(&back).unwrap() == image, "the copy differs");
        let output = site.qemu_io(&member, &["write -P 0x55 1M 3M", "write -z 2M 64k", "discard 3M 64k", "flush",
            "read -P 0x55 1M 1M", "read -P 0 2M 64k", "read -P 0 3M 64k", "aio_write -P 7 8M 4M", "aio_flush", "read -P 7 8M 4M"]);
        let output = output.expect_success();
        assert!(!output.text().contains("failed"), "{}", output.describe());

        // Random sizes and offsets with checksums; fio cannot be told of certificates, so nbdkit stands between.
        let bridge = Nbdkit::start(&site.folder, ["nbd", "hostname=localhost", &format!("port={}", site.port),
            &format!("export={VOLUME_NAME}"), "tls=require", &format!("tls-certificates={}", member.display())]);
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "90"]).arg(require_tool("fio")).current_dir(site.folder.path());
        command.args(["--name=v", "--ioengine=nbd", &format!("--uri={}", bridge.uri()), "--size=32m", "--rw=randwrite"]);
        command.args(["--bsrange=512-64k", "--iodepth=32", "--verify=crc32c", "--verify_fatal=1", "--verify_backlog=256"]);
        run_command(Duration::from_secs(100), command).expect_success();

        // The unix socket is guarded by its permissions, and serves the same bytes in the clear.
        let mut client = Client::connect(&site.volume.target()).unwrap();
        let mut bytes = [0; 4096];
        client.read(40 * MIB, &mut bytes).unwrap().unwrap();
        assert!(bytes == image[(40 * MIB) as usize..][..4096]);
        site.daemon.assert_healthy();
        site.daemon.stop(MINUTE);
    }
}

#[test]
fn who_has_no_right_certificate_is_kept_out_and_disturbs_nobody() {
    let mut site = Site::new("tls-strangers", IoMode::Threads);
    let strangers = Authority::new("strangers");
    let (authority, folder) = (&site.authority, &site.folder);
    for (what, certificates) in [
        ("no certificate", authority.client(folder, "none", None)),
        ("an expired one", authority.client(folder, "expired", Some((authority, Validity::Expired)))),
        ("a stranger's", authority.client(folder, "strange", Some((&strangers, Validity::Current)))),
        ("trust in another authority", strangers.client(folder, "distrust", Some((authority, Validity::Current)))),
    ] {
        let output = run_tool(MINUTE, "nbdinfo", [&site.uri(&certificates)]).expect_failure();
        assert!(output.text().contains("gnutls"), "{what}: {}", output.describe());
    }
    // QEMU without a certificate; others it refuses to use by itself.
    let output = site.qemu_io(&folder.join("none"), &["read 0 512"]).expect_failure();
    assert!(output.text().contains("an't open"), "{}", output.describe());
    // In the clear nothing is told but that TLS is wanted.
    let plain = format!("nbd://localhost:{}/{VOLUME_NAME}", site.port);
    run_tool(MINUTE, "nbdinfo", [&plain]).expect_failure();
    run_tool(MINUTE, "nbdinfo", ["--list", &plain]).expect_failure();
    let mut stream = site.connect();
    for option in [3, 6, 7, 8, 9, 10, 11, 77] {
        send_option(&mut stream, option, &[]).unwrap();
        let reply = receive_option_reply(&mut stream).unwrap();
        assert_eq!((reply.option, reply.kind), (option, 0x8000_0005), "TLS first");
        assert!(!String::from_utf8_lossy(&reply.data).contains(VOLUME_NAME));
    }
    // The member, and the same connection that was refused eight times, still have their way.
    send_option(&mut stream, STARTTLS, &[]).unwrap();
    assert_eq!(receive_option_reply(&mut stream).unwrap().kind, 1);
    run_tool(MINUTE, "nbdinfo", ["--size", &site.uri(&site.member())]).expect_success();
    site.daemon.assert_healthy();
}

#[test]
fn hostile_handshakes_end_in_time_and_disturb_nobody() {
    let mut site = Site::new("tls-hostile", IoMode::Uring);
    let begin = || {
        let mut stream = site.connect();
        send_option(&mut stream, STARTTLS, &[]).unwrap();
        assert_eq!(receive_option_reply(&mut stream).unwrap().kind, 1);
        stream
    };
    let until_closed = |stream: &mut Stream, what: &str| {
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
    // Bytes slipped in behind STARTTLS.
    let mut stream = site.connect();
    let mut bytes = Vec::new();
    for option in [STARTTLS, 8] {
        bytes.extend_from_slice(&0x4948_4156_454f_5054u64.to_be_bytes());
        bytes.extend_from_slice(&option.to_be_bytes());
        bytes.extend_from_slice(&[0; 4]);
    }
    stream.write_all(&bytes).unwrap();
    until_closed(&mut stream, "injected bytes");
    // No TLS at all.
    for garbage in [&[0u8; 1000][..], b"GET / HTTP/1.1\r\n\r\n", &[22, 3, 1, 0xff, 0xff, 0, 0, 0, 0, 0]] {
        let mut stream = begin();
        let _ = stream.write_all(garbage);
        until_closed(&mut stream, "garbage");
    }
    // Those who begin and say nothing, or speak too slowly, have as long as everybody has for the whole handshake.
    let begun = Instant::now();
    let mut silent = begin();
    let mut slow = begin();
    // The head of a hello of 500 bytes, then a byte at a time.
    slow.write_all(&[22, 3, 1, 1, 0xf8, 1, 0, 1, 0xf4]).unwrap();
    let mut trickled = 0;
    while slow.write_all(&[0]).is_ok() && begun.elapsed() < Duration::from_secs(20) {
        trickled += 1;
        std::thread::sleep(Duration::from_millis(250));
    }
    until_closed(&mut silent, "a silent client");
    assert!(begun.elapsed() < Duration::from_secs(15), "a handshake may take ten seconds");
    assert!((30..60).contains(&trickled), "{trickled} bytes were taken from the slow one");
    run_tool(MINUTE, "nbdinfo", ["--size", &site.uri(&site.member())]).expect_success();
    site.daemon.assert_healthy();
}

#[test]
fn a_start_says_what_is_wrong_with_tls_and_where_it_is_missing() {
    let folder = TempDir::new("tls-start");
    let authority = Authority::new("servers");
    let server = authority.server(&folder, "server", Validity::Current);
    let other = authority.server(&folder, "other", Validity::Current);
    let (certificate, key) = (server.join("server-cert.pem"), server.join("server-key.pem"));
    let volume = |arguments: &[&Path]| {
        let mut volume = Volume::new(&folder, 16 * MIB, Tier::Flash, IoMode::Threads);
        let flags = ["--tls-cert", "--tls-key", "--tls-client-ca"];
        volume.arguments = vec!["--nbd".into(), "tcp:127.0.0.1:0".into()];
        for (flag, path) in flags.iter().zip(arguments) {
            volume.arguments.extend([(*flag).into(), path.as_os_str().to_owned()]);
        }
        volume
    };
    volume(&[Path::new("/absent.pem"), &key]).expect_refusal().says(&["/absent.pem", "certificate", "--tls-cert"]);
    volume(&[&certificate, &other.join("server-key.pem")]).expect_refusal().says(&["other/server-key.pem", "key"]);
    volume(&[&certificate, &key, &key]).expect_refusal().says(&["server-key.pem", "authority of clients"]);
    let started = |volume: Volume| volume.start().stop(MINUTE);
    let said = started(volume(&[&certificate, &key]));
    assert!(said.contains("warning") && said.contains("--tls-client-ca"), "{said}");
    let said = started(volume(&[&certificate, &key, &server.join("ca-cert.pem")]));
    assert!(!said.contains("warning"), "{said}");
    assert!(said.contains("TLS only") && said.contains("tls-creds-x509"), "{said}");
    let said = started(volume(&[]));
    assert!(!said.contains("warning"), "loopback is for this host alone: {said}");
    // An expired certificate is for the clients to refuse.
    let old = authority.server(&folder, "old", Validity::Expired);
    let mut expired = volume(&[&old.join("server-cert.pem"), &old.join("server-key.pem")]);
    let port = free_port();
    expired.arguments[1] = format!("tcp:127.0.0.1:{port}").into();
    let daemon = expired.start();
    let uri = format!("nbds://localhost:{port}/{VOLUME_NAME}?tls-certificates={}", old.display());
    let said = run_tool(MINUTE, "nbdinfo", ["--size", &uri]).expect_failure().text();
    assert!(said.contains("certificate verification"), "{said}");
    daemon.stop(MINUTE);
    let mut open = volume(&[]);
    open.arguments[1] = "tcp:0.0.0.0:0".into();
    let said = started(open);
    assert!(said.contains("warning") && said.contains("tcp:0.0.0.0:0"), "{said}");
}
