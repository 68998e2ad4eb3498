//! When each fault strikes: drawn from the drill's seed, the same in every run.
use super::{Drill, DrillError, DrillProblem, Fault, FaultKind};
use crate::ids::Role;
use crate::job::Job;
use std::fmt;

/// One fault of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Strike {
    /// When, at the earliest: a second fault waits until a step was committed after the first.
    pub at: Moment,
    /// What.
    pub kind: FaultKind,
    /// Whom.
    pub role: Role,
    /// Which of them.
    pub index: u32,
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
        let (kind, role, index) = (self.kind.name(), self.role, self.index);
        match self.at {
            Moment::Steps(at) => write!(f, "{kind} {role}-{index} {at:.2} steps in"),
            Moment::Seconds(at) => write!(f, "{kind} {role}-{index} after {at} s"),
        }
    }
}

/// A fault this close to the end could miss the job.
const ROOM_STEPS: f64 = 1.5;

impl Drill {
    /// The strikes of a run of this job: those by steps in order, then those by time.
    pub(super) fn strikes(&self, job: &Job) -> Result<Vec<Strike>, DrillError> {
        let mut strikes = Vec::new();
        for (place, fault) in self.faults.iter().enumerate() {
            let key = format!("faults.{place}");
            self.check_target(&key, fault, job)?;
            for (n, at) in self.moments(place, fault, job)?.into_iter().enumerate() {
                let count = job.count(fault.role);
                let drawn = (self.draw(place, n, "index") * f64::from(count)) as u32;
                strikes.push(Strike {
                    at,
                    kind: fault.kind,
                    role: fault.role,
                    index: fault.index.unwrap_or(drawn.min(count - 1)),
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

    fn check_target(&self, key: &str, fault: &Fault, job: &Job) -> Result<(), DrillError> {
        let (role, count) = (fault.role, job.count(fault.role));
        let index = fault.index.unwrap_or(0);
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
        Err(self.refuse(&format!("{key}.index"), problem))
    }

    fn moments(&self, place: usize, fault: &Fault, job: &Job) -> Result<Vec<Moment>, DrillError> {
        let steps = job.job.steps;
        let latest = (steps as f64 - ROOM_STEPS).max(0.0);
        if let Some(at) = fault.at_step {
            if at > latest {
                let problem = DrillProblem::TooLate { at, steps, latest };
                return Err(self.refuse(&format!("faults.{place}.at_step"), problem));
            }
            return Ok(vec![Moment::Steps(at)]);
        }
        if let Some(at) = fault.at_s {
            return Ok(vec![Moment::Seconds(at)]);
        }
        let every = fault.every_steps.unwrap_or(0);
        if !(2..=steps).contains(&every) {
            let key = format!("faults.{place}.every_steps");
            return Err(self.refuse(&key, DrillProblem::Density { every, steps }));
        }
        let window = |n: u64| {
            let from = (n * every) as f64;
            let to = (from + every as f64).min(latest);
            Moment::Steps(from + self.draw(place, n as usize, "moment") * (to - from))
        };
        Ok((0..steps / every).map(window).collect())
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
