//! The operator: commands at any moment, and what their answers promise of the backing.

use super::*;

impl World {
    pub(super) fn operator_acts(&mut self) {
        if self.stage != Stage::Work {
            return;
        }
        if self.setup.hold > Duration(0) {
            return self.hold_from_now_on();
        }
        let wait = self.micros(400_000);
        self.schedule(wait, Due::Operator);
        if !self.node.serving || self.node.stopping || self.audit.is_some() || !self.random.chance(self.setup.control) {
            return;
        }
        let size = self.node.volume.as_ref().expect("it serves").size_bytes();
        let command = match self.random.below(10) {
            0 => Control::SetPolicy(Policy::Through),
            1 => Control::DrainThrough,
            2 | 3 => Control::SetPolicy(Policy::Back),
            4 => Control::Drain,
            5 => Control::Hold(Duration::from_millis(self.random.range(1, 60_000))),
            6 | 7 => Control::Release,
            8 => {
                let more = (size + 512 * self.random.range(1, 16)).next_multiple_of(self.setup.backing_align.into());
                Control::Resize(more.min(self.setup.size_bytes_max))
            }
            _ => Control::Stop { drain: self.random.below(2) == 0 },
        };
        self.command(command);
        // By the time, so that runs without a journal draw what they always drew.
        if self.setup.journal_blocks > 0 && self.now.0.is_multiple_of(2) {
            let modes = [DestageMode::Ordered, DestageMode::Journaled, DestageMode::Auto];
            self.command(Control::SetDestage(modes[(self.now.0 / 2 % 3) as usize]));
        }
    }

    /// Once, as soon as that is possible.
    fn hold_from_now_on(&mut self) {
        match self.node.serving && self.node.backing_ready {
            true => self.command(Control::Hold(self.setup.hold)),
            false => self.schedule(Duration::from_millis(10), Due::Operator),
        }
    }

    pub(super) fn command(&mut self, command: Control) {
        let id = self.control_next;
        self.control_next += 1;
        match &command {
            Control::Resize(size) => self.oracle.grow(*size),
            Control::Stop { .. } => self.node.stopping = true,
            Control::Release => self.node.releasing = Some(self.backing_changes),
            Control::SetPolicy(_)
            | Control::SetDestage(_)
            | Control::SetDrainMax(_)
            | Control::Drain
            | Control::DrainThrough
            | Control::Hold(_) => {}
        }
        if let Control::Stop { .. } = command {
            self.node.stop_asked = self.now;
        }
        self.node.controls.insert(id, (command.clone(), self.moment));
        self.hand(Event::Control { id: ControlId(id), command });
    }

    pub(super) fn answered(&mut self, id: u64, result: Result<(), ControlError>) {
        let (command, asked) =
            self.node.controls.remove(&id).unwrap_or_else(|| panic!("command {id} is answered twice"));
        trace!(self, "<- answer {id} {command:?} {result:?}");
        match (&command, result) {
            (Control::Drain, Ok(())) => {
                self.coverage.see("drain answered");
                self.backing_has_all_before(asked, "the backing after a drain");
            }
            (Control::DrainThrough, Ok(())) => {
                self.coverage.see("drained through");
                self.node.keeping = true;
                self.backing_has_all_before(asked, "the backing after a drain through");
                // From here on it stays complete: checked at every acknowledgement.
                self.note_policy();
                assert!(self.node.through_since.is_some(), "drained through, and the policy kept is not write-through");
            }
            (Control::Hold(_), Ok(())) => {
                self.backing_has_all_before(asked, "the backing under a hold");
                // What damage took is said to nobody, so nobody knows what the image may lack.
                if !self.damage_carried {
                    self.oracle.backing_is_crash_image(&self.backing.durable, "held for a backup");
                }
                self.node.hold = Some((self.backing.current.clone(), self.backing_changes));
            }
            (Control::Release, Ok(())) => {
                if std::mem::take(&mut self.node.keeping) {
                    self.node.hold = None;
                    return self.coverage.see("drain through released");
                }
                let (image, changes) = self.node.hold.take().expect("a release succeeds only under a hold");
                let now = self.node.releasing.expect("it was asked for");
                assert_eq!(changes, now, "the backing was written under a hold");
                assert!(
                    changes != self.backing_changes || image == self.backing.current,
                    "the backing changed under a hold"
                );
                self.coverage.see("hold released with its backup valid");
            }
            (Control::Release, Err(_)) => self.node.hold = None,
            (Control::Resize(size), Ok(())) => {
                self.size_promised = self.size_promised.max(*size);
                self.coverage.see("volume grown");
            }
            (Control::Stop { drain }, Ok(())) => self.stopped(*drain),
            (Control::Stop { .. }, Err(_)) => {
                let stopped = self.node.volume.as_ref().is_some_and(|v| v.status(self.clock()).phase == Phase::Stopped);
                let answered = self.node.open.values().all(|o| o.hung_up);
                assert!(!stopped || answered, "stopped in vain with requests open: {}", self.unfinished());
            }
            // A release that came before its end; its own answer follows.
            (Control::DrainThrough, Err(ControlError::HoldEnded(_))) => self.node.keeping = true,
            (Control::SetPolicy(_) | Control::SetDestage(_) | Control::SetDrainMax(_), _)
            | (Control::Drain | Control::DrainThrough | Control::Hold(_) | Control::Resize(_), Err(_)) => {}
        }
    }

    fn stopped(&mut self, drain: bool) {
        let volume = self.node.volume.as_ref().expect("it answers");
        let status = volume.status(self.clock());
        assert!(self.node.open.values().all(|o| o.hung_up), "stopped with requests open: {}", self.unfinished());
        if drain {
            self.coverage.see("stopped with drain");
            assert_eq!(status.dirty_bytes, 0, "stopped with drain");
            self.assert_journal_is_empty();
            self.backing_has_all_before(self.moment, "the backing after a stop with drain");
        } else {
            self.coverage.see("stopped without drain");
            let took = self.now - self.node.stop_asked;
            // Only the tier may keep it longer: nothing of the log is left behind.
            let most = Duration(STOP_PATIENCE.0 + 1_000_000_000);
            assert!(
                took <= most || self.setup.faults.tier_stall > 0,
                "a stop without drain took {took:?}: {}",
                self.unfinished()
            );
        }
        if self.node.layout.kind == TierKind::Flash {
            self.oracle.make_durable(self.moment + 1);
        }
    }

    pub(super) fn note_policy(&mut self) {
        let Some(volume) = &self.node.volume else { return };
        let status = volume.status(self.clock());
        // Where the record says that logs are needed, the backing alone is promised nothing (A5).
        let promised = |cluster: &Cluster| cluster.coordinator.record.log == LogState::Through;
        if status.effective == Policy::Through
            && self.cluster.as_deref().is_none_or(promised)
            && matches!(status.reason, Reason::AsRequested | Reason::DrainedThrough)
        {
            if self.node.through_since.is_none() {
                self.node.through_since = Some(self.moment);
                if self.node.serving && !self.damage_carried && !self.setup.faults.backing_write_fails() {
                    let (bytes, why) = (self.oracle.bytes(), "the backing when write-through is effective");
                    self.oracle.image_has_all_before(&self.backing.current, 0, bytes, self.moment, why);
                }
            }
        } else {
            self.node.through_since = None;
        }
    }
}
