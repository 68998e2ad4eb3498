//! What follows for the planner from what an engine has and from what the roster says of it.
//!
//! ```text
//!  roster ── tell ──► Peer ───┐
//!  reports, orders ──► Holder ─┼─► Standing ──► what differs from before: the planner's sets, and whether
//!  published, pulls from it ──┘                 there may be something to plan
//! ```
use super::holder::{Holder, Pull};
use super::near::Place;
use super::{Sets, Weights};
use crate::core::Mutation;
use crate::core::config::CoreConfig;
use crate::ids::{Incarnation, InstanceId, Role, WeightVersion};

/// What the roster says of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peer {
    /// Its present incarnation, or 0.
    pub life: Incarnation,
    /// Linked, and no verdict fell.
    pub sound: bool,
    /// A verdict fell.
    pub condemned: bool,
    /// It is to go or to move.
    pub going: bool,
    /// It is being probed.
    pub suspect: bool,
    /// An operator took it out.
    pub quarantined: bool,
    /// Where it is.
    pub place: Place,
}

/// What the planner looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// Its incarnation, under which others pull from it.
    pub life: Incarnation,
    /// It can be told something.
    pub sound: bool,
    /// Where it is.
    pub place: Place,
    /// Its admission and version, if it is to pull the published one, and whether it can wait for a relay:
    /// nobody waits for it, and no source failed it just now.
    pub behind: Option<(bool, bool, Option<WeightVersion>)>,
    /// It has the published version, or pulls it where others can read, and may serve.
    pub has: bool,
    /// Whether it is still pulling and how many pull from it, if it may serve more.
    pub relay: Option<(bool, u32)>,
    /// It was taken out while others pull from it, or will not finish the pull that others read from.
    pub strands: bool,
    /// It has the published version, or pulls it, and others still pull an older one from it.
    pub outdated: bool,
    /// What it pulls, and from which relay; none: from the trainer.
    pub pull: Option<(WeightVersion, Option<Incarnation>)>,
    /// The same of what it may still read, though it was told to pull something else.
    pub left: Option<(WeightVersion, Option<Incarnation>)>,
    /// A rank failed it as a source just now.
    pub avoids_rank: bool,
}

impl Standing {
    /// The same, but for what makes no difference to what can be planned: under which number it is known, and
    /// whom it passes over, which is told when it ends.
    fn planning(self) -> Self {
        Self {
            life: Incarnation(0),
            avoids_rank: false,
            ..self
        }
    }
}

impl Weights {
    /// The roster says what became of an engine.
    pub fn tell(&mut self, config: &CoreConfig, id: InstanceId, peer: Peer) {
        self.name(id, peer.life);
        self.engines.at(id).peer = peer;
        self.derive(config, id);
    }

    /// The present incarnation of a rank, or 0.
    pub fn tell_rank(&mut self, config: &CoreConfig, id: InstanceId, life: Incarnation) {
        let at = id.index as usize;
        if self.ranks.len() <= at {
            self.ranks.resize(at + 1, Incarnation(0));
        }
        self.name(id, life);
        self.ranks[at] = life;
        self.ranks_changed(config);
    }

    /// There is no such rank any more, nor one of a higher index.
    pub fn rank_is_gone(&mut self, config: &CoreConfig, id: InstanceId) {
        let at = self.ranks.len().min(id.index as usize);
        for life in self.ranks.split_off(at) {
            self.lives.remove(&life);
        }
        self.ranks_changed(config);
    }

    /// Whether they can be read from is another matter now, and so is who passes one of them over.
    fn ranks_changed(&mut self, config: &CoreConfig) {
        for engine in self.sets.avoid_ranks.clone() {
            self.derive(config, engine);
        }
        self.due = true;
    }

    /// An instance has a new incarnation, or none (0): what its process had is gone with it. The roster says
    /// the rest when it knows it.
    pub fn reborn(&mut self, config: &CoreConfig, id: InstanceId, life: Incarnation) {
        match id.role {
            Role::Trainer => self.tell_rank(config, id, life),
            Role::Hybrid | Role::Rollout => {
                self.name(id, life);
                self.engines.at(id).peer.life = life;
                self.change(config, id, |holder| *holder = Holder::default());
            }
            Role::Agent => {}
        }
    }

    /// Whose present incarnation it is from now on.
    fn name(&mut self, id: InstanceId, life: Incarnation) {
        let known = match id.role {
            Role::Trainer => self.ranks.get(id.index as usize).copied(),
            _ => self.engines.get(id).map(|engine| engine.peer.life),
        };
        if known == Some(life) {
            return;
        }
        if let Some(known) = known {
            self.lives.remove(&known);
        }
        if life != Incarnation(0) {
            self.lives.insert(life, id);
        }
    }

    /// Derives anew what follows from everything, as where the published version is another one.
    pub(super) fn derive_all(&mut self, config: &CoreConfig) {
        for id in self.engines.ids() {
            self.derive(config, id);
        }
    }

    /// Derives anew what follows from one engine.
    pub(super) fn derive(&mut self, config: &CoreConfig, id: InstanceId) {
        let new = self.standing(config, id);
        let old = std::mem::replace(&mut self.engines.at(id).standing, new);
        if old == new {
            return;
        }
        self.due |= old.planning() != new.planning();
        self.sets.change(id, &old, &new);
        if old.pull != new.pull {
            let relays = [old.pull, new.pull].into_iter().flatten();
            for relay in relays.filter_map(|(_, relay)| relay) {
                if let Some(relay) = self.engine_of(relay) {
                    self.touch(relay);
                    self.derive(config, relay);
                }
            }
        }
    }

    fn standing(&self, config: &CoreConfig, id: InstanceId) -> Standing {
        let Some(engine) = self.engines.get(id) else {
            return Standing::default();
        };
        let (i, peer, published) = (&engine.holder, engine.peer, self.published);
        // One that has all of an older version changes over to that first. Between turns it waits for as
        // long as a request takes, and where versions come faster it would never change over.
        let occupied = |p: &Pull| Some(p.version) >= published || !p.reads();
        let occupied = i.pull.as_ref().is_some_and(occupied);
        let behind = peer.sound && !peer.going && i.version < published && !occupied;
        let pullers = self.sets.pullers_of(peer.life);
        let pulls = || self.sets.pulls_of(peer.life).map(|(v, _)| Some(*v));
        let read_early = pulls().any(|version| version > i.version);
        let (has, growing) = self.has_published(config, i, peer);
        Standing {
            life: peer.life,
            sound: peer.sound,
            place: peer.place,
            behind: behind.then_some((!self.is_urgent(i, peer.life), i.admitted, i.version)),
            has,
            relay: (has && pullers < pullers_allowed(config)).then_some((growing, pullers)),
            strands: read_early && (peer.going || peer.condemned)
                || pullers > 0 && peer.quarantined,
            outdated: has && pulls().any(|version| version < published),
            pull: i.pull.as_ref().filter(|p| p.reads()).map(Pull::what),
            left: i.left,
            avoids_rank: i.avoid.iter().any(|(source, _)| self.is_rank(*source)),
        }
    }

    /// Whether others may pull the published version from an engine, and whether it is still pulling
    /// it itself: then they get what it verified, as it comes.
    fn has_published(&self, config: &CoreConfig, i: &Holder, peer: Peer) -> (bool, bool) {
        let published = self.published;
        let serves = peer.sound && !peer.going && !peer.suspect && !peer.quarantined;
        let whole = i.version.is_some() && i.version == published;
        let pulls = i.pull.as_ref().map(|p| p.version);
        let readable = i.readable == published || config.mutant(Mutation::RelayUnready);
        let growing = !whole && pulls.is_some() && pulls == published && readable;
        let all = i.pull.as_ref().is_some_and(|p| !p.reads());
        (serves && (whole || growing), growing && !all)
    }

    /// Whether a puller may have the trainer though relays have the version or get it: others already
    /// read the published version from it, or its pull failed just now.
    pub(super) fn is_urgent(&self, i: &Holder, life: Incarnation) -> bool {
        let mut pulls = self.sets.pulls_of(life).map(|(v, _)| Some(*v));
        !i.avoid.is_empty() || pulls.any(|version| version > i.version && version == self.published)
    }

    /// Whether it is the present incarnation of a rank of the trainer.
    pub(super) fn is_rank(&self, source: Incarnation) -> bool {
        let known = self.lives.get(&source);
        known.is_some_and(|id| id.role == Role::Trainer)
    }

    /// The engine whose present incarnation it is.
    pub(super) fn engine_of(&self, life: Incarnation) -> Option<InstanceId> {
        let known = self.lives.get(&life).copied();
        known.filter(|id| id.role.is_engine())
    }

    /// What the roster said, and all that follows from it, is forgotten, and is to be said again.
    pub fn forget_told(&mut self) {
        (self.sets, self.ranks) = (Sets::default(), Vec::new());
        self.lives.clear();
        self.touched.clear();
        self.engines.forget_told();
        self.due = true;
    }

    /// Whether the other was told the same, and made the same of it.
    pub fn has_same_sets(&self, other: &Self) -> bool {
        (&self.sets, &self.lives) == (&other.sets, &other.lives)
            && self.engines.stand_as(&other.engines)
    }
}

/// Pullers that a source serves at a time (I-6).
pub(super) fn pullers_allowed(config: &CoreConfig) -> u32 {
    let more = u32::from(config.mutant(Mutation::SecondPuller));
    config.pullers_per_source + more
}
