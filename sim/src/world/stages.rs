//! The stages of a run: clients and faults, healing, a last audit, a last stop. In the end everything must come to rest.

use super::*;
use forebay_core::ownership::Command;

/// Everything must be answered and destaged within this of virtual time once faults have stopped.
const HEALING_MAX: Duration = Duration::from_secs(1_800);
/// After a failure of the tier everything is answered within this, once faults have stopped.
const ANSWERED_WITHIN: Duration = Duration::from_secs(30);
/// Faults end early when nothing was answered for so long.
const STANDSTILL_MAX: Duration = Duration::from_secs(600);
/// A release that was refused is asked for again.
const RELEASE_AGAIN: Duration = Duration::from_secs(12);
/// Faults end after so many crashes: more of them in one run find nothing that another seed does not.
const CRASHES_MAX: u32 = 30;

#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub(super) enum Stage {
    /// Clients work and faults happen.
    Work,
    /// No more faults: everything must end well.
    Healing,
    /// The whole volume is read once more.
    LastAudit,
    /// A last stop with drain.
    LastStop,
    Done,
}

impl World {
    pub(super) fn begin_healing(&mut self) {
        trace!(self, "faults stop");
        self.stage = Stage::Healing;
        if self.cluster.is_some() {
            self.heal_cluster();
        }
        self.healing_since = self.now;
        self.requests_left = 0;
        self.script.clear();
        if self.node.serving && !self.node.stopping && (self.node.hold.is_some() || self.setup.control > 0) {
            self.command(Control::Release);
            self.settle();
        }
    }

    pub(super) fn advance_stage(&mut self) {
        if matches!(self.stage, Stage::Healing | Stage::LastAudit | Stage::LastStop)
            && self.now - self.healing_since > HEALING_MAX
            && !self.damaged
        {
            panic!("after faults stopped, the volume does not come to rest ({:?}): {}", self.stage, self.unfinished());
        }
        if self.cluster.is_some() {
            return self.advance_cluster();
        }
        match self.stage {
            Stage::Work => {
                if self.now - self.progress > STANDSTILL_MAX || self.crashes >= CRASHES_MAX {
                    // Faults may stop everything; only without them must it move again.
                    self.begin_healing();
                } else if self.script_is_over()
                    && self.node.volume.is_some()
                    && self.node.serving
                    && self.audit.is_none()
                {
                    // Clients' last requests are still open: faults end while they are.
                    let planned = self.setup.crash_plan.is_some() && !self.planned_crash_done;
                    if !planned || self.at_rest() {
                        self.begin_healing();
                    }
                }
            }
            Stage::Healing => {
                if self.damaged && self.now - self.healing_since > Duration::from_secs(120) {
                    // Damage that nothing can repair may keep records in the log for ever.
                    self.stage = Stage::Done;
                    return;
                }
                let failed = |v: &Volume| v.status(self.clock()).reason == Reason::TierError;
                if self.node.serving && self.node.volume.as_ref().is_some_and(failed) && self.node.ops.is_empty() {
                    // A failed tier stays failed until the operator starts the volume again. Reads that the backing had failed to
                    // deliver may be about to begin anew.
                    if self.node.open.values().all(|o| o.hung_up) {
                        self.crash_now(Crash::ProcessKilled);
                    } else {
                        let waited = self.now - self.healing_since;
                        assert!(waited < ANSWERED_WITHIN, "a failed tier leaves requests without an answer");
                    }
                } else if self.audit.is_none() && self.at_rest() {
                    self.at_rest_checks();
                    self.stage = Stage::LastAudit;
                    self.audit = Some(Audit { node: self.at, next: 0, durable: false, failures: 0, settle: false });
                    self.schedule(Duration(0), Due::Audit);
                }
            }
            Stage::LastAudit => {
                if self.audit.is_none() && self.at_rest() {
                    self.check_frames();
                    self.stage = Stage::LastStop;
                    self.command(Control::Stop { drain: true });
                    self.settle();
                }
            }
            Stage::LastStop => {
                if self.damaged && self.now - self.healing_since > HEALING_MAX {
                    self.stage = Stage::Done;
                }
            }
            Stage::Done => {}
        }
    }

    fn advance_cluster(&mut self) {
        let serving = self.serving_node();
        match self.stage {
            Stage::Work => {
                let standstill = self.now - self.progress > STANDSTILL_MAX || self.crashes >= CRASHES_MAX;
                let over = |node: usize| self.node_at(node).coming.is_empty() && self.audit.is_none();
                let done = self.requests_left == 0 && self.clients.iter().all(|client| client.waiting.is_none());
                if standstill || done && serving.is_some_and(over) {
                    self.begin_healing();
                }
            }
            Stage::Healing => {
                let Some(owner) = serving else { return };
                self.turn_to(owner);
                if self.audit.is_none() && self.cluster_is_whole() && self.at_rest() {
                    self.at_rest_checks();
                    self.stage = Stage::LastAudit;
                    self.audit = Some(Audit { node: self.at, next: 0, durable: false, failures: 0, settle: false });
                    self.schedule(Duration(0), Due::Audit);
                }
            }
            Stage::LastAudit => {
                let Some(owner) = serving else { return };
                self.turn_to(owner);
                if self.audit.is_none() && self.at_rest() {
                    self.check_frames();
                    self.stage = Stage::LastStop;
                }
            }
            Stage::LastStop => {
                if self.cluster().coordinator.record.log == LogState::Released {
                    self.coverage.see("volume released");
                    self.backing_has_all_before(self.moment, "the backing of a released volume");
                    self.stage = Stage::Done;
                } else if let Some(owner) = serving.filter(|_| self.now >= self.cluster().commanded_at + RELEASE_AGAIN)
                {
                    self.turn_to(owner);
                    let now = self.now;
                    self.cluster_mut().commanded_at = now;
                    self.ask_for(Command::Release);
                }
            }
            Stage::Done => {}
        }
    }

    fn at_rest(&self) -> bool {
        let Some(volume) = &self.node.volume else { return false };
        self.node.serving
            && self.node.backing_ready
            && self.node.open.values().all(|o| o.hung_up)
            && self.node.coming.is_empty()
            && self.clients.iter().all(|c| c.waiting.is_none())
            && self.node.controls.is_empty()
            && self.node.ops.is_empty()
            // Who asks a former owner waits for its answer as for that of a device: what an edge is merged from, of a client that is gone, too.
            && volume.former().is_none_or(|former| former.asked == 0)
            && !self.agenda.values().any(|(_, due)| matches!(due, Due::Sent(_)))
            && volume.status(self.clock()).dirty_bytes == 0
            && volume.status(self.clock()).groups_waiting == 0
    }
}
