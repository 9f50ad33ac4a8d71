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
