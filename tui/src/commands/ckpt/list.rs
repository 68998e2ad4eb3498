//! What is there, and what stays.
use super::{State, failed, path_text, readable};
use crate::error::CliError;
use crate::format;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use robust_ckpt::disk::RealDisk;
use robust_ckpt::{Aside, Known, Listed, folder, pin};
use serde_json::{Value, json};

pub(super) fn list(state: &State, json: bool) -> Result<(), CliError> {
    if json {
        let all: Vec<_> = state.listed.iter().map(line).collect();
        let aside: Vec<_> = state.aside.iter().map(aside_line).collect();
        return put_json(&json!({ "checkpoints": all, "set_aside": aside }));
    }
    put(&set_aside(state))?;
    if state.listed.is_empty() {
        return put("no checkpoint yet\n");
    }
    let mut table = Table::new(&[
        ">STEP", ">BYTES", ">RANKS", ">REWARD", "WHEN", "PINNED", "STATE",
    ]);
    for l in &state.listed {
        let pinned = if l.pinned { "pinned" } else { "-" }.to_owned();
        let dash = || "-".to_owned();
        let cells = match &l.manifest {
            Ok(c) => [
                l.step.to_string(),
                format::bytes(c.bytes()),
                c.shards.len().to_string(),
                c.reward.map_or_else(dash, |r| format!("{r:.3}")),
                c.at.map_or_else(dash, |at| format::time_of_day(at.0 / 1000)),
                pinned,
                "complete".to_owned(),
            ],
            Err(why) => [
                l.step.to_string(),
                dash(),
                dash(),
                dash(),
                dash(),
                pinned,
                format!("unusable: {why}"),
            ],
        };
        table.row(cells);
    }
    put(&table.render(Paint::stdout()))
}

/// What was damaged and lies there for somebody to look at.
pub(super) fn set_aside(state: &State) -> String {
    let line = |a: &Aside| {
        let when = format::time_of_day(a.at_ms);
        let folder = a.dir.display();
        format!(
            "step {} was set aside at {when} as {folder}: {}\n",
            a.step, a.reason
        )
    };
    state.aside.iter().map(line).collect()
}

fn aside_line(a: &Aside) -> Value {
    json!({ "step": a.step.0, "folder": path_text(&a.dir), "at_ms": a.at_ms, "reason": a.reason })
}

fn line(l: &Listed) -> Value {
    let common = json!({ "step": l.step.0, "folder": path_text(&l.dir), "pinned": l.pinned });
    let more = match &l.manifest {
        Ok(c) => json!({
            "complete": true, "generation": c.generation.0, "bytes": c.bytes(),
            "ranks": c.shards.len(), "reward": c.reward, "at_us": c.at.map(|at| at.0),
            "trajectories": c.consumed.len(),
        }),
        Err(why) => json!({ "complete": false, "reason": why }),
    };
    match (common, more) {
        (Value::Object(mut a), Value::Object(b)) => {
            a.extend(b);
            Value::Object(a)
        }
        (a, _) => a,
    }
}

pub(super) fn show(state: &State, step: u64, json: bool) -> Result<(), CliError> {
    let listed = state.one(step)?;
    let checkpoint = readable(listed)?;
    if json {
        let shard = |s: &robust_ckpt::Shard| {
            let xxh3 = format!("{:016x}", s.xxh3);
            json!({ "rank": s.rank, "file": path_text(&s.path), "bytes": s.bytes, "xxh3": xxh3 })
        };
        let shards: Vec<_> = checkpoint.shards.iter().map(shard).collect();
        let mut all = line(listed);
        all["shards"] = json!(shards);
        all["consumed"] = json!(
            checkpoint
                .consumed
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
        );
        all["tensors"] = json!(checkpoint.tensors);
        return put_json(&all);
    }
    let mut text = format!(
        "checkpoint of step {step}, generation {}\nfolder      {}\nbytes       {}\n",
        checkpoint.generation.0,
        listed.dir.display(),
        format::bytes(checkpoint.bytes()),
    );
    if let Some(reward) = checkpoint.reward {
        text += &format!("reward      {reward:.3}\n");
    }
    text += &format!("consumed    {} trajectories\n", checkpoint.consumed.len());
    text += &format!("tensors     {}\n", checkpoint.tensors.len());
    text += &format!(
        "pinned      {}\n\n",
        if listed.pinned { "yes" } else { "no" }
    );
    let mut table = Table::new(&[">RANK", ">BYTES", "XXH3-64", "FILE"]);
    for s in &checkpoint.shards {
        let name = s.path.file_name().unwrap_or_default().to_string_lossy();
        table.row([
            s.rank.to_string(),
            s.bytes.to_string(),
            format!("{:016x}", s.xxh3),
            name.into_owned(),
        ]);
    }
    put(&(text + &table.render(Paint::stdout())))
}

pub(super) fn pin(state: &State, step: u64, pinned: bool, json: bool) -> Result<(), CliError> {
    let listed = state.one(step)?;
    if pinned {
        readable(listed)?;
    }
    pin::set(&RealDisk, &listed.dir, pinned).map_err(failed)?;
    put_pinned(step, pinned, json)
}

/// Says that a checkpoint is pinned, or is not any more.
pub(super) fn put_pinned(step: u64, pinned: bool, json: bool) -> Result<(), CliError> {
    if json {
        return put_json(&json!({ "step": step, "pinned": pinned }));
    }
    match pinned {
        true => put(&format!(
            "the checkpoint of step {step} stays until it is unpinned\n"
        )),
        false => put(&format!(
            "the checkpoint of step {step} goes with the others again\n"
        )),
    }
}

pub(super) fn collect(state: &State, dry_run: bool, json: bool) -> Result<(), CliError> {
    let known = |l: &Listed| Known {
        step: l.step,
        reward: l.manifest.as_ref().ok().and_then(|c| c.reward),
        pinned: l.pinned,
        usable: l.manifest.is_ok(),
    };
    let known: Vec<_> = state.listed.iter().map(known).collect();
    let surplus = state.retention()?.surplus(&known);
    let (mut bytes, mut steps) = (0, Vec::new());
    for l in state.listed.iter().filter(|l| surplus.contains(&l.step)) {
        bytes += l
            .manifest
            .as_ref()
            .map_or(0, robust_ckpt::Checkpoint::bytes);
        steps.push(l.step.0);
        if !dry_run {
            folder::remove(&RealDisk, &l.dir).map_err(failed)?;
        }
    }
    if json {
        let key = if dry_run { "would_remove" } else { "removed" };
        return put_json(&json!({ key: steps, "bytes": bytes }));
    }
    let names: Vec<_> = steps.iter().map(u64::to_string).collect();
    let (verb, size) = (
        if dry_run { "would remove" } else { "removed" },
        format::bytes(bytes),
    );
    match names.as_slice() {
        [] => put("nothing to remove: the job's retention keeps all of them\n"),
        names => put(&format!(
            "{verb} the checkpoints of steps {} ({size})\n",
            names.join(", ")
        )),
    }
}
