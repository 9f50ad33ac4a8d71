//! What happens at a time, and how long requests wait meanwhile.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// What has ended so long ago is forgotten: no request waits longer than that unnoticed.
const REMEMBERED: Duration = Duration::from_secs(60);

/// A request may wait so many times as long as the test's own thread and file did, if that is longer.
const MACHINE_FACTOR: u32 = 3;

/// Something that happens, or has happened not long ago.
struct Happening {
    number: u64,
    name: String,
    /// The volume whose files do not answer meanwhile: its own requests may wait.
    concerns: Option<usize>,
    ended: Option<Instant>,
}

/// A request that is not answered yet.
#[derive(Clone, Copy)]
struct Open {
    volume: usize,
    command: &'static str,
    asked: Instant,
}

/// Longest wait, and the number of all.
#[derive(Clone, Copy, Default)]
struct Longest {
    count: u64,
    wait: Duration,
}

#[derive(Default)]
struct State {
    numbers: u64,
    happenings: Vec<Happening>,
    open: BTreeMap<u64, Open>,
    by_happening: BTreeMap<String, Longest>,
    by_command: BTreeMap<&'static str, Longest>,
    /// Waits of volumes for their own files; what is promised of those begins when the files answer.
    own: Longest,
    /// What the test's own thread and file had to wait for, without any daemon.
    machine: [Longest; 2],
    findings: Vec<String>,
}

/// The book in which all of a test's threads write.
#[derive(Clone)]
pub struct Waits {
    state: Arc<Mutex<State>>,
    bound: Duration,
}

impl State {
    fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// From when on a request could be answered: since it was asked, or since its volume's own files answer. None: they do not.
    fn answerable(&self, open: &Open) -> Option<Instant> {
        let concerns = |happening: &&Happening| happening.concerns == Some(open.volume);
        let own = self.happenings.iter().filter(concerns);
        own.map(|happening| happening.ended).try_fold(open.asked, |since, ended| Some(since.max(ended?)))
    }

    fn is_late(&self, open: &Open, bound: Duration) -> bool {
        self.answerable(open).is_some_and(|since| since.elapsed() > bound)
    }

    /// What happened since a request was asked, each once.
    fn beside(&self, open: &Open) -> Vec<String> {
        let meanwhile = |happening: &&Happening| happening.ended.is_none_or(|ended| ended > open.asked);
        let mut names: Vec<String> =
            self.happenings.iter().filter(meanwhile).map(|happening| happening.name.clone()).collect();
        names.sort();
        names.dedup();
        names
    }

    /// The bound, where the machine itself is not slower.
    fn allowed(&self, bound: Duration) -> Duration {
        self.machine.iter().map(|longest| longest.wait * MACHINE_FACTOR).fold(bound, Duration::max)
    }

    fn book(&mut self, open: &Open, bound: Duration, names: &[&'static str]) {
        let (wait, beside) = (open.asked.elapsed(), self.beside(open));
        if self.is_late(open, self.allowed(bound)) {
            let (volume, command) = (names[open.volume], open.command);
            self.findings.push(format!("{command} of {volume} has waited {wait:.1?} beside {beside:?}"));
        }
        let longer = |longest: &mut Longest| {
            longest.count += 1;
            longest.wait = longest.wait.max(wait);
        };
        if self.answerable(open) != Some(open.asked) {
            return longer(&mut self.own);
        }
        longer(self.by_command.entry(open.command).or_default());
        for name in beside {
            longer(self.by_happening.entry(name).or_default());
        }
    }
}

impl Waits {
    /// No request may wait longer than the bound, unless its own volume's files hang.
    pub fn new(bound: Duration) -> Waits {
        Waits { state: Arc::default(), bound }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics while holding it")
    }

    /// Something is under way from now on, until [`Waits::ends`] is told of its number.
    pub fn begins(&self, name: &str, concerns: Option<usize>) -> u64 {
        let mut state = self.lock();
        let number = state.number();
        state.happenings.retain(|former| former.ended.is_none_or(|ended| ended.elapsed() < REMEMBERED));
        state.happenings.push(Happening { number, name: name.to_owned(), concerns, ended: None });
        number
    }

    /// It is over.
    pub fn ends(&self, number: u64) {
        let mut state = self.lock();
        let happening = state.happenings.iter_mut().find(|happening| happening.number == number);
        happening.expect("it has begun").ended = Some(Instant::now());
    }

    /// A request is sent; what is done within is over with its answer.
    pub fn timed<T>(&self, volume: usize, command: &'static str, work: impl FnOnce() -> T) -> T {
        let open = Open { volume, command, asked: Instant::now() };
        let number = {
            let mut state = self.lock();
            let number = state.number();
            state.open.insert(number, open);
            number
        };
        let done = work();
        let mut state = self.lock();
        state.open.remove(&number);
        state.book(&open, self.bound, &super::INNOCENTS);
        done
    }

    /// How long the test's own thread has slept too long, and its own file has taken to be synced.
    pub fn machine(&self, waited: [Duration; 2]) {
        for (longest, wait) in self.lock().machine.iter_mut().zip(waited) {
            longest.count += 1;
            longest.wait = longest.wait.max(wait);
        }
    }

    /// A request whose volume's files answer, and that has waited so long for its answer already.
    pub fn waits_since(&self, limit: Duration) -> bool {
        let state = self.lock();
        state.open.values().any(|open| state.is_late(open, limit))
    }

    /// Something that must not be.
    pub fn found(&self, what: String) {
        self.lock().findings.push(what);
    }

    /// What must not be, as far as it is seen; a request that waits too long need not be answered for that.
    pub fn finding(&self) -> Option<String> {
        let mut state = self.lock();
        let late: Vec<u64> = state
            .open
            .iter()
            .filter(|(_, open)| state.is_late(open, state.allowed(self.bound)))
            .map(|(number, _)| *number)
            .collect();
        for number in late {
            let open = state.open.remove(&number).expect("it was there just now");
            state.book(&open, self.bound, &super::INNOCENTS);
        }
        (!state.findings.is_empty()).then(|| state.findings.join("; "))
    }

    /// Requests that were answered in time so far.
    pub fn answered(&self) -> u64 {
        self.lock().by_command.values().map(|longest| longest.count).sum()
    }

    /// The longest waits, by command and by what happened meanwhile.
    pub fn table(&self) -> String {
        let state = self.lock();
        let mut table = String::new();
        let mut line = |name: &str, Longest { count, wait }: Longest| {
            let _ = writeln!(table, "  {name:60} {count:8} {:9.3} s", wait.as_secs_f64());
        };
        line("command", Longest::default());
        state.by_command.iter().for_each(|(name, longest)| line(name, *longest));
        line("beside", Longest::default());
        state.by_happening.iter().for_each(|(name, longest)| line(name, *longest));
        line("of a volume whose own files hung", state.own);
        line("the test's own thread", state.machine[0]);
        line("a sync of the test's own file", state.machine[1]);
        table
    }
}
