//! `robustctl ckpt`: checkpoints in a state directory. The files are the truth, so no daemon is asked:
//! it works beside a running one, and after the job.
mod collect;
mod export;
mod import;
mod list;
mod remote;
mod verify;

use crate::cli::{CkptCommand, Global};
use crate::error::CliError;
use indicatif::{ProgressBar, ProgressStyle};
use robust_ckpt::{Aside, Checkpoint, CkptError, Listed, Retention};
use robust_shared::job::Job;
use std::path::{Path, PathBuf};

/// Runs one of the commands.
pub async fn run(command: &CkptCommand, global: &Global) -> Result<(), CliError> {
    let json = global.json;
    if let CkptCommand::Import { from, job, out } = command {
        return import::run(from, job, out, json);
    }
    if global.connect.is_some() {
        let text = "checkpoints are read from the state directory; name it with --state-dir";
        return Err(CliError::Usage(text.to_owned()));
    }
    let dir = global.state_dir()?;
    match command {
        CkptCommand::Ls(args) if args.remote.is_some() => {
            return remote::Far::open(args, &dir)?.list(json).await;
        }
        CkptCommand::Verify { step, remote } if remote.remote.is_some() => {
            return remote::Far::open(remote, &dir)?.verify(*step, json).await;
        }
        CkptCommand::Gc {
            dry_run,
            keep,
            remote,
        } if remote.remote.is_some() => {
            let far = remote::Far::open(remote, &dir)?;
            return far.collect(&dir, *keep, *dry_run, json).await;
        }
        CkptCommand::Pin(args) if args.remote.remote.is_some() => {
            let far = remote::Far::open(&args.remote, &dir)?;
            return far.pin(&dir, args.step.step, true, json).await;
        }
        CkptCommand::Unpin(args) if args.remote.remote.is_some() => {
            let far = remote::Far::open(&args.remote, &dir)?;
            return far.pin(&dir, args.step.step, false, json).await;
        }
        CkptCommand::Fetch { step, remote } => {
            return remote::Far::open(remote, &dir)?
                .fetch(step, &dir, json)
                .await;
        }
        _ => {}
    }
    let state = State::open(dir)?;
    match command {
        CkptCommand::Ls(_) => list::list(&state, json),
        CkptCommand::Show(args) => list::show(&state, args.step, json),
        CkptCommand::Verify { step, .. } => verify::run(&state, *step, json),
        CkptCommand::Pin(args) => list::pin(&state, args.step.step, true, json),
        CkptCommand::Unpin(args) => list::pin(&state, args.step.step, false, json),
        CkptCommand::Gc { dry_run, .. } => list::collect(&state, *dry_run, json),
        CkptCommand::Export { step, to } => export::run(&state, step, to, json),
        CkptCommand::Import { .. } | CkptCommand::Fetch { .. } => Ok(()),
    }
}

/// A state directory, read only.
struct State {
    dir: PathBuf,
    listed: Vec<Listed>,
    aside: Vec<Aside>,
}

impl State {
    fn open(dir: PathBuf) -> Result<Self, CliError> {
        let folder = dir.join("ckpt");
        if !folder.is_dir() {
            return Err(CliError::Usage(format!(
                "{} has no checkpoints; name a state directory with --state-dir DIR",
                dir.display()
            )));
        }
        let unreadable = |e| CliError::Failed(format!("{} cannot be read: {e}", folder.display()));
        let listed = robust_ckpt::list(&folder).map_err(unreadable)?;
        let aside = robust_ckpt::aside(&folder).map_err(unreadable)?;
        Ok(Self { dir, listed, aside })
    }

    fn one(&self, step: u64) -> Result<&Listed, CliError> {
        let found = self.listed.iter().find(|l| l.step.0 == step);
        found.ok_or_else(|| {
            let there = self.listed.iter().map(|l| l.step.0);
            let there = instead_of(step, there.collect());
            CliError::Usage(format!("there is no checkpoint of step {step}; {there}"))
        })
    }

    /// The job that wrote them.
    fn job(&self) -> Result<Job, CliError> {
        job_of(&self.dir)
    }

    fn retention(&self) -> Result<Retention, CliError> {
        retention_of(&self.dir)
    }
}

/// What may have been meant by a step that has no checkpoint: all there are, or of many the nearest.
fn instead_of(step: u64, mut steps: Vec<u64>) -> String {
    const FEW: usize = 8;
    let count = steps.len();
    steps.sort_by_key(|s| s.abs_diff(step));
    steps.truncate(FEW);
    steps.sort_unstable();
    let words: Vec<String> = steps.iter().map(u64::to_string).collect();
    let words = words.join(", ");
    match count {
        0 => "there are none".to_owned(),
        1..=FEW => format!("there are those of steps {words}"),
        _ => format!("the nearest of {count} are those of steps {words}"),
    }
}

/// What the job of a state directory keeps.
fn retention_of(dir: &Path) -> Result<Retention, CliError> {
    let kept = job_of(dir)?.checkpoint;
    Ok(Retention {
        last: kept.keep as usize,
        every: kept.keep_every,
        best: kept.keep_best as usize,
    })
}

/// The job of a state directory.
fn job_of(dir: &Path) -> Result<Job, CliError> {
    let path = dir.join("job.json");
    let unreadable = |why: String| CliError::Failed(format!("{}: {why}", path.display()));
    let text = std::fs::read_to_string(&path).map_err(|e| unreadable(e.to_string()))?;
    serde_json::from_str(&text).map_err(|e| unreadable(e.to_string()))
}

/// What is readable of a checkpoint; else why it is of no use.
fn readable(listed: &Listed) -> Result<&Checkpoint, CliError> {
    let unusable = |why: &String| CliError::Failed(format!("{}: {why}", listed.dir.display()));
    listed.manifest.as_ref().map_err(unusable)
}

fn failed(error: CkptError) -> CliError {
    match error {
        CkptError::Bad { .. } => CliError::Failed(error.to_string()),
        other => CliError::Failed(format!("{other}; nothing was changed")),
    }
}

/// Bytes done, on a terminal; otherwise nothing is drawn.
fn progress(total: u64, doing: &'static str) -> ProgressBar {
    let style = "{msg} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
    let bar = ProgressBar::new(total).with_message(doing);
    match ProgressStyle::with_template(style) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

fn path_text(path: &Path) -> String {
    path.display().to_string()
}
