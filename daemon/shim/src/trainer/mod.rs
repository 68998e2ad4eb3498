//! A rank of the trainer that is the user's own program, with this process beside it.
//!
//! ```text
//!  daemon ◄── role.proto, as trainer-0 ──► robust-shim ── argv, torchrun's environment ──► python train.py
//!                                            │    ▲  one JSON object a line, Unix socket        │
//!                                            │    └──────────── robustrl ◄──────────────────────┤
//!  peers, disk ◄── the sealed slot ──────────┤                                                  │
//!  engines ◄══ weights, chunks ══════════════┴── shared memory: slots, versions, batches, phases┘
//! ```
//! To the daemon it is a rank as any other: restored, given steps, asked for snapshots and versions. To the
//! program it is the package's other half. The program copies tensors into memory that is allocated and
//! touched once; what hashes, serves and replicates them happens here and behind.
//!
//! Happy path: the shim attaches and says (rank 0) at which port the new gang's process group is to meet.
//! With the daemon's restore every rank knows its fellows, and starts its program ([`crate::gang`], `program`). The program
//! attaches, takes up its state, publishes it, and goes round: batch, figures, state, version (`rank`).
//!
//! Where spares are kept the program may have been started before any of that, as nobody, and waits for it ([`waiting`]).
//!
//! The death of the program is the rank's death, told with the exception that it wrote.

mod batch;
mod canary;
mod comes_up;
mod dues;
mod given;
mod hands;
mod layout;
mod page;
mod program;
mod rank;
mod talk;
mod version;
pub mod waiting;
mod words;
mod work;

use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use regex::Regex;
use robust_proto::v1::host_message::Body;
use robust_proto::v1::{Call, Hello, HostMessage, call};
use robust_role::{Busy, Facts, FromHost, Link, LinkConfig, LinkEnd, RoleArgs, Stages, network};
use robust_role::{DaemonEpoch, Deed};
use robust_shared::fault::At;
use robust_shared::ids::{InstanceId, Role};
use robust_shared::job::{Level, TrainerCommand};
use robust_shared::phase::Phase;
use robust_transport::Transport;
use robust_tree::{Died, How, Signal, Tree, lend_ports};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::error::ShimError;
use crate::gang::exception_in;
use crate::hands::engine as strike;
use crate::home::Home;
use crate::hosted::{Hosted, LEDGER_EVERY, failure, says_why};
use crate::log;
use crate::process::{self, Command, own_folder};
use comes_up::ComesUp;
use dues::Said;
use given::Given;
use page::Page;
use rank::Rank;
use waiting::Waiting;
use words::{Answer, CanaryPrompt};
use work::{Of, Raised, Served, Work};

/// How often the program's page of phases is read.
const PAGE_EVERY: Duration = Duration::from_millis(20);
/// A program whose loop is its own that is through ends so soon after those that it started.
const LEADER_FOLLOWS: Duration = Duration::from_secs(2);
/// The program's tree, once it runs: hands and samples look at it from other threads.
type Running = Arc<OnceLock<Arc<Tree>>>;

/// What ends a rank.
enum End {
    Link(LinkEnd),
    Died(Died),
    NeverUp(Duration),
}

/// Everything that comes to a rank.
struct Ears {
    inbox: UnboundedReceiver<FromHost>,
    questions: UnboundedReceiver<talk::Asked>,
    served: UnboundedReceiver<Served>,
    died: UnboundedReceiver<Died>,
}

/// A rank of the user's.
struct Shim {
    args: RoleArgs,
    command: TrainerCommand,
    home: Home,
    link: Link,
    running: Running,
    /// A program that waited since before this process was this rank's.
    waiting: Option<Waiting>,
    hosted: Option<Hosted>,
    deaths: UnboundedSender<Died>,
    phase: Phase,
    raised: Raised,
    page: Page,
    page_path: PathBuf,
    /// Where the program's question is to be answered.
    answer_to: Option<oneshot::Sender<Answer>>,
    /// What [`Rank`] is made of when the gang is known.
    work: Option<Work>,
    canary: Option<CanaryPrompt>,
    rank: Option<Rank<Work>>,
    started: Option<Instant>,
    /// What a program that says nothing is waited for.
    comes_up: Option<ComesUp>,
}

/// Runs a rank until its link or its program ends. `started` is when the process began, or was made this rank's where
/// its program waited for that.
pub fn run(
    args: &RoleArgs,
    runtime: &Handle,
    started: Instant,
    waiting: Option<Waiting>,
) -> Result<LinkEnd, ShimError> {
    let mut stages = Stages::since(started);
    let command = args
        .job
        .trainer
        .command
        .clone()
        .ok_or(ShimError::NoTrainer)?;
    let (index, role) = (args.index, Role::Trainer);
    let home = Home::of(
        &args.snapshot_dir,
        &format!("engine-{}", InstanceId { role, index }),
    );
    home.take()?;
    stages.end("clearing");
    let transport = Transport::start(args.transport()?).map_err(robust_role::StartError::from)?;
    let hello = Hello {
        transport_addr: transport.addr().to_string(),
        master_port: match args.index {
            0 => lend_ports(1, args.bind).map_err(process::StartError::Ports)?[0].into(),
            _ => 0,
        },
        ..Hello::default()
    };
    let (facts, running) = (Facts::new(hello), Running::default());
    let (link, inbox) = attach(args, runtime, &facts, &running, &transport);
    link.phase(Phase::Init, 0);
    stages.end("transport and attach");
    tracing::info!("start: {}", stages.line());
    let _on_runtime = runtime.enter();
    let io = |path: PathBuf, error: std::io::Error| ShimError::File {
        path,
        reason: error.to_string(),
    };
    let (asks, questions) = mpsc::unbounded_channel();
    talk::listen(&home.socket(), asks).map_err(|error| io(home.socket(), error))?;
    let page_path = home.run().join("phases");
    let page = Page::make(&page_path).map_err(|error| io(page_path.clone(), error))?;
    let folder = own_folder(&args.host_socket, InstanceId { role, index })?;
    let user = Command::user_of("trainer.command", command.user.as_ref())?;
    let given = Given::new(home.given(), folder, user);
    let given = given.map_err(|error| io(home.given(), error))?;
    let (serves, served) = mpsc::unbounded_channel();
    let (deaths, died) = mpsc::unbounded_channel();
    let raised = Raised::default();
    let canary = canary::prompt(&args.job);
    let of = Of {
        rank: args.index,
        generation: args.generation,
        chunk_bytes: args.job.weights.chunk_bytes(),
        wire: args.job.wire(),
        full_every: args.job.weights.full_every_of(args.index),
        snapshots: args.snapshot_dir.clone(),
        given,
        canary: canary.clone(),
    };
    let work = Work::new(
        of,
        link.clone(),
        facts,
        transport,
        serves,
        Rc::clone(&raised),
    );
    let mut shim = Shim {
        args: args.clone(),
        command,
        home,
        link,
        running,
        waiting,
        hosted: None,
        deaths,
        phase: Phase::Init,
        raised,
        page,
        page_path,
        answer_to: None,
        work: Some(work),
        canary,
        rank: None,
        started: None,
        comes_up: None,
    };
    let mut ears = Ears {
        inbox,
        questions,
        served,
        died,
    };
    let end = runtime.block_on(shim.serve(&mut ears))?;
    runtime.block_on(shim.finish(end, ears))
}

fn attach(
    args: &RoleArgs,
    runtime: &Handle,
    facts: &Facts,
    running: &Running,
    transport: &Transport,
) -> (Link, UnboundedReceiver<FromHost>) {
    let (hello, watched) = (facts.clone(), Arc::clone(running));
    let config = LinkConfig {
        busy: Busy::told_by(move || watched.get().map_or(Duration::ZERO, |t| t.cpu_time())),
        ..args.link(Role::Trainer)
    };
    let refused = transport.refused();
    let (struck, transport) = (Arc::clone(running), transport.clone());
    let hands = move |deed, at: Option<At>| match (deed, struck.get()) {
        (Deed::KillEngineChild | Deed::KillEngineLeader | Deed::HangEngine, Some(tree)) => {
            strike(tree, deed)
        }
        (deed, _) => network(transport.clone())(deed, at),
    };
    let (link, inbox) = robust_role::start(runtime, config, move || hello.hello(), hands);
    link.counters().refused.told_by(refused);
    (link, inbox)
}

impl Shim {
    /// Serves both sides until there is an end.
    async fn serve(&mut self, ears: &mut Ears) -> Result<End, ShimError> {
        let mut looks = tokio::time::interval(PAGE_EVERY);
        let mut notes = tokio::time::interval(LEDGER_EVERY);
        for every in [&mut looks, &mut notes] {
            every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                biased;
                Some(death) = ears.died.recv() => {
                    // What it wrote last comes before its end.
                    self.tell_phases();
                    let last = self.and_its_leader(death, &mut ears.died).await;
                    if !self.has_ended(&last) {
                        return Ok(End::Died(last));
                    }
                }
                message = ears.inbox.recv() => match message {
                    Some(FromHost::Message(epoch, message)) => self.obey(epoch, *message)?,
                    Some(FromHost::Ended(end)) => return Ok(End::Link(end)),
                    None => return Ok(End::Link(LinkEnd::Shutdown)),
                },
                Some((ask, to)) = ears.questions.recv() => {
                    self.tell_phases();
                    self.answer_to = Some(to);
                    if let Some(rank) = &mut self.rank {
                        rank.on_ask(ask);
                    }
                }
                Some((version, served)) = ears.served.recv() => {
                    if let Some(rank) = &mut self.rank {
                        rank.on_served(version, served);
                    }
                }
                _ = looks.tick() => {
                    self.tell_phases();
                    self.look_whether_up();
                    if let Some(late) = self.is_late() {
                        return Ok(End::NeverUp(late));
                    }
                }
                _ = notes.tick() => self.hosted.iter_mut().for_each(Hosted::note),
            }
            self.say();
        }
    }

    fn obey(&mut self, epoch: DaemonEpoch, message: HostMessage) -> Result<(), ShimError> {
        let Some(Body::Call(call)) = message.body else {
            tracing::warn!(?message.body, "not for a trainer");
            return Ok(());
        };
        if let Call {
            body: Some(call::Body::Restore(restore)),
            ..
        } = &call
            && self.rank.is_none()
        {
            self.start_program(&restore.peers)?;
        }
        match &mut self.rank {
            Some(rank) => rank.on_call(epoch, call),
            None => tracing::warn!(key = call.key, "a call before the gang is known"),
        }
        Ok(())
    }

    fn enter(&mut self, phase: Phase, step: u64) {
        self.phase = phase;
        self.link.phase(phase, step);
        self.raise();
    }

    /// The death of the program's first process, where it comes right after another's: one that is through
    /// may end what it started in any way, as a Ray driver kills its cluster.
    async fn and_its_leader(&self, death: Died, died: &mut UnboundedReceiver<Died>) -> Died {
        let may_end = self.rank.as_ref().is_some_and(Rank::may_end);
        if death.leader || !may_end {
            return death;
        }
        let leader = async {
            while let Some(next) = died.recv().await {
                if next.leader {
                    return Some(next);
                }
            }
            None
        };
        match tokio::time::timeout(LEADER_FOLLOWS, leader).await {
            Ok(Some(leader)) if leader.how == How::Exit(0) => leader,
            _ => death,
        }
    }

    /// Whether a death is that of a program that had nothing left to do. It is not missed: what it
    /// published goes on being served.
    fn has_ended(&mut self, death: &Died) -> bool {
        let well = death.leader && death.how == How::Exit(0);
        let Some(rank) = self.rank.as_mut().filter(|rank| well && rank.may_end()) else {
            return false;
        };
        tracing::info!("the program ended with code 0: it had nothing left to do");
        rank.on_ended();
        self.link.phase(Phase::AwaitBatch, 0);
        true
    }

    /// Tells the daemon what the program wrote on its page.
    fn tell_phases(&mut self) {
        for change in self.page.changes() {
            let phase = match self.command.phases.contains(&change.phase) {
                true => Ok(Phase::Loop),
                false => Phase::from_str(&change.phase),
            };
            match phase {
                Ok(phase) => self.enter(phase, change.step),
                Err(error) => {
                    tracing::warn!(%error, "the program's page has a phase of no trainer")
                }
            }
        }
        self.raise();
    }

    /// An exception that is asked for where the program is now reaches it with its next question.
    fn raise(&self) {
        if let Err(injected) = self.link.raise(self.phase) {
            self.raised.set(Some(injected.to_string()));
        }
    }

    /// How long it may take to come up, if it took longer.
    fn is_late(&self) -> Option<Duration> {
        let limit = self.command.ready.timeout();
        let up = self.rank.as_ref().is_some_and(Rank::is_up);
        let late = self
            .started
            .is_some_and(|started| started.elapsed() > limit);
        (late && !up).then_some(limit)
    }

    /// Passes on what the rank has to say.
    fn say(&mut self) {
        let Some(rank) = &mut self.rank else { return };
        for said in rank.said() {
            match said {
                Said::Reply(epoch, reply) => self.link.reply(epoch, *reply),
                Said::Answer(answer) => {
                    if let (Answer::Attached(_), Some(hosted)) = (&answer, &mut self.hosted) {
                        hosted.ready();
                    }
                    if let Some(to) = self.answer_to.take() {
                        // It may have ended meanwhile.
                        let _ = to.send(answer);
                    }
                }
            }
        }
    }

    /// A program that is told to end may do so by itself first: its loop over batches ends. One that died
    /// or never attached is not waited for.
    async fn finish(mut self, end: End, mut ears: Ears) -> Result<LinkEnd, ShimError> {
        let was_up = self.rank.as_ref().is_some_and(Rank::is_up);
        match end {
            End::Link(end) => {
                if end == LinkEnd::Shutdown {
                    self.let_end(&mut ears).await;
                }
                if let Some(hosted) = self.hosted.take() {
                    hosted.end(&process::gently(&self.command.stop));
                }
                Ok(end)
            }
            End::Died(death) => {
                // Written before the program ended, so it is there by now.
                let told = exception_in(&self.error_file());
                let told = told.or_else(|| log::last_line_of(&self.errors()));
                let told = told.or_else(log::last_uncaught).or_else(log::last_line);
                let reason = match told {
                    Some(exception) => format!("{death}: {exception}"),
                    None => death.to_string(),
                };
                self.kill();
                Err(failure("program", was_up, says_why(&death), reason))
            }
            End::NeverUp(limit) => {
                self.kill();
                let reason = format!(
                    "{} within {} s (trainer.command.ready.timeout_s)",
                    match self.command.level {
                        Level::None => "what `trainer.command.ready` waits for did not come",
                        _ => "it did not call robustrl.attach()",
                    },
                    limit.as_secs_f64()
                );
                Err(failure("program", false, true, reason))
            }
        }
    }

    /// What the job file knows of errors; it was read, so they are expressions.
    fn errors(&self) -> Vec<Regex> {
        let all = self.command.errors.iter();
        all.filter_map(|e| Regex::new(e).ok()).collect()
    }

    fn kill(&self) {
        if let Some(hosted) = &self.hosted {
            hosted.tree.signal(Signal::KILL);
        }
    }

    /// Answers that the job is over, until the program ends or its grace does. One whose loop is its own
    /// may not ask for long, and is not waited for.
    async fn let_end(&mut self, ears: &mut Ears) {
        if let Some(rank) = &mut self.rank {
            rank.on_over();
        }
        self.say();
        if self.hosted.is_none() || self.args.job.own_loop().is_some() {
            return;
        }
        let grace = tokio::time::sleep(self.command.stop.grace());
        tokio::pin!(grace);
        loop {
            tokio::select! {
                () = &mut grace => return,
                Some(_) = ears.died.recv() => return,
                Some((ask, to)) = ears.questions.recv() => {
                    self.answer_to = Some(to);
                    if let Some(rank) = &mut self.rank {
                        rank.on_ask(ask);
                    }
                    self.say();
                }
            }
        }
    }
}
