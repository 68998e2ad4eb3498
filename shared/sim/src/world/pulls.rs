//! Weights on their way: what pullers really do with what they are told.
//!
//! An engine has two buffers. It pulls into the one that it does not serve from, and others may read
//! what is verified there as it comes; one that reads along waits for what its source has not got yet.
use super::process::{Order, PARTS, Transfer};
use super::{Happening, World, ms};
use robust_shared::core::{Input, PullFailure, RoleEvent};
use robust_shared::ids::{Incarnation, Role, WeightVersion};

/// Bytes of one version, for the reports.
const BYTES: u64 = 1 << 20;

/// A pull as it was ordered, for the count of a source's pullers (I-6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ordered {
    pub order: u64,
    pub version: WeightVersion,
    pub sources: Vec<Incarnation>,
}

/// What stands in the way of a pull.
enum Obstacle {
    /// Its source has no more than this, and says so.
    Waits,
    /// Bytes may come yet.
    Stalls,
    Fails(PullFailure),
}

impl World {
    /// The daemon tells a rollout to pull.
    pub(super) fn order_pull(
        &mut self,
        puller: Incarnation,
        (version, order): (WeightVersion, u64),
        sources: Vec<Incarnation>,
        from_trainer: bool,
    ) {
        let transfer = Transfer {
            serial: self.number(),
            order,
            version,
            sources,
            from_trainer,
            moved_at: self.now,
        };
        self.tell(puller, Order::Pull(transfer));
    }

    /// The rollout does as told; the same order again is only answered again.
    pub(super) fn begin_pull(&mut self, puller: Incarnation, mut transfer: Transfer) {
        let now = self.now;
        let Some(p) = self.procs.get_mut(&puller) else {
            return;
        };
        let (incarnation, version, serial) = (puller, transfer.version, transfer.serial);
        let order = transfer.order;
        if p.version >= Some(version) {
            // The report of its end was lost with a link.
            let result = Ok(());
            self.pullers.remove(&puller);
            return self.say(
                puller,
                Input::Role(
                    incarnation,
                    RoleEvent::Pulled {
                        version,
                        order,
                        result,
                    },
                ),
            );
        }
        let same = |t: &&mut Transfer| (t.version, &t.sources) == (version, &transfer.sources);
        let running = p.pulling.as_mut().filter(same);
        let again = running.is_some();
        if let Some(running) = running {
            running.order = order;
        } else {
            // What is verified of this version stays, wherever the rest comes from.
            if p.spare.is_none_or(|(held, _)| held != version) {
                p.spare = Some((version, 0));
            }
            transfer.moved_at = now;
            p.pulling = Some(transfer);
        }
        self.say(
            puller,
            Input::Role(incarnation, RoleEvent::PullStarted { version, order }),
        );
        if !again {
            self.next_part(puller, serial);
        }
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
        let has = p.holds(t.version).unwrap_or(0);
        if has >= PARTS {
            return self.pull_ends(puller, t, Ok(()));
        }
        let stalled = self.now.since(t.moved_at) >= self.timing.pull_deadline;
        match self.obstacle(puller, &t, has) {
            Some(Obstacle::Waits) => {
                self.hear_source(puller);
                self.after(ms(20), Happening::Pull(puller, serial));
            }
            Some(Obstacle::Stalls) if !stalled => {
                self.after(ms(100), Happening::Pull(puller, serial));
            }
            Some(Obstacle::Stalls) => {
                let reason = "no bytes came".to_owned();
                let source = t.sources.first().copied().unwrap_or_default();
                self.pull_ends(puller, t, Err(PullFailure::Source { source, reason }));
            }
            Some(Obstacle::Fails(failure)) => self.pull_ends(puller, t, Err(failure)),
            // Once it has all it serves them a little later, when its requests allow.
            None => self.pull_moves(puller, &t, has + 1),
        }
    }

    fn hear_source(&mut self, puller: Incarnation) {
        let now = self.now;
        let transfer = self.procs.get_mut(&puller).and_then(|p| p.pulling.as_mut());
        transfer.into_iter().for_each(|t| t.moved_at = now);
    }

    fn pull_moves(&mut self, puller: Incarnation, t: &Transfer, parts: u32) {
        self.hear_source(puller);
        if let Some(p) = self.procs.get_mut(&puller) {
            p.spare = Some((t.version, parts));
        }
        self.next_part(puller, t.serial);
        self.say(
            puller,
            Input::Role(
                puller,
                RoleEvent::PullProgress {
                    version: t.version,
                    bytes: BYTES * u64::from(parts) / u64::from(PARTS),
                    total: BYTES,
                },
            ),
        );
    }

    fn pull_ends(&mut self, puller: Incarnation, t: Transfer, result: Result<(), PullFailure>) {
        let same = |o: &Ordered| o.order == t.order;
        if self.pullers.get(&puller).is_some_and(same) {
            self.pullers.remove(&puller);
        }
        if let Some(p) = self.procs.get_mut(&puller) {
            p.pulling = None;
            if result.is_ok() {
                // The buffers change places.
                let served = p.version.replace(t.version);
                p.spare = served.map(|version| (version, PARTS));
            }
        }
        self.say(
            puller,
            Input::Role(
                puller,
                RoleEvent::Pulled {
                    version: t.version,
                    order: t.order,
                    result,
                },
            ),
        );
    }

    /// What keeps a puller that has so many parts from the next one.
    fn obstacle(&self, puller: Incarnation, t: &Transfer, has: u32) -> Option<Obstacle> {
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
            if s.corrupt && has > 0 {
                return Some(Obstacle::Fails(PullFailure::Corrupt { source }));
            }
            let there = match s.id.role {
                Role::Trainer => self.gang.holds(s.generation, t.version).then_some(PARTS),
                _ => s.holds(t.version),
            };
            match there {
                None => return fails(source, "it has not got it"),
                Some(parts) if parts <= has => return Some(Obstacle::Waits),
                Some(_) => {}
            }
        }
        None
    }
}
