//! An image that is deleted, moved or replaced under the daemon: it is told, the volume goes on, and nothing claims afterwards
//! that the file at the image's path is the volume.

use forebay_tests::harness::{Daemon, IoMode, TempDir, Tier, Volume, run_tool};
use forebay_tests::in_both_io_modes;
use forebay_tests::nbd::Client;
use std::time::{Duration, Instant};

const SIZE: u64 = 16 << 20;
const MINUTE: Duration = Duration::from_secs(60);
const BLOCK: usize = 64 << 10;

struct Scene {
    folder: TempDir,
    volume: Volume,
    content: Vec<u8>,
}

impl Scene {
    fn new(name: &str, io: IoMode) -> Scene {
        let folder = TempDir::new(name);
        let volume = Volume::new(&folder, SIZE, Tier::Flash, io);
        Scene { folder, volume, content: vec![0; SIZE as usize] }
    }

    /// Writes some blocks, flushed.
    fn write(&mut self, seed: u8) {
        let mut client = Client::connect(&self.volume.target()).unwrap();
        for i in 0..16u8 {
            let at = usize::from(seed.wrapping_mul(37).wrapping_add(i * 11)) * BLOCK % SIZE as usize;
            self.content[at..at + BLOCK].fill(seed + i);
            client.write(at as u64, &self.content[at..at + BLOCK], 0).unwrap().unwrap();
        }
        client.flush().unwrap().unwrap();
    }

    fn assert_served(&self) {
        let mut client = Client::connect(&self.volume.target()).unwrap();
        let mut bytes = vec![0; BLOCK];
        for at in (0..self.content.len()).step_by(BLOCK) {
            client.read(at as u64, &mut bytes).unwrap().unwrap();
            assert!(bytes == self.content[at..at + BLOCK], "at {at}");
        }
    }

    fn other_image(&self) -> std::path::PathBuf {
        self.folder.sparse("other.img", SIZE)
    }
}

/// Waits until what is shown of the image's place is as wanted.
#[track_caller]
fn shown(daemon: &Daemon, wanted: impl Fn(Option<&str>) -> bool) {
    let begun = Instant::now();
    loop {
        let shown = daemon.show();
        if wanted(shown["backing"]["displaced"].as_str()) {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{shown}: {}", daemon.output());
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn refused(daemon: &Daemon, command: &[&str], words: &str) {
    let said = daemon.volume_command(command).expect_failure().text();
    assert!(said.contains(words), "{command:?}: {said}");
}

in_both_io_modes! {
    /// Proves O-12.
    fn a_deleted_image_is_told_and_can_be_copied_out(io: IoMode) {
        let mut scene = Scene::new("deleted", io);
        let daemon = scene.volume.start();
        scene.write(1);
        daemon.drain();
        std::fs::remove_file(scene.volume.image()).unwrap();
        // A command looks by itself, whatever was last seen.
        refused(&daemon, &["drain", "vm1"], "was deleted while it is served");
        shown(&daemon, |text| text.is_some_and(|text| text.contains("was deleted while")));
        let text = daemon.volume_command(["show", "vm1"]).expect_success().stdout;
        assert!(text.contains("warning   the image"), "{text}");
        assert_eq!(daemon.output().matches("was deleted while it is served").count(), 1, "told once: {}", daemon.output());
        refused(&daemon, &["drain", "vm1", "--hold", "1m"], "was deleted while");
        refused(&daemon, &["drain", "vm1", "--through"], "was deleted while");
        refused(&daemon, &["delete", "vm1"], "was deleted while");
        scene.write(2);
        scene.assert_served();
        let copy = scene.folder.join("copy.img");
        run_tool(MINUTE, "nbdcopy", [scene.volume.uri().as_str(), copy.to_str().unwrap()]).expect_success();
        assert!(std::fs::read(&copy).unwrap() == scene.content, "the copy is the volume");
        let said = daemon.stop_failing(MINUTE);
        assert!(!said.contains("every image is complete"), "{said}");
        scene.volume.expect_refusal().says(&["backing.img", "is not there: mount its file system"]);
        // The copy in its place is another file: that it is the right one, the operator says.
        std::fs::rename(&copy, scene.volume.image()).unwrap();
        scene.volume.expect_refusal().says(&["is not the image", "--adopt-changed-backing"]);
    }

    /// Proves O-12.
    fn an_image_that_was_replaced_voids_a_hold_and_is_not_served_silently(io: IoMode) {
        let mut scene = Scene::new("replaced-live", io);
        let daemon = scene.volume.start();
        scene.write(1);
        daemon.volume_command(["drain", "vm1", "--hold", "10m"]).expect_success();
        std::fs::rename(scene.other_image(), scene.volume.image()).unwrap();
        refused(&daemon, &["release", "vm1"], "what was copied from its path is void");
        refused(&daemon, &["release", "vm1"], "not held");
        shown(&daemon, |text| text.is_some_and(|text| text.contains("another file put in its place")));
        scene.assert_served();
        daemon.stop_failing(MINUTE);
        scene.volume.expect_refusal().says(&["is not the image", "inode"]);
    }

    /// Proves O-12.
    fn a_moved_image_that_comes_back_is_served_on(io: IoMode) {
        let mut scene = Scene::new("moved", io);
        let aside = scene.folder.join("aside.img");
        let daemon = scene.volume.start();
        scene.write(1);
        std::fs::rename(scene.volume.image(), &aside).unwrap();
        shown(&daemon, |text| text.is_some_and(|text| text.contains("aside.img")));
        scene.write(2);
        std::fs::rename(&aside, scene.volume.image()).unwrap();
        shown(&daemon, |text| text.is_none());
        assert!(daemon.output().contains("backing.img again"), "{}", daemon.output());
        daemon.drain();
        // Moved while the daemon ends: what it held is in the tier and the moved file together.
        std::fs::rename(scene.volume.image(), &aside).unwrap();
        scene.write(3);
        let said = daemon.stop_failing(MINUTE);
        assert!(said.contains("was moved to"), "{said}");
        std::fs::rename(&aside, scene.volume.image()).unwrap();
        let daemon = scene.volume.start();
        scene.assert_served();
        daemon.stop(MINUTE);
        assert!(std::fs::read(scene.volume.image()).unwrap() == scene.content);
    }

    fn a_volume_without_its_image_is_deleted_and_another_file_in_its_place_left_alone(io: IoMode) {
        let mut scene = Scene::new("deleted-displaced", io);
        scene.volume.destage = "journaled";
        let daemon = scene.volume.start();
        for seed in 1..20 {
            scene.write(seed);
        }
        daemon.drain();
        std::fs::rename(scene.other_image(), scene.volume.image()).unwrap();
        daemon.volume_command(["delete", "vm1", "--discard-dirty"]).expect_success();
        assert!(std::fs::read(scene.volume.image()).unwrap().iter().all(|&byte| byte == 0), "the other file was changed");
        daemon.volume_command(["show", "vm1"]).expect_failure();
    }
}
