//! The files that git would keep (tracked, or new and not ignored): all that the checks look at.

use crate::steps::output;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The files that git would keep.
pub struct Tree {
    root: PathBuf,
    files: BTreeSet<String>,
}

impl Tree {
    /// Those of the workspace in this folder.
    pub fn read(root: &Path) -> Result<Tree, String> {
        let list = output(root, &["git", "ls-files", "--cached", "--others", "--exclude-standard"])?;
        let files = list.lines().filter(|file| root.join(file).is_file()).map(str::to_string).collect();
        Ok(Tree { root: root.to_path_buf(), files })
    }

    /// A tree of a test's.
    #[cfg(test)]
    pub fn of(root: &Path, files: &[&str]) -> Tree {
        Tree { root: root.to_path_buf(), files: files.iter().map(|file| (*file).to_string()).collect() }
    }

    /// The folder that they lie in.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// All of them, by their paths from the root.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }

    /// Whether a file is one of them.
    pub fn has(&self, file: &str) -> bool {
        self.files.contains(file)
    }

    /// A file's text; empty where there is none.
    pub fn text(&self, file: &str) -> String {
        std::fs::read(self.root.join(file))
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }

    /// Those whose path ends so.
    pub fn ending(&self, suffix: &'static str) -> impl Iterator<Item = &str> {
        self.files().filter(move |file| file.ends_with(suffix))
    }
}

/// A path without `.` and `..`.
pub fn normal(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// A small tree that a test makes, and that goes away with it.
#[cfg(test)]
pub struct Made {
    /// The files that it has.
    pub tree: Tree,
}

#[cfg(test)]
impl Made {
    /// These files with these texts, in a folder that has the test's name.
    pub fn of(test: &str, files: &[(&str, &str)]) -> Made {
        let root = std::env::temp_dir().join(format!("forebay-{test}-{}", std::process::id()));
        for (file, text) in files {
            let path = root.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let names: Vec<&str> = files.iter().map(|(file, _)| *file).collect();
        Made { tree: Tree::of(&root, &names) }
    }

    /// What a check says of them.
    pub fn wrong(&self, check: impl FnOnce(&Tree, &mut Vec<String>)) -> Vec<String> {
        let mut wrong = Vec::new();
        check(&self.tree, &mut wrong);
        wrong
    }
}

#[cfg(test)]
impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.tree.root());
    }
}
