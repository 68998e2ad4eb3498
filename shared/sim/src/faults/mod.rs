//! Fault schedules: what befalls a job and when, drawn from a seed or read from a file.
mod causes;
mod controllers;
mod fault;
mod lemons;
mod moment;
mod shape;
mod swarm;

pub use controllers::Upset;
pub use fault::Fault;
pub use moment::Moment;
pub use shape::Shape;

use crate::world::{Span, Timing, id, ms};
use robust_ahead::dice::Dice;
use robust_shared::core::{self, CoreConfig, Mode, OwnLoop, Policy, RuleSet};
use robust_shared::fault::At;
use robust_shared::ids::Role;
use robust_shared::phase::Phase;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What disturbs a run all the time until faults stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Weather {
    /// Messages take up to so long, so that those of different links overtake each other.
    pub message_ms: u64,
    /// Writes of records take up to so long.
    pub store_ms: u64,
    /// Of a thousand messages that can come twice, so many do.
    pub duplicate_per_mille: u64,
    /// Tools take up to so long.
    pub tool_ms: u64,
    /// Turns take up to so much longer.
    #[serde(default)]
    pub turn_ms: u64,
    /// Of a thousand turns so many are in a tail of up to 4 s.
    pub tail_per_mille: u64,
    /// Of a thousand turns so many come from weights older than the engine has.
    #[serde(default)]
    pub stale_per_mille: u64,
    /// All answers come twice as often as what is told, not only those of the first kinds.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub answers_twice: bool,
    /// Of a thousand requests to etcd so many are late by seconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub late_per_mille: u64,
}

/// A fault and the time from the one before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timed {
    /// Milliseconds after the fault before (or the start).
    pub after_ms: u64,
    /// The moment that it waits for from then on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on: Option<Moment>,
    /// What goes wrong.
    pub fault: Fault,
}

/// A whole run: the same schedule always gives the same run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Chance within the world.
    pub seed: u64,
    /// The job.
    pub shape: Shape,
    /// What disturbs it all the time.
    pub weather: Weather,
    /// What befalls it.
    pub faults: Vec<Timed>,
}

impl Schedule {
    /// The schedule of a seed.
    pub fn of(seed: u64) -> Self {
        let mut dice = Dice::keyed(seed, 1);
        let shape = Shape::draw(&mut dice);
        let weather = Weather::draw(&mut dice);
        let mut schedule = Self {
            seed,
            shape,
            weather,
            faults: Vec::new(),
        };
        schedule.draw_staleness();
        schedule.draw_own_loop();
        let config = schedule.config();
        for _ in 0..dice.below(10) {
            schedule.faults.push(Timed {
                on: None,
                after_ms: match dice.chance(150) {
                    true => 0,
                    false => dice.below(2500),
                },
                fault: Fault::draw(&mut dice, &config),
            });
        }
        schedule.draw_control(&config);
        schedule.draw_start_ups(&config);
        schedule.draw_poison();
        schedule.draw_tools(&config);
        schedule.draw_causes(&config);
        schedule.draw_swarm();
        schedule.draw_lemons();
        schedule
    }

    /// A trainer whose loop is its own, and whose program ends by itself; with dice of their own too.
    fn draw_own_loop(&mut self) {
        let mut dice = Dice::keyed(self.seed, 7);
        if !dice.chance(120) {
            return;
        }
        let commits = !dice.chance(300);
        let own = OwnLoop {
            commits,
            publishes: commits && !dice.chance(300),
            keeps_state: commits && !dice.chance(400),
        };
        self.shape = Shape {
            own: Some(own),
            mode: Mode::Async,
            hybrid: false,
            shared: false,
            agents: 0,
            max_staleness: None,
            steps: if commits { self.shape.steps } else { 0 },
            ..self.shape
        };
    }

    /// A trajectory that takes engines along, in a batch that can do without it; with dice of their own
    /// too. Under the policy `task` nothing but the next life of everything follows from a death.
    fn draw_poison(&mut self) {
        let mut dice = Dice::keyed(self.seed, 5);
        let (s, chance) = (self.shape, dice.chance(200));
        let unfit = s.prompts * s.responses < 3 || s.policy == Policy::Task || s.own.is_some();
        if !chance || unfit {
            return;
        }
        self.shape.poison = 2 + u32::from(dice.chance(300));
        let mut below = |most: u32| u32::try_from(dice.below(u64::from(most))).unwrap_or(0);
        let (group, member) = (below(s.prompts), below(s.responses));
        let (ahead, at) = (u64::from(below(2)), below(3) as usize);
        // A batch of one prompt cannot do without it.
        let whole = dice.chance(250) && s.prompts > 1;
        let timed = Timed {
            on: None,
            after_ms: 0,
            fault: Fault::Poison(ahead, group, (!whole).then_some(member)),
        };
        self.faults.insert(at.min(self.faults.len()), timed);
    }

    /// Tools that die, for a moment or for good; with dice of their own too.
    fn draw_tools(&mut self, config: &CoreConfig) {
        let mut dice = Dice::keyed(self.seed, 6);
        if !dice.chance(200) {
            return;
        }
        for index in 0..config.agents {
            let after_ms = dice.below(2000);
            let for_ms = match dice.chance(400) {
                true => 0,
                false => 1 + dice.below(8000),
            };
            let fault = Fault::BreakTool(id(Role::Agent, index), for_ms);
            let at = dice.below(self.faults.len() as u64 + 1);
            let timed = Timed {
                after_ms,
                on: None,
                fault,
            };
            self.faults.insert(usize::try_from(at).unwrap_or(0), timed);
        }
    }

    /// An operator who pauses, resumes and restarts between all else; with dice of their own too.
    fn draw_control(&mut self, config: &CoreConfig) {
        let mut dice = Dice::keyed(self.seed, 3);
        if !dice.chance(300) {
            return;
        }
        for _ in 0..=dice.below(3) {
            let at = dice.below(self.faults.len() as u64 + 1);
            let timed = Timed {
                on: None,
                after_ms: dice.below(2500),
                fault: Fault::draw_control(&mut dice, config),
            };
            let at = usize::try_from(at).unwrap_or(0);
            self.faults.insert(at, timed);
        }
    }

    /// Kills that wait for the start-ups of a place, and one that brings the first of them about; with
    /// dice of their own too.
    fn draw_start_ups(&mut self, config: &CoreConfig) {
        let mut dice = Dice::keyed(self.seed, 4);
        if !dice.chance(200) {
            return;
        }
        let role = match dice.below(4) {
            0 => Role::Rollout,
            1 => Role::Agent,
            _ => Role::Trainer,
        };
        let index = dice.below(u64::from(config.count(role)));
        let who = id(role, u32::try_from(index).unwrap_or(0));
        let phase = match role == Role::Trainer && dice.chance(700) {
            true => Phase::LoadCheckpoint,
            false => Phase::Init,
        };
        let kill = Fault::Arm(who, core::Fault::Kill, At { phase, percent: 0 });
        let mut at = usize::try_from(dice.below(self.faults.len() as u64 + 1)).unwrap_or(0);
        for _ in 0..=dice.below(3) {
            let timed = Timed {
                on: None,
                after_ms: dice.below(1500),
                fault: kill.clone(),
            };
            self.faults.insert(at, timed);
            at += 1;
        }
        let timed = Timed {
            on: None,
            after_ms: dice.below(500),
            fault: Fault::Kill(who),
        };
        self.faults.insert(at, timed);
    }

    /// With dice of their own, so that all else stays as the seed had it before these were drawn.
    fn draw_staleness(&mut self) {
        let mut dice = Dice::keyed(self.seed, 2);
        if dice.chance(300) {
            self.shape.max_staleness = Some(dice.below(3));
            self.weather.stale_per_mille = dice.below(250);
        }
    }

    /// What the controller is told of the job.
    pub fn config(&self) -> CoreConfig {
        let s = self.shape;
        CoreConfig {
            mode: s.mode,
            policy: s.policy,
            // Its program ends then, and nobody else knows when.
            steps: if s.own.is_some() { u64::MAX } else { s.steps },
            own_loop: s.own,
            ahead: if s.mode == Mode::Sync { 0 } else { 1 },
            ranks: s.ranks,
            hybrids: if s.hybrid { s.ranks } else { 0 },
            switch_at: if s.mode == Mode::Sync { 1.0 } else { 0.5 },
            nodes: s.nodes(),
            roles: s.roles(),
            rollouts: s.rollouts,
            agents: s.agents,
            prompts: s.prompts,
            responses: s.responses,
            agent_concurrency: 8,
            max_task_restarts: s.max_task_restarts,
            same_cause: s.same_cause,
            cordon_after: s.cordon_after,
            max_staleness: s.max_staleness,
            rules: quick_rules().with(|r| r.poison.engines.set(s.poison)),
            evidence_timeout: Duration::from_secs(1),
            ..CoreConfig::default()
        }
    }

    /// How long things take in the world.
    pub fn timing(&self) -> Timing {
        let (w, up_to) = (self.weather, |most| Span::between(Duration::ZERO, ms(most)));
        let turn = Span::between(ms(60), ms(60 + w.turn_ms)).with_tail(w.tail_per_mille, ms(4000));
        Timing {
            message: up_to(w.message_ms),
            store: up_to(w.store_ms),
            duplicate_per_mille: w.duplicate_per_mille,
            answers_twice: w.answers_twice,
            stale_per_mille: w.stale_per_mille,
            tool: Span::between(ms(30), ms(30.max(w.tool_ms))),
            turn,
            relink: Span::between(ms(20), ms(200)),
            ..Timing::default()
        }
    }
}

/// Windows of seconds, wide enough for the world's samples (every 250 ms).
fn quick_rules() -> RuleSet {
    RuleSet::default().with(|r| {
        r.trainer_idle.window.set(ms(3000));
        r.rollout_silent.window.set(ms(2000));
        r.rollout_silent.probe_timeout.set(ms(2000));
        r.agent_silent.window.set(ms(4000));
        r.attach_overdue.window.set(ms(10_000));
        r.context_switch.window.set(ms(5000));
        r.agent_unable.times.set(3);
        r.agent_unable.lasting.set(ms(2000));
    })
}

impl Weather {
    fn draw(dice: &mut Dice) -> Self {
        let mut sometimes = |per_mille, most| match dice.chance(per_mille) {
            true => dice.below(most),
            false => 0,
        };
        Self {
            message_ms: sometimes(500, 40),
            store_ms: sometimes(600, 60),
            duplicate_per_mille: sometimes(500, 300),
            tool_ms: sometimes(200, 12_000),
            turn_ms: sometimes(400, 800),
            tail_per_mille: sometimes(300, 100),
            stale_per_mille: 0,
            answers_twice: false,
            late_per_mille: 0,
        }
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}
