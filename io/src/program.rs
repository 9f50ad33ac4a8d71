//! Programs that are run by their name. A process of root's runs none that another user could have put there, or could change.

use crate::folder::Folder;
use std::io;
use std::path::PathBuf;

/// Where a program of this name is: in a folder of `PATH`, or in `/usr/sbin` and `/sbin`. Each folder, and all that leads to it, must be such
/// that only root and this process's user can change it, and so must the file; what is passed over for that is told, where nothing else is found.
pub fn find(name: &str) -> io::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    find_in(std::env::split_paths(&path).chain(sbin), name)
}

/// The same in these folders.
pub fn find_in(folders: impl Iterator<Item = PathBuf>, name: &str) -> io::Result<PathBuf> {
    let mut passed_over = None;
    // What is not absolute depends on where this process happens to be.
    for place in folders.filter(|folder| folder.is_absolute()).map(|folder| folder.join(name)) {
        match Folder::of_private(&place).and_then(|(folder, name)| folder.check_program(&name)) {
            Ok(program) => return Ok(program),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => passed_over = passed_over.or(Some(error)),
        }
    }
    Err(passed_over.unwrap_or_else(|| io::ErrorKind::NotFound.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn a_program_that_another_user_could_have_put_there_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let places = ["theirs", "ours"].map(|name| folder.path().join(name));
        for place in &places {
            std::fs::create_dir(place).unwrap();
            std::fs::write(place.join("agent"), "#!/bin/sh\n").unwrap();
            std::fs::set_permissions(place.join("agent"), PermissionsExt::from_mode(0o755)).unwrap();
        }
        let found = || find_in(places.iter().cloned(), "agent");
        if let Err(error) = chown(&places[0], Some(65_533), None) {
            crate::skip::skip(&format!("a folder of another user needs root: {error}"));
            return;
        }
        assert_eq!(found().unwrap(), places[1].join("agent"));
        std::fs::set_permissions(places[1].join("agent"), PermissionsExt::from_mode(0o777)).unwrap();
        let error = found().unwrap_err();
        assert!(error.to_string().contains("theirs belongs to user 65533"), "{error}");
        let error = find_in([places[1].clone()].into_iter(), "agent").unwrap_err();
        assert!(error.to_string().contains("agent may be written by everybody"), "{error}");
        assert_eq!(find_in([PathBuf::from("ours")].into_iter(), "agent").unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::set_permissions(places[1].join("agent"), PermissionsExt::from_mode(0o644)).unwrap();
        let error = find_in([places[1].clone()].into_iter(), "agent").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound, "it is no program");
    }
}
