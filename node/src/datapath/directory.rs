//! Which volumes can be connected to, and on which shard each lives. Read when a client chooses its export; never in
//! the data path.

use crate::datapath::forward::{ForwarderHandle, ToForwarder};
use crate::datapath::mailbox::{ShardHandle, ToShard, VolumeKey};
use forebay_api::config::certificates::Clients;
use forebay_api::record::VolumeId;
use forebay_core::roles::Client;
use forebay_front::nbd::handshake::{ExportInfo, Exports};
use std::collections::{HashMap, HashSet};
use std::sync::{OnceLock, RwLock};

/// A volume that NBD clients can choose.
#[derive(Clone, Debug)]
pub struct Export {
    /// Name of the volume, which clients choose it by.
    pub name: String,
    /// Size of the volume now, in bytes.
    pub size_bytes: u64,
    /// Largest request that it takes.
    pub request_bytes_max: u32,
    /// Who serves the clients of the export.
    pub place: Place,
}

/// Who serves an export's clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// The data path: the volume is here.
    Shard {
        /// Number of the shard that it runs on.
        number: usize,
        /// The volume's key on that shard.
        key: VolumeKey,
    },
    /// Another node owns the volume: requests go there.
    Forwarder(VolumeId),
}

/// All exports of the node. The first is the default one.
#[derive(Default)]
pub struct Directory {
    exports: RwLock<Vec<Export>>,
    /// The volume that is to be the default one, while it could not be opened: who names no export gets none, and not another volume.
    awaited: RwLock<Option<String>>,
    /// Volumes of the cluster: one that has no export now will have one, as soon as it is known who serves it.
    expected: RwLock<HashSet<String>>,
    /// Who may use them, by name. It is said before an export is first there, and outlasts changes of who serves it.
    clients: RwLock<HashMap<String, Clients>>,
    shards: OnceLock<Vec<ShardHandle>>,
    forwarder: OnceLock<ForwarderHandle>,
}

impl Directory {
    /// Makes the shards known to each other; once, when all have started.
    pub fn set_shards(&self, shards: Vec<ShardHandle>) {
        assert!(self.shards.set(shards).is_ok(), "shards are made known once");
    }

    /// The shard of this number.
    pub fn shard(&self, number: usize) -> &ShardHandle {
        &self.shards.get().expect("volumes are exported after the shards have started")[number]
    }

    /// Makes known who forwards; once, by a node of a cluster.
    pub fn set_forwarder(&self, forwarder: ForwarderHandle) {
        assert!(self.forwarder.set(forwarder).is_ok(), "one thread forwards");
    }

    /// The thread that forwards requests to owners.
    pub fn forwarder(&self) -> &ForwarderHandle {
        self.forwarder.get().expect("volumes of a cluster are known after its node has joined it")
    }

    /// From now on these clients may use the volume of this name; sessions of others end.
    pub fn let_in(&self, name: &str, clients: Clients) {
        let former =
            self.clients.write().expect("nobody panics while holding it").insert(name.to_owned(), clients.clone());
        if former.is_none_or(|former| former == clients) {
            return;
        }
        for shard in self.shards.get().into_iter().flatten() {
            shard.send(ToShard::ReviewClients);
        }
        if let Some(forwarder) = self.forwarder.get() {
            forwarder.send(ToForwarder::ReviewClients);
        }
    }

    /// Whether a client may use the volume of this name. Of one that nobody has said anything of, only those of this host.
    pub fn admits(&self, client: &Client, name: &str) -> bool {
        let clients = self.clients.read().expect("nobody panics while holding it");
        client.may_use(clients.get(name).map_or(Some(&[]), Clients::names))
    }

    /// Adds an export, or puts it in the place of the one of its name.
    pub fn put(&self, export: Export) {
        let mut exports = self.exports.write().expect("nobody panics while holding it");
        match exports.iter_mut().find(|e| e.name == export.name) {
            Some(former) => *former = export,
            None => exports.push(export),
        }
    }

    /// The same, unless the volume is here: who has it knows that before those who forward hear of it.
    pub fn put_forwarded(&self, export: Export) {
        if !self.find(&export.name).is_some_and(|former| matches!(former.place, Place::Shard { .. })) {
            self.put(export);
        }
    }

    /// Adds an export, or puts it in the place of the one of its name; a new default one goes to the front.
    pub fn add(&self, export: Export, default: bool) {
        let mut awaited = self.awaited.write().expect("nobody panics while holding it");
        let default = awaited.take_if(|awaited| *awaited == export.name).is_some() || default;
        match self.find_named(&export.name) {
            None if default => self.exports.write().expect("nobody panics while holding it").insert(0, export),
            None | Some(_) => self.put(export),
        }
    }

    /// The default export is this volume, which is not there: there is none until it is added, or removed for good.
    pub fn await_default(&self, name: &str) {
        *self.awaited.write().expect("nobody panics while holding it") = Some(name.to_owned());
    }

    /// Takes an export away that may come back: who names none gets no other volume meanwhile, if it was the default one. It comes back
    /// by [`Directory::add`] in its place, and is gone by [`Directory::remove`].
    pub fn set_aside(&self, name: &str) {
        let mut awaited = self.awaited.write().expect("nobody panics while holding it");
        let mut exports = self.exports.write().expect("nobody panics while holding it");
        if awaited.is_none() && exports.first().is_some_and(|first| first.name == name) {
            *awaited = Some(name.to_owned());
        }
        exports.retain(|export| export.name != name);
    }

    /// The cluster has a volume of this name: who asks for it before it has an export waits.
    pub fn expect(&self, name: &str) {
        self.expected.write().expect("nobody panics while holding it").insert(name.to_owned());
    }

    /// It is no more.
    pub fn expect_no_more(&self, name: &str) {
        self.expected.write().expect("nobody panics while holding it").remove(name);
    }

    /// Takes an export away: no new client can choose it.
    pub fn remove(&self, name: &str) {
        self.awaited.write().expect("nobody panics while holding it").take_if(|awaited| *awaited == name);
        self.exports.write().expect("nobody panics while holding it").retain(|e| e.name != name);
    }

    /// Changes what new clients are told of its size.
    pub fn resize(&self, name: &str, size_bytes: u64) {
        let mut exports = self.exports.write().expect("nobody panics while holding it");
        if let Some(export) = exports.iter_mut().find(|e| e.name == name) {
            export.size_bytes = size_bytes;
        }
    }

    /// Where the volume of a chosen export lives.
    pub fn find(&self, name: &str) -> Option<Export> {
        if !name.is_empty() {
            return self.find_named(name);
        }
        if self.awaited.read().expect("nobody panics while holding it").is_some() {
            return None;
        }
        self.exports.read().expect("nobody panics while holding it").first().cloned()
    }

    fn find_named(&self, name: &str) -> Option<Export> {
        let exports = self.exports.read().expect("nobody panics while holding it");
        exports.iter().find(|e| e.name == name).cloned()
    }
}

impl Exports for Directory {
    fn awaits(&self, client: &Client, name: &str) -> bool {
        let expected = self.expected.read().expect("nobody panics while holding it");
        if !name.is_empty() {
            return expected.contains(name) && self.admits(client, name);
        }
        // Which one is the default is known when the first is there.
        let is_open = self.awaited.read().expect("nobody panics while holding it").is_none()
            && self.exports.read().expect("nobody panics while holding it").is_empty();
        is_open && expected.iter().any(|name| self.admits(client, name))
    }

    fn lookup(&self, client: &Client, name: &str) -> Option<ExportInfo> {
        self.find(name).filter(|export| self.admits(client, &export.name)).map(|export| ExportInfo {
            name: export.name,
            size_bytes: export.size_bytes,
            description: String::new(),
            read_only: false,
            request_bytes_max: export.request_bytes_max,
        })
    }

    fn list(&self, client: &Client) -> Vec<(String, String)> {
        let exports = self.exports.read().expect("nobody panics while holding it");
        let seen = exports.iter().filter(|export| self.admits(client, &export.name));
        seen.map(|export| (export.name.clone(), String::new())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_core::roles::Certified;

    fn export(name: &str) -> Export {
        Export {
            name: name.into(),
            size_bytes: 512,
            request_bytes_max: 4096,
            place: Place::Shard { number: 0, key: VolumeKey(1) },
        }
    }

    const LOCAL: &Client = &Client::Local;

    #[test]
    fn who_is_not_on_a_volumes_list_finds_no_such_export() {
        let directory = Directory::default();
        let certified = |dns: &str, role: &[&str]| {
            Client::Certified(Certified::new([dns].into_iter(), role.iter().copied(), [0; 32]))
        };
        let role = ["forebay:role:nbd-client"];
        let (vm1, vm2, foreign) = (certified("vm1", &role), certified("vm2", &role), certified("vm1", &[]));
        let sees = |client: &Client| -> String { directory.list(client).into_iter().map(|(name, _)| name).collect() };
        let finds = |client: &Client| ["", "a", "b", "c"].map(|name| directory.lookup(client, name).is_some());
        for name in ["a", "b", "c"] {
            directory.add(export(name), false);
        }
        // Nothing was said of them yet.
        assert_eq!(["", "", "", "abc"], [&vm1, &foreign, &Client::Anonymous, LOCAL].map(sees));
        directory.let_in("a", "dns:vm1".parse().unwrap());
        directory.let_in("b", Clients::Any);
        directory.let_in("c", "none".parse().unwrap());
        let all = [&vm1, &vm2, &foreign, &Client::Anonymous, LOCAL];
        assert_eq!(["ab", "b", "a", "b", "abc"], all.map(sees));
        assert_eq!(finds(&vm1), [true, true, true, false]);
        assert_eq!(finds(&vm2), [false, false, true, false], "the default export is the same for everybody");
        assert_eq!(finds(&foreign), [true, true, false, false]);
        // The list outlasts the export.
        directory.remove("a");
        directory.put(export("a"));
        assert!(!directory.admits(&vm2, "a") && directory.admits(&vm1, "a"));
    }

    #[test]
    fn a_volume_that_is_expected_is_awaited_by_who_may_use_it() {
        let directory = Directory::default();
        assert!(!directory.awaits(LOCAL, "vm1") && !directory.awaits(LOCAL, ""));
        directory.expect("vm1");
        assert!(directory.awaits(LOCAL, "vm1") && directory.awaits(LOCAL, "") && !directory.awaits(LOCAL, "vm2"));
        assert!(!directory.awaits(&Client::Anonymous, "vm1"), "nobody has said that it may");
        directory.await_default("broken");
        assert!(!directory.awaits(LOCAL, ""), "the default one is another");
        directory.remove("broken");
        directory.put(export("vm2"));
        assert!(!directory.awaits(LOCAL, ""), "the default one is there");
        directory.expect_no_more("vm1");
        assert!(!directory.awaits(LOCAL, "vm1"));
    }

    #[test]
    fn first_export_is_the_default_one() {
        let directory = Directory::default();
        assert!(directory.lookup(LOCAL, "").is_none());
        directory.add(export("a"), false);
        directory.add(export("b"), true);
        assert_eq!(directory.lookup(LOCAL, "").unwrap().name, "b");
        directory.resize("a", 1024);
        assert_eq!(directory.lookup(LOCAL, "a").unwrap().size_bytes, 1024);
        directory.remove("b");
        assert_eq!(directory.lookup(LOCAL, "").unwrap().name, "a");
        assert!(directory.lookup(LOCAL, "b").is_none());
        assert_eq!(directory.list(LOCAL).len(), 1);
    }

    #[test]
    fn no_other_volume_is_the_default_one_while_that_could_not_be_opened() {
        let directory = Directory::default();
        directory.await_default("a");
        directory.add(export("b"), false);
        assert!(directory.lookup(LOCAL, "").is_none() && directory.lookup(LOCAL, "b").is_some());
        directory.add(export("a"), false);
        assert_eq!(directory.lookup(LOCAL, "").unwrap().name, "a");
        directory.await_default("c");
        directory.remove("c");
        assert_eq!(directory.lookup(LOCAL, "").unwrap().name, "a");
        // One that is to be deleted, and is not.
        directory.set_aside("a");
        assert!(directory.lookup(LOCAL, "").is_none() && directory.lookup(LOCAL, "a").is_none());
        directory.add(export("a"), false);
        assert_eq!(directory.lookup(LOCAL, "").unwrap().name, "a");
        directory.set_aside("a");
        directory.remove("a");
        assert_eq!(directory.lookup(LOCAL, "").unwrap().name, "b");
    }

    #[test]
    fn who_forwards_does_not_displace_a_volume_that_is_here() {
        let directory = Directory::default();
        let forwarded = |size_bytes| Export { size_bytes, place: Place::Forwarder(VolumeId([1; 16])), ..export("a") };
        directory.put_forwarded(forwarded(1024));
        directory.put(export("a"));
        directory.put_forwarded(forwarded(2048));
        assert_eq!((directory.list(LOCAL).len(), directory.lookup(LOCAL, "a").unwrap().size_bytes), (1, 512));
        directory.put(forwarded(4096));
        assert_eq!(directory.lookup(LOCAL, "a").unwrap().size_bytes, 4096);
    }
}
