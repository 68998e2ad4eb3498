//! What was found of a hang and what was made of it, held against how the processes really were; and
//! which incidents are folded under which.
use super::super::World;
use robust_shared::core::{Answer, FaultKind, Incident, ProcessState, Root};
use robust_shared::ids::{Incarnation, IncidentId, InstanceId, Role};
use std::collections::BTreeMap;

/// What is known of hangs that were looked into, and of the first incidents of cascades.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Hangs {
    /// How each process was when it was looked at.
    looked: BTreeMap<IncidentId, BTreeMap<Incarnation, ProcessState>>,
    /// Rule and reason of each incident on record, unless it is folded itself.
    firsts: BTreeMap<IncidentId, (String, String)>,
    /// Roots of other roles than whoever hung.
    roots: BTreeMap<IncidentId, (InstanceId, Incarnation)>,
}

impl Hangs {
    /// A process is looked at.
    pub fn looked_at(&mut self, incident: IncidentId, life: Incarnation, state: ProcessState) {
        let looked = self.looked.entry(incident).or_default();
        looked.insert(life, state);
    }

    /// Whether a process was like that when it was looked at, for whichever hang: the first look at one that two of
    /// them ask for answers both.
    fn was_seen(&self, life: Incarnation, state: ProcessState) -> bool {
        let mut looks = self.looked.values().filter_map(|l| l.get(&life));
        looks.any(|seen| *seen == state)
    }

    /// A controller that dies before a verdict is on record gives its number again.
    pub fn restored(&mut self, newest: IncidentId) {
        self.looked.retain(|id, _| *id <= newest);
    }
}

impl World {
    /// What an incident's record says of its root.
    pub(super) fn check_root(&mut self, incident: &Incident) {
        let Some(root) = &incident.root else { return };
        let (id, who) = (incident.id, incident.who);
        let hangs = &self.checker.hangs;
        let looked = hangs.looked.get(&id);
        let false_one = incident.testimony.iter().find(|t| match &t.answer {
            Answer::Seen(seen) => !hangs.was_seen(t.incarnation, seen.state),
            Answer::Late => looked.is_none_or(|l| !l.contains_key(&t.incarnation)),
            // A controller that died before it asked is among those that were not waited for.
            Answer::Unheard => false,
            Answer::Awaited => true,
        });
        self.must(false_one.is_none(), "root", || {
            format!("incident {id} has a testimony that is not true: {false_one:?}")
        });
        let is = |state| move |t: &&robust_shared::core::Testimony| t.state() == Some(state);
        let ranks = || incident.testimony.iter().filter(|t| t.who.role == who.role);
        let stopped: Vec<_> = ranks().filter(is(ProcessState::Stopped)).collect();
        let dead = ranks().any(|t| t.state() == Some(ProcessState::Dead));
        if let ([one], false, Role::Trainer) = (&*stopped, dead, who.role) {
            let named = (who, incident.incarnation) == (one.who, one.incarnation);
            self.must(named, "root", || {
                format!(
                    "{} is stopped, its peers are not, and {who} is named",
                    one.who
                )
            });
        }
        let stands = incident.judged.is_none_or(|judged| judged != who);
        self.must(stands, "root", || format!("{who} stands for itself"));
        if let Root::One {
            who, incarnation, ..
        } = root
        {
            let roots = &mut self.checker.hangs.roots;
            roots.insert(id, (*who, *incarnation));
        }
    }

    /// An incident that is new on record: whether it is folded, and rightly so.
    pub(super) fn is_folded(&mut self, incident: &Incident) -> bool {
        let what = (incident.rule.clone(), incident.reason.clone());
        let hangs = &mut self.checker.hangs;
        let Some(first) = incident.under else {
            hangs.firsts.insert(incident.id, what);
            return false;
        };
        let (who, life) = (incident.who, incident.incarnation);
        let same = hangs.firsts.get(&first) == Some(&what);
        let rooted = hangs.roots.get(&first) == Some(&(who, life));
        let earlier = first < incident.id && hangs.firsts.contains_key(&first);
        let lawful = earlier && (same || rooted) && who.role != Role::Trainer;
        self.must(lawful, "folded", || {
            format!("{who} {life}: {what:?} is folded under {first}, which is something else")
        });
        let dear = !incident.plan.starts_with("restart ") || incident.plan.contains("whole task");
        let dear = dear && self.config.policy == robust_shared::core::Policy::Role;
        self.must(!dear, "folded", || {
            format!("{who} is folded under {first} and costs: {}", incident.plan)
        });
        true
    }

    /// A folded one counts in no row: of these kinds nothing else does than what one rule found.
    pub(super) fn check_uncounted(&mut self, incident: &Incident, counted: u32) {
        let kind = match incident.rule.as_str() {
            "node lost" => FaultKind::Node,
            "hardware" => FaultKind::Hardware,
            _ => return,
        };
        let who = incident.who;
        let row = self.core.failures_in_a_row(who, kind);
        self.must(row <= counted, "I-7", || {
            format!("{who} counts {row} failures ({kind}) in a row, of which {counted} are its own")
        });
    }
}
