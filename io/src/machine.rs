//! What the kernel hands out to every process of this machine: random bytes, and the machine's name.

use std::io;

/// Fills with random bytes of the kernel.
pub fn random_bytes(bytes: &mut [u8]) -> io::Result<()> {
    // SAFETY: the pointer and length are those of one exclusively borrowed slice.
    let got = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // Requests of up to 256 bytes are answered whole or not at all.
    assert!(bytes.len() <= 256);
    if got != bytes.len() as isize {
        let error = io::Error::last_os_error();
        return Err(io::Error::new(error.kind(), format!("the kernel gave no random bytes: {error}")));
    }
    Ok(())
}

/// Name of this host, as its kernel has it.
pub fn host_name() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: the pointer and length are those of one local array; the last byte is left to stay zero.
    let rc = unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let end = buffer.iter().position(|&b| b == 0).unwrap_or(0);
    if rc != 0 || end == 0 { "unknown-host".to_owned() } else { String::from_utf8_lossy(&buffer[..end]).into_owned() }
}

/// Allows this process as many open files as it may allow itself.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a place for one rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: one rlimit. Where it is refused, the lower limit costs clients or counters, not data.
        unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) };
    }
}
