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
use super::{Recover, Recovery};
use crate::core::effects::{Cx, Effects};
use crate::core::mutation::Mutation;
use crate::core::output::{Output, Severity};
use crate::core::recover::incident::Incident;
use crate::core::recover::root::{Root, root};
use crate::core::recover::testimony::{Answer, ProcessState, Seen, Testimony};
use crate::core::roster::instances::Instances;
use crate::ids::{Incarnation, IncidentId, InstanceId, Role};

/// Bytes of all stacks of an incident: every status carries the newest incidents.
const TEXT_BYTES: usize = 96 * 1024;
/// Of one whose place is like no other's so much is kept when that is used up.
const ODD_BYTES: usize = 1024;
/// Processes whose testimony is kept when the root is named.
const KEPT: usize = 64;

/// A hang of which a process was heard that was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heard {
    /// The hang's incident.
    pub incident: IncidentId,
    /// Who hangs.
    pub who: InstanceId,
    /// Whether nobody else is waited for.
    pub is_whole: bool,
}

impl Recover {
    /// Asks for the evidence of everybody who may be part of the hang.
    pub fn ask(&mut self, out: &mut Effects, incident: IncidentId, asked: Vec<(Testimony, bool)>) {
        for (of, gently) in &asked {
            out.push(Output::CollectEvidence {
                incarnation: of.incarnation,
                incident,
                gently: *gently,
            });
        }
        if let Some(incident) = self.incidents.get_mut(incident) {
            incident.testimony = asked.into_iter().map(|(testimony, _)| testimony).collect();
        }
    }

    /// What was found of one process. Whoever asked for it has it.
    pub fn testify(&mut self, life: Incarnation, text: &str, seen: &Seen) -> Vec<Heard> {
        let awaits = |i: &Incident| i.testimony.iter().any(|t| t.awaits(life));
        let asked = |r: &&Recovery| self.incidents.get(r.incident).is_some_and(awaits);
        let waiting: Vec<Recovery> = self.recoveries.iter().filter(asked).copied().collect();
        let mut heard = Vec::new();
        for Recovery { incident, who, .. } in waiting {
            let Some(of) = self.incidents.get_mut(incident) else {
                continue;
            };
            of.testify(life, text, seen.clone());
            let is_whole = of.testimony.iter().all(|t| t.answer != Answer::Awaited);
            heard.push(Heard {
                incident,
                who,
                is_whole,
            });
        }
        heard
    }

    /// The evidence is in, as far as it is waited for. `late`: what is missing had its time.
    pub fn conclude(&mut self, cx: &mut Cx<'_>, instances: &Instances, id: IncidentId, late: bool) {
        let asked = self.incidents.get_mut(id);
        let Some(incident) = asked.filter(|i| !i.testimony.is_empty()) else {
            return;
        };
        let unheard = |t: &&mut Testimony| t.answer == Answer::Awaited;
        for of in incident.testimony.iter_mut().filter(unheard) {
            // Of one that was replaced meanwhile nobody could answer.
            of.answer = match late && instances.life(of.incarnation).is_some() {
                true => Answer::Late,
                false => Answer::Unheard,
            };
        }
        let found = incident.root_found();
        incident.put_together(&found);
        // A rank stands for another; whoever is of another role is said to be the root, no more.
        let role = incident.who.role;
        let rank = found
            .one()
            .filter(|(who, _)| who.role == role && role == Role::Trainer);
        let ignored = cx.config.mutant(Mutation::RootIgnored);
        if let Some((who, life)) = rank.filter(|(who, _)| *who != incident.who && !ignored) {
            incident.judged = Some(incident.who);
            (incident.who, incident.incarnation) = (who, life);
        }
        let about = incident.who;
        let text = format!("incident {id}, {}: {found}", incident.rule);
        incident.root = Some(found);
        cx.event(Severity::Warn, "root", Some(about), text);
    }

    /// Whoever had asked for evidence is gone: nothing more of it comes.
    pub fn evidence_is_lost(&mut self) {
        for recovery in &self.recoveries.to_vec() {
            let asked = self.incidents.get(recovery.incident);
            let waits =
                asked.is_some_and(|i| i.testimony.iter().any(|t| t.answer == Answer::Awaited));
            let incident = waits
                .then(|| self.incidents.get_mut(recovery.incident))
                .flatten();
            for of in incident.into_iter().flat_map(|i| &mut i.testimony) {
                if of.answer == Answer::Awaited {
                    of.answer = Answer::Unheard;
                }
            }
        }
    }

    /// The incident of a hang that comes from this very incarnation of an instance, which failed since.
    pub fn rooted_in(&self, who: InstanceId, life: Incarnation) -> Option<IncidentId> {
        let of = |i: &&Incident| {
            let root = i.root.as_ref().and_then(Root::one);
            root == Some((who, life)) && i.incarnation != life
        };
        self.incidents.iter().rev().find(of).map(|i| i.id)
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

    /// What the hang comes from, by what was found of all who were asked.
    fn root_found(&self) -> Root {
        let role = self.who.role;
        let all = self.testimony.iter().cloned();
        let (peers, others): (Vec<_>, Vec<_>) = all.partition(|t| t.who.role == role);
        if role == Role::Trainer {
            return root(&peers, &others);
        }
        let (own, peers): (Vec<_>, Vec<_>) = peers.into_iter().partition(|t| t.who == self.who);
        root(&own, &[peers, others].concat())
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
