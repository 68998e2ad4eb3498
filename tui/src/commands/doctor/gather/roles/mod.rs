//! Starts every program of a job once, outside of any job: `doctor --check-roles`.
//!
//! ```text
//!  services, each after those it needs ─► the engine ─► services that have the engines' addresses
//!      a shim each: up or not, asked once; those that came up stay until the last one was tried
//!                                                              ▼
//!                                  all ended, the last one first; nobody of them may be left
//! ```
//! They see what they would see of robustd if that were started here: this program's environment.
//! Dropped on the way, it ends what it started.
mod plan;
mod running;

use super::super::facts::{CommandFacts, Found, Tried};
use super::programs::beside;
use crate::output;
use indicatif::ProgressBar;
use plan::{Named, addresses, names_model, programs};
use robust_shared::job::{Job, SlotDevices};
use robust_shared::trial::Failure;
use running::{Running, Start};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::process::Command;

/// How often a spinner says how long it has been.
const TICK: Duration = Duration::from_secs(1);

/// Where what happens on the way is told: a spinner on a terminal, lines elsewhere.
#[derive(Clone, Copy)]
pub(super) struct Teller<'a> {
    /// The spinner; hidden where there is no terminal.
    pub bar: &'a ProgressBar,
    /// Lines are objects.
    pub json: bool,
}

impl Teller<'_> {
    fn say(&self, text: &str) {
        if self.json || self.bar.is_hidden() {
            output::note(text, self.json);
        } else {
            self.bar.println(text);
        }
    }

    /// Waits, and says for how long.
    async fn wait<T>(&self, what: &str, work: impl Future<Output = T>) -> T {
        let began = Instant::now();
        let mut ticks = tokio::time::interval(TICK);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                _ = ticks.tick() => {
                    let seconds = began.elapsed().as_secs();
                    self.bar.set_message(format!("{what} ({seconds} s)"));
                }
            }
        }
    }
}

/// The folders of a trial: they go with it.
struct Scratch {
    /// On the disk.
    disk: TempDir,
    /// In shared memory, as a job's snapshots.
    shm: TempDir,
}

/// Those that came up. The last one ends first, also where nobody waits for that.
struct Up(Vec<(String, Running)>);

impl Drop for Up {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}

/// What is tried.
#[derive(Clone, Copy)]
pub(super) struct Of<'a> {
    /// The programs of this job.
    pub job: &'a Job,
    /// The worker beside which the shim lies, if the command line names it.
    pub worker: Option<&'a Path>,
    /// Which devices slots are.
    pub devices: &'a SlotDevices,
}

/// Tries every program of the job; what came of it is put to what is known of each.
pub(super) async fn try_all(of: Of<'_>, found: &mut [CommandFacts], teller: Teller<'_>) {
    let mut tried = BTreeMap::new();
    match Trial::prepare(of, teller).await {
        Ok(trial) => trial.run(&mut tried).await,
        Err(reason) => {
            let cure = "correct that, and try again".to_owned();
            let failure = Failure { reason, cure };
            let each = found.iter().map(|facts| facts.at.clone());
            tried.extend(each.map(|at| (at, Tried::failed(failure.clone(), Vec::new()))));
        }
    }
    for facts in found {
        facts.tried = tried.remove(&facts.at);
    }
}

struct Trial<'a> {
    shim: PathBuf,
    job_json: PathBuf,
    /// What each service's address is, as roles are told.
    addresses: String,
    programs: Vec<Named<'a>>,
    teller: Teller<'a>,
    /// Last: what runs below it is gone before it is.
    scratch: Scratch,
}

impl<'a> Trial<'a> {
    async fn prepare(of: Of<'a>, teller: Teller<'a>) -> Found<Trial<'a>> {
        let worker = match of.worker {
            Some(named) => named.to_owned(),
            None => beside("robust-worker")?,
        };
        let shim = worker.with_file_name("robust-shim");
        if !shim.is_file() {
            return Err(format!("{} is not there", shim.display()));
        }
        let scratch = Scratch::make()?;
        let programs = programs(of.job, of.devices)?;
        let mut job = of.job.clone();
        if job.model.path.is_none() && names_model(&job) {
            let folder = initial_weights(&job, &worker, scratch.disk.path(), teller).await?;
            job.model.path = Some(folder);
        }
        let job_json = scratch.disk.path().join("job.json");
        write_job(&job, &job_json)?;
        Ok(Self {
            shim,
            job_json,
            addresses: addresses(&programs),
            programs,
            teller,
            scratch,
        })
    }

    async fn run(self, tried: &mut BTreeMap<String, Tried>) {
        let mut up = Up(Vec::new());
        for program in &self.programs {
            let missing = program.needs.iter().find(|name| {
                let of = tried.get(&format!("service.{name}"));
                of.is_some_and(|of| of.came_up.is_err())
            });
            if let Some(missing) = missing {
                let reason = format!("not tried: service.{missing}, which it needs, is not up");
                let cure = format!("see what is wrong with service.{missing}");
                let failure = Failure { reason, cure };
                tried.insert(program.at.clone(), Tried::failed(failure, Vec::new()));
                continue;
            }
            let (of, running) = self.one(program).await;
            tried.insert(program.at.clone(), of);
            up.0.extend(running.map(|running| (program.at.clone(), running)));
        }
        while let Some((at, running)) = up.0.pop() {
            self.teller.bar.set_message(format!("ending {at}"));
            if let Some(of) = tried.get_mut(&at) {
                running.end(of).await;
            }
        }
    }

    /// Starts one; it goes on running if it came up.
    async fn one(&self, program: &Named<'_>) -> (Tried, Option<Running>) {
        let Named { at, limit, .. } = program;
        let limit = limit.as_secs_f64();
        self.teller
            .say(&format!("{at}: starting it once, up to {limit} s"));
        let folder = self.scratch.disk.path().join(at);
        let started = std::fs::create_dir_all(&folder)
            .map_err(|error| format!("{}: {error}", folder.display()))
            .and_then(|()| {
                Running::start(&Start {
                    shim: &self.shim,
                    job: &self.job_json,
                    service: program.service,
                    snapshots: self.scratch.shm.path(),
                    folder: &folder,
                    ports: &program.ports,
                    addresses: &self.addresses,
                    devices: program.devices.as_deref(),
                })
            });
        let mut running = match started {
            Ok(running) => running,
            Err(reason) => {
                let cure = "build all programs with `make build`".to_owned();
                return (Tried::failed(Failure { reason, cure }, Vec::new()), None);
            }
        };
        let what = format!("starting {at}");
        match self.teller.wait(&what, running.comes_up()).await {
            Ok(came_up) => {
                let after = came_up.after_s;
                self.teller.say(&format!("{at}: up after {after:.1} s"));
                let tried = Tried {
                    came_up: Ok(came_up),
                    log: Vec::new(),
                    ended: None,
                };
                (tried, Some(running))
            }
            Err(failure) => {
                self.teller.say(&format!("{at}: {}", failure.reason));
                let mut tried = Tried::failed(failure, running.last_words());
                running.end(&mut tried).await;
                (tried, None)
            }
        }
    }
}

impl Scratch {
    fn make() -> Found<Self> {
        let make = |parent: PathBuf| {
            let folder = tempfile::Builder::new()
                .prefix("robust-check-")
                .tempdir_in(&parent);
            folder.map_err(|error| format!("a folder in {}: {error}", parent.display()))
        };
        Ok(Self {
            disk: make(std::env::temp_dir())?,
            shm: make(PathBuf::from("/dev/shm"))?,
        })
    }
}

/// Weights of the job's shape, untrained: a job makes its warm start itself, and to start a program any
/// weights do.
async fn initial_weights(
    job: &Job,
    worker: &Path,
    folder: &Path,
    teller: Teller<'_>,
) -> Found<PathBuf> {
    let mut untrained = job.clone();
    untrained.model.warmup.steps = 0;
    let file = folder.join("untrained.json");
    write_job(&untrained, &file)?;
    let model = folder.join("model");
    teller.say("making initial weights of the job's shape: it names no `model.path`");
    let mut command = Command::new(worker);
    command
        .arg("warmup")
        .arg("--job")
        .arg(&file)
        .arg("--out")
        .arg(&model)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let making = teller.wait("making initial weights", command.output());
    let made = making
        .await
        .map_err(|e| format!("{}: {e}", worker.display()))?;
    let words = String::from_utf8_lossy(&made.stderr);
    match made.status.success() {
        true => Ok(model),
        false => Err(format!(
            "{} warmup made no initial weights: {}; or name a model with `model.path`",
            worker.display(),
            words.lines().last().unwrap_or("it said nothing")
        )),
    }
}

fn write_job(job: &Job, path: &Path) -> Found<()> {
    let text = serde_json::to_string(job).map_err(|error| error.to_string())?;
    std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}
