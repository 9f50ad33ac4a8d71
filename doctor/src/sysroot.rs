//! Whether what `--sysroot` names has a host in it: of an empty folder every check would say that there is nothing to look at.

use anyhow::{Result, bail};
use forebay_host::system::{Seen, System};
use std::path::Path;

/// Where the kernel shows a host. One of them with something in it makes a tree: many were gathered without the other.
const LOOKED_FOR: [&str; 2] = ["sys", "proc"];
/// Folders one level deeper that are looked into for a host, when there is none: a tree has few, and anything may be named.
const FOLDERS_MAX: usize = 256;
/// Folders that are named of those that have a host in them.
const NAMED_MAX: usize = 3;

/// Whether a folder of the tree has a host's files below it; an error says why that cannot be told.
fn has_host(system: &System, folder: &str) -> Result<bool, String> {
    let mut hidden = None;
    for name in LOOKED_FOR {
        match system.list(&format!("{folder}/{name}")) {
            Seen::Is(names) if !names.is_empty() => return Ok(true),
            Seen::Is(_) | Seen::Absent => {}
            Seen::Hidden(why) => hidden = Some(why),
        }
    }
    hidden.map_or(Ok(false), Err)
}

/// Fails where the tree or the record has no host in it, and says what was looked for, and which folder of it has one.
pub fn check(system: &System, given: &Path) -> Result<()> {
    let why = match has_host(system, "") {
        Ok(true) => return Ok(()),
        Ok(false) => String::new(),
        Err(why) => format!(" ({why})"),
    };
    let shown = given.display();
    if given.is_file() {
        bail!("{shown} is a record with no host in it: it has no file below /sys or /proc{why}");
    }
    let names = system.list("/").known().unwrap_or_default();
    let deeper = names.iter().take(FOLDERS_MAX).filter(|name| has_host(system, &format!("/{name}")) == Ok(true));
    let deeper: Vec<String> = deeper.take(NAMED_MAX).map(|name| given.join(name).display().to_string()).collect();
    let hint = match &deeper[..] {
        [] => "name the folder in which they lie, or a file of `forebay doctor record`".to_owned(),
        deeper => format!("they are one level deeper: --sysroot {}", deeper.join(" or --sysroot ")),
    };
    bail!(
        "{shown} has no host in it: a folder sys/ or proc/ below it, with the host's files, was looked for{why}; {hint}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Tree;

    fn said(tree: &Tree) -> Option<String> {
        check(&tree.system(), &tree.system().place("/")).err().map(|error| error.to_string())
    }

    #[test]
    fn a_folder_without_a_host_is_an_error_that_says_what_was_looked_for() {
        let here = Tree::new().file("/sys/devices/system/cpu/online", "0");
        for tree in [here, Tree::new().file("/proc/version", "Linux"), Tree::new().node(0, "0", 1)] {
            assert_eq!(said(&tree), None);
        }
        let empty_folders = Tree::new().hidden("/sys").hidden("/proc");
        for tree in [Tree::new(), empty_folders, Tree::new().file("/etc/hostname", "x")] {
            let said = said(&tree).expect("nothing is there");
            assert!(said.contains("sys/ or proc/ below it") && said.contains("`forebay doctor record`"), "{said}");
        }
        let broken = said(&Tree::new().file("/sys", "a file").link("/proc", "proc")).expect("nothing is there");
        assert!(broken.contains("(/proc: "), "{broken}");
    }

    #[test]
    fn the_folder_that_has_the_host_is_named() {
        let tree = Tree::new().file("/a/notes", "").file("/b/host1/x", "").file("/old/proc/version", "Linux");
        let said = said(&tree).expect("nothing is there");
        assert!(said.contains(&format!("--sysroot {}", tree.system().place("/old").display())), "{said}");
        assert!(!said.contains("/b"), "{said}");
    }

    #[test]
    fn a_record_with_nothing_in_it_is_an_error() {
        let folder = tempfile::tempdir().expect("a folder");
        let said = |files: &str, folders: &str| {
            let path = folder.path().join("host.json");
            let text = format!(r#"{{"kind":"forebay-doctor-1","files":{files},"links":{{}},"folders":{folders}}}"#);
            std::fs::write(&path, text).expect("written");
            let system = System::recorded(&path).expect("a record");
            check(&system, &path).err().map(|error| error.to_string())
        };
        for folders in ["[]", r#"["/sys","/proc"]"#, r#"["/etc"]"#] {
            let said = said("{}", folders).expect("nothing is there");
            assert!(said.contains("a record with no host in it"), "{said}");
        }
        assert_eq!(said(r#"{"/proc/version":"Linux"}"#, "[]"), None);
    }
}
