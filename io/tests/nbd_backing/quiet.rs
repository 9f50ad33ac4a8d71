//! How long a new connection changes nothing after one that was lost, or left by a process that was killed, and how often one is made.

use super::*;

/// Proves N-1.
/// A server whose write lands 1 s after it was asked for, also when nobody waits for it any more.
pub fn late_writes_of_a_lost_connection_are_waited_for(mode: ModeChoice) {
    // Without the quiet time the late write wins, which proves that the test would see it.
    for (quiet, survivor) in [("0s", 1), ("2s", 2)] {
        let folder = tempfile::tempdir().unwrap();
        let path = image(folder.path());
        let marker = folder.path().join("late");
        std::fs::write(&marker, b"").unwrap();
        let write = format!(
            "pwrite=late=0; if rm {} 2>/dev/null; then late=1; fi; sleep $late; \
             dd of={} bs=4096 seek=$(($4 / 4096)) conv=notrunc status=none",
            marker.display(),
            path.display()
        );
        let read = format!("pread=dd if={} iflag=skip_bytes,count_bytes skip=$4 count=$3 status=none", path.display());
        let server = Server::nbdkit(
            folder.path(),
            &[
                "eval",
                "get_size=echo 33554432",
                &read,
                &write,
                "can_write=exit 0",
                "can_flush=exit 0",
                "flush=exit 0",
                "thread_model=echo parallel",
            ],
        );
        let proxy = Proxy::new(folder.path(), &server.socket, 1 << 16);
        let mut rig = Rig::new(mode, &format!("{}&nbd_quiet={quiet}", proxy.uri()));
        rig.fill(0, 1);
        rig.fill(1, 2);
        let op = rig.write(3, &[0]);
        assert_eq!(rig.turn(StdDuration::from_millis(50)), []);
        // The flush before it has to be answered before it is sent.
        while marker.exists() {
            assert_eq!(rig.turn(StdDuration::from_millis(10)), []);
        }
        proxy.cut();
        assert_eq!(rig.all()[&op], GONE);
        rig.until_connected();
        let start = now();
        // A read needs not wait.
        let read = rig.read(9, &[2]);
        let op = rig.write(3, &[1]);
        let mut order = Vec::new();
        while order.len() < 2 {
            order.extend(rig.turn(SECOND));
        }
        assert_eq!(order, [(read, Outcome::Ok), (op, Outcome::Ok)]);
        let waited = (now() - start).as_secs_f64();
        assert!(if quiet == "0s" { waited < 0.9 } else { waited > 1.0 }, "{quiet}: {waited} s");
        assert_eq!(rig.sync(), Outcome::Ok);
        std::thread::sleep(StdDuration::from_millis(1500));
        let op = rig.read(3, &[5]);
        assert_eq!(rig.all()[&op], Outcome::Ok);
        assert!(rig.holds(5, survivor), "nbd_quiet={quiet}");
    }
}

/// Proves N-1.
/// A host that was frozen for longer than the quiet time has what it had received still before it.
pub fn the_quiet_time_begins_when_the_server_is_there_again(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["--filter=delay", "memory", "32M", "wdelay=1"]);
    let proxy = Proxy::new(folder.path(), &server.socket, 1 << 16);
    let mut rig = Rig::new(mode, &format!("{}&nbd_quiet=1s", proxy.uri()));
    rig.fill(0, 1);
    let op = rig.write(3, &[0]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    let op = rig.write(4, &[0]);
    let hidden = folder.path().join("hidden.sock");
    std::fs::rename(&proxy.socket, &hidden).unwrap();
    proxy.cut();
    assert_eq!(rig.all()[&op], GONE);
    let lost = now();
    while (now() - lost).as_secs_f64() < 1.5 {
        assert_eq!(rig.turn(StdDuration::from_millis(20)), []);
    }
    assert!(!rig.connected());
    std::fs::rename(&hidden, &proxy.socket).unwrap();
    rig.until_connected();
    let start = now();
    let op = rig.write(4, &[0]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    let waited = (now() - start).as_secs_f64();
    assert!(waited > 1.5, "1 s of it is the server's own: {waited} s");
}

/// Proves N-1.
/// It began when the backing was opened after a stop that was not clean, and the server went away meanwhile.
pub fn the_quiet_time_of_an_opening_begins_again_with_another_connection(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["memory", "32M"]);
    let proxy = Proxy::new(folder.path(), &server.socket, 1 << 16);
    let mut rig = Rig::after_a_kill(mode, &format!("{}&nbd_quiet=2s", proxy.uri()));
    let hidden = folder.path().join("hidden.sock");
    std::fs::rename(&proxy.socket, &hidden).unwrap();
    proxy.cut();
    // It finds out that the connection is lost, and is answered by the next one.
    let read = rig.read(3, &[5]);
    while rig.io.backing_mut().try_lock().unwrap() != LockAttempt::Locked {
        assert_eq!(rig.turn(StdDuration::from_millis(20)), []);
    }
    std::fs::rename(&hidden, &proxy.socket).unwrap();
    assert_eq!(rig.all()[&read], Outcome::Ok);
    let timed_write = |rig: &mut Rig| {
        let start = now();
        rig.fill(0, 1);
        let op = rig.write(3, &[0]);
        assert_eq!(rig.all()[&op], Outcome::Ok);
        (now() - start).as_secs_f64()
    };
    let waited = timed_write(&mut rig);
    assert!(waited > 1.0, "{waited} s");
    // What was over is not waited for again.
    proxy.cut();
    let read = rig.read(3, &[5]);
    assert_eq!(rig.all()[&read], Outcome::Ok);
    let waited = timed_write(&mut rig);
    assert!(waited < 1.9, "{waited} s");
}

/// It is not asked all the time.
pub fn a_server_that_hangs_up_at_once_is_left_alone_for_a_while(mode: ModeChoice) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["memory", "32M"]);
    let proxy = Proxy::new(folder.path(), &server.socket, 1 << 16);
    let mut rig = Rig::new(mode, &proxy.uri());
    proxy.cut();
    let op = rig.read(3, &[5]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
    let (begun, mut found) = (now(), 0);
    while (now() - begun).as_secs_f64() < 4.5 || found == 0 {
        if rig.connected() {
            proxy.cut();
            found += 1;
            while rig.connected() {
                assert_eq!(rig.turn(StdDuration::from_millis(10)), []);
            }
        }
        assert_eq!(rig.turn(StdDuration::from_millis(10)), []);
    }
    assert!(found < 7, "{found} connections");
    let op = rig.read(3, &[5]);
    assert_eq!(rig.all()[&op], Outcome::Ok);
}

/// A server that takes note of each write, and is as slow or as broken as a file says.
fn marking(folder: &Path, one_cache: bool) -> Server {
    let (came, slow, broken) = (folder.join("came"), folder.join("slow"), folder.join("broken"));
    let flush = format!("flush=if [ -e {} ]; then echo EIO >&2; exit 1; fi", folder.join("unflushed").display());
    let write = format!(
        "pwrite=cat >/dev/null; touch {}; if [ -e {} ]; then sleep 30; fi; if [ -e {} ]; then echo EIO >&2; exit 1; fi",
        came.display(),
        slow.display(),
        broken.display()
    );
    let multi_conn = if one_cache { "can_multi_conn=exit 0" } else { "can_multi_conn=exit 3" };
    let plugin = ["eval", "get_size=echo 33554432", "pread=head -c $3 /dev/zero", &write, multi_conn];
    let abilities = ["can_write=exit 0", "can_flush=exit 0", &flush, "thread_model=echo parallel"];
    Server::nbdkit(folder, &[&plugin[..], &abilities].concat())
}

/// Proves what an owner's own word stands on: nothing that it has asked for is done later.
pub fn what_may_still_come_late_is_known(mode: ModeChoice) {
    for one_cache in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let server = marking(folder.path(), one_cache);
        let proxy = Proxy::new(folder.path(), &server.socket, 1 << 16);
        let mut rig = Rig::new(mode, &format!("{}&nbd_quiet=0s", proxy.uri()));
        assert!(rig.io.every_change_is_done(), "nothing was asked for");
        let op = rig.write(3, &[0]);
        assert!(!rig.io.every_change_is_done());
        assert_eq!(rig.all()[&op], Outcome::Ok);
        assert_eq!(rig.io.every_change_is_done(), one_cache, "a cache of its own is written out later");
        assert_eq!(rig.sync(), Outcome::Ok);
        assert!(rig.io.every_change_is_done());

        // A connection that takes nothing with it, and one that takes a write.
        let reads_anew = |rig: &mut Rig| {
            proxy.cut();
            let read = rig.read(9, &[2]);
            assert_eq!(rig.all().remove(&read), Some(Outcome::Ok));
        };
        reads_anew(&mut rig);
        assert!(rig.io.every_change_is_done());
        std::fs::remove_file(folder.path().join("came")).unwrap();
        std::fs::write(folder.path().join("slow"), b"").unwrap();
        let op = rig.write(3, &[0]);
        while !folder.path().join("came").exists() {
            assert_eq!(rig.turn(StdDuration::from_millis(10)), []);
        }
        proxy.cut();
        assert_eq!(rig.all()[&op], GONE);
        std::fs::remove_file(folder.path().join("slow")).unwrap();
        rig.until_connected();
        let op = rig.write(3, &[0]);
        assert_eq!(rig.all()[&op], Outcome::Ok);
        assert_eq!(rig.sync(), Outcome::Ok);
        assert!(!rig.io.every_change_is_done(), "what the connection took may come");
    }
    // What stands behind a server may do later what that says has failed, of a write or of a flush.
    for broken in ["broken", "unflushed"] {
        let folder = tempfile::tempdir().unwrap();
        let server = marking(folder.path(), true);
        let mut rig = Rig::new(mode, &server.uri());
        let op = rig.write(3, &[0]);
        assert_eq!(rig.all()[&op], Outcome::Ok);
        assert!(rig.io.every_change_is_done());
        std::fs::write(folder.path().join(broken), b"").unwrap();
        let op = rig.write(3, &[0]);
        let ends = [rig.all().remove(&op).expect("it has ended"), rig.sync()];
        assert!(ends.contains(&Outcome::Failed(IoError::Failed)), "{broken}");
        std::fs::remove_file(folder.path().join(broken)).unwrap();
        let op = rig.write(3, &[0]);
        assert_eq!(rig.all()[&op], Outcome::Ok);
        assert_eq!(rig.sync(), Outcome::Ok);
        assert!(!rig.io.every_change_is_done(), "the first of the two may come: {broken}");
    }
}
