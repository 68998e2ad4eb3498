//! Operators' requests: faults struck for real, with typed refusals; and the end of the job.
use super::Core;
use super::input::{Fault, Request};
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
                if let Ok((id, incarnation)) = result {
                    self.strike(id, incarnation, fault);
                }
                let struck = |(id, incarnation)| Reply::Struck {
                    id,
                    incarnation,
                    slot: None,
                };
                self.reply(ticket, result.map(struck));
            }
            Request::RestoreSlot { ticket, .. }
            | Request::Scale { ticket, .. }
            | Request::Update { ticket, .. }
            | Request::Cordon { ticket, .. }
            | Request::Uncordon { ticket, .. } => {
                let what = "the start of the job".to_owned();
                self.reply(ticket, Err(Refusal::Busy { what }));
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

    /// The instance asked for, or the one with the life asked for, or the lowest that runs.
    fn choose(
        &self,
        role: Role,
        index: Option<u32>,
        life: Option<Incarnation>,
    ) -> Result<(InstanceId, Incarnation), Refusal> {
        if self.s.job != JobState::Running {
            let state = match &self.s.job {
                JobState::Over(outcome) => outcome.word(),
                _ => "not started",
            };
            return Err(Refusal::JobOver {
                state: state.to_owned(),
            });
        }
        let count = self.config.count(role);
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
