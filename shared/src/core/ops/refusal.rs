//! What operators' requests are answered with.
use crate::core::input::RestartTarget;
use crate::core::ops::armed::ArmedOn;
use crate::core::ops::pause::PauseView;
use crate::core::roster::nodes::SlotRef;
use crate::fault::{At, Kind};
use crate::ids::{Incarnation, InstanceId, Role};
use crate::job::Mode;
use crate::verbs;
use serde::{Deserialize, Serialize};

/// How the words of [`Refusal::Busy`] end: by them a `robustctl` knows one that is worth asking for again.
pub const UNDER_WAY: &str = "is under way; try again when it is over";

/// What a request led to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// A fault strikes this life.
    Struck {
        /// Place.
        id: InstanceId,
        /// Which life.
        incarnation: Incarnation,
        /// The slot that is lost with it.
        slot: Option<SlotRef>,
    },
    /// A fault waits for its moment, or for the role to do it.
    Armed {
        /// Place.
        id: InstanceId,
        /// The only life it may strike; none: one that is still to come.
        life: Option<Incarnation>,
        /// Its number.
        number: u64,
        /// Its moment.
        at: Option<At>,
    },
    /// Faults do not wait any more.
    Disarmed {
        /// Which.
        faults: Vec<ArmedOn>,
    },
    /// A fault strikes a node or the leader.
    Afflicted {
        /// The node's name.
        node: String,
    },
    /// A slot is there again.
    SlotRestored {
        /// Which.
        slot: SlotRef,
    },
    /// The job gets this many instances of a role.
    Scaled {
        /// Which role.
        role: Role,
        /// How many it had.
        from: u32,
        /// How many it gets.
        to: u32,
        /// When, in words.
        when: String,
    },
    /// A role is restarted with new values.
    Updated {
        /// Which role.
        role: Role,
        /// The job file's revision.
        revision: u32,
        /// When, in words.
        when: String,
    },
    /// An engine gets no traffic any more, or again.
    Quarantined {
        /// Which.
        id: InstanceId,
        /// Whether it is out.
        out: bool,
    },
    /// Nothing is begun beyond a step, or again.
    Paused {
        /// From now on; none: the job goes on.
        pause: Option<PauseView>,
        /// When nothing runs any more, in words.
        when: String,
    },
    /// Processes are replaced.
    Restarting {
        /// Whose.
        target: RestartTarget,
        /// When, in words.
        when: String,
    },
    /// Nothing new is started on a node any more, or again.
    Cordoned {
        /// Its name.
        node: String,
        /// Whether it is out.
        out: bool,
    },
}

impl Reply {
    /// It in words; none: of a fault its incident says more.
    pub fn words(&self) -> Option<String> {
        Some(match self {
            Reply::Restarting { target, when } => {
                format!("restart {target}, {when}; no fault is counted")
            }
            Reply::Scaled {
                role,
                from,
                to,
                when,
            } => format!("{role} goes from {from} to {to}, {when}"),
            Reply::Updated { role, when, .. } => format!("restart {role} with new values, {when}"),
            Reply::Quarantined { id, out: true } => verbs::quarantine::DONE.say([&id.to_string()]),
            Reply::Quarantined { id, out: false } => verbs::readmit::DONE.say([&id.to_string()]),
            Reply::Paused {
                pause: Some(_),
                when,
            } => format!("nothing runs any more {when}"),
            Reply::Paused { pause: None, when } => format!("the job goes on {when}"),
            Reply::Cordoned { node, out: true } => verbs::cordon::DONE.say([node]),
            Reply::Cordoned { node, out: false } => verbs::uncordon::DONE.say([node]),
            Reply::SlotRestored { .. } => "the slot may be used again".to_owned(),
            Reply::Struck { .. }
            | Reply::Armed { .. }
            | Reply::Disarmed { .. }
            | Reply::Afflicted { .. } => return None,
        })
    }
}

/// Why a request was refused, and what to do instead. The job is as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// No such instance.
    #[error("{}", no_place(*role, *index, *count))]
    UnknownIndex {
        /// The role asked for.
        role: Role,
        /// The index asked for.
        index: u32,
        /// How many the job has.
        count: u32,
    },
    /// It is not running.
    #[error("{id} is not running ({state}); try again when it is")]
    NotRunning {
        /// Whom.
        id: InstanceId,
        /// Its state.
        state: String,
    },
    /// It is on its way out.
    #[error("{id} is being scaled away and has no later life; name another instance")]
    NoLaterLife {
        /// Whom.
        id: InstanceId,
    },
    /// Another life runs there by now.
    #[error(
        "{id} was restarted since you looked (life {now}, you named {asked}); nothing was struck. Name \
         `--incarnation {}`, or leave it out",
        now.0
    )]
    OtherLife {
        /// Whom.
        id: InstanceId,
        /// The life asked for.
        asked: Incarnation,
        /// The present one.
        now: Incarnation,
    },
    /// The job is over or ending.
    #[error("the job is {state}; nothing can be asked of it{}", instead(state))]
    JobOver {
        /// Its state.
        state: String,
    },
    /// Fewer than the role may have.
    #[error(
        "{role} cannot be {count}: its minimum is {min}; ask for at least {min} or lower `{role}.min`"
    )]
    BelowMinimum {
        /// The role.
        role: Role,
        /// What was asked for.
        count: u32,
        /// Its minimum.
        min: u32,
    },
    /// More than the role may have.
    #[error(
        "{role} cannot be {count}: its maximum is {max}; ask for at most {max} or raise `{role}.max`"
    )]
    AboveMaximum {
        /// The role.
        role: Role,
        /// What was asked for.
        count: u32,
        /// Its maximum.
        max: u32,
    },
    /// Ranks that do not divide a batch.
    #[error(
        "{count} ranks do not divide the {samples} samples of a step; ask for one of {}",
        numbers(fits)
    )]
    NotDivisible {
        /// What was asked for.
        count: u32,
        /// Samples of a step.
        samples: u64,
        /// What would fit, nearest first.
        fits: Vec<u32>,
    },
    /// No slot is free.
    #[error(
        "{role} needs {missing} more free slots of pool `{pool}` and no node has them ({has}); add a node, restore a slot or scale down a role of that pool"
    )]
    NoSlot {
        /// The role.
        role: Role,
        /// Its pool.
        pool: String,
        /// How many are missing.
        missing: u32,
        /// What each node has, in words.
        has: String,
    },
    /// The fault does not befall this role.
    #[error("`{kind}` does not befall a {role}; it befalls {}", names(kind.roles()))]
    NotForRole {
        /// The fault.
        kind: Kind,
        /// The role asked for.
        role: Role,
    },
    /// The fault strikes no instance, or nothing else.
    #[error("`{kind}` strikes {strikes}")]
    WrongTarget {
        /// The fault.
        kind: Kind,
        /// What it does strike, in words.
        strikes: String,
    },
    /// The moment never comes.
    #[error("{why}")]
    NotItsMoment {
        /// Why.
        why: String,
    },
    /// The instance that the fault is about too is not one that it can be about.
    #[error("there is no connection between {id} and {peer} to disturb: {why}")]
    NotAPeer {
        /// Whom.
        id: InstanceId,
        /// The other one.
        peer: InstanceId,
        /// Why.
        why: String,
    },
    /// No fault of this number waits.
    #[error("no fault {number} is armed; `robustctl status` shows those that are")]
    NotArmed {
        /// The number asked for.
        number: u64,
    },
    /// Nobody would generate any more.
    #[error(
        "{id} is the only engine that serves now; quarantining it would stop all generation. Wait until another one \
         serves (`robustctl roles`), or add one with `robustctl scale rollout {}`",
        rollouts.saturating_add(1)
    )]
    LastRollout {
        /// Whom.
        id: InstanceId,
        /// How many rollouts the job is to have.
        #[serde(default)]
        rollouts: u32,
    },
    /// The job's mode has no use for it.
    #[error("this is not possible in {} mode: {why}", mode.name())]
    WrongMode {
        /// The mode.
        mode: Mode,
        /// Why, and what to do.
        why: String,
    },
    /// The role has no use for it.
    #[error("{why}")]
    WrongRole {
        /// The role.
        role: Role,
        /// Why, and what to do, as a sentence.
        why: String,
    },
    /// No such node.
    #[error("there is no node `{node}`; {instead}")]
    UnknownNode {
        /// The name asked for.
        node: String,
        /// What may have been meant.
        instead: String,
    },
    /// No such slot.
    #[error("node `{node}` has no slot {index} of pool `{pool}`; it has {has}")]
    UnknownSlot {
        /// The node's name.
        node: String,
        /// The pool asked for.
        pool: String,
        /// The slot asked for.
        index: u32,
        /// What it has, in words.
        has: String,
    },
    /// It is as it shall be.
    #[error("nothing to do: {what}")]
    AlreadyThere {
        /// What is so already.
        what: String,
    },
    /// Something else is under way that it would disturb.
    #[error("{what} {}", UNDER_WAY)]
    Busy {
        /// What.
        what: String,
    },
    /// New values that the job cannot have.
    #[error("{problem}")]
    BadValue {
        /// Which, and what to do.
        problem: String,
    },
}

/// What the job has of a role in which somebody named a place that is not there.
fn no_place(role: Role, index: u32, count: u32) -> String {
    match count.checked_sub(1) {
        Some(last) => format!("there is no {role} {index}; the job has {count} (0 to {last})"),
        None => format!("this job has no {role}"),
    }
}

/// What to do where a job in such a state cannot be asked for anything.
fn instead(state: &str) -> &'static str {
    match state {
        "not started" | "starting" => "; try again when it runs",
        "completed" | "stopped" | "failed" => "; to read it, `robustd --inspect --state-dir DIR`",
        // It is read already, by a daemon that runs nothing of it.
        _ => "",
    }
}

/// "trainer, rollout"
fn names(roles: &[Role]) -> String {
    let names: Vec<&str> = roles.iter().map(|r| r.name()).collect();
    names.join(", ")
}

/// "4, 2 or 1"
fn numbers(numbers: &[u32]) -> String {
    let words: Vec<String> = numbers.iter().map(u32::to_string).collect();
    match words.split_last() {
        Some((only, [])) => only.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A `robustctl` of another build looks for these very words.
    #[test]
    fn what_is_refused_for_the_sake_of_something_under_way_ends_so() {
        let what = "a restart of rollout".to_owned();
        let said = Refusal::Busy { what }.to_string();
        let expected = "a restart of rollout is under way; try again when it is over";
        assert_eq!(said, expected);
        assert!(said.ends_with(UNDER_WAY));
    }
}
