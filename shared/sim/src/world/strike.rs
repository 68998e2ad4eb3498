//! What can be done to the world from outside.
use super::machines::{NodeOrder, SpawnOrder};
use super::{Happening, Start, World, ms};
use robust_shared::core::{Exit, Fault, Input, NodeEvent, Request, RoleEvent};
use robust_shared::fault::At;
use robust_shared::hardware::{Finding, FindingKind};
use robust_shared::ids::{Generation, Incarnation, InstanceId, Role, TrajectoryId};
use robust_shared::phase::Phase;
use std::time::Duration;

impl World {
    /// The process at a place ends.
    pub fn kill(&mut self, who: InstanceId) {
        self.die(self.life(who));
    }

    /// A trajectory that is not handed out yet ends every engine that generates for it.
    pub fn poison(&mut self, trajectory: TrajectoryId) {
        self.poison.insert(trajectory);
    }

    /// The process at a place stops, for ever.
    pub fn stop(&mut self, who: InstanceId) {
        if let Some(p) = self.proc(who) {
            p.stopped = true;
        }
    }

    /// The process at a place stops for a time.
    pub fn pause(&mut self, who: InstanceId, for_: Duration) {
        self.stop(who);
        self.after(for_, Happening::Heals(self.life(who)));
    }

    /// The process at a place is so many times slower for a time.
    pub fn slow(&mut self, who: InstanceId, times: u32, for_: Duration) {
        if let Some(p) = self.proc(who) {
            p.slow = times.max(1);
        }
        self.after(for_, Happening::Heals(self.life(who)));
    }

    /// The process at a place lives, and its work does not come along any more.
    pub fn wedge(&mut self, who: InstanceId) {
        if let Some(p) = self.proc(who) {
            p.wedged = true;
        }
    }

    /// The next call to the process at a place ends in an exception.
    pub fn raise(&mut self, who: InstanceId) {
        if let Some(p) = self.proc(who) {
            p.raised = true;
        }
    }

    /// The device of a place's slot fails, or shows that it will.
    pub fn device(&mut self, who: InstanceId, broken: bool) {
        let Some(slot) = self.homes.get(&who).cloned() else {
            return;
        };
        if self.core.node(slot.node).is_none() {
            return;
        }
        let there = |(_, p): &(&Incarnation, &super::Proc)| p.alive && p.slot == slot;
        let users = self.procs.iter().filter(there).map(|(life, _)| *life);
        let users: Vec<_> = users.collect();
        let kind = match broken {
            true => FindingKind::DeviceLost,
            false => FindingKind::RowRemapPending,
        };
        // Nobody promised anything about the slot, and yet it may be gone when the daemon is back.
        self.office.unsure = true;
        let text = "its device".to_owned();
        let input = Input::Node(
            slot.node,
            NodeEvent::Hardware {
                device: slot.index,
                finding: Finding { kind, text },
                users,
            },
        );
        self.node_says(self.machine_of(slot.node), input);
    }

    /// What the process at a place serves arrives damaged.
    pub fn corrupt(&mut self, who: InstanceId) {
        if let Some(p) = self.proc(who) {
            p.corrupt = true;
        }
    }

    /// An operator ends the job, and starts the daemon again later to go on with it.
    pub fn stop_and_resume(&mut self, after: Duration) {
        if self.ha.are_there() {
            // That ends the job of several controllers for good.
            return;
        }
        self.feed(Input::Stop);
        if self.outcome != Some(robust_shared::core::Outcome::Stopped) {
            return;
        }
        let lives: Vec<_> = self.procs.keys().copied().collect();
        for life in lives {
            self.die(life);
        }
        self.begun_anew = true;
        self.crash_daemon_until(after);
        self.outcome = None;
    }

    /// The next starts at a place go like this.
    pub fn doom(&mut self, who: InstanceId, starts: Vec<Start>) {
        self.doomed.insert(who, starts);
    }

    /// Whatever still disturbs the world ends; what is broken stays so until it is found.
    pub fn heal(&mut self) {
        self.doomed.clear();
        self.timing.duplicate_per_mille = 0;
        self.daemon.crash_after = None;
        self.heal_nodes();
        self.heal_controllers();
        self.after(ms(10), Happening::Mend);
        // A device's word, or an order to stop, may have been under way: the operator looks again.
        self.after(ms(1000), Happening::Mend);
        let now = self.now;
        self.calm = true;
        for p in self.procs.values_mut() {
            if p.slow > 1 || p.raised || p.corrupt {
                p.well_at = now;
            }
            (p.slow, p.corrupt, p.raised) = (1, false, false);
            p.cut_until = p.cut_until.min(now);
        }
        self.wake_tools();
        let cut = self.procs.iter().filter(|(_, p)| !p.linked && p.link > 0);
        for life in cut.map(|(life, _)| *life).collect::<Vec<_>>() {
            self.after(ms(10), Happening::Link(life));
        }
    }

    /// No rule watches an agent worker whose tools run, so one that stopped there goes on.
    pub(super) fn wake_tools(&mut self) {
        let tools = |p: &super::Proc| (p.id.role, p.phase) == (Role::Agent, Phase::AwaitingTool);
        let asleep = self.procs.iter().filter(|(_, p)| p.stopped && tools(p));
        for life in asleep.map(|(life, _)| *life).collect::<Vec<_>>() {
            self.heal_one(life);
        }
    }

    /// An operator strikes an instance through the controller.
    pub fn inject(&mut self, fault: Fault, role: Role, index: u32) {
        self.inject_at(fault, role, index, None);
    }

    /// The same for a moment in its life.
    pub fn inject_at(&mut self, fault: Fault, role: Role, index: u32, at: Option<At>) {
        self.ask(
            role,
            None,
            Request::Inject {
                fault,
                role,
                index: Some(index),
                incarnation: None,
                at,
            },
        );
    }

    pub(super) fn heal_one(&mut self, life: Incarnation) {
        let now = self.now;
        let Some(p) = self.procs.get_mut(&life).filter(|p| p.alive) else {
            return;
        };
        (p.stopped, p.slow, p.well_at) = (false, 1, now);
        self.read_inbox(life);
    }

    /// What came while it was stopped.
    pub(super) fn read_inbox(&mut self, life: Incarnation) {
        let Some(p) = self.procs.get_mut(&life).filter(|p| p.works()) else {
            return;
        };
        for order in std::mem::take(&mut p.inbox) {
            self.obey(life, order);
        }
    }

    /// A process is to be started, here or on another node.
    pub(super) fn order_spawn(&mut self, order: SpawnOrder) {
        let (who, life) = (order.id, order.life);
        if !self.ha.on_stage() {
            let at = self.machine_of(order.slot.node);
            return self.order(at, NodeOrder::Spawn(order));
        }
        self.takes_place(who, life, order.generation);
        let at = self.machine_of(order.slot.node);
        self.order(at, NodeOrder::Spawn(order));
    }

    fn takes_place(&mut self, who: InstanceId, life: Incarnation, generation: Generation) {
        let before = self.places.insert(who, life);
        let older = before.and_then(|before| self.before.insert(who, before));
        if let Some(older) = older.filter(|o| self.procs.get(o).is_some_and(|p| !p.alive)) {
            self.procs.remove(&older);
        }
        if who.role == Role::Trainer {
            self.gang.joined(generation, life);
        }
    }

    /// A process links that another controller had started, and this one has on record.
    pub(super) fn finds_running(&mut self, life: Incarnation) {
        if !self.ha.on_stage() {
            return;
        }
        let who = self.core.is_current(life);
        let who = who.filter(|who| self.life(*who) < life);
        let generation = self.procs.get(&life).map(|p| p.generation);
        if let (Some(who), Some(generation)) = (who, generation) {
            self.takes_place(who, life, generation);
        }
    }

    pub(super) fn spawn_process(&mut self, at: usize, order: SpawnOrder) {
        let (who, life) = (order.id, order.life);
        let start = match self.doomed.get_mut(&who) {
            Some(starts) if !starts.is_empty() => starts.remove(0),
            _ => Start::Fine,
        };
        if start == Start::Refused {
            let reason = "no memory".to_owned();
            let input = Input::Role(life, RoleEvent::SpawnFailed { reason });
            return self.after(Duration::ZERO, Happening::Reported(at, input));
        }
        let span = match who.role {
            Role::Trainer => self.timing.start_trainer,
            Role::Hybrid | Role::Rollout => self.timing.start_rollout,
            Role::Agent => self.timing.start_agent,
        };
        let mut proc = super::Proc::new(at, &order, start, self.now);
        proc.over = self.machines.ends(at, life);
        self.procs.insert(life, proc);
        let pid = super::daemon::pid_of(life);
        let input = Input::Role(life, RoleEvent::Spawned { pid });
        self.after(Duration::ZERO, Happening::Reported(at, input));
        let takes = span.draw(&mut self.dice);
        match start {
            Start::Fine => self.after(takes, Happening::Link(life)),
            Start::Dies(code) => self.after(takes, Happening::Dies(life, code)),
            Start::Says(of) => self.after(takes, Happening::DiesOf(life, of)),
            Start::Ails(of) => {
                let ailing = self.dice.up_to(ms(600));
                self.after(takes, Happening::Link(life));
                self.after(takes + ailing, Happening::DiesOf(life, of));
            }
            Start::Mute | Start::Refused => {}
        }
    }

    pub(super) fn die(&mut self, life: Incarnation) {
        self.ends(life, Exit::Signal(9));
    }

    /// A process ends; the daemon hears of it a little later.
    pub(super) fn ends(&mut self, life: Incarnation, exit: Exit) {
        let detail = match exit {
            Exit::Code(_) => "error: it cannot start",
            _ => "",
        };
        self.ends_with(life, exit, detail.to_owned());
    }

    /// A process ends, and these are the last lines of its log.
    pub(super) fn ends_with(&mut self, life: Incarnation, exit: Exit, detail: String) {
        if !self.falls(life) {
            return;
        }
        let at = self.procs.get(&life).map_or(0, |p| p.machine);
        let ended = self.timing.teardown.draw(&mut self.dice);
        let told = self.timing.told.draw(&mut self.dice);
        let input = Input::Role(
            life,
            RoleEvent::Exited {
                at: Some(self.now + ended),
                exit,
                detail,
            },
        );
        self.after(ended + told, Happening::Reported(at, input));
    }

    /// A process ends; whether it lived until now.
    fn falls(&mut self, life: Incarnation) -> bool {
        let with = self.generates(life).collect();
        let Some(p) = self.procs.get_mut(&life) else {
            return false;
        };
        if !std::mem::replace(&mut p.alive, false) {
            return false;
        }
        p.linked = false;
        if p.id.role.is_engine() {
            self.checker.poisoning.died(life, with);
        }
        self.pullers.remove(&life);
        self.pullers.retain(|_, o| !o.sources.contains(&life));
        self.forget_asked(life);
        true
    }

    /// A process ends with its node: nobody tells of it.
    pub(super) fn vanish(&mut self, life: Incarnation) {
        self.falls(life);
    }

    pub(super) fn probed(&mut self, incarnation: Incarnation) {
        // A probe of one that does not answer is over at its timeout, which is the core's too.
        let found = self.procs.get(&incarnation);
        if found.is_some_and(|p| p.serves() && self.machines.in_reach(p.machine)) {
            self.feed(Input::Role(incarnation, RoleEvent::Probed { ok: true }));
        }
    }
}
