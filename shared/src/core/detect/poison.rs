//! Poison: a trajectory that takes engines along. One token id outside the vocabulary ends an engine
//! that does not look; whoever gets the request next ends too, until all of them used up their budget.
//!
//! ```text
//!  engine dies ── requests in flight? ── no ──► nothing of this rule
//!                        │ yes
//!      one trajectory was on this and `engines` - 1 dead before, and no other on all of those?
//!      or one was on this of whose prompt a trajectory was set aside before?
//!                        │ no ──► the death is remembered, with all that was in flight
//!                        │ yes
//!                        ▼
//!  set aside: never handed out again, left out of its step; the deaths count against no budget
//! ```
//! Trajectories that were on two dead engines are not given to one together, nor with others of prompts
//! that were on two: where all responses to a prompt kill engines, whoever was with one of them here and
//! with another there would be blamed. An engine that broke a request off counts as dead for that until
//! one knows: the verdict comes up to seconds after the streams broke, and by then those that ask again
//! would have been given to the next engine together, or to the dead one, which has the fewest requests. A
//! suspect waits for that verdict. One of which a request ended well since may be together with others
//! like it, but with no suspect.
//!
//! The responses to one prompt begin with the same tokens, so where one of them kills engines mostly all of
//! them do. From the first that is set aside on the others are kept apart, too, until a request of theirs
//! ends well, and with each further death that one of them is on one of them is set aside. Each of those
//! restarts is free of charge because a trajectory goes with it, of which there are finitely many (I-7).
//!
//! A life counts, not a place: the only replica that dies twice is two. A death counts when the rule
//! that found it saw the engine fail by itself (exit, rollout silent, health probe); one that was
//! injected, that its weights, hardware or a node explains, or that followed from a restart of others does
//! not.
//! In flight is what the engine was given and did not end, by the table of routes at the verdict, and
//! what agent workers said to be broken off a moment before: their streams end before anybody can say
//! that the process did. Whoever takes the daemon over does not know what an engine was given before,
//! so its death says nothing until it was once seen without requests.
//!
//! An infrastructure failure is no reward of zero: a trajectory that is set aside has no loss and no
//! part in its group's mean. Its step trains on the rest of the batch, and consumes it with that. A
//! batch of which nothing is left fails the job: no restart can help.
use super::{ForAll, Rule, Setting, Verdict, exit, health_probe, rollout_silent, settings};
use crate::core::effects::Cx;
use crate::core::output::{Output, Record, Severity};
use crate::core::recover::deaths::{Culprit, Death, InFlight, Taken};
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Instances;
use crate::core::state::State;
use crate::core::work::Work;
use crate::core::work::trajectories::Place;
use crate::core::{Core, CoreConfig, Mutation};
use crate::ids::{IncidentId, Role, TrajectoryId};
use crate::time::Time;
use std::time::Duration;

/// A trajectory that takes engines along.
pub const RULE: Rule = Rule {
    name: "poison",
    roles: &[Role::Hybrid, Role::Rollout],
    phases: &[],
    signal: "a trajectory was in flight on `engines` engines when they died, and no other was on all \
             of those; or on one, and another of its prompt was set aside before",
    action: "it is set aside and left out of its step; the deaths count against no budget",
    kind: None,
    event: Some("poison"),
    watch: None,
};

settings! {
    /// What a job file may set of it.
    pub struct Poison {
        /// Engines that one trajectory may take along; 0: any number. What a job says of its own engines is
        /// in `rollout.command.poison`.
        pub engines: ForAll<u32> = Setting::number("engines", 0.0, 0.0, 1000.0),
    }
}

/// An agent worker hears of the end of an engine before the controller does: the shim has its
/// processes to end and to look after before it ends itself.
pub(in crate::core) const BROKEN_OFF: Duration = Duration::from_secs(5);

/// What an engine's death says of what was in flight on it.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct Blame {
    /// How the engine ended.
    how: String,
    in_flight: InFlight,
    /// Who is to blame, and for which deaths before.
    culprit: Option<(Culprit, Vec<Death>)>,
}

impl Blame {
    /// Whether the engine is not to blame.
    pub fn is_found(&self) -> bool {
        self.culprit.is_some()
    }
}

impl CoreConfig {
    /// Engines that one trajectory may take along; 0: any number.
    pub fn poison_after(&self) -> usize {
        match self.rules.is_off(&RULE) {
            true => 0,
            false => self.rules.poison.engines.get() as usize,
        }
    }
}

impl Core {
    /// Looks at who was in flight on an engine that died. Whoever is to blame is named in the verdict,
    /// and the engines that died before have their strikes back.
    pub(in crate::core) fn blame(&mut self, verdict: &mut Verdict) -> Blame {
        let engines = self.config.poison_after();
        if engines == 0 || !fails_by_itself(self.s.roster.instances(), verdict) {
            return Blame::default();
        }
        let in_flight = died_with(&self.s, verdict, self.now);
        let live = |id: TrajectoryId| {
            let place = self.s.work.requests.table().get(id).map(|t| t.place);
            matches!(place, Some(Place::Pending(_) | Place::Leased(_)))
        };
        let enough = match self.config.mutant(Mutation::PoisonTakesInnocent) {
            true => 1,
            false => engines,
        };
        let Some(culprit) = self.s.recover.deaths.culprit(&in_flight, enough, live) else {
            let how = verdict.reason.clone();
            return Blame {
                how,
                in_flight,
                culprit: None,
            };
        };
        let id = culprit.id;
        let before = self.s.recover.deaths.charge(id);
        for death in &before {
            let (kind, at) = (death.kind, death.engine.at);
            if let Some(i) = self.s.roster.get_mut(death.engine.who) {
                i.take_back(kind, death.cause, at);
            }
            let incident = death.engine.incident;
            self.s.recover.is_innocent(incident);
            self.s.roster.nodes_mut().take_back_fault(incident);
        }
        let how = verdict.reason.clone();
        verdict.reason += &format!("; trajectory {id} was in flight{}", as_on(&before));
        Blame {
            how,
            in_flight,
            culprit: Some((culprit, before)),
        }
    }

    /// What follows from it, once the death has its incident.
    pub(in crate::core) fn settle(
        &mut self,
        blame: Blame,
        verdict: &Verdict,
        incident: IncidentId,
    ) {
        let Some(i) = self.s.roster.instances().get(verdict.who) else {
            return;
        };
        let last = Taken {
            who: verdict.who,
            incarnation: i.incarnation(),
            at: self.now,
            how: blame.how,
            incident,
        };
        let Blame {
            in_flight, culprit, ..
        } = blame;
        match culprit {
            Some((culprit, before)) => {
                let (work, mut cx) = self.work();
                set_aside(&mut cx, work, culprit, &before, last);
            }
            None if in_flight != InFlight::default() => {
                let cause = verdict.cause.as_ref().map(|cause| cause.fingerprint);
                let death = Death::new(last, verdict.kind, cause, in_flight);
                let engines = self.config.poison_after();
                self.s.recover.deaths.add(death, engines);
            }
            None => {}
        }
    }
}

/// Whether the engine failed, and nothing but its requests is known to explain that.
fn fails_by_itself(instances: &Instances, verdict: &Verdict) -> bool {
    let rules = [&exit::RULE, &rollout_silent::RULE, &health_probe::RULE];
    let engine = instances.get(verdict.who);
    let struck = engine.is_none_or(|i| i.struck().is_some());
    verdict.who.role.is_engine() && rules.contains(&verdict.rule) && !struck && !verdict.explained
}

/// What was in flight on it when it died.
fn died_with(s: &State, verdict: &Verdict, now: Time) -> InFlight {
    let since = verdict.exited.unwrap_or(now) - BROKEN_OFF;
    let engine = s.roster.instances().get(verdict.who);
    let life = engine.map(Instance::incarnation);
    let given = life.and_then(|life| s.work.rollouts.in_flight(life, since));
    given.into_iter().flatten().collect()
}

/// It is handed out no more, and its step does without it.
fn set_aside(cx: &mut Cx<'_>, work: &mut Work, culprit: Culprit, before: &[Death], last: Taken) {
    if cx.config.mutant(Mutation::PoisonIgnored) {
        return;
    }
    let Culprit { id, for_prompt } = culprit;
    let who = last.who;
    let why = match for_prompt {
        true => "and another of its prompt was set aside before",
        false => "and no other was on all of them",
    };
    let text = format!(
        "{who} {} died with trajectory {id} in flight{}, {why}: it is set aside, step {} trains without \
         it, and the deaths count against no engine",
        last.incarnation,
        as_on(before),
        id.batch
    );
    let holder = work.requests.set_aside(id, cx.now, &text);
    let engines = before.iter().map(|d| d.engine.clone());
    cx.out.push(Output::Record(Record::SetAside {
        trajectory: id,
        engines: engines.chain([last]).collect(),
    }));
    if let Some(agent) = holder {
        cx.out.push(Output::Revoke {
            agent,
            trajectory: id,
        });
    }
    cx.event(Severity::Fault, "poison", Some(who), text);
}

/// The engines that died before, in words.
fn as_on(before: &[Death]) -> String {
    let one = |death: &Death| {
        let Taken {
            who,
            incarnation,
            how,
            ..
        } = &death.engine;
        format!("{who} {incarnation} ({how})")
    };
    let all: Vec<String> = before.iter().map(one).collect();
    match all.is_empty() {
        true => String::new(),
        false => format!(", as it was when these died: {}", all.join(", ")),
    }
}
