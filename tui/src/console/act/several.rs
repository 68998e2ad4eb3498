//! Acts of a kind that are confirmed together, and asked of the daemon one after the other.
use super::meaning::{named, sentence, strikes_each, together};
use super::{Act, Strike, Whole};
use crate::console::job::Job;
use crate::format::who;
use robust_shared::fault::Fault;

/// Several acts.
#[derive(Clone, Debug, PartialEq)]
pub struct Several {
    question: String,
    verb: &'static str,
    /// Whom they are about.
    names: Vec<String>,
    acts: Vec<Act>,
}

impl Act {
    /// All of them; the act itself where there is only one, and none where there is none.
    pub fn all(mut acts: Vec<Act>) -> Option<Act> {
        if acts.len() < 2 {
            return acts.pop();
        }
        let first = acts.first()?;
        Some(Act::Several(Several {
            question: question(first, acts.len()),
            verb: first.verb(),
            names: acts.iter().map(Act::whom).collect(),
            acts,
        }))
    }

    /// A drain of these nodes, of which those are open that no operator cordoned yet.
    pub fn drain_all(nodes: Vec<String>, open: Vec<String>, whom: Vec<Whole>) -> Act {
        Act::Several(Several {
            question: format!("Drain {} nodes?", nodes.len()),
            verb: "drain",
            acts: drained(open, whom),
            names: nodes,
        })
    }

    /// What it consists of, in the order in which that is asked for; an act of one part is that part.
    pub fn parts(&self) -> Vec<Act> {
        match self {
            Act::Drain {
                node,
                cordoned,
                whom,
            } => {
                let open = (!cordoned).then(|| node.clone());
                drained(open, whom.clone())
            }
            Act::Several(several) => several.acts.clone(),
            one => vec![one.clone()],
        }
    }

    /// Whom or what it is about, as an answer to it is told.
    pub fn whom(&self) -> String {
        match self {
            Act::Strike(strike) => strike.whom(),
            Act::Disarm(armed) => format!("`{}` of {}", armed.fault, who(&armed.role, armed.index)),
            Act::Restart(whole) => whole.name(),
            Act::Traffic { role, index, .. } => who(role, *index),
            Act::Cordon { node, .. } | Act::Drain { node, .. } => node.clone(),
            Act::Restore(slot) => format!("slot {} of {} on {}", slot.index, slot.pool, slot.node),
            Act::Scale { role, .. } | Act::Update { role, .. } => role.clone(),
            Act::Note { incident, .. } => format!("incident {incident}"),
            Act::Several(several) => several.names.join(", "),
            Act::Pause | Act::Resume | Act::Stop => "the job".to_owned(),
        }
    }
}

impl Several {
    /// Over the dialog.
    pub fn question(&self) -> &str {
        &self.question
    }

    /// What a yes does, as a word.
    pub fn verb(&self) -> &'static str {
        self.verb
    }

    /// In the order in which they are asked.
    pub fn acts(&self) -> &[Act] {
        &self.acts
    }

    /// Each of them may strike a job that is protected, or none.
    pub fn know(&mut self, i_know: bool) {
        for act in &mut self.acts {
            if let Act::Strike(strike) = act {
                strike.i_know = i_know;
            }
        }
    }

    /// The word that must be typed for all of them: that which each of them wants, or the job's name where they want
    /// several.
    pub fn needs(&self, job: &Job) -> Option<String> {
        let mut words: Vec<String> = self.acts.iter().filter_map(|a| a.needs(job)).collect();
        words.sort();
        words.dedup();
        match words.len() {
            0 | 1 => words.pop(),
            _ => job.status().map(|status| status.job.clone()),
        }
    }

    /// Whom it concerns, and what it means for them, a sentence each.
    pub fn consequences(&self, job: &Job) -> Vec<String> {
        let mut lines = vec![format!("{}.", named(&self.names))];
        let restarts = self.acts.iter().filter_map(|act| match act {
            Act::Restart(whole) => Some(whole),
            _ => None,
        });
        // Where there is not room for all of it the last lines are left out.
        lines.extend(together(job, restarts));
        lines.extend(self.meanings(job));
        lines.push(
            "Each is asked of the daemon after the one before; what it refuses is said with its reason."
                .to_owned(),
        );
        lines.push("There is no forecast for several acts at once.".to_owned());
        lines
    }

    /// What it means, once for all of a role: what is meant for some of them only names their role.
    fn meanings(&self, job: &Job) -> Vec<String> {
        let mut groups: Vec<String> = Vec::new();
        let mut said: Vec<(String, Vec<String>)> = Vec::new();
        for act in &self.acts {
            let group = group(act);
            if groups.contains(&group) {
                continue;
            }
            for line in meaning(act, job) {
                match said.iter_mut().find(|(other, _)| *other == line) {
                    Some((_, of)) if of.contains(&group) => {}
                    Some((_, of)) => of.push(group.clone()),
                    None => said.push((line, vec![group.clone()])),
                }
            }
            groups.push(group);
        }
        let all = groups.len();
        let told = |(line, of): (String, Vec<String>)| match of.len() == all {
            true => line,
            false => format!("{}: {line}", of.join(", ")),
        };
        said.into_iter().map(told).collect()
    }
}

/// Nothing new on any of the nodes that are open, and only then new processes for what is there: nobody shall move from one
/// of them to another.
fn drained(open: impl IntoIterator<Item = String>, whom: Vec<Whole>) -> Vec<Act> {
    let cordon = |node| Act::Cordon { node, out: true };
    let cordons = open.into_iter().map(cordon);
    cordons.chain(whom.into_iter().map(Act::Restart)).collect()
}

/// What is asked before so many of these.
fn question(first: &Act, n: usize) -> String {
    match first {
        Act::Strike(strike) => {
            let when = strike.at.map_or_else(String::new, |at| format!(" at {at}"));
            match &strike.fault {
                Fault::Kill => format!("Kill {n} instances{when}?"),
                Fault::Hang => format!("Hang {n} instances{when}?"),
                Fault::LoseSlot => format!("Lose the slots of {n} instances{when}?"),
                fault => format!("Inject `{fault}` into {n} instances{when}?"),
            }
        }
        Act::Disarm(_) => format!("Take back {n} faults?"),
        Act::Restart(_) => format!("Restart {n} instances?"),
        Act::Traffic { out: true, .. } => format!("Take {n} engines out of traffic?"),
        Act::Traffic { out: false, .. } => format!("Let {n} engines have traffic again?"),
        Act::Cordon { out: true, .. } => format!("Cordon {n} nodes?"),
        Act::Cordon { out: false, .. } => format!("Uncordon {n} nodes?"),
        Act::Restore(_) => format!("Restore {n} slots?"),
        other => format!("{} {n} times?", sentence(other.verb())),
    }
}

/// Those that it means the same for: instances of a role, or one thing alone.
fn group(act: &Act) -> String {
    match act {
        Act::Strike(Strike {
            life: Some(life), ..
        }) => life.role.clone(),
        Act::Restart(Whole::Instance { role, .. }) | Act::Traffic { role, .. } => role.clone(),
        other => other.whom(),
    }
}

fn meaning(act: &Act, job: &Job) -> Vec<String> {
    match act {
        Act::Strike(strike) => strikes_each(job, strike),
        other => other.consequences(job),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::console::act::Life;
    use robust_proto::v1;

    fn kill(role: &str, index: u32) -> Act {
        Act::Strike(Strike {
            fault: Fault::Kill,
            at: None,
            life: Some(Life {
                role: role.to_owned(),
                index,
                incarnation: 3,
                pid: 7,
            }),
            i_know: false,
        })
    }

    fn job(status: v1::Status) -> Job {
        let mut job = Job::default();
        let _ = job.observe(0, status);
        job
    }

    fn several(acts: Vec<Act>) -> Several {
        let Some(Act::Several(several)) = Act::all(acts) else {
            unreachable!("they are several")
        };
        several
    }

    #[test]
    fn one_act_is_that_act_and_none_is_none() {
        assert_eq!(Act::all(Vec::new()), None);
        let one = kill("rollout", 1);
        assert_eq!(Act::all(vec![one.clone()]), Some(one));
    }

    #[test]
    fn what_is_meant_for_some_only_names_their_role() {
        let acts = vec![kill("rollout", 0), kill("rollout", 2), kill("agent", 1)];
        let several = several(acts);
        assert_eq!(several.question(), "Kill 3 instances?");
        let said = several.consequences(&Job::default());
        assert_eq!(said[0], "rollout-0, rollout-2, agent-1.");
        assert_eq!(said[1], "SIGKILL goes to the process of each.");
        assert!(said[2].starts_with("rollout: Its requests go on elsewhere"));
        assert!(said[3].starts_with("agent: Its conversations resume"));
        assert!(said.last().unwrap().contains("no forecast"));
    }

    #[test]
    fn the_word_that_is_wanted_is_the_jobs_name_where_several_are() {
        let status = |policy: &str| {
            job(v1::Status {
                job: "arith".to_owned(),
                policy: policy.to_owned(),
                ..Default::default()
            })
        };
        let engines = several(vec![kill("rollout", 0), kill("rollout", 1)]);
        assert_eq!(engines.needs(&status("role")), None);
        assert_eq!(engines.needs(&status("task")).as_deref(), Some("rollout"));
        let mixed = several(vec![kill("rollout", 0), kill("trainer", 0)]);
        assert_eq!(mixed.needs(&status("role")).as_deref(), Some("trainer"));
        assert_eq!(mixed.needs(&status("task")).as_deref(), Some("arith"));
    }

    #[test]
    fn all_nodes_are_cordoned_before_anybody_moves() {
        let whole = |index| Whole::Instance {
            role: "rollout".to_owned(),
            index,
        };
        let nodes = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>()
        };
        let drain = |open: &[&str]| {
            let all = nodes(&["node-a", "node-b"]);
            Act::drain_all(all, nodes(open), vec![whole(0), whole(1)])
        };
        let whom = |act: &Act| act.parts().iter().map(Act::whom).collect::<Vec<_>>();
        let both = drain(&["node-a", "node-b"]);
        assert_eq!(whom(&both), ["node-a", "node-b", "rollout-0", "rollout-1"]);
        assert_eq!(both.question(), "Drain 2 nodes?");
        // One that an operator cordoned is not cordoned again, which would be refused.
        assert_eq!(
            whom(&drain(&["node-b"])),
            ["node-b", "rollout-0", "rollout-1"]
        );
        let alone = |cordoned| Act::Drain {
            node: "node-a".to_owned(),
            cordoned,
            whom: vec![whole(1)],
        };
        assert_eq!(whom(&alone(false)), ["node-a", "rollout-1"]);
        assert_eq!(whom(&alone(true)), ["rollout-1"]);
    }

    #[test]
    fn who_restarts_all_of_a_role_is_told_that_none_of_it_serves_meanwhile() {
        let role = |role: &str, index| v1::RoleStatus {
            role: role.to_owned(),
            index,
            ..Default::default()
        };
        let roles = vec![
            role("trainer", 0),
            role("trainer", 1),
            role("rollout", 0),
            role("rollout", 1),
            role("agent", 0),
        ];
        let status = v1::Status {
            roles: roles.clone(),
            ..Default::default()
        };
        let job = job(status);
        let said = |roles: &[v1::RoleStatus]| {
            let acts = roles.iter().map(|r| Act::Restart(Whole::from(r)));
            let said = several(acts.collect()).consequences(&job);
            said.into_iter()
                .filter(|line| line.starts_with("They are restarted"))
                .collect::<Vec<_>>()
        };
        let none = "They are restarted together: no rollout serves meanwhile; `robustctl restart rollout` takes \
                    one after the other.";
        assert_eq!(said(&roles), [none]);
        assert_eq!(
            said(&roles[3..]),
            [""; 0],
            "one of two, and one that is alone"
        );
    }

    #[test]
    fn of_many_the_first_are_named_and_the_rest_is_counted() {
        let several = several((0..300).map(|index| kill("rollout", index)).collect());
        let said = several.consequences(&Job::default());
        let names = &said[0];
        assert!(names.starts_with("rollout-0, rollout-1, "), "{names}");
        assert!(names.ends_with("rollout-9 and 290 more."), "{names}");
        assert!(said[1].starts_with("SIGKILL"), "{said:?}");
    }
}
