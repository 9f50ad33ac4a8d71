//! Whoever can write to the coordinator can write any record that is one. Ownership is given such records at every turn, by reads and in the
//! place of its own changes: it may serve or not, but it neither panics nor proposes what is no record.

use forebay_core::api::{Figures, Order, Report};
use forebay_core::cluster::*;
use forebay_core::ownership::*;
use forebay_core::types::*;

/// Numbers from a seed, so that a failure names all of it.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

const OWN: NodeId = NodeId(1);

fn host(number: u64) -> Host {
    Host { machine: [number as u8; 16], boot: [number as u8; 16] }
}

/// Highest term that a node reads from the coordinator.
const TERM_MAX: u32 = 1 << 30;

/// Any record that passes [`Record::validate`], with terms near those that there are, or this one.
fn record(random: &mut Random, near: Term, highest: u32) -> Record {
    loop {
        let node = |random: &mut Random| NodeId(1 + random.below(4));
        let term = match random.below(200) {
            0 => highest,
            1..10 => 0,
            _ => (u64::from(near.0) + random.below(4)).saturating_sub(1) as u32,
        };
        let member = |random: &mut Random| Incarnation {
            node: node(random),
            tier: 1 + random.below(3),
            life: random.below(3) as u32,
        };
        let log = [LogState::Needed, LogState::Through, LogState::Released][random.below(3) as usize];
        let members = (0..random.below(5)).map(|_| member(random)).collect();
        let unfenced = |random: &mut Random| Unfenced {
            term: Term(random.below(u64::from(term) + 1) as u32),
            node: node(random),
            host: host(random.below(4)),
        };
        let unfenced = (0..random.below(4)).map(|_| unfenced(random)).collect();
        let made = Record {
            term: Term(term),
            epoch: Epoch([random.below(6) as u32, 1 << 31][usize::from(random.below(20) == 0)]),
            owner: node(random),
            host: host(random.below(4)),
            members,
            log,
            unfenced,
            ..Record::of_new_volume(OWN, 512 << random.below(20))
        };
        if made.validate().is_ok() {
            return made;
        }
    }
}

/// What the coordinator shows: mostly the same as before, else mostly something newer. One that goes back, or changes, all the time stops
/// every change (C5, C6).
fn read_record(random: &mut Random, shown: &mut Record, highest: u32) -> Record {
    if random.below(8) == 0 {
        let goes_back = random.below(32) == 0;
        let near = shown.term;
        // There may be nothing newer any more.
        let mut made = (0..1000).map(|_| record(random, near, highest));
        if let Some(newer) = made.find(|made| goes_back || made.version() > shown.version()) {
            *shown = newer;
        }
    }
    shown.clone()
}

fn figures(random: &mut Random, term: Term) -> Figures {
    let lsn = Lsn(random.below(100));
    Figures {
        term,
        epoch: Epoch(random.below(4) as u32),
        agreed: random.below(2) == 0,
        accepted: lsn,
        held: lsn,
        synced: (random.below(2) == 0).then_some(lsn),
        committed: lsn,
        mark: Mark::default(),
        serving: random.below(2) == 0,
        drained: random.below(2) == 0,
        wants_log: random.below(2) == 0,
        wants_flushed: [None, Some(Flushed::Held), Some(Flushed::Durable)][random.below(3) as usize],
        tier_failed: random.below(20) == 0,
    }
}

/// One life. How often this node was told to own, so that the lives are known to get that far.
fn live(seed: u64, highest: u32) -> u64 {
    let mut random = Random(seed);
    let own = Incarnation { node: OWN, tier: 1, life: 1 };
    let setup = Setup {
        volume: [7; 16],
        own,
        host: host(1),
        remembered: Remembered::default(),
        known: None,
        rewinds: Default::default(),
        fresh: random.below(2) == 0,
        timing: Timing::default(),
        requested: Requested {
            peers: 1,
            min_peers: 1,
            through: false,
            media: false,
            flushed_readable: true,
            tier_bytes: 1 << 20,
        },
        writes_die_with_host: random.below(2) == 0,
    };
    let mut now = Instant(1_000_000_000);
    let mut ownership = Ownership::new(setup, now);
    let candidate = |node| Candidate {
        node: NodeId(node),
        domain: node,
        free_bytes: 1 << 30,
        load_permille: 0,
        flash: false,
        reaches_backing: true,
        leaving: false,
    };
    ownership.handle(now, Event::Candidates((1..5).map(candidate).collect()));
    let (mut owned, mut shown) = (0, record(&mut random, Term(1), highest));
    for step in 0..400 {
        now = now + Duration::from_millis(1 + random.below(800));
        while let Some(effect) = ownership.poll_effect() {
            match effect {
                Effect::Read(op) => {
                    let read = match random.below(8) {
                        0 => Read::Absent,
                        1 => Read::Failed,
                        2 => Read::Deleted(Term(random.below(4) as u32), Epoch(random.below(4) as u32)),
                        _ => Read::Is(read_record(&mut random, &mut shown, highest)),
                    };
                    ownership.handle(now, Event::Read(op, read));
                }
                Effect::Commit { op, compare, new, .. } => {
                    assert!(new.version() > compare.version() && new.validate().is_ok(), "seed {seed}: {new:?}");
                    let ended = match random.below(4) {
                        0 => Committed::Lost(read_record(&mut random, &mut shown, highest)),
                        1 => Committed::Unknown,
                        _ => {
                            shown = new;
                            Committed::Won
                        }
                    };
                    ownership.handle(now, Event::Committed(op, ended));
                }
                Effect::Volume(Order::Own(order)) => {
                    owned += 1;
                    let figures = figures(&mut random, order.term);
                    ownership.handle(now, Event::Volume(Report::Agreed { term: order.term }, figures));
                }
                Effect::Volume(Order::Remember { term, epoch }) => {
                    let figures = figures(&mut random, term);
                    ownership.handle(now, Event::Volume(Report::Remembered { term, epoch }, figures));
                }
                Effect::OpenTier { .. } => {
                    let own = Incarnation { life: step, ..own };
                    ownership.handle(now, Event::TierOpened { own, fresh: random.below(2) == 0 });
                }
                Effect::Volume(_)
                | Effect::Send(..)
                | Effect::Serve(_)
                | Effect::EndSessions
                | Effect::Answer(..)
                | Effect::Rewound(_)
                | Effect::RewindSettled(_)
                | Effect::OpenBacking(_)
                | Effect::UseBacking(_)
                | Effect::RewindNoticed { .. } => {}
            }
        }
        let event = match random.below(7) {
            0 => Event::RecordChanged,
            1 => Event::Link(NodeId(2 + random.below(3)), random.below(2) == 0),
            2 => Event::Command(ControlId(u64::from(step)), Command::Open { accept_loss: random.below(2) == 0 }),
            3 => Event::Command(ControlId(u64::from(step)), Command::Fenced { terms: vec![shown.term] }),
            4 => {
                let answers = [BackingAnswer::Opened, BackingAnswer::Failed, BackingAnswer::NotOwner];
                Event::Backing(Term(random.below(4) as u32), answers[random.below(3) as usize])
            }
            5 => Event::Figures(figures(&mut random, shown.term)),
            _ => Event::Timeout,
        };
        ownership.handle(now, event);
    }
    owned
}

#[test]
fn no_record_that_is_one_makes_ownership_panic() {
    let owned: u64 = (0..10_000).map(|seed| live(seed, TERM_MAX)).sum();
    assert!(owned > 1000, "these lives get as far as owning: {owned}");
}

/// Planted: a reader of the coordinator who lets any term pass.
#[test]
#[should_panic(expected = "overflow")]
fn without_a_bound_on_terms_these_lives_overflow() {
    (0..10_000).for_each(|seed| {
        live(seed, u32::MAX);
    });
}
