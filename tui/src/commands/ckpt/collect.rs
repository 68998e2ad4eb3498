//! `ckpt gc --remote`: what an object store need not keep.
use super::remote::{Far, failed};
use super::retention_of;
use crate::error::CliError;
use crate::output::{put, put_json};
use robust_ckpt::Retention;
use robust_remote::{Surplus, Why};
use robust_shared::ids::Step;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A place without a manifest may be an upload under way, here or on another machine. After so long
/// without a write it is taken for one that ended half way.
const UNDER_WAY: Duration = Duration::from_secs(24 * 3600);

impl Far {
    /// Removes what a run's retention need not keep: by default of the state directory's run.
    pub async fn collect(
        &self,
        dir: &Path,
        keep: Option<u32>,
        dry_run: bool,
        json: bool,
    ) -> Result<(), CliError> {
        let run = self.one_run(dir).await?;
        let keep = match keep {
            Some(last) => Retention {
                last: last as usize,
                every: 0,
                best: 0,
            },
            None => retention_of(dir)
                .map_err(|e| CliError::Usage(format!("{e}; say with --keep N how many stay")))?,
        };
        let pinned = pinned(dir);
        let surplus = self.remote.surplus(&run, &keep, &pinned).await;
        let mut collected = Collected {
            url: self.remote.url().to_owned(),
            run,
            dry_run,
            gone: Vec::new(),
            spared: Vec::new(),
        };
        for one in surplus.map_err(failed)? {
            if self.may_be_under_way(&one).await? {
                collected.spared.push(one);
                continue;
            }
            if !dry_run {
                self.remote.remove(&one.place).await.map_err(failed)?;
            }
            collected.gone.push(one);
        }
        match json {
            true => collected.put_json(),
            false => collected.put_lines(),
        }
    }

    /// The run that is named, or that of the state directory, or the only one there is.
    pub(super) async fn one_run(&self, dir: &Path) -> Result<String, CliError> {
        if let Some(run) = &self.run {
            return Ok(run.clone());
        }
        let own = std::fs::read_to_string(dir.join("run"));
        let runs = self.remote.runs().await.map_err(failed)?;
        match (own, runs.as_slice()) {
            (Ok(own), _) => Ok(own.trim().to_owned()),
            (Err(_), [only]) => Ok(only.clone()),
            (Err(_), []) => {
                let text = format!("no run in {}", self.remote.url());
                Err(CliError::Failed(text))
            }
            (Err(_), several) => {
                let text = format!("name one with --run; there are {}", several.join(", "));
                Err(CliError::Usage(text))
            }
        }
    }

    async fn may_be_under_way(&self, surplus: &Surplus) -> Result<bool, CliError> {
        if surplus.why != Why::Incomplete {
            return Ok(false);
        }
        let touched = self.remote.touched(&surplus.place).await;
        let age = |at: SystemTime| at.elapsed().unwrap_or_default();
        Ok(touched
            .map_err(failed)?
            .is_some_and(|at| age(at) < UNDER_WAY))
    }
}

/// What was removed, or would be, and what was left.
struct Collected {
    url: String,
    run: String,
    dry_run: bool,
    gone: Vec<Surplus>,
    spared: Vec<Surplus>,
}

impl Collected {
    fn put_json(&self) -> Result<(), CliError> {
        let key = if self.dry_run {
            "would_remove"
        } else {
            "removed"
        };
        let lines = |all: &[Surplus]| all.iter().map(line).collect::<Vec<_>>();
        put_json(&json!({
            "url": self.url, "run": self.run,
            key: lines(&self.gone), "under_way": lines(&self.spared),
        }))
    }

    fn put_lines(&self) -> Result<(), CliError> {
        let verb = if self.dry_run {
            "would remove"
        } else {
            "removed"
        };
        for one in &self.gone {
            put(&format!("{verb} {} ({})\n", one.place, one.why))?;
        }
        for one in &self.spared {
            let why = "no manifest yet, written to in the last 24 h: may be under way";
            put(&format!("left {} ({why})\n", one.place))?;
        }
        match self.gone.as_slice() {
            [] => put(&format!("nothing to remove of run {}\n", self.run)),
            _ => Ok(()),
        }
    }
}

/// Steps that are pinned on this machine's disk.
fn pinned(dir: &Path) -> BTreeSet<Step> {
    // A machine without the job's folder pins nothing.
    let listed = robust_ckpt::list(&dir.join("ckpt")).unwrap_or_default();
    let pinned = listed.iter().filter(|l| l.pinned);
    pinned.map(|l| l.step).collect()
}

fn line(of: &Surplus) -> Value {
    let (place, why) = (&of.place, of.why.to_string());
    json!({ "step": place.step.0, "generation": place.generation.0, "why": why })
}
