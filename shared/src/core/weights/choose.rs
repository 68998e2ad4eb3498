//! Which source a puller gets.
//!
//! A relay that is still pulling depends on its own source, so pulls may not form a circle. Only a
//! puller that others already read from can close one: before it gets such a relay, the relay's
//! sources are followed up to their end.
use super::Weights;
use super::near::Distance;
use super::plan::Wanted;
use crate::core::Mutation;
use crate::core::config::CoreConfig;
use crate::ids::{Incarnation, InstanceId};

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

impl Weights {
    /// The best source that is free for a puller, and the way there.
    pub(super) fn choose_source(
        &self,
        config: &CoreConfig,
        id: InstanceId,
        wanted: Wanted,
    ) -> Option<(Distance, Source)> {
        let i = self.engines.get(id)?;
        let (puller, holder) = (i.peer.life, &i.holder);
        if holder.avoids(puller) {
            return None;
        }
        let read = self.sets.pullers_of(puller) > 0 && !config.mutant(Mutation::PullInCircle);
        let fit = |relay: Incarnation, growing: bool| {
            relay != puller
                && !holder.avoids(relay)
                && !(read && growing && self.depends(relay, puller))
        };
        let near = self.sets.relays_near(i.peer.place).take(TRIED);
        let mut near = near.filter(|(_, growing, relay)| fit(*relay, *growing));
        if let Some((way, growing, life)) = near.next() {
            return Some((way, Source::Relay { life, growing }));
        }
        // Copies leave the trainer one at a time; one that others wait for waits for nobody's turn.
        let waits = !self.is_urgent(holder, puller) && self.relays_have_it(config);
        let failed = holder.avoid.iter().any(|(source, _)| self.is_rank(*source));
        let fit = self.trainer_is_free(config, wanted) && !waits && !failed;
        fit.then_some((Distance::Far, Source::Trainer))
    }

    /// Whether what a relay gets comes from this source, over however many others.
    fn depends(&self, relay: Incarnation, source: Incarnation) -> bool {
        let mut at = relay;
        // There is no circle, so the way up has an end.
        for _ in 0..=self.engines.count() {
            let pull = self.engine_of(at).and_then(|id| self.of(id).pull());
            // One that has all its bytes waits for nobody, also while its digest is still computed.
            match pull
                .filter(|p| p.reads() && !p.from_trainer)
                .and_then(|p| p.sources.first())
            {
                Some(next) if *next == source => return true,
                Some(next) => at = *next,
                None => return false,
            }
        }
        true
    }
}
