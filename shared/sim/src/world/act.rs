//! The hands: each output becomes a deed, after the checker has seen it.
use super::machines::{NodeOrder, SpawnOrder};
use super::trainer::Call;
use super::{Happening, World, ms};
use robust_shared::core::{Input, Output, ProcessState, RoleEvent, Seen};
use robust_shared::fault::Fault;
use robust_shared::ids::{Incarnation, IncidentId};

/// A process that is asked to end takes up to so long.
const GRACE: std::time::Duration = std::time::Duration::from_millis(120);

/// So often, of a thousand, evidence does not come.
const LOST_EVIDENCE: u64 = 50;

impl World {
    pub(super) fn act(&mut self, output: Output) {
        self.check_output(&output);
        match output {
            Output::Spawn {
                id,
                incarnation,
                generation,
                slot,
                ..
            } => self.order_spawn(SpawnOrder {
                id,
                life: incarnation,
                generation,
                slot,
            }),
            Output::Fence { node, incarnation } => {
                let at = self.machine_of(node);
                self.order(at, NodeOrder::Kill(incarnation));
            }
            Output::Kill { incarnation, .. } => {
                self.abandon_gang_of(incarnation);
                self.order_of(incarnation, NodeOrder::Kill(incarnation));
            }
            Output::Retire { incarnation } => self.retire(incarnation),
            Output::Strike { incarnation, fault } => self.strike_life(incarnation, &fault),
            Output::Carry {
                incarnation,
                number,
                fault,
                at,
                ..
            } => self.carry(incarnation, number, &fault, at.is_none()),
            // Nothing that waits in a role is carried out here.
            Output::TakeBack { .. } | Output::Afflict { .. } => {}
            Output::Restore {
                generation, step, ..
            } => self.call(generation, Call::Restore(step)),
            Output::TrainStep {
                generation,
                step,
                trajectories,
                ..
            } => {
                self.note_batch(generation, step, trajectories);
                self.call(generation, Call::Train(step));
            }
            Output::Prepare {
                generation,
                step,
                trajectories,
                ..
            } => {
                let sum = trajectories
                    .iter()
                    .fold(0, |sum: u64, t| sum.wrapping_mul(31).wrapping_add(t.key()));
                self.call(generation, Call::Prepare(step, sum));
            }
            Output::Pause { engine } => self.order_switch(engine, true),
            Output::Resume { engine } => self.order_switch(engine, false),
            Output::Publish {
                generation,
                version,
                ..
            } => self.call(generation, Call::Publish(version)),
            Output::AssignPull {
                puller,
                version,
                order,
                sources,
                from_trainer,
            } => self.order_pull(puller, (version, order), sources, from_trainer),
            Output::Dispatch {
                agent,
                trajectory,
                lease,
            } => self.hand_out(agent, trajectory, lease),
            Output::Revoke { agent, trajectory } => self.revoke(agent, trajectory),
            Output::Route { ticket, rollout } => self.routed(ticket, rollout),
            Output::Probe { incarnation, .. } => {
                let slow = self.procs.get(&incarnation).map_or(1, |p| p.slow);
                self.after(ms(100) * slow, Happening::Probed(incarnation));
            }
            Output::CollectEvidence {
                incarnation,
                incident,
                ..
            } => self.collect(incarnation, incident),
            Output::Finish { outcome } => self.outcome = Some(outcome),
            // Operators ask the one that leads.
            Output::Reply { .. } if !self.ha.on_stage() => {}
            Output::Reply { ticket, result } => self.answered_request(ticket, result),
            Output::Record(_) | Output::Event(_) => {}
        }
    }

    /// Looks at a process, which fails now and then.
    fn collect(&mut self, life: Incarnation, incident: IncidentId) {
        let state = match self.procs.get(&life) {
            Some(p) if p.alive && (p.stopped || p.frozen) => ProcessState::Stopped,
            Some(p) if p.alive => ProcessState::Lives,
            _ => ProcessState::Dead,
        };
        self.checker.looked_at(incident, life, state);
        if self.dice.chance(LOST_EVIDENCE) {
            return;
        }
        let text = match state {
            ProcessState::Stopped => "wchan do_signal_stop",
            _ => "wchan futex_wait",
        };
        let seen = Seen {
            state,
            ..Seen::default()
        };
        let text = text.to_owned();
        let input = Input::Role(life, RoleEvent::Evidence { text, seen });
        let at = self.procs.get(&life).map_or(0, |p| p.machine);
        self.after(ms(40), Happening::Reported(at, input));
    }

    /// What a node can do to a process.
    fn strike_life(&mut self, life: Incarnation, fault: &Fault) {
        match fault {
            Fault::Hang => self.order_of(life, NodeOrder::Stop(life)),
            Fault::Slow { percent, lasts } => {
                if let Some(p) = self.procs.get_mut(&life) {
                    p.slow = (100 / u32::from(*percent)).max(1);
                }
                self.after(*lasts, Happening::Heals(life));
            }
            _ => self.order_of(life, NodeOrder::Kill(life)),
        }
    }

    /// A role ends by itself when it is told to; it says of everything else that it cannot.
    fn carry(&mut self, life: Incarnation, number: u64, fault: &Fault, now: bool) {
        let code = match fault {
            Fault::Exit { code } => Some(i32::from(*code)),
            Fault::Exception => Some(1),
            _ => None,
        };
        let Some(link) = self.procs.get(&life).filter(|p| p.linked).map(|p| p.link) else {
            return;
        };
        match code.filter(|_| now) {
            Some(code) => self.after(ms(5), Happening::Dies(life, code)),
            None => {
                let input = Input::Role(
                    life,
                    RoleEvent::FaultStruck {
                        number,
                        refused: Some("it does not know how".to_owned()),
                    },
                );
                self.after(ms(5), Happening::Said(life, link, input));
            }
        }
    }

    /// What the leader waits for from a gang that is to end never comes.
    fn abandon_gang_of(&mut self, life: Incarnation) {
        if self.gang_of(life).contains(&life) {
            self.gang.task = None;
        }
    }

    /// Orders something where a process runs; one not started yet is known to its node's queue.
    fn order_of(&mut self, life: Incarnation, order: NodeOrder) {
        let runs = self.procs.get(&life).map(|p| p.machine);
        let at = runs.or_else(|| self.machines.waits(life)).unwrap_or(0);
        self.order(at, order);
    }

    /// A process is asked to end, and does so soon; what it was about counts no longer.
    fn retire(&mut self, life: Incarnation) {
        self.abandon_gang_of(life);
        self.pullers.remove(&life);
        self.pullers.retain(|_, o| !o.sources.contains(&life));
        let Some(p) = self.procs.get_mut(&life).filter(|p| p.linked) else {
            return self.order_of(life, NodeOrder::Kill(life));
        };
        (p.pulling, p.over) = (None, true);
        let soon = self.dice.up_to(GRACE);
        self.after(soon, Happening::Retires(life));
    }

    /// One that cannot read what it was asked is killed in the end.
    pub(super) fn retires(&mut self, life: Incarnation) {
        match self.procs.get(&life) {
            Some(p) if p.works() && p.linked => self.die(life),
            Some(p) if p.alive => self.order_of(life, NodeOrder::Kill(life)),
            _ => {}
        }
    }
}
