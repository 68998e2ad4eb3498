//! `meta.yaml` of experiments and runs.
use super::super::files;
use super::super::gather::Told;
use robust_shared::wire::{JobState, Word as _};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::Path;

/// What MLflow says of what is there and not deleted.
const ACTIVE: &str = "active";
/// `SourceType.LOCAL` of `mlflow/entities/source_type.py`.
const LOCAL: u32 = 4;

/// An experiment.
#[derive(Debug, Serialize)]
pub struct Experiment {
    artifact_location: String,
    creation_time: u64,
    /// The name of its folder.
    pub experiment_id: String,
    last_update_time: u64,
    lifecycle_stage: &'static str,
    name: String,
    /// MLflow, or an export before, made it: it stays as it is.
    #[serde(skip)]
    is_there: bool,
}

/// What is read of an experiment that is there.
#[derive(Deserialize)]
struct Named {
    experiment_id: String,
    name: String,
}

impl Experiment {
    /// The one of the job's name: one that is there, or one to make.
    pub fn of(root: &Path, told: &Told) -> io::Result<Self> {
        let there = find(root, &told.job)?;
        let is_there = there.is_some();
        let experiment_id = there.unwrap_or_else(|| made_of(&told.job));
        Ok(Self {
            artifact_location: uri(&root.join(&experiment_id))?,
            creation_time: told.begun_ms,
            last_update_time: told.begun_ms,
            lifecycle_stage: ACTIVE,
            name: told.job.clone(),
            experiment_id,
            is_there,
        })
    }

    /// Writes it where it is not there.
    pub fn write(&self, root: &Path) -> io::Result<()> {
        if self.is_there {
            return Ok(());
        }
        let folder = root.join(&self.experiment_id);
        files::replace(&folder.join("meta.yaml"), &folder, yaml(self)?.as_bytes())
    }
}

/// The number of the experiment of a name, as its folder has it.
fn find(root: &Path, name: &str) -> io::Result<Option<String>> {
    for entry in std::fs::read_dir(root)? {
        let folder = entry?;
        // Whatever else lies there is none.
        let text = std::fs::read_to_string(folder.path().join("meta.yaml")).unwrap_or_default();
        let read = serde_norway::from_str::<Named>(&text);
        let same = read.ok().filter(|read| read.name == name);
        let number = folder.file_name().to_string_lossy().into_owned();
        if same.is_some_and(|read| read.experiment_id == number) {
            return Ok(Some(number));
        }
    }
    Ok(None)
}

/// A number of eighteen digits, as MLflow gives them, the same for the same name.
fn made_of(name: &str) -> String {
    let digest = blake3::hash(name.as_bytes());
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest.as_bytes()[..8]);
    let (least, most) = (100_000_000_000_000_000, 1_000_000_000_000_000_000);
    (least + u64::from_le_bytes(bytes) % (most - least)).to_string()
}

/// A run.
#[derive(Debug, Serialize)]
pub struct Run {
    artifact_uri: String,
    end_time: Option<u64>,
    entry_point_name: &'static str,
    experiment_id: String,
    lifecycle_stage: &'static str,
    /// The name of its folder.
    pub run_id: String,
    /// What people see.
    pub run_name: String,
    source_name: &'static str,
    source_type: u32,
    source_version: &'static str,
    start_time: u64,
    status: u32,
    tags: [String; 0],
    user_id: &'static str,
}

impl Run {
    /// Of a job, in an experiment.
    pub fn of(root: &Path, experiment_id: &str, told: &Told) -> io::Result<Self> {
        let digest = blake3::hash(format!("{} {}", told.begun_ms, told.job).as_bytes());
        let run_id = digest.to_hex()[..32].to_owned();
        let folder = root.join(experiment_id).join(&run_id);
        let ms = i64::try_from(told.begun_ms).unwrap_or_default();
        let begin = chrono::DateTime::from_timestamp_millis(ms).unwrap_or_default();
        let status = status(&told.state);
        Ok(Self {
            artifact_uri: uri(&folder.join("artifacts"))?,
            end_time: (status != RUNNING).then_some(told.until_ms),
            entry_point_name: "",
            experiment_id: experiment_id.to_owned(),
            lifecycle_stage: ACTIVE,
            run_id,
            run_name: format!("{} {}", told.job, begin.format("%F %T")),
            source_name: "robustctl",
            source_type: LOCAL,
            source_version: env!("CARGO_PKG_VERSION"),
            start_time: told.begun_ms,
            status,
            tags: [],
            user_id: "robustctl",
        })
    }
}

/// `RunStatus.RUNNING` of `mlflow/entities/run_status.py`.
const RUNNING: u32 = 1;

/// A `RunStatus`.
fn status(state: &str) -> u32 {
    match JobState::known(state) {
        Some(JobState::Completed) => 3,
        Some(JobState::Failed) => 4,
        Some(JobState::Stopped) => 5,
        _ => RUNNING,
    }
}

/// A folder as an address.
fn uri(folder: &Path) -> io::Result<String> {
    let address = url::Url::from_file_path(folder);
    let address = address.map_err(|()| io::Error::other("the folder's path is not absolute"))?;
    Ok(address.into())
}

/// As YAML.
pub fn yaml(meta: &impl Serialize) -> io::Result<String> {
    serde_norway::to_string(meta).map_err(io::Error::other)
}
