//! When each fault strikes whom: drawn from the drill's seed, the same in every run.
use super::entry::{Entry, When};
use super::{Drill, DrillError, DrillProblem};
use crate::fault::{At, Fault, Target};
use crate::ids::{InstanceId, Role};
use crate::job::{Job, Moments};
use serde::Deserialize;
use std::fmt;

/// One fault of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Strike {
    /// When, at the earliest.
    pub at: Moment,
    /// What.
    pub fault: Fault,
    /// Whom.
    pub whom: Whom,
    /// It waits until the instance is so far in its life.
    pub phase: Option<At>,
    /// What it waits for besides.
    pub after: After,
}

/// What a fault waits for after the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum After {
    /// A committed step: a second fault before that restarts the task by design.
    #[default]
    Commit,
    /// Its recovery: both are in the same step.
    Recovery,
    /// Its verdict: it strikes the recovery.
    Verdict,
    /// Nothing: it follows at once, before anybody saw the one before it.
    Strike,
}

/// What a fault strikes.
#[derive(Clone, Debug, PartialEq)]
pub enum Whom {
    /// One instance.
    Instance(InstanceId),
    /// A node or the leader, as the fault says.
    Machine,
}

/// A place in a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// So many steps after the job began to run: whole ones committed, then a part of a fault-free
    /// step's time.
    Steps(f64),
    /// So many seconds after the job began to run.
    Seconds(f64),
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.fault.to_string();
        let (kind, rest) = text.split_once(' ').unwrap_or((&text, ""));
        f.write_str(kind)?;
        if let Whom::Instance(id) = self.whom {
            write!(f, " {id}")?;
        }
        if !rest.is_empty() {
            write!(f, " {rest}")?;
        }
        match self.at {
            Moment::Steps(at) => write!(f, " {at:.2} steps in")?,
            Moment::Seconds(at) => write!(f, " after {at} s")?,
        }
        match self.phase {
            None => Ok(()),
            Some(at) if at.is_start_up() => write!(f, ", at {at} of its next life"),
            Some(at) => write!(f, ", at {at}"),
        }
    }
}

/// A fault this close to the end could miss the job.
const ROOM_STEPS: f64 = 1.5;

/// What faults may strike: a job, or what is left of one that runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Ground {
    /// Steps.
    pub steps: u64,
    /// How many instances each role has.
    pub counts: Vec<(Role, u32)>,
    /// Names of the nodes, the leader's own first.
    pub nodes: Vec<String>,
    /// The phases that its instances come into, as far as that is known here.
    pub moments: Moments,
}

impl Ground {
    /// That of a job.
    pub fn of(job: &Job) -> Self {
        Self {
            steps: job.steps().unwrap_or(u32::MAX.into()),
            counts: Role::ALL.map(|role| (role, job.count(role))).to_vec(),
            nodes: job.nodes.iter().map(|n| n.name.clone()).collect(),
            moments: Moments::of(job),
        }
    }

    fn count(&self, role: Role) -> u32 {
        let of_role = self.counts.iter().filter(|(r, _)| *r == role);
        of_role.map(|(_, count)| count).sum()
    }

    fn latest(&self) -> f64 {
        (self.steps as f64 - ROOM_STEPS).max(0.0)
    }
}

impl Drill {
    /// The strikes of a run: those by steps in order, then those by time.
    pub(super) fn strikes(&self, ground: &Ground) -> Result<Vec<Strike>, DrillError> {
        let mut strikes = Vec::new();
        for (place, entry) in self.faults.iter().enumerate() {
            let key = format!("faults.{place}");
            let fault = entry.fault(self, &key)?;
            let phase = entry.at(self, &key)?;
            for (n, at) in self.moments(place, entry, ground)?.into_iter().enumerate() {
                let aim = Aim {
                    key: &key,
                    entry,
                    fault: &fault,
                    draw: &|purpose| self.draw(place, n, purpose),
                };
                let whom = self.whom(&aim, ground)?;
                self.check_phase(&key, phase, (&fault, &whom), &ground.moments)?;
                strikes.push(Strike {
                    at,
                    fault: fault.clone(),
                    whom,
                    phase,
                    after: entry.after,
                });
            }
        }
        let order = |s: &Strike| match s.at {
            Moment::Steps(at) => (false, at),
            Moment::Seconds(at) => (true, at),
        };
        strikes.sort_by(|a, b| {
            order(a)
                .partial_cmp(&order(b))
                .unwrap_or(std::cmp::Ordering::Equal)
        });
        Ok(strikes)
    }

    fn whom(&self, aim: &Aim<'_>, ground: &Ground) -> Result<Whom, DrillError> {
        if let Some(peer) = aim.fault.peer() {
            self.check_index(&format!("{}.peer", aim.key), peer, ground)?;
        }
        if aim.fault.kind().target() != Target::Instance {
            self.check_machine(aim, ground)?;
            return Ok(Whom::Machine);
        }
        let role = self.role(aim, ground)?;
        let count = ground.count(role);
        let drawn = ((aim.draw)("index") * f64::from(count)) as u32;
        let index = aim.entry.index;
        let id = InstanceId {
            role,
            index: index.unwrap_or(drawn.min(count.saturating_sub(1))),
        };
        self.check_index(&format!("{}.index", aim.key), id, ground)?;
        Ok(Whom::Instance(id))
    }

    fn check_machine(&self, aim: &Aim<'_>, ground: &Ground) -> Result<(), DrillError> {
        let (key, kind) = (aim.key, aim.fault.kind());
        let entry = aim.entry;
        if entry.role.is_some() || entry.index.is_some() {
            return Err(self.refuse(&format!("{key}.role"), DrillProblem::NoInstance { kind }));
        }
        let Fault::LoseNode { node } = aim.fault else {
            return Ok(());
        };
        let why = match ground.nodes.iter().position(|n| n == node) {
            Some(0) => "it is the leader's own; use `leader-crash`".to_owned(),
            Some(_) => return Ok(()),
            None => format!("the job has {}", ground.nodes.join(", ")),
        };
        let node = node.clone();
        Err(self.refuse(&format!("{key}.node"), DrillProblem::NoNode { node, why }))
    }

    /// As written, or drawn among those of the job that the fault can befall.
    fn role(&self, aim: &Aim<'_>, ground: &Ground) -> Result<Role, DrillError> {
        let kind = aim.fault.kind();
        let can: Vec<Role> = kind.roles().to_vec();
        if let Some(role) = aim.entry.role {
            if can.contains(&role) {
                return Ok(role);
            }
            let can = can.iter().map(|r| r.name()).collect::<Vec<_>>().join(", ");
            let problem = DrillProblem::NotItsFault { kind, role, can };
            return Err(self.refuse(&format!("{}.role", aim.key), problem));
        }
        let there: Vec<Role> = can
            .iter()
            .copied()
            .filter(|r| ground.count(*r) > 0)
            .collect();
        let drawn = ((aim.draw)("role") * there.len() as f64) as usize;
        let role = there.get(drawn.min(there.len().saturating_sub(1)));
        // Where the job has none of them, the refusal names the first.
        Ok(role.or(can.first()).copied().unwrap_or(Role::Trainer))
    }

    fn check_index(&self, key: &str, id: InstanceId, ground: &Ground) -> Result<(), DrillError> {
        let InstanceId { role, index } = id;
        let count = ground.count(role);
        if index < count {
            return Ok(());
        }
        let fix = match count {
            0 => "strike another role".to_owned(),
            1 => "write 0, or leave `index` out".to_owned(),
            n => format!("write 0 to {}, or leave `index` out", n - 1),
        };
        let problem = DrillProblem::NoSuchInstance {
            role,
            index,
            count,
            fix,
        };
        Err(self.refuse(key, problem))
    }

    fn check_phase(
        &self,
        key: &str,
        phase: Option<At>,
        (fault, whom): (&Fault, &Whom),
        moments: &Moments,
    ) -> Result<(), DrillError> {
        let Some(at) = phase else { return Ok(()) };
        let problem = match whom {
            Whom::Instance(id) => moments.check(id.role, at).err().map(DrillProblem::At),
            Whom::Machine => Some(DrillProblem::NoInstance { kind: fault.kind() }),
        };
        problem.map_or(Ok(()), |p| Err(self.refuse(&format!("{key}.at"), p)))
    }

    fn moments(
        &self,
        place: usize,
        entry: &Entry,
        ground: &Ground,
    ) -> Result<Vec<Moment>, DrillError> {
        let (steps, latest) = (ground.steps, ground.latest());
        let key = format!("faults.{place}");
        let within = |n: u64, from: f64, to: f64| {
            let to = to.min(latest);
            Moment::Steps(from + self.draw(place, n as usize, "moment") * (to - from))
        };
        match entry.when(self, &key)? {
            When::Step(at) if at > latest => {
                let problem = DrillProblem::TooLate { at, steps, latest };
                Err(self.refuse(&format!("{key}.at_step"), problem))
            }
            When::Step(at) => Ok(vec![Moment::Steps(at)]),
            When::Time(at) => Ok(vec![Moment::Seconds(at.as_secs_f64())]),
            When::Every(every) if !(2..=steps).contains(&every) => {
                let problem = DrillProblem::Density { every, steps };
                Err(self.refuse(&format!("{key}.every_steps"), problem))
            }
            When::Every(every) => {
                let window = |n| within(n, (n * every) as f64, ((n + 1) * every) as f64);
                Ok((0..steps / every).map(window).collect())
            }
            When::Random(count) => {
                // Behind the first commit, and with a commit between two.
                let most = (latest - 1.0).max(0.0) as u64 / 2;
                if !(1..=most).contains(&count) {
                    let problem = DrillProblem::Crowded { count, steps, most };
                    return Err(self.refuse(&format!("{key}.random"), problem));
                }
                let width = (latest - 1.0) / count as f64;
                let window = |n| within(n, 1.0 + n as f64 * width, 1.0 + (n + 1) as f64 * width);
                Ok((0..count).map(window).collect())
            }
        }
    }

    /// A number from 0 to below 1 that depends on the seed and on what it is for.
    fn draw(&self, fault: usize, n: usize, purpose: &str) -> f64 {
        let mut hasher = blake3::Hasher::new_derive_key("robust drill v1");
        hasher.update(&self.seed.to_le_bytes());
        hasher.update(&(fault as u64).to_le_bytes());
        hasher.update(&(n as u64).to_le_bytes());
        hasher.update(purpose.as_bytes());
        let mut first = [0; 8];
        first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        (u64::from_le_bytes(first) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// What is known of a strike before it is aimed.
struct Aim<'a> {
    /// Its place in the file.
    key: &'a str,
    entry: &'a Entry,
    fault: &'a Fault,
    draw: &'a dyn Fn(&str) -> f64,
}
