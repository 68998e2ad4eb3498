//! Watches a job and strikes it, until it is over or the last fault is got over.
//!
//! ```text
//!  statuses ─► Striker ─due─► Inject ─► progress
//!     ▲                         │ the leader's daemon was to die
//!     └── connected again ◄─────┘
//! ```
use super::hopeless::Hopeless;
use super::progress::Progress;
use super::striker::Striker;
use crate::ending::is_over;
use crate::endpoint::{ANSWER_WITHIN, Client, Endpoint};
use crate::error::CliError;
use robust_proto::v1;
use robust_shared::drill::{Strike, Whom};
use robust_shared::fault::{Kind, Spec};
use robust_shared::wire::JobState;
use std::time::{Duration, Instant};
use tokio_stream::StreamExt as _;
use tonic::{Code, Streaming};

/// Statuses come this often: the grain of a strike's moment.
const LOOK_EVERY_MS: u32 = 20;
/// A job that commits no step for so long is stuck. The warm start, made once, takes minutes.
const PATIENCE: Duration = Duration::from_secs(300);

/// Who runs the daemon that is watched.
pub trait Host {
    /// Where it answers.
    fn endpoint(&self) -> Endpoint;
    /// Connects as soon as it answers.
    fn connect(&mut self) -> impl Future<Output = Result<Client, CliError>>;
    /// Brings it back after its death.
    fn revive(&mut self) -> impl Future<Output = Result<(), CliError>>;
    /// What it said last.
    fn last_words(&self) -> String;
}

/// When the watch is over.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Until {
    /// The job is.
    JobOver,
    /// Every fault is got over, or the job is over.
    GotOver,
}

/// How the watch ended.
pub struct Followed {
    /// What the daemon still answers.
    pub client: Client,
    /// The last status.
    pub status: v1::Status,
    /// Committed steps at the last strike; none where nothing struck.
    pub struck_at: Option<u64>,
    /// The job goes on, and nobody waits for its end.
    pub given_up: bool,
}

/// What is to be done.
pub struct Follower<'a> {
    /// When which fault is due.
    pub striker: Striker,
    /// Also a protected job.
    pub i_know: bool,
    /// When to leave.
    pub until: Until,
    /// What is hoped for, of a rule that is switched off.
    pub hopeless: Option<Hopeless>,
    /// Who is told.
    pub progress: &'a mut Progress,
}

/// What came of a strike.
enum Struck {
    Done(Box<v1::InjectReply>),
    /// Not this moment, for this reason: a place without a living process, a job at its end.
    Later(String),
}

impl Follower<'_> {
    /// Watches to the end.
    pub async fn run(mut self, host: &mut impl Host) -> Result<Followed, CliError> {
        let endpoint = host.endpoint();
        let mut client = host.connect().await?;
        let mut statuses = watch(&endpoint, &mut client).await?;
        let mut moved = (0, Instant::now());
        let (mut struck_at, mut crashed, mut refused) = (None, false, String::new());
        loop {
            let status = match next(&mut statuses).await {
                Ok(status) => status,
                Err(_) if std::mem::take(&mut crashed) => {
                    host.revive().await?;
                    client = host.connect().await?;
                    statuses = watch(&endpoint, &mut client).await?;
                    moved.1 = Instant::now();
                    continue;
                }
                Err(what) => return Err(ended(host, &what)),
            };
            self.progress.update(&status);
            self.check_protected(&status)?;
            let now = Instant::now();
            if status.step != moved.0 || status.state() == Some(JobState::Starting) {
                moved = (status.step, now);
            } else if now - moved.1 > PATIENCE {
                let text = format!("no step for {} s", PATIENCE.as_secs());
                return Err(ended(host, &text));
            }
            let due = self.striker.due(now, &status);
            let over = is_over(&status.state);
            let striker = &self.striker;
            let hopeless = self.hopeless.as_mut();
            let given_up = hopeless.is_some_and(|h| !over && h.is_certain(now, striker, &status));
            if over || given_up || (self.until == Until::GotOver && self.striker.got_over()) {
                // Of a rule that is off, that nothing was seen is what was to be shown.
                if self.hopeless.is_none() {
                    self.check_struck(&status, &refused)?;
                }
                return Ok(Followed {
                    client,
                    status,
                    struck_at,
                    given_up,
                });
            }
            let Some(strike) = due else { continue };
            match carry_out(&mut client, &strike, self.i_know).await? {
                Struck::Done(reply) => {
                    struck_at = Some(status.step);
                    crashed |= dies_of_it(&strike);
                    self.progress.struck(&strike, &reply, status.step);
                    let armed = match reply.armed {
                        Some(number) => Some((number, daemons_now(&endpoint, &mut client).await?)),
                        None => None,
                    };
                    self.striker.struck(&strike, armed, &status);
                }
                Struck::Later(why) => refused = why,
            }
        }
    }

    fn check_protected(&self, status: &v1::Status) -> Result<(), CliError> {
        match status.protected && !self.i_know && !self.striker.pending().is_empty() {
            false => Ok(()),
            true => Err(protected(&status.job)),
        }
    }

    /// Every fault must have struck, and what it broke must have been seen.
    fn check_struck(&self, status: &v1::Status, refused: &str) -> Result<(), CliError> {
        let why = match refused {
            "" => String::new(),
            why => format!("; the last refusal: {why}"),
        };
        if let [first, ..] = self.striker.pending() {
            return Err(CliError::Failed(format!(
                "the job was {} at step {} before {} of its faults could strike, the first: \
                 {first}; leave more steps between the faults{why}",
                status.state,
                status.step,
                self.striker.pending().len()
            )));
        }
        match self.striker.open() {
            Some(strike) => Err(CliError::Failed(format!(
                "the job was {} at step {}, and nothing was seen of {strike}: it did not come to the \
                 moment for it, or nobody noticed",
                status.state, status.step
            ))),
            None => Ok(()),
        }
    }
}

async fn watch(
    endpoint: &Endpoint,
    client: &mut Client,
) -> Result<Streaming<v1::Status>, CliError> {
    let watch = v1::WatchRequest {
        interval_ms: LOOK_EVERY_MS,
    };
    endpoint.ask(client.watch(watch)).await
}

async fn next(statuses: &mut Streaming<v1::Status>) -> Result<v1::Status, String> {
    match tokio::time::timeout(ANSWER_WITHIN, statuses.next()).await {
        Ok(Some(Ok(status))) => Ok(status),
        Ok(Some(Err(error))) => Err(format!("robustd is gone ({})", error.message())),
        Ok(None) => Err("robustd ended its stream".to_owned()),
        Err(_) => Err("robustd says nothing any more".to_owned()),
    }
}

async fn carry_out(client: &mut Client, strike: &Strike, i_know: bool) -> Result<Struck, CliError> {
    let answer = client.inject(request(strike, i_know));
    match tokio::time::timeout(ANSWER_WITHIN, answer).await {
        Ok(Ok(reply)) => Ok(Struck::Done(Box::new(reply.into_inner()))),
        Ok(Err(status)) if status.code() == Code::FailedPrecondition => {
            Ok(Struck::Later(status.message().to_owned()))
        }
        // It died of it before it could answer.
        Ok(Err(status)) if dies_of_it(strike) && broken(status.code()) => {
            Ok(Struck::Done(Box::default()))
        }
        Ok(Err(status)) => Err(lost(status)),
        Err(_) => Err(CliError::Failed("the injection was not answered".into())),
    }
}

/// Its time, in ms: statuses are asked for one after the other, and may be old when they are read.
async fn daemons_now(endpoint: &Endpoint, client: &mut Client) -> Result<u64, CliError> {
    let asked = client.get_status(v1::GetStatusRequest {});
    Ok(endpoint.ask(asked).await?.now_ms)
}

fn dies_of_it(strike: &Strike) -> bool {
    strike.fault.kind() == Kind::LeaderCrash
}

/// The connection, not the daemon, says so.
fn broken(code: Code) -> bool {
    matches!(code, Code::Unavailable | Code::Unknown | Code::Cancelled)
}

fn request(strike: &Strike, i_know: bool) -> v1::InjectRequest {
    let spec = Spec::from(&strike.fault);
    let id = match strike.whom {
        Whom::Instance(id) => Some(id),
        Whom::Machine => None,
    };
    v1::InjectRequest {
        fault: spec.kind,
        role: id.map_or_else(String::new, |id| id.role.name().to_owned()),
        index: id.map(|id| id.index),
        at: strike.phase.map_or_else(String::new, |at| at.to_string()),
        code: spec.code,
        seconds: spec.seconds,
        percent: spec.percent,
        peer: spec.peer.unwrap_or_default(),
        node: spec.node.unwrap_or_default(),
        event: spec.event.unwrap_or_default(),
        i_know,
        ..Default::default()
    }
}

/// A job that is not to be struck by mistake.
pub fn protected(job: &str) -> CliError {
    CliError::Refused(format!(
        "job {job} is protected; strike it all the same with --i-know"
    ))
}

/// A call that failed.
pub fn lost(status: tonic::Status) -> CliError {
    CliError::from_status(&status, "the drill's daemon")
}

fn ended(host: &impl Host, what: &str) -> CliError {
    match host.last_words() {
        words if words.is_empty() => CliError::Failed(what.to_owned()),
        words => CliError::Failed(format!("{what}; its last words:\n{words}")),
    }
}
