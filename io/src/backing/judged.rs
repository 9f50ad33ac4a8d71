//! A backing that somebody else has named: what lies there is found out first, then judged by whoever asks, and what is opened is
//! that very file, whatever its path leads to by then.
//!
//! ```text
//! path -> trusted links -> O_PATH -> the file's own name -> judge -> opened by /proc/self/fd
//! ```
//!
//! Links are followed before the judge sees anything, where no other user can have put them (`folder`), so a link in an allowed folder
//! to a file outside is that file. A file that is to be made is judged by its folder. The judge sees both, the file's own name and its
//! folder's by the path that was given: what lies beside an image (its marker) goes there.

use super::{
    Backing, BackingOptions, BackingSpec, Device, Held, OpenError, Target, WHAT, create_sparse, open_made, open_nbd,
};
use crate::file_error::FileError;
use crate::folder::{Folder, Held as HeldFile};
use crate::stats::DeviceStats;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Says whether a place may be opened, by its own name: without links, absolute. The error says why not, and what to do.
pub type Judge<'a> = &'a dyn Fn(&Path) -> Result<(), String>;

/// A place that was found, and cannot become another one.
struct Found {
    /// The folder in which it lies, or is to be made, and its name there.
    folder: Folder,
    name: OsString,
    /// The file or device itself; none: it is to be made.
    place: Option<HeldFile>,
}

impl Backing {
    /// The same as [`Backing::open`], of a file or device that the judge lets pass. It is asked nothing about an NBD export.
    pub fn open_judged(spec: &str, options: BackingOptions, judge: Judge<'_>) -> Result<Backing, OpenError> {
        let BackingSpec { layers, target } = BackingSpec::parse(spec)?;
        let (device, made) = match target {
            Target::Path(path) => {
                let mut found = find(spec, &path, options.create.is_some(), judge)?;
                let mut made = None;
                if let (None, Some(size)) = (&found.place, options.create) {
                    let new = create_sparse(&found.folder, &found.name, &path, size)?;
                    found = match find(spec, &path, false, judge) {
                        Ok(found) => found,
                        Err(error) => return new.take_back_after(error),
                    };
                    made = Some(new);
                }
                let Some(held) = &found.place else { return Err(OpenError::Missing { path }) };
                let (file, made) = open_made(held, made, options)?;
                (Device::File(file), made)
            }
            Target::Nbd(uri) => (Device::Nbd { client: Box::new(open_nbd(&uri, options)?), quiet_until: None }, None),
        };
        let (held, stats) = (Held::Nothing, DeviceStats::default());
        Ok(Backing { spec: spec.to_owned(), device, layers, held, made, stats })
    }

    /// Whether the judge lets a spec pass. Opens nothing that could notice it, and makes nothing.
    pub fn judge_place(spec: &str, to_be_made: bool, judge: Judge<'_>) -> Result<(), OpenError> {
        match BackingSpec::parse(spec)?.target {
            Target::Path(path) => find(spec, &path, to_be_made, judge).map(|_| ()),
            Target::Nbd(_) => Ok(()),
        }
    }

    /// Whether the file or device that a spec names can be opened for writing here, now, and the judge lets it pass; nothing is changed
    /// or kept. True of an NBD server, which is not asked. May take as long as the file system does.
    pub fn is_in_judged_reach(spec: &str, judge: Judge<'_>) -> bool {
        match BackingSpec::parse(spec).map(|spec| spec.target) {
            Ok(Target::Path(path)) => find(spec, &path, false, judge).is_ok_and(|found| {
                // Of what is neither a file nor a block device nothing is opened: a watchdog would begin to run.
                found.place.is_some_and(|held| held.open(true, 0).is_ok())
            }),
            Ok(Target::Nbd(_)) => true,
            Err(_) => false,
        }
    }
}

/// Whether the judge lets a path pass, at which something is to be made, or lies. Opens nothing that could notice it, and makes nothing.
pub fn judge_path(path: &Path, judge: Judge<'_>) -> Result<(), OpenError> {
    find(&path.display().to_string(), path, true, judge).map(|_| ())
}

fn find(spec: &str, path: &Path, to_be_made: bool, judge: Judge<'_>) -> Result<Found, OpenError> {
    let failed = |attempted, error: io::Error| match error.kind() {
        io::ErrorKind::NotFound if !to_be_made => OpenError::Missing { path: path.to_owned() },
        _ => OpenError::File(FileError::failed(WHAT, path, attempted, error)),
    };
    let refused = |reason| OpenError::Refused { spec: spec.to_owned(), reason };
    // What lies beside an image goes by the path as it was given.
    let (Some(given), Some(_)) = (path.parent(), path.file_name()) else {
        return Err(refused("it names no file".to_owned()));
    };
    let given = if given.as_os_str().is_empty() { Path::new(".") } else { given };
    let given = Folder::open(given).and_then(|folder| folder.own_path());
    let given = given.map_err(|error| failed("look at the folder of", error))?;
    // A link is followed only where no other user can have put it.
    let (folder, name) = Folder::of(path).map_err(|error| failed("look at", error))?;
    let own_folder = folder.own_path().map_err(|error| failed("look at the folder of", error))?;
    let place = match folder.hold(&name, path) {
        Ok(place) => Some(place),
        Err(error) if error.kind() == io::ErrorKind::NotFound && to_be_made => None,
        Err(error) => return Err(failed("look at", error)),
    };
    let own = place.as_ref().map_or_else(|| Ok(own_folder.join(&name)), |place| own_name(&place.by_descriptor()));
    let own = own.map_err(|error| failed("look at", error))?;
    judge(&own).map_err(refused)?;
    // Nodes in /dev are links more often than not, and nothing lies beside a device.
    if !own.starts_with("/dev") {
        judge(&given.join(path.file_name().unwrap_or(&name))).map_err(refused)?;
    }
    Ok(Found { folder, name, place })
}

fn own_name(way: &Path) -> io::Result<PathBuf> {
    std::fs::read_link(way)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn below(folder: &Path) -> impl Fn(&Path) -> Result<(), String> {
        let folder = folder.canonicalize().unwrap();
        move |own: &Path| if own.starts_with(&folder) { Ok(()) } else { Err("it lies elsewhere".to_owned()) }
    }

    #[test]
    fn what_is_opened_is_what_was_judged() {
        let top = tempfile::tempdir().unwrap();
        let (inside, outside) = (top.path().join("in"), top.path().join("out"));
        for folder in [&inside, &outside] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("a.img"), vec![0u8; 8192]).unwrap();
        }
        symlink(outside.join("a.img"), inside.join("link.img")).unwrap();
        symlink(&outside, inside.join("folder")).unwrap();
        symlink(inside.join("a.img"), outside.join("back.img")).unwrap();
        let judge = below(&inside);
        let open = |path: PathBuf, create| {
            let options = BackingOptions { create, ..Default::default() };
            Backing::open_judged(path.to_str().unwrap(), options, &judge)
        };
        let opened = open(inside.join("a.img"), None).unwrap();
        assert_eq!(
            opened.path(),
            Some(inside.join("a.img").as_path()),
            "it is known by its name, not by its descriptor"
        );
        let refused = [
            inside.join("link.img"),
            inside.join("folder/a.img"),
            inside.join("../out/a.img"),
            outside.join("a.img"),
            outside.join("back.img"),
        ];
        for path in refused {
            let error = open(path.clone(), None).expect_err("it lies elsewhere");
            assert!(matches!(error, OpenError::Refused { .. }), "{path:?}: {error}");
            assert!(!Backing::is_in_judged_reach(path.to_str().unwrap(), &judge));
        }
        for path in [outside.join("new.img"), inside.join("folder/new.img")] {
            assert!(matches!(open(path.clone(), Some(8192)), Err(OpenError::Refused { .. })), "{path:?}");
            assert!(!path.exists());
        }
        assert!(matches!(open(inside.join("new.img"), None), Err(OpenError::Missing { .. })));
        assert_eq!(open(inside.join("new.img"), Some(8192)).unwrap().size().unwrap(), 8192);
        assert!(inside.join("new.img").exists());
    }

    /// Planted: a judge who is asked by the path alone would be led elsewhere between its word and the opening.
    #[test]
    fn a_link_that_changes_after_the_judge_has_spoken_changes_nothing() {
        let top = tempfile::tempdir().unwrap();
        let (inside, outside) = (top.path().join("in"), top.path().join("out"));
        for (folder, byte) in [(&inside, 1u8), (&outside, 2)] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("a.img"), vec![byte; 8192]).unwrap();
        }
        let path = inside.join("a.img");
        let judge = |own: &Path| {
            let verdict = below(&inside)(own);
            let _ = std::fs::remove_file(&path);
            symlink(outside.join("a.img"), &path).unwrap();
            verdict
        };
        let opened = Backing::open_judged(path.to_str().unwrap(), BackingOptions::default(), &judge).unwrap();
        let mut head = crate::memory::AlignedBuffer::new(4096);
        opened.file().unwrap().read_now(0, &mut head).unwrap();
        assert_eq!(head[0], 1);
        let plain = Backing::open(path.to_str().unwrap(), BackingOptions::default()).unwrap();
        plain.file().unwrap().read_now(0, &mut head).unwrap();
        assert_eq!(head[0], 2, "the path leads elsewhere by now");
    }

    /// Its folder is another user's, who may exchange the image for a link at any moment; and a device that is none to store on is not
    /// even opened to see whether it could be.
    #[test]
    fn a_link_of_another_user_is_followed_nowhere() {
        let top = tempfile::tempdir().unwrap();
        let (theirs, ours) = (top.path().join("theirs"), top.path().join("ours.img"));
        std::fs::create_dir(&theirs).unwrap();
        std::fs::write(&ours, vec![0u8; 8192]).unwrap();
        let link = theirs.join("a.img");
        symlink(&ours, &link).unwrap();
        let other = Some(65533);
        if std::os::unix::fs::lchown(&link, other, None).and(std::os::unix::fs::chown(&theirs, other, None)).is_err() {
            crate::skip::skip("making a link of another user needs root");
            return;
        }
        let anywhere = |_: &Path| Ok(());
        let spec = link.to_str().unwrap();
        Backing::open_judged(spec, BackingOptions::default(), &anywhere).expect_err("whose link it is");
        assert!(!Backing::is_in_judged_reach(spec, &anywhere));
        let made = theirs.join("folder");
        symlink(top.path(), &made).unwrap();
        std::os::unix::fs::lchown(&made, other, None).unwrap();
        let (inside, options) = (made.join("new.img"), BackingOptions { create: Some(8192), ..Default::default() });
        Backing::open_judged(inside.to_str().unwrap(), options, &anywhere).expect_err("whose link it is");
        Backing::open(inside.to_str().unwrap(), options).expect_err("whose link it is");
        assert!(!top.path().join("new.img").exists(), "nothing is made where it leads to");
        assert!(!Backing::is_in_judged_reach("/dev/null", &anywhere), "a device, and none to store on");
    }
}
