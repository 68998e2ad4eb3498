//! Operators' requests: every one of them comes in here, goes to the room of its verb, and is answered
//! once, with what is done or with a typed refusal. One that is refused changes nothing.
use super::ask::Ask;
use super::inject::choose;
use crate::core::Core;
use crate::core::input::{Request, Ticket};
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::Output;
use crate::fault::At;

impl Core {
    pub(in crate::core) fn on_request(&mut self, ticket: Ticket, request: Request) {
        let result = self.answer(request);
        self.out.push(Output::Reply { ticket, result });
    }

    fn answer(&mut self, request: Request) -> Result<Reply, Refusal> {
        match request {
            Request::Inject {
                fault,
                role,
                index,
                incarnation,
                at,
            } => {
                let later = at.is_some_and(At::is_start_up);
                let whom = choose(&self.ask(), role, index, incarnation, later)?;
                self.inject(whom, fault, at)
            }
            Request::Afflict { fault } => self.afflict(fault),
            Request::Disarm { number } => self.armory().disarm(number),
            Request::RestoreSlot { node, pool, index } => self.on_restore_slot(&node, &pool, index),
            Request::Cordon { node } => self.on_cordon(&node, true),
            Request::Uncordon { node } => self.on_cordon(&node, false),
            Request::Scale {
                role,
                count,
                revision,
            } => self.on_scale(role, count, revision),
            Request::Update {
                role,
                config,
                revision,
                changes,
            } => self.on_update(role, *config, revision, &changes),
            Request::Quarantine { role, index } => self.on_quarantine(role, index, true),
            Request::Readmit { role, index } => self.on_quarantine(role, index, false),
            Request::Pause => self.on_pause(),
            Request::Resume => self.on_resume(),
            Request::Restart { target } => self.on_restart(target),
        }
    }

    /// What a request is checked against. The index is to be up to date where it asks for room.
    pub(in crate::core) fn ask(&self) -> Ask<'_> {
        Ask {
            config: &self.config,
            next_config: self.next_config.as_deref(),
            state: &self.s,
            placement: self.s.placement(self.now, &self.config),
        }
    }
}
