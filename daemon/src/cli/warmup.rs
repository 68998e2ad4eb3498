//! The warm start: a model folder made once per set of settings, and cached.
use crate::launcher::inherited;
use crate::state::{StateDirError, make_private_dir, remove_folder, write_private};
use robust_proto::endpoint::NoFolder;
use robust_shared::ids::Role;
use robust_shared::job::Job;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

/// Why there is no warm start.
#[derive(Debug, thiserror::Error)]
pub enum WarmupError {
    /// The worker could not be run.
    #[error("cannot run {program} warmup: {source}")]
    Run {
        /// The worker.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The worker failed.
    #[error("the warm-up failed ({status}): {said}")]
    Failed {
        /// How it ended.
        status: ExitStatus,
        /// Its last words.
        said: String,
    },
    /// It ended well and made no model.
    #[error("the warm-up made no model in {path}")]
    NoModel {
        /// Where it should be.
        path: PathBuf,
    },
    /// The cache cannot be written.
    #[error("the cache of warm starts: {0}")]
    Cache(#[from] StateDirError),
    /// There is no cache.
    #[error("the warm start: {0}")]
    NoCache(#[from] NoFolder),
    /// The job could not be written.
    #[error("the job cannot be encoded: {0}")]
    Encode(#[from] serde_json::Error),
}

/// Whether a folder holds a model.
pub fn is_complete(folder: &Path) -> bool {
    ["config.json", "model.safetensors"]
        .iter()
        .all(|name| folder.join(name).is_file())
}

/// Runs the worker's warm-up for `job` into `folder`; each line it prints is given to `progress`.
/// Dropped, it kills the worker and leaves no half-made folder behind.
pub async fn make(
    worker: &Path,
    job: &Job,
    folder: &Path,
    progress: impl Fn(&str),
) -> Result<(), WarmupError> {
    let scratch = Scratch::beside(folder)?;
    let job_json = scratch.0.join("job.json");
    write_private(&job_json, serde_json::to_string(job)?.as_bytes())?;
    let out = scratch.0.join("model");
    let run_error = |source| WarmupError::Run {
        program: worker.to_owned(),
        source,
    };
    let mut child = Command::new(worker)
        .arg("warmup")
        .arg("--job")
        .arg(&job_json)
        .arg("--out")
        .arg(&out)
        .env_clear()
        .envs(inherited(&job.passed_to(Role::Trainer)))
        .envs(crate::worker::ARITHMETIC)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(run_error)?;
    let said = relay(&mut child, progress).await;
    let status = child.wait().await.map_err(run_error)?;
    if !status.success() {
        return Err(WarmupError::Failed { status, said });
    }
    if !is_complete(&out) {
        return Err(WarmupError::NoModel { path: out });
    }
    match fs::rename(&out, folder) {
        // Another daemon made the same one meanwhile.
        Err(_) if is_complete(folder) => Ok(()),
        renamed => renamed.map_err(run_error),
    }
}

/// Hands on what the worker prints; returns the end of what it said on its error output.
async fn relay(child: &mut Child, progress: impl Fn(&str)) -> String {
    let (Some(out), Some(mut err)) = (child.stdout.take(), child.stderr.take()) else {
        return String::new();
    };
    let lines = async {
        let mut lines = BufReader::new(out).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            progress(&line);
        }
    };
    let errors = async {
        let mut bytes = Vec::new();
        // What cannot be read is not shown; the exit status still tells of the failure.
        let _ = err.read_to_end(&mut bytes).await;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(8)..].join("\n")
    };
    tokio::join!(lines, errors).1
}

/// A folder beside the final one, removed in the end whatever happens.
struct Scratch(PathBuf);

impl Scratch {
    fn beside(folder: &Path) -> Result<Self, StateDirError> {
        let path = folder.with_extension(format!("making-{}", std::process::id()));
        remove_folder(&path)?;
        make_private_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = remove_folder(&self.0) {
            tracing::warn!("{error}");
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Mutex;

    fn worker(dir: &Path, script: &str) -> PathBuf {
        let path = dir.join("worker");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn job() -> Job {
        let text = "[data]\nprompts = \"/p\"\ntokenizer = \"/t\"\n";
        Job::parse(text, Path::new("j.toml")).unwrap()
    }

    #[tokio::test]
    async fn a_warm_start_appears_whole_and_its_progress_is_relayed() {
        let temp = tempfile::tempdir().unwrap();
        let script = "test -f $3 || exit 9; echo half; mkdir $5; echo {} > $5/config.json; \
                      echo x > $5/model.safetensors";
        let worker = worker(temp.path(), script);
        let folder = temp.path().join("warmup/abc");
        let lines = Mutex::new(Vec::new());
        let note = |line: &str| lines.lock().unwrap().push(line.to_owned());
        make(&worker, &job(), &folder, note).await.unwrap();
        assert!(is_complete(&folder));
        assert_eq!(*lines.lock().unwrap(), ["half"]);
        let left = fs::read_dir(temp.path().join("warmup")).unwrap().count();
        assert_eq!(left, 1, "no scratch folder stays");
    }

    #[tokio::test]
    async fn a_failed_warm_up_leaves_nothing_and_says_the_workers_words() {
        let temp = tempfile::tempdir().unwrap();
        let worker = worker(temp.path(), "mkdir $5; echo out of memory >&2; exit 7");
        let folder = temp.path().join("warmup/abc");
        let error = make(&worker, &job(), &folder, |_| ()).await.unwrap_err();
        assert!(error.to_string().contains("out of memory"), "{error}");
        assert_eq!(fs::read_dir(temp.path().join("warmup")).unwrap().count(), 0);
    }
}
