//! The job whose engines are struck, watched through its daemon.

use super::exits::Exits;
use super::figures::{Blow, Usage};
use super::processes::{Process, choose, engine_of, ticks};
use robust_proto::v1;
use robustctl::measuring::{CliError, OwnJob, recovery};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Real engines take minutes to start on a processor.
const PATIENCE: Duration = Duration::from_secs(900);

/// What is struck of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The busiest process that the first one started.
    Child,
    /// The first process.
    Leader,
    /// All of them, with SIGSTOP.
    All,
}

/// Whose engine, and what of it.
#[derive(Clone, Copy, Debug)]
pub struct Aim {
    /// A number from which the rollout follows.
    pub draw: u64,
    /// What of it.
    pub part: Part,
}

impl Aim {
    /// A child or the leader, of any rollout: the same for the same seed.
    pub fn drawn(seed: u64, n: u32) -> Self {
        let draw = draw(seed, n);
        let part = match draw & 1 {
            0 => Part::Child,
            _ => Part::Leader,
        };
        Self {
            draw: draw >> 1,
            part,
        }
    }

    /// All processes, of any rollout.
    pub fn all_of(seed: u64, n: u32) -> Self {
        Self {
            draw: draw(seed, n) >> 1,
            part: Part::All,
        }
    }
}

fn draw(seed: u64, n: u32) -> u64 {
    let mut hasher = blake3::Hasher::new_derive_key("robust bench hosting v1");
    hasher.update(&seed.to_le_bytes());
    hasher.update(&n.to_le_bytes());
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first)
}

/// A running job.
pub struct Scene {
    own: OwnJob,
    /// The step that must be committed before the next blow: a second fault in a step may restart more.
    after_step: u64,
}

impl Scene {
    /// Of a job that has begun.
    pub fn of(own: OwnJob) -> Self {
        Self { own, after_step: 1 }
    }

    /// Where its roles write.
    pub fn logs(&self) -> PathBuf {
        self.own.state_dir().join("logs")
    }

    /// Ends it.
    pub async fn end(self) -> Result<(), CliError> {
        self.own.end().await
    }

    /// Waits until every rollout has traffic and a step was committed since the last blow.
    async fn quiet(&mut self) -> Result<v1::Status, CliError> {
        let begun = Instant::now();
        loop {
            let status = self.own.next_status().await?;
            let admitted = rollouts(&status).all(|role| role.admitted && role.pid > 0);
            let healed = status.incidents.iter().all(|i| i.outcome != "recovering");
            if admitted && healed && status.step >= self.after_step && status.state == "running" {
                return Ok(status);
            }
            if begun.elapsed() > PATIENCE {
                return Err(CliError::Failed(format!(
                    "not every rollout had traffic within {} s",
                    PATIENCE.as_secs()
                )));
            }
        }
    }

    /// Watches the processor times of shims and engines while the job trains.
    pub async fn usage(&mut self, seconds: f64) -> Result<Vec<Usage>, CliError> {
        let before = self.quiet().await?;
        let begin: Vec<(u64, u64, u64)> = rollouts(&before).map(used).collect();
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        let mut after = before.clone();
        while Instant::now() < until {
            after = self.own.next_status().await?;
        }
        let end = rollouts(&after).map(used);
        let usage = begin.into_iter().zip(end).map(|(begin, end)| Usage {
            shim_ticks: end.0.saturating_sub(begin.0),
            engine_ticks: end.1.saturating_sub(begin.1),
            tokens_per_s: end.2.saturating_sub(begin.2) as f64 / seconds,
        });
        Ok(usage.collect())
    }

    /// Strikes and waits until the struck rollout has traffic again.
    pub async fn strike(&mut self, aim: Aim) -> Result<Blow, CliError> {
        let status = self.quiet().await?;
        let all: Vec<v1::RoleStatus> = rollouts(&status).cloned().collect();
        let at = usize::try_from(aim.draw).unwrap_or(0) % all.len().max(1);
        let Some(whom) = all.get(at) else {
            return Err(CliError::Failed("the job has no rollouts".to_owned()));
        };
        let engine = engine_of(whom.pid);
        let struck = match aim.part {
            Part::All => engine.clone(),
            part => choose(&engine, part == Part::Leader)
                .into_iter()
                .cloned()
                .collect(),
        };
        let Some(first) = struck.first() else {
            let text = format!("the engine of rollout-{} shows no such process", whom.index);
            return Err(CliError::Failed(text));
        };
        let last = status.incidents.last().map_or(0, |incident| incident.id);
        let exits = Exits::watch(&struck)?;
        let begun_ms = now_ms();
        send(&struck, aim.part);
        let (incident, start) = self.recovery(whom, last).await?;
        self.after_step = incident.step + 2;
        // The daemon tells whole milliseconds.
        let verdict_after = |ms: f64| (incident.at_ms as f64 - ms.floor()).max(0.0);
        let detect_ms = verdict_after(begun_ms);
        // A stopped engine's end is the daemon's own doing, after its verdict.
        let ended_ms = exits.first_ms().filter(|_| aim.part != Part::All);
        Ok(Blow {
            whom: format!("rollout-{}", whom.index),
            part: aim.part,
            process: first.name.clone(),
            detect_ms,
            seen_ms: ended_ms.map(verdict_after),
            total_ms: detect_ms + incident.restart_ms + incident.reconnect_ms,
            start_ms: start.map(|time| time.as_secs_f64() * 1e3),
            rule: incident.rule.clone(),
            role_restart: recovery(&incident).restarted_role() && incident.outcome == "recovered",
            plan: incident.plan,
        })
    }

    /// The incident when it is over, and how long the new life's engine took to come up.
    async fn recovery(
        &mut self,
        whom: &v1::RoleStatus,
        last: u64,
    ) -> Result<(v1::Incident, Option<Duration>), CliError> {
        let (begun, mut starting, mut start) = (Instant::now(), None, None);
        loop {
            let status = self.own.next_status().await?;
            let place = rollouts(&status).find(|role| role.index == whom.index);
            let newer = place.filter(|role| role.incarnation > whom.incarnation && role.pid > 0);
            match newer.map(|role| role.phase == "init") {
                Some(true) => drop(starting.get_or_insert_with(Instant::now)),
                Some(false) if start.is_none() => start = starting.map(|at| at.elapsed()),
                _ => {}
            }
            let is_its = |i: &&v1::Incident| i.id > last && i.outcome != "recovering";
            if let Some(incident) = status.incidents.iter().find(is_its) {
                return Ok((incident.clone(), start));
            }
            if begun.elapsed() > PATIENCE {
                let text = format!("rollout-{} is not back, or nobody noticed", whom.index);
                return Err(CliError::Failed(text));
            }
        }
    }

    /// What is wrong with what the job has stored, and the trajectories that it threw away.
    pub async fn lost(&mut self) -> Result<(Vec<String>, u64), CliError> {
        let status = self.quiet().await?;
        let problems = self.own.store_problems().await?;
        Ok((problems, status.trajectories_discarded))
    }
}

fn rollouts(status: &v1::Status) -> impl Iterator<Item = &v1::RoleStatus> {
    status.roles.iter().filter(|role| role.role == "rollout")
}

/// Ticks of the shim and of its engine, and tokens so far.
fn used(role: &v1::RoleStatus) -> (u64, u64, u64) {
    let engine = engine_of(role.pid)
        .iter()
        .map(|process| process.ticks)
        .sum();
    (ticks(role.pid), engine, role.tokens_total)
}

fn send(struck: &[Process], part: Part) {
    let signal = match part {
        Part::All => Signal::STOP,
        Part::Child | Part::Leader => Signal::KILL,
    };
    let pids = struck
        .iter()
        .filter_map(|process| i32::try_from(process.pid).ok());
    for pid in pids.filter_map(Pid::from_raw) {
        // One that ended this moment needs none.
        let _ = kill_process(pid, signal);
    }
}

/// Milliseconds since 1970.
pub fn now_ms() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_alone_decides_who_is_struck() {
        let parts = |seed| -> Vec<(u64, Part)> {
            let aims = (0..32).map(|n| Aim::drawn(seed, n));
            aims.map(|aim| (aim.draw, aim.part)).collect()
        };
        assert_eq!(parts(1), parts(1));
        assert_ne!(parts(1), parts(2));
        let of = |part| parts(1).iter().filter(|(_, p)| *p == part).count();
        assert!(of(Part::Child) > 4 && of(Part::Leader) > 4);
    }
}
