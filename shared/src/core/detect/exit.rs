//! Exit rule: a process that ended, or could not be started, has failed. All roles, all phases.
use super::Verdict;
use crate::core::{Core, Exit};
use crate::ids::Incarnation;

impl Core {
    pub(in crate::core) fn on_exited(&mut self, life: Incarnation, exit: &Exit, detail: &str) {
        let Some(i) = self.s.instances.life(life) else {
            return;
        };
        if !i.has_process() {
            return;
        }
        if i.condemned.is_some() {
            // Its verdict fell before it went by itself.
            let who = i.id;
            return self.execute(who, true);
        }
        let words = match detail.trim() {
            "" => exit.to_string(),
            detail => format!("{exit}: {detail}"),
        };
        let failed_start = !i.was_attached() && matches!(exit, Exit::Code(code) if *code != 0);
        self.fault(Verdict {
            who: i.id,
            rule: "exit",
            reason: words.clone(),
            startup_error: failed_start.then_some(words),
            ended: true,
            hangs: false,
        });
    }

    pub(in crate::core) fn on_spawn_failed(&mut self, life: Incarnation, reason: &str) {
        let Some(i) = self.s.instances.life(life) else {
            return;
        };
        self.fault(Verdict {
            who: i.id,
            rule: "spawn",
            reason: format!("its process could not be started: {reason}"),
            startup_error: None,
            ended: true,
            hangs: false,
        });
    }
}
