//! Where io_uring is forbidden, as the default seccomp profiles of containers do: the same profile, on one thread.

use forebay_core::types::FrameId;
use forebay_io::{Arena, Buffers, Completion, DeviceFile, Mode, ModeChoice, Operation, OperationKind, Reactor};
use std::sync::Arc;
use std::time::Duration;

/// Makes io_uring_setup fail with EPERM in the calling thread, for good.
fn forbid_io_uring() {
    let statement = |code: u32, k: u32, jt: u8, jf: u8| libc::sock_filter { code: code as u16, jt, jf, k };
    let mut program = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0), // the system call's number
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, libc::SYS_io_uring_setup as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: no memory is involved; all five arguments are given as the kernel demands.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: the program and its description are valid for the call, which copies them.
    let result = unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

#[test]
fn auto_falls_back_to_threads_and_says_why() {
    // A thread of its own, because the filter stays with it.
    std::thread::spawn(fall_back).join().unwrap();
}

fn fall_back() {
    forbid_io_uring();
    let error = Reactor::new(ModeChoice::Uring).err().expect("io_uring is forbidden").to_string();
    assert!(error.contains("io_uring was asked for") && error.contains("seccomp"), "{error}");
    let mut reactor = Reactor::new(ModeChoice::Auto).unwrap();
    assert_eq!(reactor.mode(), Mode::Threads);
    assert!(reactor.why().contains("io_uring does not work here"), "{}", reactor.why());

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("device");
    std::fs::write(&path, vec![0x42u8; 4096]).unwrap();
    let file = Arc::new(DeviceFile::open(&path, false).unwrap());
    let arena = Arena::anonymous(1, false).unwrap();
    let mut buffers = Buffers::none();
    buffers.push_frame(&arena, FrameId(0), 0, 4096);
    reactor.submit(1, Operation::new(file, OperationKind::Read { offset: 0 }, buffers));
    let mut out = Vec::new();
    reactor.wait(Some(Duration::from_secs(20)), &mut out).unwrap();
    assert!(matches!(out[..], [Completion::Done { token: 1, result: Ok(()), .. }]), "{out:?}");
    assert!(arena.bytes(FrameId(0)).iter().all(|&b| b == 0x42));
}

#[test]
fn auto_takes_io_uring_where_it_works() {
    let reactor = Reactor::new(ModeChoice::Auto).unwrap();
    match Reactor::new(ModeChoice::Uring) {
        Ok(_) => assert_eq!(reactor.mode(), Mode::Uring, "{}", reactor.why()),
        Err(_) => assert_eq!(reactor.mode(), Mode::Threads),
    }
}
