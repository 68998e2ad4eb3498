//! Whether somebody waits for what nobody will do. Three things wake a part of the controller that waits:
//! an input, a timer (`router/check` holds those against the deadlines), and another part. Here it is
//! looked at whether all that could be done was done, and whether those that are waited for are there.
use super::Core;
use super::output::Output;
use super::state::{JobState, State};
use crate::ids::{Incarnation, Role};

impl Core {
    /// Who waits for nothing, in words. For tests and searches: its cost grows with the job. To be asked
    /// when an input was taken in.
    pub fn left_waiting(&self) -> Option<String> {
        if !self.started || self.s.job != JobState::Running {
            return None;
        }
        let undone = || self.left_undone();
        self.s.holder_that_is_gone().or_else(undone)
    }

    /// Everything that can be done without another input was done: all parts are asked once more, as if
    /// all had changed.
    fn left_undone(&self) -> Option<String> {
        if self.next_timeout().is_some_and(|due| due <= self.now) {
            // The driver is about to say that it is time.
            return None;
        }
        let mut again = self.clone();
        again.out.clear();
        again.s.recover.look_again();
        again.s.weights.look_again();
        again.s.roster.look_again();
        again.advance();
        again.derive();
        let told = |output: &&Output| !matches!(output, Output::Event(_));
        let undone = again.out.iter().find(told);
        undone.map(|output| format!("nothing changed, and yet this can be done: {output:?}"))
    }
}

impl State {
    /// Whoever holds what others wait for must be the one that is there now.
    fn holder_that_is_gone(&self) -> Option<String> {
        let there = |life| {
            self.roster
                .instances()
                .life(life)
                .is_some_and(|i| i.has_process())
        };
        let held = self.work.requests.table().leased();
        let mut orphans = held.iter().filter(|(_, agent)| !there(*agent));
        if let Some((trajectory, agent)) = orphans.next() {
            return Some(format!(
                "{trajectory} is held by {agent}, which is not there"
            ));
        }
        let there = |life: &Incarnation| self.roster.instances().life(*life).is_some();
        let mut pullers = self.roster.instances().engines();
        let stranded = pullers.find_map(|i| {
            // One that has everything reads from nobody any more.
            let pull = self.weights.of(i.id()).pull();
            let pull = pull.filter(|pull| pull.reads())?;
            let gone = pull.sources.iter().find(|source| !there(source))?;
            Some(format!("{} pulls from {gone}, which is replaced", i.id()))
        });
        if stranded.is_some() {
            return stranded;
        }
        let called = self.gang.is_called();
        let mut ranks = self.roster.instances().role(Role::Trainer);
        let absent = ranks.find(|rank| !rank.has_process()).filter(|_| called);
        absent.map(|rank| format!("the gang is called, and {} has no process", rank.id()))
    }
}
