//! Faults that wait for their moment.
//!
//! ```text
//!                Inject with `at`,              the moment comes, or
//!                or for the role to do          the role says so
//!  nothing ────────────────────────────► armed ─────────────────────► struck
//!                                          │
//!                                          └── Disarm, the end of the life ──► nothing
//! ```
//! What the system does (signals, limits) is struck by the core when the instance's reports say that
//! the moment is there. What the role does to itself is handed to it at once, and again whenever it
//! links, until it says that it struck: it does each once, by its number. Both belong to one life; a
//! later life never has them (I-1). That one is armed, and that it is not any more, is on record
//! before anything follows from it, so one that was struck does not strike again after a restart of
//! the daemon.
use super::Core;
use super::instance::Instance;
use super::output::{Output, Record, Severity};
use super::refusal::{Refusal, Reply};
use crate::fault::{At, Carrier, Fault};
use crate::ids::{Incarnation, InstanceId};
use crate::time::Time;
use serde::{Deserialize, Serialize};

/// More than this wait for one life by mistake only.
const MOST: usize = 16;

/// A fault that waits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Armed {
    /// Its number in the job; never used again.
    pub number: u64,
    /// What strikes.
    pub fault: Fault,
    /// When; none: the role was told to do it now.
    pub at: Option<At>,
    /// Since when it waits.
    pub since: Time,
}

/// A fault that waits, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmedOn {
    /// The place.
    pub id: InstanceId,
    /// The only life it may strike.
    pub incarnation: Incarnation,
    /// What waits.
    pub armed: Armed,
}

impl Armed {
    /// Whether the role does it to itself.
    fn is_carried(&self) -> bool {
        self.fault.kind().carrier() == Carrier::Role
    }

    fn is_due(&self, i: &Instance) -> bool {
        let pulling = i.pull.as_ref().zip(i.pull_seen);
        let pulled = pulling
            .filter(|(pull, seen)| pull.version == seen.version)
            .map(|(_, seen)| (seen.bytes, seen.total));
        self.at.is_some_and(|at| at.reached(i.phase, pulled))
    }
}

impl Core {
    /// Lets a fault wait for its moment, or hands it to the role.
    pub(super) fn arm(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        fault: Fault,
        at: Option<At>,
    ) -> Result<Reply, Refusal> {
        let number = self.s.next_fault;
        let armed = Armed {
            number,
            fault,
            at,
            since: self.now,
        };
        let Some(i) = self.s.instances.get_mut(id) else {
            return Err(Refusal::NotArmed { number });
        };
        let same = |a: &Armed| (&a.fault, a.at) == (&armed.fault, at);
        if let Some(there) = i.armed.iter().find(|a| same(a)) {
            let what = format!(
                "`{}` is armed for {id} already: {}",
                there.fault, there.number
            );
            return Err(Refusal::AlreadyThere { what });
        }
        if i.armed.len() >= MOST {
            let what = format!("{id} has {MOST} armed faults already; disarm some");
            return Err(Refusal::AlreadyThere { what });
        }
        i.armed.push(armed.clone());
        self.s.next_fault += 1;
        self.record_armed(id, number, true);
        let when = at.map_or_else(|| "now".to_owned(), |at| format!("at `{at}`"));
        let text = format!(
            "`{}` waits for {id} {incarnation}: {when} ({number})",
            armed.fault
        );
        self.event(Severity::Warn, "inject", Some(id), text);
        match armed.is_carried() {
            true => self.hand_over(incarnation, &armed),
            // A phase that it is in already counts.
            false => self.spring(incarnation),
        }
        Ok(Reply::Armed {
            id,
            incarnation,
            number,
            at,
        })
    }

    fn record_armed(&mut self, id: InstanceId, number: u64, armed: bool) {
        let record = Record::Armed { id, number, armed };
        self.out.push_back(Output::Record(record));
    }

    fn hand_over(&mut self, incarnation: Incarnation, armed: &Armed) {
        let peer = armed.fault.peer().and_then(|p| self.s.instances.get(p));
        self.out.push_back(Output::Carry {
            incarnation,
            number: armed.number,
            fault: armed.fault.clone(),
            at: armed.at,
            peer: peer.map(|p| p.incarnation),
        });
    }

    /// The role linked: it may have lost what it was told.
    pub(super) fn hand_over_again(&mut self, incarnation: Incarnation) {
        let armed = self.s.instances.life(incarnation).map(|i| i.armed.clone());
        for armed in armed.unwrap_or_default().iter().filter(|a| a.is_carried()) {
            self.hand_over(incarnation, armed);
        }
    }

    /// The instance reported where it is: what waits for that strikes now.
    pub(super) fn spring(&mut self, incarnation: Incarnation) {
        let Some(i) = self.s.instances.life(incarnation) else {
            return;
        };
        if i.armed.is_empty() || i.condemned.is_some() {
            return;
        }
        let id = i.id;
        let due = |a: &&Armed| !a.is_carried() && a.is_due(i);
        let due: Vec<Armed> = i.armed.iter().filter(due).cloned().collect();
        for armed in due {
            self.take_armed(id, armed.number);
            self.strike_place(id, incarnation, &armed.fault);
        }
    }

    /// The role strikes itself, or cannot.
    pub(super) fn on_fault_struck(
        &mut self,
        incarnation: Incarnation,
        number: u64,
        refused: Option<&str>,
    ) {
        let Some(id) = self.s.instances.life(incarnation).map(|i| i.id) else {
            return;
        };
        let Some(armed) = self.take_armed(id, number) else {
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

    fn take_armed(&mut self, id: InstanceId, number: u64) -> Option<Armed> {
        let i = self.s.instances.get_mut(id)?;
        let at = i.armed.iter().position(|a| a.number == number)?;
        let armed = i.armed.remove(at);
        self.record_armed(id, number, false);
        Some(armed)
    }

    /// A life is over, and with it what waited for it.
    pub(super) fn disarm_dead(&mut self, id: InstanceId, old: Incarnation) {
        let dead = self.s.instances.get_mut(id);
        let armed = dead.filter(|i| i.incarnation == old);
        let armed = armed.map(|i| std::mem::take(&mut i.armed));
        for armed in armed.unwrap_or_default() {
            // One that the role was doing may well be what ended it.
            let text = match armed.at {
                Some(_) => format!("`{}` is disarmed: {id} {old} is over", armed.fault),
                None => continue,
            };
            self.event(Severity::Info, "inject", Some(id), text);
        }
    }

    /// Everything that waits, in the order it was asked for.
    pub(super) fn armed(&self) -> Vec<ArmedOn> {
        let living = self.s.instances.iter().filter(|i| i.has_process());
        let each = living.flat_map(|i| {
            let on = |armed: &Armed| ArmedOn {
                id: i.id,
                incarnation: i.incarnation,
                armed: armed.clone(),
            };
            i.armed.iter().map(on)
        });
        let mut all: Vec<ArmedOn> = each.collect();
        all.sort_by_key(|on| on.armed.number);
        all
    }

    /// One fault, or all, shall not strike any more.
    pub(super) fn on_disarm(&mut self, number: Option<u64>) -> Result<Reply, Refusal> {
        let wanted = |on: &ArmedOn| number.is_none_or(|n| on.armed.number == n);
        let found: Vec<ArmedOn> = self.armed().into_iter().filter(wanted).collect();
        if let Some(number) = number.filter(|_| found.is_empty()) {
            return Err(Refusal::NotArmed { number });
        }
        for on in &found {
            self.take_armed(on.id, on.armed.number);
            if on.armed.is_carried() {
                self.out.push_back(Output::TakeBack {
                    incarnation: on.incarnation,
                    number: on.armed.number,
                });
            }
            let text = format!("`{}` is disarmed on request", on.armed.fault);
            self.event(Severity::Info, "inject", Some(on.id), text);
        }
        Ok(Reply::Disarmed { faults: found })
    }
}
