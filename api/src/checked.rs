//! Words of the coordinator as types that cannot hold what was not checked: whoever can write there is a stranger.
//!
//! Invariant: the only ways to one of these values check it, serde's included. So a name that is here fits the hello, the tier's
//! superblock, a file's name and a terminal, and a text that is here moves no cursor.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Deref;

/// Longest name of a volume: what the superblock of its tier has room for.
pub const VOLUME_NAME_BYTES_MAX: usize = 63;
/// Longest code, such as a reason.
const CODE_BYTES_MAX: usize = 64;
/// Longest text for people.
const LINE_BYTES_MAX: usize = 4096;
/// Longest name of what fails together.
pub const FAULT_DOMAIN_BYTES_MAX: usize = 63;

macro_rules! checked {
    ($(#[$doc:meta])* $name:ident, $check:path) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks it; the error says what it must be.
            pub fn new(text: &str) -> Result<$name, String> {
                $check(text)?;
                Ok($name(text.to_owned()))
            }

            /// The text that was found good, as it was given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<$name, String> {
                $check(&text)?;
                Ok($name(text))
            }
        }

        impl From<$name> for String {
            fn from(name: $name) -> String {
                name.0
            }
        }

        impl Deref for $name {
            type Target = str;
            fn deref(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl PartialEq<str> for $name {
            fn eq(&self, other: &str) -> bool {
                self.0 == other
            }
        }

        impl PartialEq<&str> for $name {
            fn eq(&self, other: &&str) -> bool {
                self.0 == *other
            }
        }

        impl PartialEq<$name> for String {
            fn eq(&self, other: &$name) -> bool {
                *self == other.0
            }
        }
    };
}

checked! {
    /// Name of a volume: part of the names of files, an NBD export, and a field of its tier's superblock.
    VolumeName, volume_name
}
checked! {
    /// Name of a node, as its certificate and its hello have it.
    NodeName, node_name
}
checked! {
    /// A word of a closed list at whoever has written it, such as a reason: shown, and never decided by.
    Code, code
}
checked! {
    /// A text for people: one line without anything that a terminal would obey.
    Line, line
}
checked! {
    /// What fails together with a node; empty: the node itself.
    FaultDomain, fault_domain
}

fn volume_name(name: &str) -> Result<(), String> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let length_fits = (1..=VOLUME_NAME_BYTES_MAX).contains(&name.len());
    if !length_fits || name.starts_with(['.', '-']) || !name.chars().all(plain) {
        return Err(format!(
            "volume name {}: use 1 to 63 letters, digits, '.', '_' or '-', and begin with a letter, digit or '_'",
            shown(name)
        ));
    }
    Ok(())
}

fn node_name(name: &str) -> Result<(), String> {
    if name.starts_with('-') {
        return Err(format!("{} is no name of a node: it begins with a hyphen", shown(name)));
    }
    let checked = forebay_core::wire::NodeName::new(name);
    checked.map(|_| ()).map_err(|why| format!("{} is no {why}", shown(name)))
}

fn code(text: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    if text.len() > CODE_BYTES_MAX || !text.bytes().all(plain) {
        return Err(format!("{} is no code of lower-case letters, digits and hyphens", shown(text)));
    }
    Ok(())
}

fn line(text: &str) -> Result<(), String> {
    if text.len() > LINE_BYTES_MAX || text.chars().any(is_obeyed) {
        return Err(format!("{} is no line of at most {LINE_BYTES_MAX} bytes of plain text", shown(text)));
    }
    Ok(())
}

fn fault_domain(text: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/');
    if text.len() > FAULT_DOMAIN_BYTES_MAX || !text.bytes().all(plain) {
        return Err(format!(
            "fault_domain {}: use at most {FAULT_DOMAIN_BYTES_MAX} letters, digits, '.', '_', '-' or '/'",
            shown(text)
        ));
    }
    Ok(())
}

/// What a terminal obeys instead of showing it, and what turns the direction of reading round.
pub fn is_obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// A text of which a terminal obeys nothing but the ends of its lines.
pub fn without_controls(text: &str) -> String {
    let plain = |c: char| if is_obeyed(c) && c != '\n' { char::REPLACEMENT_CHARACTER } else { c };
    text.chars().map(plain).collect()
}

impl Line {
    /// Of any text: what a terminal would obey becomes a space, and what is too long is cut.
    pub fn of(text: &str) -> Line {
        let mut plain: String = text.chars().map(|c| if is_obeyed(c) { ' ' } else { c }).collect();
        plain.truncate(plain.floor_char_boundary(LINE_BYTES_MAX));
        Line(plain)
    }
}

impl Code {
    /// Of any word: one that is no code is `unknown`.
    pub fn of(text: &str) -> Code {
        Code::new(text).unwrap_or_else(|_| Code("unknown".to_owned()))
    }
}

/// A stranger's text in a message: between quotes, as escapes where a terminal would obey it, and not longer than this.
pub fn shown(text: &str) -> String {
    const SHOWN_BYTES_MAX: usize = 80;
    let head = &text[..text.floor_char_boundary(SHOWN_BYTES_MAX)];
    let rest = if head.len() < text.len() { format!("... ({} bytes)", text.len()) } else { String::new() };
    format!("{head:?}{rest}")
}

/// Sixteen hexadecimal digits: JSON's numbers end at 2^53 for many readers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex64(pub u64);

impl From<Hex64> for String {
    fn from(number: Hex64) -> String {
        format!("{:016x}", number.0)
    }
}

impl TryFrom<String> for Hex64 {
    type Error = String;
    fn try_from(text: String) -> Result<Hex64, String> {
        let plain = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let number = plain.then(|| u64::from_str_radix(&text, 16).ok()).flatten();
        number.map(Hex64).ok_or_else(|| format!("{text:?} is not a number of 16 hexadecimal digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_fits_wherever_it_goes() {
        for good in ["vm1", "VM.1_a-b", "_x", &"a".repeat(63)] {
            assert_eq!(&*VolumeName::new(good).unwrap(), good);
        }
        let long = "a".repeat(64);
        for wrong in ["", ".", "..", "../x", "a/b", "-x", "a b", "a\0", "ä", "a\n", &long, &"x".repeat(80)] {
            assert!(VolumeName::new(wrong).is_err(), "{wrong:?}");
            assert!(VolumeName::try_from(wrong.to_owned()).is_err(), "{wrong:?}");
            assert!(serde_json::from_value::<VolumeName>(wrong.into()).is_err(), "{wrong:?}");
        }
        assert!(NodeName::new("alpha-1_b").is_ok());
        for wrong in ["", "Alpha", "a.b", "../x", "-rf", &long] {
            assert!(serde_json::from_value::<NodeName>(wrong.into()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_terminal_reads_what_is_shown_in_one_direction() {
        let turning = ['\u{61c}', '\u{200e}', '\u{200f}'].into_iter();
        for c in turning.chain('\u{202a}'..='\u{202e}').chain('\u{2066}'..='\u{2069}') {
            assert_eq!(without_controls(&format!("a{c}b\n")), "a\u{fffd}b\n", "{c:?}");
            assert!(Line::new(&format!("a{c}b")).is_err(), "{c:?}");
        }
        assert_eq!(without_controls("\u{5d0}\u{627}\u{200d}ä한\t"), "\u{5d0}\u{627}\u{200d}ä한\u{fffd}");
    }

    #[test]
    fn what_is_shown_moves_no_cursor() {
        for wrong in ["\x1b[2J", "a\nb", "a\rb", "\u{9b}31m", "\u{202e}abc", &"x".repeat(5000)] {
            assert!(Line::new(wrong).is_err(), "{wrong:?}");
            assert_eq!(Line::new(&Line::of(wrong)).unwrap(), Line::of(wrong));
            assert!(shown(wrong).bytes().all(|b| b >= b' ') && shown(wrong).len() < 500, "{}", shown(wrong));
        }
        assert!(Code::new("as-requested").is_ok() && Code::new("").is_ok());
        assert_eq!(&*Code::of("no code"), "unknown");
        assert!(FaultDomain::new("room-1/rack_2.b").is_ok() && FaultDomain::new("a b").is_err());
    }
}
