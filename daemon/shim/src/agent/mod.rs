//! An agent worker whose environments are the user's own program, with this process beside it.
//!
//! ```text
//!  daemon ◄── role.proto, as agent-0 ──► robust-shim ── argv ──► python environment.py
//!    ▲                                     │   ▲  lines of JSON, Unix socket      │
//!    │ turns, durable                      │   └────────── robustrl ◄─────────────┘
//!    └───────────────── conversation ◄─────┤        async def rollout(prompt, engine)
//!  rollouts ◄── /generate, one or another ─┘
//! ```
//! To the daemon it is an agent worker as any other: it holds leases, stores turns, gives back what cannot
//! be held. What a conversation is, is the program's; every token of the model's passes through here, and
//! is durable before the program has it. An engine's death is not noticed by the program, and its own costs
//! it nothing that was generated: it begins each conversation anew, and is told again what was said
//! ([`script`]).

mod conversation;
mod model;
mod script;
mod talk;
mod words;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use robust_proto::v1::host_message::Body;
use robust_proto::v1::{Dispatch, Hello};
use robust_role::turns::{Leases, Rollouts, Sampling, Turns};
use robust_role::{Deed, FromHost, Link, LinkEnd, RoleArgs, Stages};
use robust_shared::fault::At;
use robust_shared::ids::{InstanceId, Role};
use robust_shared::job::AgentCommand;
use robust_shared::phase::Phase;
use robust_tree::{Died, Policy, Signal};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::error::ShimError;
use crate::home::Home;
use crate::hosted::{Hosted, LEDGER_EVERY, failure, says_why};
use crate::process::{self, Command, OfReplica, own_folder};
use crate::sight::Sight;
use conversation::{Conversation, Shared, Stop};
use model::Model;
use words::{PROTOCOL, Said, Told};

/// How often is told what the worker does.
const REPORT_EVERY: Duration = Duration::from_millis(100);

/// What ends a worker.
enum End {
    Link(LinkEnd),
    Died(Died),
}

/// Why a program is not up.
enum NotUp {
    Died(Died),
    Late(Duration),
    Refused(String),
}

/// Everything that comes to a worker.
struct Ears {
    inbox: UnboundedReceiver<FromHost>,
    said: UnboundedReceiver<Said>,
    died: UnboundedReceiver<Died>,
    ended: UnboundedReceiver<u64>,
}

/// A worker.
struct Shim {
    args: RoleArgs,
    command: AgentCommand,
    link: Link,
    leases: Leases,
    rollouts: Rollouts,
    hosted: Option<Hosted>,
    shared: Arc<Shared>,
    /// Conversations that the program holds, by their number.
    held: BTreeMap<u64, UnboundedSender<Said>>,
    last_number: u64,
    ended: UnboundedSender<u64>,
    phase: Phase,
}

/// Runs a worker until its link or its program ends. `started` is when the process began.
pub fn run(args: &RoleArgs, runtime: &Handle, started: Instant) -> Result<LinkEnd, ShimError> {
    let mut stages = Stages::since(started);
    let command = args.job.agent.command.clone().ok_or(ShimError::NoAgent)?;
    let id = InstanceId {
        role: Role::Agent,
        index: args.index,
    };
    let home = Home::of(&args.snapshot_dir, &format!("engine-{id}"));
    home.take()?;
    stages.end("clearing");
    let _on_runtime = runtime.enter();
    let io = |path: &Path, error: std::io::Error| ShimError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    };
    let ((say, mut said), (tell, told)) = (mpsc::unbounded_channel(), mpsc::unbounded_channel());
    talk::listen(&home.socket(), say, told).map_err(|error| io(&home.socket(), error))?;
    let folder = own_folder(&args.host_socket, id)?;
    let of = OfReplica {
        job: &args.job,
        folder: &folder,
        index: args.index,
        incarnation: args.incarnation,
        advertise: args.bind,
    };
    let line = Command::of_agent(&of, &command, &home)?.with(&Sight::of(args, &home, &folder))?;
    let (deaths, mut died) = mpsc::unbounded_channel();
    let (mut hosted, _) = Hosted::start(line, &home, Policy::of_program(), deaths)?;
    stages.end("the program's process");
    // It is given nothing, and counts as no worker, before it can take anything up.
    let limit = command.ready.timeout();
    if let Err(not_up) = runtime.block_on(comes_up(&mut said, &mut died, limit)) {
        return Err(never_up(not_up, &hosted, &tell));
    }
    hosted.ready();
    stages.end("the program");
    let (leases, rollouts) = (Leases::default(), Rollouts::default());
    let (link, inbox) = attach(args, runtime, &leases, &rollouts);
    link.phase(Phase::Init, 0);
    let model = Model::read(args.model_folder()?, &args.job);
    let turns = Turns::new(args, link.clone(), rollouts.clone(), model.longest)?;
    tracing::info!("start: {}", stages.line());
    let (ended, over) = mpsc::unbounded_channel();
    let rollout = &args.job.rollout;
    let mut shim = Shim {
        shared: Arc::new(Shared {
            turns,
            told: tell,
            sampling: Sampling {
                max_new_tokens: rollout.max_new_tokens as usize,
                temperature: rollout.temperature,
            },
            stop: model.stop,
            silent: command.silent(),
            generating: AtomicUsize::default(),
        }),
        args: args.clone(),
        command,
        link,
        leases,
        rollouts,
        hosted: Some(hosted),
        held: BTreeMap::new(),
        last_number: 0,
        ended,
        phase: Phase::Init,
    };
    let mut ears = Ears {
        inbox,
        said,
        died,
        ended: over,
    };
    shim.welcome();
    let end = runtime.block_on(shim.serve(&mut ears));
    runtime.block_on(shim.finish(end, ears))
}

fn attach(
    args: &RoleArgs,
    runtime: &Handle,
    leases: &Leases,
    rollouts: &Rollouts,
) -> (Link, UnboundedReceiver<FromHost>) {
    let (held, awaited) = (leases.clone(), rollouts.clone());
    let hello = move || Hello {
        leases: held.all(),
        rollouts: awaited.awaited(),
        ..Hello::default()
    };
    let hands = |deed: Deed, _: Option<At>| {
        Err(format!(
            "{deed:?} befalls the built-in agents' tool; the tools of an environment are its own"
        ))
    };
    robust_role::start(runtime, args.link(Role::Agent), hello, hands)
}

/// Waits until the program attaches.
async fn comes_up(
    said: &mut UnboundedReceiver<Said>,
    died: &mut UnboundedReceiver<Died>,
    limit: Duration,
) -> Result<(), NotUp> {
    tokio::select! {
        Some(death) = died.recv() => Err(NotUp::Died(death)),
        Some(first) = said.recv() => match first {
            Said::Attach { protocol: PROTOCOL, .. } => Ok(()),
            Said::Attach { protocol, package, .. } => Err(NotUp::Refused(format!(
                "the package {package} speaks version {protocol} of the environments' protocol and this \
                 robust-shim version {PROTOCOL}; install the python package that came with it"
            ))),
            other => Err(NotUp::Refused(format!("it said {other:?} before it attached"))),
        },
        () = tokio::time::sleep(limit) => Err(NotUp::Late(limit)),
    }
}

/// A program that does not come up is ended, and its reason told.
fn never_up(why: NotUp, hosted: &Hosted, tell: &UnboundedSender<Told>) -> ShimError {
    let error = match why {
        NotUp::Died(death) => {
            let reason = of_death(&death);
            failure("program", false, says_why(&death), reason)
        }
        NotUp::Late(limit) => {
            let seconds = limit.as_secs_f64();
            let reason = format!(
                "it did not call robustrl.serve() within {seconds} s (agent.command.ready.timeout_s)"
            );
            failure("program", false, true, reason)
        }
        NotUp::Refused(reason) => {
            let told = Told::Error {
                reason: reason.clone(),
            };
            // It may have ended.
            let _ = tell.send(told);
            failure("program", false, true, reason)
        }
    };
    hosted.tree.signal(Signal::KILL);
    error
}

/// A death with the last line of the log, which is the program's as a rule.
fn of_death(death: &Died) -> String {
    match crate::log::last_line() {
        Some(line) => format!("{death}: {line}"),
        None => death.to_string(),
    }
}

impl Shim {
    async fn serve(&mut self, ears: &mut Ears) -> End {
        let mut reports = tokio::time::interval(REPORT_EVERY);
        let mut notes = tokio::time::interval(LEDGER_EVERY);
        for every in [&mut reports, &mut notes] {
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                biased;
                Some(death) = ears.died.recv() => return End::Died(death),
                message = ears.inbox.recv() => match message {
                    Some(FromHost::Message(_, message)) => self.obey(message.body),
                    Some(FromHost::Ended(end)) => return End::Link(end),
                    None => return End::Link(LinkEnd::Shutdown),
                },
                Some(said) = ears.said.recv() => self.hear(said),
                Some(number) = ears.ended.recv() => {
                    self.held.remove(&number);
                }
                _ = reports.tick() => self.report(),
                _ = notes.tick() => self.hosted.iter_mut().for_each(Hosted::note),
            }
        }
    }

    fn obey(&mut self, body: Option<Body>) {
        match body {
            Some(Body::Dispatch(dispatch)) => self.begin(dispatch),
            Some(Body::Revoke(revoke)) => self.leases.revoke(revoke.trajectory),
            Some(Body::Gone(gone)) => self.rollouts.is_gone(gone.incarnation),
            other => tracing::warn!(?other, "not for an agent"),
        }
    }

    /// What the program says goes to its conversation, unless that was taken away meanwhile.
    fn hear(&self, said: Said) {
        let number = said.conversation();
        if let Some(to) = number.and_then(|number| self.held.get(&number)) {
            let _ = to.send(said);
        }
    }

    /// Tells the program who it is.
    fn welcome(&self) {
        let model = self.args.job.model.path.as_ref();
        let _ = self.shared.told.send(Told::Attached {
            index: self.args.index,
            job: self.args.job.job.name.clone(),
            model: model.map_or_else(String::new, |path| path.display().to_string()),
            tokenizer: self.args.job.data.tokenizer.display().to_string(),
            concurrency: self.args.job.agent.concurrency,
        });
    }

    fn begin(&mut self, dispatch: Dispatch) {
        let trajectory = dispatch.trajectory;
        let Some(mut revoked) = self.leases.take(trajectory) else {
            tracing::debug!(trajectory, "dispatched again, is under way");
            return;
        };
        self.last_number += 1;
        let number = self.last_number;
        let (to, said) = mpsc::unbounded_channel();
        self.held.insert(number, to);
        let (shared, link, leases) = (
            Arc::clone(&self.shared),
            self.link.clone(),
            self.leases.clone(),
        );
        let ended = self.ended.clone();
        tokio::spawn(async move {
            let held = Conversation::hold(Arc::clone(&shared), number, dispatch, said);
            let stopped = tokio::select! {
                ended = held => ended,
                // The sender lives in the lease; it changes when it is revoked, once.
                _ = async { revoked.wait_for(|revoked| *revoked).await.is_ok() } => Err(Stop::Void),
            };
            leases.release(trajectory, &revoked);
            if let Err(stop) = stopped {
                let cancel = Told::Cancel {
                    conversation: number,
                };
                let _ = shared.told.send(cancel);
                match stop {
                    Stop::Void => tracing::info!(trajectory, "dropped: the lease is void"),
                    Stop::Failed(reason) => {
                        tracing::warn!(trajectory, %reason, "gives a trajectory back");
                        link.add_tool_failure();
                        link.returned(trajectory, reason, false);
                    }
                    Stop::Diverged(reason) => {
                        tracing::warn!(trajectory, %reason, "a trajectory begins anew");
                        link.returned(trajectory, reason, true);
                    }
                }
            }
            // Nobody listens only when the process is ending.
            let _ = ended.send(number);
        });
    }

    /// Tells what the worker does: one of which every conversation waits for the program waits for tools.
    fn report(&mut self) {
        let running = self.leases.count();
        self.link.set_running(running);
        let phase = match self.shared.generating.load(Ordering::Relaxed) {
            _ if running == 0 => Phase::Idle,
            0 => Phase::AwaitingTool,
            _ => Phase::Generating,
        };
        if phase != self.phase {
            self.phase = phase;
            self.link.phase(phase, 0);
        }
    }

    async fn finish(mut self, end: End, mut ears: Ears) -> Result<LinkEnd, ShimError> {
        match end {
            End::Link(end) => {
                // It may end by itself first.
                let _ = self.shared.told.send(Told::Over);
                if end == LinkEnd::Shutdown {
                    let grace = self.command.stop.grace();
                    let _ = tokio::time::timeout(grace, ears.died.recv()).await;
                }
                if let Some(hosted) = self.hosted.take() {
                    hosted.end(&process::gently(&self.command.stop));
                }
                Ok(end)
            }
            End::Died(death) => {
                let reason = of_death(&death);
                if let Some(hosted) = &self.hosted {
                    hosted.tree.signal(Signal::KILL);
                }
                Err(failure("program", true, says_why(&death), reason))
            }
        }
    }
}
