//! A way from NBD clients to their server on which what a client has sent can be kept back, also when the client is dead by
//! then, and arrives late: as it may in a network, in a switch's queue or in the cache of a storage server.
//!
//! Invariants:
//! - What has come in is passed on, whole and in the order of its connection, however its client ends.
//! - A connection is over only when the server has closed it: nothing of it can change the export any more.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

/// The number of a process.
type Pid = u32;

/// A unix socket that leads to a server.
pub struct LateWay {
    socket: PathBuf,
    shared: Arc<Shared>,
}

struct Shared {
    server: PathBuf,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    ended: bool,
    /// Whose bytes are kept back.
    held: BTreeSet<Pid>,
    /// Connections that the server has not closed, by the process that made them.
    open: BTreeMap<u64, Pid>,
    made: u64,
    late_bytes: u64,
}

impl LateWay {
    /// Takes connections at `socket`, and leads each to the socket of the server.
    #[track_caller]
    pub fn begin(socket: &Path, server: &Path) -> LateWay {
        let listener = UnixListener::bind(socket).unwrap_or_else(|e| panic!("listen at {}: {e}", socket.display()));
        let (server, state) = (server.to_owned(), Mutex::default());
        let shared = Arc::new(Shared { server, state, changed: Condvar::new() });
        let way = LateWay { socket: socket.to_owned(), shared: shared.clone() };
        std::thread::spawn(move || {
            for client in listener.incoming() {
                if shared.lock().ended {
                    return;
                }
                // A client that went before it was taken.
                let Ok(client) = client else { continue };
                shared.clone().lead(client);
            }
        });
        way
    }

    /// Nothing that this process sends, or has sent and was not passed on yet, arrives from now on.
    pub fn hold(&self, process: Pid) {
        self.shared.lock().held.insert(process);
    }

    /// What was kept back of this process arrives now.
    pub fn release(&self, process: Pid) {
        self.shared.lock().held.remove(&process);
        self.shared.changed.notify_all();
    }

    /// The processes whose connections may still change the export, once for each connection.
    pub fn open(&self) -> Vec<Pid> {
        self.shared.lock().open.values().copied().collect()
    }

    /// Bytes that were kept back and have arrived.
    pub fn late_bytes(&self) -> u64 {
        self.shared.lock().late_bytes
    }
}

impl Drop for LateWay {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        state.ended = true;
        state.held.clear();
        drop(state);
        self.shared.changed.notify_all();
        // The thread that takes connections looks up.
        let _ = UnixStream::connect(&self.socket);
        let _ = std::fs::remove_file(&self.socket);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    fn lead(self: Arc<Shared>, client: UnixStream) {
        let Ok(process) = process_of(&client) else { return };
        // To the client it is as if the server were not there.
        let Ok(server) = UnixStream::connect(&self.server) else { return };
        let (Ok(from_client), Ok(to_server)) = (client.try_clone(), server.try_clone()) else { return };
        let mut state = self.lock();
        state.made += 1;
        let number = state.made;
        state.open.insert(number, process);
        drop(state);
        let requests = self.clone();
        std::thread::spawn(move || requests.pass_requests(process, from_client, to_server));
        std::thread::spawn(move || {
            pass_replies(server, client);
            self.lock().open.remove(&number);
        });
    }

    fn pass_requests(&self, process: Pid, mut from: UnixStream, mut to: UnixStream) {
        let mut piece = [0; 64 << 10];
        // A client that is dead has left the rest in its socket.
        while let Ok(read @ 1..) = from.read(&mut piece) {
            let mut state = self.lock();
            let late = state.held.contains(&process);
            while state.held.contains(&process) {
                state = self.changed.wait(state).expect("nobody panics while holding it");
            }
            state.late_bytes += if late { read as u64 } else { 0 };
            drop(state);
            if to.write_all(&piece[..read]).is_err() {
                return;
            }
        }
        // The end arrives behind what was sent before it.
        let mut state = self.lock();
        while state.held.contains(&process) {
            state = self.changed.wait(state).expect("nobody panics while holding it");
        }
        drop(state);
        let _ = to.shutdown(Shutdown::Write);
    }
}

/// Until the server closes the connection. A dead client's replies are read all the same: a server that finds nobody to take
/// them might leave out what else it was asked for.
fn pass_replies(mut from: UnixStream, mut to: UnixStream) {
    let mut piece = [0; 64 << 10];
    let mut listens = true;
    while let Ok(read @ 1..) = from.read(&mut piece) {
        listens = listens && to.write_all(&piece[..read]).is_ok();
    }
    let _ = to.shutdown(Shutdown::Both);
}

fn process_of(client: &UnixStream) -> io::Result<Pid> {
    let mut credentials = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    let place: *mut libc::ucred = &mut credentials;
    // SAFETY: the kernel writes at most `size` bytes into a structure of that size, which lives through the call.
    let result = unsafe {
        libc::getsockopt(client.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, place.cast(), &raw mut size)
    };
    if result == 0 { Ok(credentials.pid as Pid) } else { Err(io::Error::last_os_error()) }
}
