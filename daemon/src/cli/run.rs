//! Beginning and end of the daemon, in order.
//!
//! ```text
//!  checks ─► state directory and store (held) ─► addresses bound ─► control served
//!    ─► warm start if needed ─► past taken over ─► roles served ─► the job
//!    ─► roles ended, last checkpoint ─► report ─► linger
//! ```
//! Nothing is started before everything that can be checked is.
use super::args::{Args, Command, ExitCode};
use super::assemble::assemble;
use super::checks::{Prepared, prepare};
use super::data;
use super::failure::Failure;
use super::inspect::{self, until_stopped};
use super::join;
use super::kept::{self, Place};
use super::listeners::{Listeners, NodesListener};
use super::manual;
use super::signals::{self, Asked};
use super::told::Told;
use super::warmup;
use crate::audit::Audit;
use crate::digests::Digests;
use crate::driver::{self, Clock, Driver, Event, Events, Feeds, Frame, Past};
use crate::files::{JobFiles, put_missing};
use crate::grouping::{Grouping, groups_of};
use crate::grouplog::{Logging, RestoreError};
use crate::grpc::{self, ControlService, Revoked, RoleHostService, bind_unix, serve_tcp};
use crate::ha::Lead;
use crate::launcher::{SlowArgs, slow_down};
use crate::leases::Leases;
use crate::nodes::Authorities;
use crate::notes::Notes;
use crate::report::report;
use crate::router::Serving;
use crate::services::{self, Services};
use crate::state::{StateDir, give_back, make_snapshots, remove_of_earlier_boots, write_job};
use crate::store::lock::StateLock;
use crate::store::{OpenNote, Options, Quota, Store};
use crate::tell::Tell;
use crate::texts::Texts;
use robust_grouplog::FileStore;
use robust_proto::v1;
use robust_shared::core::{CoreConfig, Outcome};
use robust_shared::job::Job;
use robust_shared::wire::JobState;
use robust_tree::Groups;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::UnixListener;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The helper that slows a process down; its input is the daemon's end of a pipe.
async fn slow_role(args: SlowArgs) -> Result<ExitCode, Failure> {
    let slowing = tokio::task::spawn_blocking(move || slow_down(&args, std::io::stdin()));
    match slowing.await {
        Ok(Ok(())) => Ok(ExitCode::Completed),
        Ok(Err(_)) | Err(_) => Ok(ExitCode::Failed),
    }
}

/// Runs the daemon from the checks to its end.
pub async fn run(args: Args) -> Result<ExitCode, Failure> {
    match args.command {
        Some(Command::Man) => return manual::page(),
        Some(Command::Completions { shell }) => return manual::completions(shell),
        Some(Command::SlowRole(slow)) => return slow_role(slow).await,
        None => {}
    }
    if let Some(leader) = &args.join.join {
        return join::run(&args, leader).await;
    }
    if args.inspect {
        return inspect::run(&args).await;
    }
    let mut prepared = prepare(&args)?;
    let state = StateDir::make(&args.state_dir()?)?;
    if prepared.job.ha.is_some() {
        data::read_ahead(&mut prepared, &state)?;
    }
    let groups = groups_of(&state);
    let ended = lead(&args, prepared, state, groups.clone()).await;
    // Of lives that are to be adopted they stay.
    groups.forget();
    ended
}

/// Leads a job to its end, or to that of this daemon.
async fn lead(
    args: &Args,
    mut prepared: Prepared,
    state: StateDir,
    groups: Groups,
) -> Result<ExitCode, Failure> {
    let limited = prepared.job.nodes.first();
    let limited = limited.map_or_else(Vec::new, |node| prepared.job.limited(&node.pools, true));
    let grouping = Grouping::prepare(groups, &prepared.job, &limited)?;
    let quota = Quota::default();
    let logging = Logging::default();
    let lead = match kept::place(args, &prepared, &state, &logging).await? {
        Place::Alone => None,
        Place::Leads(lead) => Some(lead),
        Place::Over(code) => return Ok(code),
    };
    match &args.restore_from {
        Some(from) => kept::restore(from, &prepared, &state).await?,
        None if state.restoring().exists() => {
            let dir = state.root().display().to_string();
            return Err(Failure::Restore(RestoreError::Half { dir }));
        }
        None => {}
    }
    if prepared.is_deferred {
        if args.fresh {
            // What is begun anew is of what the job file names.
            data::read(&mut prepared)?;
        } else {
            let remote = prepared.log.clone();
            data::locate(&mut prepared, &state, remote.as_ref()).await?;
        }
    }
    let disk = (&quota, &logging);
    let opening = open_store(&state, args.fresh, &prepared.job, disk);
    let (store, note) = opening.await?;
    state.remove_sockets()?;
    let past = driver::past(&store)?;
    let epoch = lead.as_ref().map_or(0, |lead| lead.epoch());
    // A leader that was lost before its job had done anything has given it its name.
    let goes_on = lead.as_ref().is_some_and(|lead| lead.head().is_some());
    let is_new = past.is_empty() && !goes_on;
    if is_new && !args.fresh {
        driver::refuse_while_elsewhere(&state, &prepared.job, prepared.remote.as_ref()).await?;
    }
    let listeners = Listeners::bind(&prepared, &state, is_new, epoch).await?;
    let (first_job, job) = (json_of(&prepared.job)?, prepared.job.clone());
    let nodes_job = json_of(&job.for_nodes())?;
    let written = write_job(&state, &first_job, prepared.located.is_some())?;
    let past = match past.is_empty() {
        true => driver::without_database(&state, &store, (&prepared.job, written), note).await?,
        false => past,
    };
    if let Some(job) = past.job(&state)? {
        tracing::info!("going on with the job as it was changed while it ran");
        // Where log and etcd are reached from here is this machine's to say.
        let (store, ha) = (prepared.job.store.clone(), prepared.job.ha.clone());
        prepared.job = Job { store, ha, ..job };
        if let Some(located) = &prepared.located {
            data::set(&mut prepared.job, located);
        }
    }
    if let Some(status) = past.over(&prepared.job) {
        if let Some(lead) = &lead {
            lead.finish(&status.state).await;
        }
        return was_over((&store, &state), &prepared, &status).await;
    }
    kept::begin(
        &prepared,
        &state,
        (&store, &logging),
        (&listeners.run, args.fresh, lead.as_ref()),
    )
    .await?;
    let prepared = (prepared, grouping);
    let disk = (store, quota, logging);
    let daemon = Daemon::open(prepared, (nodes_job, lead), state, disk, past, listeners)?;
    daemon.serve_and_run(Duration::from_secs(args.linger)).await
}

fn json_of(job: &Job) -> Result<String, Failure> {
    Ok(serde_json::to_string_pretty(job).map_err(warmup::WarmupError::from)?)
}

/// Everything held before anything is started.
struct Daemon {
    prepared: Prepared,
    grouping: Grouping,
    /// The job as it began, which is what roles of revision 0 on other nodes read.
    nodes_job: String,
    state: StateDir,
    store: Store,
    quota: Quota,
    logging: Logging,
    /// The term, where there are several controllers.
    lead: Option<Arc<Lead>>,
    /// The others, as it sees them.
    controllers: Option<watch::Receiver<v1::Controllers>>,
    past: Past,
    clock: Clock,
    feeds: Feeds,
    events: Events,
    /// What signals ask for, listened for before anybody is answered: who sees the daemon may end it.
    asked: Asked,
    heard: UnboundedReceiver<Event>,
    roles_socket: UnixListener,
    nodes: Option<NodesListener>,
    authorities: Authorities,
    /// Names this life of the job.
    run: String,
    servers: JoinSet<()>,
    router: Option<Serving>,
    told: Told,
}

impl Daemon {
    fn open(
        (prepared, grouping): (Prepared, Grouping),
        (nodes_job, lead): (String, Option<Arc<Lead>>),
        state: StateDir,
        (store, quota, logging): (Store, Quota, Logging),
        past: Past,
        listeners: Listeners,
    ) -> Result<Self, Failure> {
        let control_socket = bind_unix(&state.control_socket())?;
        let roles_socket = bind_unix(&state.roles_socket())?;
        let clock = Clock::starting_after(past.until());
        let before = past.progress(&prepared.job);
        let mut feeds = Feeds::new(
            Frame::new(&prepared.job).routed_at(listeners.routed_at()),
            v1::Rules::from(&CoreConfig::from(&prepared.job)),
            store.clone(),
            clock.now(),
            before,
        );
        let controllers = lead.as_ref().map(|lead| lead.controllers());
        if let Some(controllers) = &controllers {
            feeds.led_by(controllers.clone());
        }
        let (events, heard) = unbounded_channel();
        let operators = Tell::into_channel(&events);
        let asked = match &lead {
            Some(lead) => signals::give_up(Arc::clone(lead))?,
            None => signals::listen(operators.clone())?,
        };
        let control = ControlService {
            driver: operators,
            store: store.clone(),
            state: state.clone(),
            status: feeds.status(),
            phases: feeds.phases().clone(),
            clock,
            events: feeds.events(),
            rules: feeds.rules(),
            samples_per_step: prepared.job.samples_per_step(),
            samples_per_prompt: prepared.job.samples_per_prompt(),
            texts: Texts::of(&prepared.job),
            audit: match &prepared.log {
                Some(_) => Audit::open_kept(state.root(), &store)?,
                None => audit(&state)?,
            },
            notes: Notes::open(&store, None)?,
            has_test_devices: prepared.sampled.test_devices().is_some(),
            joins: listeners.nodes.as_ref().map(NodesListener::joins),
            revoked: Revoked::open(&state.revoked_persons())?,
            authorities: Some(listeners.authorities.clone()),
            has_break_glass: prepared.break_glass_token.is_some(),
        };
        let mut servers = JoinSet::new();
        servers.spawn(served(
            "control socket",
            grpc::serve_control(control_socket, control.clone()),
        ));
        if let Some((listener, door)) = listeners.control {
            let at = listener
                .local_addr()
                .map_or_else(|_| String::new(), |a| a.to_string());
            tracing::info!("control API on {at}, token in {}", state.token().display());
            servers.spawn(served(
                "control address",
                serve_tcp(listener, control, door),
            ));
        }
        if let Some(listener) = listeners.metrics {
            let (at, serving) = listener.serve(Arc::clone(feeds.metrics()));
            tracing::info!("metrics on {at}");
            servers.spawn(serving);
        }
        let authorities = listeners.authorities;
        let router = listeners.router.map(|router| {
            let at = feeds.status().borrow().router.clone();
            tracing::info!("{}", router.said(&state, &at));
            let engines = authorities.job_token().engines();
            let client = authorities.engine_client();
            let routes = Tell::into_channel(&events);
            router.serve(&prepared.job, (engines, client), routes, feeds.status())
        });
        let told = Told::begin(&prepared, &listeners.run, &store, &mut feeds)?;
        tracing::info!("state in {}", state.root().display());
        Ok(Self {
            prepared,
            grouping,
            nodes_job,
            state,
            store,
            quota,
            logging,
            lead,
            controllers,
            past,
            clock,
            feeds,
            events,
            asked,
            heard,
            roles_socket,
            nodes: listeners.nodes,
            authorities,
            run: listeners.run,
            servers,
            router,
            told,
        })
    }

    async fn serve_and_run(mut self, linger: Duration) -> Result<ExitCode, Failure> {
        let (asked, logging) = (self.asked.clone(), self.logging.clone());
        if !self.warm_up().await? {
            return Ok(ended(&asked, &Outcome::Stopped));
        }
        let files = self.files();
        make_snapshots(&self.state.snapshots())?;
        remove_of_earlier_boots(&self.state.snapshots())?;
        let leases = Leases::default();
        let members = self.nodes.as_ref().map(|nodes| nodes.members.clone());
        let fence: Box<dyn Fn() + Send + Sync> = match self.lead.clone() {
            Some(lead) => Box::new(move || lead.check()),
            None => Box::new(|| ()),
        };
        let (parts, mut world) = assemble(
            (&self.prepared, self.grouping),
            (&self.state, &self.authorities, self.run),
            (&self.store, self.quota, self.logging),
            (self.clock, fence),
            self.feeds,
            (self.events.clone(), self.heard),
            (leases.clone(), members),
        )?;
        let feed = parts.feeds.status();
        let shards = parts.shards.clone();
        let (job, plan) = (Arc::clone(&parts.job), parts.worker.clone());
        let of_services = Tell::into_channel(&self.events);
        let services = Services::open(&job, plan, of_services, self.clock.now());
        let services = services.await.map_err(|source| Failure::Start {
            what: "the services",
            source,
        })?;
        let mut driver = Driver::new(parts, services, self.past)?;
        // Served only now: the leases of those who were here before are known.
        let first = self.clock.now().0;
        let ways = (
            Tell::into_channel(&self.events),
            Tell::into_channel(&self.events),
        );
        let roles = RoleHostService::new(ways, leases, self.store.clone(), first);
        if let Some(nodes) = self.nodes.take() {
            let job = self.nodes_job.clone();
            let at = nodes.listener.local_addr().map(|a| a.to_string());
            tracing::info!("nodes may join at {}", at.unwrap_or_default());
            let events = Tell::into_channel(&self.events);
            let service = nodes.service((files, self.store.clone()), shards, events, job);
            let serving = grpc::serve_nodes(nodes.listener, service, roles.clone());
            self.servers.spawn(served("nodes' address", serving));
        }
        if let Some(lead) = &self.lead {
            lead.serves();
        }
        self.servers.spawn(served(
            "role socket",
            grpc::serve_roles(self.roles_socket, roles),
        ));
        let result = driver.run(&mut world).await;
        let end = driver
            .end(&mut world, signals::hurried(asked.clone()))
            .await;
        let of_services = driver.end_services(signals::hurried(asked.clone())).await;
        let unkilled = [end.unkilled, of_services].concat();
        if !unkilled.is_empty() {
            tracing::error!("processes {unkilled:?} do not end though killed");
        }
        let over = matches!(result, Ok(Outcome::Completed | Outcome::Failed { .. }));
        driver.dismiss_nodes(&mut world, over).await;
        self.told.end().await;
        // What is written from now on, nobody waits for.
        logging.hurry();
        if let Some(lead) = &self.lead {
            match &result {
                Ok(outcome) => lead.finish(outcome.shown().word()).await,
                // Another controller goes on.
                Err(_) => lead.resign().await,
            }
        }
        // Kept when the store failed: the job goes on from its snapshots when robustd runs again.
        let outcome = result?;
        if end.on_disk || outcome == Outcome::Completed {
            give_back(&self.state.snapshots())?;
        } else {
            let kept = self.state.snapshots();
            tracing::warn!(
                "the last step is not on disk: {} is kept, the job goes on from it",
                kept.display()
            );
        }
        let status = feed.borrow().clone();
        let text = report(&self.store, &status, self.prepared.job.samples_per_step())?;
        driver::print(&driver::summary(&text));
        let mut asked = asked;
        if asked.borrow().code.is_none() {
            // A signal ends the lingering.
            let _ = tokio::time::timeout(linger, asked.changed()).await;
        }
        if let Some(router) = self.router.take() {
            router.end().await;
        }
        self.state.remove_sockets()?;
        Ok(ended(&asked, &outcome))
    }

    /// What the job is made of: recorded in its log, and put beside that, where it has one.
    fn files(&self) -> JobFiles {
        let digests = Digests::new(self.state.digests());
        let (job, prepared) = (&self.prepared.job, &self.prepared);
        let files = match &prepared.located {
            Some(located) => JobFiles::located(located, digests),
            None if prepared.log.is_some() => {
                JobFiles::new(job, digests).recorded(job, &self.state, &self.store)
            }
            None => JobFiles::new(job, digests),
        };
        if let Some(remote) = &prepared.log {
            let store = FileStore::new(remote, &job.job.name);
            let most = job.store.copy_files_up_to_bytes();
            let controllers = self.controllers.clone();
            tokio::spawn(put_missing(files.clone(), store, most, controllers));
        }
        files
    }

    /// Makes the warm start if it is missing; false when it was stopped.
    async fn warm_up(&mut self) -> Result<bool, Failure> {
        let (Some(job), Some(folder)) = (&self.prepared.warmup, &self.prepared.job.model.path)
        else {
            return Ok(true);
        };
        tracing::info!(
            "no warm start cached for these settings: making {}",
            folder.display()
        );
        let progress = |line: &str| {
            tracing::info!("warm-up: {line}");
            self.feeds
                .starting(self.clock.now(), &format!("warm-up: {line}"));
        };
        let logs = self.state.logs();
        let making = warmup::make(&self.prepared.worker.path, job, folder, progress);
        tokio::select! {
            made = making => Ok(made.map(|()| true)?),
            () = until_stopped(&mut self.heard, ("starting", &logs)) => Ok(false),
        }
    }
}

/// The audit log of a state directory.
pub(super) fn audit(state: &StateDir) -> Result<Audit, Failure> {
    let start = |source| Failure::Start {
        what: "the audit log",
        source,
    };
    Audit::open(state.root()).map_err(start)
}

async fn served<F, E>(what: &'static str, server: F)
where
    F: Future<Output = Result<(), E>>,
    E: std::fmt::Display,
{
    if let Err(error) = server.await {
        tracing::error!("the {what} is not served any more: {error}");
    }
}

async fn open_store(
    state: &StateDir,
    fresh: bool,
    job: &Job,
    (quota, logging): (&Quota, &Logging),
) -> Result<(Store, Option<OpenNote>), Failure> {
    if fresh {
        discard(state).await?;
    }
    let options = Options {
        keep_checkpoints: job.checkpoint.keep as usize,
        ..Options::default()
    };
    let limited = |commit| quota.around(logging.around(commit));
    Ok(Store::open_with(state.root(), options, limited)?)
}

/// Ends what is left of the job and removes its state.
async fn discard(state: &StateDir) -> Result<(), Failure> {
    match Store::open(state.root()) {
        Ok((store, _)) => kill_all(&store, state).await?,
        Err(error @ crate::store::StoreError::Locked { .. }) => return Err(error.into()),
        // It is discarded in any case; processes it knew of are fenced when they link.
        Err(error) => tracing::warn!("the discarded store cannot be read: {error}"),
    }
    let _held = StateLock::take(state.root())?;
    Ok(state.clear()?)
}

async fn kill_all(store: &Store, state: &StateDir) -> Result<(), Failure> {
    let start = |source| Failure::Start {
        what: "the launcher",
        source,
    };
    services::end_strangers(state).await.map_err(start)?;
    match driver::kill_leftovers(store).await.map_err(start)? {
        pids if pids.is_empty() => Ok(()),
        pids => Err(Failure::Leftovers { pids }),
    }
}

/// The job was over before: says so, and that is all.
async fn was_over(
    (store, state): (&Store, &StateDir),
    prepared: &Prepared,
    status: &v1::Status,
) -> Result<ExitCode, Failure> {
    // Roles may be left if the daemon was killed while it ended.
    kill_all(store, state).await?;
    if status.state() != Some(JobState::Completed) {
        let reason = match status.reason.as_str() {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let (job, state) = (status.job.clone(), format!("was {}", status.state));
        return Err(Failure::Over {
            job,
            state,
            step: status.step,
            reason,
        });
    }
    let report = report(store, status, prepared.job.samples_per_step())?;
    driver::print(&driver::summary(&report));
    driver::print("this job was completed before; start with --fresh to run it anew");
    Ok(ExitCode::Completed)
}

/// The end of a program that only showed: what a signal asked for.
pub(super) fn wanted_end(asked: &Asked) -> ExitCode {
    asked.borrow().code.unwrap_or(ExitCode::Completed)
}

fn ended(asked: &Asked, outcome: &Outcome) -> ExitCode {
    match (outcome, asked.borrow().code) {
        (Outcome::Completed, _) => ExitCode::Completed,
        (Outcome::Stopped, Some(code)) => code,
        (Outcome::Stopped | Outcome::Failed { .. }, _) => ExitCode::Failed,
    }
}
