//! Readiness of descriptors: one level-triggered epoll, used by both modes.

use super::Interest;
use std::cell::RefCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

/// Events taken at one time; what is left is still ready at the next call.
const EVENTS_MAX: usize = 256;

pub(super) struct Epoll {
    fd: OwnedFd,
    /// Kept from call to call, so that none of them allocates.
    events: RefCell<Vec<libc::epoll_event>>,
}

impl Epoll {
    pub(super) fn new() -> io::Result<Epoll> {
        // SAFETY: no memory is involved; a descriptor or an error comes back.
        let fd = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(Epoll { fd, events: RefCell::new(vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS_MAX]) })
    }

    pub(super) fn raw(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    pub(super) fn add(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_ADD, fd, token, interest)
    }

    pub(super) fn change(&self, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_MOD, fd, token, interest)
    }

    pub(super) fn remove(&self, fd: RawFd) -> io::Result<()> {
        self.control(libc::EPOLL_CTL_DEL, fd, 0, Interest::NONE)
    }

    fn control(&self, what: i32, fd: RawFd, token: u64, interest: Interest) -> io::Result<()> {
        let mut events = 0;
        if interest.read {
            events |= libc::EPOLLIN | libc::EPOLLRDHUP;
        }
        if interest.write {
            events |= libc::EPOLLOUT;
        }
        let mut event = libc::epoll_event { events: events as u32, u64: token };
        // SAFETY: `event` is valid for the call, which copies it.
        let result = unsafe { libc::epoll_ctl(self.raw(), what, fd, &mut event) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Tells what is ready now: token, readable, writable, hung up.
    pub(super) fn poll(&self, mut tell: impl FnMut(u64, bool, bool, bool)) -> io::Result<()> {
        let mut events = self.events.borrow_mut();
        // SAFETY: the vector has room for the number of events given.
        let count = unsafe { libc::epoll_wait(self.raw(), events.as_mut_ptr(), EVENTS_MAX as i32, 0) };
        if count < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) };
        }
        for event in &events[..count as usize] {
            let (bits, token) = (event.events as i32, event.u64);
            let hangup = bits & (libc::EPOLLHUP | libc::EPOLLERR) != 0;
            let readable = bits & (libc::EPOLLIN | libc::EPOLLRDHUP) != 0;
            tell(token, readable, bits & libc::EPOLLOUT != 0, hangup);
        }
        Ok(())
    }

    /// Waits until something is ready; what, `poll` tells.
    pub(super) fn block(&self, timeout: Option<Duration>) -> io::Result<()> {
        let mut event = libc::pollfd { fd: self.raw(), events: libc::POLLIN, revents: 0 };
        let limit = timeout.map(timespec);
        let limit = limit.as_ref().map_or(std::ptr::null(), |limit| limit as *const libc::timespec);
        // ppoll on the epoll itself: nanoseconds on every kernel, where epoll_pwait2 needs 5.11.
        // SAFETY: one pollfd, and a timespec or null, are valid for the call.
        let result = unsafe { libc::ppoll(&mut event, 1, limit, std::ptr::null()) };
        if result < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }
}

fn timespec(duration: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: duration.as_secs().min(1 << 40) as libc::time_t,
        tv_nsec: libc::c_long::from(duration.subsec_nanos() as i32),
    }
}
