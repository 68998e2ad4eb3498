//! What a job file asks of a machine.
use super::super::facts::{Found, JobFacts, RoleMemory};
use super::groups;
use robust_ckpt::WeightFiles;
use robust_shared::footprint::{Need, Shape};
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
    let dated = job.steps().unwrap_or(u64::MAX).checked_div(c.keep_every);
    let dated = dated.unwrap_or(0);
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
        transport: job.weights.transport,
        net_devices: job.weights.net_devices.clone(),
        commands: Vec::new(),
        roles: shape(&job).map_or_else(Vec::new, |shape| roles(&job, &shape)),
        devices: None,
        held_back: job
            .held_back(std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned())),
        groups: Some(groups::look(&job)),
    })
}

/// What the built-in roles of a job on one node take; how they lie on several is decided when it begins.
fn roles(job: &Job, shape: &Shape) -> Vec<RoleMemory> {
    if job.nodes.len() > 1 {
        return Vec::new();
    }
    let of = |role: Role, need: &Need| RoleMemory {
        role: role.to_string(),
        count: job.count(role),
        bytes: need.total(),
        parts: need.to_string(),
    };
    let mut found = Vec::new();
    if job.trainer.command.is_none() {
        found.push(of(Role::Trainer, &Need::of_trainer(shape, job, 0)));
    }
    if job.rollout.command.is_none() {
        let need = Need::of_rollout(shape, job);
        found.extend([Role::Rollout, Role::Hybrid].map(|role| of(role, &need)));
    }
    found.retain(|role| role.count > 0);
    found
}

/// The model's shape, where it is known.
fn shape(job: &Job) -> Option<Shape> {
    if !job.has_model() {
        return None;
    }
    let Some(folder) = &job.model.path else {
        let (c, vocabulary) = (&job.model.config, vocabulary(&job.data.tokenizer)?);
        return Some(Shape {
            hidden: c.hidden_size.into(),
            layers: c.num_hidden_layers.into(),
            heads: c.num_attention_heads.into(),
            kv_heads: c.num_key_value_heads.into(),
            head: c.head_dim.into(),
            inner: c.intermediate_size.into(),
            vocabulary,
            positions: c.max_position_embeddings.into(),
            tied: true,
        });
    };
    let text = std::fs::read(folder.join("config.json")).ok()?;
    let config: Value = serde_json::from_slice(&text).ok()?;
    let number = |key: &str| config.get(key)?.as_u64();
    Some(Shape {
        hidden: number("hidden_size")?,
        layers: number("num_hidden_layers")?,
        heads: number("num_attention_heads")?,
        kv_heads: number("num_key_value_heads")?,
        head: number("head_dim")?,
        inner: number("intermediate_size")?,
        vocabulary: number("vocab_size")?,
        positions: number("max_position_embeddings")?,
        tied: config["tie_word_embeddings"].as_bool().unwrap_or(false),
    })
}

/// The model's elements, where they are known.
pub(super) fn parameters(job: &Job) -> Option<u64> {
    match &job.model.path {
        Some(folder) => of_safetensors(folder),
        None => shape(job).map(|shape| shape.parameters()),
    }
}

/// The elements of all tensors, from the files' headers.
fn of_safetensors(folder: &Path) -> Option<u64> {
    let tensors = WeightFiles::find(folder).ok()?.tensors().ok()?;
    let elements = |shape: &[usize]| shape.iter().map(|&size| size as u64).product::<u64>();
    Some(tensors.values().map(|tensor| elements(&tensor.shape)).sum())
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
    fn what_a_model_of_qwen3_06bs_shape_takes_is_known_from_its_config() {
        let mut job = load(&fixture("jobs/qwen3-0.6b.toml")).unwrap();
        job.model.path = Some(fixture("models/qwen3-0.6b"));
        let found = roles(&job, &shape(&job).unwrap());
        let named: Vec<_> = found.iter().map(|r| (r.role.as_str(), r.count)).collect();
        assert_eq!(named, [("trainer", 1), ("rollout", 1)]);
        assert!(
            found[0]
                .parts
                .contains("Adam's two moments in float32 6.66 GiB")
        );
        job.rollout.max_context = None;
        let unbounded = roles(&job, &shape(&job).unwrap());
        assert!(
            unbounded[1].bytes > 20 * found[1].bytes / 2,
            "{unbounded:?}"
        );
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
