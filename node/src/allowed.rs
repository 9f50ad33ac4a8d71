//! Which places this node opens for whom.
//!
//! | who names a backing or a tier | where it may lie |
//! |---|---|
//! | this node's config, or a command by its unix socket (root, or the daemon's own user: who could open it himself) | anywhere but in the state folder |
//! | another node, by the coordinator; a caller of the API over TCP | where `[backings] allow` and `[tiers] allow` say; in the state folder never |
//!
//! Invariants:
//! - A place is judged by its own name, after all links, and what is opened is what was judged ([`forebay_io::Backing::open_judged`]).
//! - An entry that names a file or a device allows that alone; one that names a folder, all below it. Nothing below `/proc`, `/sys`
//!   and `/dev` is allowed by a folder: a device is named itself.

use crate::volume_store::Store;
use anyhow::{Context, Result, bail};
use forebay_api::config::Config;
use forebay_io::backing::judged::judge_path;
use forebay_io::backing::nbd::uri::NbdUri;
use forebay_io::backing::{BackingSpec, OpenError, Target};
use forebay_io::folder::{Folder, Held};
use forebay_io::{Backing, BackingOptions};
use std::path::{Path, PathBuf};

/// Below these nothing is allowed by the name of a folder.
const OF_THE_KERNEL: [&str; 3] = ["/proc", "/sys", "/dev"];

/// Who has named a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// This node's config, or a command by its unix socket.
    Here,
    /// Another node, or a caller over TCP.
    Elsewhere,
}

/// See the module's text.
#[derive(Debug)]
pub struct Allowed {
    backings: Vec<String>,
    tiers: Vec<String>,
    /// By its own name.
    state: PathBuf,
}

impl Allowed {
    /// As the config says. The state folder is there.
    pub fn new(config: &Config, store: &Store) -> Result<Allowed> {
        Allowed::of(config.backings.allow.clone(), config.tiers.allow.clone(), store.dir())
    }

    fn of(backings: Vec<String>, tiers: Vec<String>, state: &Path) -> Result<Allowed> {
        let state = state.canonicalize().with_context(|| format!("cannot look at {}", state.display()))?;
        Ok(Allowed { backings, tiers, state })
    }

    /// Opens the backing that a spec names.
    pub fn open(&self, spec: &str, by: NamedBy, options: BackingOptions) -> Result<Backing> {
        self.check_spec(spec, by)?;
        Ok(Backing::open_judged(spec, options, &|own| self.judge(own, by, &self.backings, "backings"))?)
    }

    /// The same, and nothing is opened or made.
    pub fn check(&self, spec: &str, by: NamedBy, to_be_made: bool) -> Result<()> {
        self.check_spec(spec, by)?;
        Ok(Backing::judge_place(spec, to_be_made, &|own| self.judge(own, by, &self.backings, "backings"))?)
    }

    /// Whether it may be opened, and can be opened for writing here, now.
    pub fn is_in_reach(&self, spec: &str, by: NamedBy) -> bool {
        let judge = |own: &Path| self.judge(own, by, &self.backings, "backings");
        self.check_spec(spec, by).is_ok() && Backing::is_in_judged_reach(spec, &judge)
    }

    /// Whether a tier may lie at a path that somebody has named.
    pub fn check_tier(&self, path: &Path, by: NamedBy) -> Result<()> {
        judge_path(path, &|own| self.judge(own, by, &self.tiers, "tiers"))
            .with_context(|| format!("a tier at {}", path.display()))
    }

    /// What does not depend on what lies there: wrappers and NBD servers.
    fn check_spec(&self, spec: &str, by: NamedBy) -> Result<()> {
        let parsed = BackingSpec::parse(spec)?;
        if by == NamedBy::Here {
            return Ok(());
        }
        let is_listed = |wanted: &str| self.backings.iter().any(|entry| entry == wanted);
        if let Some(wrapper) = parsed.wrappers().find(|wrapper| !is_listed(wrapper)) {
            bail!("refused to open the backing {spec:?}: {}", remedy("backings", wrapper));
        }
        let Target::Nbd(uri) = parsed.target() else { return Ok(()) };
        let same = |entry: &String| NbdUri::parse(entry).is_ok_and(|allowed| allowed == *uri);
        match self.backings.iter().any(same) {
            true => Ok(()),
            false => bail!("refused to connect to the backing {spec:?}: {}", remedy("backings", &uri.to_string())),
        }
    }

    fn judge(&self, own: &Path, by: NamedBy, allowed: &[String], table: &str) -> Result<(), String> {
        if own.starts_with(&self.state) {
            return Err(format!(
                "{} lies in the state folder, which is the daemon's own; put it elsewhere",
                own.display()
            ));
        }
        // Those that name it as it is come first: another one may lie on a file system that hangs.
        let (near, far): (Vec<&String>, Vec<&String>) = allowed.iter().partition(|entry| own.starts_with(entry));
        if by == NamedBy::Here || near.into_iter().chain(far).any(|entry| covers(entry, own)) {
            return Ok(());
        }
        let is_in_root = own.parent() == Some(Path::new("/"));
        let place = match is_in_root || OF_THE_KERNEL.iter().any(|top| own.starts_with(top)) {
            true => own,
            false => own.parent().unwrap_or(own),
        };
        Err(remedy(table, &place.display().to_string()))
    }
}

/// Whether an error says that a place is not allowed, and not that it is missing or cannot be looked at.
pub fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), None | Some(OpenError::Refused { .. }))
}

/// What to do about a place that is not allowed.
fn remedy(table: &str, place: &str) -> String {
    format!(
        "it was named by another node or over the network, and this node does not allow {place}: if it is meant to, add it to \
         [{table}] allow in this node's config, and start the daemon anew"
    )
}

/// Whether an entry allows a place, both after all links. Where an entry lies in a folder of others, links that they have put there lead
/// it nowhere; and nothing allows all that there is.
fn covers(entry: &str, own: &Path) -> bool {
    let entry = Path::new(entry);
    match Folder::open(entry).and_then(|folder| folder.own_path()) {
        Ok(folder) => {
            let is_below = own.starts_with(&folder) && own != folder && folder != Path::new("/");
            is_below && !OF_THE_KERNEL.iter().any(|top| own.starts_with(top))
        }
        Err(_) => Held::of(entry).and_then(|held| held.own_path()).is_ok_and(|entry| own == entry),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_tests::harness::TempDir;
    use std::os::unix::fs::symlink;

    fn refused(allowed: &Allowed, spec: &str, by: NamedBy) -> String {
        let opened = allowed.open(spec, by, BackingOptions::default()).map(|_| ());
        let error = format!("{:#}", opened.expect_err(spec));
        assert!(allowed.check(spec, by, false).is_err() && !allowed.is_in_reach(spec, by), "{spec}");
        error
    }

    #[test]
    fn others_name_only_what_the_list_has_and_nobody_the_state_folder() {
        let top = TempDir::new("allowed");
        let [nas, other, state] = ["nas", "other", "state"].map(|name| {
            let folder = top.join(name);
            std::fs::create_dir(&folder).unwrap();
            std::fs::write(folder.join("a.img"), vec![0u8; 8192]).unwrap();
            folder
        });
        let text = |path: PathBuf| path.to_str().unwrap().to_owned();
        symlink(other.join("a.img"), nas.join("link.img")).unwrap();
        symlink(state.join("a.img"), nas.join("state.img")).unwrap();
        let entries =
            vec![text(nas.clone()), text(other.join("one.img")), "slow:".to_owned(), "nbd://nas/vm1".to_owned()];
        std::fs::write(other.join("one.img"), vec![0u8; 8192]).unwrap();
        let allowed = Allowed::of(entries, vec![], &state).unwrap();
        let image = text(nas.join("a.img"));
        for (spec, by) in [
            (image.clone(), NamedBy::Elsewhere),
            (text(other.join("one.img")), NamedBy::Elsewhere),
            (format!("slow:latency=1ms:{image}"), NamedBy::Elsewhere),
            (text(other.join("a.img")), NamedBy::Here),
            (format!("faulty:drop_sync=1:{image}"), NamedBy::Here),
        ] {
            allowed.open(&spec, by, BackingOptions::default()).unwrap_or_else(|error| panic!("{spec}: {error:#}"));
            assert!(allowed.is_in_reach(&spec, by), "{spec}");
        }
        for spec in [
            text(other.join("a.img")),
            text(nas.join("link.img")),
            text(nas.join("../other/a.img")),
            "/etc/shadow".to_owned(),
            "/proc/self/mem".to_owned(),
            "/dev/zero".to_owned(),
            format!("faulty:drop_sync=1:{image}"),
            "nbd://nas/vm2".to_owned(),
            "nbd://nas/vm1?nbd_quiet=0s".to_owned(),
            "nbd+unix:///?socket=/run/other.sock".to_owned(),
        ] {
            assert!(refused(&allowed, &spec, NamedBy::Elsewhere).contains("[backings] allow"), "{spec}");
        }
        allowed.check("nbd://nas/vm1", NamedBy::Elsewhere, false).unwrap();
        for spec in [text(state.join("a.img")), text(nas.join("state.img"))] {
            for by in [NamedBy::Here, NamedBy::Elsewhere] {
                assert!(refused(&allowed, &spec, by).contains("state folder"), "{spec}");
            }
        }
        let create = BackingOptions { create: Some(8192), ..Default::default() };
        assert!(allowed.open(&text(other.join("new.img")), NamedBy::Elsewhere, create).is_err());
        assert!(!other.join("new.img").exists());
        allowed.open(&text(nas.join("new.img")), NamedBy::Elsewhere, create).unwrap();
        assert!(
            format!("{:#}", allowed.check_tier(&nas.join("t"), NamedBy::Elsewhere).unwrap_err())
                .contains("[tiers] allow")
        );
        allowed.check_tier(&nas.join("t"), NamedBy::Here).unwrap();
        assert!(allowed.check_tier(&state.join("t"), NamedBy::Here).is_err());
    }

    /// An entry that lies in a folder of another user, who puts a link there in place of what the operator has allowed.
    #[test]
    fn an_entry_is_led_nowhere_by_a_link_of_another_user() {
        let top = TempDir::new("allowed-links");
        let [theirs, ours, state] = ["theirs", "ours", "state"].map(|name| {
            let folder = top.join(name);
            std::fs::create_dir(&folder).unwrap();
            folder
        });
        let secret = ours.join("secret.img");
        std::fs::write(&secret, vec![0u8; 8192]).unwrap();
        let links = [(theirs.join("images"), PathBuf::from("/")), (theirs.join("vm.img"), secret.clone())];
        for (link, target) in &links {
            symlink(target, link).unwrap();
            let other = Some(65533);
            let given = std::os::unix::fs::lchown(link, other, None);
            if given.and(std::os::unix::fs::chown(&theirs, other, None)).is_err() {
                return forebay_tests::harness::skip("making a link of another user needs root");
            }
        }
        let entries = links.iter().map(|(link, _)| link.to_str().unwrap().to_owned()).collect();
        let allowed = Allowed::of(entries, vec![], &state).unwrap();
        let spec = secret.to_str().unwrap();
        assert!(refused(&allowed, spec, NamedBy::Elsewhere).contains("[backings] allow"));
        // The operator's own links lead where they say.
        let entry = ours.join("link.img");
        symlink(&secret, &entry).unwrap();
        let allowed = Allowed::of(vec![entry.to_str().unwrap().to_owned()], vec![], &state).unwrap();
        allowed.open(spec, NamedBy::Elsewhere, BackingOptions::default()).unwrap();
    }
}
