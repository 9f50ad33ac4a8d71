//! Whether a volume may be served with the image, the marker and the tier that were found.
//!
//! Invariants:
//! - [`judge`] is pure: it sees what was found and says whether the volume may be served; nothing is changed before.
//! - An image that cannot be told from another one, or from an older copy, is refused. The ways out are told in the order of what
//!   they cost: none but the last gives up writes.
//! - Only a memory tier that was made in an earlier boot is known to be lost without anybody's fault
//!   ([`TierFound::LostWithBoot`]). Every other tier that is not there may be somewhere.

use anyhow::{Result, bail};
use forebay_api::record::{ImageIdentity, Marker, VolumeId};
use forebay_io::DeviceFile;
use forebay_io::folder::FileKind;
use forebay_io::identity::{self, Identity};
use std::fmt;

/// What was found of our own tier.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TierFound {
    /// It was never made, so nothing is lost.
    FirstStart,
    /// It was made and is not there any more.
    Missing,
    /// It was made in the memory of an earlier boot, and is not there any more.
    LostWithBoot,
    /// It is where it should be.
    Present {
        /// The log was empty when it was closed.
        clean: bool,
        /// Number of its last owner.
        term: u32,
    },
}

/// What the operator has said of an image that is not known to be the right one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Word {
    /// The operator has said nothing.
    Nothing,
    /// It is the one that the tier's writes belong to, in its newest state.
    SameImage,
}

/// Whose image a file is, as it says of itself: put on files whose inode numbers do not last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Label {
    /// The volume whose image it is.
    pub volume: VolumeId,
    /// The owner's number when it was put there.
    pub term: u32,
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.volume, self.term)
    }
}

impl Label {
    fn parse(text: &str) -> Option<Label> {
        let (volume, term) = text.split_once(' ')?;
        Some(Label { volume: VolumeId::try_from(volume.to_owned()).ok()?, term: term.parse().ok()? })
    }
}

/// An image as it was found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sighting {
    /// What a marker keeps of it.
    pub identity: ImageIdentity,
    /// Another inode number means another file.
    pub numbers_last: bool,
    /// What it says of itself.
    pub label: Option<Label>,
}

impl Sighting {
    /// Looks at an open file or device.
    pub fn of(file: &DeviceFile) -> std::io::Result<Sighting> {
        let found = image_identity(file, identity::identity(file)?);
        let numbers_last = file.kind() == FileKind::Block || identity::numbers_last(file.file())?;
        let label = || identity::label(file.file()).and_then(|text| Label::parse(&text));
        Ok(Sighting { identity: found, numbers_last, label: if numbers_last { None } else { label() } })
    }

    /// Of what has no identity but its size.
    pub fn of_size(size_bytes: u64) -> Sighting {
        let identity = ImageIdentity { inode: None, born_ns: None, size_bytes, changed_ns: None };
        Sighting { identity, numbers_last: true, label: None }
    }

    /// How it differs from the image that a marker was written for.
    pub fn difference(&self, marker: &Marker) -> Option<String> {
        let mut was = marker.image;
        if !self.numbers_last && self.is_proved(marker) {
            was.inode = None;
        }
        difference(&was, &self.identity)
    }

    /// The file is that of the marker, whatever its number.
    fn is_proved(&self, marker: &Marker) -> bool {
        let same_birth = self.identity.born_ns.is_some() && self.identity.born_ns == marker.image.born_ns;
        // The label is put on before the marker is written.
        let labelled = self.label.is_some_and(|label| label.volume == marker.volume && label.term >= marker.term);
        same_birth || labelled
    }
}

/// What a marker keeps of an image: labels it where its number does not last, and makes sure that no loss of power takes back what is
/// kept. May block for as long as the image's file system does.
pub fn settle(file: &DeviceFile, label: Label) -> std::io::Result<ImageIdentity> {
    if file.kind() == FileKind::Regular && !identity::numbers_last(file.file())? {
        let text = label.to_string();
        if identity::label(file.file()).as_ref() != Some(&text) {
            // Without one nobody takes another file for this one: a changed number is refused then.
            let _ = identity::set_label(file.file(), &text);
        }
    }
    #[cfg(feature = "planted")]
    if crate::planted::marks_ahead() {
        return Ok(image_identity(file, identity::identity(file)?));
    }
    Ok(image_identity(file, identity::durable_identity(file)?))
}

fn image_identity(file: &DeviceFile, found: Identity) -> ImageIdentity {
    let Identity { device: _, inode, birth_ns, size, mtime_ns } = found;
    let regular = file.kind() == FileKind::Regular;
    let time = |ns: i128| i64::try_from(ns).ok().filter(|_| regular);
    ImageIdentity {
        inode: regular.then_some(inode),
        born_ns: birth_ns.and_then(time),
        size_bytes: size,
        changed_ns: time(mtime_ns),
    }
}

/// Whether the volume may be served over this image with this tier. An error says what is wrong and what to do; a
/// good end may carry a remark for the operator.
pub fn judge(
    marker: Option<&Marker>,
    volume: VolumeId,
    tier: TierFound,
    image: &Sighting,
    image_name: &str,
    word: Word,
) -> Result<Option<String>> {
    const WAY_OUT: &str = "put the right one back, copy the tier's content out with `forebay salvage`, \
                           or accept the image as it is with --adopt-changed-backing, which gives up what only the tier has, flushed \
                           writes included";
    const SAME_IMAGE: &str = "If it is the right one in its newest state (it was moved, the clock was set back, its file system numbers \
                              files anew), say so with --same-image: no write is given up. If it is not: ";
    let said = |what: &str| Ok(Some(format!("accepted by --same-image: {what}")));
    let Some(marker) = marker else {
        return match tier {
            TierFound::FirstStart | TierFound::Present { clean: true, .. } => Ok(None),
            TierFound::Present { clean: false, .. } if word == Word::SameImage => {
                said(&format!("{image_name} has no marker beside it"))
            }
            TierFound::Present { clean: false, .. } => bail!(
                "{image_name} has no marker beside it, but the tier holds writes for an image that had one: this is another \
                 image or a copy, or the marker was lost. {SAME_IMAGE}{WAY_OUT}"
            ),
            TierFound::Missing | TierFound::LostWithBoot => bail!(
                "{image_name} has no marker beside it and the tier of this volume is missing, with writes that may be in \
                 no other place; {WAY_OUT}"
            ),
        };
    };
    if marker.volume != volume {
        if marker.clean {
            return Ok(Some(format!(
                "{image_name} belonged to volume {} of host {}, which left it complete",
                marker.name, marker.host
            )));
        }
        bail!(
            "{image_name} is not complete: newer writes of volume {} ({}) lie on host {} in the tier {}; serve or drain it \
             there first, or accept the image without them with --adopt-changed-backing{}",
            marker.name,
            marker.volume,
            marker.host,
            marker.tier.display(),
            marker.journal_words()
        );
    }
    match tier {
        TierFound::FirstStart | TierFound::Missing | TierFound::LostWithBoot if marker.clean => Ok(None),
        TierFound::FirstStart | TierFound::Missing | TierFound::LostWithBoot => bail!(
            "{image_name} is not complete: the writes after log position {} lie in the tier {} of host {}, which is not \
             there; {WAY_OUT}{}",
            marker.destaged,
            marker.tier.display(),
            marker.host,
            marker.journal_words()
        ),
        TierFound::Present { term, .. } if term < marker.term => bail!(
            "the tier is of term {term}, but {image_name} was written to in term {}: the tier is an older copy, and newer \
             writes are missing in it; {WAY_OUT}",
            marker.term
        ),
        TierFound::Present { clean: true, .. } if marker.clean => Ok(None),
        // A marker that is not clean beside a clean tier: the daemon was killed between the two, or the image was not at its
        // path when the volume stopped.
        TierFound::Present { .. } => match image.difference(marker) {
            None => Ok(None),
            // Nothing that was written ever makes an image shorter.
            Some(what) if image.identity.size_bytes < marker.image.size_bytes => bail!(
                "{image_name} is not the image that the tier's writes belong to, or it was cut off: {what}. Writing them over it \
                 would mix two states; {WAY_OUT}"
            ),
            Some(what) if word == Word::SameImage => said(&format!("of {image_name} {what}")),
            Some(what) => bail!(
                "{image_name} is not the image that the tier's writes belong to, as far as can be told: {what}. Writing them \
                 over another one, or over an older copy, would mix two states. {SAME_IMAGE}{WAY_OUT}"
            ),
        },
    }
}

/// What shows that an image is another one or an older copy. Growing and newer changes are legal: our own former
/// process made them after it last wrote the marker.
pub fn difference(was: &ImageIdentity, is: &ImageIdentity) -> Option<String> {
    if let (Some(was), Some(is)) = (was.inode, is.inode)
        && was != is
    {
        return Some(format!("its inode is {is}, it was {was}"));
    }
    if let (Some(was), Some(is)) = (was.born_ns, is.born_ns)
        && was != is
    {
        return Some(format!("its birth time is {}, it was {}", show_time(is), show_time(was)));
    }
    if is.size_bytes < was.size_bytes {
        return Some(format!("its size is {} bytes, it was {}", is.size_bytes, was.size_bytes));
    }
    if let (Some(was), Some(is)) = (was.changed_ns, is.changed_ns)
        && is < was
    {
        return Some(format!("it was last changed at {}, but had been changed at {}", show_time(is), show_time(was)));
    }
    None
}

fn show_time(ns: i64) -> String {
    format!("{}.{:09} s after 1970", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_api::record::STORE_VERSION;

    const US: VolumeId = VolumeId([1; 16]);
    const IMAGE: ImageIdentity =
        ImageIdentity { inode: Some(7), born_ns: Some(100), size_bytes: 4096, changed_ns: Some(500) };
    const DIRTY: TierFound = TierFound::Present { clean: false, term: 3 };

    fn marker() -> Marker {
        Marker {
            version: STORE_VERSION,
            volume: US,
            name: "vm1".into(),
            host: "a".into(),
            tier: "/t".into(),
            term: 3,
            destaged: 42,
            journal: None,
            image: IMAGE,
            clean: false,
        }
    }

    fn seen(identity: ImageIdentity) -> Sighting {
        Sighting { identity, numbers_last: true, label: None }
    }

    fn refusal(marker: Option<&Marker>, tier: TierFound, image: ImageIdentity) -> String {
        format!("{:#}", judge(marker, US, tier, &seen(image), "disk.img", Word::Nothing).unwrap_err())
    }

    fn told(marker: Option<&Marker>, tier: TierFound, image: ImageIdentity) -> Result<Option<String>> {
        judge(marker, US, tier, &seen(image), "disk.img", Word::Nothing)
    }

    #[test]
    fn same_image_or_a_newer_state_of_it_is_served() {
        for image in [
            IMAGE,
            ImageIdentity { size_bytes: 8192, ..IMAGE },
            ImageIdentity { changed_ns: Some(501), ..IMAGE },
            ImageIdentity { born_ns: None, ..IMAGE },
        ] {
            assert_eq!(told(Some(&marker()), DIRTY, image).unwrap(), None);
        }
    }

    #[test]
    fn changed_or_older_image_is_refused_before_a_dirty_tier_and_the_field_is_named() {
        let cases = [
            (ImageIdentity { inode: Some(8), ..IMAGE }, "inode"),
            (ImageIdentity { born_ns: Some(101), ..IMAGE }, "birth time"),
            (ImageIdentity { size_bytes: 512, ..IMAGE }, "size"),
            (ImageIdentity { changed_ns: Some(499), ..IMAGE }, "last changed"),
        ];
        for (image, field) in cases {
            let error = refusal(Some(&marker()), DIRTY, image);
            assert!(error.contains(field) && error.contains("--adopt-changed-backing"), "{error}");
            let clean = TierFound::Present { clean: true, term: 3 };
            assert!(refusal(Some(&marker()), clean, image).contains(field));
            let stopped = Marker { clean: true, ..marker() };
            assert!(told(Some(&stopped), clean, image).is_ok());
        }
    }

    #[test]
    fn dirty_data_elsewhere_is_named() {
        let other = Marker { volume: VolumeId([2; 16]), host: "b".into(), tier: "/far/tier".into(), ..marker() };
        for tier in [TierFound::FirstStart, DIRTY] {
            let error = refusal(Some(&other), tier, IMAGE);
            assert!(error.contains("host b") && error.contains("/far/tier"), "{error}");
        }
        let left = Marker { clean: true, ..other };
        assert!(told(Some(&left), TierFound::FirstStart, IMAGE).unwrap().is_some());
    }

    #[test]
    fn missing_or_older_tier_is_refused_unless_the_image_was_left_complete() {
        for gone in [TierFound::Missing, TierFound::LostWithBoot] {
            assert!(refusal(Some(&marker()), gone, IMAGE).contains("position 42"));
        }
        let journaled = Marker { journal: Some("/x.img.forebay-journal".into()), ..marker() };
        assert!(refusal(Some(&journaled), TierFound::Missing, IMAGE).contains("replays the journal /x.img"));
        assert!(refusal(None, TierFound::Missing, IMAGE).contains("no marker"));
        assert!(refusal(None, DIRTY, IMAGE).contains("no marker"));
        assert!(refusal(Some(&marker()), TierFound::Present { clean: false, term: 2 }, IMAGE).contains("older copy"));
        let clean = Marker { clean: true, ..marker() };
        assert!(told(Some(&clean), TierFound::Missing, IMAGE).is_ok());
        assert!(told(None, TierFound::FirstStart, IMAGE).is_ok());
    }

    #[test]
    fn the_first_way_out_gives_no_write_up_and_is_taken_at_the_operators_word_alone() {
        let older = ImageIdentity { changed_ns: Some(499), ..IMAGE };
        let cut = ImageIdentity { size_bytes: 512, ..older };
        let said =
            |marker: Option<&Marker>, tier, image| judge(marker, US, tier, &seen(image), "disk.img", Word::SameImage);
        for (marker, image) in [(Some(&marker()), older), (None, IMAGE)] {
            let error = refusal(marker, DIRTY, image);
            let place = |words: &str| error.find(words).unwrap_or_else(|| panic!("{words}: {error}"));
            assert!(place("--same-image") < place("salvage") && place("salvage") < place("--adopt-changed-backing"));
            assert!(said(marker, DIRTY, image).unwrap().unwrap().contains("--same-image"));
        }
        // It is a word about the image, and about nothing else.
        let other = Marker { volume: VolumeId([2; 16]), ..marker() };
        let old_tier = TierFound::Present { clean: false, term: 2 };
        for (marker, tier, image) in [
            (Some(&marker()), DIRTY, cut),
            (Some(&marker()), TierFound::Missing, IMAGE),
            (Some(&marker()), old_tier, IMAGE),
            (Some(&other), DIRTY, IMAGE),
            (None, TierFound::Missing, IMAGE),
        ] {
            let error = format!("{:#}", said(marker, tier, image).unwrap_err());
            assert!(!error.contains("--same-image"), "{error}");
        }
    }

    /// What kinds of file systems show of one file after a crash and a mount, and of others that took its place.
    #[test]
    fn a_number_that_does_not_last_is_replaced_by_birth_time_or_label_and_by_nothing_else() {
        let renumbered = ImageIdentity { inode: Some(8), changed_ns: Some(600), ..IMAGE };
        let born_elsewhere = ImageIdentity { born_ns: Some(101), ..renumbered };
        let birthless = ImageIdentity { born_ns: None, ..renumbered };
        let ours = Label { volume: US, term: 3 };
        let newer = Label { term: 4, ..ours };
        let former = Label { term: 2, ..ours };
        let others = Label { volume: VolumeId([2; 16]), ..ours };
        let cases = [
            ("exFAT: birth time lasts", renumbered, None, true),
            ("exFAT: a copy that was moved over it", born_elsewhere, None, false),
            ("FUSE with labels", birthless, Some(ours), true),
            ("the label was put on, and the marker not yet written", birthless, Some(newer), true),
            ("FUSE: a copy without its label", birthless, None, false),
            ("FUSE: a backup with its label, of an earlier start", birthless, Some(former), false),
            ("FUSE: another volume's image", birthless, Some(others), false),
            ("a label says nothing of a birth time", born_elsewhere, Some(ours), false),
            ("nor of an older state", ImageIdentity { changed_ns: Some(499), ..birthless }, Some(ours), false),
        ];
        for (case, identity, label, is_served) in cases {
            let sighting = Sighting { identity, numbers_last: false, label };
            let verdict = judge(Some(&marker()), US, DIRTY, &sighting, "disk.img", Word::Nothing);
            assert_eq!(verdict.is_ok(), is_served, "{case}");
            // Where numbers last, another one is another file, whatever else is the same.
            let lasting = Sighting { numbers_last: true, ..sighting };
            assert!(judge(Some(&marker()), US, DIRTY, &lasting, "disk.img", Word::Nothing).is_err(), "{case}");
        }
    }

    #[test]
    fn labels_are_read_as_written() {
        let label = Label { volume: US, term: 7 };
        assert_eq!(Label::parse(&label.to_string()), Some(label));
        for other in ["", "x 7", "01010101-0101-0101-0101-010101010101", "01010101-0101-0101-0101-010101010101 x"] {
            assert_eq!(Label::parse(other), None, "{other}");
        }
    }
}
