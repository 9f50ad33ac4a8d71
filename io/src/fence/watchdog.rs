//! The hardware watchdog of this machine: a timer that resets it unless it is fed.
//!
//! Invariants:
//! - To look at a device does not begin its timer: that is done by way of sysfs, for to open it is what begins it.
//! - It is given back disarmed only by [`Watchdog::disarm`]. Dropped in any other way, or with its process, it goes on counting.

use crate::file_error::FileError;
use forebay_core::types::Duration;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

/// `WDIOF_CARDRESET` of linux/watchdog.h: the last reset of the machine was the watchdog's.
const CARD_RESET: u32 = 0x20;
/// What a kernel without hardware calls its own; it ends with the kernel that it is to watch.
const SOFTWARE: &str = "Software Watchdog";

/// `_IO(W)R('W', number, int)` of linux/watchdog.h.
const fn request(direction: u32, number: u32) -> libc::c_ulong {
    ((direction << 30) | (4 << 16) | ((b'W' as u32) << 8) | number) as libc::c_ulong
}
const KEEP_ALIVE: libc::c_ulong = request(2, 5);
const SET_TIMEOUT: libc::c_ulong = request(3, 6);
const GET_TIMEOUT: libc::c_ulong = request(2, 7);

/// What errors call it.
const WHAT: &str = "the watchdog";
const OPEN_ELSEWHERE: &str = "another process has it open. systemd does where RuntimeWatchdogSec is set: set RuntimeWatchdogSec=off \
                              and RebootWatchdogSec=off in /etc/systemd/system.conf and say `systemctl daemon-reexec`, or name \
                              another watchdog of this machine";

/// What a device says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Looked {
    /// Its driver's name for it.
    pub identity: String,
    /// Seconds after which it resets the machine, as it is set now.
    pub timeout_s: u32,
    /// Once begun, its timer cannot be ended.
    pub nowayout: bool,
    /// Somebody has it open, or has left it counting.
    pub active: bool,
    /// The machine's last reset was its doing.
    pub has_reset: bool,
}

/// Looks at a device without opening it.
pub fn look(path: &Path) -> Result<Looked, FileError> {
    let unusable = |reason: String| FileError::unusable(WHAT, path, reason);
    let resolved = path.canonicalize().map_err(|error| FileError::failed(WHAT, path, "find", error))?;
    let name = resolved.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // The first one has a second name, which sysfs does not know.
    let name = if name == "watchdog" { "watchdog0" } else { name };
    let folder = Path::new("/sys/class/watchdog").join(name);
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).map(|text| text.trim().to_owned());
    let Ok(identity) = read("identity") else {
        return Err(unusable(format!(
            "{} is not there; load the driver of this machine's watchdog, and name its device, such as /dev/watchdog0",
            folder.display()
        )));
    };
    if identity == SOFTWARE {
        return Err(unusable(
            "it is the kernel's own, which ends with the kernel; a fence needs hardware that outlives it".to_owned(),
        ));
    }
    let number = |file: &str| read(file).ok().and_then(|text| text.parse::<u32>().ok());
    let timeout_s = number("timeout").ok_or_else(|| unusable("it does not say after how long it resets".to_owned()))?;
    Ok(Looked {
        identity,
        timeout_s,
        nowayout: number("nowayout") == Some(1),
        active: read("state").is_ok_and(|state| state == "active"),
        has_reset: number("bootstatus").is_some_and(|status| status & CARD_RESET != 0),
    })
}

/// An open one: its timer runs.
#[derive(Debug)]
pub struct Watchdog {
    file: File,
    path: PathBuf,
    timeout: Duration,
}

impl Watchdog {
    /// Begins its timer, or goes on with one that a killed process has left.
    pub fn arm(path: &Path, timeout_s: u32) -> Result<Watchdog, FileError> {
        look(path)?;
        let file = File::options().write(true).open(path).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => FileError::unusable(WHAT, path, OPEN_ELSEWHERE),
            Some(_) | None => FileError::failed(WHAT, path, "open", error),
        })?;
        let mut watchdog = Watchdog { file, path: path.to_owned(), timeout: Duration(0) };
        match watchdog.set_timeout(timeout_s) {
            Ok(()) => Ok(watchdog),
            Err(error) => {
                // Nobody would feed it. Where that cannot be undone the machine is reset, and the error says why.
                let _ = watchdog.file.write_all(b"V");
                Err(error)
            }
        }
    }

    fn set_timeout(&mut self, timeout_s: u32) -> Result<(), FileError> {
        self.control("set the timeout of", SET_TIMEOUT, timeout_s)?;
        // What the hardware has made of it counts, and not what was asked for.
        let seconds = self.control("ask for the timeout of", GET_TIMEOUT, 0)?;
        self.timeout = Duration::from_secs(u64::from(seconds));
        self.feed()
    }

    /// So long after the last feed it resets the machine.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Its timer begins anew: the machine is not reset before another timeout is over.
    pub fn feed(&self) -> Result<(), FileError> {
        self.control("feed", KEEP_ALIVE, 0).map(drop)
    }

    /// Ends its timer, where that is possible.
    pub fn disarm(mut self) -> Result<(), FileError> {
        let nowayout = look(&self.path)?.nowayout;
        if nowayout {
            return Err(FileError::unusable(
                WHAT,
                &self.path,
                "its timer cannot be ended (nowayout): it resets this machine unless something feeds it",
            ));
        }
        self.file.write_all(b"V").map_err(|error| FileError::failed(WHAT, &self.path, "disarm", error))
    }

    fn control(&self, attempted: &'static str, request: libc::c_ulong, argument: u32) -> Result<u32, FileError> {
        let mut value = argument;
        // SAFETY: each of these requests reads and writes one int, which lives through the call.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), request as _, &raw mut value) };
        match result {
            0 => Ok(value),
            _ => Err(FileError::failed(WHAT, &self.path, attempted, io::Error::last_os_error())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_those_of_the_kernels_header() {
        assert_eq!((KEEP_ALIVE, SET_TIMEOUT, GET_TIMEOUT), (0x8004_5705, 0xc004_5706, 0x8004_5707));
    }

    #[test]
    fn what_is_no_watchdog_is_refused_with_what_to_do() {
        let error = look(Path::new("/dev/null")).unwrap_err().to_string();
        assert!(error.contains("load the driver of this machine's watchdog"), "{error}");
        let error = Watchdog::arm(Path::new("/nowhere/watchdog7"), 10).unwrap_err().to_string();
        assert!(error.contains("cannot find the watchdog /nowhere/watchdog7"), "{error}");
    }
}
