//! A job that does not run, shown: status, events, report and trajectories from its state directory.
//! Nothing is started, and nothing written but the control socket and what operators note on its incidents.
use super::args::{Args, ExitCode};
use super::failure::Failure;
use super::run::wanted_end;
use super::signals;
use crate::driver::{self, Clock, Event, Feeds, Frame, InspectError, OperatorEvent};
use crate::grpc::{self, ControlService, Revoked, bind_unix};
use crate::notes::Notes;
use crate::state::StateDir;
use crate::store::Store;
use crate::tell::Tell;
use crate::texts::Texts;
use robust_proto::v1;
use robust_shared::core::{CoreConfig, Refusal};
use robust_shared::job::Job;
use std::path::Path;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

/// How long requests under way may take when the end is wanted.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// A database that goes its own way is not what the log goes on from.
const LOGGED: &str = "this job's writes go into a log as well, and who only shows it writes nothing there: write the note \
                      while a controller of the job runs";

/// Serves what is there until a signal or `robustctl stop`.
pub(super) async fn run(args: &Args) -> Result<ExitCode, Failure> {
    let dir = args.state_dir()?;
    let first = read_job(&dir)?;
    let state = StateDir::make(&dir)?;
    let (store, note) = Store::open(state.root())?;
    if let Some(note) = note {
        tracing::warn!("{note}");
    }
    let past = driver::past(&store)?;
    let job = past.job(&state)?.unwrap_or(first);
    let shown = past.over(&job).or_else(|| past.progress(&job));
    state.remove_sockets()?;
    let socket = bind_unix(&state.control_socket())?;
    let clock = Clock::starting_after(past.until());
    let rules = v1::Rules::from(&CoreConfig::from(&job));
    let feeds = Feeds::new(Frame::new(&job), rules, store.clone(), clock.now(), shown);
    let (events, mut heard) = unbounded_channel();
    let operators = Tell::into_channel(&events);
    let asked = signals::listen(operators.clone())?;
    let closed = job.store.remote_log.as_ref().map(|_| LOGGED);
    let notes = Notes::open(&store, closed)?;
    let control = ControlService {
        driver: operators,
        store,
        state: state.clone(),
        status: feeds.status(),
        phases: feeds.phases().clone(),
        clock,
        events: feeds.events(),
        rules: feeds.rules(),
        samples_per_step: job.samples_per_step(),
        samples_per_prompt: job.samples_per_prompt(),
        texts: Texts::of(&job),
        audit: super::run::audit(&state)?,
        notes,
        has_test_devices: false,
        joins: None,
        revoked: Revoked::open(&state.revoked_persons())?,
        authorities: None,
        has_break_glass: false,
    };
    driver::print(&format!(
        "showing the job {} in {}; end with Ctrl-C or `robustctl stop`",
        job.job.name,
        state.root().display()
    ));
    let logs = state.logs();
    let (end, ends) = oneshot::channel::<()>();
    let ends = async move { ends.await.unwrap_or_default() };
    let mut serving = tokio::spawn(grpc::serve_control_until(socket, control, ends));
    tokio::select! {
        ended = &mut serving => {
            if let Ok(Err(error)) = ended {
                tracing::error!("the control socket: {error}");
            }
        }
        () = until_stopped(&mut heard, ("shown only: nothing of it runs", &logs)) => {
            // Whoever asked gets an answer; whoever watches would stay for ever.
            let _ = end.send(());
            if tokio::time::timeout(LAST_ANSWERS, &mut serving).await.is_err() {
                serving.abort();
            }
        }
    }
    state.remove_sockets()?;
    Ok(wanted_end(&asked))
}

fn read_job(dir: &Path) -> Result<Job, Failure> {
    let path = dir.join("job.json");
    let text = std::fs::read(&path).map_err(|source| Failure::NoJob {
        dir: dir.to_owned(),
        source,
    })?;
    serde_json::from_slice(&text).map_err(|error| Failure::NoJob {
        dir: dir.to_owned(),
        source: error.into(),
    })
}

/// Answers what comes while no core runs; returns when the end is wanted.
pub(super) async fn until_stopped(
    heard: &mut UnboundedReceiver<Event>,
    (state, logs): (&str, &Path),
) {
    while let Some(event) = heard.recv().await {
        let Event::Operator(wanted) = event else {
            continue;
        };
        match wanted {
            OperatorEvent::Stop => return,
            OperatorEvent::Inject { answer, .. } => {
                // The operator may have left.
                let state = state.to_owned();
                let _ = answer.send(Err(Refusal::JobOver { state }));
            }
            OperatorEvent::Ask { answer, .. } | OperatorEvent::Change { answer, .. } => {
                let state = state.to_owned();
                let _ = answer.send(Err(Refusal::JobOver { state }));
            }
            OperatorEvent::Inspect { answer, .. } => {
                let state = state.to_owned();
                let _ = answer.send(Err(InspectError::NothingRuns { state }));
            }
            OperatorEvent::Probe { answer, .. } => {
                let state = state.to_owned();
                let _ = answer.send(Err(InspectError::NothingRuns { state }));
            }
            // The store says what there is to say, and nothing lies ahead.
            OperatorEvent::Look { .. } | OperatorEvent::Copy { .. } => {}
            OperatorEvent::ReadLog {
                id,
                offset,
                bytes,
                answer,
            } => driver::read_here(logs, (id, String::new()), (offset, bytes), answer),
        }
    }
}
