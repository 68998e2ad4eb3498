//! The command line of a role process.
use crate::launcher::SpawnSpec;
use crate::state::StateDir;
use robust_shared::ids::{Generation, Incarnation, InstanceId};
use robust_shared::job::Job;
use std::path::PathBuf;

/// How the built-in worker is started for each role.
#[derive(Clone, Debug)]
pub struct WorkerPlan {
    /// The program.
    pub program: PathBuf,
    /// Where job file, sockets and logs are.
    pub state: StateDir,
    /// UCX's devices.
    pub net_devices: String,
}

impl WorkerPlan {
    /// For this job.
    pub fn new(program: PathBuf, state: StateDir, job: &Job) -> Self {
        Self {
            program,
            state,
            net_devices: job.weights.net_devices.clone(),
        }
    }

    /// What to start for an instance.
    pub fn spec(
        &self,
        id: InstanceId,
        incarnation: Incarnation,
        generation: Generation,
    ) -> SpawnSpec {
        let text = |path: PathBuf| path.display().to_string();
        let argv = [
            text(self.program.clone()),
            id.role.name().to_owned(),
            "--job".to_owned(),
            text(self.state.job_json()),
            "--index".to_owned(),
            id.index.to_string(),
            "--incarnation".to_owned(),
            incarnation.0.to_string(),
            "--generation".to_owned(),
            generation.0.to_string(),
            "--host-socket".to_owned(),
            text(self.state.roles_socket()),
            "--snapshot-dir".to_owned(),
            text(self.state.snapshots()),
        ];
        SpawnSpec {
            incarnation,
            argv: argv.into(),
            env: self.environment(),
            log_path: self.log_path(id),
            header: format!(
                "=== {id} incarnation {} generation {}",
                incarnation.0, generation.0
            ),
        }
    }

    /// Where an instance's output goes, whatever its incarnation.
    pub fn log_path(&self, id: InstanceId) -> PathBuf {
        self.state.logs().join(format!("{id}.log"))
    }

    fn environment(&self) -> Vec<(String, String)> {
        [
            // One process per core: more threads spin against each other.
            ("OMP_NUM_THREADS", "1"),
            // Some builds of UCX catch signals by default; ours must end the process.
            ("UCX_HANDLE_ERRORS", "none"),
            ("UCX_WARN_UNUSED_ENV_VARS", "n"),
            ("UCX_NET_DEVICES", &self.net_devices),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
    }
}
