//! The daemon: its driver's order of work, its store, its death and return.
use super::controllers::Which;
use super::{Happening, World};
use robust_shared::core::{
    Changes, Core, Entries, Exit, GangEvent, Input, Outcome, Output, Record, RoleEvent, STALL,
};
use robust_shared::ids::{Incarnation, NodeId, Step, TrajectoryId};
use robust_shared::time::Time;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// When it goes on the daemon hears for a moment before it judges, and judges a moment later.
const HEARS: Duration = Duration::from_millis(1500);

/// The daemon beside its core.
#[derive(Clone, Debug)]
pub(super) struct Daemon {
    pub up: bool,
    /// Counts its lives.
    pub life: u32,
    /// Since when it is up.
    pub back_at: Time,
    /// Requests of lower tickets began before that.
    pub first_ticket: u64,
    /// Records are being written, or it stands still: what comes in waits, and so does what follows from them.
    pub writing: bool,
    /// From when to when it stood still the last time, several times in short order taken as one.
    halted: (Time, Time),
    held: VecDeque<Output>,
    inbox: VecDeque<Input>,
    /// The core's state as it is on disk, entry by entry.
    disk: Entries,
    /// Outputs after which the daemon dies, the rest of them lost.
    pub crash_after: Option<u64>,
    /// Who may write to which trajectory; what the store's door looks at.
    pub leases: BTreeMap<TrajectoryId, (Incarnation, u64)>,
}

impl Daemon {
    pub fn new() -> Self {
        Self {
            up: true,
            life: 0,
            back_at: Time(0),
            first_ticket: 0,
            writing: false,
            halted: (Time(0), Time(0)),
            held: VecDeque::new(),
            inbox: VecDeque::new(),
            disk: Entries::default(),
            crash_after: None,
            leases: BTreeMap::new(),
        }
    }

    /// One that goes on from what is on its disk.
    pub fn restored(life: u32, now: Time, disk: Entries) -> Self {
        Self {
            life,
            back_at: now,
            disk,
            ..Self::new()
        }
    }

    /// What waits for a write.
    pub fn held(&self) -> impl Iterator<Item = &Output> {
        self.held.iter()
    }

    /// It stands still from then to then.
    pub fn halt(&mut self, (from, until): (Time, Time)) {
        self.halted = (from, until);
    }

    /// It hears this before all that waits.
    pub fn hear_first(&mut self, input: Input) {
        self.inbox.push_front(input);
    }

    /// Who may write a trajectory.
    pub fn holder_of(&self, t: TrajectoryId) -> Option<Incarnation> {
        self.leases.get(&t).map(|(holder, _)| *holder)
    }

    /// Whether it would handle an input now.
    pub fn idle(&self) -> bool {
        self.up && !self.writing
    }
}

/// What may rightly come twice, the second time late: calls that are tried again, and news of ends.
fn can_come_twice(input: &Input) -> bool {
    matches!(
        input,
        Input::Gang(_, GangEvent::StepDone { .. })
            | Input::Gang(_, GangEvent::Published { .. })
            | Input::Gang(_, GangEvent::Restored { .. })
            | Input::Role(_, RoleEvent::Pulled { result: Ok(()), .. })
            | Input::Role(_, RoleEvent::TrajectoryFinished { .. })
            | Input::Role(_, RoleEvent::Exited { .. })
            | Input::Role(_, RoleEvent::Spawned { .. })
            | Input::Role(_, RoleEvent::PullProgress { .. })
            | Input::RouteReleased { .. }
            | Input::Role(_, RoleEvent::Probed { .. })
    )
}

/// Answers that whoever asked may get again: a call is repeated when a link broke over it.
fn is_answer(input: &Input) -> bool {
    matches!(
        input,
        Input::Gang(
            _,
            GangEvent::Prepared { .. } | GangEvent::StepFailed { .. } | GangEvent::TrainerOver
        ) | Input::Role(
            _,
            RoleEvent::Evidence { .. }
                | RoleEvent::PullStarted { .. }
                | RoleEvent::Pulled { .. }
                | RoleEvent::FaultStruck { .. }
        )
    )
}

/// What answers a call that the daemon made itself.
fn answers_a_call(input: &Input) -> bool {
    matches!(
        input,
        Input::Gang(..)
            | Input::Role(
                _,
                RoleEvent::Probed { .. }
                    | RoleEvent::Switched { .. }
                    | RoleEvent::FaultStruck { .. }
                    | RoleEvent::Evidence { .. }
            )
    )
}

impl World {
    /// Something happened that the daemon hears of, if it lives.
    pub fn feed(&mut self, input: Input) {
        if self.comes_here(&input) {
            self.hear(input);
        }
    }

    fn hear(&mut self, input: Input) {
        if !self.daemon.up || self.outcome.is_some() {
            return;
        }
        if self.daemon.writing {
            return self.daemon.inbox.push_back(input);
        }
        if self.timing.duplicate_per_mille > 0
            && (can_come_twice(&input) || self.timing.answers_twice && is_answer(&input))
            && self.dice.chance(self.timing.duplicate_per_mille)
        {
            let late = self.dice.up_to(super::ms(3000));
            self.after(late, Happening::Feed(input.clone()));
        }
        // What an agent worker stored is read back by a daemon that starts, and said by nobody again.
        let stored = matches!(input, Input::Role(_, RoleEvent::TrajectoryFinished { .. }));
        if (can_come_twice(&input) || is_answer(&input)) && !stored {
            self.remember_said(&input);
        }
        self.journal.note(self.now, '<', &input);
        self.inputs += 1;
        self.coverage.note(&self.core, &input);
        self.checker.told(&self.core, &input, &self.stored);
        self.note_drained();
        let attached = match &input {
            Input::Role(incarnation, RoleEvent::Attached { hello }) => {
                Some((*incarnation, hello.leases.clone()))
            }
            _ => None,
        };
        let joins = match &input {
            Input::NodeJoined { node, .. } => Some(node.name.clone()),
            _ => None,
        };
        self.look_at_lemons(&input);
        self.handle(input);
        self.checker.handled(&self.core);
        if let Some(name) = joins {
            self.joined(&name);
        }
        if !self.daemon.writing {
            self.drop_given_up();
        }
        if self.check_core
            && let Err(difference) = self.core.check()
        {
            self.checker.broken(self.now, "index", &difference);
        }
        if self.check_progress
            && let Some(waits) = self.core.left_waiting()
        {
            self.checker.broken(self.now, "progress", &waits);
        }
        if let Some((life, held)) = attached {
            self.finds_running(life);
            self.grant_again(life, &held);
        }
        self.settle();
    }

    /// What an agent worker holds when it links again may be written on, if the core agrees.
    fn grant_again(&mut self, agent: Incarnation, held: &[TrajectoryId]) {
        for &t in held {
            if self.core.holds_lease(agent, t) {
                self.check_holder(agent, t);
                // Another controller may have handed it out.
                self.checker.dispatched(t, self.config.responses);
                let lease = self.core.lease_of(t);
                self.daemon.leases.insert(t, (agent, lease));
            }
        }
    }

    /// Carries out what the core wants, nothing before what it rests on is durable.
    fn settle(&mut self) {
        let mut outputs = VecDeque::from(std::mem::take(&mut self.taken));
        while let Some(output) = self.core.poll_output() {
            outputs.push_back(output);
        }
        for output in &outputs {
            self.journal.note(self.now, '>', output);
            if let Output::Record(Record::Incident(incident)) = output {
                self.checker.decided(incident);
            }
        }
        self.check_lemons();
        while let Some(output) = outputs.pop_front() {
            if !matches!(output, Output::Record(_)) {
                if !self.act_unless_dying(output) {
                    return;
                }
                continue;
            }
            outputs.push_front(output);
            (self.daemon.held, self.daemon.writing) = (outputs, true);
            while let Some(at) = Output::overtakes(&self.daemon.held) {
                let Some(output) = self.daemon.held.remove(at) else {
                    break;
                };
                if !self.act_unless_dying(output) {
                    return;
                }
            }
            if self.ha.are_there() {
                return self.write_to_log();
            }
            let takes = self.timing.store.draw(&mut self.dice);
            if takes.is_zero() {
                return self.durable(self.daemon.life);
            }
            return self.after(takes, Happening::Durable(self.daemon.life));
        }
        self.check_settled();
    }

    /// False: the daemon died first.
    fn act_unless_dying(&mut self, output: Output) -> bool {
        self.outputs += 1;
        if self.ha.are_there() {
            self.check_acts();
        }
        if self.daemon.crash_after.is_some_and(|n| self.outputs >= n) {
            self.daemon.crash_after = None;
            self.crash_daemon();
            return false;
        }
        self.act(output);
        true
    }

    /// The records are on disk with the state; what follows from them may leave.
    pub(super) fn durable(&mut self, life: u32) {
        if !self.daemon.up || life != self.daemon.life {
            return;
        }
        let stands = self.daemon.halted.1.since(self.now);
        if !stands.is_zero() {
            return self.after(stands, Happening::Durable(life));
        }
        self.write();
        self.release_held();
    }

    /// What was held for the records leaves.
    pub(super) fn release_held(&mut self) {
        // A daemon that dies in what follows has no record left to write.
        let written = |o: &Output| matches!(o, Output::Record(_));
        self.daemon.held.retain(|o| !written(o));
        while let Some(output) = self.daemon.held.pop_front() {
            if !self.act_unless_dying(output) {
                return;
            }
        }
        self.hear_what_waited();
    }

    /// The daemon stands still, with all that it would hear waiting, and with what it writes.
    pub fn halt_daemon(&mut self, for_: Duration) {
        let stands = self.daemon.halted.1 > self.now;
        if !self.daemon.up || self.outcome.is_some() || stands {
            return;
        }
        if self.ha.are_there() {
            return self.freeze_controller(Which::Leader, for_);
        }
        let from = self.heard_until();
        self.daemon.halted = (from, self.now + for_);
        // The first that it hears when it goes on is that it stood still.
        if for_ > STALL {
            self.daemon.inbox.push_front(Input::StoodStill);
        }
        if !self.daemon.writing {
            self.daemon.writing = true;
            self.after(for_, Happening::GoesOn(self.daemon.life));
        }
    }

    /// Until when what the daemon judges by can be: before it stood still, if it went on only just now.
    pub(super) fn heard_until(&self) -> Time {
        let (from, until) = self.daemon.halted;
        match until.0 > 0 && self.now <= until + HEARS {
            true => from,
            false => self.now,
        }
    }

    pub(super) fn daemon_goes_on(&mut self, life: u32) {
        if self.daemon.up && life == self.daemon.life {
            self.hear_what_waited();
        }
    }

    pub(super) fn hear_what_waited(&mut self) {
        self.daemon.writing = false;
        // A node's stream ends when its loss is durable; until then it may still say something.
        self.drop_given_up();
        self.check_settled();
        while self.daemon.idle() {
            let Some(input) = self.daemon.inbox.pop_front() else {
                return;
            };
            self.hear(input);
        }
    }

    fn write(&mut self) {
        let changes = self.core.take_changes();
        let records: Vec<Record> = self.daemon.records().cloned().collect();
        self.written(changes, &records);
    }

    /// This is on disk, all of it at once.
    pub(super) fn written(&mut self, changes: Changes, records: &[Record]) {
        if self.check_core {
            self.check_coded(&changes);
        }
        self.daemon.disk.apply(changes);
        if self.check_core {
            self.check_disk();
        }
        for record in records {
            self.check_record(record);
            if let Record::Committed { step, .. } = record {
                self.forget_batch(*step);
            }
        }
        self.checker.written();
    }

    /// What is written reads back as it was.
    fn check_coded(&mut self, changes: &Changes) {
        let same = |(key, entry): &(robust_shared::core::EntryKey, robust_shared::core::Entry)| {
            let bytes = entry.encode(*key)?;
            Ok(robust_shared::core::Entry::decode(*key, &bytes)? == *entry)
        };
        let wrong = |put: &_| match same(put) {
            Ok(true) => None,
            Ok(false) => Some(format!("{put:?} reads back as another")),
            Err::<_, robust_shared::core::CodedError>(error) => Some(error.to_string()),
        };
        if let Some(wrong) = changes.puts.iter().find_map(wrong) {
            self.checker.broken(self.now, "disk", &wrong);
        }
    }

    /// The entries on disk are the whole state: no change was forgotten.
    fn check_disk(&mut self) {
        let wrong = match self.daemon.disk.state() {
            Ok(Some(state)) if state == *self.core.state() => return,
            Ok(Some(state)) => robust_shared::core::difference(self.core.state(), &state),
            Ok(None) => "nothing was written".to_owned(),
            Err(error) => error.to_string(),
        };
        self.checker.broken(self.now, "disk", &wrong);
    }

    /// A consumed batch is looked at no more.
    fn forget_batch(&mut self, step: Step) {
        let next = TrajectoryId {
            batch: step.0 + 1,
            group: 0,
            member: 0,
        };
        self.stored = self.stored.split_off(&next);
        self.turns = self.turns.split_off(&next);
        self.oldest = self.oldest.split_off(&next);
    }

    /// Kills the daemon; its roles live on. A write under way may or may not have come to its end.
    pub fn crash_daemon(&mut self) {
        if self.ha.are_there() {
            return self.crash_seated();
        }
        let away = self.timing.daemon_restart.draw(&mut self.dice);
        self.crash_daemon_until(away);
    }

    pub(super) fn crash_daemon_until(&mut self, away: Duration) {
        if !self.daemon.up {
            return;
        }
        if self.daemon.writing && !self.daemon.held.is_empty() && self.dice.chance(500) {
            self.write();
        }
        self.daemon_ends();
        self.drop_streams();
        let lives: Vec<_> = self.procs.keys().copied().collect();
        for life in lives {
            self.unlink(life);
        }
        self.after(away, Happening::DaemonBack(self.daemon.life));
    }

    /// Its process ends.
    pub(super) fn daemon_ends(&mut self) {
        self.daemon.held.clear();
        self.daemon.inbox.clear();
        self.daemon.writing = false;
        self.daemon.halted = (Time(0), Time(0));
        self.daemon.up = false;
        self.daemon.life += 1;
        self.daemon.leases.clear();
        self.daemon_forgets();
    }

    /// What a daemon knows in memory alone is gone.
    pub(super) fn daemon_forgets(&mut self) {
        self.drop_answers();
        self.pullers.clear();
        self.gang.task = None;
        self.office.forget_asked();
        self.break_routes();
    }

    /// Answers to calls of the daemon that died reach nobody, nor do they come again.
    fn drop_answers(&mut self) {
        self.said.retain(|input| !answers_a_call(input));
        self.queue.retain(|_, happening| match happening {
            Happening::Feed(input) => !answers_a_call(input),
            Happening::Probed(_) => false,
            _ => true,
        });
    }

    /// The daemon dies after so many more outputs, in the middle of what it does.
    pub fn crash_daemon_after(&mut self, outputs: u64) {
        self.daemon.crash_after = Some(self.outputs + outputs);
    }

    /// Starts the daemon again: it takes over what lives and goes on from what it recorded.
    pub(super) fn restart_daemon(&mut self, life: u32) {
        if self.daemon.up || life != self.daemon.life {
            return;
        }
        (self.daemon.up, self.daemon.back_at) = (true, self.now);
        self.daemon.first_ticket = self.number();
        self.go_on();
        self.find_leader();
    }

    /// A daemon goes on with the job from what is on its disk.
    pub(super) fn go_on(&mut self) {
        let stored = self.daemon.disk.state();
        let unreadable = stored.as_ref().err().copied();
        self.core = match stored.ok().flatten() {
            Some(state) => {
                // An operator's stop is on record, though the daemon died before it ended anybody.
                self.begun_anew |= state.outcome() == Some(&Outcome::Stopped);
                let job = match self.ha.on_stage() {
                    true => self.office.job_of(state.revision()),
                    false => self.office.job_at(state.revision()),
                };
                Core::restore(job, state)
            }
            None => Core::new(self.office.job_of(0)),
        };
        self.must(unreadable.is_none(), "disk", || {
            format!("what was written cannot be read: {unreadable:?}")
        });
        self.checker.restored();
        if self.ha.on_stage() {
            self.remember_promises();
        }
        self.begun_anew = false;
        let instances = self.core.view(self.now).instances;
        let current: Vec<_> = instances.iter().map(|i| i.incarnation).collect();
        // Those of other nodes are accounted for when their nodes join.
        let elsewhere = |i: &robust_shared::core::InstanceView| {
            let node = i.slot.as_ref().map(|s| s.node);
            self.machines.live && node.is_some_and(|node| node != NodeId::LEADER)
        };
        let here = instances.iter().filter(|i| !elsewhere(i));
        let here: Vec<_> = here.map(|i| i.incarnation).collect();
        let stale: Vec<_> = self
            .procs
            .iter()
            .filter(|(l, p)| (p.machine == 0 || !self.machines.live) && !current.contains(l))
            .map(|(life, _)| *life)
            .collect();
        for life in stale {
            self.die(life);
        }
        for trajectory in self.stored.clone() {
            if trajectory.batch > self.core.state().committed().0 {
                self.feed(Input::Role(
                    Incarnation(0),
                    RoleEvent::TrajectoryFinished {
                        trajectory,
                        reward: 0.5,
                        oldest_version: self.oldest_of(trajectory),
                        lease: 0,
                    },
                ));
            }
        }
        for life in here.into_iter().filter(|life| life.0 != 0) {
            self.adopt(life);
        }
        self.feed(Input::Start);
    }

    fn adopt(&mut self, incarnation: Incarnation) {
        if self.procs.get(&incarnation).is_some_and(|p| p.alive) {
            let pid = pid_of(incarnation);
            self.feed(Input::Role(incarnation, RoleEvent::Spawned { pid }));
            let takes = self.timing.relink.draw(&mut self.dice);
            self.after(takes, Happening::Link(incarnation));
        } else {
            self.feed(Input::Role(
                incarnation,
                RoleEvent::Exited {
                    at: None,
                    exit: Exit::Gone,
                    detail: String::new(),
                },
            ));
        }
    }
}

pub(super) fn pid_of(incarnation: Incarnation) -> u32 {
    u32::try_from(incarnation.0).unwrap_or(u32::MAX)
}
