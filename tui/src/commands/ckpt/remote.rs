//! Checkpoints in an object store.
use super::{job_of, list, path_text, progress, verify};
use crate::cli::RemoteArgs;
use crate::error::CliError;
use crate::format;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_remote::{Kept, Remote, RemoteError, SigningKey};
use serde_json::{Value, json};
use std::path::Path;

/// An object store, and what of it is meant.
pub(super) struct Far {
    pub(super) remote: Remote,
    pub(super) run: Option<String>,
}

impl Far {
    /// The store that is named, or else that of the state directory's job.
    pub fn open(args: &RemoteArgs, dir: &Path) -> Result<Self, CliError> {
        let named = args.remote.clone().filter(|url| !url.is_empty());
        let given = args.signing_key_file.clone();
        let (url, key_file) = match named {
            Some(url) => (url, given),
            None => {
                let kept = job_of(dir)?.checkpoint;
                let url = kept.remote.ok_or_else(|| {
                    let text = "the job has no `checkpoint.remote`; name a store with --remote=URL";
                    CliError::Usage(text.to_owned())
                })?;
                (url, given.or(kept.remote_signing_key_file))
            }
        };
        let usage = |error: RemoteError| CliError::Usage(error.to_string());
        let signing_key = key_file.as_deref().map(SigningKey::read).transpose();
        let remote = Remote::open(&url).map_err(usage)?;
        Ok(Self {
            remote: remote.signed_with(signing_key.map_err(usage)?),
            run: args.run.clone(),
        })
    }

    async fn all(&self) -> Result<Vec<Kept>, CliError> {
        let listed = match &self.run {
            Some(run) => self.remote.list(run).await,
            None => self.remote.list_all().await,
        };
        listed.map_err(failed)
    }

    pub async fn list(&self, json: bool) -> Result<(), CliError> {
        let all = self.all().await?;
        if json {
            let lines: Vec<_> = all.iter().map(line).collect();
            return put_json(&json!({ "url": self.remote.url(), "checkpoints": lines }));
        }
        if all.is_empty() {
            return put(&format!("no checkpoint in {}\n", self.remote.url()));
        }
        let columns = [
            "RUN", ">STEP", ">GANG", ">BYTES", ">RANKS", ">REWARD", "WHEN", "PINNED", "STATE",
        ];
        let mut table = Table::new(&columns);
        for kept in &all {
            let dash = || "-".to_owned();
            let of = kept.manifest.as_ref().ok();
            let reward = of.and_then(|c| c.reward);
            let at = of.and_then(|c| c.at);
            table.row([
                kept.place.run.clone(),
                kept.place.step.to_string(),
                kept.place.generation.to_string(),
                of.map_or_else(dash, |c| format::bytes(c.bytes())),
                of.map_or_else(dash, |c| c.shards.len().to_string()),
                reward.map_or_else(dash, |r| format!("{r:.3}")),
                at.map_or_else(dash, |at| format::time_of_day(at.0 / 1000)),
                if kept.pinned { "pinned" } else { "-" }.to_owned(),
                match &kept.manifest {
                    Ok(_) => "complete".to_owned(),
                    Err(why) => format!("unusable: {why}"),
                },
            ]);
        }
        put(&table.render(Paint::stdout()))
    }

    /// Reads every byte of every checkpoint, or of one step's.
    pub async fn verify(&self, step: Option<u64>, json: bool) -> Result<(), CliError> {
        let mut all = self.all().await?;
        if let Some(step) = step {
            let there = steps(&all);
            all.retain(|k| k.place.step.0 == step);
            if all.is_empty() {
                return Err(self.lacks(step, there));
            }
        }
        let sizes = all.iter().filter_map(|k| k.manifest.as_ref().ok());
        let bar = progress(sizes.map(robust_ckpt::Checkpoint::bytes).sum(), "verifying");
        let mut results = Vec::new();
        for kept in &all {
            let verified = self.remote.verify(kept, &mut |n| bar.inc(n)).await;
            let place = kept.place.to_string();
            results.push((
                kept.place.step.0,
                place,
                verified.err().map(|e| e.to_string()),
            ));
        }
        bar.finish_and_clear();
        verify::report(&results, json)
    }

    /// Brings one to the state directory.
    pub async fn fetch(&self, step: &str, dir: &Path, json: bool) -> Result<(), CliError> {
        let kept = self.choose(step).await?;
        let bytes = kept
            .manifest
            .as_ref()
            .map_or(0, robust_ckpt::Checkpoint::bytes);
        let bar = progress(bytes, "fetching");
        let ckpt = dir.join("ckpt");
        let fetched = self.remote.fetch(&kept, &ckpt, &mut |n| bar.inc(n)).await;
        bar.finish_and_clear();
        let fetched = fetched.map_err(failed)?;
        if json {
            return put_json(&json!({
                "step": fetched.step.0, "run": kept.place.run, "bytes": bytes,
                "folder": path_text(&fetched.dir),
            }));
        }
        put(&format!(
            "{}: {}, every byte verified, in {}\n",
            kept.place,
            format::bytes(bytes),
            fetched.dir.display()
        ))
    }

    /// Has one stay, or go with the others again: of a run the newest gang's of that step.
    pub async fn pin(
        &self,
        dir: &Path,
        step: u64,
        pinned: bool,
        json: bool,
    ) -> Result<(), CliError> {
        let run = self.one_run(dir).await?;
        let all = self.remote.list(&run).await.map_err(failed)?;
        let found = all.iter().rev().find(|k| k.place.step.0 == step);
        let kept = found.ok_or_else(|| self.lacks(step, steps(&all)))?;
        if let Some(why) = kept.manifest.as_ref().err().filter(|_| pinned) {
            return Err(CliError::Failed(format!("{}: {why}", kept.place)));
        }
        let pinning = self.remote.pin(&kept.place, pinned).await;
        pinning.map_err(failed)?;
        list::put_pinned(step, pinned, json)
    }

    /// The one that is meant; with several runs of a store, the one of the newest.
    async fn choose(&self, step: &str) -> Result<Kept, CliError> {
        let wanted = match step {
            "latest" => None,
            number => Some(number.parse().map_err(|_| {
                CliError::Usage(format!("`{number}` is no step; write a number or `latest`"))
            })?),
        };
        let all = self.all().await?;
        let there = steps(&all);
        let fits = |k: &Kept| wanted.is_none_or(|step| k.place.step.0 == step);
        let written = |k: &Kept| k.manifest.as_ref().ok().and_then(|c| c.at);
        let usable = all.into_iter().filter(|k| fits(k) && k.manifest.is_ok());
        let newest = usable.max_by_key(|k| (written(k), k.place.generation, k.place.step));
        newest.ok_or_else(|| match wanted {
            Some(step) => self.lacks(step, there),
            None => CliError::Failed(format!("no checkpoint in {}", self.remote.url())),
        })
    }

    fn lacks(&self, step: u64, there: Vec<u64>) -> CliError {
        let there = super::instead_of(step, there);
        let url = self.remote.url();
        CliError::Usage(format!("no checkpoint of step {step} in {url}; {there}"))
    }
}

fn steps(all: &[Kept]) -> Vec<u64> {
    all.iter().map(|k| k.place.step.0).collect()
}

fn line(kept: &Kept) -> Value {
    let (place, of) = (&kept.place, kept.manifest.as_ref());
    json!({
        "run": place.run, "step": place.step.0, "generation": place.generation.0,
        "pinned": kept.pinned, "complete": of.is_ok(), "reason": of.err(),
        "bytes": of.map(robust_ckpt::Checkpoint::bytes).ok(),
        "ranks": of.map(|c| c.shards.len()).ok(),
        "reward": of.ok().and_then(|c| c.reward), "at_us": of.ok().and_then(|c| c.at).map(|at| at.0),
    })
}

pub(super) fn failed(error: RemoteError) -> CliError {
    CliError::Failed(error.to_string())
}
