//! Whatever is taken of a writer of the coordinator keeps these rules, whichever kind it is of. They are stated here over the text as it
//! stands there, by names of fields and not by the types that read it: so a type that checks less than it did is seen.
//!
//! Valid texts of each kind are changed one place at a time (each value by each hostile one, lists made empty and long, parts left out,
//! doubled and nested) and then by bytes, from a seed. That every rule is met is shown by readers that check nothing: of what these take,
//! each rule is broken. What answers requests is left out: it counts with the seal of a node only.

use super::hostile::{changed_by_bytes, hostile_texts, load_of, whole_definition};
use super::*;
use crate::coordinator::requests::Nonce;
use forebay_api::checked::Hex64;
use serde_json::Value;

/// Longest value that is looked at.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// A kind of value, one that is valid, and whether a text is taken for one.
struct Kind {
    name: &'static str,
    valid: Vec<String>,
    takes: fn(&str) -> bool,
}

/// Whether it is taken; and then it is what would be written.
fn takes<T: Document>(text: &str) -> bool {
    T::decode(text).is_ok_and(|taken| {
        assert_eq!(taken.encode(), text, "one form for one meaning");
        true
    })
}

fn kind<T: Document>(name: &'static str, valid: &[T]) -> Kind {
    let valid: Vec<String> = valid.iter().map(Document::encode).collect();
    assert!(valid.iter().all(|text| takes::<T>(text)), "{name}: {valid:?}");
    Kind { name, valid, takes: takes::<T> }
}

fn kinds() -> Vec<Kind> {
    let mut node = NodeEntry::new(named("alpha"), NodeId(5), host(3));
    node.addresses = vec!["10.0.0.1:7071".into(), "10.0.1.1:7071".into()];
    let identity = Line::of("i6300");
    node.watchdog = Some(WatchdogDefinition { identity, resets_within_ms: 80_000, proven_unix_s: Some(5) });
    let unfenced = vec![forebay_core::cluster::Unfenced { term: Term(1), node: NodeId(9), host: host(9) }];
    let record = Record { unfenced, ..record(3, 1) };
    let flushed = Record { flushed: forebay_core::cluster::Flushed::Durable, ..record.clone() };
    let call = |wish| Call { version: VERSION, id: VM1, from: named("a"), volume: VM1, command: wish };
    let wishes = [
        OwnerCommand::Hold { seconds: 60 },
        OwnerCommand::HandOver { to: named("b") },
        OwnerCommand::Resize { size_bytes: 4096 },
        OwnerCommand::Drain { through: true },
        OwnerCommand::Release,
        OwnerCommand::Delete { discard_dirty: true },
    ];
    let owned = OwnedVolume {
        volume: VM1,
        term: 1,
        effective: PolicyName::Back,
        reason: Code::of("as-requested"),
        since_s: 1,
        owner_reason: Code::of("none"),
        owner_since_s: 1,
        backing: Code::of("ready"),
        dirty_bytes: 5,
        lag: vec![(Hex64(5), 7)],
    };
    let told = OwnedVolumes { version: VERSION, name: named("alpha"), at_ms: 5, volumes: vec![owned] };
    let mark = RewindMark::with(None, &[RewindId(1 << 40), RewindId(2 << 40)]).expect("two are missing");
    vec![
        kind("definition", &[definition("vm1", VM1), whole_definition()]),
        kind("record", &[StoredRecord::Record(record), StoredRecord::Record(flushed), kept(3, 1)]),
        kind("record", &[StoredRecord::Deleted { term: Term(9), epoch: Epoch(1) }]),
        kind("node", &[node]),
        kind("call", &wishes.map(call)),
        kind("mark", &[mark]),
        kind("settings", &[Settings::default()]),
        kind("load", &[load_of("alpha")]),
        kind("owned", &[told]),
        kind("audit", &[audit(5, Some(VM1)).line]),
        kind("leaving", &[Evacuation { version: VERSION, name: named("a"), at_ms: 1 }]),
        kind("nonce", &[Nonce { version: VERSION, name: named("a"), nonce: VM1 }]),
    ]
}

/// Calls of each value in a document, with the name of the field that it is of.
fn each<'a>(field: &'a str, value: &'a Value, of: &mut dyn FnMut(&'a str, &'a Value)) {
    of(field, value);
    match value {
        Value::Object(fields) => fields.iter().for_each(|(field, value)| each(field, value, of)),
        Value::Array(values) => values.iter().for_each(|value| each(field, value, of)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether one of the values of these fields is as it must not be.
fn any(document: &Value, fields: &[&str], wrong: impl Fn(&Value) -> bool) -> bool {
    let mut found = false;
    each("", document, &mut |field, value| found |= (fields.is_empty() || fields.contains(&field)) && wrong(value));
    found
}

fn is_over(most: u64) -> impl Fn(&Value) -> bool {
    move |value| value.is_number() && value.as_u64().is_none_or(|number| number > most)
}

fn has_over(most: usize) -> impl Fn(&Value) -> bool {
    move |value| value.as_array().is_some_and(|values| values.len() > most)
}

fn is_text(wrong: impl Fn(&str) -> bool) -> impl Fn(&Value) -> bool {
    move |value| value.as_str().is_some_and(&wrong)
}

fn is_obeyed(letter: char) -> bool {
    letter.is_control() || matches!(letter, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_no_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !(1..=63).contains(&text.len()) || !text.bytes().all(plain) || text.starts_with(['.', '-'])
}

/// Longest text, most entries of each list, largest numbers: what breaks one of these does harm. By kind, or of all of them.
type Rule = (&'static str, &'static [&'static str], fn(&Value) -> bool);
const RULES: [Rule; 17] = [
    ("no text moves a cursor", &[], |it| any(it, &[], is_text(|text| text.chars().any(is_obeyed)))),
    ("no text has more than 8 KiB", &[], |it| any(it, &[], is_text(|text| text.len() > 8192))),
    ("names are parts of paths", &["definition", "node", "load", "owned", "leaving", "nonce", "call"], |it| {
        any(it, &["name", "from", "to"], is_text(is_no_name))
    }),
    ("a code is a word", &["owned", "audit"], |it| {
        let fields = ["reason", "owner_reason", "action"];
        any(it, &fields, is_text(|text| text.len() > 64 || text.contains(['/', ' ', '.'])))
    }),
    ("terms and configs leave room to count", &["record"], |it| {
        any(it, &["term"], is_over(1 << 30)) || any(it, &["config"], is_over(1 << 31))
    }),
    ("a record has few members and former owners", &["record"], |it| any(it, &["members", "unfenced"], has_over(16))),
    ("a volume has a size", &["record"], |it| {
        any(it, &["size_bytes"], |size| {
            size.as_u64().is_none_or(|size| size == 0 || size % 512 != 0 || size > 64 << 40)
        })
    }),
    ("it has few peers", &["definition"], |it| any(it, &["peers", "min_peers"], is_over(15))),
    ("tier, memory and journal fit a machine", &["definition"], |it| {
        any(it, &["size_bytes", "memory_bytes", "journal_bytes"], is_over(u64::from(u32::MAX) * 4096))
    }),
    ("no time overflows", &["definition", "call"], |it| any(it, &["drain_max_s", "seconds"], is_over(1 << 33))),
    ("a backing is absolute", &["definition"], |it| {
        let is_wrong = |text: &str| !text.starts_with('/') && !text.contains(":/");
        any(it, &["backing"], is_text(is_wrong))
    }),
    ("an interface is no path", &["definition"], |it| {
        any(it, &["interface"], is_text(|text| text.contains('/') || text.len() > 15))
    }),
    ("a node has few addresses, and ports in them", &["node"], |it| {
        let no_port = is_text(|text| text.parse::<std::net::SocketAddr>().is_ok_and(|at| at.port() == 0));
        any(it, &["addresses"], has_over(16)) || any(it, &["addresses"], no_port)
    }),
    ("a watchdog takes its time, and ends", &["node"], |it| {
        any(it, &["resets_within_ms"], |ms| ms.as_u64().is_none_or(|ms| !(15_000..=1 << 43).contains(&ms)))
    }),
    ("a growth is to a size", &["call"], |it| {
        any(it, &["size_bytes"], |size| size.as_u64().is_none_or(|size| size % 512 != 0 || size > 64 << 40))
    }),
    ("a mark names few", &["mark"], |it| any(it, &["rewinds"], has_over(16))),
    ("leases end", &["settings"], |it| {
        any(it, &["dropped_ms", "lease_ms", "grace_ms"], |ms| ms.as_u64().is_none_or(|ms| ms == 0 || ms > 1 << 32))
    }),
];

/// Begin and end of each list and object of a valid text, none of whose strings have brackets.
fn brackets_in(text: &str) -> Vec<(usize, usize)> {
    let (mut open, mut found) = (Vec::new(), Vec::new());
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' | b'{' => open.push(at),
            b']' | b'}' => found.push((open.pop().expect("it is valid"), at + 1)),
            _ => {}
        }
    }
    found
}

/// Lists empty and long, parts taken out, doubled or nested too deep; and one that is longer than any.
fn reshaped(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for (begin, end) in brackets_in(text) {
        let (open, inside, close) = (&text[begin..=begin], &text[begin + 1..end - 1], &text[end - 1..end]);
        let mut put = |inside: &str| found.push(format!("{}{open}{inside}{close}{}", &text[..begin], &text[end..]));
        put("");
        for times in [2, 9, 17, 300] {
            put(&vec![inside; times].join(","));
        }
        put(&format!("{inside},\"extra\":1"));
        put(&format!("{}{}", "[".repeat(5000), "]".repeat(5000)));
        // Each with a number of its own: no list is refused for what is in it twice.
        let own = |at: usize| inside.split(',').next().unwrap_or_default().replace("00\"", &format!("{at:02x}\""));
        put(&(1..=20).map(own).collect::<Vec<_>>().join(","));
        let parts: Vec<&str> = inside.split(',').collect();
        for left_out in 0..parts.len() {
            let rest: Vec<&str> = (0..parts.len()).filter(|at| *at != left_out).map(|at| parts[at]).collect();
            put(&rest.join(","));
        }
    }
    found.push(format!("{text}{}", " ".repeat(TEXT_BYTES_MAX)));
    found
}

/// Which rules are broken by what is taken, and how many texts were taken.
fn walk(takes: impl Fn(&Kind, &str) -> bool) -> (Vec<&'static str>, usize) {
    let (mut broken, mut taken) = (Vec::new(), 0);
    let mut seed = 0x0eb_5eed_u64;
    for kind in kinds() {
        let by_value = kind.valid.iter().flat_map(|text| hostile_texts(text).into_iter().chain(reshaped(text)));
        let by_bytes = (0..4000).map(|round| changed_by_bytes(&kind.valid[round % kind.valid.len()], &mut seed));
        for text in by_value.chain(by_bytes) {
            if !takes(&kind, &text) {
                continue;
            }
            taken += 1;
            if text.len() > TEXT_BYTES_MAX {
                broken.push("no text is longer than a megabyte");
            }
            let Ok(document) = serde_json::from_str::<Value>(&text) else { panic!("no JSON is taken: {text}") };
            let concerns = |of: &[&str]| of.is_empty() || of.contains(&kind.name);
            let wrong = RULES.iter().filter(|(_, of, is_broken)| concerns(of) && is_broken(&document));
            broken.extend(wrong.map(|(rule, _, _)| *rule));
        }
    }
    broken.sort_unstable();
    broken.dedup();
    (broken, taken)
}

#[test]
fn whatever_is_taken_of_a_writer_of_the_coordinator_keeps_the_rules() {
    let (broken, taken) = walk(|kind, text| (kind.takes)(text));
    assert_eq!(broken, [""; 0]);
    assert!(taken > 500, "only {taken} are taken at all");
}

/// Planted: readers that take every document, as if none of them checked anything.
#[test]
fn readers_that_check_nothing_are_found_by_every_rule() {
    let (broken, _) = walk(|_, text| serde_json::from_str::<Value>(text).is_ok());
    let missed: Vec<&str> = RULES.iter().map(|(rule, _, _)| *rule).filter(|rule| !broken.contains(rule)).collect();
    assert_eq!(missed, [""; 0], "these are never put to the test");
    assert!(broken.contains(&"no text is longer than a megabyte"));
}
