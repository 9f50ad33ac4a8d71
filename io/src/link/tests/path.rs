//! Channels that die, and nodes that begin anew.

use super::*;
use crate::socket;
use std::process::Command;

impl Stand {
    /// As when somebody cuts the connection: what was on it is lost.
    fn cut(&mut self, channel: usize) {
        let live = self.alpha.link.slots[channel].connection().unwrap();
        socket::shut_down(live.channel().socket());
    }

    /// The node alpha goes on, and its link is made anew.
    fn remake_alpha(&mut self, session: u64) {
        let Stand { reactor, alpha, .. } = self;
        alpha.link.close(reactor, &mut alpha.sink, clock::now());
        let mut config = alpha.link.config.clone();
        config.identity = Arc::new(identity("alpha", session));
        *alpha =
            End { link: Link::new(config, clock::now()).expect("two nodes"), sink: Sink::new(), events: Vec::new() };
    }

    /// The node beta is killed and started again.
    fn restart_beta(&mut self, session: u64) {
        let Stand { reactor, beta, .. } = self;
        for slot in &beta.link.slots {
            if let Some(live) = slot.connection() {
                reactor.unwatch(live.channel().socket().as_raw_fd()).unwrap();
            }
        }
        let mut config = beta.link.config.clone();
        config.identity = Arc::new(identity("beta", session));
        *beta =
            End { link: Link::new(config, clock::now()).expect("two nodes"), sink: Sink::new(), events: Vec::new() };
        self.door.identity_changes(Arc::new(identity("beta", session)));
    }
}

#[test]
fn messages_of_a_dead_channel_go_by_the_others_once() {
    for mode in MODES {
        let mut stand = Setting::plain(mode, 3).build();
        stand.until_up(3);
        for round in 0..6 {
            stand.send_many(round * 20, 20);
            let channel = round as usize % 3;
            stand.until("up again", |stand| stand.alpha.is_up(3) && stand.beta.is_up(3));
            for index in 0..4 {
                let (message, payload) = stand.append((1_000_000 + round * 10 + index) * 1000, 256);
                stand.alpha.link.send(&from_alpha(), &message, payload, None).unwrap();
            }
            stand.round();
            stand.cut(channel);
        }
        stand.until("all", |stand| stand.beta.sink.got.len() == 144);
        let mut got = std::mem::take(&mut stand.beta.sink.got);
        got.retain(|from| *from < 1_000_000_000);
        stand.beta.sink.got = got;
        stand.assert_got_once(120);
        stand.until("released", |stand| stand.released.len() == 120);
        let status = stand.alpha.link.status();
        assert!(status.channels.iter().map(|channel| channel.resent).sum::<u64>() > 0, "{status:?}");
        assert_eq!(status.given_up, 0);
        assert!(!stand.alpha.events.contains(&LinkEvent::Interrupted));
    }
}

#[test]
fn with_the_last_channel_everything_is_given_up_and_told() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.until_up(1);
    for index in 0..20 {
        let (message, payload) = stand.append(index * 1000, 256);
        stand.alpha.link.send(&from_alpha(), &message, payload, Some(index)).unwrap();
    }
    stand.round();
    stand.cut(0);
    stand.until("told", |stand| stand.alpha.events.contains(&LinkEvent::Interrupted));
    assert_eq!(stand.released.len(), 20, "nothing reads the memory any more");
    stand.until_up(1);
    let (before, interrupted) = (stand.beta.sink.got.len(), stand.alpha.link.status().given_up);
    assert!(before as u64 + interrupted >= 20, "{before} {interrupted}");
    stand.send_many(100, 10);
    stand.until("the next ones", |stand| stand.beta.sink.got.len() == before + 10);
    assert_eq!(stand.beta.sink.free.len(), 4096, "of what was arriving, too");
}

#[test]
fn a_node_that_begins_anew_gets_nothing_of_before_and_everything_after() {
    let mut stand = Setting::plain(ModeChoice::Auto, 2).build();
    stand.until_up(2);
    stand.send_many(0, 30);
    stand.restart_beta(200);
    stand.until("noticed", |stand| stand.alpha.events.contains(&LinkEvent::Interrupted));
    stand.until_up(2);
    stand.beta.sink.got.clear();
    stand.send_many(0, 30);
    stand.until("all", |stand| stand.beta.sink.got.len() == 30);
    stand.assert_got_once(30);
}

#[test]
fn a_volume_that_is_closed_is_written_to_no_more() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.until_up(1);
    for index in 0..40 {
        let (message, payload) = stand.append(index * 1000, 256);
        stand.alpha.link.send(&from_alpha(), &message, payload, Some(index)).unwrap();
    }
    stand.until("in the middle", |stand| stand.beta.sink.free.len() < 4096);
    stand.beta.link.forget_volume(&VOLUME);
    let taken = 4096 - stand.beta.sink.free.len();
    assert!(taken > 0);
    // As a volume that is opened anew: its frames are its own.
    stand.beta.sink = Sink::new();
    stand.alpha.link.forget_volume(&VOLUME);
    stand.until("quiet", |stand| stand.alpha.link.outbox.is_empty());
    assert_eq!(stand.released.len(), 40);
    assert_eq!(stand.beta.sink.free.len(), 4096);
    stand.send_many(5, 1);
    stand.until("the next one", |stand| stand.beta.sink.got.contains(&5000));
}

#[test]
fn an_idle_link_stays_up() {
    let mut stand = Setting::plain(ModeChoice::Auto, 2).build();
    stand.until_up(2);
    stand.go_on_for(Duration::from_millis(1800));
    assert!(stand.alpha.is_up(2) && stand.beta.is_up(2));
    let ups = stand.alpha.events.iter().filter(|event| matches!(event, LinkEvent::Up { .. })).count();
    assert_eq!(ups, 2, "{:?}", stand.alpha.events);
    assert!(stand.alpha.link.slots.iter().all(|slot| slot.connection().unwrap().pace.round_trip_min().0 < 100_000_000));
}

#[test]
fn a_process_that_is_slow_is_not_taken_for_a_dead_path() {
    let mut stand = Setting::plain(ModeChoice::Auto, 2).build();
    stand.until_up(2);
    stand.send_many(0, 6);
    stand.frozen = true;
    for index in 6..40 {
        let (message, payload) = stand.append(index * 1000, 256);
        stand.alpha.link.send(&from_alpha(), &message, payload, Some(index)).unwrap();
    }
    stand.go_on_for(Duration::from_millis(900));
    assert!(!stand.alpha.link.outbox.is_empty(), "nothing was acknowledged for six times the time of a stall");
    stand.frozen = false;
    stand.until("all", |stand| stand.beta.sink.got.len() == 40);
    stand.assert_got_once(40);
    let downs = stand.alpha.events.iter().filter(|event| matches!(event, LinkEvent::Down { .. })).count();
    assert_eq!(downs, 0, "{:?}", stand.alpha.events);
}

/// Runs in a network of its own, where packets can be dropped; says what is missing where there is none.
fn in_own_network(test: fn()) {
    let missing = std::thread::spawn(move || {
        // SAFETY: a new network for this thread alone touches no memory.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            return Some(format!("a network namespace: {} (needs root)", io::Error::last_os_error()));
        }
        for (program, arguments) in [
            ("ip", "link set lo up"),
            ("nft", "add table inet paths"),
            ("nft", "add chain inet paths arriving { type filter hook input priority 0 ; }"),
        ] {
            match Command::new(program).args(arguments.split(' ')).status() {
                Ok(status) if status.success() => {}
                Ok(status) => return Some(format!("{program} {arguments}: {status}")),
                Err(error) => return Some(format!("{program}: {error}")),
            }
        }
        test();
        None
    });
    match missing.join() {
        Ok(None) => {}
        Ok(Some(missing)) => crate::skip::skip(&missing),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// Drops what arrives that fits, or nothing any more.
fn drop_what(fits: Option<&str>) {
    let rule = fits
        .map_or("flush chain inet paths arriving".into(), |fits| format!("add rule inet paths arriving {fits} drop"));
    assert!(Command::new("nft").args(rule.split(' ')).status().unwrap().success(), "{rule}");
}

/// One of two paths goes dead without a word, in both directions or in one; then it is back. (How soon, by the link's clock, is
/// looked at below.)
#[test]
fn a_dead_path_is_left_and_used_again_when_it_is_back() {
    in_own_network(|| {
        for one_way in [false, true] {
            let mut stand = Setting::plain(ModeChoice::Auto, 2).build();
            stand.until_up(2);
            let port = stand.door.address().unwrap().port();
            let way = if one_way { format!(" tcp dport {port}") } else { String::new() };
            let fits = format!("ip daddr 127.0.0.2{way}");
            let mut sent = 0;
            let mut cut_at = None;
            let mut is_left = false;
            while !is_left || stand.beta.sink.got.len() < sent {
                if !is_left && stand.alpha.link.room() > 32 << 20 {
                    let (message, payload) = stand.append(sent as u64 * 1000, 16);
                    stand.alpha.link.send(&from_alpha(), &message, payload, None).unwrap();
                    sent += 1;
                }
                stand.round();
                if sent == 200 && cut_at.is_none() {
                    drop_what(Some(&fits));
                    cut_at = Some(clock::now());
                }
                let down = LinkEvent::Down { channel: 1, why: Failure::NoProgress };
                is_left |= cut_at.is_some() && stand.alpha.events.contains(&down);
                assert!(cut_at.is_none_or(|at| clock::now() - at < PATIENCE), "{:?}", stand.alpha.link.status());
            }
            stand.assert_got_once(sent as u64);
            assert!(!stand.alpha.events.contains(&LinkEvent::Interrupted));
            assert!(stand.alpha.is_up(1));
            stand.go_on_for(Duration::from_millis(300));
            drop_what(None);
            stand.until("both again", |stand| stand.alpha.is_up(2) && stand.beta.is_up(2));
            stand.send_many(sent as u64, 20);
            stand.until("all", |stand| stand.beta.sink.got.len() == sent + 20);
        }
    });
}

/// A dead path is left within a fifth of a second. What is sent after a rest has its whole time to be answered, however long ago
/// the last answer came.
#[test]
fn a_rest_between_two_messages_counts_for_nobodys_silence() {
    let (here, mut there) = std::os::unix::net::UnixStream::pair().unwrap();
    here.set_nonblocking(true).unwrap();
    let begun = clock::now();
    let at = |millis| begun + Duration::from_millis(millis);
    let mut live = Connection::new(crate::channel::Channel::plain(here.into()), 0, 1, begun);
    let (mut outbox, mut inbox, mut vectors) = (Outbox::new(), Inbox::default(), Vec::new());
    live.send(&mut outbox, 0, &mut vectors).unwrap();
    // It is looked at while its first ping is open, and then that is answered, behind a ping of the other side.
    assert_eq!(live.look(true, at(30)), Ok(()));
    let mut answer = Vec::new();
    ChannelFrame::Ping { sent: begun }.encode(&mut answer);
    ChannelFrame::Pong { sent: begun }.encode(&mut answer);
    there.write_all(&answer).unwrap();
    let mut desk = Desk {
        outbox: &mut outbox,
        inbox: &mut inbox,
        packer: &mut Packer::new(),
        receiver: &mut Sink::new(),
        hot: &mut [0; 4096],
        own: from_beta().to.node,
        peer: from_beta().from.node,
        now: at(40),
        counts: &mut Counts::default(),
    };
    live.receive(&mut desk).unwrap();
    // As at the end of each turn.
    live.send(&mut outbox, 0, &mut vectors).unwrap();
    // Nothing is said for longer than a channel may be silent; the next ping is just on its way.
    live.ask(at(400));
    live.send(&mut outbox, 0, &mut vectors).unwrap();
    assert_eq!(live.look(true, at(401)), Ok(()));
    assert_eq!(live.look(true, at(430)), Ok(()));
    let silent = at(401) + connection::STALL_MAX;
    assert_eq!(live.look(true, silent), Ok(()));
    assert_eq!(live.look(true, silent + Duration::from_millis(30)), Err(Failure::NoProgress));
}

/// Its numbers begin anew, so it needs another session: under the former one the other end has had them all.
#[test]
fn messages_of_a_link_that_was_made_anew_arrive_where_its_session_is_another_one() {
    for (session, arrives) in [(101, true), (100, false)] {
        let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
        stand.until_up(1);
        stand.send_many(0, 30);
        stand.until("all", |stand| stand.beta.sink.got.len() == 30);
        stand.remake_alpha(session);
        stand.until_up(1);
        stand.send_many(30, 12);
        stand.until("acknowledged", |stand| stand.alpha.link.outbox.is_empty());
        assert_eq!(stand.beta.sink.got.len(), if arrives { 42 } else { 30 });
    }
}
