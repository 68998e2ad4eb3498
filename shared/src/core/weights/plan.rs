//! Orders to pull.
use super::Weights;
use super::choose::Source;
use super::holder::{Pull, Supply};
use super::near::Distance;
use super::reports::{AVOID, PullOrder};
use super::sets::Behind;
use super::standing::pullers_allowed;
use crate::core::Mutation;
use crate::core::config::CoreConfig;
use crate::core::effects::Cx;
use crate::core::output::Output;
use crate::ids::{Incarnation, InstanceId, WeightVersion};

/// What is to be pulled.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    /// The published version.
    pub version: WeightVersion,
    /// Whether the trainer's ranks can be read for it.
    pub at_trainer: bool,
}

impl Wanted {
    fn of(version: WeightVersion, ranks_serve: Option<WeightVersion>) -> Self {
        Self {
            version,
            at_trainer: ranks_serve == Some(version),
        }
    }
}

impl Weights {
    /// Assigns pulls to rollouts that are behind, as far as sources are free. The ranks can be read for the
    /// version that they serve, if they serve one.
    pub fn plan(&mut self, cx: &mut Cx<'_>, ranks_serve: Option<WeightVersion>) {
        let Some(version) = self.published else {
            return;
        };
        if !std::mem::take(&mut self.due) {
            return;
        }
        let wanted = Wanted::of(version, ranks_serve);
        self.free_stranded(cx, wanted);
        self.free_outdated(cx, wanted);
        let mut last = None;
        while let Some(next) = self.sets.behind.after(last)
            && self.any_source(cx.config, next, wanted)
        {
            if !self.assign_nearer(cx, next, wanted) {
                self.assign(cx, next.3, wanted);
                last = Some(next);
            }
        }
    }

    /// Whether anybody may serve that puller.
    fn any_source(&self, config: &CoreConfig, (waits, ..): Behind, wanted: Wanted) -> bool {
        let relays = self.sets.any_relay();
        relays || self.trainer_is_free(config, wanted) && !(waits && self.relays_have_it(config))
    }

    /// Whether the trainer's ranks may serve another puller.
    pub(super) fn trainer_is_free(&self, config: &CoreConfig, wanted: Wanted) -> bool {
        wanted.at_trainer && self.sets.from_trainer.len() < pullers_allowed(config) as usize
    }

    /// Whether engines, free or not, have the published version or are getting it.
    pub(super) fn relays_have_it(&self, config: &CoreConfig) -> bool {
        !config.mutant(Mutation::TrainerAgain) && self.sets.any_has()
    }

    /// Lets one that is behind and nearer to the next one's source go first; whether one did.
    fn assign_nearer(&mut self, cx: &mut Cx<'_>, next: Behind, wanted: Wanted) -> bool {
        let (waits, admitted, _, id) = next;
        let chosen = self.choose_source(cx.config, id, wanted);
        let Some((way, Source::Relay { life, .. })) = chosen else {
            return false;
        };
        let relay = self.engine_of(life).and_then(|id| self.engines.get(id));
        let Some(place) = relay.map(|relay| relay.peer.place) else {
            return false;
        };
        let nearest = self.sets.nearest_behind(place);
        let nearer = nearest.filter(|(other, (w, a, ..))| {
            *other < way && (*w, *a) == (waits, admitted) && way > Distance::SameNode
        });
        nearer.is_some_and(|(_, (.., nearer))| self.assign(cx, nearer, wanted))
    }

    /// Tells an engine to pull from the best source that is free; whether there is one.
    fn assign(&mut self, cx: &mut Cx<'_>, id: InstanceId, wanted: Wanted) -> bool {
        let (due, config) = (self.due, cx.config);
        let older = self.change(config, id, |holder| holder.pull.take());
        let chosen = match self.is_read(id) {
            true => None,
            false => self.choose_source(config, id, wanted),
        };
        let Some((_, source)) = chosen else {
            self.change(config, id, |holder| holder.pull = older);
            // Nothing changed by this look.
            self.due = due;
            return false;
        };
        self.order(cx, (id, wanted.version), source, older);
        true
    }

    fn order(
        &mut self,
        cx: &mut Cx<'_>,
        (id, version): (InstanceId, WeightVersion),
        source: Source,
        instead_of: Option<Pull>,
    ) {
        let now = cx.now;
        let reads = instead_of.filter(Pull::reads).map(|older| older.what());
        let (sources, from_trainer, supply) = match source {
            Source::Trainer => (self.ranks.clone(), true, Supply::Whole),
            Source::Relay {
                life,
                growing: true,
            } => (vec![life], false, Supply::Waits),
            Source::Relay { life, .. } => (vec![life], false, Supply::Whole),
        };
        let pull = Pull {
            version,
            order: 0,
            sources,
            from_trainer,
            since: now,
            moved_at: now,
            supply,
        };
        self.change(cx.config, id, |holder| {
            // The same version is pulled into the same buffer: its readers stay.
            holder.readable.take_if(|readable| *readable != version);
            holder.left = holder.left.or(reads);
            holder.pull = Some(pull);
        });
        self.tell_order(cx, id);
    }

    /// Tells an engine what it is to pull, for the first time or again. Each time the order has another number:
    /// a failure that was reported before, and is still on its way, ends none that was given since.
    pub(super) fn tell_order(&mut self, cx: &mut Cx<'_>, id: InstanceId) {
        let (puller, now) = (self.engines.at(id).peer.life, cx.now);
        let told = self.change(cx.config, id, |holder| {
            let pull = holder.pull.as_mut()?;
            // The time: what follows from no record may be carried out and forgotten in a crash of the daemon.
            holder.last_order = now.0.max(holder.last_order + 1);
            pull.order = holder.last_order;
            Some(pull.clone())
        });
        if let Some(pull) = told {
            cx.out.push(Output::AssignPull {
                puller,
                version: pull.version,
                order: pull.order,
                sources: pull.sources,
                from_trainer: pull.from_trainer,
            });
        }
    }

    /// A pull brought no bytes for too long, and nobody said why; whether it was still under way. It is tried
    /// elsewhere, and where nobody else is free it is ordered again: the puller hears of nothing but another order,
    /// so until it takes one up it may read from its source, which is not free meanwhile (I-6).
    pub fn stalled(
        &mut self,
        cx: &mut Cx<'_>,
        id: InstanceId,
        order: PullOrder,
        source: Incarnation,
        ranks_serve: Option<WeightVersion>,
    ) -> bool {
        let same = |p: &&Pull| order.is_of(p) && p.sources.contains(&source);
        let (true, Some(published)) = (self.of(id).pull().filter(same).is_some(), self.published)
        else {
            return false;
        };
        let (now, config) = (cx.now, cx.config);
        self.change(config, id, |holder| {
            holder.avoid.push((source, now + AVOID))
        });
        let wanted = Wanted::of(published, ranks_serve);
        if !self.is_sound(id) || !self.assign(cx, id, wanted) {
            self.change(config, id, |holder| {
                holder.avoid.pop();
                if let Some(pull) = &mut holder.pull {
                    pull.moved_at = now;
                }
            });
            self.tell_order(cx, id);
        }
        true
    }

    /// Somebody still reads a whole version from the buffer that it would write into: the one before
    /// the version it serves.
    fn is_read(&self, id: InstanceId) -> bool {
        let Some(source) = self.engines.get(id) else {
            return false;
        };
        let life = source.peer.life;
        let pulls = self.sets.pulls_of(life).copied();
        let mut all = pulls.chain(self.sets.left_of(Some(life)));
        all.any(|(version, _)| Some(version) < source.holder.version)
    }

    /// Whoever pulls an older version from a source of the published one frees it by pulling that.
    fn free_outdated(&mut self, cx: &mut Cx<'_>, wanted: Wanted) {
        let version = wanted.version;
        let older = self.sets.from_trainer.iter();
        let mut older: Vec<_> = older.take_while(|(v, _)| *v < version).copied().collect();
        for &id in &self.sets.outdated {
            if let Some(relay) = self.engines.get(id) {
                let pulls = self.sets.pulls_of(relay.peer.life);
                older.extend(pulls.filter(|(v, _)| *v < version).copied());
            }
        }
        // One without its link would not hear of it, and goes on reading what it reads.
        older.retain(|(_, id)| self.is_sound(*id));
        for (_, id) in older {
            self.assign(cx, id, wanted);
        }
    }

    /// Whoever pulls from an engine that was taken out, or reads along with one that will not finish,
    /// goes on elsewhere, as soon as there is a source.
    fn free_stranded(&mut self, cx: &mut Cx<'_>, wanted: Wanted) {
        for id in self.sets.stranding.clone() {
            if let Some(source) = self.engines.get(id).map(|engine| engine.peer.life) {
                for reader in self.readers_of(source) {
                    if self.is_sound(reader) {
                        self.assign(cx, reader, wanted);
                    }
                }
            }
        }
    }

    fn is_sound(&self, id: InstanceId) -> bool {
        self.engines.get(id).is_some_and(|i| i.peer.sound)
    }

    /// Who pulls from this relay.
    pub(super) fn readers_of(&self, relay: Incarnation) -> Vec<InstanceId> {
        self.sets.pulls_of(relay).map(|(_, id)| *id).collect()
    }

    /// Every pull from this rollout is off.
    pub fn drop_pulls_from(&mut self, config: &CoreConfig, source: Incarnation) {
        for id in self.readers_of(source) {
            if !config.mutant(Mutation::KeepDeadSource) {
                self.change(config, id, |holder| {
                    holder.pull.take_if(|p| p.sources.contains(&source));
                });
            }
        }
    }

    /// Every pull from the trainer is off: its generation is over.
    pub fn drop_pulls_from_trainer(&mut self, config: &CoreConfig) {
        for (_, id) in self.sets.from_trainer.clone() {
            if !config.mutant(Mutation::KeepTrainerPulls) {
                self.change(config, id, |holder| {
                    holder.pull.take_if(|p| p.from_trainer);
                });
            }
        }
        let left: Vec<_> = self.sets.left_of(None).collect();
        for (_, id) in left {
            self.change(config, id, |holder| holder.left = None);
        }
    }
}
