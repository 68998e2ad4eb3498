//! The command line of a role process.
use crate::launcher::SpawnSpec;
use crate::state::StateDir;
use robust_shared::ids::{Generation, Incarnation, InstanceId};
use robust_shared::job::Job;
use std::path::PathBuf;

/// What libtorch needs so that the same inputs give the same bits, in every process and on every
/// machine: one thread (more would also spin against each other on shared cores), and kernels whose
/// result for a row does not depend on the rows beside it. MKL picks its own by batch size on some
/// processors (AVX-512 was seen to) unless it is told to be strict; other libraries ignore the key.
pub const ARITHMETIC: [(&str, &str); 2] = [("OMP_NUM_THREADS", "1"), ("MKL_CBWR", "AVX2,STRICT")];

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
        let mut environment: Vec<_> = ARITHMETIC
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect();
        let ucx = [
            // Some builds of UCX catch signals by default; ours must end the process.
            ("UCX_HANDLE_ERRORS", "none"),
            ("UCX_WARN_UNUSED_ENV_VARS", "n"),
            ("UCX_NET_DEVICES", &self.net_devices),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()));
        environment.extend(ucx);
        environment
    }
}
