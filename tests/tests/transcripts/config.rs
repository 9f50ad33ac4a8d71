//! The config file: every section with a key and with values that it does not take, and what is said of them.

use super::{is_root, transcript_of, typed};
use forebay_tests::harness::TempDir;
use forebay_tests::transcript::Transcript;

/// Sections with what they cannot do without, so that nothing but the key in question is wrong with them.
const SECTIONS: [(&str, &str); 14] = [
    ("", ""),
    ("[node]", ""),
    ("[placement]", ""),
    ("[listen]", ""),
    ("[listen.nbd_tls]", ""),
    ("[listen.http_tls]", ""),
    ("[[volume]]", ""),
    ("[backings]", ""),
    ("[tiers]", ""),
    ("[cluster]", ""),
    ("[cluster.etcd_tls]", ""),
    ("[watchdog]", ""),
    ("[[link]]", ""),
    ("[[fence]]", ""),
];

/// Files that are TOML with known keys, and that no daemon can serve.
const REFUSED: [&str; 19] = [
    "[node]\nshards = 1000\n",
    "[node]\nshm_size = \"1K\"\n",
    "[placement]\nmode = \"off\"\nnode = 0\n",
    "[listen]\nnbd = [\"tcp:localhost\"]\n",
    "[listen]\nconnections_max = 0\n",
    "[listen]\nhttp = \"off\"\nhttp_tls = { cert = \"/c\", key = \"/k\" }\n",
    "[listen]\nnbd_tls = { cert = \"/c\", key = \"/k\" }\n",
    "[listen]\nnbd = [\"tcp:127.0.0.1:1\"]\nnbd_tls = { cert = \"/no/cert\", key = \"/no/key\" }\n",
    "[[volume]]\nname = \"vm1\"\nbacking = \"/x.img\"\ntier = \"memory\"\n",
    "[[volume]]\nname = \"vm1\"\nbacking = \"/x.img\"\n[[volume]]\nname = \"vm1\"\nbacking = \"/y.img\"\n",
    "[[volume]]\nname = \"vm1\"\nbacking = \"/x.img\"\npeers = 1\n",
    "[[volume]]\nname = \"a/b\"\nbacking = \"/x.img\"\n",
    "[[volume]]\nname = \"vm1\"\nbacking = \"/x.img\"\nsame_image = true\nadopt_changed_backing = true\n",
    "[[link]]\nown = \"192.0.2.1\"\n",
    "[[fence]]\nnode = \"beta\"\n",
    "[cluster]\nidentity = \"/no/identity\"\netcd = [\"http://127.0.0.1:1\"]\n",
    "[cluster]\nidentity = \"/no/identity\"\netcd = []\n[[link]]\nown = \"lo\"\n",
    "[cluster]\nidentity = \"/no/identity\"\netcd = [\"ftp://a\"]\n[[link]]\nown = \"lo\"\n",
    "[cluster]\nidentity = \"/no/identity\"\netcd = [\"http://127.0.0.1:1\"]\n[[link]]\nown = \"lo\"\n",
];

/// What a daemon says that is given this file. Nothing here serves: a valid file fails for want of a state folder.
fn said(folder: &TempDir, text: &str) -> (String, Option<i32>) {
    let path = folder.join("forebay.toml");
    std::fs::write(&path, text).expect("room for a file");
    let path = path.to_str().expect("a plain path");
    let output = typed(Some(folder), &["serve", "--config", path, "--state", "/proc/no-state", "--http", "off"]);
    assert_eq!(output.stdout, "", "{}", output.describe());
    (output.stderr, output.status.code())
}

fn ask(transcript: &mut Transcript, folder: &TempDir, text: &str) -> String {
    let (said, code) = said(folder, text);
    transcript.line("");
    transcript.lines(">", text);
    transcript.lines("!", &said);
    transcript.line(&format!("= {}", code.map_or_else(|| "a signal".to_owned(), |code| code.to_string())));
    said
}

/// Names in backquotes behind `expected`.
fn expected(said: &str) -> Vec<String> {
    let list = said.split("expected ").nth(1).unwrap_or_default();
    list.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn what_a_config_file_may_not_say_is_refused_as_recorded() {
    if !is_root() {
        return;
    }
    let folder = TempDir::new("transcripts-config");
    let mut transcript = transcript_of("config", &folder);
    for (section, needed) in SECTIONS {
        transcript.part(if section.is_empty() { "the file" } else { section });
        let head = if section.is_empty() { String::new() } else { format!("{section}\n{needed}") };
        let keys = expected(&ask(&mut transcript, &folder, &format!("{head}unknown_key = 1\n")));
        assert!(!keys.is_empty(), "{section}: the error names no key");
        if section.is_empty() {
            continue;
        }
        // A value of the wrong kind, then one of the right kind that means nothing. What is taken is followed by a key that is not.
        for key in &keys {
            for value in ["[[]]", "-7", "\"what?\""] {
                let (text, _) = said(&folder, &format!("{head}{key} = {value}\nunknown_key = 1\n"));
                let reason = match text.contains("unknown field `unknown_key`") {
                    true => "taken",
                    false => text.trim_end().rsplit('\n').next().unwrap_or_default(),
                };
                transcript.line(&format!("{key} = {value}: {reason}"));
            }
        }
    }
    transcript.part("what cannot be meant");
    for text in REFUSED {
        ask(&mut transcript, &folder, text);
    }
    transcript.part("what is no TOML, and no file");
    ask(&mut transcript, &folder, "[node\n");
    ask(&mut transcript, &folder, "[node]\nstate = 1\n");
    super::run(&mut transcript, &folder, &["serve", "--config", "/no/such/file.toml"], &[]);
    transcript.part("the file that is packaged");
    let packaged = forebay_tests::harness::workspace().join("packaging/forebay.toml");
    let packaged = std::fs::read_to_string(packaged).expect("it is packaged");
    let (text, code) = said(&folder, &packaged);
    transcript.lines("!", &text);
    transcript.line(&format!("= {code:?}"));
    transcript.part("arguments of serve");
    let arguments: [&[&str]; 8] = [
        &[],
        &["--config", "c", "--backing", "b"],
        &["--config", "c", "--size", "1G"],
        &["--backing", "b", "--tier", "memory"],
        &["--backing", "b", "--tls-cert", "c"],
        &["--backing", "b", "--http", "nowhere"],
        &["--backing", "b", "--nbd", "nowhere"],
        &["--backing", "b", "--io", "magic"],
    ];
    for words in arguments {
        super::run(&mut transcript, &folder, &[&["serve"], words].concat(), &[]);
    }
    transcript.finish();
}
