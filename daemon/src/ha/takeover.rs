//! How a term began, stage by stage.
use super::setting::Since;
use robust_proto::v1;
use robust_shared::time::Time;
use std::sync::{Arc, Mutex, PoisonError};

/// What happened so far on the way to a term; cheap to clone, and told by whoever brings a stage to its end.
#[derive(Clone, Debug)]
pub(super) struct Takeover {
    clock: Since,
    told: Arc<Mutex<Told>>,
}

#[derive(Debug, Default)]
struct Told {
    from: String,
    why: String,
    /// When the first stage began: the last sign of the leader before.
    began: Option<Time>,
    /// Where each one ended.
    ended: Vec<(Stage, Time)>,
}

/// The stages, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stage {
    /// From the last sign of the leader before until its place was free.
    Silence,
    /// Until the place was this candidate's.
    Election,
    /// Until the store had all that counts.
    Log,
    /// Until nodes could join.
    Start,
    /// Until the first group of the term counted.
    Record,
}

impl Stage {
    fn word(self) -> &'static str {
        match self {
            Self::Silence => "silence",
            Self::Election => "election",
            Self::Log => "log",
            Self::Start => "start",
            Self::Record => "record",
        }
    }
}

impl Takeover {
    pub fn new(clock: Since) -> Self {
        Self {
            clock,
            told: Arc::default(),
        }
    }

    /// The leader of now was last seen to live.
    pub fn lives(&self, leader: &str) {
        let now = self.clock.now();
        self.with(|told| {
            *told = Told {
                from: leader.to_owned(),
                began: Some(now),
                ..Told::default()
            };
        });
    }

    /// The place of the leader is free, or will be: why.
    pub fn is_free(&self, why: &str) {
        let is_told = self.with(|told| {
            let is_told = !told.why.is_empty();
            if !is_told {
                why.clone_into(&mut told.why);
            }
            is_told
        });
        if !is_told {
            self.ends(Stage::Silence);
        }
    }

    /// A stage came to its end; told again, that counts no more.
    pub fn ends(&self, stage: Stage) {
        let now = self.clock.now();
        let is_over = self.with(|told| {
            if told.ended.iter().any(|(known, _)| *known >= stage) {
                return false;
            }
            told.began.get_or_insert(now);
            told.ended.push((stage, now));
            stage == Stage::Record
        });
        if is_over {
            tracing::info!("the term has begun: {}", said(&self.shown()));
        }
    }

    /// A group of the term counts. Those before nodes could join are not what was waited for.
    pub fn recorded(&self) {
        if self.with(|told| {
            told.ended
                .last()
                .is_some_and(|(last, _)| *last == Stage::Start)
        }) {
            self.ends(Stage::Record);
        }
    }

    /// For operators.
    pub fn shown(&self) -> v1::Takeover {
        self.with(|told| {
            let mut last = told.began.unwrap_or_default();
            let mut stages = Vec::new();
            for (stage, at) in &told.ended {
                stages.push(v1::Stage {
                    name: stage.word().to_owned(),
                    ms: at.since(last).as_secs_f64() * 1e3,
                });
                last = *at;
            }
            v1::Takeover {
                from: told.from.clone(),
                why: told.why.clone(),
                total_ms: stages.iter().map(|stage| stage.ms).sum(),
                stages,
            }
        })
    }

    fn with<T>(&self, with: impl FnOnce(&mut Told) -> T) -> T {
        with(&mut self.told.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn said(takeover: &v1::Takeover) -> String {
    let of = |stage: &v1::Stage| format!("{} {:.0} ms", stage.name, stage.ms);
    let stages: Vec<String> = takeover.stages.iter().map(of).collect();
    stages.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stage_is_told_once_and_in_order() {
        let takeover = Takeover::new(Since::begin());
        takeover.lives("a");
        takeover.is_free("it was silent");
        takeover.is_free("its lease is over");
        takeover.ends(Stage::Election);
        takeover.ends(Stage::Log);
        takeover.ends(Stage::Election);
        let shown = takeover.shown();
        let names: Vec<&str> = shown.stages.iter().map(|stage| &*stage.name).collect();
        assert_eq!(names, ["silence", "election", "log"]);
        assert_eq!(
            (shown.from.as_str(), shown.why.as_str()),
            ("a", "it was silent")
        );
    }

    #[test]
    fn a_leader_that_lives_on_was_not_taken_over() {
        let takeover = Takeover::new(Since::begin());
        takeover.lives("a");
        takeover.is_free("it was silent");
        // It was only slow.
        takeover.lives("a");
        assert!(takeover.shown().stages.is_empty());
    }
}
