//! The other node has other addresses than before.

use super::*;
use std::collections::BTreeSet;
use std::net::TcpListener;

fn own(last: u8) -> IpAddr {
    IpAddr::from([127, 0, 0, last])
}

impl Stand {
    /// From an own address to the same one, where the door listens as well.
    fn pair(&self, last: u8) -> AddressPair {
        AddressPair { own: own(last), peer: SocketAddr::new(own(last), self.door.address().unwrap().port()) }
    }

    fn ask(&mut self, pairs: &[AddressPair]) {
        let Stand { reactor, alpha, .. } = self;
        alpha.link.set_pairs(reactor, &mut alpha.sink, pairs.to_vec(), clock::now()).unwrap();
    }

    fn is_moved(&mut self, pairs: &[AddressPair]) {
        let Stand { reactor, beta, .. } = self;
        beta.link.set_pairs(reactor, &mut beta.sink, pairs.to_vec(), clock::now()).unwrap();
    }

    /// Addresses of the other end, as the calling end shows them.
    fn shown(&self) -> BTreeSet<IpAddr> {
        shown(&self.alpha)
    }

    fn up(&self) -> BTreeSet<IpAddr> {
        let channels = self.alpha.link.status().channels;
        let up = channels.iter().filter(|channel| channel.phase == ChannelPhase::Up);
        up.filter_map(|channel| channel.address.map(|address| address.ip())).collect()
    }
}

fn shown(end: &End) -> BTreeSet<IpAddr> {
    end.link.status().channels.iter().filter_map(|channel| channel.address.map(|address| address.ip())).collect()
}

fn set(all: &[u8]) -> BTreeSet<IpAddr> {
    all.iter().map(|last| own(*last)).collect()
}

/// Words alone end nothing that works, whatever works beside it.
#[test]
fn a_channel_that_works_stays_beside_its_successor_until_it_ends() {
    for mode in MODES {
        let mut stand = Setting::plain(mode, 2).build();
        stand.until_up(2);
        let pairs = [stand.pair(1), stand.pair(9)];
        stand.ask(&pairs);
        stand.until("the successor", |stand| stand.up().contains(&own(9)));
        let begun = clock::now();
        let mut sent = 0;
        while clock::now() - begun < Duration::from_secs(3) {
            assert_eq!(stand.up(), set(&[1, 2, 9]), "{:?}", stand.alpha.link.status());
            stand.send_many(sent, 1);
            sent += 1;
        }
        let leaving = stand.alpha.link.slots.iter().position(|slot| slot.address.is_some_and(|it| it.ip() == own(2)));
        let Stand { reactor, alpha, .. } = &mut stand;
        alpha.link.fail(reactor, &mut alpha.sink, leaving.expect("it is there"), Failure::NoProgress, clock::now());
        stand.until("what has ended is not shown", |stand| stand.shown() == set(&[1, 9]));
        stand.until("all", |stand| stand.beta.sink.got.len() as u64 == sent);
        stand.assert_got_once(sent);
        assert!(!stand.alpha.events.contains(&LinkEvent::Interrupted));
        let left = |event: &LinkEvent| matches!(event, LinkEvent::Left { address, .. } if address.ip() == own(2));
        assert!(stand.alpha.events.iter().any(left));
    }
}

#[test]
fn a_pair_that_does_not_work_is_given_up_and_the_new_one_is_called_at_once() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = AddressPair { own: own(5), peer: SocketAddr::new(own(5), nobody.port()) };
    let (good, new) = (stand.pair(1), stand.pair(9));
    stand.ask(&[good, dead]);
    let tried =
        |stand: &Stand| stand.alpha.link.status().channels.iter().any(|it| it.pair == Some(dead) && it.failures > 0);
    stand.until("one of two", |stand| stand.up() == set(&[1]) && tried(stand));
    stand.ask(&[good, new]);
    assert_eq!(stand.shown(), set(&[1, 9]));
    stand.until("both", |stand| stand.up() == set(&[1, 9]));
    // With no channel at all it is the same.
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    let new = stand.pair(9);
    stand.ask(&[dead]);
    stand.until("in vain", tried);
    stand.ask(&[new]);
    assert_eq!(stand.shown(), set(&[9]));
    stand.until("the new one", |stand| stand.up() == set(&[9]));
}

#[test]
fn what_works_outlasts_words_that_lead_nowhere() {
    let mut stand = Setting::plain(ModeChoice::Auto, 2).build();
    stand.until_up(2);
    let true_pairs = [stand.pair(1), stand.pair(2)];
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let false_pairs =
        [6, 7].map(|last| AddressPair { own: own(last), peer: SocketAddr::new(own(last), nobody.port()) });
    stand.ask(&false_pairs);
    stand.go_on_for(Duration::from_secs(3));
    assert_eq!(stand.up(), set(&[1, 2]), "{:?}", stand.alpha.link.status());
    stand.ask(&[]);
    stand.go_on_for(Duration::from_millis(300));
    assert_eq!((stand.up(), stand.shown()), (set(&[1, 2]), set(&[1, 2])));
    stand.ask(&true_pairs);
    stand.go_on_for(Duration::from_millis(300));
    assert_eq!((stand.up(), stand.shown()), (set(&[1, 2]), set(&[1, 2])));
    let ended =
        |event: &LinkEvent| matches!(event, LinkEvent::Left { address, .. } if set(&[1, 2]).contains(&address.ip()));
    assert!(!stand.alpha.events.iter().any(ended) && !stand.alpha.events.contains(&LinkEvent::Interrupted));
    let Stand { reactor, alpha, .. } = &mut stand;
    let too_many = vec![true_pairs[0]; CHANNELS_MAX + 1];
    let said = alpha.link.set_pairs(reactor, &mut alpha.sink, too_many, clock::now());
    assert_eq!(said, Err(NoLink::Pairs(CHANNELS_MAX + 1)));
}

#[test]
fn a_leaving_channel_that_ends_alone_is_called_again_and_then_given_up() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.until_up(1);
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead = AddressPair { own: own(6), peer: SocketAddr::new(own(6), nobody.port()) };
    stand.ask(&[dead]);
    stand.until("both are shown", |stand| stand.shown() == set(&[1, 6]));
    let Stand { reactor, beta, .. } = &mut stand;
    beta.link.close(reactor, &mut beta.sink, clock::now());
    stand.until("it is down", |stand| stand.up().is_empty());
    stand.until("the words were wrong, and it works again", |stand| stand.up() == set(&[1]));
    // Now it is gone for good.
    let leaving = stand.alpha.link.slots.iter_mut().filter_map(|slot| slot.pair.as_mut());
    leaving.filter(|pair| pair.own == own(1)).for_each(|pair| pair.peer = nobody);
    let Stand { reactor, beta, .. } = &mut stand;
    beta.link.close(reactor, &mut beta.sink, clock::now());
    stand.until("it is forgotten", |stand| stand.shown() == set(&[6]));
}

#[test]
fn who_is_called_forgets_channels_from_addresses_that_are_no_more() {
    let mut stand = Setting::plain(ModeChoice::Auto, 2).build();
    stand.until_up(2);
    let (stays, new) = (stand.pair(1), stand.pair(9));
    stand.is_moved(&[stays, new]);
    stand.go_on_for(Duration::from_millis(200));
    assert!(stand.beta.is_up(2), "it works, and who calls has not ended it");
    assert_eq!(shown(&stand.beta), set(&[1, 2]));
    stand.ask(&[stays]);
    let Stand { reactor, beta, .. } = &mut stand;
    beta.link.fail(reactor, &mut beta.sink, 1, Failure::NoProgress, clock::now());
    stand.until("it is forgotten", |stand| shown(&stand.beta) == set(&[1]) && stand.shown() == set(&[1]));
    stand.ask(&[stays, new]);
    stand.until("the new one", |stand| shown(&stand.beta) == set(&[1, 9]) && stand.beta.is_up(2));
    // Its own address is another one, and who calls has replaced the channel.
    let own_moved = AddressPair { own: own(8), ..new };
    stand.is_moved(&[stays, own_moved]);
    let Stand { reactor, beta, .. } = &mut stand;
    beta.link.fail(reactor, &mut beta.sink, 1, Failure::NoProgress, clock::now());
    assert_eq!(shown(&stand.beta), set(&[1]));
}

#[test]
fn however_often_addresses_change_calls_are_few() {
    let mut stand = Setting::plain(ModeChoice::Auto, 1).build();
    stand.until_up(1);
    let doors = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    doors.iter().for_each(|door| door.set_nonblocking(true).unwrap());
    let begun = clock::now();
    let (mut changes, mut calls) = (0, 0);
    while clock::now() - begun < Duration::from_secs(3) {
        let peer = doors[changes % 2].local_addr().unwrap();
        stand.ask(&[AddressPair { own: own(1), peer }]);
        stand.round();
        changes += 1;
        calls += doors.iter().map(|door| std::iter::from_fn(|| door.accept().ok()).count()).sum::<usize>();
    }
    assert!(changes > 20 && (1..=12).contains(&calls), "{calls} calls of {changes} changes");
    assert_eq!(stand.up(), set(&[1]), "and what works goes on");
}
