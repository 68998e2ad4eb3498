//! `robustctl slurm ask`: a command of robustctl on the machine of the controller that leads.
use super::folder::{Controller, Folder, Submitted};
use super::tools::{Step, said};
use crate::cli::AskArgs;
use crate::error::CliError;
use robust_proto::v1;
use std::process::Output;

/// Asks what the user asks, whose answer goes where ours does.
pub async fn run(args: &AskArgs, json: bool) -> Result<(), CliError> {
    let asking = Asking::of(&Folder::find(args.folder.dir.as_deref())?)?;
    let leader = asking.leader().await?;
    let mut words = args.command.clone();
    if json {
        words.push("--json".to_owned());
    }
    let status = asking
        .step(&leader)
        .shown(&asking.words(&leader, &words))
        .await?;
    match status.code() {
        Some(0) => Ok(()),
        // What it said is on stderr already.
        code => Err(CliError::JobEnded {
            code: code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1),
            text: format!(
                "`{}` on {} ended so: {status}",
                args.command.join(" "),
                leader.host
            ),
        }),
    }
}

/// The controllers of a job that runs.
pub struct Asking {
    submitted: Submitted,
    controllers: Vec<Controller>,
}

impl Asking {
    /// Of the job of this folder.
    pub fn of(folder: &Folder) -> Result<Self, CliError> {
        let (submitted, controllers) = (folder.submitted()?, folder.controllers());
        if controllers.is_empty() {
            return Err(CliError::NoDaemon {
                place: format!("Slurm's job {}", submitted.slurm_job),
                reason: "its script has not begun".to_owned(),
                fix: format!("squeue --jobs={} says why", submitted.slurm_job),
            });
        }
        Ok(Self {
            submitted,
            controllers,
        })
    }

    /// What was submitted.
    pub fn submitted(&self) -> &Submitted {
        &self.submitted
    }

    /// A step on a machine of the job.
    pub fn step<'a>(&'a self, controller: &'a Controller) -> Step<'a> {
        Step {
            slurm_job: &self.submitted.slurm_job,
            host: &controller.host,
        }
    }

    fn words(&self, controller: &Controller, command: &[String]) -> Vec<String> {
        let robustctl = self.submitted.robustd.with_file_name("robustctl");
        let robustctl = robustctl.to_string_lossy().into_owned();
        let state = ["--state-dir".to_owned(), controller.state.clone()];
        [robustctl]
            .into_iter()
            .chain(command.iter().cloned())
            .chain(state)
            .collect()
    }

    /// The controller that leads: the only one, or the first that answers.
    async fn leader(&self) -> Result<Controller, CliError> {
        if let [only] = self.controllers.as_slice() {
            return Ok(only.clone());
        }
        self.status().await.map(|(leader, _)| leader)
    }

    /// The status, and who gave it.
    pub async fn status(&self) -> Result<(Controller, v1::Status), CliError> {
        let (leader, out) = self.answered(&["status", "--json"]).await?;
        let status = serde_json::from_slice(&out.stdout)
            .map_err(|e| CliError::Protocol(format!("the status on {}: {e}", leader.host)))?;
        Ok((leader, status))
    }

    async fn answered(&self, command: &[&str]) -> Result<(Controller, Output), CliError> {
        let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
        let mut refused = Vec::new();
        for controller in &self.controllers {
            let out = self
                .step(controller)
                .output(&self.words(controller, &command))
                .await?;
            match out.status.success() {
                true => return Ok((controller.clone(), out)),
                false => refused.push(format!("{}: {}", controller.host, said(&out))),
            }
        }
        let job = &self.submitted.slurm_job;
        Err(CliError::NoDaemon {
            place: format!("Slurm's job {job}"),
            reason: refused.join("; "),
            fix: format!("squeue --jobs={job} says whether it runs"),
        })
    }
}
