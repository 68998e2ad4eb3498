//! A checkpoint's weights as a Hugging Face folder.
use super::{State, failed, path_text, progress, readable};
use crate::error::CliError;
use crate::format;
use crate::output::{put, put_json};
use serde_json::json;
use std::path::Path;

pub(super) fn run(state: &State, step: &str, to: &Path, json: bool) -> Result<(), CliError> {
    let listed = match step {
        "latest" => state.listed.iter().rev().find(|l| l.manifest.is_ok()),
        number => {
            let step = number.parse().map_err(|_| {
                CliError::Usage(format!("`{number}` is no step; write a number or `latest`"))
            })?;
            Some(state.one(step)?)
        }
    };
    let none = || CliError::Failed("there is no complete checkpoint yet".to_owned());
    let checkpoint = readable(listed.ok_or_else(none)?)?;
    let job = state.job()?;
    let model = job.model.path.clone().ok_or_else(|| {
        CliError::Failed(
            "this state directory has no model folder on record: the job never began. Name the state directory of a \
             job that ran"
                .to_owned(),
        )
    })?;
    let weights: u64 = checkpoint.tensors.iter().map(|t| t.bytes).sum();
    let bar = progress(weights, "exporting");
    let tokenizer = &job.data.tokenizer;
    let exported = robust_ckpt::export(checkpoint, &model, tokenizer, to, &mut |n| bar.inc(n));
    bar.finish_and_clear();
    let exported = exported.map_err(failed)?;
    let step = checkpoint.step.0;
    if json {
        return put_json(&json!({
            "step": step, "folder": path_text(to), "bytes": exported.bytes,
            "tensors": exported.tensors, "files": exported.files,
        }));
    }
    put(&format!(
        "step {step}: {} tensors, {}, written to {} ({})\n",
        exported.tensors,
        format::bytes(exported.bytes),
        to.display(),
        exported.files.join(", ")
    ))
}
