//! The run's history and the phases of late, from what roles say on the way.
//!
//! What a daemon that is killed forgets is the page under way, ten seconds at most; processes that
//! outlive it say their phase again when they link.
use super::Driver;
use super::recent::RecentPhases;
use crate::ckpt::CkptEvent;
use robust_proto::v1::PullProgress;
use robust_proto::v1::pull_done::Result as PullResult;
use robust_proto::v1::role_message::Body;
use robust_shared::history::{Page, Road, Sent, Tape, Transfer, TransferKind};
use robust_shared::ids::{Incarnation, InstanceId, Step, WeightVersion};
use robust_shared::phase::Phase;
use robust_shared::time::Time;
use robust_shared::wire::PullFault;
use std::collections::HashMap;
use std::time::Duration;

/// A pull under way.
#[derive(Clone, Copy, Debug)]
struct Pull {
    version: u64,
    since: Time,
    kind: TransferKind,
    /// How it came so far.
    sent: Sent,
}

/// The tape, and whose words go onto it.
#[derive(Debug, Default)]
pub(super) struct Taped {
    tape: Tape,
    recent: RecentPhases,
    lives: HashMap<Incarnation, InstanceId>,
    pulls: HashMap<Incarnation, Pull>,
}

impl Taped {
    /// Tells of late phases there, too.
    pub fn new(recent: RecentPhases) -> Self {
        Self {
            recent,
            ..Self::default()
        }
    }

    /// A process is started.
    pub fn born(&mut self, now: Time, id: InstanceId, life: Incarnation) {
        // What is heard late of the one before is of a time that is over.
        self.lives.retain(|_, known| *known != id);
        self.lives.insert(life, id);
        self.tape.phase(now, id, Some(Phase::Init));
        let first = (Phase::Init, Step::default());
        self.recent.lock().enter(now, id, life, first);
    }

    /// A process ended.
    pub fn gone(&mut self, now: Time, life: Incarnation) {
        self.pulls.remove(&life);
        if let Some(id) = self.lives.remove(&life) {
            self.tape.phase(now, id, None);
            self.recent.lock().leave(now, id);
        }
    }

    /// A puller is told where to pull from; that it began earlier from elsewhere still counts.
    pub fn ordered(&mut self, now: Time, life: Incarnation, version: WeightVersion, trainer: bool) {
        let kind = match trainer {
            true => TransferKind::PullFromTrainer,
            false => TransferKind::PullFromRelay,
        };
        let pull = self.pulls.entry(life).or_insert(Pull {
            version: version.0,
            since: now,
            kind,
            sent: Sent::default(),
        });
        if pull.version != version.0 {
            (pull.version, pull.since, pull.sent) = (version.0, now, Sent::default());
        }
        pull.kind = kind;
    }

    /// Who has that life said something.
    pub fn said(&mut self, now: Time, id: InstanceId, life: Incarnation, body: &Body) {
        match body {
            Body::Phase(change) => {
                // One that a daemon before this one started.
                self.lives.entry(life).or_insert(id);
                if let Ok(phase) = change.phase.parse() {
                    self.tape.phase(now, id, Some(phase));
                    let entered = (phase, Step(change.step));
                    self.recent.lock().enter(now, id, life, entered);
                }
            }
            Body::PullProgress(progress) => {
                let pull = self.pulls.get_mut(&life);
                if let Some(pull) = pull.filter(|pull| pull.version == progress.version) {
                    pull.sent = sent(progress);
                }
            }
            Body::PullDone(done) => {
                let Some(pull) = self.pulls.remove(&life) else {
                    return;
                };
                match &done.result {
                    Some(PullResult::Ok(served)) => {
                        let manifest = served.manifest.as_ref();
                        let (bytes, since) = (manifest.map_or(0, |m| m.bytes), pull.since);
                        let took = now.since(since);
                        let transfer = Transfer {
                            who: Some(id),
                            sent: pull.sent,
                            ..transfer(now, pull.kind, done.version, bytes, took)
                        };
                        self.tape.moved(now, transfer);
                    }
                    Some(PullResult::Error(e)) if e.kind() == Some(PullFault::Superseded) => {}
                    _ => self.tape.failed(now, pull.kind),
                }
            }
            _ => {}
        }
    }

    /// A checkpoint is written, or is not.
    pub fn checkpoint(&mut self, now: Time, event: &CkptEvent) {
        match event {
            CkptEvent::Written {
                step, bytes, took, ..
            } => {
                let written = transfer(now, TransferKind::Checkpoint, step.0, *bytes, *took);
                self.tape.moved(now, written);
            }
            CkptEvent::Uploaded {
                step, bytes, took, ..
            }
            | CkptEvent::Put {
                step, bytes, took, ..
            } => {
                let uploaded = transfer(now, TransferKind::Upload, step.0, *bytes, *took);
                self.tape.moved(now, uploaded);
            }
            CkptEvent::Failed { .. } => self.tape.failed(now, TransferKind::Checkpoint),
            CkptEvent::NotUploaded { .. } => self.tape.failed(now, TransferKind::Upload),
            CkptEvent::Paused { .. } | CkptEvent::Resumed { .. } | CkptEvent::Untidy(_) => {}
        }
    }

    /// The page that is due, if one is; with `end` what there is.
    fn cut(&mut self, now: Time, end: bool) -> Option<Page> {
        (end || self.tape.is_due(now)).then(|| self.tape.cut(now))?
    }
}

/// One that nobody pulled, so far.
fn transfer(at: Time, kind: TransferKind, number: u64, bytes: u64, took: Duration) -> Transfer {
    Transfer {
        kind,
        at,
        number,
        who: None,
        bytes,
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        sent: Sent::default(),
    }
}

fn sent(progress: &PullProgress) -> Sent {
    Sent {
        road: Road::named(&progress.road),
        bytes: progress.fetched,
        patched: progress.patched,
        changed_words: progress.changed_words,
    }
}

impl Driver {
    /// Stores the history's page under way when it is full, or at the end.
    pub(super) fn turn_page(&mut self, end: bool) {
        if let Some(page) = self.taped.cut(self.parts.clock.now(), end) {
            // Worth showing, not worth waiting for, like events.
            drop(self.parts.store.append_page(page));
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use robust_proto::v1;
    use robust_shared::history::Mark;
    use robust_shared::ids::Role;

    const ID: InstanceId = InstanceId {
        role: Role::Rollout,
        index: 2,
    };
    const LIFE: Incarnation = Incarnation(7);

    fn at(ms: u64) -> Time {
        Time(5_000_000 + ms * 1_000)
    }

    fn phase(phase: Phase) -> Body {
        Body::Phase(v1::PhaseChange {
            phase: phase.name().to_owned(),
            ..Default::default()
        })
    }

    fn done(version: u64, result: PullResult) -> Body {
        let result = Some(result);
        Body::PullDone(v1::PullDone {
            version,
            result,
            order: 1,
        })
    }

    fn whole(bytes: u64) -> PullResult {
        PullResult::Ok(v1::ServedVersion {
            manifest: Some(v1::Manifest {
                bytes,
                ..Default::default()
            }),
            ..Default::default()
        })
    }

    fn failed(kind: &str) -> PullResult {
        let kind = kind.to_owned();
        PullResult::Error(v1::PullError {
            kind,
            ..Default::default()
        })
    }

    fn marks(page: &Page) -> Vec<Mark> {
        page.lanes[0].marks.clone()
    }

    #[test]
    fn a_life_is_on_the_tape_from_its_start_to_its_end_and_what_comes_late_is_not() {
        let mut taped = Taped::default();
        taped.born(at(0), ID, LIFE);
        taped.said(at(10), ID, LIFE, &phase(Phase::Generating));
        taped.gone(at(20), LIFE);
        taped.born(at(30), ID, Incarnation(9));
        // The old one's end again, as when its node comes back.
        taped.gone(at(40), LIFE);
        let page = taped.cut(at(50), true).unwrap();
        let expected = [
            Mark(0, Some(Phase::Init)),
            Mark(10, Some(Phase::Generating)),
            Mark(20, None),
            Mark(30, Some(Phase::Init)),
        ];
        assert_eq!(marks(&page), expected);
    }

    #[test]
    fn a_process_of_an_earlier_daemon_is_on_the_tape_once_it_says_its_phase() {
        let mut taped = Taped::default();
        taped.said(at(0), ID, LIFE, &phase(Phase::Idle));
        taped.gone(at(5), LIFE);
        let page = taped.cut(at(10), true).unwrap();
        let expected = [Mark(0, Some(Phase::Idle)), Mark(5, None)];
        assert_eq!(marks(&page), expected);
    }

    #[test]
    fn a_pull_lasts_from_its_first_order_and_one_that_is_superseded_counts_for_nothing() {
        let mut taped = Taped::default();
        taped.ordered(at(0), LIFE, WeightVersion(1), true);
        taped.ordered(at(500), LIFE, WeightVersion(1), false);
        taped.said(at(900), ID, LIFE, &done(1, whole(64)));
        // It comes twice.
        taped.said(at(901), ID, LIFE, &done(1, whole(64)));
        taped.ordered(at(1_000), LIFE, WeightVersion(2), false);
        taped.said(at(1_100), ID, LIFE, &done(2, failed("superseded")));
        taped.ordered(at(1_200), LIFE, WeightVersion(3), false);
        taped.said(at(1_300), ID, LIFE, &done(3, failed("source")));
        let page = taped.cut(at(2_000), true).unwrap();
        let tallies: Vec<_> = page.transfers.tallies().collect();
        let [(TransferKind::PullFromRelay, tally)] = tallies[..] else {
            unreachable!("{tallies:?}");
        };
        assert_eq!((tally.done, tally.failed), (1, 1));
        assert_eq!((tally.bytes, tally.took_ms), (64, 900));
        assert_eq!(page.transfers.slowest()[0].who, Some(ID));
    }
    #[test]
    fn what_a_pull_brought_over_which_road_is_that_of_its_own_version() {
        let mut taped = Taped::default();
        let progress = |version, fetched| {
            Body::PullProgress(PullProgress {
                version,
                fetched,
                road: "tls".to_owned(),
                patched: 60,
                changed_words: 3,
                ..Default::default()
            })
        };
        taped.ordered(at(0), LIFE, WeightVersion(1), true);
        taped.said(at(10), ID, LIFE, &progress(1, 40));
        // A superseding order; the last word of the pull before comes late.
        taped.ordered(at(20), LIFE, WeightVersion(2), true);
        taped.said(at(21), ID, LIFE, &progress(1, 50));
        taped.said(at(30), ID, LIFE, &progress(2, 7));
        taped.said(at(40), ID, LIFE, &done(2, whole(64)));
        let page = taped.cut(at(2_000), true).unwrap();
        let (_, tally) = page.transfers.tallies().next().unwrap();
        assert_eq!((tally.bytes, tally.sent), (64, 7));
        assert_eq!(
            (tally.pulled, tally.patched, tally.changed_words),
            (64, 60, 3)
        );
        let roads: Vec<_> = tally.roads.taken().collect();
        assert_eq!(roads, [(Road::Tls, 1)]);
    }
}
