//! Exit rule: a process that ended, or could not be started, has failed. All roles, all phases.
use super::{Rule, Verdict};
use crate::core::recover::cause::{Cause, last_words, memory};
use crate::core::roster::instance::Instance;
use crate::core::roster::instances::Current;
use crate::core::state::State;
use crate::core::{Core, Exit, FaultKind};
use crate::ids::{InstanceId, Role, Step};
use crate::phase::Phase;
use crate::time::Time;

/// A process that ended.
pub const RULE: Rule = Rule {
    name: "exit",
    roles: &Role::ALL,
    phases: &[],
    signal: "the process ended",
    action: "restart at once",
    kind: Some(FaultKind::Exit),
    event: None,
    watch: None,
};

/// A process that could not be started.
pub const SPAWN: Rule = Rule {
    name: "spawn",
    roles: &Role::ALL,
    phases: &[Phase::Init],
    signal: "the operating system could not start the process",
    action: "restart at once",
    kind: Some(FaultKind::Start),
    event: None,
    watch: None,
};

/// The exit code of a role program that could not start, whether it had attached before or not.
const COULD_NOT_START: i32 = 4;

/// The exit code of an engine's shim that gave the engine up over its weights or its memory: it does not serve
/// what it was given, stands still in a load, or does not sleep or wake.
const WRONG_WEIGHTS: i32 = 7;

/// The exit in words. Only a process that ended itself had something to say: its last `error:` line,
/// else its last line; what one wrote before a signal struck it explains nothing. What the kernel says of its
/// memory explains every end.
fn words(exit: &Exit, detail: &str) -> String {
    if let Some(line) = memory::for_memory(detail) {
        return format!("{exit}: {line}");
    }
    let said = last_words(detail);
    match (exit, said) {
        (Exit::Code(code), Some(line)) if *code != 0 => format!("{exit}: {line}"),
        _ => exit.to_string(),
    }
}

impl Core {
    pub(in crate::core) fn on_exited(
        &mut self,
        current: Current,
        at: Option<Time>,
        exit: &Exit,
        detail: &str,
    ) {
        let i = self.s.roster.instances().of(current);
        if !i.has_process() {
            return;
        }
        if i.condemned().is_some() {
            // Its verdict fell before it went by itself.
            return self.execute(current.id, Some(current.incarnation));
        }
        let words = words(exit, detail);
        let failed_start = match exit {
            Exit::Code(0) | Exit::Signal(_) | Exit::Gone => false,
            // An engine takes minutes to come up, and its process attaches long before that.
            Exit::Code(code) => !i.was_attached() || *code == COULD_NOT_START,
        };
        let mut verdict = Verdict::new(i.id(), &RULE, words.clone())
            .came_of(Cause::of_exit(exit, detail))
            .ended();
        if !i.was_attached() || failed_start {
            verdict.kind = FaultKind::Start;
        }
        verdict.exited = at;
        verdict.explained = *exit == Exit::Code(WRONG_WEIGHTS);
        // A life of an earlier daemon may have served, and this one was not told.
        let is_known = current.incarnation >= self.own_from || i.was_attached();
        verdict.startup_error = (failed_start && is_known).then_some(words);
        verdict.never_served = i.was_attached() && !has_served(&self.s, i.id().role);
        self.fault(verdict);
    }
}

/// Whether an engine of this role has, or had, weights, or a gang was ever restored. One that attached
/// and then said that it cannot start proves nothing by having attached.
fn has_served(s: &State, role: Role) -> bool {
    let mut of_role = s.roster.instances().role(role);
    match role {
        Role::Agent => true,
        Role::Trainer => s.restored || s.committed > Step(0),
        Role::Rollout | Role::Hybrid => {
            let had = |i: &Instance| s.weights.of(i.id()).version().is_some();
            of_role.any(|i| had(i) || i.tokens_before() > 0)
        }
    }
}

/// The verdict on a process that could not be started.
pub(in crate::core) fn not_started(who: InstanceId, reason: &str) -> Verdict {
    let reason = format!("its process could not be started: {reason}");
    Verdict::new(who, &SPAWN, reason).ended()
}
