//! The kernel's netlink, as much of it as a reader needs: a question, and its answers.
//!
//! Blocking, and bounded: an answer that does not come, or does not end, is an error.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};

/// The kernel answers a dump in pieces of at most 32 KiB (`netlink_dump`).
const ANSWER_BYTES_MAX: usize = 64 << 10;
/// A dump takes milliseconds; whoever waits longer waits for nothing.
const WAIT_SECONDS: i64 = 2;
/// A host with the Internet's routes has a million: nobody needs them all to know where its own subnets go.
const MESSAGES_MAX: usize = 20_000;

/// Length, kind, flags, sequence, sender.
const HEADER_BYTES: usize = 16;
/// The kind of message that ends a dump.
const DONE: u16 = libc::NLMSG_DONE as u16;
/// An errno, or 0 for "done as asked".
const ERROR: u16 = libc::NLMSG_ERROR as u16;
/// Controller of generic netlink: gives a family's number.
const GENERIC_CONTROLLER: u16 = libc::GENL_ID_CTRL as u16;

/// A conversation with one part of the kernel.
pub struct Netlink {
    socket: File,
    sequence: u32,
}

impl Netlink {
    /// Begins one, with `NETLINK_ROUTE`, `NETLINK_GENERIC` or another part.
    pub fn open(protocol: i32) -> io::Result<Netlink> {
        // SAFETY: it takes three numbers.
        let made = unsafe { libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, protocol) };
        if made < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and nobody else's.
        let socket = unsafe { File::from_raw_fd(made) };
        let limit = libc::timeval { tv_sec: WAIT_SECONDS, tv_usec: 0 };
        let size = size_of::<libc::timeval>() as u32;
        // SAFETY: the option's value is a timeval, of that size, which outlives the call.
        let set = unsafe {
            libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVTIMEO, (&raw const limit).cast(), size)
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Every answer to a question for all there is of a kind.
    pub fn dump(&mut self, kind: u16, question: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.ask(kind, (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16, question)
    }

    /// The answer to a question for one thing.
    pub fn get(&mut self, kind: u16, question: &[u8]) -> io::Result<Vec<u8>> {
        let answers = self.ask(kind, (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16, question)?;
        answers.into_iter().next().ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Number of a family of generic netlink.
    pub fn family(&mut self, name: &str) -> io::Result<u16> {
        let mut question = vec![libc::CTRL_CMD_GETFAMILY as u8, 1, 0, 0];
        put(&mut question, libc::CTRL_ATTR_FAMILY_NAME as u16, &[name.as_bytes(), b"\0"].concat());
        let answer = self.get(GENERIC_CONTROLLER, &question)?;
        let number = attribute(answer.get(4..).unwrap_or_default(), libc::CTRL_ATTR_FAMILY_ID as u16);
        number.and_then(u16_of).ok_or_else(|| io::Error::from(io::ErrorKind::InvalidData))
    }

    fn ask(&mut self, kind: u16, flags: u16, question: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        self.sequence += 1;
        let mut message = Vec::with_capacity(HEADER_BYTES + question.len());
        message.extend(((HEADER_BYTES + question.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(flags.to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0_u32.to_ne_bytes());
        message.extend(question);
        // Unconnected, it goes to the kernel.
        self.socket.write_all(&message)?;
        let (mut answers, mut piece) = (Vec::new(), vec![0; ANSWER_BYTES_MAX]);
        loop {
            let length = self.socket.read(&mut piece)?;
            let mut left = &piece[..length];
            while let Some(Message { kind, sequence, body, next }) = Message::first(left) {
                left = next;
                if sequence != self.sequence {
                    continue;
                }
                match kind {
                    DONE => return Ok(answers),
                    ERROR => match i32_of(body.get(..4).unwrap_or_default()) {
                        Some(0) => return Ok(answers),
                        Some(errno) => return Err(io::Error::from_raw_os_error(-errno)),
                        None => return Err(io::Error::from(io::ErrorKind::InvalidData)),
                    },
                    _ if answers.len() == MESSAGES_MAX => {
                        return Err(io::Error::other(format!("there are more than {MESSAGES_MAX}")));
                    }
                    _ => answers.push(body.to_vec()),
                }
            }
        }
    }
}

struct Message<'a> {
    kind: u16,
    sequence: u32,
    body: &'a [u8],
    next: &'a [u8],
}

impl Message<'_> {
    fn first(bytes: &[u8]) -> Option<Message<'_>> {
        let length = u32_of(bytes.get(..4)?)? as usize;
        let body = bytes.get(HEADER_BYTES..length)?;
        let next = bytes.get(aligned(length)..).unwrap_or_default();
        Some(Message { kind: u16_of(bytes.get(4..6)?)?, sequence: u32_of(bytes.get(8..12)?)?, body, next })
    }
}

fn aligned(length: usize) -> usize {
    length.next_multiple_of(4)
}

/// Adds an attribute to a question.
pub fn put(question: &mut Vec<u8>, kind: u16, value: &[u8]) {
    question.extend(((value.len() + 4) as u16).to_ne_bytes());
    question.extend(kind.to_ne_bytes());
    question.extend(value);
    question.resize(aligned(question.len()), 0);
}

/// The attributes of an answer: kind and value.
pub fn attributes(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    let mut left = bytes;
    std::iter::from_fn(move || {
        let length = usize::from(u16_of(left.get(..2)?)?);
        // Two bits of the kind say how the value is to be read.
        let kind = u16_of(left.get(2..4)?)? & libc::NLA_TYPE_MASK as u16;
        let value = left.get(4..length)?;
        left = left.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

/// The first attribute of a kind.
pub fn attribute(bytes: &[u8], kind: u16) -> Option<&[u8]> {
    attributes(bytes).find(|(found, _)| *found == kind).map(|(_, value)| value)
}

/// A number of the host's byte order.
pub fn u16_of(bytes: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.try_into().ok()?))
}

/// A number of four bytes, in the host's byte order; none unless there are four.
pub fn u32_of(bytes: &[u8]) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

/// A number of eight bytes, in the host's byte order; none unless there are eight.
pub fn u64_of(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_ne_bytes(bytes.try_into().ok()?))
}

fn i32_of(bytes: &[u8]) -> Option<i32> {
    Some(i32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_that_were_put_in_are_read_back_and_a_cut_one_ends_the_list() {
        let mut bytes = Vec::new();
        put(&mut bytes, 2, b"eth0\0");
        put(&mut bytes, 7, &5_u32.to_ne_bytes());
        assert_eq!(bytes.len(), 12 + 8);
        assert_eq!(attributes(&bytes).collect::<Vec<_>>(), [(2, &b"eth0\0"[..]), (7, &5_u32.to_ne_bytes()[..])]);
        assert_eq!(attribute(&bytes, 7).and_then(u32_of), Some(5));
        assert_eq!(attributes(&bytes[..18]).count(), 1);
        assert_eq!(attributes(&[0; 8]).count(), 0, "a length of nothing does not loop");
    }

    #[test]
    fn the_kernel_names_the_loopback_and_refuses_a_family_that_it_does_not_have() {
        let mut routes = Netlink::open(libc::NETLINK_ROUTE).expect("everyone may ask");
        let links = routes.dump(libc::RTM_GETLINK, &[0; 16]).expect("links");
        let names = links.iter().filter_map(|link| attribute(link.get(16..)?, libc::IFLA_IFNAME));
        assert!(names.into_iter().any(|name| name == b"lo\0"));
        let mut generic = Netlink::open(libc::NETLINK_GENERIC).expect("everyone may ask");
        assert!(generic.family("nlctrl").is_ok_and(|number| number == GENERIC_CONTROLLER));
        let refused = generic.family("of-nobody").expect_err("there is none");
        assert_eq!(refused.raw_os_error(), Some(libc::ENOENT));
    }
}
