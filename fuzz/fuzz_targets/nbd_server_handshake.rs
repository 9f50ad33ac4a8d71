//! Agreeing on an export survives any server, and an export that is taken has limits that requests can be cut to.
#![no_main]

use arbitrary::Arbitrary;
use forebay_io::backing::nbd::handshake::{Wire, negotiate};
use forebay_io::backing::nbd::uri::NbdUri;
use libfuzzer_sys::fuzz_target;
use std::io;

const REQUEST_BYTES_MAX: u32 = 32 << 20;
const ZERO_BYTES_MAX: u32 = 1 << 30;
/// One hello with a short name, and a good-bye.
const SAID_BYTES_MAX: usize = 256;

#[derive(Arbitrary, Debug)]
enum Said {
    Greeting { flags: u16 },
    Ack,
    Export { size: u64, flags: u16 },
    BlockSizes { least: u32, preferred: u32, most: u32 },
    Reply { kind: u32, info: u16, data: Vec<u8>, length_off: i8 },
    Raw(Vec<u8>),
}

#[derive(Arbitrary, Debug)]
struct Input {
    no_flush_ok: bool,
    said: Vec<Said>,
    /// Bytes cut off the end.
    cut: u8,
}

fn reply(kind: u32, data: &[u8], length_off: i8, to: &mut Vec<u8>) {
    to.extend(0x0003_e889_0455_65a9u64.to_be_bytes());
    to.extend(7u32.to_be_bytes());
    to.extend(kind.to_be_bytes());
    to.extend((data.len() as u32).wrapping_add_signed(length_off.into()).to_be_bytes());
    to.extend(data);
}

fn encode(said: &Said, to: &mut Vec<u8>) {
    match said {
        Said::Greeting { flags } => {
            to.extend(b"NBDMAGICIHAVEOPT");
            to.extend((flags | 1).to_be_bytes());
        }
        Said::Ack => reply(1, &[], 0, to),
        Said::Export { size, flags } => {
            reply(3, &[&[0, 0][..], &size.to_be_bytes(), &(flags | 5).to_be_bytes()].concat(), 0, to);
        }
        Said::BlockSizes { least, preferred, most } => {
            let words = [*least, *preferred, *most].map(u32::to_be_bytes).concat();
            reply(3, &[&[0, 3][..], &words].concat(), 0, to);
        }
        Said::Reply { kind, info, data, length_off } => {
            reply(*kind, &[&info.to_be_bytes()[..], data].concat(), *length_off, to);
        }
        Said::Raw(bytes) => to.extend(bytes),
    }
}

struct Script {
    says: Vec<u8>,
    at: usize,
    heard: usize,
}

impl Wire for Script {
    fn fill(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let Some(found) = self.says.get(self.at..self.at + bytes.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        bytes.copy_from_slice(found);
        self.at += bytes.len();
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.heard += bytes.len();
        Ok(())
    }
}

fuzz_target!(|input: Input| {
    let mut says = Vec::new();
    for said in &input.said {
        encode(said, &mut says);
    }
    says.truncate(says.len().saturating_sub(input.cut.into()));
    let uri = if input.no_flush_ok { "nbd://h/x?nbd_no_flush_ok=1" } else { "nbd://h/x" };
    let mut script = Script { says, at: 0, heard: 0 };
    let agreed = negotiate(&mut script, &NbdUri::parse(uri).expect("a good URI"));
    assert!(script.heard <= SAID_BYTES_MAX, "{} bytes were said to the server", script.heard);
    let Ok(export) = agreed else { return };
    assert!(export.align.is_power_of_two() && (512..=4096).contains(&export.align), "{export:?}");
    for (limit, most) in [(export.request_bytes_max, REQUEST_BYTES_MAX), (export.zero_bytes_max, ZERO_BYTES_MAX)] {
        assert!(limit > 0 && limit <= most && limit.is_multiple_of(export.align), "{export:?}");
    }
    assert!(export.flush || input.no_flush_ok, "{export:?}");
});
