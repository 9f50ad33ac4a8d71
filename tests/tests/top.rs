//! `forebay top` as a person sees it: in a real terminal of tmux, with keys pressed, resized, and with the daemon killed and
//! started under it; and as a script sees it, in a pipe.

use forebay_tests::harness::{
    IoMode, TempDir, Tier, VOLUME_NAME, Volume, forebay, require_tool, run_command, run_tool,
};
use forebay_tests::nbd::Client;
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;
const MINUTE: Duration = Duration::from_secs(60);
const TMUX_TIME: Duration = Duration::from_secs(10);

/// A terminal with a server of its own; killed when dropped.
struct Screen {
    server: String,
}

impl Screen {
    /// 80 columns, 24 lines, in which `forebay top` runs; then its end is told.
    fn new(folder: &TempDir, api: &Path) -> Screen {
        let screen = Screen { server: folder.join("tmux.sock").to_str().unwrap().to_owned() };
        let top = format!("{} top --api {}", forebay().display(), api.display());
        let shell = format!("LC_ALL=C.UTF-8 {top}; echo ended with $?; stty -a | grep -o '.icanon'; sleep 600");
        screen.tmux(&["-f", "/dev/null", "-u", "new-session", "-d", "-x", "80", "-y", "24", &shell]);
        screen
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let all: Vec<&str> = ["-S", &self.server].iter().chain(arguments).copied().collect();
        run_tool(TMUX_TIME, "tmux", all).expect_success().stdout
    }

    fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p"])
    }

    fn press(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    /// Waits until the screen is as wanted, and returns it.
    #[track_caller]
    fn shows(&self, what: &str, wanted: impl Fn(&str) -> bool) -> String {
        let begun = Instant::now();
        loop {
            let text = self.text();
            if wanted(&text) {
                return text;
            }
            assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain for {what}:\n{text}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Fails only where it has ended already.
        let _ = Command::new(require_tool("tmux")).args(["-S", &self.server, "kill-server"]).status();
    }
}

#[test]
fn a_person_watches_chooses_sorts_filters_and_quits() {
    let folder = TempDir::new("top");
    let volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    let image = folder.join("db.img");
    let create = ["volume", "create", "db", "--backing", image.to_str().unwrap(), "--size", "16M", "--create"];
    daemon.command(create).expect_success();
    let screen = Screen::new(&folder, &volume.api());
    let list = screen.shows("both volumes", |text| text.contains("\n> db ") && text.contains(VOLUME_NAME));
    assert!(list.contains("VOLUME") && list.contains("DRAIN") && list.contains("q quit"), "{list}");
    assert!(list.lines().all(|line| line.chars().count() <= 80), "{list}");

    // Load shows as figures, and in the details as lines.
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let target = volume.target();
    let load = std::thread::spawn(move || {
        let mut client = Client::connect(&target).unwrap();
        while stopped.try_recv().is_err() {
            client.write(0, &[1; 4096], 0).unwrap().unwrap();
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    let rate = |text: &str| -> Option<f64> {
        let line = text.lines().find(|line| line.contains(VOLUME_NAME))?;
        // Behind the name: policy, reads, writes.
        line.split_whitespace().skip_while(|word| *word != VOLUME_NAME).nth(3)?.parse().ok()
    };
    screen.shows("writes a second", |text| rate(text).is_some_and(|rate| rate > 10.0));
    screen.press(&["s"]);
    screen.shows("the busy one first", |text| {
        text.contains("s sort: requests") && text.find(VOLUME_NAME) < text.find(" db ")
    });
    screen.press(&["Home", "Enter"]);
    let detail = screen.shows("details", |text| text.contains("write client") && text.contains('█'));
    for word in ["read backing", "write network", "to drain", "read hit rate", "NOW", "P99"] {
        assert!(detail.contains(word), "no {word} in\n{detail}");
    }
    let client = detail.lines().find(|line| line.starts_with("write client")).unwrap();
    assert!([" us ", " ms "].iter().any(|unit| client.contains(unit)), "{detail}");
    screen.press(&["?"]);
    screen.shows("the keys", |text| text.contains("sort by the next column"));
    screen.press(&["Escape"]);
    screen.shows("the details again", |text| text.contains("write client"));
    screen.press(&["Escape"]);
    screen.press(&["/", "d", "b"]);
    screen.shows("what is typed", |text| text.contains("filter: db"));
    screen.press(&["Enter"]);
    screen.shows("one volume", |text| text.contains("> db ") && !text.contains(VOLUME_NAME));
    screen.press(&["Escape", "p"]);
    screen.shows("the pause", |text| text.contains("PAUSED") && text.contains(VOLUME_NAME));
    screen.press(&["p"]);
    screen.shows("no pause", |text| !text.contains("PAUSED"));
    screen.tmux(&["resize-window", "-x", "120", "-y", "12"]);
    screen.shows("the new size", |text| text.lines().nth(11).is_some_and(|line| line.contains("q quit")));
    screen.press(&["q"]);
    let end = screen.shows("its end, and a terminal that echoes lines again", |text| text.contains("ended with 0"));
    assert!(!end.contains("VOLUME") && !end.contains("-icanon"), "{end}");
    stop.send(()).unwrap();
    load.join().unwrap();
    daemon.stop(MINUTE);
}

#[test]
fn a_daemon_that_is_gone_is_told_and_found_again() {
    let folder = TempDir::new("top-gone");
    let mut volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Threads);
    let daemon = volume.start();
    let screen = Screen::new(&folder, &volume.api());
    screen.shows("the volume", |text| text.contains(&format!("> {VOLUME_NAME}")));
    daemon.kill9();
    screen.shows("that it is gone", |text| text.contains("! the daemon does not answer") && text.contains(VOLUME_NAME));
    volume.size = None;
    let daemon = volume.start();
    screen.shows("it again", |text| !text.contains("does not answer") && text.contains(&format!("> {VOLUME_NAME}")));
    // Ctrl-C is as good as q.
    screen.press(&["C-c"]);
    screen.shows("its end", |text| text.contains("ended with 0"));
    daemon.stop(MINUTE);
}

#[test]
fn without_a_terminal_it_prints_once() {
    let folder = TempDir::new("top-once");
    let volume = Volume::new(&folder, 32 * MIB, Tier::Flash, IoMode::Uring);
    let daemon = volume.start();
    let text = daemon.command(["top"]).expect_success().stdout;
    assert!(text.contains(VOLUME_NAME) && text.contains("WRITE/s") && !text.contains('\x1b'), "{text}");
    let text = daemon.command(["top", VOLUME_NAME]).expect_success().stdout;
    assert!(text.contains("write backing") && !text.contains('\x1b'), "{text}");
    let json: Value = serde_json::from_str(&daemon.command(["top", "--json"]).expect_success().stdout).unwrap();
    assert_eq!(json["volumes"][0]["name"], VOLUME_NAME);
    let refused = daemon.command(["top", "nobody"]).expect_failure().text();
    assert!(refused.contains("no volume nobody"), "{refused}");
    daemon.stop(MINUTE);
    let mut command = Command::new(forebay());
    command.arg("top").arg("--api").arg(volume.api());
    let refused = run_command(MINUTE, command).expect_failure().text();
    assert!(refused.contains("cannot reach the daemon") && refused.contains("forebay serve"), "{refused}");
}
