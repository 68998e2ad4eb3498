//! What can go wrong in a run: how it is drawn, and how it strikes the world.
use super::controllers::Upset;
use crate::world::{Start, World, id, ms};
use robust_ahead::dice::Dice;
use robust_shared::core::{self, CoreConfig, RestartTarget};
use robust_shared::fault::At;
use robust_shared::ids::{InstanceId, Role, TrajectoryId};
use serde::{Deserialize, Serialize};

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The process ends.
    Kill(InstanceId),
    /// It stops for ever (SIGSTOP).
    Stop(InstanceId),
    /// It stops for so many milliseconds.
    Pause(InstanceId, u64),
    /// It lives, and its work does not come along any more.
    Wedge(InstanceId),
    /// It is so many times slower for so many milliseconds.
    Slow(InstanceId, u32, u64),
    /// Its link breaks and stays broken for so many milliseconds.
    Cut(InstanceId, u64),
    /// Its next starts go like this, and it is killed.
    Doom(InstanceId, Vec<Start>),
    /// A call to it ends in an exception.
    Raise(InstanceId),
    /// What it serves arrives damaged.
    Corrupt(InstanceId),
    /// The daemon dies.
    CrashDaemon,
    /// The daemon dies after so many more outputs.
    CrashDaemonAfter(u64),
    /// Messages of the life before the present one arrive only now.
    Ghosts(InstanceId),
    /// An operator strikes it through the controller.
    Inject(InstanceId, core::Fault),
    /// An operator lets a fault wait for a moment of its life.
    Arm(InstanceId, core::Fault, At),
    /// An operator says that a lost slot is there again: node, whose pool, number.
    RestoreSlot(u32, Role, u32),
    /// An operator wants so many of a role.
    Scale(Role, u32),
    /// An operator gives a role a new value: the trainer prompts of a batch, agents trajectories.
    Update(Role, u32),
    /// An operator takes a node out (true) or in.
    Cordon(u32, bool),
    /// An operator takes an engine out (true) or in.
    Quarantine(InstanceId, bool),
    /// An operator pauses the job (true) or lets it go on.
    PauseJob(bool),
    /// An operator wants new processes.
    Restart(RestartTarget),
    /// The device of its slot fails (true) or announces that it will.
    Device(InstanceId, bool),
    /// A node dies with its processes, and comes back so many milliseconds later.
    KillNode(u32, u64),
    /// A node stops with its processes for so many milliseconds.
    FreezeNode(u32, u64),
    /// A node hears nobody and is not heard for so many milliseconds.
    CutNode(u32, u64),
    /// A node leaves with its processes, and comes back so many milliseconds later.
    LeaveNode(u32, u64),
    /// A node nobody knew of joins.
    NewNode,
    /// An operator ends the job and goes on with it so many milliseconds later.
    StopAndResume(u64),
    /// A trajectory of the batch after so many from now ends every engine that generates for it: its
    /// group and its number in that; without a number all of the group do.
    Poison(u64, u32, Option<u32>),
    /// The tool of an agent worker works at nothing for so many milliseconds; 0: as long as it lives.
    BreakTool(InstanceId, u64),
    /// So many clients of the router want an engine, each for so many milliseconds.
    Clients(u32, u64),
    /// A service is given up that the job cannot do without.
    LoseService,
    /// An operator strikes a node, of which the node itself makes nothing.
    Afflict(u32),
    /// So much of what may come twice, and was said of late, comes again.
    Echo(u32),
    /// What an engine serves is damaged, and it reads it again and says so.
    Scrub(InstanceId),
    /// The daemon stands still for so many milliseconds, and all that it would hear waits.
    HaltDaemon(u64),
    /// One of several controllers, etcd or the object store is struck.
    Above(Upset),
}

impl Fault {
    pub(super) fn draw(dice: &mut Dice, config: &CoreConfig) -> Self {
        let pick = |dice: &mut Dice, n: u64| usize::try_from(dice.below(n)).unwrap_or(0);
        let one = |dice: &mut Dice, role: Role| {
            let index = dice.below(u64::from(config.count(role)));
            id(role, u32::try_from(index).unwrap_or(0))
        };
        let roles: Vec<Role> = Role::ALL
            .into_iter()
            .filter(|r| config.count(*r) > 0)
            .collect();
        let role = roles[pick(dice, roles.len() as u64)];
        let who = one(dice, role);
        if dice.chance(250) {
            return Self::draw_request(dice, config, who);
        }
        if config.nodes.len() > 1 && dice.chance(300) {
            return Self::draw_of_node(dice);
        }
        match dice.below(30) {
            0..=6 => Fault::Kill(who),
            7..=9 => Fault::Stop(who),
            10 | 11 => Fault::Pause(who, dice.below(6000)),
            12 => Fault::Wedge(match role {
                Role::Agent => one(dice, Role::Rollout),
                _ => who,
            }),
            13 => {
                let times = 2 + u32::try_from(dice.below(30)).unwrap_or(0);
                Fault::Slow(who, times, dice.below(10_000))
            }
            14..=16 => Fault::Cut(who, dice.below(8000)),
            17 => Fault::Doom(who, Start::draw(dice)),
            18 => Fault::Raise(one(dice, Role::Trainer)),
            19 => Fault::Corrupt(one(dice, Role::Rollout)),
            20 | 21 => Fault::CrashDaemon,
            22..=24 => Fault::CrashDaemonAfter(1 + dice.below(60)),
            25 | 26 => Fault::Ghosts(who),
            27 => Fault::Inject(who, core::Fault::Kill),
            28 if dice.chance(500) => {
                let phases = At::phases(role);
                let phase = phases[pick(dice, phases.len() as u64)];
                Fault::Arm(who, core::Fault::Kill, At { phase, percent: 0 })
            }
            28 => Fault::Inject(who, core::Fault::Hang),
            _ => Fault::StopAndResume(dice.below(2000)),
        }
    }

    /// What an operator may want, sensible or not.
    fn draw_request(dice: &mut Dice, config: &CoreConfig, who: InstanceId) -> Self {
        let some = |dice: &mut Dice, n| u32::try_from(dice.below(n)).unwrap_or(0);
        let role = match dice.below(3) {
            0 => Role::Trainer,
            1 => Role::Rollout,
            _ => Role::Agent,
        };
        match dice.below(26) {
            22..=25 => Fault::Device(who, dice.chance(400)),
            0..=3 => Fault::Inject(who, core::Fault::LoseSlot),
            4 | 20 | 21 => {
                let index = some(dice, u64::from(config.ranks));
                Fault::Inject(id(Role::Trainer, index), core::Fault::LoseSlot)
            }
            5 | 6 => Fault::RestoreSlot(some(dice, 3), role, some(dice, 3)),
            7..=10 => Fault::Scale(role, some(dice, 5)),
            11 => Fault::Scale(Role::Hybrid, some(dice, 3)),
            12..=14 => Fault::Update(role, 1 + some(dice, 4)),
            15 | 16 => Fault::Cordon(some(dice, 3), dice.chance(600)),
            _ => {
                let engines = u64::from(config.count(Role::Rollout));
                let index = some(dice, engines + 1);
                Fault::Quarantine(id(Role::Rollout, index), dice.chance(600))
            }
        }
    }

    pub(super) fn draw_control(dice: &mut Dice, config: &CoreConfig) -> Self {
        let roles = [Role::Trainer, Role::Hybrid, Role::Rollout, Role::Agent];
        let role = roles[usize::try_from(dice.below(4)).unwrap_or(0)];
        let index = dice.below(u64::from(config.count(role)) + 1);
        let who = id(role, u32::try_from(index).unwrap_or(0));
        match dice.below(8) {
            0..=2 => Fault::PauseJob(true),
            3 => Fault::PauseJob(false),
            4 => Fault::Restart(RestartTarget::Task),
            5 => Fault::Restart(RestartTarget::Role(role)),
            _ => Fault::Restart(RestartTarget::One(who)),
        }
    }

    /// What comes from outside the job, and faults that a role does to itself.
    pub(super) fn draw_outside(dice: &mut Dice, config: &CoreConfig) -> Self {
        let some = |dice: &mut Dice, n| u32::try_from(dice.below(n)).unwrap_or(0);
        let roles = [Role::Trainer, Role::Rollout, Role::Agent];
        let role = roles[some(dice, 3) as usize];
        let index = some(dice, u64::from(config.count(role)).max(1));
        match dice.below(20) {
            0 => Fault::LoseService,
            1..=3 => Fault::Afflict(some(dice, 3)),
            4..=8 => Fault::Echo(1 + some(dice, 12)),
            9 | 10 => {
                let engines = u64::from(config.count(Role::Rollout)).max(1);
                Fault::Scrub(id(Role::Rollout, some(dice, engines)))
            }
            11..=13 => Fault::Clients(1 + some(dice, 6), dice.below(3000)),
            14..=16 => Fault::HaltDaemon(dice.below(9000)),
            _ => {
                let fault = match dice.chance(500) {
                    true => core::Fault::Exception,
                    false => core::Fault::Exit { code: 3 },
                };
                let phases = At::phases(role);
                let phase = phases[some(dice, phases.len() as u64) as usize];
                Fault::Arm(id(role, index), fault, At { phase, percent: 0 })
            }
        }
    }

    fn draw_of_node(dice: &mut Dice) -> Self {
        let at = 1 + u32::from(dice.chance(500));
        match dice.below(10) {
            0 | 1 => Fault::KillNode(at, dice.below(15_000)),
            2 | 3 => Fault::FreezeNode(at, dice.below(12_000)),
            4..=6 => Fault::CutNode(at, dice.below(12_000)),
            7 => Fault::LeaveNode(at, dice.below(8000)),
            _ => Fault::NewNode,
        }
    }

    /// How many kinds there are. A swarm has none whose number is not below it.
    pub(super) const KINDS: u32 = 36;

    /// Its number among the kinds.
    pub(super) fn kind(&self) -> u32 {
        match self {
            Fault::Kill(..) => 0,
            Fault::Stop(..) => 1,
            Fault::Pause(..) => 2,
            Fault::Wedge(..) => 3,
            Fault::Slow(..) => 4,
            Fault::Cut(..) => 5,
            Fault::Doom(..) => 6,
            Fault::Raise(..) => 7,
            Fault::Corrupt(..) => 8,
            Fault::CrashDaemon => 9,
            Fault::CrashDaemonAfter(..) => 10,
            Fault::Ghosts(..) => 11,
            Fault::Inject(..) => 12,
            Fault::Arm(..) => 13,
            Fault::RestoreSlot(..) => 14,
            Fault::Scale(..) => 15,
            Fault::Update(..) => 16,
            Fault::Cordon(..) => 17,
            Fault::Quarantine(..) => 18,
            Fault::PauseJob(..) => 19,
            Fault::Restart(..) => 20,
            Fault::Device(..) => 21,
            Fault::KillNode(..) => 22,
            Fault::FreezeNode(..) => 23,
            Fault::CutNode(..) => 24,
            Fault::LeaveNode(..) => 25,
            Fault::NewNode => 26,
            Fault::StopAndResume(..) => 27,
            Fault::Poison(..) => 28,
            Fault::BreakTool(..) => 29,
            Fault::Clients(..) => 30,
            Fault::LoseService => 31,
            Fault::Afflict(..) => 32,
            Fault::Echo(..) => 33,
            Fault::Scrub(..) => 34,
            Fault::HaltDaemon(..) => 35,
            // Those of several controllers are drawn by themselves.
            Fault::Above(..) => Self::KINDS,
        }
    }

    /// Lets it happen now.
    pub fn strike(&self, world: &mut World) {
        match self {
            Fault::Kill(who) => world.kill(*who),
            Fault::Stop(who) => world.stop(*who),
            Fault::Pause(who, for_ms) => world.pause(*who, ms(*for_ms)),
            Fault::Wedge(who) => world.wedge(*who),
            Fault::Slow(who, times, for_ms) => world.slow(*who, *times, ms(*for_ms)),
            Fault::Cut(who, for_ms) => world.cut(world.life(*who), ms(*for_ms)),
            Fault::Doom(who, starts) => {
                world.doom(*who, starts.clone());
                world.kill(*who);
            }
            Fault::Raise(who) => world.raise(*who),
            Fault::Corrupt(who) => world.corrupt(*who),
            Fault::CrashDaemon => world.crash_daemon(),
            Fault::CrashDaemonAfter(outputs) => world.crash_daemon_after(*outputs),
            Fault::Ghosts(who) => world.ghosts(*who),
            Fault::Inject(who, fault) => world.inject(fault.clone(), who.role, who.index),
            Fault::Arm(who, fault, at) => {
                world.inject_at(fault.clone(), who.role, who.index, Some(*at));
            }
            Fault::RestoreSlot(at, role, index) => {
                let pool = world.config.pool(*role).to_owned();
                world.restore_slot(*at as usize, &pool, *index);
            }
            Fault::Scale(role, count) => world.scale(*role, *count),
            Fault::Update(role, value) => world.update(*role, *value),
            Fault::Cordon(at, out) => world.cordon(*at as usize, *out),
            Fault::Quarantine(who, out) => world.quarantine(*who, *out),
            Fault::PauseJob(pause) => world.pause_job(*pause),
            Fault::Restart(target) => world.restart(*target),
            Fault::Device(who, broken) => world.device(*who, *broken),
            Fault::KillNode(at, for_ms) => world.kill_node(*at as usize, ms(*for_ms)),
            Fault::FreezeNode(at, for_ms) => world.freeze_node(*at as usize, ms(*for_ms)),
            Fault::CutNode(at, for_ms) => world.cut_node(*at as usize, ms(*for_ms)),
            Fault::LeaveNode(at, for_ms) => world.leave_node(*at as usize, ms(*for_ms)),
            Fault::NewNode => world.new_node(),
            Fault::StopAndResume(after_ms) => world.stop_and_resume(ms(*after_ms)),
            Fault::Poison(ahead, group, member) => {
                let (batch, group) = (world.committed() + 1 + ahead, *group);
                let of = |member| TrajectoryId {
                    batch,
                    group,
                    member,
                };
                match member {
                    Some(member) => world.poison(of(*member)),
                    None => (0..world.config.responses).for_each(|member| world.poison(of(member))),
                }
            }
            Fault::BreakTool(who, for_ms) => {
                let lasts = (*for_ms > 0).then(|| ms(*for_ms));
                world.break_tool(*who, lasts);
            }
            Fault::Clients(count, for_ms) => world.clients(*count, ms(*for_ms)),
            Fault::LoseService => world.lose_service(),
            Fault::Afflict(at) => world.afflict(*at as usize),
            Fault::Echo(count) => world.echo(*count),
            Fault::Scrub(who) => world.scrub(*who),
            Fault::HaltDaemon(for_ms) => world.halt_daemon(ms(*for_ms)),
            Fault::Above(upset) => upset.strike(world),
        }
    }
}

impl Start {
    /// How the next starts go: refused, dying or hanging, up to six times in a row.
    fn draw(dice: &mut Dice) -> Vec<Start> {
        let times = 1 + dice.below(6);
        let one = match dice.below(3) {
            0 => Start::Refused,
            1 => Start::Dies(1),
            _ => Start::Mute,
        };
        (0..times).map(|_| one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::Schedule;
    use super::*;

    #[test]
    fn whatever_is_drawn_is_of_a_kind_that_a_swarm_can_have() {
        for seed in 0..2000 {
            let config = Schedule::of(seed).config();
            let mut dice = Dice::keyed(seed, 77);
            let drawn = [
                Fault::draw(&mut dice, &config),
                Fault::draw_control(&mut dice, &config),
                Fault::draw_outside(&mut dice, &config),
            ];
            for fault in drawn {
                assert!(fault.kind() < Fault::KINDS, "{fault:?}");
            }
        }
    }
}
