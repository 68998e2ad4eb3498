//! Pulls, held against what the buffers of their sources really hold.
use super::super::process::PARTS;
use super::super::pulls::Ordered;
use super::super::{Proc, World};
use robust_shared::ids::{Incarnation, WeightVersion};
use std::time::Duration;

/// Once nothing disturbs the world any more, every engine that is well gets the published weights
/// within this.
const CATCH_UP: Duration = Duration::from_secs(120);

impl World {
    /// A rollout is told to pull.
    pub(super) fn check_pull(
        &mut self,
        puller: Incarnation,
        (version, order): (WeightVersion, u64),
        sources: &[Incarnation],
    ) {
        let published = self.checker.published;
        self.must(Some(version) <= published, "I-5", || {
            format!("{puller} is to pull {version}, published is {published:?}")
        });
        let has = self.procs.get(&puller).and_then(|p| p.version);
        let told = self.procs.get(&puller).is_some_and(|p| p.linked);
        self.must(!told || has <= Some(version), "I-4", || {
            format!("{puller} has {has:?} and is to pull {version}")
        });
        self.pullers.remove(&puller);
        // An order that is repeated to one that has every part of it takes no source's time.
        let p = self.procs.get(&puller);
        let reads = p.and_then(|p| p.holds(version)) != Some(PARTS);
        for source in sources.iter().filter(|_| reads) {
            self.check_source(puller, version, *source);
        }
        self.check_reader(puller, version);
        let sources = sources.to_vec();
        let ordered = Ordered {
            order,
            version,
            sources,
        };
        self.pullers.insert(puller, ordered);
    }

    fn check_source(&mut self, puller: Incarnation, version: WeightVersion, source: Incarnation) {
        let others = self.readers_of(source).count() + 1;
        let limit = self.config.pullers_per_source as usize;
        self.must(others <= limit, "I-6", || {
            format!("{source} is to serve {others} pullers, {limit} are allowed")
        });
        let relay = self.procs.get(&source).filter(|p| p.id.role.is_engine());
        let relay_id = relay.map(|p| p.id);
        // An older order that is repeated after a break may be void: its source says so.
        let newest = Some(version) == self.checker.published;
        let empty = relay.is_some_and(|p| newest && p.alive && p.holds(version).is_none());
        self.must(!empty, "relay", || {
            format!("{puller} is to pull {version} from {source}, which has nothing of it to read")
        });
        let taken_out = relay_id.filter(|id| self.office.promises.quarantined.contains(id));
        self.must(taken_out.is_none(), "relay", || {
            format!("{puller} is to pull {version} from {taken_out:?}, which is quarantined")
        });
        let circle = self.comes_from(source, version, puller);
        self.must(!circle, "circle", || {
            format!("{puller} is to pull {version} from {source}, which gets it from {puller}")
        });
    }

    /// While nothing goes wrong, a version leaves the trainer once.
    pub(super) fn check_copies(&mut self, version: WeightVersion) {
        let first = self.checker.copied.insert(version);
        self.must(first || !self.untouched, "copies", || {
            format!("a second copy of {version} is to leave the trainer")
        });
    }

    /// Pullers that read from it, as far as they were told to and can.
    fn readers_of(&self, source: Incarnation) -> impl Iterator<Item = Incarnation> {
        let relay = self.procs.get(&source).filter(|p| p.id.role.is_engine());
        let reads = move |(p, o): &(&Incarnation, &Ordered)| {
            // One that has it already will find its order done.
            let has = self.procs.get(*p).and_then(|p| p.version);
            // Nobody can end one whose node is lost to the leader.
            let lost = self.core.is_current(**p).is_none();
            let ends = lost || self.procs.get(*p).is_some_and(|p| p.over);
            let all = self
                .procs
                .get(*p)
                .is_some_and(|p| p.holds(o.version) == Some(PARTS));
            let reads = self.works(**p) && !ends && !all && self.in_touch(**p, source);
            let can = relay.is_none_or(|r| r.holds(o.version).is_some());
            o.sources.contains(&source) && reads && can && has < Some(o.version)
        };
        self.pullers.iter().filter(reads).map(|(life, _)| *life)
    }

    /// Whether what a relay gets of a version comes from this engine.
    fn comes_from(&self, relay: Incarnation, version: WeightVersion, from: Incarnation) -> bool {
        let mut at = relay;
        for _ in 0..=self.procs.len() {
            let pulls = self
                .procs
                .get(&at)
                .filter(|p| p.holds(version) != Some(PARTS));
            let ordered = pulls.and_then(|_| self.pullers.get(&at));
            // One that was given up waits for a new order, as soon as there is a source.
            let ordered = ordered.filter(|o| o.sources == self.core.pulls_from(at));
            match ordered
                .filter(|o| o.version == version)
                .map(|o| o.sources.as_slice())
            {
                Some([next, ..]) if *next == from => return true,
                Some([next, ..]) => at = *next,
                _ => return false,
            }
        }
        true
    }

    /// Nobody may still read a whole version from the buffer that an engine is to pull into.
    fn check_reader(&mut self, puller: Incarnation, version: WeightVersion) {
        // One that has it already, as its controller is about to hear, writes into no buffer for it. One that
        // changed over, of which its controller is still to hear, refuses whoever reads the other buffer.
        let known = self.core.version_of(puller);
        let pulls = |p: &&Proc| p.version < Some(version) && p.version <= known;
        let Some(p) = self.procs.get(&puller).filter(pulls) else {
            return;
        };
        let older = p
            .spare
            .map(|(v, _)| v)
            .filter(|v| Some(*v) < p.version && *v != version);
        let reads = |life: &Incarnation| self.pullers.get(life).map(|o| o.version) == older;
        let reader = older.and_then(|_| self.readers_of(puller).find(reads));
        self.must(reader.is_none(), "I-4", || {
            format!("{version} is pulled into the buffer of {puller} that {reader:?} reads")
        });
    }

    /// Whether some engine is well and has not got the published weights. In a world that has been
    /// calm for long there is none.
    pub(in super::super) fn lags(&mut self) -> bool {
        if !self.calm {
            return false;
        }
        let published = self.checker.published;
        let lags = |(life, p): &(&Incarnation, &Proc)| {
            let newest = self.life(p.id) == **life;
            let well = p.serves() && !p.over && p.linked && self.machines.linked(p.machine);
            p.id.role.is_engine() && newest && well && p.version < published
        };
        let found = self
            .procs
            .iter()
            .find(lags)
            .map(|(life, p)| (*life, p.id, p.version));
        let Some((life, who, has)) = found else {
            self.lags_since = None;
            return false;
        };
        let since = *self.lags_since.get_or_insert(self.now);
        let late = self.now.since(since) > CATCH_UP;
        self.must(!late, "pulls", || {
            format!("{who} {life} has {has:?} and does not get to {published:?}")
        });
        true
    }
}
