//! How often a trajectory was handed out, and what befell it before its step: kept with it while its batch is
//! open, and part of the record of the step that consumes it.
use crate::ids::{Incarnation, InstanceId, TrajectoryId};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// Setbacks of one trajectory that are kept, the newest.
pub const SETBACKS: usize = 8;
/// Characters of a reason that are kept.
const WORDS: usize = 300;

/// What befell a trajectory so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Past {
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<InstanceId>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    setbacks: Vec<Setback>,
    #[serde(default, skip_serializing_if = "is_zero")]
    left_out: u32,
}

/// One time that it came back, or that what was generated for it was thrown away.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Setback {
    /// The last time that it had been handed out, from 1 on; none: not counted.
    pub attempt: Option<u32>,
    /// The lease of that time; 0: none was given.
    pub lease: u64,
    /// Who got it that time.
    pub holder: Option<InstanceId>,
    /// Which life of theirs; 0: nobody's.
    pub incarnation: Incarnation,
    /// When it came back.
    pub at: Time,
    /// How.
    pub kind: SetbackKind,
    /// Why, where there is more to say than the kind does.
    pub why: String,
}

/// How a trajectory came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SetbackKind {
    /// Its agent worker gave it back unfinished; it goes on from what is stored.
    GivenBack,
    /// Its agent worker's process ended, or is to end; it goes on from what is stored.
    AgentGone,
    /// The command to begin it was lost, and nobody began it.
    NotBegun,
    /// The job ended, and every process of it.
    JobOver,
    /// It could not be gone on from what was stored, which was thrown away.
    Diverged,
    /// It ended with weights too old to train on, and was thrown away.
    TooOld,
    /// A restart of everything under policy `task`: it was thrown away.
    TaskRestart,
    /// It took engines along: its step does not train on it.
    SetAside,
}

crate::wire::named! {
    SetbackKind:
    /// Its name, which tools see.
    name {
        GivenBack = "given_back",
        AgentGone = "agent_gone",
        NotBegun = "not_begun",
        JobOver = "job_over",
        Diverged = "diverged",
        TooOld = "too_old",
        TaskRestart = "task_restart",
        SetAside = "set_aside",
    }
}

impl SetbackKind {
    /// Whether what was generated until then was thrown away, so that it was generated again.
    pub fn throws_away(self) -> bool {
        match self {
            Self::Diverged | Self::TooOld | Self::TaskRestart => true,
            Self::GivenBack | Self::AgentGone | Self::NotBegun | Self::JobOver | Self::SetAside => {
                false
            }
        }
    }
}

/// How the trajectories of a committed step came to it: part of its record.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Provenance {
    /// The lease that each one had last, in the order of the record's trajectories; 0: none.
    pub leases: Vec<u64>,
    /// Those that were not handed out exactly once and brought to their end, with what befell them.
    pub befell: Vec<(TrajectoryId, Past)>,
}

impl Default for Past {
    /// Of one that was never handed out.
    fn default() -> Self {
        Self {
            attempts: Some(0),
            ..Self::not_counted()
        }
    }
}

impl Past {
    /// Of one that a build had under way which did not count.
    pub(super) fn not_counted() -> Self {
        Self {
            attempts: None,
            holder: None,
            setbacks: Vec::new(),
            left_out: 0,
        }
    }

    /// Of one that was handed out once, and nothing befell it.
    pub fn once() -> Self {
        Self {
            attempts: Some(1),
            ..Self::not_counted()
        }
    }

    /// Times that it was handed out; none: a build had it under way that did not count. One that was forgotten
    /// in a crash of the daemon, because nothing was put on record after it, is not among them.
    pub fn attempts(&self) -> Option<u32> {
        self.attempts
    }

    /// Who got it last.
    pub fn holder(&self) -> Option<InstanceId> {
        self.holder
    }

    /// What befell it, the newest last; at most [`SETBACKS`].
    pub fn setbacks(&self) -> &[Setback] {
        &self.setbacks
    }

    /// Setbacks before those that are kept.
    pub fn left_out(&self) -> u32 {
        self.left_out
    }

    /// The number of the time that this lease was given; `last` is the lease that was given last. None: it is not
    /// known.
    pub fn attempt_of(&self, lease: u64, last: u64) -> Option<u32> {
        if lease == 0 {
            return None;
        }
        if lease == last {
            return self.attempts;
        }
        let given = |s: &&Setback| s.lease == lease;
        self.setbacks.iter().find(given).and_then(|s| s.attempt)
    }

    /// Whether there is anything to tell of it but that it was handed out once.
    pub(super) fn is_plain(&self) -> bool {
        self.attempts == Some(1) && self.setbacks.is_empty()
    }

    /// It is handed out.
    pub(super) fn handed_to(&mut self, holder: Option<InstanceId>) {
        self.attempts = self.attempts.map(|n| n.saturating_add(1));
        self.holder = holder;
    }

    /// It came back.
    pub(super) fn set_back(
        &mut self,
        (lease, incarnation): (u64, Incarnation),
        at: Time,
        kind: SetbackKind,
        why: &str,
    ) {
        if self.setbacks.len() == SETBACKS {
            self.setbacks.remove(0);
            self.left_out = self.left_out.saturating_add(1);
        }
        self.setbacks.push(Setback {
            attempt: self.attempts,
            lease,
            holder: self.holder,
            incarnation,
            at,
            kind,
            why: why.chars().take(WORDS).collect(),
        });
    }
}

fn is_zero(n: &u32) -> bool {
    *n == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: InstanceId = InstanceId {
        role: crate::ids::Role::Agent,
        index: 1,
    };

    fn given_back(past: &mut Past, lease: u64) {
        past.handed_to(Some(A));
        let whose = (lease, Incarnation(7));
        past.set_back(whose, Time(lease + 1), SetbackKind::GivenBack, "no tool");
    }

    #[test]
    fn an_attempt_is_found_by_its_lease_and_one_that_nobody_counted_is_not_made_up() {
        let mut past = Past::default();
        given_back(&mut past, 10);
        past.handed_to(Some(A));
        let of = |lease| past.attempt_of(lease, 20);
        assert_eq!((of(10), of(20)), (Some(1), Some(2)));
        assert_eq!((of(15), of(0)), (None, None));

        let mut former = Past::not_counted();
        given_back(&mut former, 10);
        assert_eq!(former.attempt_of(10, 20), None);
        assert_eq!(former.attempts(), None);
    }

    #[test]
    fn the_newest_setbacks_are_kept_and_the_others_are_counted() {
        let mut past = Past::default();
        let most = SETBACKS as u64;
        (1..=most + 3).for_each(|lease| given_back(&mut past, lease));
        assert_eq!((past.setbacks().len(), past.left_out()), (SETBACKS, 3));
        assert_eq!(past.setbacks().first().map(|s| s.lease), Some(4));
        assert_eq!(past.attempt_of(4, most + 3), Some(4));
        assert_eq!(past.attempt_of(3, most + 3), None);
    }

    #[test]
    fn a_long_reason_is_cut_between_characters() {
        let mut past = Past::default();
        let whose = (1, Incarnation(7));
        past.set_back(whose, Time(1), SetbackKind::GivenBack, &"ü".repeat(1000));
        assert_eq!(past.setbacks()[0].why, "ü".repeat(WORDS));
    }
}
