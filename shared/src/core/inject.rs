//! Operators' requests: faults struck for real, with typed refusals; and the end of the job.
use super::Core;
use super::input::{Fault, Request};
use super::nodes::SlotRef;
use super::output::{Outcome, Output, Severity};
use super::refusal::{Refusal, Reply};
use super::state::JobState;
use crate::ids::{Incarnation, InstanceId, Role};

impl Core {
    pub(super) fn on_request(&mut self, request: Request) {
        match request {
            Request::Inject {
                ticket,
                fault,
                role,
                index,
                incarnation,
            } => {
                let result = self.choose(role, index, incarnation);
                let struck = result.map(|(id, incarnation)| Reply::Struck {
                    id,
                    incarnation,
                    slot: self.strike_place(id, incarnation, fault),
                });
                self.reply(ticket, struck);
            }
            Request::RestoreSlot {
                ticket,
                node,
                pool,
                index,
            } => {
                let result = self.on_restore_slot(&node, &pool, index);
                self.reply(ticket, result);
            }
            Request::Cordon { ticket, node } => {
                let result = self.on_cordon(&node, true);
                self.reply(ticket, result);
            }
            Request::Uncordon { ticket, node } => {
                let result = self.on_cordon(&node, false);
                self.reply(ticket, result);
            }
            Request::Scale {
                ticket,
                role,
                count,
                revision,
            } => {
                let result = self.on_scale(role, count, revision);
                self.reply(ticket, result);
            }
            Request::Update {
                ticket,
                role,
                config,
                revision,
                changes,
            } => {
                let result = self.on_update(role, *config, revision, &changes);
                self.reply(ticket, result);
            }
            Request::Quarantine {
                ticket,
                role,
                index,
            } => self.on_quarantine(ticket, role, index, true),
            Request::Readmit {
                ticket,
                role,
                index,
            } => self.on_quarantine(ticket, role, index, false),
            Request::Stop => {
                if !matches!(self.s.job, JobState::Over(_)) {
                    self.finish(Outcome::Stopped);
                }
            }
        }
    }

    pub(super) fn reply(&mut self, ticket: u64, result: Result<Reply, Refusal>) {
        self.out.push_back(Output::Reply { ticket, result });
    }

    /// Strikes an instance; with a lost slot, everybody in it.
    fn strike_place(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        fault: Fault,
    ) -> Option<SlotRef> {
        let slot = self.s.instances.get(id).and_then(|i| i.slot.clone());
        let Some(slot) = slot.filter(|_| fault == Fault::LoseSlot) else {
            self.strike(id, incarnation, fault);
            return None;
        };
        let takers = self.lose_slot(&slot);
        self.note_revision(0);
        for taker in takers {
            let lives = self.s.instances.get(taker).filter(|i| i.has_process());
            if let Some(life) = lives.map(|i| i.incarnation) {
                self.strike(taker, life, fault);
            }
        }
        Some(slot)
    }

    fn strike(&mut self, id: InstanceId, incarnation: Incarnation, fault: Fault) {
        if let Some(i) = self.s.instances.get_mut(id) {
            // The first injected fault of a life is the one an incident counts from.
            i.struck.get_or_insert(self.now);
        }
        let verb = match fault {
            Fault::Kill => "killed",
            Fault::Hang => "stopped",
            Fault::LoseSlot => "killed with its slot",
        };
        let text = format!("{id} {incarnation} is {verb} on request");
        self.event(Severity::Warn, "inject", Some(id), text);
        self.out.push_back(Output::Strike { incarnation, fault });
    }

    /// Requests are for a job that runs.
    pub(super) fn running_job(&self) -> Result<(), Refusal> {
        let state = match &self.s.job {
            JobState::Running => return Ok(()),
            JobState::Over(outcome) => outcome.word(),
            JobState::New => "not started",
        };
        Err(Refusal::JobOver {
            state: state.to_owned(),
        })
    }

    /// The instance asked for, or the one with the life asked for, or the lowest that runs.
    fn choose(
        &self,
        role: Role,
        index: Option<u32>,
        life: Option<Incarnation>,
    ) -> Result<(InstanceId, Incarnation), Refusal> {
        self.running_job()?;
        let count = self.s.instances.count(role);
        let runs = |i: &&super::instance::Instance| i.attached() && i.condemned.is_none();
        let lowest = || {
            self.s
                .instances
                .role(role)
                .find(runs)
                .map_or(0, |i| i.id.index)
        };
        let lived = life.and_then(|life| self.s.instances.life(life));
        let lived = lived.map(|i| i.id).filter(|id| id.role == role);
        let index = index.or(lived.map(|id| id.index)).unwrap_or_else(lowest);
        let id = InstanceId { role, index };
        let Some(instance) = self.s.instances.get(id) else {
            return Err(Refusal::UnknownIndex { role, index, count });
        };
        if let Some(asked) = life.filter(|life| *life != instance.incarnation) {
            let now = instance.incarnation;
            return Err(Refusal::OtherLife { id, asked, now });
        }
        if !runs(&instance) {
            let state = self.instance_word(instance).to_owned();
            return Err(Refusal::NotRunning { id, state });
        }
        Ok((id, instance.incarnation))
    }
}
