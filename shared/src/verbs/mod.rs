//! Verbs: what an operator can ask for that changes a job. One verb is one constant here, which everything
//! reads that says or does something about it:
//!
//! ```text
//!  shared::verbs ──► robustd: who may, what the audit log says      ──► robustctl: the commands' help, answers
//!                ──► the console: question, consequence, palette    ──► docs/reference/verbs.md
//!                ──► tests: the .proto's calls and fields, the command line's arguments, what the console asks, the fault search
//! ```
//! A verb's module has its [`Verb`] and its sentences: `ASKS` is the question before it is done, `YES` the word for
//! a yes, `MEANS` what follows, `DONE` the answer. What a verb does is decided in `core::ops` alone.
mod faults;
mod members;
mod nodes;
mod pace;
mod sentence;
mod trust;

pub use faults::{disarm, inject, note};
pub use members::{quarantine, readmit, scale, update};
pub use nodes::{cordon, restore_slot, uncordon};
pub use pace::{pause, restart, resume, stop};
pub use sentence::Sentence;
pub use trust::{ca_rotate, token_create, token_revoke};

/// Something that an operator can ask for and that changes a job, or who may take part in it.
#[derive(Clone, Copy, Debug)]
pub struct Verb {
    /// How `robustctl` has it, without the program's own name: `token create`, `inject --disarm`.
    pub command: &'static str,
    /// What it does, as the help says it in a line.
    pub about: &'static str,
    /// The call of the control API.
    pub call: &'static str,
    /// What the operator says with it.
    pub takes: &'static [Argument],
    /// Fields of the request that the verb itself sets. Verbs with one call differ in them.
    pub sets: &'static [&'static str],
    /// Whether it strikes on purpose: where the job is protected it wants `--i-know`, and where robustd has a token to
    /// break the glass that token too.
    pub strikes: bool,
    /// What the console asks before it is done; none: the console does not offer it.
    pub asks: Option<&'static str>,
    /// What follows from it.
    pub means: &'static [&'static str],
    /// The command that takes it back.
    pub undo: Option<&'static str>,
    /// Whether the fault search's operators ask for it.
    pub searched: Searched,
}

/// A word of a command, and the fields of the request that it fills.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// `NODE`: what stands at its place. `--at`: an option, or a group of options by the group's name.
    pub word: &'static str,
    /// Names of the request's fields.
    pub fields: &'static [&'static str],
}

/// How the fault search comes by a verb.
#[derive(Clone, Copy, Debug)]
pub enum Searched {
    /// Its operators ask for it: as these inputs of the job in [`crate::core::CELL_TABLES`].
    As(&'static [&'static str]),
    /// They never do, for this reason.
    Never(&'static str),
}

/// What a call of the control API does with a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It shows it.
    Looks,
    /// It changes it: there is a verb for it.
    Changes,
}

/// All verbs.
pub static ALL: &[Verb] = &[
    inject::VERB,
    disarm::VERB,
    note::VERB,
    pause::VERB,
    resume::VERB,
    restart::VERB,
    scale::VERB,
    update::VERB,
    cordon::VERB,
    uncordon::VERB,
    restore_slot::VERB,
    quarantine::VERB,
    readmit::VERB,
    token_create::VERB,
    token_revoke::VERB,
    ca_rotate::VERB,
    stop::VERB,
];

/// The calls that are no verb's: they show something.
pub static LOOKS: &[&str] = &[
    "GetStatus",
    "Watch",
    "Phases",
    "Events",
    "Audit",
    "GetReport",
    "Trajectories",
    "CheckStore",
    "GetRules",
    "Forecast",
    "GetHistory",
    "GetStep",
    "GetSteps",
    "Logs",
    "Inspect",
    "ListJoins",
    "ShowAuthority",
];

/// What a call does; none: nobody knows it.
pub fn does(call: &str) -> Option<Does> {
    if LOOKS.contains(&call) {
        return Some(Does::Looks);
    }
    let changes = ALL.iter().any(|verb| verb.call == call);
    changes.then_some(Does::Changes)
}

/// A word and the fields that it fills.
const fn fills(word: &'static str, fields: &'static [&'static str]) -> Argument {
    Argument { word, fields }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_verb_has_a_command_of_its_own_and_a_line_about_it() {
        let commands: BTreeSet<&str> = ALL.iter().map(|verb| verb.command).collect();
        assert_eq!(commands.len(), ALL.len());
        for verb in ALL {
            let line = !verb.about.is_empty() && !verb.about.ends_with('.');
            assert!(line, "{}: {}", verb.command, verb.about);
        }
    }

    #[test]
    fn what_takes_a_verb_back_is_a_verb() {
        for verb in ALL {
            let known = |undo: &str| ALL.iter().any(|other| other.command == undo);
            assert!(verb.undo.is_none_or(known), "{}", verb.command);
        }
    }

    #[test]
    fn verbs_of_one_call_differ_in_what_they_set() {
        for verb in ALL {
            let alone = ALL.iter().filter(|other| other.call == verb.call).count() == 1;
            assert_eq!(alone, verb.sets.is_empty(), "{}", verb.command);
        }
    }

    #[test]
    fn a_call_looks_or_changes_and_an_unknown_one_does_nothing() {
        assert_eq!(does("GetStatus"), Some(Does::Looks));
        assert_eq!(does("Cordon"), Some(Does::Changes));
        assert_eq!(does("Erase"), None);
        let both = |verb: &&Verb| LOOKS.contains(&verb.call);
        assert_eq!(ALL.iter().find(both).map(|verb| verb.call), None);
    }
}
