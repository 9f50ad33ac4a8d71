//! Where state and sockets lie when nobody says otherwise: the system's places for root, the user's for everybody
//! else, and what systemd set up where it did.

use std::env::var_os;
use std::path::PathBuf;

/// Whether this process may do everything, or could if nothing else held it back.
pub fn is_root() -> bool {
    // SAFETY: geteuid has no arguments, cannot fail and touches no memory of ours.
    unsafe { libc::geteuid() == 0 }
}

fn from_env(name: &str) -> Option<PathBuf> {
    var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// Folder of records, flash tiers, token and markers of block devices.
pub fn state_dir() -> PathBuf {
    if let Some(dir) = from_env("STATE_DIRECTORY") {
        return dir;
    }
    if is_root() {
        return PathBuf::from("/var/lib/forebay");
    }
    let base = from_env("XDG_STATE_HOME")
        .unwrap_or_else(|| from_env("HOME").unwrap_or_else(|| PathBuf::from("/")).join(".local/state"));
    base.join("forebay")
}

/// Folder of the cluster's authority, on the machine where it was made. Not in the state folder of a service, which is its user's: what
/// signs for a whole cluster is for root alone.
pub fn authority_dir() -> PathBuf {
    match is_root() && from_env("STATE_DIRECTORY").is_none() {
        true => PathBuf::from("/etc/forebay/authority"),
        false => state_dir().join("authority"),
    }
}

/// Whether the folder of sockets lies where every user may make one of its name: below `/tmp`.
pub fn run_dir_is_among_others() -> bool {
    let of_a_service = from_env("RUNTIME_DIRECTORY").is_some();
    !of_a_service && !is_root() && from_env("XDG_RUNTIME_DIR").is_none()
}

/// Folder of the daemon's sockets: the service's, else the usual one of the user.
pub fn run_dir() -> PathBuf {
    if let Some(dir) = from_env("RUNTIME_DIRECTORY") {
        return dir;
    }
    match from_env("XDG_RUNTIME_DIR") {
        Some(base) if !is_root() => base.join("forebay"),
        _ if is_root() => PathBuf::from("/run/forebay"),
        _ => std::env::temp_dir().join(format!("forebay-{}", user_id())),
    }
}

/// Number of the user that this process acts for.
pub fn user_id() -> u32 {
    // SAFETY: as for is_root.
    unsafe { libc::geteuid() }
}

/// The admin API's socket: `FOREBAY_API`, else the usual place.
pub fn api_socket() -> PathBuf {
    from_env("FOREBAY_API").unwrap_or_else(|| run_dir().join("api.sock"))
}

/// The NBD socket where clients of this host connect by default.
pub fn nbd_socket() -> PathBuf {
    run_dir().join("nbd.sock")
}
