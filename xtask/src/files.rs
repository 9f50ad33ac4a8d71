//! Files are opened where it is known who else may change their folder.
//!
//! `forebay_io::folder` is the one way to files in folders that others may change. Other ways stay in the functions that are listed here, each
//! with its reason; what the same module does elsewhere is refused. And programs are run by a path that `forebay_io::program` has found.

use crate::rust::blanked;
use crate::tree::Tree;

/// Packages whose code runs with rights that others do not have.
const PACKAGES: [&str; 8] =
    ["api/src/", "cli/src/", "doctor/src/", "front/src/", "host/src/", "io/src/", "node/src/", "rescue/src/"];

/// What follows links, waits at pipes, or makes what others can foresee: the last two names of its path, called or handed on. An empty
/// first one stands for any, and for a method.
const WAYS: [(&str, &str); 45] = [
    ("fs", "write"),
    ("fs", "read"),
    ("fs", "read_to_string"),
    ("fs", "rename"),
    ("fs", "remove_file"),
    ("fs", "remove_dir"),
    ("fs", "remove_dir_all"),
    ("fs", "create_dir"),
    ("fs", "create_dir_all"),
    ("fs", "copy"),
    ("fs", "hard_link"),
    ("fs", "soft_link"),
    ("fs", "set_permissions"),
    ("fs", "symlink"),
    ("fs", "chown"),
    ("fs", "lchown"),
    ("fs", "chroot"),
    ("fs", "mkfifo"),
    ("", "canonicalize"),
    ("", "read_dir"),
    ("", "read_link"),
    ("File", "open"),
    ("File", "create"),
    ("File", "create_new"),
    ("File", "options"),
    ("OpenOptions", "new"),
    ("DirBuilder", "new"),
    ("Command", "new"),
    ("UnixListener", "bind"),
    ("UnixStream", "connect"),
    ("libc", "open"),
    ("libc", "openat"),
    ("libc", "SYS_openat2"),
    ("libc", "mkdir"),
    ("libc", "mkdirat"),
    ("libc", "unlink"),
    ("libc", "unlinkat"),
    ("libc", "rename"),
    ("libc", "renameat"),
    ("libc", "renameat2"),
    ("libc", "link"),
    ("libc", "linkat"),
    ("libc", "symlink"),
    ("libc", "symlinkat"),
    ("libc", "truncate"),
];

/// By another name, or with all that they have under none, these would hide the ways above.
const UNRENAMED: [&str; 8] =
    ["fs", "File", "OpenOptions", "DirBuilder", "Command", "UnixListener", "UnixStream", "libc"];

const STATE: &str = "the state folder: root uses none that another user could change (`Store::open`)";
const DEVICE: &str = "a device below /dev, which is root's";
const KERNEL: &str = "the kernel's own files, by a path that is put together";
const FOUND: &str = "the program that `program::find` has found";
const HELD: &str = "what is held open, by its descriptor";
const CONFIG: &str = "what the config names, which root takes from nobody else";
const NAMES: &str = "what it finds is a name, by which nothing is opened";
const IDENTITY: &str = "an identity is made under a name that did not exist, and read when nobody else can";

/// The functions in which they are allowed, and why no other user can lead those astray.
const ALLOWED: &[(&str, &[&str], &str)] = &[
    ("io/src/backing.rs", &["user_of"], KERNEL),
    ("front/src/nbd/client.rs", &["connect"], "a server's socket that the user has named"),
    ("io/src/backing/judged.rs", &["own_name"], HELD),
    ("io/src/backing/lock_look.rs", &["look_by_reading"], "the file that is open already, by its descriptor"),
    ("io/src/fence/agent.rs", &["run"], FOUND),
    ("io/src/fence/reservation.rs", &["of"], HELD),
    ("io/src/fence/watchdog.rs", &["look"], KERNEL),
    ("io/src/fence/watchdog.rs", &["arm"], DEVICE),
    ("io/src/folder.rs", &["open_socket_to"], HELD),
    (
        "io/src/folder/calls.rs",
        &[
            "opened",
            "open_folder_at",
            "make_folder_at",
            "remove_at",
            "rename_at",
            "link_at",
            "symlink_at",
            "name_of",
            "names_of",
            "place_inside",
        ],
        HELD,
    ),
    ("io/src/folder/held.rs", &["open"], HELD),
    ("io/src/lock.rs", &["numbered_entries"], KERNEL),
    ("io/src/place.rs", &["read"], KERNEL),
    ("io/src/tier.rs", &["memory_limit"], KERNEL),
    ("io/src/tier.rs", &["mount_point_of"], NAMES),
    ("node/src/allowed.rs", &["of"], STATE),
    ("node/src/http/access.rs", &["token"], STATE),
    ("cli/src/bench.rs", &["fio"], FOUND),
    ("cli/src/bench.rs", &["limit_line"], "the folder that this process has made"),
    (
        "cli/src/client.rs",
        &["connect"],
        "a socket that the user has named, or one in a folder that was looked at first",
    ),
    ("node/src/cluster/join.rs", &["this_host"], KERNEL),
    ("node/src/cluster/member.rs", &["owned_term"], STATE),
    ("node/src/cluster/member.rs", &["tiers"], NAMES),
    ("node/src/cluster/pins.rs", &["open"], STATE),
    ("node/src/cluster/watchdog.rs", &["begin", "end_watchdog"], STATE),
    ("node/src/cluster/resolve.rs", &["password"], CONFIG),
    ("node/src/coordinator/memory.rs", &["open", "joined", "load_seen"], STATE),
    ("doctor/src/checks/management.rs", &["controller"], DEVICE),
    ("doctor/src/checks/management.rs", &["ask"], FOUND),
    ("doctor/src/checks/processes.rs", &["command_line"], KERNEL),
    ("node/src/rounds.rs", &["links"], KERNEL),
    ("host/src/system.rs", &["drop"], "the folder that this process has made"),
    ("host/src/system.rs", &["read", "write"], "the kernel's own files of the living host"),
    ("host/src/system.rs", &["recorded", "check_own", "canonical", "follow"], NAMES),
    ("node/src/events.rs", &["load", "open", "add"], STATE),
    ("host/src/proofs.rs", &["name_of_number"], KERNEL),
    ("node/src/history/album.rs", &["open", "add", "read", "remove"], STATE),
    ("node/src/history/files.rs", &["open", "make", "open_rw", "read"], STATE),
    ("node/src/history/writer.rs", &["run", "write", "add_line", "remove_leftovers"], STATE),
    ("host/src/identity.rs", &["write_secret", "read_secret"], IDENTITY),
    (
        "host/src/identity.rs",
        &["begin_change"],
        "the folder of the authority, of which only its owner can have names; it is locked, and nothing of it read",
    ),
    ("node/src/serve.rs", &["lock_state"], STATE),
    ("node/src/serve.rs", &["open_to_group"], "a file in /etc, which is root's"),
    ("node/src/serve.rs", &["bind_unix"], "a socket, which is made where nothing is and follows no link in its place"),
    ("node/src/volume_store.rs", &["open", "names", "note_boot", "was_in_memory_of_an_earlier_boot", "boot_id"], STATE),
];

/// Ways outside of the functions that are listed; and functions that are listed and have none.
pub fn check(tree: &Tree, wrong: &mut Vec<String>) {
    for file in tree.ending(".rs").filter(|file| PACKAGES.iter().any(|package| file.starts_with(package))) {
        if is_of_tests(file) {
            continue;
        }
        let text = tree.text(file);
        let found = look(&text);
        let listed = ALLOWED.iter().filter(|(of, _, _)| *of == file).flat_map(|(_, functions, _)| *functions);
        let stale = listed.clone().filter(|function| found.iter().all(|way| way.function != **function));
        wrong.extend(stale.map(|function| {
            format!("xtask/src/files.rs: {function} in {file} opens nothing any more: take it from the list")
        }));
        for Way { line, name, function, hides } in found {
            if hides {
                wrong.push(format!(
                    "{file}:{line}: {name} brings in by a name of its own what opens files: write its path out where it is used"
                ));
            } else if !listed.clone().any(|name| *name == function) {
                wrong.push(format!(
                    "{file}:{line}: {name} follows what others may have put there: use forebay_io::folder (or program), or list the \
                     function {function} in xtask/src/files.rs with the reason why nobody else can"
                ));
            }
        }
    }
}

fn is_of_tests(file: &str) -> bool {
    let name = file.rsplit('/').next().unwrap_or(file);
    file.contains("/tests/")
        || name.trim_end_matches(".rs").ends_with("tests")
        || ["host/src/fixture.rs", "doctor/src/trees.rs", "doctor/src/trees/oracle.rs"].contains(&file)
}

/// One place where a file is opened, or where that would be hidden.
#[derive(PartialEq, Eq, Debug)]
struct Way<'a> {
    line: usize,
    /// As it is written.
    name: String,
    /// The name of the function that it stands in; empty outside of all.
    function: &'a str,
    /// It brings in under another name what the list of ways would then miss.
    hides: bool,
}

fn is_way(first: &str, last: &str) -> bool {
    WAYS.iter().any(|(of, name)| *name == last && (of.is_empty() || *of == first))
}

/// The ways before a file's tests. What names a file of the kernel as it stands there is none.
fn look(text: &str) -> Vec<Way<'_>> {
    let tests = ["\n#[cfg(test)]\nmod tests {", "\n#[cfg(test)]\npub(crate) mod tests {"];
    let end = tests.iter().filter_map(|tests| text.find(tests)).min().unwrap_or(text.len());
    let text = &text[..end];
    let code = blanked(text);
    let line_of = |at: usize| text[..at].matches('\n').count() + 1;
    let (mut function, mut found, mut at) = ("", Vec::new(), 0);
    while let Some(path) = next_path(&code, at) {
        at = path.end;
        match path.names[..] {
            ["fn"] => {
                // A pointer to a function has no name.
                if code[at..].starts_with(' ')
                    && let Some(name) = next_path(&code, at).filter(|name| code[at..name.start].trim().is_empty())
                {
                    (function, at) = (&text[name.start..name.end], name.end);
                }
            }
            ["use"] => {
                let end = code[at..].find(';').map_or(code.len(), |found| at + found);
                let mut hidden = Vec::new();
                imports(&code[at..end], "", &mut hidden);
                let line = line_of(path.start);
                found.extend(hidden.into_iter().map(|name| Way { line, name, function, hides: true }));
                at = end;
            }
            ["type"] => {
                let end = code[at..].find(';').map_or(code.len(), |found| at + found);
                let target = code[at..end].split_once('=').map_or("", |(_, target)| target.trim());
                if UNRENAMED.contains(&target.rsplit("::").next().unwrap_or(target)) {
                    let name = format!("type{}", &text[at..end]);
                    found.push(Way { line: line_of(path.start), name, function, hides: true });
                }
            }
            [.., last] => {
                let first = path.names.iter().rev().nth(1).copied().unwrap_or_default();
                let is_free = path.names.len() == 1 && !path.is_method;
                let names_kernel = names_the_kernels(&text[at..]);
                // A function of our own may have such a name by itself: what is brought in without its path is refused above.
                if is_way(first, last) && !is_free && !names_kernel {
                    let name = format!("{}{}", if path.is_method { "." } else { "" }, path.names.join("::"));
                    found.push(Way { line: line_of(path.start), name, function, hides: false });
                }
            }
            [] => {}
        }
    }
    found
}

/// Whether what is called there is given a file of the kernel, by a name that stands there.
fn names_the_kernels(rest: &str) -> bool {
    let Some(argument) = rest.strip_prefix('(') else { return false };
    let argument = argument.trim_start().trim_start_matches("format!(").trim_start().trim_start_matches('&');
    let Some(name) = argument.strip_prefix('"') else { return false };
    let name = name.split('"').next().unwrap_or_default();
    ["/proc/", "/sys/"].iter().any(|place| name.starts_with(place)) && !name.contains("/..")
}

/// Names with `::` between them.
struct Names<'a> {
    names: Vec<&'a str>,
    start: usize,
    end: usize,
    /// It comes behind a value and a dot.
    is_method: bool,
}

fn is_of_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

/// The first at or behind a place of the code.
fn next_path(code: &str, from: usize) -> Option<Names<'_>> {
    let start = from + code[from..].find(is_of_name)?;
    let before = code[..start].trim_end();
    let is_method = before.ends_with('.') && !before.ends_with("..");
    let (mut names, mut end) = (Vec::new(), start);
    loop {
        let rest = &code[end..];
        let length = rest.find(|letter| !is_of_name(letter)).unwrap_or(rest.len());
        names.push(&rest[..length]);
        end += length;
        let Some(more) = code[end..].strip_prefix("::") else { break };
        if !more.starts_with(is_of_name) {
            break;
        }
        end += 2;
    }
    Some(Names { names, start, end, is_method })
}

/// What the tree of a `use` brings in that would hide a way: one by its name, what has them by another name, or all that there are.
fn imports(tree: &str, before: &str, hidden: &mut Vec<String>) {
    let tree = tree.trim();
    if let Some((head, inside)) = tree.split_once('{') {
        let before = format!("{before}{}", head.trim());
        let (mut depth, mut from) = (0, 0);
        let inside = inside.strip_suffix('}').unwrap_or(inside);
        for (at, letter) in inside.char_indices() {
            match letter {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    imports(&inside[from..at], &before, hidden);
                    from = at + 1;
                }
                _ => {}
            }
        }
        imports(&inside[from..], &before, hidden);
        return;
    }
    let (path, name) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name.trim())));
    let path = format!("{before}{}", path.trim());
    let path = path.strip_suffix("::self").unwrap_or(&path);
    let mut names = path.rsplit("::");
    let (last, first) = (names.next().unwrap_or_default(), names.next().unwrap_or_default());
    let is_renamed = name.is_some_and(|name| name != "_") && UNRENAMED.contains(&last);
    let is_all = last == "*" && UNRENAMED.contains(&first);
    if is_renamed || is_all || (!first.is_empty() && is_way(first, last)) {
        let name = name.map_or_else(String::new, |name| format!(" as {name}"));
        hidden.push(format!("use {path}{name}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ways(text: &str) -> Vec<(usize, String)> {
        look(text)
            .into_iter()
            .map(|way| (way.line, format!("{}{}", if way.hides { "hides: " } else { "" }, way.name)))
            .collect()
    }

    fn way(line: usize, name: &str) -> (usize, String) {
        (line, name.to_owned())
    }

    #[test]
    fn a_file_that_is_opened_in_another_way_is_found() {
        let text = "fn f() {\n    std::fs::write(path, b\"\")?;\n    let file = File::open(&path)?;\n\
                    let stat = std::fs::read_to_string(\"/proc/stat\");\n    // File::create(x)\n\
                    let text = fs::read_to_string(format!(\"/sys/{x}\"));\n    Command::new(\"ip\");\n}\n\
                    #[cfg(test)]\nmod tests {\n    std::fs::write(x, y);\n}\n";
        let found = [way(2, "std::fs::write"), way(3, "File::open"), way(7, "Command::new")];
        assert_eq!(ways(text), found);
        assert!(look(text).iter().all(|way| way.function == "f"));
        let others = "let device = DeviceFile::open(path)?;\n    pub(in crate::a) async fn g(\n    x: fn(u8),\n) {\n    let a = fs::copy(b, c);\n";
        assert_eq!(ways(others), [way(5, "fs::copy")]);
        assert_eq!(look(others)[0].function, "g");
        assert!(is_of_tests("io/src/folder/tests.rs") && is_of_tests("doctor/src/chain/path_tests.rs"));
        assert!(!is_of_tests("node/src/fence_test.rs") && !is_of_tests("io/src/file.rs"));
    }

    #[test]
    fn each_of_several_ways_in_one_line_is_found() {
        let text = "let stat = fs::read(\"/proc/stat\").or_else(|_| fs::read(path)); fs::rename(a, b); let c = \"File::open(\";\n";
        assert_eq!(ways(text), [way(1, "fs::read"), way(1, "fs::rename")]);
        assert_eq!(ways("fs::read_to_string(\n    \"/sys/a\",\n);\nfs::read(\"/proc/../b\");\n"), [way(4, "fs::read")]);
        // One that is handed on and not called; and a path that is resolved.
        let text =
            "let a = names.map(std::fs::read).or(path.canonicalize());\nlet b = std::path::Path::canonicalize(c);\n";
        let found = [way(1, "std::fs::read"), way(1, ".canonicalize"), way(2, "std::path::Path::canonicalize")];
        assert_eq!(ways(text), found);
        assert_eq!(ways("unsafe { libc::openat(a, b, c) };\n"), [way(1, "libc::openat")]);
    }

    #[test]
    fn what_would_hide_a_way_is_refused() {
        for (hidden, name) in [
            ("use std::fs::write;\n", "use std::fs::write"),
            ("use std::fs::{\n    File, read as get,\n};\n", "use std::fs::read as get"),
            ("use std::fs as f;\n", "use std::fs as f"),
            ("pub use std::{fs::{self as f, File}, io};\n", "use std::fs as f"),
            ("use std::{\n    io, os::unix::fs::{symlink, MetadataExt},\n};\n", "use std::os::unix::fs::symlink"),
            ("use std::fs::*;\n", "use std::fs::*"),
            ("fn f() {\n    use std::fs::File as F;\n    F::open(path);\n}\n", "use std::fs::File as F"),
            ("use libc::{AT_FDCWD, openat};\n", "use libc::openat"),
            ("type F = std::fs::File;\n", "type F = std::fs::File"),
        ] {
            let found = look(hidden);
            assert!(matches!(&found[..], [way] if way.hides && way.name == name), "{hidden}: {found:#?}");
        }
        let open = "use std::fs::{self, File};\nuse std::os::unix::fs::OpenOptionsExt as _;\nuse std::{collections::*, io as i};\n\
                    use super::*;\nuse crate::folder::read;\ntype F = Vec<File>;\n// use std::fs as f;\n";
        assert_eq!(ways(open), []);
    }

    #[test]
    fn a_planted_way_in_a_function_that_is_not_listed_is_refused_and_a_stale_line_of_the_list_too() {
        let root = std::env::temp_dir().join(format!("forebay-files-{}", std::process::id()));
        let write = |file: &str, text: &str| {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("node/src/planted.rs", "fn f() {\n    std::fs::rename(from, to);\n}\n");
        write("node/src/events.rs", "fn load() {\n    File::open(path);\n}\nfn open() {\n    OpenOptions::new();\n}\n");
        // Planted: another function of a module of which some are listed.
        write(
            "io/src/tier.rs",
            "fn memory_limit() {\n    fs::read_to_string(path);\n}\nfn create_file() {\n    OpenOptions::new();\n}\n\
             fn mount_point_of() {\n    path.canonicalize();\n}\n",
        );
        write("tests/tests/any.rs", "std::fs::write(a, b);\n");
        // Planted: by a name that was brought in, behind one that is allowed, and by way of what resolves links.
        write("node/src/named.rs", "use std::fs::write;\nfn f() {\n    write(a, b);\n}\n");
        write("node/src/second.rs", "fn f() {\n    fs::read(\"/proc/stat\").or(fs::read(a));\n}\n");
        write("node/src/resolved.rs", "fn f() {\n    a.canonicalize();\n}\n");
        let files = [
            "node/src/planted.rs",
            "node/src/events.rs",
            "io/src/tier.rs",
            "tests/tests/any.rs",
            "node/src/named.rs",
            "node/src/second.rs",
            "node/src/resolved.rs",
        ];
        let mut wrong = Vec::new();
        check(&Tree::of(&root, &files), &mut wrong);
        std::fs::remove_dir_all(&root).unwrap();
        assert_eq!(wrong.len(), 6, "{wrong:#?}");
        assert!(wrong.iter().any(|line| line.starts_with("node/src/planted.rs:2: std::fs::rename ")), "{wrong:#?}");
        assert!(
            wrong.iter().any(|line| line.contains("add in node/src/events.rs opens nothing any more")),
            "{wrong:#?}"
        );
        for planted in ["named.rs:1: use std::fs::write ", "second.rs:2: fs::read ", "resolved.rs:2: .canonicalize "] {
            let begin = format!("node/src/{planted}");
            assert!(wrong.iter().any(|line| line.starts_with(&begin)), "{wrong:#?}");
        }
        assert!(wrong.iter().any(|line| line.starts_with("io/src/tier.rs:5: OpenOptions::new ")), "{wrong:#?}");
    }
}
