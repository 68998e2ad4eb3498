//! Telemetry: taken by the daemon from the system, so a stopped process is sampled too.
use super::trainer::computed;
use super::{Happening, World, ms};
use robust_shared::core::{Input, RoleEvent, Sample};
use robust_shared::ids::{Incarnation, Role};
use robust_shared::phase::Phase;

impl World {
    pub(super) fn samples(&mut self) {
        let alive = self.procs.iter().filter(|(_, p)| p.alive);
        let lives: Vec<_> = alive.map(|(life, _)| *life).collect();
        for life in lives {
            self.sample(life);
        }
        if !self.timing.sample_every.is_zero() {
            self.after(self.timing.sample_every, Happening::Samples);
        }
    }

    fn sample(&mut self, incarnation: Incarnation) {
        let whole = self.procs.get(&incarnation).is_some_and(|p| {
            p.id.role == Role::Trainer
                && p.phase.is_trainer_compute()
                && self.gang_serves(p.generation)
        });
        let every = self.timing.sample_every;
        let dice = self.dice.draw();
        let Some(p) = self.procs.get_mut(&incarnation) else {
            return;
        };
        // Nothing wakes an agent worker whose tools run; everybody else has a heartbeat.
        let asleep = p.id.role == Role::Agent && p.phase == Phase::AwaitingTool;
        if p.works() && !asleep {
            p.busy += match whole {
                true => computed(every),
                false => ms(1).min(every / 100),
            };
        }
        if p.serves() && !p.paused && dice.is_multiple_of(u64::from(p.slow)) {
            p.tokens += u64::from(p.requests);
        }
        let sample = Sample {
            busy: p.busy,
            tokens_total: p.tokens,
            running: p.requests,
            rss_bytes: 1 << 20,
            ..Sample::default()
        };
        let at = p.machine;
        let told = self.machines.linked(at) && self.machines.in_reach(at) && !p.frozen;
        if told && (p.id.role == Role::Trainer || p.linked) {
            self.feed(Input::Role(incarnation, RoleEvent::Sampled { sample }));
        }
    }
}
