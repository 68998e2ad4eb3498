//! More or fewer instances of a role while the job runs.
//!
//! ```text
//!  up:   new places ──► slots ──► spawned
//!  down: the highest ──► retiring (nothing new for it) ──► idle ──► asked to end, place gone
//!  trainer: waits for a step boundary, then a planned restart of the gang (`planned`)
//! ```
use super::ask::Ask;
use crate::core::ops::planned::{Change, divides};
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::{Output, Severity};
use crate::core::roster::instance::Life;
use crate::core::{Core, Mutation};
use crate::ids::{InstanceId, Role};

/// Nodes that a refusal names.
const NODES_NAMED: usize = 8;

/// Whether a role may have so many instances, and there is room for them.
fn check(ask: &Ask<'_>, role: Role, count: u32) -> Result<(), Refusal> {
    ask.running_job()?;
    let spec = ask.config.role(role);
    let (min, max) = (spec.min.max(1), spec.max);
    if role == Role::Hybrid {
        let why = "a hybrid comes and goes with the trainer's ranks; scale `trainer`".to_owned();
        return Err(Refusal::WrongRole { role, why });
    }
    if count < min {
        return Err(Refusal::BelowMinimum { role, count, min });
    }
    if count > max {
        return Err(Refusal::AboveMaximum { role, count, max });
    }
    match role {
        Role::Trainer => check_gang(ask, count),
        _ => check_free(ask, role, count),
    }
}

fn check_free(ask: &Ask<'_>, role: Role, count: u32) -> Result<(), Refusal> {
    let instances = ask.state.roster.instances();
    if count == instances.wanted(role) {
        let what = format!("{role} has {count} already");
        return Err(Refusal::AlreadyThere { what });
    }
    let wanted = count.saturating_sub(instances.count(role));
    match wanted.saturating_sub(ask.placement.room(role)) {
        0 => Ok(()),
        missing => Err(no_slot(ask, role, missing)),
    }
}

fn check_gang(ask: &Ask<'_>, count: u32) -> Result<(), Refusal> {
    let role = Role::Trainer;
    if count == ask.state.roster.instances().count(role) && ask.state.orders.planned().is_none() {
        let what = format!("{role} has {count} already");
        return Err(Refusal::AlreadyThere { what });
    }
    // New values that wait for the same boundary come with the change, and ranks divide those.
    divides(ask.config, ask.next_config.unwrap_or(ask.config), count)?;
    match ask.placement.ranks_without_slot(count) {
        0 => Ok(()),
        missing => Err(no_slot(ask, role, missing)),
    }
}

fn no_slot(ask: &Ask<'_>, role: Role, missing: u32) -> Refusal {
    let nodes = ask.state.roster.nodes();
    let each = nodes.ids().zip(nodes.iter()).map(|(id, n)| {
        let free = ask.placement.slots.free(role);
        let here = free.filter(|s| s.node == id);
        let state = match (n.open(), n.cordoned) {
            (true, _) => format!("{} free", here.count()),
            (false, true) => "cordoned".to_owned(),
            (false, false) if n.leaving => "about to leave".to_owned(),
            (false, false) => n.state.word().to_owned(),
        };
        format!("`{}`: {state}", n.spec.name)
    });
    let mut has = each.take(NODES_NAMED).collect::<Vec<_>>().join(", ");
    match nodes.ids().count().saturating_sub(NODES_NAMED) {
        0 => {}
        more => has.push_str(&format!(", and {more} more nodes")),
    }
    Refusal::NoSlot {
        role,
        pool: ask.config.pool(role).to_owned(),
        missing,
        has,
    }
}

impl Core {
    pub(super) fn on_scale(
        &mut self,
        role: Role,
        count: u32,
        revision: u32,
    ) -> Result<Reply, Refusal> {
        self.derive();
        check(&self.ask(), role, count)?;
        match role {
            Role::Trainer => self.scale_gang(count, revision),
            _ => Ok(self.scale_free(role, count, revision)),
        }
    }

    fn scale_free(&mut self, role: Role, count: u32, revision: u32) -> Reply {
        let (from, places) = (
            self.s.roster.instances().wanted(role),
            self.s.roster.instances().count(role),
        );
        self.note_revision(revision);
        for index in 0..places {
            if let Some(i) = self.s.roster.get_mut(InstanceId { role, index }) {
                i.retire(index >= count);
            }
        }
        let idle = self
            .s
            .roster
            .instances()
            .role(role)
            .filter(|i| i.retiring());
        let idle = idle.filter(|i| !i.has_process() && i.life() != Life::None);
        for id in idle.map(|i| i.id()).collect::<Vec<_>>() {
            self.vacate(id);
        }
        // One that was to go and is gone already comes back as a new one would.
        let gone = self.s.roster.instances().role(role);
        let gone = gone.filter(|i| !i.retiring() && i.life() == Life::None);
        let mut new: Vec<_> = gone.map(|i| i.id()).collect();
        new.extend((places..count).map(|_| self.s.roster.add_place(role)));
        self.config.set_count(role, count);
        self.issue(&new);
        let when = match count > from {
            true => "now".to_owned(),
            false => "when they have finished what they hold".to_owned(),
        };
        let text = format!("{role} is scaled from {from} to {count}");
        self.event(Severity::Info, "scale", None, text);
        let to = count;
        Reply::Scaled {
            role,
            from,
            to,
            when,
        }
    }

    fn scale_gang(&mut self, count: u32, revision: u32) -> Result<Reply, Refusal> {
        let (role, from) = (
            Role::Trainer,
            self.s.roster.instances().count(Role::Trainer),
        );
        let why = format!("it is scaled from {from} to {count} ranks");
        let when = self.plan_change(Change::of(count, revision, why))?;
        let to = count;
        Ok(Reply::Scaled {
            role,
            from,
            to,
            when,
        })
    }

    /// Ends those that are to go and have nothing left to do.
    pub(in crate::core) fn retire_idle(&mut self) {
        self.derive();
        if !self.s.roster.take_retire_due() {
            return;
        }
        for id in self.s.roster.index().going() {
            self.derive();
            let idle = self.s.roster.index().is_idle(id) || self.config.mutant(Mutation::DropWork);
            let ends = self
                .s
                .roster
                .instances()
                .get(id)
                .filter(|i| i.has_process());
            let ends = ends.map(|i| (i.incarnation(), i.retiring()));
            if let (true, Some((_, false))) = (idle, ends) {
                self.move_on(id);
            } else if let (true, Some((life, true))) = (idle, ends) {
                self.retire(id);
                self.vacate(id);
                let text = format!("{id} {life} is asked to end: it is not needed any more");
                self.event(Severity::Info, "retired", Some(id), text);
            }
        }
        for role in [Role::Rollout, Role::Agent] {
            self.drop_vacated(role);
        }
    }

    /// One that was to go anyway is gone: no fault, no new life.
    pub(in crate::core) fn gone_early(&mut self, id: InstanceId, ended: bool) {
        let Some(i) = self.s.roster.instances().get(id) else {
            return;
        };
        let (incarnation, node) = (i.incarnation(), i.slot().map(|s| s.node));
        if !ended {
            let reason = format!("{id} {incarnation} was to go and failed");
            self.out.push(Output::Kill {
                id,
                incarnation,
                node,
                reason,
            });
        }
        self.forget_life(id, incarnation);
        self.vacate(id);
    }

    /// Nothing runs there any more and nothing will.
    pub(in crate::core) fn vacate(&mut self, id: InstanceId) {
        self.armory().disarm_place(id, "its place is gone");
        let reborn = self.reborn(id, Default::default(), Default::default());
        if let Some(i) = reborn {
            i.vacate();
        }
        let (recover, mut cx) = self.recover();
        recover.give_up(&mut cx, id);
    }

    /// Places are numbered without gaps, so they go from the highest down.
    pub(in crate::core) fn drop_vacated(&mut self, role: Role) {
        let vacated =
            |i: &crate::core::roster::instance::Instance| i.retiring() && !i.has_process();
        while self.s.roster.instances().last(role).is_some_and(vacated) {
            self.s.roster.drop_place(role);
        }
    }
}
