//! All places of the job, found by role and index or by the life that is there.
//!
//! Whoever changes an instance leaves its id behind (`touched`), so that what the controller derives
//! from instances (`index`) is brought up to date from exactly those. It leaves it for whoever writes down
//! what changed as well (`changed`), apart from what an instance does and what is measured of it, which is
//! little and changes all the time.
use crate::changed::{Layered, Layers};
use crate::core::CoreConfig;
use crate::core::input::Sample;
use crate::core::roster::instance::Instance;
use crate::core::weights::Holder;
use crate::hash::IdMap;
use crate::ids::{Generation, Incarnation, InstanceId, Role, Step};
use crate::phase::Phase;
use crate::time::Time;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How many roles there are.
pub(in crate::core) const ROLES: usize = Role::ALL.len();

/// An instance and its present incarnation, as the fence found them; nobody else can make one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Current {
    /// Which instance.
    pub id: InstanceId,
    /// Its present incarnation.
    pub incarnation: Incarnation,
    found: (),
}

impl Instance {
    /// The instance as one that needs no fence: whoever has it in hand looked it up just now.
    pub(in crate::core) fn current(&self) -> Current {
        Current {
            id: self.id(),
            incarnation: self.incarnation(),
            found: (),
        }
    }
}

/// All places of the job, by role and index.
#[derive(Clone, Debug, Default)]
pub struct Instances {
    roles: [Vec<Instance>; ROLES],
    lives: IdMap<Incarnation, InstanceId>,
    touched: Vec<InstanceId>,
    changed: Layered<InstanceId>,
    /// What an earlier build stored with them and is elsewhere now.
    former: Vec<(InstanceId, Holder)>,
}

impl Instances {
    /// Every place the job has, empty.
    pub fn new(config: &CoreConfig) -> Self {
        let ids = Role::ALL
            .into_iter()
            .flat_map(|role| (0..config.count(role)).map(move |index| InstanceId { role, index }));
        ids.map(Instance::new).collect()
    }

    /// How many places a role has.
    pub fn count(&self, role: Role) -> u32 {
        u32::try_from(self.roles[role as usize].len()).unwrap_or(u32::MAX)
    }

    /// How many places of a role are to stay.
    pub fn wanted(&self, role: Role) -> u32 {
        let stay = self.role(role).take_while(|i| !i.retiring()).count();
        u32::try_from(stay).unwrap_or(u32::MAX)
    }

    /// All, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Instance> {
        self.roles.iter().flatten()
    }

    /// All, in order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Instance> {
        let ids = self.roles.iter().flatten().map(|i| i.id());
        self.touched.extend(ids.clone());
        self.changed.note_all(ids);
        self.roles.iter_mut().flatten()
    }

    /// The same, of which nothing is derived yet.
    pub fn all_touched(self) -> Self {
        self.roles.into_iter().flatten().collect()
    }

    /// What an earlier build stored with them of the weights that they have.
    pub fn take_former(&mut self) -> Vec<(InstanceId, Holder)> {
        std::mem::take(&mut self.former)
    }

    /// Those of a role, in order of index.
    pub fn role(&self, role: Role) -> impl Iterator<Item = &Instance> {
        self.roles[role as usize].iter()
    }

    /// Those that generate, hybrids first.
    pub fn engines(&self) -> impl Iterator<Item = &Instance> {
        self.role(Role::Hybrid).chain(self.role(Role::Rollout))
    }

    /// The ids of a role, in order of index.
    pub fn ids(&self, role: Role) -> Vec<InstanceId> {
        self.role(role).map(|i| i.id()).collect()
    }

    /// The place with this id.
    pub fn get(&self, id: InstanceId) -> Option<&Instance> {
        self.roles[id.role as usize].get(id.index as usize)
    }

    /// The place with this id.
    pub fn get_mut(&mut self, id: InstanceId) -> Option<&mut Instance> {
        let found = self.roles[id.role as usize].get_mut(id.index as usize);
        if found.is_some() {
            note(&mut self.touched, id);
            self.changed.note(id);
        }
        found
    }

    /// The place whose present life this is; none for an older life (I-1).
    pub fn life(&self, incarnation: Incarnation) -> Option<&Instance> {
        let place = self.get(*self.lives.get(&incarnation)?)?;
        (place.incarnation() == incarnation && incarnation.0 != 0).then_some(place)
    }

    /// The life that runs in the slot in which this one ran before it.
    pub fn successor(&self, life: Incarnation) -> Option<Incarnation> {
        let after = |i: &&Instance| {
            let before = i.before();
            before.is_some_and(|(old, slot)| *old == life && i.slot() == Some(slot))
        };
        let next = self.iter().find(after)?.incarnation();
        Some(next).filter(|life| life.0 != 0)
    }

    /// The fence (I-1): the instance whose present incarnation this is, for whoever takes in what it
    /// says; none for an older one.
    pub fn current(&self, incarnation: Incarnation) -> Option<Current> {
        self.life(incarnation).map(Instance::current)
    }

    /// The instance that the fence found. Instances go only where a restart or a smaller job takes
    /// them away, which ends whatever was being taken in.
    pub fn of(&self, current: Current) -> &Instance {
        &self.roles[current.id.role as usize][current.id.index as usize]
    }

    /// The instance that the fence found.
    pub fn of_mut(&mut self, current: Current) -> &mut Instance {
        note(&mut self.touched, current.id);
        self.changed.note(current.id);
        &mut self.roles[current.id.role as usize][current.id.index as usize]
    }

    /// A sample of the instance that the fence found.
    pub fn measure(&mut self, current: Current, sample: Sample, now: Time) -> &Instance {
        note(&mut self.touched, current.id);
        self.changed.note_over(current.id);
        let instance = &mut self.roles[current.id.role as usize][current.id.index as usize];
        instance.measure(sample, now);
        instance
    }

    /// The instance that the fence found enters a phase.
    pub fn enter(&mut self, current: Current, phase: Phase, step: Step, now: Time) -> &Instance {
        note(&mut self.touched, current.id);
        self.changed.note_over(current.id);
        let instance = &mut self.roles[current.id.role as usize][current.id.index as usize];
        instance.enter(phase, step, now);
        instance
    }

    /// An engine has requests from now on: its tokens are waited for.
    pub fn load_begins(&mut self, incarnation: Incarnation, now: Time) {
        let Some(id) = self.life(incarnation).map(|i| i.id()) else {
            return;
        };
        note(&mut self.touched, id);
        self.changed.note_over(id);
        if let Some(engine) = self.roles[id.role as usize].get_mut(id.index as usize) {
            engine.load_begins(now);
        }
    }

    /// The place whose present life this is; none for an older life (I-1).
    pub fn life_mut(&mut self, incarnation: Incarnation) -> Option<&mut Instance> {
        let id = self.life(incarnation)?.id();
        self.get_mut(id)
    }

    /// The next life of a place; 0 is none.
    pub fn reborn(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        generation: Generation,
        now: Time,
    ) -> Option<&mut Instance> {
        let old = self.get(id)?.incarnation();
        self.lives.remove(&old);
        if incarnation.0 != 0 {
            self.lives.insert(incarnation, id);
        }
        let place = self.get_mut(id)?;
        place.reborn(incarnation, generation, now);
        Some(place)
    }

    /// The highest place of a role.
    pub fn last(&self, role: Role) -> Option<&Instance> {
        self.roles[role as usize].last()
    }

    /// One place more.
    pub fn push(&mut self, role: Role) -> InstanceId {
        let index = self.count(role);
        let id = InstanceId { role, index };
        self.roles[role as usize].push(Instance::new(id));
        note(&mut self.touched, id);
        self.changed.note(id);
        id
    }

    /// The highest place is no more.
    pub fn pop(&mut self, role: Role) {
        if let Some(gone) = self.roles[role as usize].pop() {
            self.lives.remove(&gone.incarnation());
            note(&mut self.touched, gone.id());
            self.changed.note(gone.id());
        }
    }

    /// Those that changed since this was last asked; none: all of them, or that is wanted.
    pub(in crate::core) fn take_changed(&mut self, all: bool) -> Option<Layers<InstanceId>> {
        self.changed.take(all)
    }

    /// What is derived from it is to be derived anew.
    pub(in crate::core) fn touch(&mut self, id: InstanceId) {
        note(&mut self.touched, id);
    }

    /// What is derived from all of a role is to be derived anew.
    pub(in crate::core) fn touch_role(&mut self, role: Role) {
        let ids = self.roles[role as usize].iter().map(|i| i.id());
        self.touched.extend(ids);
    }

    /// Whether nothing was touched since it was last derived.
    pub(in crate::core) fn untouched(&self) -> bool {
        self.touched.is_empty()
    }

    /// One of those touched.
    pub(in crate::core) fn next_touched(&mut self) -> Option<InstanceId> {
        self.touched.pop()
    }
}

/// What is known of hybrid engines' turns.
impl Instances {
    /// A process ended whose place has another incarnation already.
    pub fn has_left(&mut self, life: Incarnation) {
        let left = |i: &&Instance| i.leaving().is_some_and(|(who, _)| who == life);
        let engine = self.role(Role::Hybrid).find(left).map(|i| i.id());
        if let Some(i) = engine.and_then(|id| self.get_mut(id)) {
            i.has_left();
        }
    }

    /// The daemon was away: engines may have been told what is not on record, or not what is.
    pub fn forget_turns(&mut self) {
        for i in self.iter_mut() {
            // One that had not linked by the last record may have done so, and been told, since.
            if i.id().role == Role::Hybrid && i.has_process() {
                i.forget_turn();
            }
        }
    }
}

/// One that was touched last is not noted again: what happens mostly touches one of them several times.
fn note(touched: &mut Vec<InstanceId>, id: InstanceId) {
    if touched.last() != Some(&id) {
        touched.push(id);
    }
}

/// Equal are those that remember the same, whatever was derived from it so far.
impl PartialEq for Instances {
    fn eq(&self, other: &Self) -> bool {
        self.roles == other.roles
    }
}

impl FromIterator<Instance> for Instances {
    fn from_iter<T: IntoIterator<Item = Instance>>(all: T) -> Self {
        let mut instances = Self::default();
        for mut i in all {
            let former = i.take_former().filter(|_| i.id().role.is_engine());
            instances.former.extend(former.map(|had| (i.id(), had)));
            if i.incarnation().0 != 0 {
                instances.lives.insert(i.incarnation(), i.id());
            }
            instances.touched.push(i.id());
            instances.roles[i.id().role as usize].push(i);
        }
        instances
    }
}

/// A list of all, in order.
impl Serialize for Instances {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter())
    }
}

impl<'de> Deserialize<'de> for Instances {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<Instance>::deserialize(from)?.into_iter().collect())
    }
}
