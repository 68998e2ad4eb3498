//! Weights on their way: what pullers really do with what they are told.
use super::process::{Order, Transfer};
use super::{Happening, World, ms};
use crate::core::{Input, PullFailure};
use crate::ids::{Incarnation, Role, WeightVersion};

/// A pull reports its progress so many times on the way.
const PARTS: u32 = 3;
/// Bytes of one version, for the reports.
const BYTES: u64 = 1 << 20;

/// A pull as it was ordered, for the count of a source's pullers (I-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    pub version: WeightVersion,
    pub sources: Vec<Incarnation>,
}

/// What stands in the way of a pull.
enum Obstacle {
    /// Bytes may come yet.
    Stalls,
    Fails(PullFailure),
}

impl World {
    /// The daemon tells a rollout to pull.
    pub(super) fn order_pull(
        &mut self,
        puller: Incarnation,
        version: WeightVersion,
        sources: Vec<Incarnation>,
        from_trainer: bool,
    ) {
        let transfer = Transfer {
            serial: self.number(),
            version,
            sources,
            from_trainer,
            parts: 0,
            moved_at: self.now,
        };
        self.tell(puller, Order::Pull(transfer));
    }

    /// The rollout does as told; the same order again changes nothing.
    pub(super) fn begin_pull(&mut self, puller: Incarnation, transfer: Transfer) {
        let Some(p) = self.procs.get_mut(&puller) else {
            return;
        };
        if p.version >= Some(transfer.version) {
            // The report of its end was lost with a link.
            let (incarnation, version) = (puller, transfer.version);
            let result = Ok(());
            self.pullers.remove(&puller);
            return self.say(
                puller,
                Input::Pulled {
                    incarnation,
                    version,
                    result,
                },
            );
        }
        let same = |t: &Transfer| (t.version, &t.sources) == (transfer.version, &transfer.sources);
        if p.pulling.as_ref().is_some_and(same) {
            return;
        }
        let serial = transfer.serial;
        p.pulling = Some(transfer);
        self.next_part(puller, serial);
    }

    fn next_part(&mut self, puller: Incarnation, serial: u64) {
        let slow = self.procs.get(&puller).map_or(1, |p| p.slow);
        let takes = self.timing.pull.draw(&mut self.dice) * slow / PARTS;
        self.after(takes, Happening::Pull(puller, serial));
    }

    pub(super) fn pull_goes_on(&mut self, puller: Incarnation, serial: u64) {
        let Some(p) = self.procs.get(&puller).filter(|p| p.alive) else {
            return;
        };
        let Some(t) = p.pulling.clone().filter(|t| t.serial == serial) else {
            return;
        };
        if !p.works() {
            return self.after(ms(100), Happening::Pull(puller, serial));
        }
        let stalled = self.now.since(t.moved_at) >= self.timing.pull_deadline;
        match self.obstacle(puller, &t) {
            Some(Obstacle::Stalls) if !stalled => {
                self.after(ms(100), Happening::Pull(puller, serial));
            }
            Some(Obstacle::Stalls) => {
                let reason = "no bytes came".to_owned();
                let source = t.sources.first().copied().unwrap_or_default();
                self.pull_ends(puller, t, Err(PullFailure::Source { source, reason }));
            }
            Some(Obstacle::Fails(failure)) => self.pull_ends(puller, t, Err(failure)),
            None if t.parts + 1 < PARTS => self.pull_moves(puller, t),
            None => self.pull_ends(puller, t, Ok(())),
        }
    }

    fn pull_moves(&mut self, puller: Incarnation, t: Transfer) {
        let (version, serial) = (t.version, t.serial);
        let parts = t.parts + 1;
        if let Some(p) = self.procs.get_mut(&puller) {
            let moved_at = self.now;
            p.pulling = Some(Transfer {
                parts,
                moved_at,
                ..t
            });
        }
        self.next_part(puller, serial);
        self.say(
            puller,
            Input::PullProgress {
                incarnation: puller,
                version,
                bytes: BYTES * u64::from(parts) / u64::from(PARTS),
                total: BYTES,
            },
        );
    }

    fn pull_ends(&mut self, puller: Incarnation, t: Transfer, result: Result<(), PullFailure>) {
        let same = |o: &Ordered| (o.version, &o.sources) == (t.version, &t.sources);
        if self.pullers.get(&puller).is_some_and(same) {
            self.pullers.remove(&puller);
        }
        if let Some(p) = self.procs.get_mut(&puller) {
            p.pulling = None;
            if result.is_ok() {
                p.version = p.version.max(Some(t.version));
            }
        }
        self.say(
            puller,
            Input::Pulled {
                incarnation: puller,
                version: t.version,
                result,
            },
        );
    }

    fn obstacle(&self, puller: Incarnation, t: &Transfer) -> Option<Obstacle> {
        let fails = |source: Incarnation, reason: &str| {
            let reason = reason.to_owned();
            Some(Obstacle::Fails(PullFailure::Source { source, reason }))
        };
        for &source in &t.sources {
            let Some(s) = self.procs.get(&source).filter(|s| s.alive) else {
                return fails(source, "connection reset");
            };
            if s.halted() || !self.in_touch(puller, source) {
                return Some(Obstacle::Stalls);
            }
            if s.corrupt && t.parts > 0 {
                return Some(Obstacle::Fails(PullFailure::Corrupt { source }));
            }
            let has = match s.id.role {
                Role::Trainer => self.gang.holds(s.generation, t.version),
                // Two buffers: the version before the one it serves may be there still.
                _ => s
                    .version
                    .is_some_and(|v| v >= t.version && v.0 <= t.version.0 + 1),
            };
            if !has {
                return fails(source, "it has not got it");
            }
        }
        None
    }
}
