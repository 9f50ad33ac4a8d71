//! Whether the image of a volume is still the file at its path. One that is deleted, moved or replaced under the daemon goes
//! on to be used through the open file, and nothing about its I/O tells.
//!
//! Invariants:
//! - It is told within [`LOOK_SECONDS`], and a command that speaks for the image looks before it claims success.
//! - A look may hang with its file system. It holds up nothing but the next look at the same image.
//! - What cannot be found out changes nothing of what is known.

use super::{Answer, Node, Running, blocking, failure};
use crate::failure::FailureKind;
use crate::log;
use crate::open::Image;
use crate::seconds::Seconds;
use forebay_io::file::{Whereabouts, whereabouts};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// Between two looks at an image.
pub(super) const LOOK_SECONDS: u32 = 5;

/// What is known of where an image is.
#[derive(Default)]
pub(super) struct ImageWatch {
    looking: AtomicBool,
    /// What became of it, and what to do; none while it is where it was opened.
    displaced: Mutex<Option<String>>,
}

impl ImageWatch {
    /// What became of it, as of the last look.
    pub(super) fn displaced(&self) -> Option<String> {
        self.displaced.lock().expect("nobody panics while holding it").clone()
    }

    /// Looks; a change is told. May block for as long as the image's file system does.
    fn look(&self, name: &str, image: &Image) -> Option<String> {
        let Image::File(file) = image else { return None };
        let Ok(found) = whereabouts(file) else { return self.displaced() };
        let text = words(&file.path().display().to_string(), &found);
        let mut displaced = self.displaced.lock().expect("nobody panics while holding it");
        if *displaced != text {
            match &text {
                Some(text) => log::say!(Notice, volume(name), "{text}"),
                None => log::say!(Notice, volume(name), "its image is at {} again", file.path().display()),
            }
            displaced.clone_from(&text);
        }
        text
    }
}

fn words(path: &str, found: &Whereabouts) -> Option<String> {
    let instead = |replaced: bool| if replaced { " and another file put in its place" } else { "" };
    match found {
        Whereabouts::InPlace => None,
        Whereabouts::Deleted { replaced } => Some(format!(
            "the image {path} was deleted{} while it is served: the volume goes on with the deleted file, which is gone when \
             the daemon ends; only what is not destaged by then is in the tier. Copy the volume out by NBD (`nbdcopy`, \
             `qemu-img convert`) before you stop the daemon",
            instead(*replaced)
        )),
        Whereabouts::Elsewhere { now, replaced } => Some(format!(
            "the image {path} was moved{}{} while it is served: the volume goes on with the moved file. Move it back before \
             you stop the daemon: what is not destaged is in the tier, and belongs to that file",
            now.as_ref().map_or(String::new(), |now| format!(" to {}", now.display())),
            instead(*replaced)
        )),
    }
}

impl Running {
    /// Looks where its image is.
    pub(super) async fn look_at_image(&self, name: &str) -> Option<String> {
        let (running, name) = (self.clone(), name.to_owned());
        let looked = blocking(move || Ok(running.watch.look(&name, &running.opening.image()))).await;
        looked.unwrap_or_else(|_| self.watch.displaced())
    }
}

impl Node {
    /// Looks at the images now and then. Never ends.
    pub async fn watch_images(self: std::sync::Arc<Node>, mut seconds: Seconds) {
        loop {
            let volumes: Vec<(String, Running)> = {
                let entries = self.entries();
                let on_a_file = |running: &Running| matches!(running.opening.image(), Image::File(_));
                let running = entries.iter().filter_map(|e| Some((e.facts.name.clone(), e.running.clone()?)));
                running.filter(|(_, running)| on_a_file(running)).collect()
            };
            for (name, running) in volumes {
                if !running.watch.looking.swap(true, Ordering::AcqRel) {
                    tokio::task::spawn_blocking(move || {
                        running.watch.look(&name, &running.opening.image());
                        running.watch.looking.store(false, Ordering::Release);
                    });
                }
            }
            seconds.pass(LOOK_SECONDS).await;
        }
    }

    /// Refuses what would claim something of the image at its path, when that is not the one that is served.
    pub(super) async fn require_image_in_place(&self, name: &str, running: &Running) -> Answer<()> {
        if let Err(why) = running.opening.require_lock() {
            return failure(FailureKind::Conflict, format!("volume {name}: {why}"));
        }
        match running.look_at_image(name).await {
            None => Ok(()),
            Some(text) => failure(FailureKind::Conflict, format!("volume {name}: {text}")),
        }
    }
}
