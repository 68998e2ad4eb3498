//! Quarantine: an operator takes an engine out, whatever its health, and lets it in again.
//!
//! Out means: no new requests, and nobody is told to pull weights from it; whoever does goes on
//! elsewhere as soon as there is another source. It finishes the turns it has and
//! goes on pulling, so that it is current when it is let in; restarts do not end a quarantine.
use super::ask::Ask;
use crate::core::Core;
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::{Record, Severity};
use crate::core::roster::instance::Instance;
use crate::ids::{InstanceId, Role};

/// Whether an engine may be taken out, or let in again.
fn check(ask: &Ask<'_>, id: InstanceId, out: bool) -> Result<(), Refusal> {
    let InstanceId { role, index } = id;
    let s = ask.state;
    ask.running_job()?;
    if !role.is_engine() {
        let why = format!(
            "a {role} gets no requests, so it cannot be quarantined; to give it a new process: \
             `robustctl restart {id}`"
        );
        return Err(Refusal::WrongRole { role, why });
    }
    let Some(i) = s.roster.instances().get(id) else {
        let count = ask.config.count(role);
        return Err(Refusal::UnknownIndex { role, index, count });
    };
    if i.quarantined() == out {
        let what = match out {
            true => format!("{id} is quarantined; `robustctl readmit {role} {index}` ends it"),
            false => format!("{id} is not quarantined"),
        };
        return Err(Refusal::AlreadyThere { what });
    }
    let admitted = |o: &Instance| s.weights.of(o.id()).is_admitted();
    let others = |o: &Instance| o.id() != id && o.attached() && admitted(o);
    let instances = s.roster.instances();
    match out && !instances.engines().any(others) {
        true => Err(Refusal::LastRollout {
            id,
            rollouts: instances.wanted(Role::Rollout),
        }),
        false => Ok(()),
    }
}

impl Core {
    /// `Quarantine` or `Readmit`.
    pub(super) fn on_quarantine(
        &mut self,
        role: Role,
        index: u32,
        out: bool,
    ) -> Result<Reply, Refusal> {
        let id = InstanceId { role, index };
        check(&self.ask(), id, out)?;
        if let Some(i) = self.s.roster.get_mut(id) {
            i.quarantine(out);
        }
        // One that is out is back at work as soon as it is linked.
        self.s.recover.look_again();
        self.s.weights.admit(&self.config, id, !out);
        // It is to survive the daemon: an operator's word is not forgotten.
        self.out.record(Record::Quarantined { id, out });
        let text = match out {
            true => format!("{id} is quarantined on request: no new requests, no pulls from it"),
            false => format!("{id} is readmitted on request"),
        };
        self.event(Severity::Warn, "quarantine", Some(id), text);
        Ok(Reply::Quarantined { id, out })
    }
}
