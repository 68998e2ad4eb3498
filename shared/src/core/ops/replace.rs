//! New processes without a fault: what an operator asks for, and how every planned change does it.
//!
//! ```text
//!  rollout-1 ───────► at once, if it has a slot to start in
//!  rollout, agent ──► one after the other, the next when the last one serves   (`planned`: roll)
//!  trainer-0, trainer, task ──► at the next step boundary, together            (`planned`)
//! ```
//! It is counted apart from faults, touches no budget and opens no incident.
use super::ask::Ask;
use crate::core::Core;
use crate::core::input::RestartTarget;
use crate::core::ops::planned::{Change, Rolling};
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::Severity;
use crate::core::roster::instance::{Instance, Restarted};
use crate::ids::{Incarnation, InstanceId, NodeId, Role};
use std::fmt;

/// What for, where an operator did not say.
pub(in crate::core) const ON_REQUEST: &str = "an operator asked for it";

/// Whether an instance has a process that may be replaced.
fn check_runs(ask: &Ask<'_>, id: InstanceId) -> Result<(), Refusal> {
    let there = ask.state.roster.instances().get(id);
    match there.filter(|i| !replaceable(i)) {
        None => Ok(()),
        Some(i) => Err(Refusal::NotRunning {
            id,
            state: ask.state.instance_shown(i).to_string(),
        }),
    }
}

impl Core {
    pub(in crate::core) fn on_restart(&mut self, target: RestartTarget) -> Result<Reply, Refusal> {
        let (role, index) = match target {
            RestartTarget::Task => (Role::Trainer, 0),
            RestartTarget::Role(role) => (role, 0),
            RestartTarget::One(InstanceId { role, index }) => (role, index),
        };
        let ask = self.ask();
        ask.running_job()?;
        ask.place(role, index)?;
        let when = match target {
            RestartTarget::Task => self.restart_gang(true)?,
            _ if role == Role::Trainer => self.restart_gang(false)?,
            RestartTarget::Role(role) => self.restart_some(role, 0, None)?,
            RestartTarget::One(id) => {
                check_runs(&self.ask(), id)?;
                self.restart_some(role, index, Some(index + 1))?
            }
        };
        self.note_revision(0);
        let text = format!("{target} is to be restarted, {when}: {ON_REQUEST}");
        self.event(Severity::Info, "planned", None, text);
        Ok(Reply::Restarting { target, when })
    }

    fn restart_gang(&mut self, task: bool) -> Result<String, Refusal> {
        let ranks = self.s.roster.instances().count(Role::Trainer);
        self.plan_change(Change {
            task,
            ..Change::of(ranks, 0, ON_REQUEST.to_owned())
        })
    }

    fn restart_some(
        &mut self,
        role: Role,
        first: u32,
        end: Option<u32>,
    ) -> Result<String, Refusal> {
        if self.s.orders.is_rolling(role) {
            let what = format!("a restart of {role}");
            return Err(Refusal::Busy { what });
        }
        self.s.orders.roll(Rolling {
            first,
            next: first,
            end,
            ..Rolling::all(role, None, self.s.roster.next_incarnation())
        });
        let alone = end.is_some() || self.s.roster.instances().count(role) == 1;
        Ok(match (role, alone) {
            (Role::Hybrid, _) => "when the engines have the trainer's slots".to_owned(),
            (_, true) => "now".to_owned(),
            (_, false) => "now, one after the other".to_owned(),
        })
    }

    /// New processes for those that may have one; their work goes on elsewhere, or waits for them.
    pub(in crate::core) fn replace(&mut self, ids: &[InstanceId], why: &str) {
        for &id in ids {
            self.retire(id);
            self.note_replaced(id, why);
        }
        self.issue(ids);
    }

    /// The process of a place, if it has one, ends without a fault.
    pub(in crate::core) fn note_replaced(&mut self, id: InstanceId, why: &str) {
        let at = self.now;
        let there = self.s.roster.get_mut(id).filter(|i| i.has_process());
        if let Some(i) = there {
            i.note_restart(Restarted {
                at,
                why: why.to_owned(),
                incident: None,
            });
        }
    }

    /// Everybody but the trainer's ranks, of lives before that one. Whom a fault replaces anyway, who is
    /// to go, and who would have no slot to start in, is left alone.
    pub(in crate::core) fn replace_others(&mut self, why: &str, before: Option<Incarnation>) {
        self.s.orders.stop_rolling();
        self.derive();
        let others = self.s.roster.instances().iter();
        let others = others.filter(|i| i.id().role != Role::Trainer && replaceable(i));
        let others = others.filter(|i| before.is_none_or(|before| i.incarnation() < before));
        let mut ids: Vec<InstanceId> = others.map(|i| i.id()).collect();
        ids.retain(|id| self.ensure_housed(*id));
        self.replace(&ids, why);
    }
}

impl Core {
    /// Where a place's process is, or was last; none: it never had a slot.
    pub fn node_of(&self, id: InstanceId) -> Result<Option<NodeId>, Refusal> {
        self.ask().place(id.role, id.index)?;
        let there = self.s.roster.instances().get(id);
        let slot = there.and_then(|i| i.slot().or(i.before().map(|(_, slot)| slot)));
        Ok(slot.map(|slot| slot.node))
    }
}

fn replaceable(i: &Instance) -> bool {
    i.has_process() && !i.going() && i.condemned().is_none()
}

impl fmt::Display for RestartTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RestartTarget::Task => f.write_str("everything"),
            RestartTarget::Role(Role::Trainer) => f.write_str("the trainer gang"),
            RestartTarget::Role(role) => write!(f, "every {role}"),
            RestartTarget::One(id) if id.role == Role::Trainer => {
                write!(f, "{id} with its whole gang")
            }
            RestartTarget::One(id) => write!(f, "{id}"),
        }
    }
}
