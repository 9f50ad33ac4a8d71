//! Which volumes can be connected to, and on which shard each lives. Read when a client chooses its export; never in
//! the data path.

use crate::mailbox::{ShardHandle, VolumeKey};
use forebay_front::nbd::handshake::{ExportInfo, Exports};
use std::sync::{OnceLock, RwLock};

/// One export.
#[derive(Clone, Debug)]
pub struct Export {
    /// The volume's name.
    pub name: String,
    /// Its size now.
    pub size_bytes: u64,
    /// Largest request that it takes.
    pub request_bytes_max: u32,
    /// Its shard.
    pub shard: usize,
    /// Its key there.
    pub key: VolumeKey,
}

/// All exports of the node. The first is the default one.
#[derive(Default)]
pub struct Directory {
    exports: RwLock<Vec<Export>>,
    shards: OnceLock<Vec<ShardHandle>>,
}

impl Directory {
    /// Makes the shards known to each other; once, when all have started.
    pub fn set_shards(&self, shards: Vec<ShardHandle>) {
        assert!(self.shards.set(shards).is_ok(), "shards are made known once");
    }

    /// A shard.
    pub fn shard(&self, number: usize) -> &ShardHandle {
        &self.shards.get().expect("volumes are exported after the shards have started")[number]
    }

    /// Adds an export; the default one goes to the front.
    pub fn add(&self, export: Export, default: bool) {
        let mut exports = self.exports.write().expect("nobody panics while holding it");
        if default { exports.insert(0, export) } else { exports.push(export) }
    }

    /// Takes an export away: no new client can choose it.
    pub fn remove(&self, name: &str) {
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
        let exports = self.exports.read().expect("nobody panics while holding it");
        if name.is_empty() { exports.first().cloned() } else { exports.iter().find(|e| e.name == name).cloned() }
    }
}

impl Exports for Directory {
    fn lookup(&self, name: &str) -> Option<ExportInfo> {
        self.find(name).map(|export| ExportInfo {
            name: export.name,
            size_bytes: export.size_bytes,
            description: String::new(),
            read_only: false,
            request_bytes_max: export.request_bytes_max,
        })
    }

    fn list(&self) -> Vec<(String, String)> {
        let exports = self.exports.read().expect("nobody panics while holding it");
        exports.iter().map(|e| (e.name.clone(), String::new())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn export(name: &str) -> Export {
        Export { name: name.into(), size_bytes: 512, request_bytes_max: 4096, shard: 0, key: VolumeKey(1) }
    }

    #[test]
    fn first_export_is_the_default_one() {
        let directory = Directory::default();
        assert!(directory.lookup("").is_none());
        directory.add(export("a"), false);
        directory.add(export("b"), true);
        assert_eq!(directory.lookup("").unwrap().name, "b");
        directory.resize("a", 1024);
        assert_eq!(directory.lookup("a").unwrap().size_bytes, 1024);
        directory.remove("b");
        assert_eq!(directory.lookup("").unwrap().name, "a");
        assert!(directory.lookup("b").is_none());
        assert_eq!(directory.list().len(), 1);
    }
}
