//! Faults that wait for their moment.
//!
//! ```text
//!                Inject with `at`,              the moment comes, or
//!                or for the role to do          the role says so
//!  nothing ────────────────────────────► armed ─────────────────────► struck
//!                                          │
//!                                          └── Disarm, the end of the life ──► nothing
//!
//!                Inject at a phase              a later life comes there;
//!                of the start-up                one strikes a life, the first first
//!  nothing ────────────────────────────► armed ─────────────────────► struck
//!                                          │
//!                                          └── Disarm, the end of place or job ──► nothing
//! ```
//! What the system does (signals, limits) is struck by the core when the instance's reports say that
//! the moment is there. What the role does to itself is handed to it at once, and again whenever it
//! links, until it says that it struck: it does each once, by its number. Both belong to one life; a
//! later life never has them (I-1). That one is armed, and that it is not any more, is on record
//! before anything follows from it, so one that was struck does not strike again after a restart of
//! the daemon.
//!
//! A life that runs does not come back to the phases of its start-up, so what is armed for those
//! belongs to the place: it waits for a life that begins later, and if that one ends before it comes
//! there, for the next. Only what the role does to itself becomes the fault of the first such life that
//! links: whether it struck could not be known when that ends unheard.
use crate::core::effects::Cx;
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::{Output, Record, Severity};
use crate::core::roster::Roster;
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::{Current, Instances};
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
    /// It waits for the start-up of a later life than this; none: for a moment of one life.
    #[serde(default)]
    pub after: Option<Incarnation>,
}

/// A fault that waits, and for whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmedOn {
    /// The place.
    pub id: InstanceId,
    /// The life that it strikes if that comes there; none: one that is still to come.
    pub life: Option<Incarnation>,
    /// What waits.
    pub armed: Armed,
}

impl Armed {
    /// Whether the role does it to itself.
    fn is_carried(&self) -> bool {
        self.fault.kind().carrier() == Carrier::Role
    }

    /// Whether it may strike the present life.
    fn concerns(&self, i: &Instance) -> bool {
        let first = || i.armed().iter().find(|a| a.after.is_some());
        self.after.is_none_or(|after| {
            i.incarnation() > after && first().is_some_and(|first| first.number == self.number)
        })
    }

    /// Whether its moment has come. `pulled`: what came of the pull under way.
    fn is_due(&self, i: &Instance, pulled: Option<(u64, u64)>) -> bool {
        self.at.is_some_and(|at| at.reached(i.phase(), pulled))
    }
}

/// Faults wait and are disarmed through this: they lie with the instances that they are to strike.
pub(in crate::core) struct Armory<'a> {
    /// What it is given.
    pub cx: Cx<'a>,
    /// For whom.
    pub roster: &'a mut Roster,
    /// The number of the next one.
    pub next: &'a mut u64,
}

impl Armory<'_> {
    /// Lets a fault wait for its moment, or hands it to the role.
    pub fn arm(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        fault: Fault,
        at: Option<At>,
    ) -> Result<Reply, Refusal> {
        let number = *self.next;
        let armed = Armed {
            number,
            fault,
            at,
            since: self.cx.now,
            after: at.filter(|at| at.is_start_up()).map(|_| incarnation),
        };
        let Some(i) = self.roster.get_mut(id) else {
            return Err(Refusal::NotArmed { number });
        };
        // Of one for a later life there may be several, for a life each.
        let of_this_life = |a: &Armed| a.after.is_none();
        let same = |a: &&Armed| of_this_life(a) && (&a.fault, a.at) == (&armed.fault, at);
        if let Some(there) = i.armed().iter().find(same).filter(|_| of_this_life(&armed)) {
            let what = format!(
                "`{}` is armed for {id} already: {}",
                there.fault, there.number
            );
            return Err(Refusal::AlreadyThere { what });
        }
        if i.armed().len() >= MOST {
            let what = format!("{id} has {MOST} armed faults already; disarm some");
            return Err(Refusal::AlreadyThere { what });
        }
        i.armed_mut().push(armed.clone());
        *self.next += 1;
        self.record_armed(id, number, true);
        let when = at.map_or_else(|| "now".to_owned(), |at| format!("at `{at}`"));
        let life = armed.after.is_none().then_some(incarnation);
        let whom = life.map_or_else(|| "a later life".to_owned(), |life| life.to_string());
        let text = format!("`{}` waits for {id} {whom}: {when} ({number})", armed.fault);
        self.cx.event(Severity::Warn, "inject", Some(id), text);
        if life.is_some() && armed.is_carried() {
            self.hand_over(incarnation, &armed);
        }
        Ok(Reply::Armed {
            id,
            life,
            number,
            at,
        })
    }

    fn record_armed(&mut self, id: InstanceId, number: u64, armed: bool) {
        let record = Record::Armed { id, number, armed };
        self.cx.out.record(record);
    }

    fn hand_over(&mut self, incarnation: Incarnation, armed: &Armed) {
        let peer = armed
            .fault
            .peer()
            .and_then(|p| self.roster.instances().get(p));
        self.cx.out.push(Output::Carry {
            incarnation,
            number: armed.number,
            fault: armed.fault.clone(),
            at: armed.at,
            peer: peer.map(|p| p.incarnation()),
        });
    }

    /// The role linked: it may have lost what it was told.
    pub fn hand_over_again(&mut self, current: Current) {
        self.hand_on(current);
        let armed = self.roster.instances().of(current).armed().to_vec();
        for armed in armed.iter().filter(|a| a.is_carried() && a.after.is_none()) {
            self.hand_over(current.incarnation, armed);
        }
    }

    /// What a role does to itself in its start-up becomes this life's.
    fn hand_on(&mut self, current: Current) {
        let Current {
            id, incarnation, ..
        } = current;
        let i = self.roster.instances().of(current);
        let mine = |a: &&Armed| a.after.is_some() && a.is_carried() && a.concerns(i);
        let Some(number) = i.armed().iter().find(mine).map(|a| a.number) else {
            return;
        };
        let mut armed = self.roster.of_mut(current).armed_mut().iter_mut();
        if let Some(armed) = armed.find(|a| a.number == number) {
            armed.after = None;
        }
        self.leave_to_next(id, incarnation);
        self.record_armed(id, number, true);
    }

    /// One strikes this life's start-up: the others wait for later ones.
    fn leave_to_next(&mut self, id: InstanceId, incarnation: Incarnation) {
        let armed = self.roster.get_mut(id).map(Instance::armed_mut);
        for armed in armed.into_iter().flatten() {
            armed.after = armed.after.map(|_| incarnation);
        }
    }

    /// What waits for where the instance is. `pulled`: what came of the pull under way.
    pub fn due(&self, current: Current, pulled: Option<(u64, u64)>) -> Vec<Armed> {
        let i = self.roster.instances().of(current);
        if i.condemned().is_some() {
            return Vec::new();
        }
        let due = |a: &&Armed| !a.is_carried() && a.concerns(i) && a.is_due(i, pulled);
        i.armed().iter().filter(due).cloned().collect()
    }

    /// It strikes now.
    pub fn spend(&mut self, current: Current, armed: &Armed) {
        let Current {
            id, incarnation, ..
        } = current;
        self.take_armed(id, armed.number);
        if armed.after.is_some() {
            self.leave_to_next(id, incarnation);
        }
    }

    /// It waits no more.
    pub fn take_armed(&mut self, id: InstanceId, number: u64) -> Option<Armed> {
        let i = self.roster.get_mut(id)?;
        let at = i.armed().iter().position(|a| a.number == number)?;
        let armed = i.armed_mut().remove(at);
        self.record_armed(id, number, false);
        Some(armed)
    }

    /// A life is over, and with it what waited for it.
    pub fn disarm_dead(&mut self, id: InstanceId, old: Incarnation) {
        let Some(i) = self.roster.get_mut(id) else {
            return;
        };
        if i.incarnation() != old {
            return;
        }
        let of_life = i.armed_mut().extract_if(.., |a| a.after.is_none());
        for armed in of_life.collect::<Vec<_>>() {
            // One that the role was doing may well be what ended it.
            let text = match armed.at {
                Some(_) => format!("`{}` is disarmed: {id} {old} is over", armed.fault),
                None => continue,
            };
            self.cx.event(Severity::Info, "inject", Some(id), text);
        }
    }

    /// No life comes here any more: what waited for one is gone.
    pub fn disarm_place(&mut self, id: InstanceId, why: &str) {
        let place = self.roster.get_mut(id);
        let later = place.map(|i| i.armed_mut().extract_if(.., |a| a.after.is_some()));
        for armed in later.into_iter().flatten().collect::<Vec<_>>() {
            self.record_armed(id, armed.number, false);
            let text = format!("`{}` for {id} is disarmed: {why}", armed.fault);
            self.cx.event(Severity::Info, "inject", Some(id), text);
        }
    }

    /// The same, of the whole job.
    pub fn disarm_places(&mut self, why: &str) {
        let waits = |i: &&Instance| i.armed().iter().any(|a| a.after.is_some());
        let ids = self.roster.instances().iter().filter(waits).map(|i| i.id());
        for id in ids.collect::<Vec<_>>() {
            self.disarm_place(id, why);
        }
    }

    /// One fault, or all, shall not strike any more.
    pub fn disarm(&mut self, number: Option<u64>) -> Result<Reply, Refusal> {
        let found = check_disarm(self.roster.instances(), number)?;
        for on in &found {
            self.take_armed(on.id, on.armed.number);
            let told = on.armed.is_carried() && on.armed.after.is_none();
            if let Some(incarnation) = on.life.filter(|_| told) {
                self.cx.out.push(Output::TakeBack {
                    incarnation,
                    number: on.armed.number,
                });
            }
            let text = format!("`{}` is disarmed on request", on.armed.fault);
            self.cx.event(Severity::Info, "inject", Some(on.id), text);
        }
        Ok(Reply::Disarmed { faults: found })
    }
}

/// Those of which one, or all, are to be disarmed.
fn check_disarm(instances: &Instances, number: Option<u64>) -> Result<Vec<ArmedOn>, Refusal> {
    let wanted = |on: &ArmedOn| number.is_none_or(|n| on.armed.number == n);
    let found: Vec<ArmedOn> = all_armed(instances).into_iter().filter(wanted).collect();
    match number.filter(|_| found.is_empty()) {
        Some(number) => Err(Refusal::NotArmed { number }),
        None => Ok(found),
    }
}

/// Everything that waits, in the order it was asked for.
pub(in crate::core) fn all_armed(instances: &Instances) -> Vec<ArmedOn> {
    let each = instances.iter().flat_map(|i| {
        let waits = |a: &&Armed| a.after.is_some() || i.has_process();
        let on = |armed: &Armed| ArmedOn {
            id: i.id(),
            life: (i.has_process() && armed.concerns(i)).then_some(i.incarnation()),
            armed: armed.clone(),
        };
        i.armed().iter().filter(waits).map(on)
    });
    let mut all: Vec<ArmedOn> = each.collect();
    all.sort_by_key(|on| on.armed.number);
    all
}
