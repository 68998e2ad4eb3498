//! The control groups of lives: who has one, and those that are yet to be removed.
//!
//! ```text
//!  spec.group ──► made ──► the life ──► kill ──► removed
//!      │ cannot be: not needed ─► none, which is said once      ▲ └─► dying: looked at again and again
//!      └─────────── needed ─────► not started                   └───────┘
//! ```
use super::spares::GROUP_PREFIX;
use super::{LifeGroup, SpawnError, SpawnSpec};
use robust_tree::{Group, Groups};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long processes may die before it is said that they do not.
const DYING: Duration = Duration::from_secs(5);
/// Between two looks at groups in which somebody dies, and after that.
const SOON: Duration = Duration::from_millis(20);
const LATER: Duration = Duration::from_secs(1);
/// How long the end of a daemon waits for groups to be empty.
const LAST: Duration = Duration::from_secs(1);

/// The groups of a launcher's lives. Without any folder of groups no life has one.
#[derive(Debug, Default)]
pub struct LifeGroups {
    groups: Option<Groups>,
    dying: Mutex<Vec<Dying>>,
    said: AtomicBool,
}

#[derive(Debug)]
struct Dying {
    group: Group,
    since: Instant,
    said: bool,
}

impl LifeGroups {
    /// Those of this daemon.
    pub fn of(groups: Groups) -> Self {
        Self {
            groups: Some(groups),
            ..Self::default()
        }
    }

    /// The group that a life is to begin in; none where it needs none and none can be made.
    pub fn make(&self, spec: &SpawnSpec) -> Result<Option<Group>, SpawnError> {
        let (Some(groups), Some(of)) = (&self.groups, &spec.group) else {
            return match &spec.group {
                Some(of) if of.needed => Err(SpawnError::Group {
                    incarnation: spec.incarnation,
                    source: robust_tree::GroupError::NotPrepared,
                }),
                _ => Ok(None),
            };
        };
        match groups.make(&of.name, &of.limits) {
            Ok(group) => Ok(Some(group)),
            Err(source) if of.needed => Err(SpawnError::Group {
                incarnation: spec.incarnation,
                source,
            }),
            Err(error) => {
                self.say(&of.name, &error);
                Ok(None)
            }
        }
    }

    /// Says that a life has no group, once: the next ones will have none for the same reason.
    pub fn say(&self, name: &str, error: &dyn std::fmt::Display) {
        if !self.said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{name} has no control group, and ends by its process group alone: {error}"
            );
        }
    }

    /// The group of a life that an earlier daemon began.
    pub fn find(&self, of: &LifeGroup, pid: u32) -> Option<Group> {
        let groups = self.groups.as_ref()?;
        let found = groups.find_of(&of.name, pid);
        // A life that was a spare has the group that it waited in.
        found.or_else(|| groups.find_around(pid, GROUP_PREFIX))
    }

    /// Kills what is left in the group of a life that has ended, and removes it when it is empty.
    pub fn end(&self, group: Group, now: Instant) {
        group.kill();
        self.dying().push(Dying {
            group,
            since: now,
            said: false,
        });
        self.look(now);
    }

    /// Looks at groups in which somebody dies.
    pub fn look(&self, now: Instant) {
        self.dying().retain_mut(|dying| !dying.is_over(now));
    }

    /// When that is due again; none where there are none.
    pub fn due(&self, now: Instant) -> Option<Duration> {
        let dying = self.dying();
        let waits = |d: &Dying| match now.duration_since(d.since) < DYING {
            true => SOON,
            false => LATER,
        };
        dying.iter().map(waits).min()
    }

    /// Ends the groups of lives that are none of these.
    pub fn sweep(&self, mut living: BTreeSet<String>) {
        let Some(groups) = &self.groups else {
            return;
        };
        let dying = self.dying();
        living.extend(dying.iter().map(|d| d.group.name().to_owned()));
        for name in groups.sweep(&living) {
            tracing::warn!("killed what an earlier daemon left of {name}");
        }
    }

    /// Waits for groups in which somebody dies, a second at most, and removes the folder if nobody is left.
    pub fn forget(&self) {
        let until = Instant::now() + LAST;
        loop {
            let now = Instant::now();
            self.look(now);
            if self.dying().is_empty() || now > until {
                break;
            }
            std::thread::sleep(SOON);
        }
        if let Some(groups) = &self.groups {
            groups.forget();
        }
    }

    fn dying(&self) -> MutexGuard<'_, Vec<Dying>> {
        self.dying.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Dying {
    fn is_over(&mut self, now: Instant) -> bool {
        match self.group.remove() {
            Ok(true) => return true,
            Ok(false) => self.group.kill(),
            Err(error) => {
                tracing::warn!("the control group of {} stays: {error}", self.group.name());
                return true;
            }
        }
        if !self.said && now.duration_since(self.since) > DYING {
            self.said = true;
            tracing::error!(
                "processes {:?} of {} do not end though killed; its control group stays until they do",
                self.group.members(),
                self.group.name()
            );
        }
        false
    }
}
