//! What an operator's wish would bring, before it is confirmed: a copy of the controller ([`Core::ahead`]) is asked for it
//! and run ahead in a small world ([`Cluster::taken_over`]) in which every order takes what it usually takes in this
//! job ([`Measured`]). A second copy is run without it, and what differs is what it costs.
//!
//! ```text
//!  Core ──copy──► asked ──► runs until whole, or for an hour ──┐
//!    │                                                         ├──► Forecast
//!    └────copy──► not asked ──► runs as long ──────────────────┘
//! ```
//! The controller decides as it would, and the world has no other fault in it. It is a forecast, and no promise: what is
//! not measured is assumed and said to be, and who moves which weights at which speed is not played.
mod caused;
mod measured;
mod words;

pub use measured::{Figure, Measured};

use crate::cluster::{Cluster, Plan};
use caused::Course;
use robust_shared::core::{Core, Incident, Reply, Request};
use robust_shared::ettr::{Slice, WINDOW};
use robust_shared::fault::Fault;
use robust_shared::ids::{InstanceId, NodeId, Role};
use robust_shared::time::Time;
use robust_shared::wire::Window;
use std::time::Duration;

/// It is not looked further ahead than this.
pub const LONGEST: Duration = Duration::from_secs(3600);
/// Inputs that a copy is given at most: it takes a second or two.
pub const MOST_INPUTS: u64 = 150_000;
/// The rules that find whoever hangs.
const SILENCE: &[&str] = &["trainer idle", "rollout silent", "agent silent"];
/// The rule that finds a node that is gone.
const LOSS: &[&str] = &["node lost"];
/// Where silence is to be found, everybody is sampled or heard so often.
const SAMPLES: Duration = Duration::from_secs(1);

/// What would be done.
#[derive(Clone, Debug, PartialEq)]
pub enum Act {
    /// Requests, one right after the other: a drain is a cordon and restarts. The first that is refused ends it.
    Ask(Vec<Request>),
    /// A node says that it will leave.
    Leave(String),
}

impl From<Request> for Act {
    fn from(request: Request) -> Self {
        Act::Ask(vec![request])
    }
}

/// What it would bring.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Forecast {
    /// Why the controller refuses it; then nothing else is said.
    pub refused: Option<String>,
    /// Why nothing can be said of it.
    pub unknown: Option<String>,
    /// What is done, in the words of the reply and of the incidents that follow.
    pub plan: Vec<String>,
    /// Whose processes are started anew and would not be else, in order.
    pub restarts: Vec<InstanceId>,
    /// Who has no slot afterwards, and had one.
    pub waiting: Vec<InstanceId>,
    /// From the first fault to its verdict; none without a fault.
    pub detect: Option<Duration>,
    /// From the verdict to the last new process's link.
    pub restart: Option<Duration>,
    /// From there to useful work of all of them.
    pub reconnect: Option<Duration>,
    /// Until nothing is on the way any more; none: not as far as it was looked ahead.
    pub whole: Option<Duration>,
    /// How far it was looked ahead: [`LONGEST`] at most, less where that took [`MOST_INPUTS`], or the job ended.
    pub looked: Duration,
    /// Time in which the trainer would have computed and does not, until then, and of the next five minutes at most.
    pub stall: Option<Duration>,
    /// Steps that are begun again.
    pub steps_again: u64,
    /// Requests that go on at another engine.
    pub moved: u64,
    /// Trajectories that are handed out again.
    pub again: u64,
    /// Trajectories whose work is thrown away.
    pub thrown_away: u64,
    /// Trajectories that are set aside.
    pub set_aside: u64,
    /// What the effective training time ratio of the next five minutes loses, 0 to 1.
    pub ettr_lost: Option<f64>,
    /// Why the job would end.
    pub ends: Option<String>,
    /// What of the figures behind it nobody measured yet.
    pub assumed: Vec<(Figure, Duration)>,
}

impl Forecast {
    fn refused(why: impl ToString) -> Self {
        Self {
            refused: Some(why.to_string()),
            ..Self::default()
        }
    }

    fn unknown(why: impl Into<String>) -> Self {
        Self {
            unknown: Some(why.into()),
            ..Self::default()
        }
    }
}

/// What an act would bring. The controller is only looked at.
pub fn of(core: &Core, act: &Act, measured: &Measured, now: Time) -> Forecast {
    if let Some(why) = act.is_beyond(core) {
        return Forecast::unknown(why);
    }
    let ahead = RunAhead {
        core,
        measured,
        now,
        hunting: act.hunting(),
    };
    let at_once = act.at_once();
    if at_once != *act
        && let Err(forecast) = ask(&mut ahead.world(), act)
    {
        return *forecast;
    }
    let mut with = ahead.world();
    match ask(&mut with, &at_once) {
        Ok(replies) => ahead.forecast(with, &at_once, &replies),
        Err(_) if at_once != *act => {
            Forecast::unknown("it waits for its moment, and nobody whom it could strike runs now")
        }
        Err(forecast) => *forecast,
    }
}

/// Asks a copy for it: the answers, or why there is nothing else to say.
fn ask(world: &mut Cluster, act: &Act) -> Result<Vec<Reply>, Box<Forecast>> {
    let requests = match act {
        Act::Ask(requests) => requests,
        Act::Leave(node) => {
            if let Some(node) = world.core().node_id(node) {
                world.machine_will_leave(node, "it is to be drained");
            }
            return Ok(Vec::new());
        }
    };
    let mut replies = Vec::new();
    for request in requests {
        let why = match world.request(request.clone()) {
            Some(Ok(reply)) => {
                replies.push(reply);
                continue;
            }
            Some(Err(refusal)) => Forecast::refused(refusal),
            None => Forecast::unknown("the controller gave no answer"),
        };
        return Err(Box::new(why));
    }
    Ok(replies)
}

/// What is run ahead, and from when on.
struct RunAhead<'a> {
    core: &'a Core,
    measured: &'a Measured,
    now: Time,
    hunting: &'static [&'static str],
}

impl RunAhead<'_> {
    fn world(&self) -> Cluster {
        let hears = |rules: &[&str]| match self.hunting == rules {
            true => SAMPLES,
            false => Duration::ZERO,
        };
        let plan = Plan {
            config: self.core.config().clone(),
            timing: self.measured.timing,
            seed: 0,
            samples: hears(SILENCE),
            beats: hears(LOSS),
            journal: false,
            records: false,
            guard: false,
        };
        Cluster::taken_over(plan, self.core.ahead(self.hunting), self.now)
    }

    fn forecast(&self, mut with: Cluster, act: &Act, replies: &[Reply]) -> Forecast {
        let window = self.now + WINDOW;
        let is_done = |core: &Core| !act.pauses() || core.pause().is_some_and(|p| p.reached);
        let mut whole = with.run_until_whole(window, MOST_INPUTS, is_done);
        // From then on both go on alike, unless the one is paused.
        let until = match whole {
            Some(at) if !act.pauses() => at,
            _ => window,
        };
        let seen = with.run_to(until, MOST_INPUTS);
        let mine = Account::of(with.core(), until);
        if whole.is_none() && seen {
            whole = with.run_until_whole(self.now + LONGEST, MOST_INPUTS, is_done);
        }
        let looked = with.now().since(self.now);
        let mut without = self.world();
        let compared = seen && without.run_to(until, MOST_INPUTS);
        let usual = Account::of(without.core(), until);
        // What comes anyway is no part of what it costs, however far that was looked ahead.
        without.run_to(with.now(), MOST_INPUTS);
        let incidents = caused::incidents(self.incidents(&with), &self.incidents(&without));
        let course = Course::of(&incidents);
        let heard = with.heard().cloned().unwrap_or_default();
        let anyway = without.heard().cloned().unwrap_or_default();
        let repeated_anyway = without.core().steps_repeated();
        let waits_anyway = [self.core.homeless(), without.core().homeless()].concat();
        let restarts = caused::started(&heard.started, &anyway.started);
        Forecast {
            plan: words::plan(act, replies, &incidents),
            waiting: caused::homeless(with.core().homeless(), &waits_anyway),
            detect: course.detect,
            restart: course.restart,
            reconnect: course.reconnect,
            whole: whole.map(|at| at.since(self.now)),
            looked,
            stall: compared.then(|| mine.stalls(&usual)),
            steps_again: with.core().steps_repeated().saturating_sub(repeated_anyway),
            moved: heard.moved.saturating_sub(anyway.moved),
            again: heard.again.saturating_sub(anyway.again),
            thrown_away: heard.thrown_away.saturating_sub(anyway.thrown_away),
            set_aside: heard.set_aside.saturating_sub(anyway.set_aside),
            ettr_lost: compared.then(|| mine.loses(&usual)),
            ends: caused::end(with.outcome(), without.outcome(), whole.is_some()),
            assumed: self.assumed(&restarts),
            restarts,
            ..Forecast::default()
        }
    }

    /// Those that are found from now on.
    fn incidents<'a>(&self, of: &'a Cluster) -> Vec<&'a Incident> {
        of.incidents().filter(|i| i.verdict >= self.now).collect()
    }

    /// Only what has a part in it.
    fn assumed(&self, restarts: &[InstanceId]) -> Vec<(Figure, Duration)> {
        let starts = |role: Role| restarts.iter().any(|id| id.role == role);
        let trainer = starts(Role::Trainer);
        let engine = starts(Role::Rollout) || starts(Role::Hybrid);
        let counts = |figure: &Figure| match figure {
            Figure::Start(Role::Rollout | Role::Hybrid) => engine,
            Figure::Start(role) => starts(*role),
            Figure::Restore | Figure::Publish => trainer,
            Figure::Pull => trainer || engine,
            Figure::Step => true,
            // A loop of its own has no trajectories.
            Figure::Conversation => self.core.config().own_loop.is_none(),
        };
        let all = self.measured.assumed.iter();
        all.filter(|(figure, _)| counts(figure)).copied().collect()
    }
}

/// What a run came to by some instant.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    useful: Duration,
    replayed: Duration,
    /// Seconds that counted for the ETTR.
    counted: f64,
}

impl Account {
    fn of(core: &Core, at: Time) -> Self {
        let view = core.view(at);
        let mut windows = view.spent.windows.iter();
        let Some(job) = windows.find(|window| window.name == Window::Job) else {
            return Self::default();
        };
        let of = |slice: Slice| {
            let found = job.slices.iter().find(|(each, _)| *each == slice);
            found.map_or(Duration::ZERO, |(_, time)| *time)
        };
        Self {
            useful: of(Slice::Useful),
            replayed: of(Slice::Replayed),
            counted: view.ettr.total * job.to.since(job.from).as_secs_f64(),
        }
    }

    /// Time in which the usual one computes and this one does not; what it computes twice is counted as steps.
    fn stalls(&self, usual: &Self) -> Duration {
        let again = self.replayed.saturating_sub(usual.replayed);
        usual.useful.saturating_sub(self.useful + again)
    }

    /// What counts less, of the whole sliding window.
    fn loses(&self, usual: &Self) -> f64 {
        ((usual.counted - self.counted) / WINDOW.as_secs_f64()).clamp(0.0, 1.0)
    }
}

impl Act {
    /// Why nothing can be said of it.
    fn is_beyond(&self, core: &Core) -> Option<String> {
        let requests = match self {
            Act::Ask(requests) => requests,
            Act::Leave(node) => {
                return match core.node_id(node) {
                    None => Some(format!("there is no node `{node}`")),
                    Some(NodeId::LEADER) => Some("the leader's own node does not leave".to_owned()),
                    Some(_) => None,
                };
            }
        };
        requests.iter().find_map(|request| match request {
            Request::Inject { fault, .. } if !is_played(fault) => Some(format!(
                "what `{}` brings depends on what its role makes of it",
                fault.kind()
            )),
            Request::Afflict { fault } => match fault {
                Fault::LoseNode { node } if core.node_id(node) != Some(NodeId::LEADER) => None,
                _ => Some(format!(
                    "`{}` strikes the leader, which is not played",
                    fault.kind()
                )),
            },
            _ => None,
        })
    }

    /// The same without a moment to wait for.
    fn at_once(&self) -> Act {
        let mut act = self.clone();
        if let Act::Ask(requests) = &mut act {
            for request in requests {
                if let Request::Inject { at, .. } = request {
                    *at = None;
                }
            }
        }
        act
    }

    /// The rules that find it by the time that passed.
    fn hunting(&self) -> &'static [&'static str] {
        let Act::Ask(requests) = self else {
            return &[];
        };
        let found = requests.iter().find_map(|request| match request {
            Request::Inject {
                fault: Fault::Hang | Fault::HangEngine,
                ..
            } => Some(SILENCE),
            Request::Afflict { .. } => Some(LOSS),
            _ => None,
        });
        found.unwrap_or_default()
    }

    fn pauses(&self) -> bool {
        matches!(self, Act::Ask(requests) if requests.contains(&Request::Pause))
    }
}

/// Whether the small world does what this fault does.
fn is_played(fault: &Fault) -> bool {
    matches!(
        fault,
        Fault::Kill
            | Fault::Exit { .. }
            | Fault::Oom
            | Fault::LoseSlot
            | Fault::KillEngineChild
            | Fault::KillEngineLeader
            | Fault::Hang
            | Fault::HangEngine
    )
}
