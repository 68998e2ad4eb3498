//! Evidence of a hang: of everybody who may be part of it, in one pass, before anything of it is killed.
//!
//! ```text
//!            CollectEvidence to each           all answered, or the deadline
//!  verdict ─────────────────────────► asked ──────────────────────────────────► root named ─► kill
//!                                       └── a rank ends, gives up, or is lost: as far as it came ──┘
//! ```
//! The gang hangs as a whole: whichever rank the rule named, all of them are looked at, and of those that
//! they may wait for what can be had without a stop (nobody who is not killed is held up, I-8). There is one
//! deadline, the same for one and for all. An answer that comes twice or late changes nothing, one of an
//! older incarnation is fenced at the door, and what a daemon that is gone had asked for is heard by nobody.
use crate::core::Core;
use crate::core::output::{Output, Severity};
use crate::core::recover::incident::Incident;
use crate::core::recover::root::{Root, root};
use crate::core::recover::testimony::{Answer, ProcessState, Seen, Testimony};
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Current;
use crate::core::{Mutation, work::routes::Asker};
use crate::ids::{Incarnation, IncidentId, InstanceId, Role};
use std::collections::BTreeSet;

/// Bytes of all stacks of an incident: every status carries the newest incidents.
const TEXT_BYTES: usize = 96 * 1024;
/// Of one whose place is like no other's so much is kept when that is used up.
const ODD_BYTES: usize = 1024;
/// Processes whose testimony is kept when the root is named.
const KEPT: usize = 64;

impl Core {
    /// Asks for the evidence of everybody who may be part of the hang.
    pub(in crate::core) fn ask_for_evidence(&mut self, who: InstanceId, incident: IncidentId) {
        let accused = self.accused(who);
        let awaited = self.awaited_by(who);
        let asked = accused.into_iter().map(|id| (id, false));
        let asked: Vec<_> = asked
            .chain(awaited.into_iter().map(|id| (id, true)))
            .collect();
        let found = asked.iter().filter_map(|(id, _)| self.s.instances.get(*id));
        let testimony = found.map(|i| self.unanswered(i)).collect::<Vec<_>>();
        for (of, (_, gently)) in testimony.iter().zip(&asked) {
            self.out.push(Output::CollectEvidence {
                incarnation: of.incarnation,
                incident,
                gently: *gently,
            });
        }
        if let Some(incident) = self.incident_mut(incident) {
            incident.testimony = testimony;
        }
    }

    /// Whoever hangs with it: of a rank the whole gang.
    fn accused(&self, who: InstanceId) -> Vec<InstanceId> {
        let ranks = self.s.instances.role(Role::Trainer);
        match who.role {
            Role::Trainer => ranks.filter(|i| i.was_attached()).map(|i| i.id).collect(),
            Role::Hybrid | Role::Rollout | Role::Agent => vec![who],
        }
    }

    /// Whom it may wait for, as far as that is known here.
    fn awaited_by(&self, who: InstanceId) -> Vec<InstanceId> {
        let Some(hung) = self.s.instances.get(who) else {
            return Vec::new();
        };
        let engines = match who.role {
            // A loop of its own asks the engines through the router.
            Role::Trainer if self.config.own_loop.is_some() => {
                let routes = self.s.work.rollouts.table();
                routes.engines_of(|asker| matches!(asker, Asker::Client { .. }))
            }
            Role::Agent => self.s.work.rollouts.table().engines_of(
                |asker| matches!(asker, Asker::Agent { agent, .. } if *agent == hung.incarnation),
            ),
            // The others of the same switch: an engine over several slots switches as a whole.
            Role::Hybrid if hung.turn.waits_since().is_some() => {
                let hybrids = self.s.instances.role(Role::Hybrid);
                let told = hybrids.filter(|i| i.turn.waits_since().is_some());
                told.map(|i| i.incarnation).collect()
            }
            Role::Trainer | Role::Hybrid | Role::Rollout => BTreeSet::new(),
        };
        let there = |life: &Incarnation| self.s.instances.life(*life);
        let there = engines
            .iter()
            .filter_map(there)
            .filter(|i| i.was_attached());
        there.map(|i| i.id).filter(|id| *id != who).collect()
    }

    fn unanswered(&self, i: &Instance) -> Testimony {
        let node = i.slot.as_ref().and_then(|slot| self.node(slot.node));
        Testimony {
            who: i.id,
            incarnation: i.incarnation,
            node: node.map(|node| node.name.clone()).unwrap_or_default(),
            phase: i.phase,
            step: i.phase_step,
            answer: Answer::Awaited,
            text: String::new(),
        }
    }

    /// What was found of one process. Whoever asked for it has it, and its hang goes on to its end when
    /// nobody else is waited for.
    pub(in crate::core) fn on_evidence(&mut self, current: Current, text: &str, seen: &Seen) {
        let now = self.now;
        let asked = |id: IncidentId| self.s.incidents.get(id);
        let awaits = |i: &Incident| i.testimony.iter().any(|t| t.awaits(current.incarnation));
        let recoveries = self.s.recoveries.iter();
        let waiting = recoveries.filter(|r| asked(r.incident).is_some_and(awaits));
        let waiting: Vec<_> = waiting.map(|r| (r.incident, r.who)).collect();
        for (id, who) in waiting {
            let Some(incident) = self.incident_mut(id) else {
                continue;
            };
            incident.testify(current.incarnation, text, seen.clone());
            let whole = incident
                .testimony
                .iter()
                .all(|t| t.answer != Answer::Awaited);
            let hung = self
                .s
                .instances
                .get_mut(who)
                .and_then(|i| i.condemned.as_mut());
            if let Some(condemned) = hung.filter(|c| c.incident == id && whole) {
                condemned.until = condemned.until.min(now);
            }
        }
    }

    /// The evidence is in, as far as it is waited for. `late`: what is missing had its time.
    pub(in crate::core) fn conclude(&mut self, id: IncidentId, late: bool) {
        let ignored = self.config.mutant(Mutation::RootIgnored);
        // Of one that was replaced meanwhile nobody could answer.
        let asked = self.s.incidents.get(id).map(|i| i.testimony.as_slice());
        let asked = asked.into_iter().flatten().map(|t| t.incarnation);
        let there = |life: &Incarnation| self.s.instances.life(*life).is_some();
        let there: BTreeSet<_> = asked.filter(there).collect();
        let Some(incident) = self.incident_mut(id).filter(|i| !i.testimony.is_empty()) else {
            return;
        };
        for of in incident
            .testimony
            .iter_mut()
            .filter(|t| t.answer == Answer::Awaited)
        {
            of.answer = match late && there.contains(&of.incarnation) {
                true => Answer::Late,
                false => Answer::Unheard,
            };
        }
        let role = incident.who.role;
        let (ranks, others): (Vec<_>, Vec<_>) = incident
            .testimony
            .iter()
            .cloned()
            .partition(|t| t.who.role == role);
        let found = match role {
            Role::Trainer => root(&ranks, &others),
            _ => {
                let (own, peers): (Vec<_>, Vec<_>) =
                    ranks.into_iter().partition(|t| t.who == incident.who);
                root(&own, &[peers, others].concat())
            }
        };
        incident.put_together(&found);
        // A rank stands for another; whoever is of another role is said to be the root, no more.
        let rank = found
            .one()
            .filter(|(who, _)| who.role == role && role == Role::Trainer);
        if let Some((who, life)) = rank.filter(|(who, _)| *who != incident.who && !ignored) {
            incident.judged = Some(incident.who);
            (incident.who, incident.incarnation) = (who, life);
        }
        let about = incident.who;
        let text = format!("incident {id}, {}: {found}", incident.rule);
        incident.root = Some(found);
        self.event(Severity::Warn, "root", Some(about), text);
    }

    /// Whoever had asked for evidence is gone: nothing more of it comes.
    pub(in crate::core) fn evidence_is_lost(&mut self) {
        for recovery in &self.s.recoveries.to_vec() {
            let asked = self.s.incidents.get(recovery.incident);
            let waits =
                asked.is_some_and(|i| i.testimony.iter().any(|t| t.answer == Answer::Awaited));
            let incident = waits
                .then(|| self.incident_mut(recovery.incident))
                .flatten();
            for of in incident.into_iter().flat_map(|i| &mut i.testimony) {
                if of.answer == Answer::Awaited {
                    of.answer = Answer::Unheard;
                }
            }
        }
    }

    /// The incident of a hang that comes from this very life of an instance, which failed since.
    pub(in crate::core) fn rooted_in(&self, who: InstanceId) -> Option<IncidentId> {
        let life = self.s.instances.get(who)?.incarnation;
        let of = |i: &&Incident| {
            let root = i.root.as_ref().and_then(Root::one);
            root == Some((who, life)) && i.incarnation != life
        };
        self.s.incidents.iter().rev().find(of).map(|i| i.id)
    }
}

impl Testimony {
    fn awaits(&self, life: Incarnation) -> bool {
        self.incarnation == life && self.answer == Answer::Awaited
    }
}

impl Incident {
    fn testify(&mut self, life: Incarnation, text: &str, seen: Seen) {
        let (used, count) = self
            .testimony
            .iter()
            .fold((0, 0), |(used, count), t| (used + t.text.len(), count + 1));
        let share = TEXT_BYTES / count.max(1);
        let at = self.testimony.iter().position(|t| t.awaits(life));
        let Some(at) = at else { return };
        self.testimony[at].answer = Answer::Seen(seen.telling());
        let place = self.testimony[at].place();
        let like = |t: &Testimony| !t.text.is_empty() && t.place() == place;
        let odd = !self.testimony.iter().any(like)
            || self.testimony[at].state() != Some(ProcessState::Lives);
        let room = TEXT_BYTES.saturating_sub(used).min(share.max(ODD_BYTES));
        let room = if odd { room.max(ODD_BYTES) } else { room };
        self.testimony[at].text = cut(text, room);
    }

    /// All stacks, whoever is the root first; alone, it needs no heading.
    fn put_together(&mut self, root: &Root) {
        let alone = self.testimony.len() == 1;
        let first = root.one().map(|(who, _)| who);
        let suspect = |t: &Testimony| match root {
            Root::Several { who, .. } => who.contains(&t.who),
            _ => first == Some(t.who),
        };
        self.testimony.sort_by_key(|t| (!suspect(t), t.who));
        let mut text = match alone {
            true => String::new(),
            false => format!("root: {root}\n"),
        };
        for of in &mut self.testimony {
            let said = std::mem::take(&mut of.text);
            if alone {
                text += &said;
            } else {
                let (of, end) = (of.to_string(), if said.ends_with('\n') { "" } else { "\n" });
                text += &format!("\n== {of}\n{said}{end}");
            }
        }
        self.evidence = text;
        self.testimony.truncate(KEPT);
    }
}

/// The beginning of a text, in whole characters.
fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at));
    format!("{}\n(cut)\n", &text[..end.unwrap_or(0)])
}
