//! Every byte against its digest.
use super::{State, path_text, progress};
use crate::error::CliError;
use crate::output::{put, put_json};
use robust_ckpt::Listed;
use serde_json::json;

pub(super) fn run(state: &State, step: Option<u64>, json: bool) -> Result<(), CliError> {
    let chosen: Vec<&Listed> = match step {
        Some(step) => vec![state.one(step)?],
        None => state.listed.iter().collect(),
    };
    let sizes = chosen.iter().filter_map(|l| l.manifest.as_ref().ok());
    let bar = progress(sizes.map(robust_ckpt::Checkpoint::bytes).sum(), "verifying");
    let check = |l: &&Listed| {
        let manifest = l.manifest.as_ref().map_err(Clone::clone);
        let checked = manifest.and_then(|c| robust_ckpt::verify(c, &mut |n| bar.inc(n)));
        (l.step.0, path_text(&l.dir), checked.err())
    };
    let results: Vec<_> = chosen.iter().map(check).collect();
    bar.finish_and_clear();
    if !json {
        put(&super::list::set_aside(state))?;
    }
    report(&results, json)
}

/// What was looked at, where that is, and what is wrong with it.
pub(super) type Verified = (u64, String, Option<String>);

/// Shows it; an error if anything is wrong.
pub(super) fn report(results: &[Verified], json: bool) -> Result<(), CliError> {
    let bad = results
        .iter()
        .filter(|(.., problem)| problem.is_some())
        .count();
    if json {
        let line = |(step, folder, problem): &(u64, String, Option<String>)| json!({ "step": step, "folder": folder, "ok": problem.is_none(), "reason": problem });
        put_json(&json!({ "verified": results.iter().map(line).collect::<Vec<_>>() }))?;
    } else {
        for (step, _, problem) in results {
            match problem {
                None => put(&format!("step {step}: every byte is as written\n"))?,
                Some(why) => put(&format!("step {step}: {why}\n"))?,
            }
        }
    }
    match bad {
        0 => Ok(()),
        n => Err(CliError::Failed(format!(
            "{n} of {} checkpoints cannot be used; a restore passes over them",
            results.len()
        ))),
    }
}
