//! Fixed newstyle negotiation: bytes in, bytes out, until the client has chosen an export or is sent away.
//!
//! Nothing of a volume is touched before negotiation has ended, so that an unknown client costs a small buffer and no
//! more. Every length is bounded before it takes memory, the number of options as well. The time is the caller's: it
//! closes a connection that has not ended its handshake within [`HANDSHAKE_MAX`], and gives more to one that waits for an
//! export which cannot be entered yet ([`Outcome::Await`]).
//!
//! ```text
//! greeting -> [client flags] -> [option]* -> Negotiated
//!                  |               +-> Close (ABORT, nonsense, limits, EXPORT_NAME of an unknown export)
//!                  |               +-> StartTls -> [option]* -> Negotiated
//!                  +-> Close (unknown flags)
//! ```
//!
//! Where TLS is required, nothing but STARTTLS and ABORT is answered in the clear, and nothing of what was said in the
//! clear counts afterwards: bytes that arrive together with STARTTLS, before its answer, end the connection, because
//! they would be taken for bytes of the encrypted session.

use super::proto::*;
use forebay_core::roles::Client;
use forebay_core::types::{BLOCK_BYTES, Duration, REQUEST_BYTES_MAX};

/// A handshake that takes longer is closed by the caller.
pub const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// Largest payload of one option; QEMU's and libnbd's largest are a few kilobytes.
pub const OPTION_PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Most options in one handshake. A real client sends fewer than twenty.
pub const OPTIONS_MAX: u32 = 128;
/// Most bytes of answers that one call of [`Handshake::feed`] may leave unsent; a list of a thousand exports has less.
pub const ANSWER_BYTES_MAX: usize = 1 << 20;

/// What a client is told of an export.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExportInfo {
    /// Its own name, also when it was found as the default export.
    pub name: String,
    /// Size of the export in bytes.
    pub size_bytes: u64,
    /// A line for people; may be empty.
    pub description: String,
    /// Refuses everything that changes it.
    pub read_only: bool,
    /// Largest request that it takes; clients that ask are told, at most [`REQUEST_BYTES_MAX`].
    pub request_bytes_max: u32,
}

/// The exports of a server. One that a client may not use is to this client as if there were none.
pub trait Exports {
    /// The export of this name; the empty name asks for the default export.
    fn lookup(&self, client: &Client, name: &str) -> Option<ExportInfo>;
    /// Names of all exports that the client may use, with their descriptions.
    fn list(&self, client: &Client) -> Vec<(String, String)>;
    /// There is an export of this name that the client may use, and it cannot be entered yet: who asks for it waits.
    fn awaits(&self, _client: &Client, _name: &str) -> bool {
        false
    }
    /// The client enters an export that it has found, unless there is a reason against it, which it is told.
    fn admit(&self, _client: &Client) -> Result<(), String> {
        Ok(())
    }
}

/// A server of one export, which is the default one as well.
impl Exports for ExportInfo {
    fn lookup(&self, client: &Client, name: &str) -> Option<ExportInfo> {
        (client.may_use(None) && (name.is_empty() || name == self.name)).then(|| self.clone())
    }
    fn list(&self, client: &Client) -> Vec<(String, String)> {
        let seen = client.may_use(None).then(|| (self.name.clone(), self.description.clone()));
        seen.into_iter().collect()
    }
}

/// Exports as one client may see them: what answers options has no others.
struct Seen<'a> {
    exports: &'a dyn Exports,
    client: &'a Client,
}

impl Seen<'_> {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        self.exports.lookup(self.client, name)
    }

    fn list(&self) -> Vec<(String, String)> {
        self.exports.list(self.client)
    }

    fn admit(&self) -> Result<(), String> {
        self.exports.admit(self.client)
    }

    fn awaits(&self, name: &str) -> bool {
        self.exports.awaits(self.client, name)
    }
}

/// What negotiation ended with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Negotiated {
    /// The client that has chosen.
    pub client: Client,
    /// The export that was chosen.
    pub export: ExportInfo,
    /// How requests and replies are framed.
    pub framing: Framing,
    /// Contexts that block status may be asked for.
    pub contexts: ContextSet,
    /// Bytes of the transmission phase that have arrived already.
    pub leftover: Vec<u8>,
}

/// Where a handshake stands after it was fed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// More bytes are needed.
    Continue,
    /// The client has asked for an export that cannot be entered yet: to be fed again, with nothing or more, in a while.
    Await,
    /// Send the answers; then TLS begins, and [`Handshake::encrypted`] goes on with what comes through it.
    StartTls,
    /// The transmission phase begins once the answers have been sent.
    Ready(Box<Negotiated>),
    /// Send the answers, then close. The text says why.
    Close(&'static str),
}

/// Transmission flags of an export.
pub fn transmission_flags(export: &ExportInfo, framing: Framing, contexts: ContextSet) -> u16 {
    use transmission::*;
    // CAN_MULTI_CONN: a flush on any connection covers what every connection was told is written, because all of them
    // hand their requests to one volume.
    let mut flags = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN | SEND_CACHE;
    flags |= SEND_TRIM | SEND_WRITE_ZEROES | SEND_FAST_ZERO;
    if export.read_only {
        flags |= READ_ONLY;
    }
    if framing.has_chunks() {
        flags |= SEND_DF;
    }
    if framing == Framing::Extended && !contexts.is_empty() {
        flags |= BLOCK_STATUS_PAYLOAD;
    }
    flags
}

/// What stands between the client and others who listen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Encryption {
    /// Nothing, and nothing is offered.
    Off,
    /// The client must ask for TLS before anything else.
    Required,
    /// TLS is there.
    Active,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    ClientFlags,
    Options { fixed: bool, no_zeroes: bool },
    Ended,
}

/// One negotiation, from the greeting to an export or the end.
#[derive(Debug)]
pub struct Handshake {
    phase: Phase,
    /// Bytes that do not make a whole message yet.
    input: Vec<u8>,
    options: u32,
    encryption: Encryption,
    framing: Framing,
    /// Contexts count only for the export they were selected for.
    contexts: Option<(String, ContextSet)>,
}

impl Handshake {
    /// Begins: the greeting is the first thing in `out`.
    pub fn new(out: &mut Vec<u8>) -> Handshake {
        Handshake::begin(Encryption::Off, out)
    }

    /// Begins with a client that must go over to TLS before anything else.
    pub fn requiring_tls(out: &mut Vec<u8>) -> Handshake {
        Handshake::begin(Encryption::Required, out)
    }

    fn begin(encryption: Encryption, out: &mut Vec<u8>) -> Handshake {
        out.extend_from_slice(&greeting());
        let (phase, framing) = (Phase::ClientFlags, Framing::Simple);
        Handshake { phase, input: Vec::new(), options: 0, encryption, framing, contexts: None }
    }

    /// Goes on under TLS, after [`Outcome::StartTls`]. Of what was said before only the client's flags are left.
    ///
    /// # Panics
    /// When TLS was not asked for.
    pub fn encrypted(self) -> Handshake {
        assert!(self.encryption == Encryption::Required, "the client asked for TLS");
        assert!(self.input.is_empty(), "nothing that came in the clear is taken over");
        let (encryption, framing) = (Encryption::Active, Framing::Simple);
        Handshake { phase: self.phase, input: Vec::new(), options: 0, encryption, framing, contexts: None }
    }

    /// Takes what has arrived and appends the answers to `out`. The caller sends `out` before it receives more, so
    /// that a client that never reads cannot make answers pile up.
    ///
    /// # Panics
    /// When fed again after `Ready` or `Close`.
    pub fn feed(&mut self, bytes: &[u8], client: &Client, exports: &dyn Exports, out: &mut Vec<u8>) -> Outcome {
        let exports = &Seen { exports, client };
        assert!(self.phase != Phase::Ended, "a handshake that has ended is not fed");
        self.input.extend_from_slice(bytes);
        let mut at = 0;
        let outcome = loop {
            let rest = &self.input[at..];
            match self.phase {
                Phase::ClientFlags => {
                    let Some(flags) = rest.first_chunk::<CLIENT_FLAGS_BYTES>() else { break Outcome::Continue };
                    let flags = u32::from_be_bytes(*flags);
                    at += CLIENT_FLAGS_BYTES;
                    if flags & !(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES) != 0 {
                        break Outcome::Close("the client set handshake flags that were not offered");
                    }
                    self.phase = Phase::Options {
                        fixed: flags & FLAG_FIXED_NEWSTYLE != 0,
                        no_zeroes: flags & FLAG_NO_ZEROES != 0,
                    };
                }
                Phase::Options { fixed, no_zeroes } => {
                    let Some(head) = rest.first_chunk::<OPTION_HEAD_BYTES>() else { break Outcome::Continue };
                    let Some((option, length)) = decode_option_head(head) else {
                        break Outcome::Close("the client sent an option with a wrong magic");
                    };
                    let length = length as usize;
                    if length > OPTION_PAYLOAD_BYTES_MAX {
                        if fixed {
                            put_option_reply(out, option, OptionReply::ErrTooBig, b"option longer than 64 KiB");
                        }
                        break Outcome::Close("the client sent an option longer than 64 KiB");
                    }
                    let whole = OPTION_HEAD_BYTES + length;
                    if rest.len() < whole {
                        break Outcome::Continue;
                    }
                    self.options += 1;
                    if self.options > OPTIONS_MAX {
                        break Outcome::Close("the client sent too many options");
                    }
                    let payload = self.input[at + OPTION_HEAD_BYTES..at + whole].to_vec();
                    at += whole;
                    if !fixed && option != OptionKind::ExportName {
                        break Outcome::Close("the client without fixed newstyle sent another option than EXPORT_NAME");
                    }
                    let step = self.on_option(option, &payload, no_zeroes, exports, out);
                    if let Some(outcome) = self.take_step(step, whole, &mut at, client) {
                        break outcome;
                    }
                    if out.len() > ANSWER_BYTES_MAX {
                        break Outcome::Close("the client asks for answers faster than it reads them");
                    }
                }
                Phase::Ended => unreachable!("asserted above; the loop leaves when it ends"),
            }
        };
        match &outcome {
            Outcome::Continue | Outcome::Await | Outcome::StartTls => drop(self.input.drain(..at)),
            Outcome::Ready(_) | Outcome::Close(_) => {
                self.phase = Phase::Ended;
                self.input = Vec::new();
            }
        }
        outcome
    }

    /// What comes of an option that takes so many bytes before `at`; none: the next one.
    fn take_step(&mut self, step: Step, whole: usize, at: &mut usize, client: &Client) -> Option<Outcome> {
        Some(match step {
            Step::Next => return None,
            Step::Await => {
                *at -= whole;
                self.options -= 1;
                match self.input.len() - *at > whole + OPTION_PAYLOAD_BYTES_MAX {
                    // Who waits for an answer has nothing more to say.
                    true => Outcome::Close("the client sent much more while it waits for its export"),
                    false => Outcome::Await,
                }
            }
            Step::Close(reason) => Outcome::Close(reason),
            Step::StartTls if *at < self.input.len() => {
                Outcome::Close("the client sent bytes in the clear behind STARTTLS")
            }
            Step::StartTls => Outcome::StartTls,
            Step::Enter(export, contexts) => Outcome::Ready(Box::new(Negotiated {
                client: client.clone(),
                export,
                framing: self.framing,
                contexts,
                leftover: self.input[*at..].to_vec(),
            })),
        })
    }

    /// What becomes of an option in the clear where TLS is required.
    fn on_option_before_tls(&mut self, option: OptionKind, payload: &[u8], out: &mut Vec<u8>) -> Step {
        match option {
            OptionKind::StartTls if payload.is_empty() => {
                put_option_reply(out, option, OptionReply::Ack, b"");
                Step::StartTls
            }
            OptionKind::StartTls => {
                put_option_reply(out, option, OptionReply::ErrInvalid, b"STARTTLS takes no payload");
                Step::Next
            }
            OptionKind::Abort => {
                put_option_reply(out, option, OptionReply::Ack, b"");
                Step::Close("the client aborted the negotiation")
            }
            // It has no error reply.
            OptionKind::ExportName => Step::Close("the client asked for an export without TLS, which is required"),
            OptionKind::List
            | OptionKind::Info
            | OptionKind::Go
            | OptionKind::StructuredReply
            | OptionKind::ListMetaContext
            | OptionKind::SetMetaContext
            | OptionKind::ExtendedHeaders
            | OptionKind::Unknown(_) => {
                put_option_reply(out, option, OptionReply::ErrTlsReqd, b"this server wants TLS first (STARTTLS)");
                Step::Next
            }
        }
    }

    fn on_option(
        &mut self,
        option: OptionKind,
        payload: &[u8],
        no_zeroes: bool,
        exports: &Seen<'_>,
        out: &mut Vec<u8>,
    ) -> Step {
        if self.encryption == Encryption::Required {
            return self.on_option_before_tls(option, payload, out);
        }
        match option {
            OptionKind::ExportName if self.framing == Framing::Extended => {
                Step::Close("the client chose extended headers and then EXPORT_NAME, which has none")
            }
            OptionKind::ExportName => self.on_export_name(payload, no_zeroes, exports, out),
            OptionKind::Abort => {
                put_option_reply(out, option, OptionReply::Ack, b"");
                Step::Close("the client aborted the negotiation")
            }
            OptionKind::List => {
                if !payload.is_empty() {
                    put_option_reply(out, option, OptionReply::ErrInvalid, b"LIST takes no payload");
                    return Step::Next;
                }
                for (name, description) in exports.list() {
                    let mut item = (name.len() as u32).to_be_bytes().to_vec();
                    item.extend_from_slice(name.as_bytes());
                    item.extend_from_slice(description.as_bytes());
                    put_option_reply(out, option, OptionReply::Server, &item);
                }
                put_option_reply(out, option, OptionReply::Ack, b"");
                Step::Next
            }
            OptionKind::Info | OptionKind::Go => self.on_info(option, payload, exports, out),
            OptionKind::StructuredReply => {
                self.on_framing(option, payload, Framing::Structured, out);
                Step::Next
            }
            OptionKind::ExtendedHeaders => {
                self.on_framing(option, payload, Framing::Extended, out);
                Step::Next
            }
            OptionKind::ListMetaContext | OptionKind::SetMetaContext => self.on_contexts(option, payload, exports, out),
            OptionKind::StartTls => {
                let (reply, text) = match self.encryption {
                    Encryption::Active => (OptionReply::ErrInvalid, &b"TLS is there already"[..]),
                    Encryption::Off | Encryption::Required => (OptionReply::ErrPolicy, &b"TLS is off here"[..]),
                };
                put_option_reply(out, option, reply, text);
                Step::Next
            }
            OptionKind::Unknown(_) => {
                put_option_reply(out, option, OptionReply::ErrUnsup, b"option not supported");
                Step::Next
            }
        }
    }

    fn on_export_name(&mut self, payload: &[u8], no_zeroes: bool, exports: &Seen<'_>, out: &mut Vec<u8>) -> Step {
        // The option has no error reply: whoever asks for nonsense is closed.
        if payload.len() > STRING_BYTES_MAX {
            return Step::Close("the client sent an export name longer than 4096 bytes");
        }
        let Ok(name) = core::str::from_utf8(payload) else {
            return Step::Close("the client sent an export name that is not UTF-8");
        };
        let Some(export) = exports.lookup(name) else {
            if exports.awaits(name) {
                return Step::Await;
            }
            return Step::Close("the client asked for an export that does not exist");
        };
        if exports.admit().is_err() {
            return Step::Close("the client is not let in");
        }
        out.extend_from_slice(&export.size_bytes.to_be_bytes());
        let contexts = self.contexts_for(name);
        out.extend_from_slice(&transmission_flags(&export, self.framing, contexts).to_be_bytes());
        if !no_zeroes {
            out.extend_from_slice(&[0; 124]);
        }
        Step::Enter(export, contexts)
    }

    fn on_framing(&mut self, option: OptionKind, payload: &[u8], framing: Framing, out: &mut Vec<u8>) {
        let (reply, text) = if !payload.is_empty() {
            (OptionReply::ErrInvalid, &b"this option takes no payload"[..])
        } else if self.framing == Framing::Extended && framing != Framing::Extended {
            (OptionReply::ErrExtHeaderReqd, &b"extended headers are agreed on already"[..])
        } else {
            self.framing = framing;
            (OptionReply::Ack, &b""[..])
        };
        put_option_reply(out, option, reply, text);
    }

    fn on_info(&mut self, option: OptionKind, payload: &[u8], exports: &Seen<'_>, out: &mut Vec<u8>) -> Step {
        let query = match InfoQuery::decode(payload) {
            Ok(query) => query,
            Err(why) => {
                refuse(option, why, out);
                return Step::Next;
            }
        };
        let Some(export) = exports.lookup(query.name) else {
            if exports.awaits(query.name) {
                return Step::Await;
            }
            put_option_reply(out, option, OptionReply::ErrUnknown, b"no export of this name");
            return Step::Next;
        };
        if option == OptionKind::Go
            && let Err(why) = exports.admit()
        {
            put_option_reply(out, option, OptionReply::ErrPolicy, why.as_bytes());
            return Step::Next;
        }
        let mut info = |kind: InfoKind, body: &[&[u8]]| {
            let item = [&(kind as u16).to_be_bytes()[..], &body.concat()].concat();
            put_option_reply(out, option, OptionReply::Info, &item);
        };
        let contexts = self.contexts_for(query.name);
        let flags = transmission_flags(&export, self.framing, contexts);
        info(InfoKind::Export, &[&export.size_bytes.to_be_bytes(), &flags.to_be_bytes()]);
        if query.wants_name {
            info(InfoKind::Name, &[export.name.as_bytes()]);
        }
        if query.wants_description && !export.description.is_empty() {
            info(InfoKind::Description, &[export.description.as_bytes()]);
        }
        if query.wants_block_size {
            let sizes = [1u32, BLOCK_BYTES as u32, export.request_bytes_max.min(REQUEST_BYTES_MAX as u32)];
            info(InfoKind::BlockSize, &sizes.each_ref().map(|size| size.to_be_bytes()).each_ref().map(|b| &b[..]));
        }
        put_option_reply(out, option, OptionReply::Ack, b"");
        if option == OptionKind::Go {
            return Step::Enter(export, contexts);
        }
        Step::Next
    }

    fn on_contexts(&mut self, option: OptionKind, payload: &[u8], exports: &Seen<'_>, out: &mut Vec<u8>) -> Step {
        let set = option == OptionKind::SetMetaContext;
        if set {
            // A new selection replaces the old one even where it fails.
            self.contexts = None;
        }
        if !self.framing.has_chunks() {
            put_option_reply(out, option, OptionReply::ErrInvalid, b"negotiate structured replies first");
            return Step::Next;
        }
        let query = match ContextQuery::decode(payload) {
            Ok(query) => query,
            Err(why) => {
                refuse(option, why, out);
                return Step::Next;
            }
        };
        if exports.lookup(query.name).is_none() {
            if exports.awaits(query.name) {
                return Step::Await;
            }
            put_option_reply(out, option, OptionReply::ErrUnknown, b"no export of this name");
            return Step::Next;
        }
        let mut chosen = ContextSet::default();
        for context in Context::ALL {
            let name = context.name();
            let namespace = &name[..=name.find(':').expect("every context has a namespace")];
            let hit = |query: &&str| *query == name || (!set && *query == namespace);
            if query.queries.iter().any(hit) || (!set && query.queries.is_empty()) {
                chosen.insert(context);
                // In a list the number has no meaning; the protocol wants it zero.
                let id = if set { context.id() } else { 0 };
                let item = [&id.to_be_bytes()[..], name.as_bytes()].concat();
                put_option_reply(out, option, OptionReply::MetaContext, &item);
            }
        }
        put_option_reply(out, option, OptionReply::Ack, b"");
        if set {
            self.contexts = Some((query.name.to_string(), chosen));
        }
        Step::Next
    }

    fn contexts_for(&self, name: &str) -> ContextSet {
        match &self.contexts {
            Some((selected, contexts)) if selected == name => *contexts,
            Some(_) | None => ContextSet::default(),
        }
    }
}

enum Step {
    Next,
    Await,
    StartTls,
    Close(&'static str),
    Enter(ExportInfo, ContextSet),
}

fn refuse(option: OptionKind, why: Malformed, out: &mut Vec<u8>) {
    let (reply, text) = match why {
        Malformed::Invalid => (OptionReply::ErrInvalid, &b"malformed payload"[..]),
        Malformed::TooBig => (OptionReply::ErrTooBig, &b"string longer than 4096 bytes"[..]),
    };
    put_option_reply(out, option, reply, text);
}

#[cfg(test)]
mod tests;
