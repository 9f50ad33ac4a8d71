//! The NBD client survives any server: its own stream stays in step, each operation ends at most once, and nothing is
//! written behind an operation's memory.
#![no_main]

use arbitrary::Arbitrary;
use forebay_io::backing::nbd::NbdClient;
use forebay_io::backing::nbd::handshake::{Connected, Export};
use forebay_io::backing::nbd::uri::NbdUri;
use forebay_io::memory::AlignedBuffer;
use forebay_io::buffers::Buffers;
use forebay_io::operation::OperationKind;
use forebay_io::reactor::{ModeChoice, Reactor};
use libfuzzer_sys::fuzz_target;
use socket2::{Domain, Socket, Type};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;

/// Nobody listens there: a connection that is lost stays lost.
const URI: &str = "nbd+unix:///x?socket=/nonexistent/forebay-fuzz";
const SIZE: u64 = 256 << 10;
const TOKEN: u64 = 1 << 40;
const STEPS_MAX: usize = 48;
const FILL: u8 = 0xa5;

#[derive(Arbitrary, Debug)]
enum Step {
    Submit {
        kind: u8,
        offset: u16,
        blocks: u8,
        hole: bool,
    },
    /// A right answer to one of the requests that came.
    Answer {
        which: u8,
        error: u8,
        fill: u8,
    },
    /// Nearly a right one.
    Wrong {
        which: u8,
        magic: u32,
        cookie_off: i16,
        error: u32,
        data: Vec<u8>,
    },
    Raw(Vec<u8>),
    /// So many of the bytes that are to be said, no more for now.
    Cut(u16),
    HangUp,
}

#[derive(Arbitrary, Debug)]
struct Input {
    flush: bool,
    zero: bool,
    align_4096: bool,
    request_blocks_max: u8,
    size_off: u16,
    steps: Vec<Step>,
}

/// A request as the server reads it.
struct Asked {
    command: u16,
    cookie: u64,
    offset: u64,
    length: u32,
}

struct Server {
    socket: Socket,
    heard: Vec<u8>,
    asked: Vec<Asked>,
    says: Vec<u8>,
}

impl Server {
    fn hear(&mut self) {
        let mut bytes = [0; 65536];
        while let Ok(count @ 1..) = (&self.socket).read(&mut bytes) {
            self.heard.extend_from_slice(&bytes[..count]);
        }
        while self.heard.len() >= 28 {
            let word = |at: usize| u32::from_be_bytes(self.heard[at..at + 4].try_into().expect("four bytes"));
            let long = |at: usize| u64::from_be_bytes(self.heard[at..at + 8].try_into().expect("eight bytes"));
            assert_eq!(word(0), 0x2560_9513, "the client's stream is out of step");
            let command = (word(4) & 0xffff) as u16;
            let asked = Asked { command, cookie: long(8), offset: long(16), length: word(24) };
            let behind = 28 + if command == 1 { asked.length as usize } else { 0 };
            if self.heard.len() < behind {
                return;
            }
            self.heard.drain(..behind);
            self.asked.push(asked);
        }
    }

    fn answer(&mut self, which: u8, error: u32, fill: Option<u8>) {
        if self.asked.is_empty() {
            return;
        }
        let asked = self.asked.swap_remove(usize::from(which) % self.asked.len());
        self.says.extend(0x6744_6698u32.to_be_bytes());
        self.says.extend(error.to_be_bytes());
        self.says.extend(asked.cookie.to_be_bytes());
        if asked.command == 0 && error == 0 {
            // The block's number, so that bytes that go astray are seen.
            let mark = fill.unwrap_or((asked.offset / 512) as u8);
            self.says.extend((0..asked.length as u64).map(|at| mark.wrapping_add((at / 512) as u8)));
        }
    }

    fn say(&mut self, most: usize) {
        let count = most.min(self.says.len());
        // The client may have hung up, which must not be the end of this process.
        let sent = self.socket.send_with_flags(&self.says[..count], libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT);
        self.says.drain(..sent.unwrap_or(0));
    }
}

/// What was submitted and has not ended.
struct Open {
    kind: OperationKind,
    /// Start and length of its memory; what lies behind it must stay as it is.
    memory: (*const u8, usize),
}

thread_local! {
    static REACTOR: RefCell<Reactor> = RefCell::new(Reactor::new(ModeChoice::Threads).expect("a reactor"));
}

fn submit(client: &mut NbdClient, reactor: &mut Reactor, key: usize, kind: OperationKind, length: usize) -> Open {
    let mut buffer = AlignedBuffer::new(length + 4096);
    buffer.fill(FILL);
    buffer.set_len(length);
    let memory = (buffer.as_ptr(), length);
    let buffers = match kind {
        OperationKind::Read { .. } | OperationKind::Write { .. } => Buffers::owned(buffer),
        OperationKind::Zero { .. } | OperationKind::Sync => Buffers::none(),
    };
    client.submit(reactor, key, kind, buffers);
    Open { kind, memory }
}

fn take_ended(client: &mut NbdClient, open: &mut BTreeMap<usize, Open>) {
    while let Some((key, _)) = client.take_finished() {
        open.remove(&key).unwrap_or_else(|| panic!("operation {key} has ended twice"));
    }
}

fn run(input: &Input, reactor: &mut Reactor) {
    let (ours, theirs) = Socket::pair(Domain::UNIX, Type::STREAM, None).expect("a pair of sockets");
    ours.set_nonblocking(true).expect("non-blocking");
    theirs.set_nonblocking(true).expect("non-blocking");
    let align = if input.align_4096 { 4096 } else { 512 };
    let most = 4096 * (1 + u32::from(input.request_blocks_max % 16));
    let export = Export {
        size: SIZE - u64::from(input.size_off % 8192),
        flush: input.flush,
        zero: input.zero,
        one_cache: input.flush,
        align,
        request_bytes_max: most,
        zero_bytes_max: most,
    };
    let mut client = NbdClient::new(NbdUri::parse(URI).expect("a good URI"), Connected { socket: ours, export });
    client.set_token(TOKEN);
    let mut server = Server { socket: theirs, heard: Vec::new(), asked: Vec::new(), says: Vec::new() };
    let mut open = BTreeMap::new();
    for (key, step) in input.steps.iter().take(STEPS_MAX).enumerate() {
        let mut most = usize::MAX;
        match step {
            Step::Submit { kind, offset, blocks, hole } => {
                let length = 4096 * (1 + u64::from(blocks % 32));
                let offset = u64::from(*offset) * 4096 % (SIZE - length);
                let kind = match kind % 4 {
                    0 => OperationKind::Read { offset },
                    1 => OperationKind::Write { offset },
                    2 => OperationKind::Zero { offset, length, hole: *hole },
                    _ => OperationKind::Sync,
                };
                open.insert(key, submit(&mut client, reactor, key, kind, length as usize));
            }
            Step::Answer { which, error, fill } => {
                server.answer(*which, u32::from(error.saturating_sub(200)), (*fill > 128).then_some(*fill));
            }
            Step::Wrong { which, magic, cookie_off, error, data } => {
                let cookie = server.asked.get(usize::from(*which)).map_or(0, |asked| asked.cookie);
                server.says.extend((0x6744_6698 ^ magic % 2).to_be_bytes());
                server.says.extend(error.to_be_bytes());
                server.says.extend(cookie.wrapping_add_signed((*cookie_off).into()).to_be_bytes());
                server.says.extend(data);
            }
            Step::Raw(bytes) => server.says.extend(bytes),
            Step::Cut(bytes) => most = (*bytes).into(),
            Step::HangUp => {
                let _ = server.socket.shutdown(std::net::Shutdown::Both);
            }
        }
        server.hear();
        server.say(most);
        client.ready(reactor, TOKEN, true, false);
        take_ended(&mut client, &mut open);
        for (key, open) in &open {
            // SAFETY: the operation has not ended, so its buffer is the client's and stays; 4096 bytes of it lie behind
            // the length that the client was given, and nobody writes them.
            let behind = unsafe { std::slice::from_raw_parts(open.memory.0.add(open.memory.1), 4096) };
            let owns = matches!(open.kind, OperationKind::Read { .. } | OperationKind::Write { .. });
            assert!(!owns || behind.iter().all(|byte| *byte == FILL), "operation {key} was written behind its end");
        }
    }
}

fuzz_target!(|input: Input| {
    REACTOR.with_borrow_mut(|reactor| run(&input, reactor));
});
