//! The kernel's routing netlink, as far as interfaces and addresses go: rtnetlink(7).
//!
//! A message is a head, a fixed part by its type, and attributes, each with length and type before it; all are aligned to 4 bytes
//! and in this machine's byte order.

use super::{Assigned, Interface};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

/// nlmsghdr, ifaddrmsg, ifinfomsg, rtattr.
const HEAD_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 8;
const LINK_BYTES: usize = 16;
const ATTRIBUTE_BYTES: usize = 4;
/// Of an ifaddrmsg.
const FLAGS_AT: usize = 2;
/// The kernel sends no more at once to whoever does not ask for it.
const ANSWER_BYTES_MAX: usize = 32 << 10;
/// The kernel answers at once; this is for a bug, so that nothing hangs.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// A life without an end.
const FOR_EVER: u32 = u32::MAX;

/// A message of an answer: its type, and what follows the head.
type Answer = (u16, Vec<u8>);

#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    pub fn open() -> io::Result<Netlink> {
        let route = Protocol::from(libc::NETLINK_ROUTE);
        let socket = Socket::new(Domain::from(libc::AF_NETLINK), Type::RAW, Some(route))?;
        socket.set_read_timeout(Some(ANSWER_WAIT))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    pub fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        let answers = self.ask(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; LINK_BYTES])?;
        Ok(answers
            .iter()
            .filter(|(kind, _)| *kind == libc::RTM_NEWLINK)
            .filter_map(|(_, body)| interface(body))
            .collect())
    }

    pub fn addresses(&mut self) -> io::Result<Vec<Assigned>> {
        let answers = self.ask(libc::RTM_GETADDR, libc::NLM_F_DUMP, &[0; ADDRESS_BYTES])?;
        Ok(answers
            .iter()
            .filter(|(kind, _)| *kind == libc::RTM_NEWADDR)
            .filter_map(|(_, body)| assigned(body))
            .collect())
    }

    pub fn give(&mut self, address: IpAddr, bits: u8, interface: u32, seconds: u32) -> io::Result<()> {
        let mut body = address_body(address, bits, interface);
        // Preferred and valid; when it was made and changed is the kernel's to say.
        let life: Vec<u8> = [seconds, seconds, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
        push_attribute(&mut body, libc::IFA_CACHEINFO, &life);
        if address.is_ipv6() {
            // Whoever else has it is about to let it go: the kernel need not look for a second one first.
            body[FLAGS_AT] = libc::IFA_F_NODAD as u8;
        }
        let flags = libc::NLM_F_ACK | libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        self.ask(libc::RTM_NEWADDR, flags, &body).map(drop)
    }

    pub fn take(&mut self, address: IpAddr, bits: u8, interface: u32) -> io::Result<()> {
        let body = address_body(address, bits, interface);
        self.ask(libc::RTM_DELADDR, libc::NLM_F_ACK, &body).map(drop)
    }

    /// Sends a request, and waits for the whole answer.
    fn ask(&mut self, kind: u16, flags: i32, body: &[u8]) -> io::Result<Vec<Answer>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = Vec::with_capacity(HEAD_BYTES + body.len());
        message.extend(((HEAD_BYTES + body.len()) as u32).to_ne_bytes());
        message.extend(kind.to_ne_bytes());
        message.extend(((libc::NLM_F_REQUEST | flags) as u16).to_ne_bytes());
        message.extend(self.sequence.to_ne_bytes());
        message.extend(0u32.to_ne_bytes());
        message.extend(body);
        self.socket.send(&message)?;
        let mut answers = Vec::new();
        let mut buffer = vec![0; ANSWER_BYTES_MAX];
        loop {
            let bytes = self.socket.read(&mut buffer)?;
            if take_answers(&buffer[..bytes], self.sequence, &mut answers)? {
                return Ok(answers);
            }
        }
    }
}

/// Adds the messages of a datagram; true at the end of the answer.
fn take_answers(mut datagram: &[u8], sequence: u32, answers: &mut Vec<Answer>) -> io::Result<bool> {
    while datagram.len() >= HEAD_BYTES {
        let (length, kind) = (u32_at(datagram, 0) as usize, u16_at(datagram, 4));
        let Some(body) = datagram.get(HEAD_BYTES..length) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer ends in the middle"));
        };
        if u32_at(datagram, 8) == sequence {
            match i32::from(kind) {
                libc::NLMSG_DONE => return Ok(true),
                libc::NLMSG_ERROR => {
                    return match body.get(..4).map_or(0, |_| u32_at(body, 0) as i32) {
                        0 => Ok(true),
                        error => Err(io::Error::from_raw_os_error(-error)),
                    };
                }
                _ => answers.push((kind, body.to_vec())),
            }
        }
        datagram = datagram.get(aligned(length)..).unwrap_or_default();
    }
    Ok(false)
}

fn interface(body: &[u8]) -> Option<Interface> {
    let fixed = body.get(..LINK_BYTES)?;
    let mut found = Interface {
        index: u32_at(fixed, 4),
        name: String::new(),
        hardware: Vec::new(),
        up: u32_at(fixed, 8) & libc::IFF_UP as u32 != 0,
    };
    for (kind, value) in attributes(&body[LINK_BYTES..]) {
        match kind {
            libc::IFLA_IFNAME => found.name = String::from_utf8_lossy(value).trim_end_matches('\0').to_owned(),
            libc::IFLA_ADDRESS => found.hardware = value.to_vec(),
            _ => {}
        }
    }
    Some(found)
}

fn assigned(body: &[u8]) -> Option<Assigned> {
    let fixed = body.get(..ADDRESS_BYTES)?;
    // On a point-to-point interface `IFA_ADDRESS` is the other end's; of IPv6 there is no other.
    let (mut own, mut far, mut left) = (None, None, None);
    for (kind, value) in attributes(&body[ADDRESS_BYTES..]) {
        match kind {
            libc::IFA_LOCAL => own = ip(value),
            libc::IFA_ADDRESS => far = ip(value),
            libc::IFA_CACHEINFO if value.len() >= 8 => left = Some(u32_at(value, 4)),
            _ => {}
        }
    }
    Some(Assigned {
        address: own.or(far)?,
        bits: fixed[1],
        interface: u32_at(fixed, 4),
        left: left.filter(|left| *left != FOR_EVER).map(|left| Duration::from_secs(left.into())),
    })
}

fn ip(value: &[u8]) -> Option<IpAddr> {
    match value.len() {
        4 => <[u8; 4]>::try_from(value).ok().map(|octets| Ipv4Addr::from(octets).into()),
        _ => <[u8; 16]>::try_from(value).ok().map(|octets| Ipv6Addr::from(octets).into()),
    }
}

/// The fixed part and the address itself.
fn address_body(address: IpAddr, bits: u8, interface: u32) -> Vec<u8> {
    let (family, octets) = match address {
        IpAddr::V4(address) => (libc::AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (libc::AF_INET6, address.octets().to_vec()),
    };
    // Family, bits, flags, scope: of the whole world.
    let mut body = vec![family as u8, bits, 0, libc::RT_SCOPE_UNIVERSE];
    body.extend(interface.to_ne_bytes());
    push_attribute(&mut body, libc::IFA_LOCAL, &octets);
    push_attribute(&mut body, libc::IFA_ADDRESS, &octets);
    body
}

fn push_attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    body.extend(((ATTRIBUTE_BYTES + value.len()) as u16).to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(aligned(body.len()), 0);
}

/// Those that are whole.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(rest.get(..ATTRIBUTE_BYTES)?, 0));
        let (kind, value) = (u16_at(rest, 2), rest.get(ATTRIBUTE_BYTES..length)?);
        rest = rest.get(aligned(length)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn aligned(bytes: usize) -> usize {
    bytes.next_multiple_of(4)
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn datagram(kind: i32, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut message = ((HEAD_BYTES + body.len()) as u32).to_ne_bytes().to_vec();
        message.extend((kind as u16).to_ne_bytes());
        message.extend([0; 2]);
        message.extend(sequence.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(body);
        message.resize(aligned(message.len()), 0);
        message
    }

    #[test]
    fn what_is_given_is_what_is_read_back() {
        for (address, bits) in [("10.0.0.50", 24), ("2001:db8::5", 64)] {
            let address: IpAddr = address.parse().unwrap();
            let mut body = address_body(address, bits, 7);
            let expected = Assigned { address, bits, interface: 7, left: None };
            assert_eq!(assigned(&body), Some(expected.clone()));
            let life: Vec<u8> = [9u32, 10, 0, 0].iter().flat_map(|word| word.to_ne_bytes()).collect();
            push_attribute(&mut body, libc::IFA_CACHEINFO, &life);
            assert_eq!(assigned(&body), Some(Assigned { left: Some(Duration::from_secs(10)), ..expected }));
        }
    }

    #[test]
    fn answers_of_others_are_passed_over_and_errors_are_told() {
        let mut answers = Vec::new();
        let kind = i32::from(libc::RTM_NEWADDR);
        let mut both = datagram(kind, 4, &[1; 6]);
        both.extend(datagram(kind, 5, &[2; 5]));
        assert!(!take_answers(&both, 5, &mut answers).unwrap());
        assert_eq!(answers, [(libc::RTM_NEWADDR, vec![2; 5])]);
        assert!(take_answers(&datagram(libc::NLMSG_DONE, 5, &[]), 5, &mut answers).unwrap());
        assert!(take_answers(&datagram(libc::NLMSG_ERROR, 5, &[0; 4]), 5, &mut answers).unwrap());
        let refused = datagram(libc::NLMSG_ERROR, 5, &(-libc::EPERM).to_ne_bytes());
        let error = take_answers(&refused, 5, &mut answers).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn what_is_cut_off_is_refused_and_read_no_further() {
        let whole = datagram(i32::from(libc::RTM_NEWADDR), 5, &address_body(Ipv4Addr::LOCALHOST.into(), 8, 1));
        for cut in HEAD_BYTES..whole.len() {
            assert!(take_answers(&whole[..cut], 5, &mut Vec::new()).is_err(), "{cut}");
        }
        let body = address_body(Ipv4Addr::LOCALHOST.into(), 8, 1);
        for cut in 0..body.len() {
            // No panic, and no address of which a part is missing.
            let read = assigned(&body[..cut]).map(|found| found.address);
            assert!(read.is_none_or(|address| address == Ipv4Addr::LOCALHOST), "{cut}");
            let _ = interface(&body[..cut]);
        }
    }
}
