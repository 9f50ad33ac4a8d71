//! A client under TLS against a greeter and a connection over a socket pair: that it is served as in the clear, and that
//! whoever breaks TLS, or has no business here, is closed and costs nothing else.

use super::*;
use crate::memory::MemoryVolume;
use crate::nbd::channel::Channel;
use crate::nbd::connection::{Closed, Connection, Scratch, WaitsFor};
use crate::nbd::greeter::Greeter;
use crate::nbd::handshake::ExportInfo;
use crate::nbd::proto::*;
use forebay_core::types::Instant;
use forebay_io::socket;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::JoinHandle;

const SIZE: u64 = 8 << 20;

struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key, in PEM.
struct Pem {
    certificate: String,
    key: String,
}

impl Authority {
    fn new() -> Authority {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// With the role of a client of volumes.
    fn issue_client(&self, name: &str, expired: bool) -> Pem {
        self.issue(name, expired, Some("forebay:role:nbd-client"))
    }

    fn issue(&self, name: &str, expired: bool, role: Option<&str>) -> Pem {
        let mut params = CertificateParams::new([name.to_string()]).unwrap();
        params.subject_alt_names.extend(role.map(|role| rcgen::SanType::URI(role.try_into().unwrap())));
        if expired {
            params.not_before = rcgen::date_time_ymd(2001, 1, 1);
            params.not_after = rcgen::date_time_ymd(2002, 1, 1);
        }
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap().pem();
        Pem { certificate, key: key.serialize_pem() }
    }
}

struct Files(tempfile::TempDir);

impl Files {
    fn put(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

fn server(authority: &Authority, clients: Option<&Authority>) -> TlsServer {
    let files = Files(tempfile::tempdir().unwrap());
    let Pem { certificate, key } = authority.issue("localhost", false, None);
    let client_authority = clients.map(|authority| files.put("ca.pem", &authority.0.pem()));
    TlsServer::load(&files.put("cert.pem", &certificate), &files.put("key.pem", &key), client_authority.as_deref())
        .unwrap()
}

fn client_config(authority: &Authority, own: Option<&Pem>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.0.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![certificate], key).unwrap()
        }
    })
}

/// How a session on the server's side has ended.
type Ended = Result<Closed, String>;

/// Serves one client on the other end of the returned socket; checks that no frame is lost.
fn serve(tls: TlsServer) -> (UnixStream, JoinHandle<Ended>) {
    let (client, socket) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    let thread = std::thread::spawn(move || {
        let export = ExportInfo {
            name: "vm1".into(),
            size_bytes: SIZE,
            description: String::new(),
            read_only: false,
            request_bytes_max: 32 << 20,
        };
        let greeted = Greeter::new(socket.into(), Some(tls), Instant(0)).finish(&export);
        let (channel, negotiated) = greeted.map_err(|error| error.to_string())?;
        assert!(channel.is_encrypted());
        let mut volume = MemoryVolume::new(SIZE, 8192).unwrap();
        volume.check_payloads();
        let frames = volume.frames_free();
        let closed = drive(Connection::new(channel, 1, *negotiated, Instant(0)), &mut volume);
        assert_eq!(volume.frames_free() + volume.frames_of_content(), frames, "a frame was lost");
        Ok(closed)
    });
    (client, thread)
}

/// As a shard does.
fn drive(mut connection: Connection, volume: &mut MemoryVolume) -> Closed {
    let (mut scratch, mut answers) = (Scratch::default(), Vec::new());
    loop {
        match connection.waits_for() {
            WaitsFor::Turn | WaitsFor::Frames => {}
            WaitsFor::Readable | WaitsFor::Replies | WaitsFor::Nothing => {
                socket::wait(connection.socket(), connection.has_unsent()).unwrap();
            }
        }
        connection.receive(volume, &mut scratch, Instant(0));
        volume.take_answers(&mut answers);
        answers.drain(..).for_each(|(id, result)| connection.reply(volume, id, result));
        connection.flush_replies(volume, &mut scratch, Instant(0));
        if let Some(why) = connection.closed() {
            return why.clone();
        }
    }
}

/// The conversation in the clear, up to where TLS begins.
fn ask_for_tls(client: &mut UnixStream) {
    let mut bytes = vec![0, 0, 0, 3];
    put_option(&mut bytes, OptionKind::StartTls.number(), b"");
    client.write_all(&bytes).unwrap();
    let mut answer = [0; GREETING_BYTES + OPTION_REPLY_HEAD_BYTES];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer[GREETING_BYTES + 12..][..4], (OptionReply::Ack as u32).to_be_bytes());
}

type Stream = StreamOwned<ClientConnection, UnixStream>;

/// TLS, then GO; fails where the server does not let the client in.
fn enter(mut client: UnixStream, config: Arc<ClientConfig>) -> io::Result<Stream> {
    ask_for_tls(&mut client);
    let name = ServerName::try_from("localhost").unwrap();
    let tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
    let mut stream = StreamOwned::new(tls, client);
    let mut bytes = Vec::new();
    put_option(&mut bytes, OptionKind::Go.number(), b"\0\0\0\0\0\0");
    stream.write_all(&bytes)?;
    let mut answer = [0; 2 * OPTION_REPLY_HEAD_BYTES + 12];
    stream.read_exact(&mut answer)?;
    Ok(stream)
}

fn request(command: Command, cookie: u64, offset: u64, length: u64) -> [u8; REQUEST_BYTES] {
    RequestHead { flags: 0, command, cookie, offset, length }.encode()
}

fn pattern(seed: usize, length: usize) -> Vec<u8> {
    (0..length).map(|at| (seed * 31 + at * 7 + (at >> 8)) as u8 | 1).collect()
}

#[test]
fn what_is_written_under_tls_is_read() {
    let authority = Authority::new();
    let (client, server) = serve(server(&authority, None));
    let mut stream = enter(client, client_config(&authority, None)).unwrap();
    for (seed, (offset, length)) in
        [(0, 4096), (4095, 2), (100, 9000), (1 << 20, 16384), (5000, 3_000_001), (0, SIZE as usize)]
            .into_iter()
            .enumerate()
    {
        let payload = pattern(seed, length);
        stream.write_all(&request(Command::Write, 1, offset, length as u64)).unwrap();
        stream.write_all(&payload).unwrap();
        stream.write_all(&request(Command::Read, 2, offset, length as u64)).unwrap();
        let mut answers = vec![0; 2 * SIMPLE_REPLY_BYTES + length];
        stream.read_exact(&mut answers).unwrap();
        let expected = [&simple_reply(0, 1)[..], &simple_reply(0, 2), &payload].concat();
        assert!(answers == expected, "{length} bytes at {offset}");
        // New keys in the middle change nothing.
        stream.conn.refresh_traffic_keys().unwrap();
    }
    stream.write_all(&request(Command::Disconnect, 3, 0, 0)).unwrap();
    assert_eq!(server.join().unwrap(), Ok(Closed::Disconnected));
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).expect("the server says goodbye in TLS before it hangs up");
    assert!(rest.is_empty());
}

#[test]
fn a_thousand_requests_that_arrive_in_one_piece_are_all_answered() {
    // More plaintext than one receipt takes lies in the session while the socket has nothing left to say.
    let authority = Authority::new();
    let (client, server) = serve(server(&authority, None));
    let mut stream = enter(client, client_config(&authority, None)).unwrap();
    let mut bytes = Vec::new();
    for cookie in 0..1000 {
        bytes.extend_from_slice(&request(Command::Write, cookie, cookie * 4096, 4096));
        bytes.extend_from_slice(&pattern(cookie as usize, 4096));
    }
    stream.write_all(&bytes).unwrap();
    let mut answers = vec![0; 1000 * SIMPLE_REPLY_BYTES];
    stream.read_exact(&mut answers).unwrap();
    for (cookie, answer) in answers.chunks_exact(SIMPLE_REPLY_BYTES).enumerate() {
        assert_eq!(answer, simple_reply(0, cookie as u64));
    }
    drop(stream);
    assert!(matches!(server.join().unwrap(), Ok(Closed::Socket(_))));
}

#[test]
fn bytes_under_tls_may_arrive_one_at_a_time() {
    let authority = Authority::new();
    let (mut client, server) = serve(server(&authority, None));
    ask_for_tls(&mut client);
    let config = client_config(&authority, None);
    let mut tls = ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap();
    let mut words = Vec::new();
    put_option(&mut words, OptionKind::Go.number(), b"\0\0\0\0\0\0");
    words.extend_from_slice(&request(Command::Write, 1, 3, 5000));
    words.extend_from_slice(&pattern(1, 5000));
    words.extend_from_slice(&request(Command::Read, 2, 3, 5000));
    let mut answers = Vec::new();
    let expected = 2 * OPTION_REPLY_HEAD_BYTES + 12 + 2 * SIMPLE_REPLY_BYTES + 5000;
    while answers.len() < expected {
        let mut encrypted = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut encrypted).unwrap();
        }
        encrypted.iter().for_each(|byte| client.write_all(&[*byte]).unwrap());
        if !tls.is_handshaking() && !words.is_empty() {
            tls.writer().write_all(&std::mem::take(&mut words)).unwrap();
            continue;
        }
        tls.read_tls(&mut client).unwrap();
        let state = tls.process_new_packets().unwrap();
        let mut plain = vec![0; state.plaintext_bytes_to_read()];
        tls.reader().read_exact(&mut plain).unwrap();
        answers.extend_from_slice(&plain);
    }
    assert_eq!(answers[expected - 5000..], pattern(1, 5000));
    tls.send_close_notify();
    tls.write_tls(&mut client).unwrap();
    assert_eq!(server.join().unwrap(), Ok(Closed::HungUp), "an orderly end of the stream, though without good-bye");
}

#[test]
fn a_stream_that_is_cut_is_not_taken_for_its_end() {
    let authority = Authority::new();
    let (client, server) = serve(server(&authority, None));
    let mut stream = enter(client, client_config(&authority, None)).unwrap();
    // Half a write, then the socket is closed without a word.
    stream.write_all(&request(Command::Write, 1, 0, 8192)).unwrap();
    stream.write_all(&[7; 4096]).unwrap();
    drop(stream);
    assert_eq!(server.join().unwrap(), Ok(Closed::Socket(io::ErrorKind::UnexpectedEof)));
}

#[test]
fn a_record_that_was_changed_on_its_way_ends_the_connection() {
    let authority = Authority::new();
    let (client, server) = serve(server(&authority, None));
    let mut stream = enter(client, client_config(&authority, None)).unwrap();
    stream.conn.writer().write_all(&request(Command::Flush, 1, 0, 0)).unwrap();
    let mut encrypted = Vec::new();
    stream.conn.write_tls(&mut encrypted).unwrap();
    encrypted[20] ^= 1;
    stream.sock.write_all(&encrypted).unwrap();
    assert_eq!(server.join().unwrap(), Ok(Closed::Socket(io::ErrorKind::InvalidData)));
    assert!(stream.read(&mut [0; 100]).is_err(), "the client is told by an alert");
}

#[test]
fn only_clients_with_a_certificate_of_the_right_authority_are_let_in() {
    let (authority, clients, strangers) = (Authority::new(), Authority::new(), Authority::new());
    let tls = server(&authority, Some(&clients));
    let member = clients.issue_client("qemu", false);
    let (client, served) = serve(tls.clone());
    let mut stream = enter(client, client_config(&authority, Some(&member))).unwrap();
    stream.write_all(&request(Command::Disconnect, 1, 0, 0)).unwrap();
    assert_eq!(served.join().unwrap(), Ok(Closed::Disconnected));
    let expired = clients.issue_client("qemu", true);
    let stranger = strangers.issue_client("qemu", false);
    let node = clients.issue("qemu", false, Some("forebay:role:node"));
    for (what, own) in
        [("none", None), ("expired", Some(&expired)), ("of a stranger", Some(&stranger)), ("a node's", Some(&node))]
    {
        let (client, served) = serve(tls.clone());
        assert!(enter(client, client_config(&authority, own)).is_err(), "certificate: {what}");
        assert!(served.join().unwrap().is_err(), "certificate: {what}");
    }
    // And the client does not talk to a server that it does not trust.
    let (client, served) = serve(tls);
    assert!(enter(client, client_config(&strangers, Some(&member))).is_err());
    assert!(served.join().unwrap().is_err());
}

#[test]
fn garbage_instead_of_tls_is_sent_away() {
    let tls = server(&Authority::new(), None);
    let mut huge = vec![22, 3, 1, 0xff, 0xff];
    huge.resize(80_000, 0);
    // A hello that announces 16 MiB, in records as large as they may be.
    let mut endless = Vec::new();
    for _ in 0..40 {
        endless.extend_from_slice(&[22, 3, 1, 0x40, 0]);
        endless.extend_from_slice(&[1, 0xff, 0xff, 0xff]);
        endless.resize(endless.len() + 0x4000 - 4, 0);
    }
    let mut option = Vec::new();
    put_option(&mut option, OptionKind::List.number(), b"");
    let tls12_hello_without_13 = [22, 3, 1, 0, 4, 1, 0, 0, 0];
    for (what, bytes) in [
        ("zeros", &[0; 1000][..]),
        ("a request of HTTP", b"GET / HTTP/1.1\r\n\r\n"),
        ("an option in the clear", &option),
        ("a record longer than the protocol allows", &huge),
        ("a hello without end", &endless),
        ("a hello of nothing", &tls12_hello_without_13),
        ("data before any key", &[23, 3, 3, 0, 1, 0]),
    ] {
        let (mut client, served) = serve(tls.clone());
        ask_for_tls(&mut client);
        // The server may hang up before it has taken everything.
        let _ = client.write_all(bytes);
        assert!(served.join().unwrap().is_err(), "{what}");
    }
}

#[test]
fn bytes_that_come_with_starttls_never_reach_the_session() {
    let tls = server(&Authority::new(), None);
    let (mut client, served) = serve(tls);
    let mut bytes = vec![0, 0, 0, 3];
    put_option(&mut bytes, OptionKind::StartTls.number(), b"");
    put_option(&mut bytes, OptionKind::StructuredReply.number(), b"");
    client.write_all(&bytes).unwrap();
    let why = served.join().unwrap().unwrap_err();
    assert!(why.contains("behind STARTTLS"), "{why}");
}

#[test]
fn a_client_that_takes_nothing_is_waited_for_with_bounded_memory() {
    let authority = Authority::new();
    let (client, server) = serve(server(&authority, None));
    let mut stream = enter(client, client_config(&authority, None)).unwrap();
    stream.sock.set_write_timeout(Some(std::time::Duration::from_millis(300))).unwrap();
    // Writes first: holes would be answered by zeros, which cost no frame.
    stream.write_all(&request(Command::Write, 0, 0, SIZE)).unwrap();
    stream.write_all(&vec![1; SIZE as usize]).unwrap();
    let mut asked = 0;
    while asked < 20_000 && stream.write_all(&request(Command::Read, asked, 0, 1 << 20)).is_ok() {
        asked += 1;
    }
    assert!(asked < 20_000, "the server goes on reading requests whose answers nobody takes");
    drop(stream);
    assert!(matches!(server.join().unwrap(), Ok(Closed::Socket(_))));
}

#[test]
fn files_that_are_no_use_are_named() {
    let authority = Authority::new();
    let files = Files(tempfile::tempdir().unwrap());
    let (one, other) = (authority.issue("localhost", false, None), authority.issue("localhost", false, None));
    let certificate = files.put("cert.pem", &one.certificate);
    let key = files.put("key.pem", &one.key);
    let wrong_key = files.put("other-key.pem", &other.key);
    let nothing = files.put("nothing.pem", "# no PEM here\n");
    let absent = files.0.path().join("absent.pem");
    let refused = |certificate: &Path, key: &Path, authority: Option<&Path>, words: [&str; 2]| {
        let error = TlsServer::load(certificate, key, authority).err().expect("refused").to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    };
    refused(&absent, &key, None, ["absent.pem", "certificate"]);
    refused(&nothing, &key, None, ["nothing.pem", "certificate"]);
    refused(&certificate, &absent, None, ["absent.pem", "key"]);
    refused(&certificate, &nothing, None, ["nothing.pem", "key"]);
    refused(&certificate, &wrong_key, None, ["other-key.pem", "key"]);
    refused(&certificate, &key, Some(&absent), ["absent.pem", "authority"]);
    refused(&certificate, &key, Some(&nothing), ["nothing.pem", "authority"]);
    assert!(TlsServer::load(&certificate, &key, Some(&certificate)).is_ok());
}

#[test]
fn a_plain_channel_gives_its_socket_back() {
    let (client, socket) = UnixStream::pair().unwrap();
    let channel = Channel::plain(socket.into());
    assert!(!channel.is_encrypted() && !channel.has_unsent());
    drop(channel.into_plain_socket());
    assert_eq!((&client).read(&mut [0; 1]).unwrap(), 0);
}
