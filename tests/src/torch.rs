//! A python with torch, and jobs whose trainer is a program written with it.
use crate::{Daemon, JobFile};
use std::path::{Path, PathBuf};

/// The python that `scripts/torch.sh` makes, or the one that TORCH_PYTHON names.
///
/// # Panics
/// Where there is none: the tests need it.
pub fn torch_python() -> PathBuf {
    let made = || robust_needs::cache().join("torch-2.11.0-py/bin/python");
    let python = std::env::var_os("TORCH_PYTHON").map_or_else(made, PathBuf::from);
    assert!(
        python.exists(),
        "{} is not there: run scripts/torch.sh, which makes a python with torch, or set TORCH_PYTHON",
        python.display()
    );
    python
}

/// The job of tests with two ranks of `examples/grpo_torch`.
pub fn torch_job() -> JobFile {
    let folder = example("grpo_torch").to_string_lossy().into_owned();
    JobFile::of_fixture("jobs/test-torch.toml").set("trainer.command", "cwd", folder)
}

/// Starts a job whose commands name `{env:TORCH_PYTHON}`.
pub fn start_torch(job: &JobFile) -> Daemon {
    let python = torch_python();
    Daemon::start_with(job, &[("TORCH_PYTHON", &python.to_string_lossy())])
}

/// The folder of an example.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../examples")
        .join(name)
}
