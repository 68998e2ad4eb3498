//! `robustctl slurm shrink`: nodes leave, and their machines go back to Slurm.
//!
//! ```text
//!  all are told (SIGTERM to robustd) ─► each moves its roles elsewhere and leaves ─► its machine is given back
//! ```
use super::ask::Asking;
use super::folder::{Folder, Grown};
use super::tools::{self, Step, said};
use crate::cli::ShrinkArgs;
use crate::error::CliError;
use crate::output::{self, put, put_json};
use robust_shared::core::NodeState;
use robust_shared::nearest::instead_of;
use std::time::{Duration, Instant};

/// Between two looks at who is still there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Where a node is.
enum Place {
    /// In a Slurm job of its own.
    Grown(Grown),
    /// On a machine of the job that was submitted.
    Submitted { name: String, host: String },
}

impl Place {
    fn name(&self) -> &str {
        match self {
            Place::Grown(grown) => &grown.name,
            Place::Submitted { name, .. } => name,
        }
    }
}

/// Tells nodes to leave, and waits until they have.
pub async fn run(args: &ShrinkArgs, json: bool) -> Result<(), CliError> {
    let folder = Folder::find(args.folder.dir.as_deref())?;
    let asking = Asking::of(&folder)?;
    // All of them first: a wrong name changes nothing.
    let places = args.nodes.iter().map(|name| place(&folder, &asking, name));
    let places = places.collect::<Result<Vec<_>, _>>()?;
    for place in &places {
        tell(&asking, place).await?;
        output::note(&format!("{} is told to leave", place.name()), json);
    }
    let begin = Instant::now();
    let mut left = Vec::new();
    for place in &places {
        while !has_left(&asking, place).await? {
            if begin.elapsed() > args.timeout {
                return Err(CliError::Failed(format!(
                    "{} has not left after {:?}; it leaves all the same. Look with `robustctl slurm ask -- status`: roles \
                     that have no slot elsewhere end with it",
                    place.name(),
                    args.timeout
                )));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let given_back = give_back(&asking, place).await?;
        if !json {
            put(&format!("{} has left, and {given_back}\n", place.name()))?;
        }
        left.push(place.name());
    }
    match json {
        true => put_json(&serde_json::json!({ "left": left })),
        false => Ok(()),
    }
}

fn place(folder: &Folder, asking: &Asking, name: &str) -> Result<Place, CliError> {
    if let Some(grown) = folder.grown().into_iter().find(|grown| grown.name == name) {
        return Ok(Place::Grown(grown));
    }
    let submitted = asking.submitted();
    let first = submitted
        .machines
        .first()
        .map(|machine| machine.name.as_str());
    if first == Some(name) && !submitted.candidates {
        return Err(CliError::Refused(format!(
            "{name} is the machine of the job's controller: the job would end with it (an [ha] table has several)"
        )));
    }
    let Some(host) = folder.host_of(name) else {
        let grown = folder.grown();
        let mut known: Vec<&str> = submitted.machines.iter().map(|m| m.name.as_str()).collect();
        known.extend(grown.iter().map(|grown| grown.name.as_str()));
        let hint = instead_of(name, &known, "the nodes are");
        return Err(CliError::Usage(format!(
            "there is no node `{name}`; {hint}"
        )));
    };
    let name = name.to_owned();
    Ok(Place::Submitted { name, host })
}

async fn tell(asking: &Asking, place: &Place) -> Result<(), CliError> {
    match place {
        Place::Grown(Grown { slurm_job, .. }) => {
            let state = state_of(slurm_job).await?;
            match state.as_str() {
                "" => Ok(()),
                "RUNNING" => {
                    let words = ["--batch", "--signal=TERM", slurm_job];
                    tools::asked("scancel", &words).await.map(drop)
                }
                _ => tools::asked("scancel", &[slurm_job]).await.map(drop),
            }
        }
        Place::Submitted { name, host } => {
            let submitted = asking.submitted();
            let step = Step {
                slurm_job: &submitted.slurm_job,
                host,
            };
            let state = submitted.local.join(format!("node-{name}"));
            let kill = "kill -TERM \"$(cat \"$0.pid\")\"";
            let words = ["bash", "-c", kill, &state.to_string_lossy()].map(str::to_owned);
            let out = step.output(&words).await?;
            match out.status.success() {
                true => Ok(()),
                false => Err(CliError::Refused(format!(
                    "{name} on {host}: {}",
                    said(&out)
                ))),
            }
        }
    }
}

async fn has_left(asking: &Asking, place: &Place) -> Result<bool, CliError> {
    match place {
        Place::Grown(grown) => Ok(state_of(&grown.slurm_job).await?.is_empty()),
        Place::Submitted { name, .. } => {
            let (_, status) = asking.status().await?;
            let node = status.nodes.iter().find(|node| node.name == *name);
            Ok(node.is_none_or(|node| node.state() != Some(NodeState::Here)))
        }
    }
}

/// The state of a Slurm job that is not over.
async fn state_of(slurm_job: &str) -> Result<String, CliError> {
    let jobs = format!("--jobs={slurm_job}");
    match tools::asked("squeue", &["--noheader", "--format=%T", &jobs]).await {
        Ok(state) => Ok(state.trim().to_owned()),
        // Slurm has forgotten it.
        Err(CliError::Refused(why)) if why.contains("Invalid job id") => Ok(String::new()),
        Err(error) => Err(error),
    }
}

/// Gives the machine back; what became of it, in words.
async fn give_back(asking: &Asking, place: &Place) -> Result<String, CliError> {
    let (name, host) = match place {
        Place::Grown(grown) => return Ok(format!("Slurm's job {} is over", grown.slurm_job)),
        Place::Submitted { name, host } => (name, host),
    };
    let submitted = asking.submitted();
    let has_controller = submitted.machines.iter().take(submitted.controllers);
    if has_controller.clone().any(|machine| machine.name == *name) {
        return Ok(format!("{host} stays with the job: a controller is there"));
    }
    let job = &submitted.slurm_job;
    let jobs = format!("--jobs={job}");
    let list = tools::asked("squeue", &["--noheader", "--format=%N", &jobs]).await?;
    let all = tools::asked("scontrol", &["show", "hostnames", list.trim()]).await?;
    let rest: Vec<&str> = all.lines().filter(|line| line != host).collect();
    let (job, rest) = (
        format!("JobId={job}"),
        format!("NodeList={}", rest.join(",")),
    );
    match tools::asked("scontrol", &["update", &job, &rest]).await {
        Ok(_) => Ok(format!("{host} is Slurm's again")),
        // Some clusters let no job give machines back; the node has left all the same.
        Err(CliError::Refused(why)) => {
            Ok(format!("{host} stays with the job until its end ({why})"))
        }
        Err(error) => Err(error),
    }
}
