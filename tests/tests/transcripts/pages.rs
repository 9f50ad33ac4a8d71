//! What the command line says of itself.

use super::{know_version, typed};
use forebay_tests::transcript::{Transcript, hash};

/// Commands that a page of help lists, but for `help` itself.
fn commands_of(page: &str) -> Vec<String> {
    let list = page.split("\nCommands:\n").nth(1).unwrap_or_default();
    let lines = list.lines().take_while(|line| !line.is_empty());
    // A command is two spaces in, and what is said of it further.
    let names = lines.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let first = |line: &str| line.split_whitespace().next().unwrap_or_default().to_owned();
    names.map(first).filter(|name| name != "help").collect()
}

/// The short page, where there is one besides the long one, the long one, and those of the commands below.
fn page(transcript: &mut Transcript, words: &[String]) {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let [short, long] =
        ["-h", "--help"].map(|flag| typed(None, &[&words[..], &[flag]].concat()).expect_success().stdout);
    for (flag, text) in
        [("-h", &short), ("--help", &long)].into_iter().filter(|(flag, _)| *flag == "--help" || short != long)
    {
        transcript.part(&[&["forebay"], &words[..], &[flag]].concat().join(" "));
        transcript.lines("|", text);
    }
    for name in commands_of(&long) {
        let below: Vec<String> = words.iter().map(|word| (*word).to_owned()).chain([name]).collect();
        page(transcript, &below);
    }
}

#[test]
fn pages_of_every_command_are_as_recorded() {
    let mut transcript = Transcript::new("pages");
    know_version(&mut transcript);
    page(&mut transcript, &[]);
    transcript.part("completions and manual pages, by their hashes");
    let folder = forebay_tests::harness::TempDir::new("transcripts-pages");
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = typed(None, &["completions", shell]).expect_success().stdout;
        let script = transcript.names.settle(&script);
        transcript.line(&format!("forebay completions {shell}: {}", hash(&script)));
    }
    let manuals = folder.path().to_str().expect("a plain path");
    typed(None, &["man", "--dir", manuals]).expect_success();
    for (name, _) in super::files(folder.path()) {
        let text = std::fs::read_to_string(folder.join(&name)).expect("a page is text");
        let text = transcript.names.settle(&text);
        transcript.line(&format!("{name}: {}", hash(&text)));
    }
    transcript.finish();
}
