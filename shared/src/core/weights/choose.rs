//! Which source a puller gets.
//!
//! A relay that is still pulling depends on its own source, so pulls may not form a circle. Only a
//! puller that others already read from can close one: before it gets such a relay, the relay's
//! sources are followed up to their end.
use crate::core::roster::index::Distance;
use crate::core::roster::instance::Instance;
use crate::core::{Core, Mutation};
use crate::ids::{Incarnation, InstanceId, Role, WeightVersion};
use crate::time::Time;

/// So many candidates are looked at: all but a few are fit, unless most of them depend on the puller.
const TRIED: usize = 64;

/// Where a pull comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The trainer's ranks, each with its shard.
    Trainer,
    /// An engine.
    Relay {
        /// Which.
        life: Incarnation,
        /// Whether it is still pulling the version itself.
        growing: bool,
    },
}

impl Core {
    /// The best source that is free for a puller, and the way there.
    pub(super) fn choose_source(
        &self,
        id: InstanceId,
        version: WeightVersion,
    ) -> Option<(Distance, Source)> {
        let i = self.s.instances.get(id)?;
        let (puller, avoid) = (i.incarnation, i.avoid.as_slice());
        if avoid.iter().any(|(rests, _)| *rests == puller) {
            return None;
        }
        let index = self.index_now();
        let read = index.pullers_of(puller) > 0 && !self.config.mutant(Mutation::PullInCircle);
        let fit = |relay: Incarnation, growing: bool| {
            relay != puller
                && avoid.iter().all(|(avoided, _)| *avoided != relay)
                && !(read && growing && self.depends(relay, puller))
        };
        let near = index.relays_near(index.place(id)).take(TRIED);
        let mut near = near.filter(|(_, growing, relay)| fit(*relay, *growing));
        if let Some((way, growing, life)) = near.next() {
            return Some((way, Source::Relay { life, growing }));
        }
        let is_rank = |(source, _): &(Incarnation, Time)| {
            let life = self.s.instances.life(*source);
            life.is_some_and(|s| s.id.role == Role::Trainer)
        };
        // Copies leave the trainer one at a time; one that others wait for waits for nobody's turn.
        let waits = !self.is_urgent(i) && self.relays_have_it();
        let fit = self.trainer_free(version) && !waits && !avoid.iter().any(is_rank);
        fit.then_some((Distance::Far, Source::Trainer))
    }

    /// Whether a puller may have the trainer though relays have the version or get it: others already
    /// read the published version from it, or its pull failed just now.
    pub(in crate::core) fn is_urgent(&self, i: &Instance) -> bool {
        let published = self.s.published;
        let mut pulls = self.index.pulls_of(i.incarnation).map(|(v, _)| Some(*v));
        !i.avoid.is_empty() || pulls.any(|version| version > i.version && version == published)
    }

    /// Whether engines, free or not, have the published version or are getting it.
    pub(super) fn relays_have_it(&self) -> bool {
        let relays = |role| self.index_counts(role).relays;
        let again = self.config.mutant(Mutation::TrainerAgain);
        !again && relays(Role::Hybrid) + relays(Role::Rollout) > 0
    }

    /// Whether what a relay gets comes from this source, over however many others.
    fn depends(&self, relay: Incarnation, source: Incarnation) -> bool {
        let engines = [Role::Hybrid, Role::Rollout].map(|role| self.s.instances.count(role));
        let mut at = relay;
        // There is no circle, so the way up has an end.
        for _ in 0..=engines.iter().sum() {
            let pull = self.s.instances.life(at).and_then(|i| i.pull.as_ref());
            match pull
                .filter(|p| !p.from_trainer)
                .and_then(|p| p.sources.first())
            {
                Some(next) if *next == source => return true,
                Some(next) => at = *next,
                None => return false,
            }
        }
        true
    }

    /// Pullers that a source serves at a time (I-6).
    pub(in crate::core) fn pullers_allowed(&self) -> u32 {
        let more = u32::from(self.config.mutant(Mutation::SecondPuller));
        self.config.pullers_per_source + more
    }
}
