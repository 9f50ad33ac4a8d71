//! etcd as coordinator, by its JSON gateway.
//!
//! Why the gateway and not a client crate: transactions and a watch are all that is needed; the crate wants `protoc` to
//! build and brings eighty others. The gateway is part of every member since etcd 3.4.
//!
//! Invariants:
//! - A transaction that changes something is sent to one member. Another is tried only when not a byte of it has left, or when the answer says
//!   for certain that it had no effect; everything else is *unknown* (C2).
//! - One that has not left soon is not sent at all: what it rests on is old by then (C5).
//! - A transaction that only reads is sent to one member after the other, to the next one also where one is slow, and the first answer is
//!   taken. It is linearizable, as it names no serializable range.
//! - The member that answered last is asked first, until it is slow.
//!
//! Users with names and passwords are known to the gateway, client certificates prove only that one may connect.

pub mod health;
mod http;

use super::store::{Answer, CHANGES_MAX, Changed, Changes, Entry, Failure, Operation, Read, Transaction};
use anyhow::{Result, bail};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use forebay_api::config::endpoint::Endpoint;
use forebay_core::types::{Duration as Time, Instant};
use forebay_io::clock;
use health::Trouble;
pub use http::TlsFiles;
use http::{Client, Lost};
use hyper::StatusCode;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// How long an answer may take, unless asked otherwise: longer than a new leader is elected by default, 1 s.
pub const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// A member that has not answered for so long is not asked first any more, and who only reads asks another one as well. It is longer than a
/// commit of a slow disk takes, and shorter than a new leader is elected.
const SLOW_AFTER: Duration = Duration::from_millis(500);
/// A change that nobody has given a time leaves within so long, or not at all. It is longer than one member that cannot be reached
/// takes, and shorter than two.
pub const CHANGE_LEAVES_WITHIN: Time = Time::from_millis(1_500);
/// How etcd says that it takes no writes.
const NO_SPACE: &str = "database space exceeded";
/// A watch that fails is begun anew after this.
const WATCH_PAUSE: Duration = Duration::from_millis(500);
/// Longest piece of a watch: many changes of a kilobyte each.
const WATCH_LINE_BYTES_MAX: usize = 16 << 20;

/// How the members of etcd are reached.
#[derive(Clone, Debug)]
pub struct EtcdConfig {
    /// Where its members listen for clients.
    pub endpoints: Vec<Endpoint>,
    /// Certificate and authorities for members that want TLS.
    pub tls: Option<TlsFiles>,
    /// Name and password, where etcd has users.
    pub user: Option<(String, String)>,
    /// How long an answer may take.
    pub answer_timeout: Duration,
}

impl EtcdConfig {
    /// Whether every member is reached by TLS.
    pub fn is_protected(&self) -> bool {
        self.endpoints.iter().all(Endpoint::is_tls)
    }
}

/// The members of one etcd.
pub struct Etcd(Arc<Members>);

struct Members {
    client: Client,
    endpoints: Vec<Endpoint>,
    /// Index of the one to ask first.
    first: AtomicUsize,
    user: Option<(String, String)>,
    token: Mutex<Option<String>>,
    newest: Mutex<Newest>,
    trouble: Mutex<Vec<Trouble>>,
}

/// The newest state of etcd that an answer has told of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Newest {
    cluster: u64,
    revision: u64,
    /// How often an answer was of an older state, or of another etcd.
    rewinds: u32,
}

impl Newest {
    /// `before`: what it was when the question was sent. Answers overtake each other, so only that one may not be older.
    fn on_header(&mut self, before: Newest, header: &Value) {
        let number = |name: &str| header[name].as_str().and_then(|text| text.parse::<u64>().ok());
        let (Some(cluster), Some(revision)) = (number("cluster_id"), number("revision")) else { return };
        let known = before.revision > 0;
        if known && before.rewinds == self.rewinds && (cluster != before.cluster || revision < before.revision) {
            *self = Newest { cluster, revision, rewinds: self.rewinds + 1 };
        } else if before.rewinds == self.rewinds {
            (self.cluster, self.revision) = (cluster, self.revision.max(revision));
        }
    }
}

/// What the answer of a member means for a transaction.
enum Judged {
    Answered(Answer),
    Denied(String),
    NoEffect(String),
    /// It was not sent, because it would have left too late.
    TooLate(String),
    Unknown(String),
}

/// What one member made of a request.
enum Asked {
    Answered(Value),
    Denied(String),
    NoEffect(String),
    /// It was not sent, because it would have left too late.
    TooLate,
    Unknown(String),
}

impl Etcd {
    /// Reads certificates; asks nobody yet.
    pub fn new(config: &EtcdConfig) -> Result<Etcd> {
        if config.endpoints.is_empty() {
            bail!("no endpoint of etcd is given");
        }
        if config.tls.is_none() && config.endpoints.iter().any(Endpoint::is_tls) {
            bail!("an endpoint of etcd begins with https://, and the authority of its certificate is not given");
        }
        Ok(Etcd(Arc::new(Members {
            client: Client::new(config.tls.as_ref(), CONNECT_TIMEOUT, config.answer_timeout)?,
            endpoints: config.endpoints.clone(),
            first: AtomicUsize::new(0),
            user: config.user.clone(),
            token: Mutex::new(None),
            newest: Mutex::default(),
            trouble: Mutex::default(),
        })))
    }

    /// Carries out a transaction, see [`Store::transact`](super::store::Store::transact).
    pub async fn transact(&self, transaction: &Transaction, leaves_by: Option<Instant>) -> Result<Answer, Failure> {
        let before = *self.0.newest.lock().expect("nothing panics while it is held");
        let body = Arc::new(encode(transaction));
        match transaction.changes() {
            true => {
                let leaves_by = leaves_by.unwrap_or_else(|| clock::now() + CHANGE_LEAVES_WITHIN);
                self.0.change(transaction, &body, before, leaves_by).await
            }
            false => self.read(transaction, &body, before, leaves_by).await,
        }
    }

    /// Asks the members one after the other, each as soon as the one before has failed or is slow, and takes the first answer.
    async fn read(
        &self,
        transaction: &Transaction,
        body: &Arc<Value>,
        before: Newest,
        leaves_by: Option<Instant>,
    ) -> Result<Answer, Failure> {
        let members = &self.0;
        let (mut next, mut asked, mut failures) = (members.in_turn(), JoinSet::new(), Vec::new());
        loop {
            if let Some(at) = next.next() {
                let (members, body) = (members.clone(), body.clone());
                asked.spawn(async move { (at, members.ask_in_turn(at, &body, leaves_by).await) });
            }
            let ended = match next.len() {
                0 => asked.join_next().await,
                _ => match tokio::time::timeout(SLOW_AFTER, asked.join_next()).await {
                    Ok(ended) => ended,
                    Err(_) => continue,
                },
            };
            // All of them have failed.
            let Some(ended) = ended else { return Err(Failure::Nothing(failures.join("; "))) };
            let (at, ended) = ended.expect("asking a member does not panic");
            match members.judge(at, transaction, before, ended) {
                Judged::Answered(answer) => return Ok(answer),
                Judged::Denied(why) => return Err(Failure::Denied(why)),
                Judged::NoEffect(why) | Judged::TooLate(why) | Judged::Unknown(why) => failures.push(why),
            }
        }
    }

    /// How often etcd was seen to have gone back, see [`Store::rewinds_seen`](super::store::Store::rewinds_seen).
    pub fn rewinds_seen(&self) -> u32 {
        self.0.newest.lock().expect("nothing panics while it is held").rewinds
    }

    /// What an operator should do about etcd, see [`Store::trouble`](super::store::Store::trouble).
    pub fn trouble(&self) -> Vec<Trouble> {
        self.0.trouble.lock().expect("nothing panics while it is held").clone()
    }

    /// Asks the members how they are.
    pub async fn look_at_health(&self) {
        let found = self.0.look_at_health().await;
        *self.0.trouble.lock().expect("nothing panics while it is held") = found;
    }

    /// Tells of changes below a prefix, see [`Store::changes`](super::store::Store::changes).
    pub fn changes(&self, prefix: &str) -> Changes {
        let (sender, receiver) = mpsc::channel(CHANGES_MAX);
        let (members, prefix) = (self.0.clone(), prefix.to_owned());
        tokio::spawn(async move {
            tokio::select! {
                () = members.watch(&prefix, &sender) => {}
                () = sender.closed() => {}
            }
        });
        receiver
    }
}

impl Members {
    /// The members, from the one on that is to be asked first.
    fn in_turn(&self) -> impl ExactSizeIterator<Item = usize> + use<> {
        let (first, count) = (self.first.load(Ordering::Relaxed), self.endpoints.len());
        (0..count).map(move |more| (first + more) % count)
    }

    /// Sends a change to one member, and to another one only while it is certain that it has had no effect.
    async fn change(
        &self,
        transaction: &Transaction,
        body: &Value,
        before: Newest,
        leaves_by: Instant,
    ) -> Result<Answer, Failure> {
        let mut failures = Vec::new();
        for at in self.in_turn() {
            let ended = self.ask_in_turn(at, body, Some(leaves_by)).await;
            match self.judge(at, transaction, before, ended) {
                Judged::Answered(answer) => return Ok(answer),
                Judged::Denied(why) => return Err(Failure::Denied(why)),
                Judged::Unknown(why) => return Err(Failure::Unknown(why)),
                Judged::NoEffect(why) => failures.push(why),
                Judged::TooLate(why) => {
                    failures.push(why);
                    break;
                }
            }
        }
        Err(Failure::Nothing(failures.join("; ")))
    }

    /// Asks one member. Others who ask begin with it if it answers soon, and else with the next one.
    async fn ask_in_turn(&self, at: usize, body: &Value, leaves_by: Option<Instant>) -> Asked {
        let mut asked = std::pin::pin!(self.ask(at, "/v3/kv/txn", body, leaves_by));
        match tokio::time::timeout(SLOW_AFTER, &mut asked).await {
            Ok(asked) => {
                if matches!(asked, Asked::Answered(_)) {
                    self.first.store(at, Ordering::Relaxed);
                }
                asked
            }
            Err(_) => {
                self.pass_over(at);
                asked.await
            }
        }
    }

    /// Who asks next asks another one first, unless that is so already.
    fn pass_over(&self, at: usize) {
        let next = (at + 1) % self.endpoints.len();
        let _ = self.first.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    fn judge(&self, at: usize, transaction: &Transaction, before: Newest, asked: Asked) -> Judged {
        let unknown = match asked {
            Asked::Answered(value) => match decode(transaction, &value) {
                Some(answer) => {
                    let mut newest = self.newest.lock().expect("nothing panics while it is held");
                    newest.on_header(before, &value["header"]);
                    return Judged::Answered(answer);
                }
                None => format!("{}: an answer that is not etcd's: {value}", self.endpoints[at]),
            },
            Asked::Denied(why) => return Judged::Denied(why),
            Asked::NoEffect(why) => return Judged::NoEffect(why),
            Asked::TooLate => return Judged::TooLate(format!("{}: not asked any more", self.endpoints[at])),
            Asked::Unknown(why) => why,
        };
        self.pass_over(at);
        Judged::Unknown(self.with_cure(at, unknown))
    }

    /// What a member has refused for want of room is told with what to do about it, and shown like its alarm.
    fn with_cure(&self, at: usize, why: String) -> String {
        if !why.contains(NO_SPACE) {
            return why;
        }
        let trouble = Trouble::no_space(&format!("said {}", self.endpoints[at]));
        let told = format!("{why}: {}", trouble.text);
        let mut known = self.trouble.lock().expect("nothing panics while it is held");
        if known.iter().all(|known| known.kind != trouble.kind) {
            known.push(trouble);
        }
        told
    }

    /// Asks one member. A token that it does not know (it was restarted, or the token is old) is fetched anew once.
    async fn ask(&self, at: usize, path: &str, body: &Value, leaves_by: Option<Instant>) -> Asked {
        let to = &self.endpoints[at];
        for last in [false, true] {
            let token = match self.token(at).await {
                Ok(token) => token,
                Err(asked) => return asked,
            };
            if leaves_by.is_some_and(|leaves_by| clock::now() > leaves_by) {
                return Asked::TooLate;
            }
            let body = body.to_string().into();
            let (status, bytes) = match self.client.post(to, path, body, token.as_deref(), leaves_by).await {
                Ok(answer) => answer,
                Err(Lost::NotSent(why)) => return Asked::NoEffect(why),
                Err(Lost::Sent(why)) => return Asked::Unknown(why),
            };
            let value: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
            if status == StatusCode::OK {
                return Asked::Answered(value);
            }
            let why = value["error"].as_str().map_or_else(|| format!("{to}: {status}"), |text| format!("{to}: {text}"));
            match refusal(&value) {
                Refusal::OldToken if !last && self.user.is_some() => {
                    *self.token.lock().expect("nothing panics while it is held") = None;
                }
                Refusal::OldToken | Refusal::Denied => return Asked::Denied(why),
                Refusal::NoEffect => return Asked::NoEffect(why),
                Refusal::Unknown => return Asked::Unknown(why),
            }
        }
        unreachable!("the second round returns")
    }

    async fn token(&self, at: usize) -> Result<Option<String>, Asked> {
        let Some((name, password)) = &self.user else { return Ok(None) };
        if let Some(token) = self.token.lock().expect("nothing panics while it is held").clone() {
            return Ok(Some(token));
        }
        let to = &self.endpoints[at];
        let body = json!({ "name": name, "password": password }).to_string();
        // Nothing is changed by it, wherever it is lost.
        let (status, bytes) = match self.client.post(to, "/v3/auth/authenticate", body.into(), None, None).await {
            Ok(answer) => answer,
            Err(Lost::NotSent(why) | Lost::Sent(why)) => return Err(Asked::NoEffect(why)),
        };
        let value: Value = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
        match (status, value["token"].as_str(), refusal(&value)) {
            (StatusCode::OK, Some(token), _) => {
                *self.token.lock().expect("nothing panics while it is held") = Some(token.to_owned());
                Ok(Some(token.to_owned()))
            }
            (_, _, Refusal::Denied | Refusal::OldToken) => {
                Err(Asked::Denied(format!("{to}: user {name}: {}", value["error"].as_str().unwrap_or_default())))
            }
            _ => Err(Asked::NoEffect(format!("{to}: user {name} is not let in: {status} {value}"))),
        }
    }

    /// Tells of changes until nobody listens. Each beginning may have missed some.
    async fn watch(&self, prefix: &str, to: &mpsc::Sender<Changed>) {
        let range = json!({ "key": BASE64.encode(prefix), "range_end": BASE64.encode(behind(prefix)) });
        let body = json!({ "create_request": range });
        loop {
            for at in 0..self.endpoints.len() {
                let at = (self.first.load(Ordering::Relaxed) + at) % self.endpoints.len();
                match self.watch_at(at, &body, to).await {
                    // Most often the token has become old.
                    WatchEnd::Refused => *self.token.lock().expect("nothing panics while it is held") = None,
                    WatchEnd::Lost => {}
                }
                tokio::time::sleep(WATCH_PAUSE).await;
            }
        }
    }

    async fn watch_at(&self, at: usize, body: &Value, to: &mpsc::Sender<Changed>) -> WatchEnd {
        let Ok(token) = self.token(at).await else { return WatchEnd::Lost };
        let stream = self.client.stream(&self.endpoints[at], "/v3/watch", body.to_string().into(), token.as_deref());
        let mut stream = match stream.await {
            Ok((StatusCode::OK, stream)) => stream,
            Ok(_) => return WatchEnd::Refused,
            Err(Lost::NotSent(_) | Lost::Sent(_)) => return WatchEnd::Lost,
        };
        let mut unread = Vec::new();
        while let Ok(Some(piece)) = stream.next().await {
            unread.extend_from_slice(&piece);
            while let Some(end) = unread.iter().position(|&byte| byte == b'\n') {
                let line: Vec<u8> = unread.drain(..=end).collect();
                let Ok(line) = serde_json::from_slice(&line) else { return WatchEnd::Lost };
                let Some(changes) = changes_of(&line) else { return WatchEnd::Refused };
                for changed in changes {
                    if to.send(changed).await.is_err() {
                        return WatchEnd::Lost;
                    }
                }
            }
            if unread.len() > WATCH_LINE_BYTES_MAX {
                return WatchEnd::Lost;
            }
        }
        WatchEnd::Lost
    }
}

/// Why a watch is begun anew. That it has ended is not told: the next beginning says that anything may have changed.
enum WatchEnd {
    /// The member does not let it go on.
    Refused,
    /// The member, or the way to it, is gone.
    Lost,
}

/// Changes that one line of a watch tells of; none: the watch is refused.
fn changes_of(line: &Value) -> Option<Vec<Changed>> {
    let result = &line["result"];
    if !line["error"].is_null() || result["canceled"].as_bool() == Some(true) {
        return None;
    }
    if result["created"].as_bool() == Some(true) {
        return Some(vec![Changed::Anything]);
    }
    let events = result["events"].as_array().map_or(&[][..], Vec::as_slice);
    Some(events.iter().map(|event| text(&event["kv"]["key"]).map_or(Changed::Anything, Changed::Key)).collect())
}

/// What an answer that is no success says of the request.
enum Refusal {
    /// Not let in with this token; nothing happened.
    OldToken,
    /// Not let in at all; nothing happened.
    Denied,
    /// Refused before it was proposed to the members; nothing happened.
    NoEffect,
    /// Anything may have happened, or happen later.
    Unknown,
}

/// By gRPC's codes, and etcd's words where a code does not suffice. Whatever is not known for certain is unknown.
fn refusal(answer: &Value) -> Refusal {
    const INVALID_ARGUMENT: u64 = 3;
    const PERMISSION_DENIED: u64 = 7;
    const UNAUTHENTICATED: u64 = 16;
    let words = answer["error"].as_str().unwrap_or_default();
    match answer["code"].as_u64() {
        Some(UNAUTHENTICATED) => Refusal::OldToken,
        Some(INVALID_ARGUMENT) if words.contains("revision of auth store is old") => Refusal::OldToken,
        Some(INVALID_ARGUMENT) if words.contains("authentication failed") || words.contains("user name") => {
            Refusal::Denied
        }
        Some(PERMISSION_DENIED) => Refusal::Denied,
        // Checked before it is proposed: malformed, or too large.
        Some(INVALID_ARGUMENT) => Refusal::NoEffect,
        // Among the rest is "database space exceeded": a member says so of what it may have handed on before, and what one member
        // has no room for, another may have.
        _ => Refusal::Unknown,
    }
}

// --- JSON of the gateway: bytes are base64, numbers are text, what is zero or false is left out ---

/// The first key behind all that begin with this; no prefix here ends in 0xff.
fn behind(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

/// A key or a value. Bytes that are no text are nobody's of ours: they become one that is no value, so that a single key of
/// somebody else's does not take the answer with all the others away.
fn text(base64: &Value) -> Option<String> {
    let bytes = BASE64.decode(base64.as_str()?).ok()?;
    Some(String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
}

fn encode(transaction: &Transaction) -> Value {
    let compare = |compare: &super::store::Compare| {
        let key = BASE64.encode(&compare.key);
        match &compare.value {
            Some(value) => json!({ "target": "VALUE", "result": "EQUAL", "key": key, "value": BASE64.encode(value) }),
            None => json!({ "target": "CREATE", "result": "EQUAL", "key": key, "create_revision": "0" }),
        }
    };
    let compare: Vec<Value> = transaction.compare.iter().map(compare).collect();
    let then: Vec<Value> = transaction.then.iter().map(encode_operation).collect();
    let otherwise: Vec<Value> = transaction.otherwise.iter().map(encode_read).collect();
    json!({ "compare": compare, "success": then, "failure": otherwise })
}

fn encode_operation(operation: &Operation) -> Value {
    match operation {
        Operation::Read(read) => encode_read(read),
        Operation::Put { key, value } => {
            json!({ "request_put": { "key": BASE64.encode(key), "value": BASE64.encode(value) } })
        }
        Operation::Delete(key) => json!({ "request_delete_range": { "key": BASE64.encode(key) } }),
    }
}

fn encode_read(read: &Read) -> Value {
    match read {
        Read::Key(key) => json!({ "request_range": { "key": BASE64.encode(key) } }),
        Read::Prefix { prefix, after, most } => {
            // The least key behind `after` is itself with a zero byte.
            let from = after.as_ref().map_or_else(|| prefix.clone(), |after| format!("{after}\0"));
            json!({ "request_range": {
                "key": BASE64.encode(from), "range_end": BASE64.encode(behind(prefix)), "limit": most.to_string(),
            } })
        }
    }
}

/// Of a key that is told whole: etcd leaves an empty value out, and nothing else.
fn value_text(kv: &Value) -> Option<String> {
    match &kv["value"] {
        Value::Null => kv["mod_revision"].is_string().then(String::new),
        value => text(value),
    }
}

/// The answer to a transaction; none if it is not one. It must be whole: what is missing in it would read as *not there*.
fn decode(transaction: &Transaction, value: &Value) -> Option<Answer> {
    value["header"]["revision"].as_str()?;
    let held = match &value["succeeded"] {
        Value::Null => false,
        said => said.as_bool()?,
    };
    let empty = Vec::new();
    let responses = match &value["responses"] {
        Value::Null => &empty,
        list => list.as_array()?,
    };
    let expected: Vec<Option<&'static str>> = if held {
        transaction
            .then
            .iter()
            .map(|operation| matches!(operation, Operation::Read(_)).then_some("response_range"))
            .collect()
    } else {
        transaction.otherwise.iter().map(|_| Some("response_range")).collect()
    };
    if responses.len() != expected.len() {
        return None;
    }
    let reads = responses.iter().zip(expected).filter_map(|(response, kind)| kind.map(|kind| &response[kind]));
    let found: Option<Vec<Vec<Entry>>> = reads.map(entries).collect();
    Some(Answer { held, found: found? })
}

fn entries(range: &Value) -> Option<Vec<Entry>> {
    range.as_object()?;
    match &range["kvs"] {
        Value::Null => Some(Vec::new()),
        list => list.as_array()?.iter().map(|kv| Some((text(&kv["key"])?, value_text(kv)?))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordinator::store::Compare;

    fn transaction() -> Transaction {
        Transaction {
            compare: vec![Compare { key: "a".into(), value: None }],
            then: vec![Operation::Put { key: "a".into(), value: "1".into() }, Operation::Read(Read::Key("b".into()))],
            otherwise: vec![Read::Key("a".into())],
        }
    }

    /// As etcd 3.4.23 has answered.
    #[test]
    fn answers_are_taken_whole_or_not_at_all() {
        let held = json!({ "header": { "revision": "2" }, "succeeded": true, "responses": [
            { "response_put": { "header": { "revision": "2" } } },
            { "response_range": { "header": { "revision": "2" }, "kvs": [{ "key": "Yg==", "value": "Mg==" }], "count": "1" } },
        ] });
        let found = vec![vec![("b".to_owned(), "2".to_owned())]];
        assert_eq!(decode(&transaction(), &held), Some(Answer { held: true, found }));
        let other = json!({ "header": { "revision": "2" }, "responses": [{ "response_range": { "header": {} } }] });
        assert_eq!(decode(&transaction(), &other), Some(Answer { held: false, found: vec![vec![]] }));
        for broken in [
            json!({}),
            json!(null),
            json!({ "header": { "revision": "2" } }),
            json!({ "header": { "revision": "2" }, "succeeded": true, "responses": [{ "response_put": {} }] }),
            json!({ "header": { "revision": "2" }, "responses": [{ "response_put": {} }] }),
            json!({ "header": { "revision": "2" }, "responses": [{ "response_range": { "kvs": [{ "key": "Yg==" }] } }] }),
            json!({ "header": { "revision": "2" }, "responses": [{ "response_range": { "kvs": "none" } }] }),
        ] {
            assert_eq!(decode(&transaction(), &broken), None, "{broken}");
        }
    }

    #[test]
    fn a_refusal_counts_as_without_effect_only_where_that_is_certain() {
        let of = |code: u64, error: &str| refusal(&json!({ "error": error, "code": code }));
        assert!(matches!(of(16, "etcdserver: invalid auth token"), Refusal::OldToken));
        assert!(matches!(of(3, "etcdserver: revision of auth store is old"), Refusal::OldToken));
        assert!(matches!(of(3, "etcdserver: authentication failed, invalid user ID or password"), Refusal::Denied));
        assert!(matches!(of(3, "etcdserver: user name is empty"), Refusal::Denied));
        assert!(matches!(of(7, "etcdserver: permission denied"), Refusal::Denied));
        assert!(matches!(of(3, "etcdserver: request is too large"), Refusal::NoEffect));
        assert!(matches!(of(8, "etcdserver: mvcc: database space exceeded"), Refusal::Unknown));
        for unknown in ["etcdserver: request timed out", "etcdserver: leader changed", "etcdserver: no leader"] {
            assert!(matches!(of(14, unknown), Refusal::Unknown));
        }
        assert!(matches!(refusal(&Value::Null), Refusal::Unknown));
    }

    /// As etcd 3.4.23 has answered.
    #[test]
    fn a_watch_tells_of_keys_and_ends_when_it_is_refused() {
        let line = json!({ "result": { "header": {}, "events": [{ "kv": { "key": "YQ==", "value": "YQ==" } }, { "type": "DELETE" }] } });
        assert_eq!(changes_of(&line), Some(vec![Changed::Key("a".into()), Changed::Anything]));
        let created = json!({ "result": { "header": {}, "created": true } });
        assert_eq!(changes_of(&created), Some(vec![Changed::Anything]));
        assert_eq!(changes_of(&json!({ "result": { "header": {}, "created": true, "canceled": true } })), None);
        assert_eq!(changes_of(&json!({ "error": { "message": "no leader" } })), None);
    }

    #[test]
    fn keys_behind_a_prefix_end_where_the_next_one_begins() {
        assert_eq!(behind("/forebay/lab/"), b"/forebay/lab0");
        let read = Read::Prefix { prefix: "a/".into(), after: Some("a/x".into()), most: 2 };
        let range = &encode_read(&read)["request_range"];
        assert_eq!((text(&range["key"]), text(&range["range_end"])), (Some("a/x\0".into()), Some("a0".into())));
    }
}
