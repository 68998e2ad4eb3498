//! What will happen, and to whom, in sentences.
use super::{Act, Life, Strike, Whole};
use crate::console::job::Job;
use crate::format::{is_engine, is_trainer};
use robust_proto::v1;
use robust_shared::fault::{At, Carrier, Fault, Kind};
use robust_shared::ids::Role;
use robust_shared::job::Policy;
use robust_shared::verbs;
use std::collections::BTreeMap;

/// So many are named where there are many.
const NAMED: usize = 10;

impl Act {
    /// What will happen, and to whom; a sentence each.
    pub fn consequences(&self, job: &Job) -> Vec<String> {
        match self {
            Act::Strike(strike) => of_strike(job, strike),
            Act::Disarm(armed) => {
                let whom = crate::format::who(&armed.role, armed.index);
                vec![verbs::disarm::MEANS.say([&whom])]
            }
            Act::Restart(whole) => of_restart(job, whole),
            Act::Pause => vec![verbs::pause::MEANS.say([])],
            Act::Resume => vec![verbs::resume::MEANS.say([])],
            Act::Traffic { out: true, .. } => vec![verbs::quarantine::MEANS.say([])],
            Act::Traffic { out: false, .. } => vec![verbs::readmit::MEANS.say([])],
            Act::Cordon { node, out: true } => {
                vec![verbs::cordon::MEANS.say([&instances(job, node)])]
            }
            Act::Cordon { out: false, .. } => vec![verbs::uncordon::MEANS.say([])],
            Act::Drain { node, whom, .. } => of_drain(job, node, whom),
            Act::Restore(v1::Slot { node, pool, index }) => {
                vec![verbs::restore_slot::MEANS.say([&index.to_string(), pool, node])]
            }
            Act::Scale { role, from, to } => vec![of_scale(role, *from, *to)],
            Act::Update { role, change } => {
                vec![change.clone(), verbs::update::MEANS.say([role])]
            }
            Act::Note { text, .. } => vec![text.clone(), verbs::note::MEANS.say([])],
            Act::Several(several) => several.consequences(job),
            Act::Stop => vec![verbs::stop::MEANS.say([])],
        }
    }
}

fn instances(job: &Job, node: &str) -> String {
    match job.roles().iter().filter(|r| r.node == node).count() {
        1 => "1 instance".to_owned(),
        n => format!("{n} instances"),
    }
}

fn of_drain(job: &Job, node: &str, whom: &[Whole]) -> Vec<String> {
    let names: Vec<String> = whom.iter().map(Whole::name).collect();
    let mut lines = vec![format!(
        "Nothing new is started on {node} until it is uncordoned."
    )];
    lines.push(match names.is_empty() {
        true => "No instance has a slot there.".to_owned(),
        false => format!(
            "Restarted, where other nodes have free slots: {}.",
            named(&names)
        ),
    });
    lines.extend(together(job, whom.iter()));
    lines
}

/// Their names; of many the first ones, and how many more there are.
pub(super) fn named(names: &[String]) -> String {
    let first = names.iter().take(NAMED).map(String::as_str);
    let first = first.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

/// What is said of roles that have no instance but these: none of them waits until the one before serves again.
pub(super) fn together<'a>(job: &Job, whom: impl Iterator<Item = &'a Whole>) -> Vec<String> {
    let mut of_role: BTreeMap<&str, usize> = BTreeMap::new();
    for whole in whom {
        if let Whole::Instance { role, .. } = whole
            && role != "trainer"
        {
            *of_role.entry(role.as_str()).or_default() += 1;
        }
    }
    let all = |role: &str| job.roles().iter().filter(|r| r.role == role).count();
    let whole = of_role
        .into_iter()
        .filter(|&(role, n)| n > 1 && n == all(role));
    let line = |(role, _): (&str, usize)| {
        format!(
            "They are restarted together: no {role} serves meanwhile; `robustctl restart {role}` \
             takes one after the other."
        )
    };
    whole.map(line).collect()
}

fn of_scale(role: &str, from: u32, to: u32) -> String {
    let so_many = from.abs_diff(to).to_string();
    match to < from {
        true => verbs::scale::FEWER.say([&so_many, &from.to_string(), role]),
        false => verbs::scale::MORE.say([&so_many, role]),
    }
}

fn of_restart(job: &Job, whole: &Whole) -> Vec<String> {
    let what = match whole {
        Whole::Task => verbs::restart::OF_TASK.say([]),
        Whole::Instance { role, .. } if is_trainer(role) => {
            verbs::restart::OF_GANG.say([&ranks(job, "gets new", "get new")])
        }
        Whole::Instance { role, .. } => verbs::restart::OF_ONE.say([after(role)]),
    };
    vec![what, verbs::restart::MEANS.say([])]
}

/// The whole gang as the subject of a sentence.
fn ranks(job: &Job, one_does: &str, they_do: &str) -> String {
    match job
        .roles()
        .iter()
        .filter(|r| r.role() == Some(Role::Trainer))
        .count()
    {
        1 => format!("The trainer {one_does}"),
        2 => format!("Both trainer ranks {they_do}"),
        n => format!("All {n} trainer ranks {they_do}"),
    }
}

/// What becomes of the work of an instance that is replaced.
fn after(role: &str) -> &'static str {
    if is_engine(role) {
        "Its requests go on elsewhere; a new replica pulls the weights and is routed to once \
         it verified them."
    } else {
        "Its conversations resume from their last stored turn."
    }
}

fn of_strike(job: &Job, strike: &Strike) -> Vec<String> {
    let later = strike.at.filter(|at| at.is_start_up());
    let how = later.map_or_else(|| how(strike), |at| of_later_life(strike, at));
    let mut lines = vec![how];
    lines.extend(follows(job, strike));
    lines
}

/// The same for each of several instances of its role.
pub(super) fn strikes_each(job: &Job, strike: &Strike) -> Vec<String> {
    let how = match (&strike.fault, strike.at.filter(|at| at.is_start_up())) {
        (fault, Some(at)) => format!(
            "What runs there is not struck: `{fault}` waits for the next process of each, and strikes in its `{at}`; \
             D takes it back."
        ),
        (Fault::Kill, None) => "SIGKILL goes to the process of each.".to_owned(),
        (Fault::LoseSlot, None) => {
            "SIGKILL goes to the process of each. Their slots stay out of use until they are \
             restored (Nodes, R)."
                .to_owned()
        }
        (Fault::Hang, None) => {
            "SIGSTOP goes to the process of each. It is found when the silence outlasts its \
             rule's window."
                .to_owned()
        }
        (fault, None) => format!("{}.", sentence(fault.kind().help())),
    };
    let mut lines = vec![how];
    lines.extend(follows(job, strike));
    lines
}

/// What follows from a strike.
fn follows(job: &Job, strike: &Strike) -> Vec<String> {
    let later = strike.at.filter(|at| at.is_start_up());
    let mut lines = Vec::new();
    let status = job.status();
    let task = status.is_some_and(|s| s.policy() == Some(Policy::Task));
    match &strike.life {
        Some(life) if strike.fault.kind().ends_life() => lines.push(match life.role.as_str() {
            _ if task => "Policy task: the whole job is restarted.".to_owned(),
            role if is_trainer(role) => format!(
                "{} from the last snapshot; rollouts go on generating.",
                ranks(job, "restarts", "restart")
            ),
            role => after(role).to_owned(),
        }),
        Some(_) => {}
        None => lines.extend(of_machine(job, &strike.fault)),
    }
    if let Some(at) = strike.at.filter(|_| later.is_none()) {
        lines.push(format!(
            "It waits for `{at}`, at most as long as this process lives; D takes it back."
        ));
    }
    if status.is_some_and(|s| s.protected) {
        lines.push("This job is protected: it is not meant to be drilled.".to_owned());
    }
    lines
}

fn of_later_life(strike: &Strike, at: At) -> String {
    format!(
        "What runs there is not struck: `{}` waits for the next process of {}, and strikes in its \
         `{at}`; D takes it back.",
        strike.fault,
        strike.whom()
    )
}

fn how(strike: &Strike) -> String {
    let Some(Life {
        incarnation, pid, ..
    }) = &strike.life
    else {
        return format!("{}.", sentence(strike.fault.kind().help()));
    };
    let process = format!("pid {pid} (incarnation {incarnation})");
    match &strike.fault {
        Fault::Kill => format!("SIGKILL goes to {process}."),
        Fault::LoseSlot => format!(
            "SIGKILL goes to {process}. Its slot stays out of use until it is restored (Nodes, R)."
        ),
        Fault::Hang => format!(
            "SIGSTOP goes to {process}. It is found when the silence outlasts its rule's window."
        ),
        fault => {
            let kind = fault.kind();
            let told = match kind.carrier() {
                Carrier::Role => " It is told to do it to itself.",
                Carrier::System | Carrier::Daemon => "",
            };
            format!("{process}: {}.{told}", kind.help())
        }
    }
}

/// What a fault of a node or of the leader comes to.
fn of_machine(job: &Job, fault: &Fault) -> Vec<String> {
    match fault.kind() {
        Kind::LoseNode => {
            let Fault::LoseNode { node } = fault else {
                return Vec::new();
            };
            vec![format!(
                "{} run there; they are started elsewhere where slots are free.",
                instances(job, node)
            )]
        }
        Kind::LeaderCrash => {
            vec!["Its roles live on; whoever supervises robustd has to start it again.".to_owned()]
        }
        Kind::DiskFull => vec!["The job waits while nothing can be stored.".to_owned()],
        Kind::NoProcesses => {
            vec!["Whoever ends meanwhile is not replaced before it is over.".to_owned()]
        }
        _ => vec!["It is found when it is read; an older one takes its place.".to_owned()],
    }
}

pub(super) fn sentence(text: &str) -> String {
    let mut letters = text.chars();
    let first = letters.next().map(|c| c.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}
