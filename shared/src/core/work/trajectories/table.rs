//! The table of trajectories, with what is asked of it at every turn kept beside it.
use super::past::{Past, Provenance, SetbackKind};
use crate::changed::Changed;
use crate::hash::IdMap;
use crate::ids::{Incarnation, InstanceId, Step, TrajectoryId, WeightVersion};
use crate::time::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::{BTreeMap, BTreeSet};

/// One trajectory that no step has consumed yet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trajectory {
    /// Where it is.
    pub place: Place,
    /// Times it was given back unfinished.
    pub returns: u32,
    /// Agent workers that ever held it, the last one last: what one of them stored is durable even if it died since.
    pub holders: Vec<Incarnation>,
    /// The number of the lease that was given last: later ones have higher numbers.
    #[serde(default)]
    pub lease: u64,
    /// What was done under leases up to this one was thrown away.
    #[serde(default)]
    pub void: u64,
    /// How often it was handed out, and what befell it.
    #[serde(default = "Past::not_counted")]
    pub past: Past,
}

impl Trajectory {
    /// Whether work on it began since it was opened, or thrown away.
    fn is_begun(&self) -> bool {
        self.place != Place::default() || self.returns > 0 || !self.holders.is_empty()
    }

    /// Whoever held it has nothing to say of it any more.
    fn throw_away(&mut self) {
        self.holders.clear();
        self.void = self.lease;
    }
}

/// Where a trajectory is.
///
/// ```text
///            handed out              finished, and fresh enough        its step is committed
///  pending ────────────► leased ─────────────────────► finished ───────────────────► consumed
///     ▲  ▲                 │ │                             │                            ▲
///     │  └── given back, ──┘ └─ it took engines along ─────┼──► set aside ──────────────┘
///     │      worker gone,                                  │
///     │      too old                                       │ discarded by a task restart
///     └────────────────────────────────────────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Place {
    /// To be handed out, not before this time.
    Pending(Time),
    /// Held by an agent worker.
    Leased(Incarnation),
    /// Stored with its reward.
    Finished {
        /// Its reward.
        reward: f64,
        /// The oldest weights used for it.
        oldest: WeightVersion,
    },
    /// It took engines along: nobody works on it any more, and its step is not trained on it.
    SetAside,
}

impl Default for Place {
    fn default() -> Self {
        Place::Pending(Time(0))
    }
}

/// The trajectories of one batch: `responses` to each prompt, in order.
#[derive(Clone, Debug, Default, PartialEq)]
struct Batch {
    responses: u32,
    all: Vec<Trajectory>,
    /// Finished responses, and those set aside, prompt by prompt.
    finished: Vec<u32>,
    /// Prompts all of whose responses are finished or set aside.
    whole: u32,
}

/// All trajectories of the batches that may be generated now. Derived from them, and not stored:
/// queues, leases by holder and counts.
#[derive(Clone, Debug, Default)]
pub struct Trajectories {
    batches: BTreeMap<u64, Batch>,
    /// To be handed out now, in order.
    pending: BTreeSet<TrajectoryId>,
    /// To be handed out later.
    delayed: BTreeSet<(Time, TrajectoryId)>,
    leases: IdMap<Incarnation, BTreeSet<TrajectoryId>>,
    leased: u64,
    finished: u64,
    /// Agent workers whose number of leases changed.
    touched: Vec<Incarnation>,
    /// Trajectories to be written down again, or no more.
    changed: Changed<TrajectoryId>,
    /// Batches that were opened or consumed.
    shaped: Changed<u64>,
}

/// Equal are those that remember the same, whatever was derived from it so far.
impl PartialEq for Trajectories {
    fn eq(&self, other: &Self) -> bool {
        self.batches == other.batches
    }
}

/// What tells a batch that was just opened: all of its trajectories wait to be handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    prompts: u32,
    responses: u32,
}

impl Shape {
    /// Whether a batch of it has a trajectory with this group and member.
    pub fn has(&self, id: TrajectoryId) -> bool {
        id.group < self.prompts && id.member < self.responses
    }

    /// How many trajectories a batch of it has.
    pub fn trajectories(&self) -> u64 {
        u64::from(self.prompts) * u64::from(self.responses)
    }
}

impl Trajectories {
    /// In flight, and finished but not consumed.
    pub fn counts(&self) -> (u64, u64) {
        (self.leased, self.finished)
    }

    /// How many an agent worker holds.
    pub fn leases(&self, agent: Incarnation) -> u32 {
        let held = self.leases.get(&agent).map_or(0, BTreeSet::len);
        u32::try_from(held).unwrap_or(u32::MAX)
    }

    /// Those an agent worker holds, in order.
    pub fn held_by(&self, agent: Incarnation) -> Vec<TrajectoryId> {
        let held = self.leases.get(&agent);
        held.map(|ids| ids.iter().copied().collect())
            .unwrap_or_default()
    }

    /// Everything that is leased, and to whom, in order.
    pub fn leased(&self) -> Vec<(TrajectoryId, Incarnation)> {
        let held = |(agent, ids): (&Incarnation, &BTreeSet<TrajectoryId>)| {
            ids.iter().map(|id| (*id, *agent)).collect::<Vec<_>>()
        };
        let mut all: Vec<_> = self.leases.iter().flat_map(held).collect();
        all.sort_unstable();
        all
    }

    /// Prompts of a batch.
    pub fn batch_prompts(&self, batch: u64) -> Option<u32> {
        let found = self.batches.get(&batch)?;
        u32::try_from(found.finished.len()).ok()
    }

    /// Whether so many ranks divide every batch that is open.
    pub fn divides(&self, ranks: u32) -> bool {
        let ranks = ranks.max(1) as usize;
        let mut open = self.batches.values();
        open.all(|batch| batch.all.len().is_multiple_of(ranks))
    }

    /// One of them.
    pub fn get(&self, id: TrajectoryId) -> Option<&Trajectory> {
        let batch = self.batches.get(&id.batch)?;
        batch.all.get(batch.at(id)?)
    }

    /// Makes the table hold all of a batch; one that it has keeps its shape.
    pub fn open(&mut self, batch: u64, prompts: u32, responses: u32) {
        if self.batches.contains_key(&batch) {
            return;
        }
        let fresh = Batch {
            responses,
            all: vec![Trajectory::default(); prompts as usize * responses as usize],
            finished: vec![0; prompts as usize],
            whole: 0,
        };
        self.pending.extend(fresh.ids(batch));
        self.batches.insert(batch, fresh);
        self.shaped.note(batch);
    }

    /// The ids of a batch in order, if nothing of it is left to generate.
    pub fn complete(&self, batch: Step) -> Option<Vec<TrajectoryId>> {
        let found = self.batches.get(&batch.0)?;
        self.is_complete(batch)
            .then(|| found.ids(batch.0).collect())
    }

    /// Those of a batch that its step trains on, in order.
    pub fn trained(&self, batch: Step) -> Vec<TrajectoryId> {
        let found = self.batches.get(&batch.0).into_iter();
        let ids = found.flat_map(|b| b.ids(batch.0));
        ids.filter(|id| self.is_trained(*id)).collect()
    }

    /// Whether it is finished, and its step trains on it.
    pub fn is_trained(&self, id: TrajectoryId) -> bool {
        let place = self.get(id).map(|t| t.place);
        matches!(place, Some(Place::Finished { .. }))
    }

    /// Whether all of a batch is finished or set aside.
    pub fn is_complete(&self, batch: Step) -> bool {
        let found = self.batches.get(&batch.0);
        found.is_some_and(|b| !b.all.is_empty() && b.whole as usize == b.finished.len())
    }

    /// Whether any of a batch was ever handed out.
    pub fn is_begun(&self, batch: Step) -> bool {
        let found = self.batches.get(&batch.0);
        found.is_some_and(|b| b.all.iter().any(|t| !t.holders.is_empty()))
    }

    /// Prompts of a batch all of whose responses are finished.
    pub fn finished_prompts(&self, batch: Step) -> u32 {
        self.batches.get(&batch.0).map_or(0, |b| b.whole)
    }

    /// Which prompts those are, in order.
    pub fn prompts_finished(&self, batch: Step) -> Vec<u32> {
        let Some(found) = self.batches.get(&batch.0) else {
            return Vec::new();
        };
        let whole = |(_, count): &(u32, &u32)| **count == found.responses;
        let prompts = (0..).zip(&found.finished).filter(whole);
        prompts.map(|(prompt, _)| prompt).collect()
    }

    /// Everything begins anew but what was set aside. Returns those on which work is lost.
    pub fn discard(&mut self, now: Time) -> Vec<TrajectoryId> {
        let begun = |(id, t): (TrajectoryId, &Trajectory)| {
            (t.is_begun() && t.place != Place::SetAside).then_some(id)
        };
        let lost: Vec<_> = self.iter().filter_map(begun).collect();
        for &id in &lost {
            self.set_back(id, now, SetbackKind::TaskRestart, "");
            if let Some(t) = self.get_mut(id) {
                t.returns = 0;
                t.throw_away();
            }
            self.set(id, Place::default());
        }
        lost
    }

    /// Nobody holds anything any more.
    pub fn return_leases(&mut self, now: Time) {
        for agent in self.leases.keys().copied().collect::<BTreeSet<_>>() {
            self.void(agent, now, SetbackKind::JobOver);
        }
    }

    /// Drops a consumed batch.
    pub fn consume(&mut self, batch: Step) {
        while let Some(first) = self.batches.first_entry().filter(|b| *b.key() <= batch.0) {
            let (number, shape) = (*first.key(), first.get().clone());
            for id in shape.ids(number) {
                self.set(id, Place::default());
                self.pending.remove(&id);
            }
            self.batches.remove(&number);
            self.shaped.note(number);
        }
    }

    /// Leases of an agent worker return to pending.
    pub fn void(&mut self, agent: Incarnation, now: Time, kind: SetbackKind) {
        for id in self.held_by(agent) {
            self.set_back(id, now, kind, "");
            self.set(id, Place::Pending(Time(0)));
        }
    }

    /// Those that waited after their return and may be handed out at `now` wait for nothing but an agent
    /// worker any more.
    pub fn take_due(&mut self, now: Time) {
        while let Some((at, id)) = self.delayed.first().copied()
            && at <= now
        {
            self.delayed.pop_first();
            self.pending.insert(id);
        }
    }

    /// The first pending one, in order of batch and group.
    pub fn next_pending(&self) -> Option<TrajectoryId> {
        self.pending.first().copied()
    }

    /// When the next one that waits after its return may be handed out.
    pub fn next_due(&self) -> Option<Time> {
        self.delayed.first().map(|(at, _)| *at)
    }

    /// Whether any waits to be handed out.
    pub fn any_pending(&self) -> bool {
        !self.pending.is_empty() || !self.delayed.is_empty()
    }

    /// An agent worker holds it now, under this number.
    pub fn lease(
        &mut self,
        id: TrajectoryId,
        (agent, who): (Incarnation, Option<InstanceId>),
        now: Time,
    ) -> u64 {
        let Some(t) = self.get_mut(id) else { return 0 };
        t.past.handed_to(who);
        t.holders.retain(|holder| *holder != agent);
        t.holders.push(agent);
        // The time: what follows from no record may be carried out and forgotten in a crash of the daemon.
        t.lease = now.0.max(t.lease + 1);
        let lease = t.lease;
        self.set(id, Place::Leased(agent));
        lease
    }

    /// It came back, or what was generated for it goes; before it is at another place.
    pub fn set_back(&mut self, id: TrajectoryId, now: Time, kind: SetbackKind, why: &str) {
        let Some(t) = self.get_mut(id) else { return };
        let last = t.holders.last().copied().unwrap_or(Incarnation(0));
        t.past.set_back((t.lease, last), now, kind, why);
    }

    /// How those that a step consumes came to it.
    pub fn provenance(&self, trajectories: &[TrajectoryId]) -> Provenance {
        let all = || trajectories.iter().map(|id| (*id, self.get(*id)));
        let told = |(id, t): (TrajectoryId, Option<&Trajectory>)| {
            let past = &t?.past;
            (!past.is_plain()).then(|| (id, past.clone()))
        };
        Provenance {
            leases: all().map(|(_, t)| t.map_or(0, |t| t.lease)).collect(),
            befell: all().filter_map(told).collect(),
        }
    }

    /// It was given back, the how-manieth time is counted.
    pub fn give_back(&mut self, id: TrajectoryId, until: impl Fn(u32) -> Time) {
        let Some(t) = self.get_mut(id) else { return };
        t.returns += 1;
        let until = until(t.returns);
        self.set(id, Place::Pending(until));
    }

    /// All of it is thrown away; how often is counted.
    pub fn begin_again(&mut self, id: TrajectoryId, until: impl Fn(u32) -> Time) {
        if let Some(t) = self.get_mut(id) {
            t.throw_away();
        }
        self.give_back(id, until);
    }

    /// Moves it to another place; every place change goes through here.
    pub fn set(&mut self, id: TrajectoryId, place: Place) {
        let Some(t) = self.get_mut(id) else { return };
        let old = std::mem::replace(&mut t.place, place);
        self.note(id, old, false);
        self.note(id, place, true);
    }

    /// Adds a trajectory at a place to what is derived from it, or takes it out.
    fn note(&mut self, id: TrajectoryId, place: Place, there: bool) {
        match place {
            Place::Pending(Time(0)) if there => {
                self.pending.insert(id);
            }
            Place::Pending(at) if there => {
                self.delayed.insert((at, id));
            }
            Place::Pending(at) => {
                let _ = self.pending.remove(&id) || self.delayed.remove(&(at, id));
            }
            Place::Leased(agent) => {
                let held = self.leases.entry(agent).or_default();
                let _ = match there {
                    true => held.insert(id),
                    false => held.remove(&id),
                };
                if held.is_empty() {
                    self.leases.remove(&agent);
                }
                self.leased = self.leased.wrapping_add_signed(if there { 1 } else { -1 });
                self.touched.push(agent);
            }
            Place::Finished { .. } => {
                self.finished = self
                    .finished
                    .wrapping_add_signed(if there { 1 } else { -1 });
                self.note_over(id, there);
            }
            Place::SetAside => self.note_over(id, there),
        }
    }

    /// Nothing is left to generate of it.
    fn note_over(&mut self, id: TrajectoryId, there: bool) {
        if let Some(batch) = self.batches.get_mut(&id.batch) {
            batch.note_finished(id.group, there);
        }
    }

    fn get_mut(&mut self, id: TrajectoryId) -> Option<&mut Trajectory> {
        let batch = self.batches.get_mut(&id.batch)?;
        let at = batch.at(id)?;
        self.changed.note(id);
        batch.all.get_mut(at)
    }

    /// One of the agent workers whose number of leases changed.
    pub(in crate::core) fn next_changed(&mut self) -> Option<Incarnation> {
        self.touched.pop()
    }

    /// The shape of a batch that is open.
    pub(in crate::core) fn shape(&self, batch: u64) -> Option<Shape> {
        let found = self.batches.get(&batch)?;
        Some(Shape {
            prompts: self.batch_prompts(batch)?,
            responses: found.responses,
        })
    }

    /// The batches that are open, in order.
    pub(in crate::core) fn open_batches(&self) -> impl Iterator<Item = u64> {
        self.batches.keys().copied()
    }

    /// Those that are not as they were when their batch was opened.
    pub(in crate::core) fn begun(&self) -> impl Iterator<Item = (TrajectoryId, &Trajectory)> {
        let fresh = Trajectory::default();
        self.iter().filter(move |(_, t)| **t != fresh)
    }

    /// The batches that were opened or consumed since this was last asked, and the trajectories that
    /// changed or went with their batch; none: all of them.
    pub(in crate::core) fn take_changed(&mut self) -> Option<(Vec<u64>, Vec<TrajectoryId>)> {
        let (shaped, changed) = (self.shaped.take(), self.changed.take());
        Some((shaped?, changed?))
    }

    /// A batch of this shape, as it is when it is opened.
    pub(in crate::core) fn open_as(&mut self, batch: u64, shape: Shape) {
        self.open(batch, shape.prompts, shape.responses);
    }

    /// One is as it was when it was written down; its batch is open.
    pub(in crate::core) fn put_back(&mut self, id: TrajectoryId, t: Trajectory) {
        let place = t.place;
        if let Some(mine) = self.get_mut(id) {
            let was = std::mem::replace(mine, t).place;
            // Moved there by the one who keeps what is derived.
            mine.place = was;
        }
        self.set(id, place);
    }

    /// Whether the other remembers the same, and the same is derived from it.
    pub(in crate::core) fn is_same(&self, other: &Self) -> bool {
        let derived = |t: &Self| {
            let queues = (t.pending.clone(), t.delayed.clone());
            (queues, t.leases.clone(), (t.leased, t.finished))
        };
        self == other && derived(self) == derived(other)
    }

    /// What a full scan derives: of a restored table, and for comparison.
    pub(in crate::core) fn derived_anew(&self) -> Self {
        self.iter().map(|(id, t)| (id, t.clone())).collect()
    }

    /// What is not in order yet at `now` counts as it will be asked.
    pub(in crate::core) fn settled(mut self) -> Self {
        let due: Vec<_> = self.delayed.iter().map(|(_, id)| *id).collect();
        self.delayed.clear();
        self.pending.extend(due);
        self
    }

    fn iter(&self) -> impl Iterator<Item = (TrajectoryId, &Trajectory)> {
        let of = |(number, batch): (&u64, &'_ Batch)| (*number, batch.ids(*number));
        self.batches.iter().flat_map(move |pair| {
            let (_, ids) = of(pair);
            ids.zip(pair.1.all.iter())
        })
    }
}

impl Batch {
    fn at(&self, id: TrajectoryId) -> Option<usize> {
        (id.member < self.responses)
            .then(|| id.group as usize * self.responses as usize + id.member as usize)
    }

    fn ids(&self, batch: u64) -> impl Iterator<Item = TrajectoryId> + use<> {
        let responses = self.responses;
        let prompts = u32::try_from(self.finished.len()).unwrap_or(u32::MAX);
        (0..prompts).flat_map(move |group| {
            (0..responses).map(move |member| TrajectoryId {
                batch,
                group,
                member,
            })
        })
    }

    fn note_finished(&mut self, group: u32, there: bool) {
        let Some(count) = self.finished.get_mut(group as usize) else {
            return;
        };
        let step = if there { 1 } else { -1 };
        let was = *count == self.responses;
        *count = count.wrapping_add_signed(step);
        let is = *count == self.responses;
        if was != is {
            self.whole = self.whole.wrapping_add_signed(step);
        }
    }
}

/// Batches are stored whole, so the last of each tells its shape.
impl FromIterator<(TrajectoryId, Trajectory)> for Trajectories {
    fn from_iter<I: IntoIterator<Item = (TrajectoryId, Trajectory)>>(all: I) -> Self {
        let all: Vec<_> = all.into_iter().collect();
        let mut shapes: BTreeMap<u64, (u32, u32)> = BTreeMap::new();
        for (id, _) in &all {
            let (prompts, responses) = shapes.entry(id.batch).or_default();
            (*prompts, *responses) = (
                (*prompts).max(id.group + 1),
                (*responses).max(id.member + 1),
            );
        }
        let mut table = Self::default();
        for (batch, (prompts, responses)) in shapes {
            table.open(batch, prompts, responses);
        }
        for (id, t) in all {
            table.put_back(id, t);
        }
        table
    }
}

/// A list of pairs: JSON has only strings for keys.
impl Serialize for Trajectories {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct All<'a> {
            all: Vec<(u64, &'a Trajectory)>,
        }
        let all = self.iter().map(|(id, t)| (id.key(), t)).collect();
        All { all }.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Trajectories {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct All {
            all: Vec<(u64, Trajectory)>,
        }
        let all = All::deserialize(from)?.all.into_iter();
        Ok(all
            .map(|(key, t)| (TrajectoryId::from_key(key), t))
            .collect())
    }
}
