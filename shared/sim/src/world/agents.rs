//! Agent workers and the requests they run: turns, tools, and the store's door.
use super::process::{Order, Work};
use super::{Happening, World, ms};
use robust_ahead::dice::Dice;
use robust_shared::core::{Input, RoleEvent};
use robust_shared::ids::{Incarnation, Step, TrajectoryId, WeightVersion};
use robust_shared::phase::Phase;
use std::collections::BTreeMap;
use std::time::Duration;

/// An agent worker tries so often what the daemon does not answer.
pub(super) const AGAIN: Duration = Duration::from_millis(100);
/// The shim's exit code when its engine ended.
const ENGINE_ENDED: i32 = 6;
/// Tools that take less are not worth a change of phase.
const LONG_TOOL: Duration = Duration::from_secs(1);

/// An agent worker at a trajectory, in one holding of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Doing {
    pub agent: Incarnation,
    pub trajectory: TrajectoryId,
    pub serial: u64,
}

impl World {
    /// The daemon hands a trajectory out, with the turns that are stored.
    pub(super) fn hand_out(&mut self, agent: Incarnation, trajectory: TrajectoryId, lease: u64) {
        self.daemon.leases.insert(trajectory, (agent, lease));
        if self.stored.contains(&trajectory) {
            // Its last holder died between the end's storage and our hearing of it.
            let oldest = self.oldest_of(trajectory);
            return self.after(
                Duration::ZERO,
                Happening::Feed(finished((agent, lease), trajectory, oldest)),
            );
        }
        let work = Work {
            stored: self.turns.get(&trajectory).copied().unwrap_or(0),
            oldest: None,
            in_tool: false,
            serial: self.number(),
        };
        self.tell(agent, Order::Dispatch(trajectory, work));
    }

    pub(super) fn hold(&mut self, agent: Incarnation, trajectory: TrajectoryId, work: Work) {
        let Some(p) = self.procs.get_mut(&agent) else {
            return;
        };
        if p.held.contains_key(&trajectory) {
            return;
        }
        p.held.insert(trajectory, work);
        let serial = work.serial;
        self.phase_of_agent(agent);
        self.after(
            ms(5),
            Happening::Turn(Doing {
                agent,
                trajectory,
                serial,
            }),
        );
    }

    pub(super) fn let_go(&mut self, agent: Incarnation, trajectory: TrajectoryId) {
        if let Some(p) = self.procs.get_mut(&agent) {
            p.held.remove(&trajectory);
        }
        self.phase_of_agent(agent);
    }

    /// The daemon takes a trajectory away; a request that waits for it is answered: void.
    pub(super) fn revoke(&mut self, agent: Incarnation, trajectory: TrajectoryId) {
        if self.daemon.holder_of(trajectory) == Some(agent) {
            self.daemon.leases.remove(&trajectory);
        }
        let of = |d: &Doing| (d.agent, d.trajectory) == (agent, trajectory);
        self.asked.retain(|_, d| !of(d));
        self.tell(agent, Order::Revoke(trajectory));
    }

    /// The store's door: an end that is told again, of a trajectory whose turns were thrown away
    /// since, names turns that are not there.
    pub(super) fn refused(&self, input: &Input) -> bool {
        let Input::Role(_, RoleEvent::TrajectoryFinished { trajectory, .. }) = input else {
            return false;
        };
        trajectory.batch > self.checker.committed.0 && !self.stored.contains(trajectory)
    }

    /// The oldest weights of what is stored of a trajectory.
    pub(super) fn oldest_of(&self, trajectory: TrajectoryId) -> WeightVersion {
        self.oldest.get(&trajectory).copied().unwrap_or_default()
    }

    pub(super) fn work(&self, d: Doing) -> Option<Work> {
        let p = self.procs.get(&d.agent).filter(|p| p.alive)?;
        p.held
            .get(&d.trajectory)
            .copied()
            .filter(|w| w.serial == d.serial)
    }

    fn set_tool(&mut self, d: Doing, in_tool: bool) {
        let p = self.procs.get_mut(&d.agent);
        if let Some(w) = p.and_then(|p| p.held.get_mut(&d.trajectory))
            && w.in_tool != in_tool
        {
            w.in_tool = in_tool;
            self.phase_of_agent(d.agent);
        }
    }

    /// The next turn: asks for a rollout.
    pub(super) fn turn(&mut self, d: Doing) {
        if self.work(d).is_none() {
            return;
        }
        if !self.is_heard(d.agent) || !self.daemon.up {
            return self.after(AGAIN, Happening::Turn(d));
        }
        self.set_tool(d, false);
        if self.daemon.holder_of(d.trajectory) != Some(d.agent) {
            // Refused at the door: the lease is void.
            return self.let_go(d.agent, d.trajectory);
        }
        let ticket = self.number();
        self.asked.insert(ticket, d);
        self.feed(Input::Role(
            d.agent,
            RoleEvent::RouteRequested {
                ticket,
                trajectory: d.trajectory,
            },
        ));
    }

    pub(super) fn routed(&mut self, ticket: u64, rollout: Incarnation) {
        if self.serve_client(ticket) {
            return;
        }
        let Some(d) = self.asked.remove(&ticket) else {
            return self.release(ticket);
        };
        let Some(r) = self.procs.get_mut(&rollout) else {
            self.release(ticket);
            return self.after(ms(20), Happening::Turn(d));
        };
        r.requests += 1;
        let (id, slow) = (r.id, r.slow);
        self.routed_at.push((self.now, id));
        self.phase_of_rollout(rollout);
        let turn = self.work(d).map_or(0, |w| w.stored);
        let takes = self.length(d.trajectory, turn, 0).0 * slow;
        if self.poison.contains(&d.trajectory) {
            self.after(takes / 2, Happening::Dies(rollout, ENGINE_ENDED));
        }
        self.after(takes, Happening::Generated(d, rollout, ticket));
    }

    /// A turn's generation and the tool call after it: the same for a trajectory in every life.
    fn length(&self, t: TrajectoryId, turn: u32, salt: u64) -> (Duration, Duration) {
        let key = t.key() ^ (u64::from(turn) << 57) ^ (salt << 63);
        let mut dice = Dice::keyed(self.seed, key);
        (
            self.timing.turn.draw(&mut dice),
            self.timing.tool.draw(&mut dice),
        )
    }

    pub(super) fn turns_of(&self, t: TrajectoryId) -> u32 {
        let mut dice = Dice::keyed(self.seed, !t.key());
        let more = dice.below(u64::from(self.timing.turns.max(1)));
        1 + u32::try_from(more).unwrap_or(0)
    }

    fn release(&mut self, ticket: u64) {
        let broken = false;
        self.after(
            Duration::ZERO,
            Happening::Feed(Input::RouteReleased { ticket, broken }),
        );
    }

    /// Whether anybody still wants what a rollout generates, as far as the daemon can know: it forgets what was
    /// asked for before it came back. The store refuses what an agent worker brings that is over: one that was
    /// asked to end a moment ago asks for nothing more.
    pub(super) fn generates_for_somebody(&self, rollout: Incarnation) -> bool {
        let since = self.daemon.first_ticket;
        let mut known = self.doings(rollout).filter(|(_, ticket)| *ticket >= since);
        known.any(|(d, _)| self.core.is_current(d.agent).is_some())
    }

    /// What somebody waits for of a rollout.
    pub(super) fn generates(&self, rollout: Incarnation) -> impl Iterator<Item = TrajectoryId> {
        self.doings(rollout).map(|(d, _)| d.trajectory)
    }

    /// What it generates for whom, with the ticket of the request.
    fn doings(&self, rollout: Incarnation) -> impl Iterator<Item = (Doing, u64)> {
        let wanted = move |h: &Happening| match h {
            Happening::Generated(d, by, ticket) if *by == rollout && self.work(*d).is_some() => {
                Some((*d, *ticket))
            }
            _ => None,
        };
        self.queue.values().filter_map(wanted)
    }

    /// A rollout ends a turn, or is gone; an agent that is gone wants it no longer.
    pub(super) fn generated(&mut self, d: Doing, rollout: Incarnation, ticket: u64) {
        let wanted = self.work(d).is_some();
        let r = self.procs.get(&rollout).filter(|r| r.alive);
        if wanted && r.is_some_and(|r| !r.serves()) {
            return self.after(AGAIN, Happening::Generated(d, rollout, ticket));
        }
        let away = self.sent_away(rollout) || !self.in_touch(d.agent, rollout);
        let late = self.timing.stale_per_mille;
        let late = match late > 0 && self.dice.chance(late) {
            true => 1 + self.dice.below(3),
            false => 0,
        };
        let older = |v: WeightVersion| WeightVersion(v.0.saturating_sub(late));
        let version = r.and_then(|r| r.version).filter(|_| !away).map(older);
        if let Some(r) = self.procs.get_mut(&rollout) {
            r.requests = r.requests.saturating_sub(1);
            self.phase_of_rollout(rollout);
        }
        self.answered(d, ticket, version);
    }

    /// The answer, or the broken stream, reaches the agent worker.
    pub(super) fn answered(&mut self, d: Doing, ticket: u64, by: Option<WeightVersion>) {
        if self.work(d).is_none() {
            return;
        }
        if !self.is_heard(d.agent) {
            return self.after(AGAIN, Happening::Answered(d, ticket, by));
        }
        let broken = by.is_none();
        self.feed(Input::RouteReleased { ticket, broken });
        if by.is_none() {
            return self.after(ms(20), Happening::Turn(d));
        }
        let p = self.procs.get_mut(&d.agent);
        if let Some(w) = p.and_then(|p| p.held.get_mut(&d.trajectory)) {
            w.oldest = by;
        }
        self.call_tool(d);
    }

    /// The store's door: a turn is acknowledged once it is durable; a void lease is refused.
    pub(super) fn append(&mut self, d: Doing) {
        let Some(work) = self.work(d) else {
            return;
        };
        if !self.is_heard(d.agent) || !self.daemon.up {
            return self.after(AGAIN, Happening::Append(d));
        }
        if self.daemon.holder_of(d.trajectory) != Some(d.agent) {
            return self.let_go(d.agent, d.trajectory);
        }
        if self.ha.are_there() {
            return self.append_to_log(d, work);
        }
        let acknowledged = self.turns.get(&d.trajectory).copied().unwrap_or(0);
        let over = self.stored.contains(&d.trajectory);
        self.checker
            .appended(self.now, d.trajectory, work.stored, acknowledged, over);
        let turns = work.stored + 1;
        self.turns.insert(d.trajectory, turns);
        let known = self.oldest.get(&d.trajectory).copied();
        let oldest = known.into_iter().chain(work.oldest).min();
        self.oldest.insert(d.trajectory, oldest.unwrap_or_default());
        if turns >= self.turns_of(d.trajectory) {
            self.stored.insert(d.trajectory);
            self.turn_is_stored(d, turns, true);
            return self.end_is_stored(d.agent, d.trajectory);
        }
        self.turn_is_stored(d, turns, false);
    }

    /// Again, if it was not answered.
    pub(super) fn append_again(&mut self, d: Doing, stored: u32) {
        if self.work(d).is_some_and(|work| work.stored == stored) {
            self.append(d);
        }
    }

    /// The daemon knows that a trajectory came to its end.
    pub(super) fn end_is_stored(&mut self, agent: Incarnation, t: TrajectoryId) {
        let lease = self.daemon.leases.remove(&t);
        let lease = lease.map_or(0, |(_, lease)| lease);
        let oldest = self.oldest_of(t);
        self.feed(finished((agent, lease), t, oldest));
    }

    /// An agent worker hears that so many turns are stored, and goes on.
    pub(super) fn turn_is_stored(&mut self, d: Doing, turns: u32, over: bool) {
        if over {
            return self.let_go(d.agent, d.trajectory);
        }
        let p = self.procs.get_mut(&d.agent);
        let slow = p.map_or(1, |p| {
            if let Some(w) = p.held.get_mut(&d.trajectory) {
                w.stored = turns;
            }
            p.slow
        });
        let tool = self.length(d.trajectory, turns - 1, 0).1 * slow;
        self.set_tool(d, tool >= LONG_TOOL);
        self.after(tool, Happening::Turn(d));
    }

    /// The daemon died: whoever waited for a route asks again.
    pub(super) fn break_routes(&mut self) {
        let asked = std::mem::take(&mut self.asked);
        self.ask_again(asked);
    }

    /// Whoever waited for a route of a daemon that died asks again.
    pub(super) fn ask_again(&mut self, asked: BTreeMap<u64, Doing>) {
        for d in asked.into_values() {
            self.after(AGAIN, Happening::Turn(d));
        }
    }

    /// An agent worker ended: its waiting requests are noticed to be wanted no longer.
    pub(super) fn forget_asked(&mut self, agent: Incarnation) {
        let of = |d: &Doing| d.agent == agent;
        let tickets: Vec<_> = self
            .asked
            .iter()
            .filter(|(_, d)| of(d))
            .map(|(ticket, _)| *ticket)
            .collect();
        for ticket in tickets {
            self.asked.remove(&ticket);
            let broken = false;
            let released = Input::RouteReleased { ticket, broken };
            self.after(ms(2), Happening::Feed(released));
        }
    }

    /// An agent worker's phase: a tool runs, turns run, or nothing does.
    fn phase_of_agent(&mut self, agent: Incarnation) {
        let Some(p) = self.procs.get_mut(&agent) else {
            return;
        };
        let phase = match p.held.is_empty() {
            true => Phase::Idle,
            false if p.held.values().all(|w| w.in_tool) => Phase::AwaitingTool,
            false => Phase::Generating,
        };
        self.enter(agent, phase);
    }

    fn phase_of_rollout(&mut self, rollout: Incarnation) {
        let Some(r) = self.procs.get(&rollout) else {
            return;
        };
        let phase = match r.requests {
            _ if r.paused => Phase::Paused,
            0 => Phase::Idle,
            _ => Phase::Generating,
        };
        self.enter(rollout, phase);
    }

    pub(super) fn enter(&mut self, life: Incarnation, phase: Phase) {
        let Some(p) = self.procs.get_mut(&life) else {
            return;
        };
        if !p.works() || p.phase == phase {
            return;
        }
        p.phase = phase;
        let step = Step(0);
        let input = Input::Role(life, RoleEvent::PhaseChanged { phase, step });
        // Never within the handling of another input, nor before what it said before.
        let (link, wait) = (p.link, p.heard_at.since(self.now));
        if p.linked {
            self.after(wait, Happening::Said(life, link, input));
        }
    }
}

fn finished(
    (agent, lease): (Incarnation, u64),
    trajectory: TrajectoryId,
    oldest_version: WeightVersion,
) -> Input {
    Input::Role(
        agent,
        RoleEvent::TrajectoryFinished {
            trajectory,
            reward: 0.5,
            oldest_version,
            lease,
        },
    )
}
