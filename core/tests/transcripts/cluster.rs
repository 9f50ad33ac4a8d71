//! Commands of transcripts about nodes. Nodes are `n1`, `n2` and so on; requests go to the owner.

use crate::trace::Trace;
use crate::weather::FAIR;
use crate::world::*;
use crate::{Stand, words};
use forebay_core::api::*;
use forebay_core::cluster::*;
use forebay_core::message::*;
use forebay_core::types::*;

/// Nodes, pipes and a backing, in which nothing is left to chance: what is due at one time happens in the order of asking.
pub struct Cluster {
    world: World,
    trace: Trace,
}

/// The kind of a node's tier.
fn make(word: &str) -> Make {
    match word {
        "memory" => MEMORY,
        "flash" => FLASH,
        other => panic!("{other} is no kind of tier"),
    }
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("{word} is no number"))
}

fn node(word: &str) -> usize {
    number(word.strip_prefix('n').unwrap_or_else(|| panic!("{word} is no node"))) as usize - 1
}

fn nodes(words: &[&str]) -> Vec<usize> {
    words.iter().map(|word| node(word)).collect()
}

/// The words up to this one, and those behind it.
fn split<'a, 'b>(words: &'b [&'a str], at: &str) -> (&'b [&'a str], &'b [&'a str]) {
    match words.iter().position(|word| *word == at) {
        Some(place) => (&words[..place], &words[place + 1..]),
        None => (words, &[]),
    }
}

fn flushed(word: Option<&&str>) -> Flushed {
    match word {
        None => Flushed::Unrecorded,
        Some(&"held") => Flushed::Held,
        Some(&"durable") => Flushed::Durable,
        Some(other) => panic!("flushes are not {other}"),
    }
}

fn is_append(message: &Message) -> bool {
    matches!(message, Message::Log(LogMessage::Append { .. }))
}

impl Cluster {
    /// Nodes with these kinds of tiers, of which each follows and has nothing: `KIND... [window KIB] [seed SEED]`, where the window bounds
    /// what is sent to one of them and not yet held, and the seed what of a killed process's writes still lands.
    pub fn begin(words: &[&str]) -> Cluster {
        let (words, seed) = split(words, "seed");
        let (kinds, window) = split(words, "window");
        let seed = seed.first().map_or(1, |word| number(word));
        let weather = crate::weather::Weather { disk_us_max: 0, ..FAIR };
        let mut world = World::new(seed, weather, &[]);
        let trace = Trace::default();
        trace.take(world.now);
        world.in_order = true;
        for kind in kinds {
            let made = make(kind);
            let bytes = window.first().map_or(made.peer_window_bytes_max, |kib| number(kib) << 10);
            world.add(Make { peer_window_bytes_max: bytes, ..made });
        }
        world.watch = Some(Box::new(trace.clone()));
        for node in 0..kinds.len() {
            world.pump(node);
        }
        trace.take(world.now);
        Cluster { world, trace }
    }

    fn say(&self, text: String) {
        self.trace.line(self.world.now, text);
    }

    /// `members EPOCH NODE... [flushed held|durable]`: of a proposal or a decision.
    fn members(&self, words: &[&str]) -> (Epoch, Vec<Incarnation>, Flushed) {
        let (words, promised) = split(words, "flushed");
        let epoch = Epoch(number(words[0]) as u32);
        (epoch, self.world.members(&nodes(&words[1..])), flushed(promised.first()))
    }

    fn propose(&mut self, words: &[&str]) {
        let (epoch, members, flushed) = self.members(words);
        let (owner, log) = (self.world.owner, LogState::Needed);
        self.world.order(owner, Order::Propose { proposal: epoch.0.into(), epoch, members, log, flushed });
    }

    fn decide(&mut self, words: &[&str]) {
        let (epoch, members, flushed) = self.members(words);
        let owner = self.world.owner;
        self.world.order(owner, Order::Decide { epoch, members, log: LogState::Needed, flushed });
    }

    /// `NODE term TERM epoch EPOCH members NODE... [unfenced TERM...]`: what was sealed decides watermark and tail.
    fn take_over(&mut self, words: &[&str]) {
        let (words, unfenced) = split(words, "unfenced");
        let [who, "term", term, "epoch", epoch, "members", members @ ..] = words else { panic!("{words:?}") };
        let (owner, members) = (node(who), nodes(members));
        let own = self.world.seal_all(owner, &members, number(term) as u32, number(epoch) as u32);
        let unfenced = unfenced.iter().map(|term| Term(number(term) as u32)).collect();
        let own = Own { unfenced, ..own };
        self.say(format!("{who} owns {}", words::own(&own)));
        self.world.begin_term(owner, own);
    }

    /// A mark for another life of a node's tier.
    fn stray(&mut self, from: usize, to: usize) {
        let figures = self.world.figures(to);
        let to = Incarnation { life: self.world.own(to).life + 1, ..self.world.own(to) };
        let (term, epoch) = (figures.term, figures.epoch);
        let envelope = Envelope { volume: [7; 16], term, epoch, from: self.world.own(from), to };
        let message = LogMessage::Mark(Mark { number: MarkNumber(99), ..Mark::default() });
        self.say(words::message("->", &envelope, &Message::Log(message.clone())));
        self.world.hand(to.node.0 as usize - 1, Event::Peer { envelope, message, payload: Vec::new() });
    }

    fn until(&mut self, what: &[&str]) {
        let owner = self.world.owner;
        match what {
            ["answered"] => self.world.until_answered(),
            ["serving"] => self.world.until_serving(),
            ["clean"] => self.world.until_clean(),
            ["quiet"] => self.until_reported(owner, |report| *report == Report::Quiet),
            ["stopped"] => self.until_reported(owner, |report| *report == Report::BackingQuiet),
            ["unpinned"] => self.until_reported(owner, |report| *report == Report::PinsEnded),
            ["ready"] => self.until_reported(owner, |report| matches!(report, Report::LearnerReady { .. })),
            ["covered"] => self.until_reported(owner, |report| matches!(report, Report::Covered { .. })),
            ["failed"] => self.until_reported(owner, |report| matches!(report, Report::PeerFailed { .. })),
            other => panic!("{other:?} is nothing to wait for"),
        }
    }

    fn until_reported(&mut self, node: usize, wanted: impl Fn(&Report) -> bool) {
        self.world.until("it is reported", |world| world.reported(node, &wanted));
    }

    /// A client asks the owner.
    fn request(&mut self, words: &[&str]) {
        let world = &mut self.world;
        let taken = match words {
            ["write", block] => world.write(8 * number(block), 8),
            ["write", block, "sectors", first, count] => world.write(8 * number(block) + number(first), number(count)),
            ["zero", block, count] => world.zero(number(block), number(count)),
            ["read", block] => world.read(number(block)),
            ["flush"] => {
                world.flush();
                true
            }
            other => panic!("{other:?} is no request"),
        };
        assert!(taken, "the request is taken");
    }

    fn carry_out(&mut self, words: &[&str]) {
        let owner = self.world.owner;
        match words {
            ["write" | "zero" | "read" | "flush", ..] => self.request(words),
            ["found", members @ ..] => {
                let members = nodes(members);
                self.world.found(members[0], &members);
                self.world.until_serving();
            }
            ["run", ms] => self.world.run_ms(number(ms)),
            ["until", what @ ..] => self.until(what),
            ["cut", who] => self.world.nodes[node(who)].cut_off = true,
            ["join", who] => self.world.nodes[node(who)].cut_off = false,
            ["kill", who] => self.world.kill(node(who)),
            ["start", who] => {
                self.trace.forget(node(who));
                self.world.start(node(who));
            }
            ["lose", "appends"] => self.world.lose = Some(is_append),
            ["lose", "nothing"] => self.world.lose = None,
            ["backing", "hangs"] => self.world.backing_hangs = Some(owner),
            ["slow", who, ms] => self.world.slow = Some((node(who), number(ms))),
            ["learn", who] => self.world.order(owner, Order::Learn(self.world.own(node(who)))),
            ["propose", words @ ..] => self.propose(words),
            ["decide", words @ ..] => self.decide(words),
            ["remember", who, term, epoch] => {
                let (term, epoch) = (Term(number(term) as u32), Epoch(number(epoch) as u32));
                self.world.order(node(who), Order::Remember { term, epoch });
            }
            ["stray", from, to] => self.stray(node(from), node(to)),
            ["take-over", words @ ..] => self.take_over(words),
            ["quiesce", "to", who] => {
                let to = Some(self.world.own(node(who)).node);
                self.world.order(owner, Order::Quiesce { to });
            }
            ["step-down", who] => self.world.order(node(who), Order::StepDown),
            ["proven"] => self.world.order(owner, Order::Proven),
            other => panic!("{other:?} is no command"),
        }
    }
}

impl Stand for Cluster {
    fn command(&mut self, words: &[&str]) -> Vec<String> {
        // What another transcript shows.
        if let ["quietly", words @ ..] = words {
            self.carry_out(words);
            self.trace.take(self.world.now);
            return Vec::new();
        }
        self.carry_out(words);
        self.trace.take(self.world.now)
    }
}
