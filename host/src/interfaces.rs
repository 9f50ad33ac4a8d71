//! Interfaces of this machine with their addresses, as the kernel lists them.

use anyhow::{Context, Result};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// All addresses of this machine, with their interfaces.
pub fn addresses_here() -> Result<Addresses> {
    let mut first: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: a place for one pointer, to a list that is freed below.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Err(std::io::Error::last_os_error()).context("cannot list this machine's addresses");
    }
    let mut found = Vec::new();
    let mut at = first;
    // SAFETY: the list's pointers lead to its next element or are null, until it is freed.
    while let Some(entry) = unsafe { at.as_ref() } {
        at = entry.ifa_next;
        // SAFETY: a name is a text that ends in 0, and lives as long as the list.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        // SAFETY: an address is null or one of the family that it names, and lives as long as the list.
        if let Some(address) = unsafe { address_at(entry.ifa_addr) } {
            found.push((name, address));
        }
    }
    // SAFETY: the list that getifaddrs has made, once, and nothing of it is kept.
    unsafe { libc::freeifaddrs(first) };
    Ok(found)
}

/// Interfaces of this machine with their addresses, as the kernel lists them.
pub type Addresses = Vec<(String, IpAddr)>;

/// # Safety
/// The pointer is null, or leads to a whole socket address of the family that it names.
unsafe fn address_at(address: *const libc::sockaddr) -> Option<IpAddr> {
    if address.is_null() {
        return None;
    }
    // SAFETY: it is not null, and every socket address begins with its family.
    match i32::from(unsafe { (*address).sa_family }) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one of IPv4; alignment is not relied upon.
            let v4 = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::V4(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr))))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is one of IPv6; alignment is not relied upon.
            let v6 = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr)))
        }
        _ => None,
    }
}
