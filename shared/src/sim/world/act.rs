//! The hands: each output becomes a deed, after the checker has seen it.
use super::trainer::Call;
use super::{Happening, World, ms};
use crate::core::{Fault, Input, Output};

impl World {
    pub(super) fn act(&mut self, output: Output) {
        self.check_output(&output);
        match output {
            Output::Spawn {
                id,
                incarnation,
                generation,
                ..
            } => self.spawn_process(id, incarnation, generation),
            Output::Fence { incarnation, .. } => self.die(incarnation),
            Output::Kill { incarnation, .. } | Output::Retire { incarnation } => {
                if self.gang_of(incarnation).contains(&incarnation) {
                    self.gang.task = None;
                }
                self.die(incarnation);
            }
            Output::Strike { incarnation, fault } => match fault {
                Fault::Kill | Fault::LoseSlot => self.die(incarnation),
                Fault::Hang => {
                    if let Some(p) = self.procs.get_mut(&incarnation) {
                        p.stopped = true;
                    }
                }
            },
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
                sources,
                from_trainer,
            } => self.order_pull(puller, version, sources, from_trainer),
            Output::Dispatch { agent, trajectory } => self.hand_out(agent, trajectory),
            Output::Revoke { agent, trajectory } => self.revoke(agent, trajectory),
            Output::Route { ticket, rollout } => self.routed(ticket, rollout),
            Output::Probe { incarnation, .. } => {
                let slow = self.procs.get(&incarnation).map_or(1, |p| p.slow);
                self.after(ms(100) * slow, Happening::Probed(incarnation));
            }
            Output::CollectEvidence { incarnation, .. } => {
                let text = "wchan do_signal_stop".to_owned();
                let input = Input::Evidence { incarnation, text };
                self.after(ms(40), Happening::Feed(input));
            }
            Output::Finish { outcome } => self.outcome = Some(outcome),
            Output::Record(_) | Output::Reply { .. } | Output::Event(_) => {}
        }
    }
}
