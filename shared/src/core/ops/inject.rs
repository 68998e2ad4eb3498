//! Faults that operators inject: struck for real, on an instance, a node or the leader, with typed
//! refusals. What waits for its moment is in `armed`.
use super::ask::Ask;
use crate::core::Core;
use crate::core::config::CoreConfig;
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::{Output, Severity};
use crate::core::roster::instance::Instance;
use crate::core::roster::nodes::SlotRef;
use crate::fault::{At, Carrier, Fault, Kind, Target};
use crate::ids::{Incarnation, InstanceId, NodeId, Role};
use crate::phase::Phase;

/// Whether a fault can strike an instance, and comes to do so.
fn check(ask: &Ask<'_>, id: InstanceId, fault: &Fault, at: Option<At>) -> Result<(), Refusal> {
    let kind = fault.kind();
    if kind.target() != Target::Instance {
        let strikes = strikes(kind.target()).to_owned();
        return Err(Refusal::WrongTarget { kind, strikes });
    }
    if !kind.roles().contains(&id.role) {
        let role = id.role;
        return Err(Refusal::NotForRole { kind, role });
    }
    if let Some(at) = at {
        check_moment(ask.config, id.role, kind, at).map_err(|why| Refusal::NotItsMoment { why })?;
    }
    match fault.peer() {
        Some(peer) => check_peer(ask, id, peer),
        None => Ok(()),
    }
}

/// Why the moment does not come for such a fault of such a role.
fn check_moment(config: &CoreConfig, role: Role, kind: Kind, at: At) -> Result<(), String> {
    let moments = &config.moments;
    moments.check(role, at).map_err(|why| why.to_string())?;
    if at.phase == Phase::Init && kind.carrier() == Carrier::Role {
        return Err(format!(
            "`{kind}` cannot strike in `init`: the process carries it out itself, and cannot be told before \
             it has linked; choose a later phase"
        ));
    }
    Ok(())
}

/// Both ends of a connection over which weights or gradients go.
fn check_peer(ask: &Ask<'_>, id: InstanceId, peer: InstanceId) -> Result<(), Refusal> {
    let found = ask.state.roster.instances().get(peer);
    let why = match found {
        None => "there is no such instance",
        Some(_) if peer == id => "it is the same instance",
        Some(_) if peer.role == Role::Agent => "agents pull and serve no weights",
        Some(i) if !i.attached() => "it is not running",
        Some(_) => return Ok(()),
    };
    let why = why.to_owned();
    Err(Refusal::NotAPeer { id, peer, why })
}

/// The node that a fault strikes: the one it names, or the leader's.
fn check_afflict(ask: &Ask<'_>, fault: &Fault) -> Result<NodeId, Refusal> {
    ask.running_job()?;
    let kind = fault.kind();
    match fault {
        Fault::LoseNode { node } => ask.node(node),
        _ if kind.target() == Target::Leader => Ok(NodeId::LEADER),
        _ => {
            let strikes = strikes(kind.target()).to_owned();
            Err(Refusal::WrongTarget { kind, strikes })
        }
    }
}

/// The instance asked for, or the one with the life asked for, or the lowest that runs. For a
/// later life it need not run.
pub(super) fn choose(
    ask: &Ask<'_>,
    role: Role,
    index: Option<u32>,
    life: Option<Incarnation>,
    later: bool,
) -> Result<(InstanceId, Incarnation), Refusal> {
    ask.running_job()?;
    let instances = ask.state.roster.instances();
    let runs = |i: &&Instance| i.attached() && i.condemned().is_none();
    let lowest = || instances.role(role).find(runs).map_or(0, |i| i.id().index);
    let lived = life.and_then(|life| instances.life(life));
    let lived = lived.map(|i| i.id()).filter(|id| id.role == role);
    let index = index.or(lived.map(|id| id.index)).unwrap_or_else(lowest);
    let id = InstanceId { role, index };
    let Some(instance) = instances.get(id) else {
        let count = instances.count(role);
        return Err(Refusal::UnknownIndex { role, index, count });
    };
    if let Some(asked) = life.filter(|life| *life != instance.incarnation()) {
        let now = instance.incarnation();
        return Err(Refusal::OtherLife { id, asked, now });
    }
    // A place that goes has no later life; a daemon that starts again would not even know of it.
    if later && instance.retiring() {
        return Err(Refusal::NoLaterLife { id });
    }
    if !later && !runs(&instance) {
        let state = ask.state.instance_shown(instance).to_string();
        return Err(Refusal::NotRunning { id, state });
    }
    Ok((id, instance.incarnation()))
}

impl Core {
    /// Strikes an instance, or lets the fault wait for its moment.
    pub(in crate::core) fn inject(
        &mut self,
        (id, incarnation): (InstanceId, Incarnation),
        fault: Fault,
        at: Option<At>,
    ) -> Result<Reply, Refusal> {
        check(&self.ask(), id, &fault, at)?;
        if at.is_some() || fault.kind().carrier() == Carrier::Role {
            return self.arm(id, incarnation, fault, at);
        }
        Ok(Reply::Struck {
            id,
            incarnation,
            slot: self.strike_place(id, incarnation, &fault),
        })
    }

    /// Strikes a node or the leader.
    pub(in crate::core) fn afflict(&mut self, fault: Fault) -> Result<Reply, Refusal> {
        let node = check_afflict(&self.ask(), &fault)?;
        let name = self.s.roster.nodes().get(node).map(|n| n.spec.name.clone());
        let name = name.unwrap_or_default();
        let what = match &fault {
            Fault::LoseNode { .. } => format!("node {name}"),
            Fault::CorruptCheckpoint => "the newest checkpoint".to_owned(),
            Fault::DiskFull { .. } => "the store's disk".to_owned(),
            Fault::NoProcesses { .. } => "the leader's node".to_owned(),
            _ => "the leader's daemon".to_owned(),
        };
        let text = format!("{what} is {} on request", fault.done());
        self.event(Severity::Warn, "inject", None, text);
        self.drill_node(node, &fault);
        self.out.push(Output::Afflict { node, fault });
        Ok(Reply::Afflicted { node: name })
    }

    /// Strikes an instance; with a lost slot, everybody in it.
    pub(in crate::core) fn strike_place(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        fault: &Fault,
    ) -> Option<SlotRef> {
        let slot = self
            .s
            .roster
            .instances()
            .get(id)
            .and_then(|i| i.slot().cloned());
        let Some(slot) = slot.filter(|_| *fault == Fault::LoseSlot) else {
            self.strike(id, incarnation, fault);
            return None;
        };
        self.derive();
        let takers = self.s.roster.lose_slot(&self.config, &slot);
        self.note_revision(0);
        for taker in takers {
            let lives = self
                .s
                .roster
                .instances()
                .get(taker)
                .filter(|i| i.has_process());
            if let Some(life) = lives.map(|i| i.incarnation()) {
                self.strike(taker, life, fault);
            }
        }
        Some(slot)
    }

    fn strike(&mut self, id: InstanceId, incarnation: Incarnation, fault: &Fault) {
        self.note_struck(id, incarnation, fault);
        let fault = fault.clone();
        self.out.push(Output::Strike { incarnation, fault });
    }

    pub(in crate::core) fn note_struck(
        &mut self,
        id: InstanceId,
        incarnation: Incarnation,
        fault: &Fault,
    ) {
        let now = self.now;
        // Without memory it goes on until it wants some: then its end is the fault's instant.
        let ends = fault.kind().ends_life() && *fault != Fault::Oom;
        if let Some(i) = self.s.roster.get_mut(id) {
            i.is_drilled();
            if ends {
                i.is_struck(now);
            }
        }
        let text = format!("{id} {incarnation} is {} on request", fault.done());
        self.event(Severity::Warn, "inject", Some(id), text);
    }
}

/// What faults of this target strike, and how they are asked for.
fn strikes(target: Target) -> &'static str {
    match target {
        Target::Instance => "one instance; name a role",
        Target::Node => "a node; name no role",
        Target::Leader => "the leader; name no role",
    }
}
