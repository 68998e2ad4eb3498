//! Hybrid engines: pauses and returns, in the order they were told.
use super::{Happening, World};
use robust_shared::core::{Input, Output, RoleEvent};
use robust_shared::ids::{Incarnation, Role};
use robust_shared::phase::Phase;

/// How long a command waits at an engine that does not read it.
const AGAIN: std::time::Duration = std::time::Duration::from_millis(100);

impl World {
    /// The daemon tells an engine over HTTP, where what was sent is read some day, link or not.
    pub(super) fn order_switch(&mut self, engine: Incarnation, paused: bool) {
        let takes = self.timing.switch.draw(&mut self.dice);
        // Commands to one engine are carried out one after the other.
        let last = self.procs.get(&engine).map_or(self.now, |p| p.switch_at);
        let at = last.max(self.now + takes);
        if let Some(p) = self.procs.get_mut(&engine) {
            p.switch_at = at;
        }
        let told = Happening::Switch(engine, paused, self.daemon.life);
        self.after(at.since(self.now), told);
    }

    /// An engine does as it was told by the daemon of that life, which alone hears of it.
    pub(super) fn switch(&mut self, engine: Incarnation, paused: bool, by: u32) {
        let Some(p) = self.procs.get_mut(&engine).filter(|p| p.alive) else {
            return;
        };
        // The one that commands does not reach it, and tries again.
        let commands = self.ha.are_there() && by == self.daemon.life;
        let apart = commands && !self.machines.linked(p.machine);
        if !p.serves() || !self.machines.in_reach(p.machine) || apart {
            return self.after(AGAIN, Happening::Switch(engine, paused, by));
        }
        p.paused = paused;
        self.send_away(engine);
        let Some(p) = self.procs.get(&engine) else {
            return;
        };
        let phase = match (paused, p.requests) {
            (true, _) => Phase::Paused,
            (false, 0) => Phase::Idle,
            (false, _) => Phase::Generating,
        };
        self.enter(engine, phase);
        if by == self.daemon.life {
            self.feed(Input::Role(
                engine,
                RoleEvent::Switched { paused, ok: true },
            ));
        }
    }

    /// One slot, one worker: ranks compute only while no engine of theirs does. An engine that came
    /// up a moment ago has no requests yet.
    pub(super) fn check_slots(&mut self, output: &Output) {
        if !matches!(output, Output::TrainStep { .. } | Output::Prepare { .. }) {
            return;
        }
        // One that a lost node still runs is in the way of nobody, once its rank moved.
        let ranks = self.homes.iter().filter(|(r, _)| r.role == Role::Trainer);
        let ranks: Vec<_> = ranks.map(|(_, slot)| slot).collect();
        let computes = |p: &super::Proc| p.works() && !p.paused && p.requests > 0;
        let busy = self
            .procs
            .iter()
            .find(|(_, p)| p.id.role == Role::Hybrid && computes(p) && ranks.contains(&&p.slot));
        let busy = busy.map(|(life, _)| *life);
        self.must(busy.is_none(), "context", || {
            format!("the ranks are to compute while the engine {busy:?} does")
        });
    }

    /// An engine that is paused gets no requests, and one on a trainer's slot only in its turn.
    pub(super) fn check_turn(&mut self, engine: Incarnation) {
        let paused = self.procs.get(&engine).is_some_and(|p| p.paused);
        self.must(!paused, "context", || {
            format!("a request goes to the paused {engine}")
        });
        let hybrid = self.procs.get(&engine).map(|p| p.id.role) == Some(Role::Hybrid);
        // Ranks of a gang before, which a node that is cut off still runs, are in nobody's way.
        let newest = self.gang.newest;
        let of_newest = |p: &super::Proc| p.id.role == Role::Trainer && p.generation == newest;
        let mut ranks = self.procs.values().filter(|p| of_newest(p));
        let computes = ranks.any(|p| p.works() && p.phase.is_trainer_compute());
        let called = self.gang.task.is_some_and(|(g, _)| g == newest);
        self.must(!(hybrid && computes && called), "context", || {
            format!("a request goes to {engine}, whose slot computes a step")
        });
    }

    /// The turns that run on an engine end before it says that it is paused, whatever befalls it then.
    fn send_away(&mut self, engine: Incarnation) {
        if !self.sent_away(engine) {
            return;
        }
        let runs = |h: &Happening| matches!(h, Happening::Generated(_, by, _) if *by == engine);
        let running = self.queue.iter().filter(|(_, h)| runs(h));
        for at in running.map(|(at, _)| *at).collect::<Vec<_>>() {
            if let Some(turn) = self.queue.remove(&at) {
                self.after(std::time::Duration::ZERO, turn);
            }
        }
    }

    /// Sends a turn away that reached a paused engine: partial tokens go with it.
    pub(super) fn sent_away(&self, engine: Incarnation) -> bool {
        self.procs.get(&engine).is_some_and(|p| p.alive && p.paused)
    }
}
