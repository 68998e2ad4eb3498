//! What a job file asks of a machine.
use super::super::facts::{Found, JobFacts};
use robust_ckpt::WeightFiles;
use robust_shared::ids::Role;
use robust_shared::job::Job;
use serde_json::Value;
use std::fs::File;
use std::path::Path;

/// Weights, and Adam's two moments of each, as 32-bit numbers.
const BYTES_PER_PARAMETER: u64 = 12;

/// Reads the file; its paths are absolute.
pub(super) fn load(path: &Path) -> Found<Job> {
    let said = |e: std::io::Error| format!("{}: {e}", path.display());
    let text = std::fs::read_to_string(path).map_err(said)?;
    let mut job = Job::parse(&text, path).map_err(|e| e.to_string())?;
    let absolute = path.canonicalize().map_err(said)?;
    job.resolve(absolute.parent().unwrap_or(Path::new("/")));
    Ok(job)
}

/// Reads the file and what it names.
pub(super) fn read(path: &Path) -> Found<JobFacts> {
    let job = load(path)?;
    let missing = job.required_files().into_iter().filter_map(|file| {
        let why = File::open(&file.path).err()?;
        Some((
            file.key.to_owned(),
            format!("{}: {why}", file.path.display()),
        ))
    });
    let weights = job.model.path.as_ref().and_then(|folder| {
        let found = WeightFiles::find(folder).and_then(|weights| weights.tensors());
        Some(("model.path".to_owned(), found.err()?.to_string()))
    });
    let c = &job.checkpoint;
    let dated = job.job.steps.checked_div(c.keep_every).unwrap_or(0);
    let dated = u32::try_from(dated).unwrap_or(u32::MAX);
    Ok(JobFacts {
        name: job.job.name.clone(),
        instances: Role::ALL.into_iter().map(|role| job.count(role)).sum(),
        nodes: u32::try_from(job.nodes.len()).unwrap_or(u32::MAX),
        missing: missing.chain(weights).collect(),
        state_bytes: parameters(&job).map(|n| n.saturating_mul(BYTES_PER_PARAMETER)),
        checkpoints: c
            .keep
            .saturating_add(c.keep_best)
            .saturating_add(dated)
            .saturating_add(1),
        net_devices: job.weights.net_devices.clone(),
        commands: Vec::new(),
        devices: None,
    })
}

/// The model's elements, where they are known.
pub(super) fn parameters(job: &Job) -> Option<u64> {
    match &job.model.path {
        Some(folder) => of_safetensors(folder),
        None => of_shape(job, vocabulary(&job.data.tokenizer)?),
    }
}

/// The elements of all tensors, from the files' headers.
fn of_safetensors(folder: &Path) -> Option<u64> {
    let tensors = WeightFiles::find(folder).ok()?.tensors().ok()?;
    let elements = |shape: &[usize]| shape.iter().map(|&size| size as u64).product::<u64>();
    Some(tensors.values().map(|tensor| elements(&tensor.shape)).sum())
}

/// Of the warm start's shape: tied embedding, attention, gated feed-forward, norms.
fn of_shape(job: &Job, vocabulary: u64) -> Option<u64> {
    let c = &job.model.config;
    let [hidden, layers, heads, kv_heads, head, inner] = [
        c.hidden_size,
        c.num_hidden_layers,
        c.num_attention_heads,
        c.num_key_value_heads,
        c.head_dim,
        c.intermediate_size,
    ]
    .map(u64::from);
    let attention = 2 * hidden * head * (heads + kv_heads) + 2 * head;
    let layer = attention + 3 * hidden * inner + 2 * hidden;
    layers
        .checked_mul(layer)?
        .checked_add(hidden * (vocabulary + 1))
}

fn vocabulary(tokenizer: &Path) -> Option<u64> {
    let text = std::fs::read(tokenizer).ok()?;
    let tokenizer: Value = serde_json::from_slice(&text).ok()?;
    let vocabulary = tokenizer.get("model")?.get("vocab")?.as_object()?;
    let added = tokenizer.get("added_tokens").and_then(Value::as_array);
    let new = |token: &&Value| {
        let content = token.get("content").and_then(Value::as_str);
        content.is_some_and(|c| !vocabulary.contains_key(c))
    };
    let added = added.map_or(0, |tokens| tokens.iter().filter(new).count());
    Some((vocabulary.len() + added) as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn fixture(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../fixtures")
            .join(name)
    }

    #[test]
    fn the_demos_needs_are_those_of_its_model() {
        let found = read(&fixture("jobs/demo.toml")).unwrap();
        assert!(found.missing.is_empty(), "{found:?}");
        // The README calls it a million parameters; a version is 3.0 MiB of 32-bit numbers.
        let parameters = found.state_bytes.unwrap() / BYTES_PER_PARAMETER;
        let version = (parameters * 4) as f64 / f64::from(1 << 20);
        assert!((2.9..3.1).contains(&version), "{parameters}");
        assert_eq!(found.instances, 7);
    }

    #[test]
    fn a_models_elements_are_counted_from_its_header() {
        let found = of_safetensors(&fixture("qwen3_tiny")).unwrap();
        let bytes = std::fs::metadata(fixture("qwen3_tiny/model.safetensors"))
            .unwrap()
            .len();
        assert!(
            found > 0 && found * 2 <= bytes && found * 4 > bytes / 2,
            "{found} of {bytes}"
        );
    }

    #[test]
    fn a_job_whose_files_are_gone_names_them() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.toml");
        std::fs::write(&path, "[data]\nprompts = \"p\"\ntokenizer = \"t\"\n").unwrap();
        let found = read(&path).unwrap();
        let keys: Vec<&str> = found.missing.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["data.prompts", "data.tokenizer"]);
        assert_eq!(found.state_bytes, None);
    }
}
