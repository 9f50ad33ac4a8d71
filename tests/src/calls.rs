//! System calls of a daemon, seen one by one, and held for as long as a test likes: a file system that does not answer, for the calls
//! that no library in between can catch.
//!
//! The daemon is started behind a seccomp filter that asks a thread of the test about each call that may wait for a file system
//! (seccomp_unotify(2)). The thread notes who makes it, on which file, and lets it go on, or holds it until it is released.
//! What a daemon asks of the kernel by an io_uring is no system call, and is not seen.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Calls that may wait for a file system, by the number of their architecture.
const CALLS: [(libc::c_long, &str); 17] = [
    (libc::SYS_close, "close"),
    (libc::SYS_fallocate, "fallocate"),
    (libc::SYS_fcntl, "fcntl"),
    (libc::SYS_fdatasync, "fdatasync"),
    (libc::SYS_flock, "flock"),
    (libc::SYS_fstat, "fstat"),
    (libc::SYS_fsync, "fsync"),
    (libc::SYS_ftruncate, "ftruncate"),
    (libc::SYS_getdents64, "getdents64"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_newfstatat, "fstatat"),
    (libc::SYS_openat, "openat"),
    // How the C library says the first of them differs by architecture.
    (libc::SYS_renameat, "rename"),
    (libc::SYS_renameat2, "rename"),
    (libc::SYS_statx, "statx"),
    (libc::SYS_syncfs, "syncfs"),
    (libc::SYS_unlinkat, "unlinkat"),
];

/// How the file of a call ends that is about memory of the process's own: so many bytes of it.
pub const OF_MEMORY: &str = " bytes of memory";

/// Smaller stretches of memory are the allocator's.
const MAPPING_BYTES_MIN: u64 = 1 << 20;

/// A call that a thread of the daemon has made.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Call {
    /// Name of the thread.
    pub thread: String,
    /// Name of the call.
    pub call: &'static str,
    /// The file that it is about, also by a mapping of it; empty where it names none, or how much memory.
    pub file: String,
}

/// Calls that are held.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hold {
    /// This one, on files whose paths end like this.
    One(&'static str, String),
    /// These, on files whose paths have this in them.
    Some(&'static [&'static str], String),
    /// All on files whose paths have this in them.
    All(String),
}

impl Hold {
    fn has(&self, call: &Call) -> bool {
        match self {
            Hold::One(name, file) => call.call == *name && call.file.ends_with(file.as_str()),
            Hold::Some(names, file) => names.contains(&call.call) && call.file.contains(file.as_str()),
            Hold::All(file) => call.file.contains(file.as_str()),
        }
    }
}

#[derive(Default)]
struct State {
    seen: BTreeSet<Call>,
    /// What is held from now on.
    holds: Vec<Hold>,
    held: Vec<(u64, Call)>,
    /// How many were held, by the name of the call.
    hung: BTreeMap<&'static str, u64>,
    listener: Option<RawFd>,
}

impl State {
    fn holds(&self, call: &Call) -> bool {
        self.holds.iter().any(|hold| hold.has(call))
    }

    /// What was held, and nothing holds any more, goes on.
    fn let_go(&mut self) {
        let (held, free) = std::mem::take(&mut self.held).into_iter().partition(|(_, call)| self.holds(call));
        self.held = held;
        let free: Vec<(u64, Call)> = free;
        for (id, _) in free {
            self.listener.into_iter().for_each(|listener| go_on(listener, id));
        }
    }
}

/// The place where the calls of one daemon pass.
#[derive(Clone)]
pub struct CallGate {
    state: Arc<Mutex<State>>,
    sender: Arc<UnixStream>,
}

impl std::fmt::Debug for CallGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CallGate").finish_non_exhaustive()
    }
}

impl CallGate {
    /// For one daemon, that is started by [`CallGate::install`].
    pub fn new() -> CallGate {
        let (sender, receiver) = UnixStream::pair().expect("two sockets");
        let state: Arc<Mutex<State>> = Arc::default();
        let shared = state.clone();
        std::thread::spawn(move || {
            // The test that never starts its daemon has nothing to see.
            if let Some(listener) = receive_descriptor(&receiver) {
                shared.lock().expect("nobody panics while holding it").listener = Some(listener.as_raw_fd());
                watch(&listener, &shared);
                shared.lock().expect("nobody panics while holding it").listener = None;
            }
        });
        CallGate { state, sender: Arc::new(sender) }
    }

    /// The command's calls pass here from its first instruction on.
    pub fn install(&self, command: &mut Command) {
        let (filter, sender) = (filter(), self.sender.as_raw_fd());
        // SAFETY: system calls only, on memory that was made before the fork.
        unsafe { command.pre_exec(move || begin_in_child(&filter, sender)) };
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Forgets what was seen.
    pub fn begin_anew(&self) {
        self.lock().seen.clear();
    }

    /// What threads whose names begin like this have called.
    pub fn seen_of(&self, thread: &str) -> Vec<Call> {
        self.lock().seen.iter().filter(|call| call.thread.starts_with(thread)).cloned().collect()
    }

    /// Holds each such call on a file whose path ends like this.
    pub fn hold(&self, call: &'static str, file: &str) {
        self.begin(Hold::One(call, file.to_owned()));
    }

    /// Holds these calls as well from now on.
    pub fn begin(&self, hold: Hold) {
        self.lock().holds.push(hold);
    }

    /// What this alone has held goes on; what others hold stays held.
    pub fn end(&self, hold: &Hold) {
        let mut state = self.lock();
        state.holds.retain(|other| other != hold);
        state.let_go();
    }

    /// How many calls were held so far, by their names.
    pub fn hung(&self) -> BTreeMap<&'static str, u64> {
        self.lock().hung.clone()
    }

    /// Waits until a call is held, and tells which.
    #[track_caller]
    pub fn wait_until_held(&self, limit: Duration) -> Call {
        let begun = Instant::now();
        loop {
            if let Some((_, call)) = self.lock().held.first() {
                return call.clone();
            }
            assert!(begun.elapsed() < limit, "no call was made that is held: {:?}", self.lock().holds);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What is held goes on, and nothing more is held.
    pub fn release(&self) {
        let mut state = self.lock();
        state.holds.clear();
        state.let_go();
    }
}

impl Default for CallGate {
    fn default() -> CallGate {
        CallGate::new()
    }
}

/// A program for the kernel: of these calls it asks, all others it lets pass.
fn filter() -> Vec<libc::sock_filter> {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number = offset_of!(libc::seccomp_data, nr) as u32;
    let mut program = vec![statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, number)];
    for (at, (call, _)) in CALLS.iter().enumerate() {
        let to_question = (CALLS.len() - at) as u8;
        let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
        program.push(libc::sock_filter { code, jt: to_question, jf: 0, k: *call as u32 });
    }
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW));
    program.push(statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF));
    program
}

/// Between fork and exec: the filter, and who is asked.
fn begin_in_child(filter: &[libc::sock_filter], sender: RawFd) -> io::Result<()> {
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    // SAFETY: numbers, and a program that lives longer than the calls.
    let listener = unsafe {
        if libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 {
            return Err(io::Error::last_os_error());
        }
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    if listener < 0 {
        return Err(io::Error::last_os_error());
    }
    send_descriptor(sender, listener as RawFd)
}

/// Room for one descriptor beside a byte, laid out as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 24]);

fn with_message<T>(control: &mut Control, work: impl FnOnce(*mut libc::msghdr) -> T) -> T {
    let mut byte = [0u8; 1];
    let mut part = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
    // SAFETY: a plain structure of numbers and pointers, of which all zeros is a valid one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    (message.msg_control, message.msg_controllen) = (control.0.as_mut_ptr().cast(), control.0.len());
    work(&raw mut message)
}

fn send_descriptor(socket: RawFd, descriptor: RawFd) -> io::Result<()> {
    let mut control = Control([0; 24]);
    with_message(&mut control, |message| {
        // SAFETY: the message and what it points to live here; its control part has room for one descriptor.
        unsafe {
            let head = libc::CMSG_FIRSTHDR(message);
            (*head).cmsg_level = libc::SOL_SOCKET;
            (*head).cmsg_type = libc::SCM_RIGHTS;
            (*head).cmsg_len = libc::CMSG_LEN(4) as usize;
            libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(descriptor);
            if libc::sendmsg(socket, message, 0) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
        }
    })
}

fn receive_descriptor(socket: &UnixStream) -> Option<OwnedFd> {
    let mut control = Control([0; 24]);
    with_message(&mut control, |message| {
        // SAFETY: as for sending; what the kernel has put there is a descriptor of this process, which nobody else has.
        unsafe {
            if libc::recvmsg(socket.as_raw_fd(), message, libc::MSG_CMSG_CLOEXEC) <= 0 {
                return None;
            }
            let head = libc::CMSG_FIRSTHDR(message);
            let is_one = !head.is_null() && (*head).cmsg_type == libc::SCM_RIGHTS;
            is_one.then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()))
        }
    })
}

/// Until the last thread behind the filter has ended.
fn watch(listener: &OwnedFd, state: &Mutex<State>) {
    loop {
        let mut poll = libc::pollfd { fd: listener.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one descriptor of ours.
        let ready = unsafe { libc::poll(&raw mut poll, 1, -1) };
        if ready > 0 && poll.revents & libc::POLLIN == 0 {
            return;
        }
        // SAFETY: a plain structure of numbers, which the kernel wants zeroed and fills.
        let mut asked: libc::seccomp_notif = unsafe { std::mem::zeroed() };
        // SAFETY: the listener is ours, and there is room for one question.
        if unsafe { libc::ioctl(listener.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV, &raw mut asked) } != 0 {
            // Its thread was killed meanwhile.
            continue;
        }
        let call = describe(&asked);
        let mut state = state.lock().expect("nobody panics while holding it");
        let held = call.as_ref().is_some_and(|call| state.holds(call));
        match call {
            Some(call) if held => {
                state.seen.insert(call.clone());
                *state.hung.entry(call.call).or_default() += 1;
                state.held.push((asked.id, call));
            }
            Some(call) => {
                state.seen.insert(call);
                go_on(listener.as_raw_fd(), asked.id);
            }
            None => go_on(listener.as_raw_fd(), asked.id),
        }
    }
}

fn go_on(listener: RawFd, id: u64) {
    let flags = libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32;
    let answer = libc::seccomp_notif_resp { id, val: 0, error: 0, flags };
    // SAFETY: the listener is open, as the thread that watches it says. Whoever asked may have been killed.
    unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND, &raw const answer) };
}

/// What is asked about; none of what waits for no file system.
fn describe(asked: &libc::seccomp_notif) -> Option<Call> {
    let (_, call) = *CALLS.iter().find(|(number, _)| *number == libc::c_long::from(asked.data.nr))?;
    let [first, second, ..] = asked.data.args;
    let thread = std::fs::read_to_string(format!("/proc/{}/comm", asked.pid)).ok()?.trim_end().to_owned();
    let of_descriptor = || std::fs::read_link(format!("/proc/{}/fd/{}", asked.pid, first as i32));
    let file = match call {
        "munmap" if second < MAPPING_BYTES_MIN => return None,
        "munmap" => mapped_at(asked.pid, first).unwrap_or_else(|| format!("{second}{OF_MEMORY}")),
        // By a path, or of a descriptor where the path is empty.
        "openat" | "rename" | "unlinkat" | "fstatat" | "statx" => match path_at(asked.pid, second) {
            path if path.is_empty() => of_descriptor().map(|file| file.display().to_string()).unwrap_or_default(),
            path => path,
        },
        "fcntl" if !is_of_locks(second as i32) => return None,
        // Sockets, eventfds and pipes have no path.
        _ => of_descriptor().ok()?.to_str()?.strip_prefix('/').map(|path| format!("/{path}"))?,
    };
    Some(Call { thread, call, file })
}

/// The text at an address of a process, up to its zero byte; empty where it cannot be read.
fn path_at(pid: u32, address: u64) -> String {
    let mut bytes = [0; 4096];
    let memory = std::fs::File::open(format!("/proc/{pid}/mem"));
    // Less than that where the next page is not there.
    let read = memory.and_then(|memory| memory.read_at(&mut bytes, address)).unwrap_or(0);
    let end = bytes[..read].iter().position(|&byte| byte == 0).unwrap_or(read);
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The file that is mapped from this address of a process on; none where it is memory of the process's own.
fn mapped_at(pid: u32, address: u64) -> Option<String> {
    let mappings = std::fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    let begin = format!("{address:x}-");
    let line = mappings.lines().find(|line| line.starts_with(&begin))?;
    line.find('/').map(|at| line[at..].to_owned())
}

fn is_of_locks(command: i32) -> bool {
    [libc::F_SETLK, libc::F_SETLKW, libc::F_GETLK, libc::F_OFD_SETLK, libc::F_OFD_SETLKW, libc::F_OFD_GETLK]
        .contains(&command)
}
