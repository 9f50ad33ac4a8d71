//! Hosts made for tests: a tree of files in a folder of its own.

use super::Host;
use super::checks;
use super::findings::Verdict;
use super::system::{RECORDED, System};
use std::path::PathBuf;

/// A host's tree, which goes away with it.
pub struct Tree {
    folder: tempfile::TempDir,
}

impl Tree {
    /// An empty one.
    pub fn new() -> Tree {
        Tree { folder: tempfile::tempdir().expect("a folder for the tree") }
    }

    fn place(&self, path: &str) -> PathBuf {
        let place = self.folder.path().join(path.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().expect("below the folder")).expect("folders made");
        place
    }

    /// A file, in place of what was there.
    pub fn file(self, path: &str, content: &str) -> Tree {
        std::fs::write(self.place(path), content).unwrap_or_else(|e| panic!("write {path}: {e}"));
        self
    }

    /// The same file at the earlier look.
    pub fn earlier(self, path: &str, content: &str) -> Tree {
        let tree = self.file(&format!("{RECORDED}/earlier/seconds"), "60");
        tree.file(&format!("{RECORDED}/earlier{path}"), content)
    }

    /// A link.
    pub fn link(self, path: &str, to: &str) -> Tree {
        std::os::unix::fs::symlink(to, self.place(path)).unwrap_or_else(|e| panic!("link {path}: {e}"));
        self
    }

    /// A file that is there and cannot be read, not by root either: a folder.
    pub fn hidden(self, path: &str) -> Tree {
        std::fs::create_dir_all(self.place(path)).expect("made");
        self
    }

    /// What is seen of it.
    pub fn system(&self) -> System {
        System::recorded(self.folder.path()).expect("the tree is there")
    }

    /// What one check says of it.
    pub fn says(&self, number: u8) -> Verdict {
        let check = checks::all().into_iter().find(|check| check.number == number).expect("there is such a check");
        (check.look)(&Host::look(self.system()))
    }
}
