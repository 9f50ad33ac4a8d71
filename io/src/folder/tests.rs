//! As the owner of a folder would attack whoever works in it.

use super::*;
use std::os::unix::fs::{PermissionsExt, chown, symlink};

/// A user who owns nothing here.
const OTHER: u32 = 65_533;
const MAX: u64 = 1000;

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    /// Root's folder with a secret, and beside it one of another user. None without the right to give folders away.
    fn new() -> Option<Scene> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let scene = Scene { folder };
        std::fs::create_dir(scene.at("theirs")).unwrap();
        std::fs::create_dir(scene.at("ours")).unwrap();
        std::fs::write(scene.at("ours/secret"), "secret").unwrap();
        match chown(scene.at("theirs"), Some(OTHER), Some(OTHER)) {
            Ok(()) => Some(scene),
            Err(error) => {
                crate::skip::skip(&format!("files of another user need root: {error}"));
                None
            }
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// A link that the other user made.
    fn their_link(&self, to: &str, name: &str) {
        symlink(self.at(to), self.at(name)).unwrap();
        std::os::unix::fs::lchown(self.at(name), Some(OTHER), Some(OTHER)).unwrap();
    }

    fn secret(&self) -> String {
        std::fs::read_to_string(self.at("ours/secret")).unwrap()
    }
}

#[test]
fn a_link_of_another_user_is_followed_nowhere_in_a_path() {
    let Some(scene) = Scene::new() else { return };
    scene.their_link("ours/secret", "theirs/file");
    scene.their_link("ours", "theirs/folder");
    // In a folder that others may change a link of ours can have been put by others: renamed from elsewhere.
    symlink(scene.at("ours/secret"), scene.at("theirs/of-root")).unwrap();
    for path in ["theirs/file", "theirs/folder/secret", "theirs/of-root"] {
        let error = read(&scene.at(path), MAX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{path}: {error}");
        assert!(error.to_string().contains("Name the place itself"), "{path}: {error}");
        assert!(replace(&scene.at(path), b"new", 0o644).is_err(), "{path}");
    }
    assert!(remove(&scene.at("theirs/folder/secret")).is_err());
    assert_eq!(scene.secret(), "secret");
    assert!(remove(&scene.at("theirs/file")).unwrap(), "the link itself goes");
    assert_eq!(scene.secret(), "secret");
}

#[test]
fn a_link_of_ours_in_a_folder_of_ours_is_followed() {
    let Some(scene) = Scene::new() else { return };
    symlink("ours", scene.at("again")).unwrap();
    symlink("secret", scene.at("ours/name")).unwrap();
    assert_eq!(read(&scene.at("again/name"), MAX).unwrap(), b"secret");
    replace(&scene.at("again/name"), b"new", 0o600).unwrap();
    assert_eq!(scene.secret(), "new", "it leads to the file, which is replaced");
    assert_eq!(read(&scene.at("ours/../again/./secret"), MAX).unwrap(), b"new");
}

#[test]
fn what_lies_at_the_name_beside_is_taken_away_and_never_written_through() {
    let Some(scene) = Scene::new() else { return };
    scene.their_link("ours/secret", "theirs/file.new");
    replace(&scene.at("theirs/file"), b"one", 0o644).unwrap();
    assert_eq!((scene.secret().as_str(), read(&scene.at("theirs/file"), MAX).unwrap()), ("secret", b"one".to_vec()));
    std::fs::hard_link(scene.at("ours/secret"), scene.at("theirs/file.new")).unwrap();
    replace(&scene.at("theirs/file"), b"two", 0o644).unwrap();
    assert_eq!((scene.secret().as_str(), read(&scene.at("theirs/file"), MAX).unwrap()), ("secret", b"two".to_vec()));
    // A second name of another file is renamed over, not written to.
    std::fs::remove_file(scene.at("theirs/file")).unwrap();
    std::fs::hard_link(scene.at("ours/secret"), scene.at("theirs/file")).unwrap();
    replace(&scene.at("theirs/file"), b"three", 0o644).unwrap();
    assert_eq!(scene.secret(), "secret");
    std::fs::create_dir(scene.at("theirs/file.new")).unwrap();
    assert!(replace(&scene.at("theirs/file"), b"four", 0o644).is_err());
    assert_eq!(read(&scene.at("theirs/file"), MAX).unwrap(), b"three");
}

#[test]
fn pipes_devices_folders_and_long_files_are_refused_without_waiting() {
    let Some(scene) = Scene::new() else { return };
    let name = |path: &str| std::ffi::CString::new(scene.at(path).to_str().unwrap()).unwrap();
    let pipe = name("theirs/pipe");
    // SAFETY: the name outlives the call.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o666) }, 0);
    std::os::unix::net::UnixListener::bind(scene.at("theirs/socket")).unwrap();
    std::fs::create_dir(scene.at("theirs/folder")).unwrap();
    std::fs::write(scene.at("theirs/long"), vec![0; 1001]).unwrap();
    std::fs::write(scene.at("theirs/whole"), vec![7; 1000]).unwrap();
    for path in ["pipe", "socket", "folder"] {
        let error = read(&scene.at("theirs").join(path), MAX).unwrap_err();
        assert!(error.to_string().contains("is not a regular file"), "{path}: {error}");
    }
    let error = read(&scene.at("theirs/long"), MAX).unwrap_err();
    assert!(error.to_string().contains("longer than 1000 bytes"), "{error}");
    assert_eq!(read(&scene.at("theirs/whole"), MAX).unwrap().len(), 1000);
    assert!(read(Path::new("/dev/zero"), MAX).unwrap_err().to_string().contains("is not a regular file"));
    assert_eq!(read(&scene.at("theirs/none"), MAX).unwrap_err().kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_private_folder_is_ours_in_each_step_of_its_path() {
    let Some(scene) = Scene::new() else { return };
    Folder::open_private(&scene.at("ours")).unwrap();
    Folder::make_private(&scene.at("ours/a/b"), 0o700).unwrap();
    assert_eq!(std::fs::metadata(scene.at("ours/a/b")).unwrap().permissions().mode() & 0o777, 0o700);
    // Root's own folder, below one that another user can rename.
    std::fs::create_dir(scene.at("theirs/ours")).unwrap();
    for path in ["theirs", "theirs/ours"] {
        let error = Folder::open_private(&scene.at(path)).unwrap_err();
        assert!(error.to_string().contains(&format!("theirs belongs to user {OTHER}")), "{path}: {error}");
    }
    for (mode, why) in [(0o777, "by everybody"), (0o775, "by the group"), (0o1777, "by everybody")] {
        std::fs::set_permissions(scene.at("ours/a"), PermissionsExt::from_mode(mode)).unwrap();
        let error = Folder::open_private(&scene.at("ours/a")).unwrap_err();
        assert!(error.to_string().contains(why), "{mode:o}: {error}");
        // What is sticky lets nobody rename what belongs to root.
        assert_eq!(Folder::open_private(&scene.at("ours/a/b")).is_ok(), mode & 0o1000 != 0, "{mode:o}");
    }
    assert!(Folder::make_private(&scene.at("theirs/new"), 0o700).is_err());
    assert!(!scene.at("theirs/new").exists());
}

#[test]
fn a_file_that_others_put_or_can_write_is_not_appended_to() {
    let Some(scene) = Scene::new() else { return };
    let ours = Folder::open(&scene.at("ours")).unwrap();
    ours.open_to_append("journal", 0o600).unwrap();
    ours.open_to_append("journal", 0o600).unwrap();
    std::fs::hard_link(scene.at("ours/secret"), scene.at("ours/second")).unwrap();
    assert!(ours.open_to_append("second", 0o600).unwrap_err().to_string().contains("2 names"));
    std::fs::write(scene.at("ours/given"), "").unwrap();
    chown(scene.at("ours/given"), Some(OTHER), None).unwrap();
    assert!(ours.open_to_append("given", 0o600).unwrap_err().to_string().contains("belongs to user"));
}

#[test]
fn a_tree_is_left_by_no_link_and_by_no_exchange_of_a_folder_for_a_link() {
    let Some(scene) = Scene::new() else { return };
    std::fs::create_dir_all(scene.at("theirs/tree/proc/sys")).unwrap();
    std::fs::write(scene.at("theirs/tree/proc/sys/x"), "inside").unwrap();
    symlink("/proc/sys", scene.at("theirs/tree/absolute")).unwrap();
    symlink("../../../../ours", scene.at("theirs/tree/out")).unwrap();
    let tree = Folder::open(&scene.at("theirs/tree")).unwrap();
    let (folder, name) = tree.inside("/absolute/x", Links::Inside, None).unwrap();
    assert_eq!(folder.read(&name, MAX).unwrap(), b"inside");
    assert_eq!(tree.inside("/out/secret", Links::Inside, None).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(tree.inside("/../../ours/secret", Links::Inside, None).is_err());
    assert!(tree.inside("/absolute/x", Links::Never, None).is_err());
    // The folder is held: a link that takes its name meanwhile leads nobody.
    std::fs::rename(scene.at("theirs/tree/proc"), scene.at("theirs/tree/aside")).unwrap();
    scene.their_link("ours", "theirs/tree/proc");
    folder.replace("secret", b"held", 0o644).unwrap();
    assert_eq!(scene.secret(), "secret");
    assert_eq!(std::fs::read(scene.at("theirs/tree/aside/sys/secret")).unwrap(), b"held");
}

#[test]
fn links_in_a_circle_end() {
    let folder = tempfile::tempdir().unwrap();
    symlink("b", folder.path().join("a")).unwrap();
    symlink("a", folder.path().join("b")).unwrap();
    assert_eq!(read(&folder.path().join("a"), MAX).unwrap_err().raw_os_error(), Some(libc::ELOOP));
}

#[test]
fn rights_are_given_to_the_socket_that_was_made_and_to_no_link_in_its_place() {
    let Some(scene) = Scene::new() else { return };
    let _listener = std::os::unix::net::UnixListener::bind(scene.at("theirs/socket")).unwrap();
    let theirs = Folder::open(&scene.at("theirs")).unwrap();
    theirs.open_socket_to("socket".as_ref(), 0o660, Some(OTHER)).unwrap();
    let socket = std::fs::metadata(scene.at("theirs/socket")).unwrap();
    assert_eq!((socket.permissions().mode() & 0o777, std::os::unix::fs::MetadataExt::gid(&socket)), (0o660, OTHER));
    std::fs::remove_file(scene.at("theirs/socket")).unwrap();
    let before = std::fs::metadata(scene.at("ours/secret")).unwrap().permissions();
    scene.their_link("ours/secret", "theirs/socket");
    assert!(theirs.open_socket_to("socket".as_ref(), 0o666, None).is_err());
    std::fs::remove_file(scene.at("theirs/socket")).unwrap();
    std::fs::hard_link(scene.at("ours/secret"), scene.at("theirs/socket")).unwrap();
    assert!(theirs.open_socket_to("socket".as_ref(), 0o666, None).is_err());
    assert_eq!(std::fs::metadata(scene.at("ours/secret")).unwrap().permissions(), before);
}

#[test]
fn a_text_that_another_user_could_have_written_is_not_taken_from_a_folder_of_ours() {
    let Some(scene) = Scene::new() else { return };
    assert_eq!(read_private_text(&scene.at("ours/secret"), MAX).unwrap(), "secret");
    chown(scene.at("ours/secret"), Some(OTHER), None).unwrap();
    let error = read_private_text(&scene.at("ours/secret"), MAX).unwrap_err();
    assert!(error.to_string().contains("secret belongs to user"), "{error}");
    chown(scene.at("ours/secret"), Some(0), None).unwrap();
    std::fs::set_permissions(scene.at("ours/secret"), PermissionsExt::from_mode(0o666)).unwrap();
    assert!(read_private_text(&scene.at("ours/secret"), MAX).is_err());
    std::fs::write(scene.at("theirs/config"), "").unwrap();
    assert!(read_private_text(&scene.at("theirs/config"), MAX).is_err(), "ours, where others can exchange it");
}

#[test]
fn an_image_is_a_regular_file_or_a_block_device_and_no_link_of_others() {
    let Some(scene) = Scene::new() else { return };
    scene.their_link("ours/secret", "theirs/image");
    let open = |path: &str| crate::DeviceFile::open(&scene.at(path), false).map(|_| ());
    open("ours/secret").unwrap();
    assert_eq!(open("theirs/image").unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    // What a link to it would set going.
    let error = open_image(Path::new("/dev/null")).unwrap_err();
    assert!(error.to_string().contains("neither a regular file nor a block device"), "{error}");
}

#[test]
fn a_lease_makes_nobody_wait() {
    use std::os::fd::AsRawFd;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    std::fs::write(&path, "text").unwrap();
    let held = File::options().read(true).write(true).open(&path).unwrap();
    // SAFETY: numbers alone; the signal by which the kernel asks for the lease is nothing to this process.
    let leased = unsafe {
        libc::signal(libc::SIGIO, libc::SIG_IGN);
        libc::fcntl(held.as_raw_fd(), libc::F_SETLEASE, libc::F_WRLCK)
    };
    if leased != 0 {
        crate::skip::skip(&format!("a lease cannot be had here: {}", io::Error::last_os_error()));
        return;
    }
    assert_eq!(read(&path, MAX).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let inside = || Folder::open(folder.path()).unwrap().read_inside("/file", MAX);
    assert_eq!(inside().unwrap_err().kind(), io::ErrorKind::WouldBlock);
    let place = Held::of(&path).unwrap();
    let refused = place.open(false, 0).unwrap_err();
    assert!(refused.kind() == io::ErrorKind::WouldBlock && refused.to_string().contains("lease"), "{refused}");
    drop(held);
    assert_eq!(read(&path, MAX).unwrap(), b"text");
    assert_eq!(inside().unwrap(), b"text");
    let opened = place.open(false, 0).unwrap();
    // SAFETY: the call takes and gives numbers.
    assert_eq!(unsafe { libc::fcntl(opened.as_raw_fd(), libc::F_GETFL) } & libc::O_NONBLOCK, 0);
}

/// As a kernel's log that is read to its end.
#[test]
fn what_has_no_more_for_now_is_an_error_and_no_wait() {
    let (near, mut far) = std::os::unix::net::UnixStream::pair().unwrap();
    near.set_nonblocking(true).unwrap();
    far.write_all(b"text").unwrap();
    let error = read_all(OwnedFd::from(near).into(), MAX, Path::new("/x")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

/// Whoever may change a folder exchanges what lies in it, between the look at it and its use.
#[test]
fn what_is_held_stays_what_was_looked_at() {
    let Some(scene) = Scene::new() else { return };
    let path = scene.at("theirs/tier");
    std::fs::write(&path, "first").unwrap();
    let held = Held::found(&path).unwrap().unwrap();
    std::fs::rename(&path, scene.at("theirs/aside")).unwrap();
    scene.their_link("ours/secret", "theirs/tier");
    assert_eq!(io::read_to_string(held.open(false, 0).unwrap()).unwrap(), "first");
    for refused in [held.remove(), held.rename(OsStr::new("other"))] {
        assert!(refused.unwrap_err().to_string().contains("something else in its place"));
    }
    assert!(scene.at("theirs/tier").is_symlink() && scene.secret() == "secret");
    assert_eq!(Held::found(&path).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
    assert!(Held::found(&scene.at("theirs/none")).unwrap().is_none());
    let held = Held::of(&scene.at("theirs/aside")).unwrap();
    held.rename(OsStr::new("given-up")).unwrap();
    assert!(scene.at("theirs/given-up").exists());
    Held::of(&scene.at("theirs/given-up")).unwrap().remove().unwrap();
    assert!(!scene.at("theirs/given-up").exists());
    // Not opened to find out what it is: whoever opens a pipe waits.
    let pipe = std::ffi::CString::new(scene.at("theirs/pipe").as_os_str().as_encoded_bytes()).unwrap();
    // SAFETY: the name outlives the call.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o666) }, 0);
    let held = Held::of(&scene.at("theirs/pipe")).unwrap();
    assert!(held.kind().is_err() && held.open(true, 0).is_err());
}

/// As what a volume has beside its image, in a folder of another user that is exchanged for a link.
#[test]
fn tiers_and_journals_are_made_opened_and_removed_nowhere_else() {
    use crate::journal::{self, Journal};
    use crate::{FlashTier, MemoryTier};
    let Some(scene) = Scene::new() else { return };
    let wait = std::time::Duration::ZERO;
    std::fs::write(scene.at("ours/tier"), vec![0; 64 * 4096]).unwrap();
    std::fs::write(scene.at("ours/new.new"), "ours").unwrap();
    Journal::create(&scene.at("ours/journal"), &[1; 16], 65536, wait).unwrap();
    scene.their_link("ours", "theirs/link");
    let (new, tier) = (scene.at("theirs/link/new"), scene.at("theirs/link/tier"));
    assert!(FlashTier::create(&new, 64 * 4096, false, wait, |_| {}).is_err());
    assert!(MemoryTier::create(&new, 64 * 4096, wait).is_err());
    assert!(Journal::create(&new, &[1; 16], 65536, wait).is_err());
    assert!(!scene.at("ours/new").exists());
    assert_eq!(std::fs::read(scene.at("ours/new.new")).unwrap(), b"ours", "what had this name is not taken away");
    assert!(FlashTier::open(&tier, wait).is_err());
    assert!(MemoryTier::open(&tier, wait).is_err());
    assert!(journal::remove(&scene.at("theirs/link/journal"), &[1; 16]).is_err());
    assert!(scene.at("ours/journal").exists());
    assert!(crate::fence::ReservableDevice::open(&tier).unwrap_err().to_string().contains("is a link"));
    // An image that was held there has its journal there, and one that a link leads to has none.
    std::fs::write(scene.at("theirs/disk.img"), vec![0; 8192]).unwrap();
    let image = crate::DeviceFile::open(&scene.at("theirs/disk.img"), false).unwrap();
    std::fs::remove_file(scene.at("theirs/disk.img")).unwrap();
    scene.their_link("ours/secret", "theirs/disk.img");
    assert_eq!(journal::beside(image.own_path()), scene.at("theirs/disk.img.forebay-journal"));
    assert!(journal::path_of(&scene.at("theirs/disk.img")).is_err());
    // In the folder itself all of that works.
    let own = |name: &str| scene.at("theirs").join(name);
    drop(FlashTier::create(&own("flash"), 64 * 4096, true, wait, |_| {}).unwrap());
    drop(FlashTier::open(&own("flash"), wait).unwrap());
    drop(MemoryTier::create(&own("memory"), 64 * 4096, wait).unwrap());
    drop(MemoryTier::open(&own("memory"), wait).unwrap());
    Journal::create(&own("journal"), &[1; 16], 65536, wait).unwrap();
    journal::remove(&own("journal"), &[1; 16]).unwrap();
    assert!(!own("journal").exists());
}

/// What is read with one call to the kernel is what a walk along the path reads, and fails where that fails.
#[test]
fn what_lies_inside_is_read_as_by_a_walk_along_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("root/a/b")).unwrap();
    std::fs::write(at("secret"), "secret").unwrap();
    std::fs::write(at("root/a/file"), "text").unwrap();
    std::fs::write(at("root/long"), vec![0; MAX as usize + 1]).unwrap();
    for (target, name) in [
        ("/a", "absolute"),
        ("../../../../a/file", "upwards"),
        ("../../secret", "out"),
        ("/missing", "dangling"),
        ("circle", "circle"),
        ("../file", "a/b/beside"),
    ] {
        symlink(target, at("root").join(name)).unwrap();
    }
    let pipe = std::ffi::CString::new(at("root/pipe").to_str().unwrap()).unwrap();
    // SAFETY: the path outlives the call.
    assert_eq!(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }, 0);
    let root = Folder::open(&at("root")).unwrap();
    let walked = |path: &str| {
        let (folder, name) = root.inside(path, Links::Inside, None)?;
        folder.read(name, MAX)
    };
    for path in [
        "/a/file",
        "a/file",
        "/absolute/file",
        "/absolute/b/../file",
        "/../a/file",
        "/upwards",
        "/a/b/beside",
        "/out",
        "/dangling",
        "/circle",
        "/pipe",
        "/a",
        "/long",
        "/a/file/x",
        "/a/missing",
        "/missing/file",
        "/secret",
    ] {
        match (root.read_inside(path, MAX), walked(path)) {
            (Ok(read), Ok(walked)) => assert_eq!(read, walked, "{path}"),
            (Err(read), Err(walked)) => assert_eq!(read.kind(), walked.kind(), "{path}: {read} / {walked}"),
            (read, walked) => panic!("{path}: {read:?} / {walked:?}"),
        }
    }
    let place = |path: &str| root.place_inside(path).map(|place| place.expect("this kernel tells it"));
    let own = root.own_path().unwrap();
    assert_eq!(place("/absolute/b").unwrap(), own.join("a/b"));
    assert_eq!(place("/../..").unwrap(), own);
    assert!(place("/out").is_err() && place("/dangling").is_err() && place("/circle").is_err());
    assert_eq!(root.folder_inside("/absolute/b", Links::Inside, None).unwrap().names().unwrap(), ["beside"]);
    assert!(root.folder_inside("/a/file", Links::Inside, None).is_err());
}
