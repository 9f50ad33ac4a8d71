//! The lives of a volume: a start finds a tier or makes one, serves, and ends by a stop; `crash.rs` has the other ends.
//!
//! Checked: a tier is refused only after damage, terms only grow, and what comes back has the size that was promised.

use super::*;

impl World {
    fn superblock(&self) -> Superblock {
        let mut name = [0; 64];
        name[..3].copy_from_slice(b"sim");
        Superblock {
            version: self.setup.version,
            volume: VOLUME_UUID,
            tier: match self.setup.version {
                Version::One => 0,
                Version::Two if self.cluster.is_some() => self.node.incarnation.tier,
                Version::Two => 1,
            },
            name,
            size_bytes: self.size_promised,
            created_unix_s: 1_790_000_000,
            layout: self.node.layout,
        }
    }

    pub(super) fn start_life(&mut self) {
        let found = Superblock::decode(&self.node.tier.current[..BLOCK]);
        let (superblock, fresh) = match found {
            Ok(superblock) => (superblock, false),
            Err(reason) => {
                assert!(!self.node.formatted || self.damaged, "the tier of a served volume cannot be opened: {reason}");
                if self.node.formatted {
                    self.refuse();
                    return;
                }
                (self.superblock(), true)
            }
        };
        trace!(self, "life begins, {}", if fresh { "fresh tier" } else { "recovering" });
        self.open_volume(superblock, fresh);
        let wait = self.micros(self.setup.ready_micros_max);
        self.schedule(wait, Due::BackingReady);
        if self.setup.control > 0 || self.setup.hold > Duration(0) {
            let wait = self.micros(100_000);
            self.schedule(wait, Due::Operator);
        }
        self.pump();
    }

    /// A volume of a cluster begins on a new tier, or on the one that it had.
    pub(super) fn begin_volume(&mut self, fresh: bool) {
        let found = Superblock::decode(&self.node.tier.current[..BLOCK]);
        let superblock = if fresh { self.superblock() } else { found.expect("a tier that was served can be opened") };
        self.open_volume(superblock, fresh);
        self.pump();
    }

    fn open_volume(&mut self, superblock: Superblock, fresh: bool) {
        let config = VolumeConfig {
            superblock,
            fresh,
            size_bytes: self.size_promised,
            policy: self.setup.policy,
            frames: self.node.frames,
            backing_align: self.setup.backing_align,
            backing_depth_max: self.setup.backing_depth_max,
            backing_write_bytes_max: self.setup.backing_write_bytes_max,
            destage_round_bytes_max: self.setup.destage_round_bytes_max,
            destage: self.setup.destage,
            destage_delay: self.setup.destage_delay,
            journal_blocks: self.setup.journal_blocks,
            drain_max: self.setup.drain_max,
            cluster: self.cluster.as_ref().map(|cluster| self.cluster_config(cluster)),
        };
        let volume = Volume::new(config, self.clock());
        #[cfg(feature = "mutants")]
        let volume = {
            let mut volume = volume;
            volume.rules = self.rules;
            volume
        };
        if self.cluster.is_none() || fresh {
            self.node.records.clear();
        }
        self.node.begin_life(volume);
        self.backing_sync_failed.clear();
    }

    /// The tier was refused, which damage allows: the run ends here.
    pub(super) fn refuse(&mut self) {
        trace!(self, "refused after damage");
        self.coverage.see("damage refused at start");
        self.refused = true;
        self.stage = Stage::Done;
    }

    fn cluster_config(&self, cluster: &Cluster) -> ClusterConfig {
        ClusterConfig {
            own: self.node.incarnation,
            host: self.host_of(self.at),
            min_peers: cluster.setup.min_peers,
            flush: cluster.setup.flush,
            peer_window_bytes_max: cluster.setup.peer_window_bytes_max,
            window_bytes_max: cluster.setup.window_bytes_max,
            resend_after: Duration::from_millis(150),
            stall_max: Duration::from_millis(800),
            degrade_stall_max: Duration::from_secs(10),
        }
    }

    pub(super) fn on_serving(&mut self) {
        self.node.serving = true;
        self.node.formatted = true;
        self.node.checkpoint_is_alone = false;
        self.progress = self.now;
        let volume = self.node.volume.as_ref().expect("it serves");
        let term = volume.term();
        // Unless the device has lied about both copies of the checkpoint.
        assert!(
            term > self.node.term || self.damaged || self.damage_carried,
            "term {term} follows {}: terms only grow",
            self.node.term
        );
        self.node.term = term;
        let size = volume.size_bytes();
        assert!(
            size >= self.size_promised && size <= self.oracle.bytes(),
            "the volume came back with {size} bytes, {} were promised",
            self.size_promised
        );
        self.size_promised = size;
        trace!(self, "serving, term {term}");
        if self.cluster.is_some() {
            return self.on_owner_serving(term);
        }
        if self.audit.is_some() {
            self.schedule(Duration(0), Due::Audit);
        } else {
            self.wake_clients();
        }
    }

    pub(super) fn on_stopped(&mut self) {
        if self.node.controls.values().any(|(c, _)| matches!(c, Control::Stop { .. })) {
            return;
        }
        // A tier that has failed is not waited for: nothing is acknowledged by it any more.
        assert!(
            self.node.tier_errors > 0
                || !self
                    .node
                    .ops
                    .values()
                    .any(|op| matches!(op.kind, OpKind::TierWrite { .. } | OpKind::TierSync { .. })),
            "stopped while the log is being written"
        );
        trace!(self, "stopped");
        let now = self.tick();
        self.collect_counters();
        self.node.volume = None;
        self.node.serving = false;
        let ghosts = self.abandon_operations(Crash::ProcessKilled);
        let here = self.at;
        self.agenda.retain(|_, (node, due)| *node != here || matches!(due, Due::LieLands(..) | Due::Ghost(..)));
        for late in ghosts {
            let wait = self.micros(4_000_000);
            self.schedule(wait, Due::Ghost(late));
        }
        self.node.forget_requests();
        for client in &mut self.clients {
            *client = Client::default();
        }
        self.oracle.process_killed(now);
        if self.stage == Stage::LastStop {
            self.stage = Stage::Done;
            return;
        }
        if self.damaged {
            self.damage_carried = true;
        }
        self.audit = Some(Audit { node: self.at, next: 0, durable: false, failures: 0, settle: true });
        let down = self.micros(1_000_000);
        self.schedule(down, Due::Restart);
    }

    pub(super) fn wake_clients(&mut self) {
        if self.stage != Stage::Work {
            return;
        }
        for client in 0..self.clients.len() {
            let wait = self.micros(self.setup.think_micros_max);
            self.schedule(wait, Due::Wake(client));
        }
    }

    pub(super) fn collect_counters(&mut self) {
        let Some(volume) = &self.node.volume else { return };
        let c = volume.status(self.clock()).counters;
        self.coverage.add("client throttled", c.throttled_writes);
        self.coverage.add("clean frame evicted", c.evictions);
        self.coverage.add("flash segment compacted", c.compacted_blocks);
        self.coverage.add("fill dropped", c.fills_dropped);
        self.coverage.add("record superseded", c.superseded_blocks);
        self.coverage.add("record left out of a batch for a newer one", c.journal_left_out);
    }
}
