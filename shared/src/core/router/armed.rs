//! Faults that wait (`ops/armed`): when their moment comes, they strike.
use crate::core::Core;
use crate::core::effects::Cx;
use crate::core::ops::armed::Armory;
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::Severity;
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Current;
use crate::fault::{At, Carrier, Fault};
use crate::ids::{Incarnation, InstanceId};

impl Core {
    /// Faults that wait, to be added to or taken out.
    pub(in crate::core) fn armory(&mut self) -> Armory<'_> {
        let cx = Cx {
            now: self.now,
            config: &self.config,
            out: &mut self.out,
        };
        Armory {
            cx,
            roster: &mut self.s.roster,
            next: &mut self.s.next_fault,
        }
    }

    /// Lets a fault wait for its moment, or hands it to the role. A phase that it is in already counts.
    pub(in crate::core) fn arm(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        fault: Fault,
        at: Option<At>,
    ) -> Result<Reply, Refusal> {
        let is_ours = fault.kind().carrier() != Carrier::Role;
        let reply = self.armory().arm(id, incarnation, fault, at)?;
        let of_this_life = matches!(reply, Reply::Armed { life: Some(_), .. });
        let current = self.s.roster.instances().get(id).map(Instance::current);
        if let Some(current) = current.filter(|_| is_ours && of_this_life) {
            self.spring(current);
        }
        Ok(reply)
    }

    /// The instance reported where it is: what waits for that strikes now.
    pub(in crate::core) fn spring(&mut self, current: Current) {
        if self.s.roster.instances().of(current).armed().is_empty() {
            return;
        }
        let pulled = self.s.weights.of(current.id).progress();
        for armed in self.armory().due(current, pulled) {
            self.armory().spend(current, &armed);
            self.strike_place(current.id, current.incarnation, &armed.fault);
        }
    }

    /// The role strikes itself, or cannot.
    pub(in crate::core) fn on_fault_struck(
        &mut self,
        current: Current,
        number: u64,
        refused: Option<&str>,
    ) {
        let Current {
            id, incarnation, ..
        } = current;
        let Some(armed) = self.armory().take_armed(id, number) else {
            return;
        };
        match refused {
            None => self.note_struck(id, incarnation, &armed.fault),
            Some(why) => {
                let text = format!("{id} {incarnation} cannot do `{}`: {why}", armed.fault);
                self.event(Severity::Warn, "inject", Some(id), text);
            }
        }
    }
}
