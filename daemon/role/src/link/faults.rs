//! Faults that this process does to itself because the daemon says so.
//!
//! ```text
//!          RoleFault                       its moment comes
//!   new ──────────────► armed ──────────────────────────────────► struck, which is said just before
//!    │                    ├── Disarm, or the life ends ──► nothing happens
//!    │                    └── the role's own code comes to it ──► struck there
//!    └── not this role's, or never ──► said why
//! ```
//! A moment is a phase, or a part of a pull; one that is there already counts. What signals and limits
//! can do is done from outside; here is what only the process can do to itself, by the way in which it
//! would happen: it ends, its call fails, its loss is no number, its memory or its network fails. An
//! id counts once, so a restarted daemon may say again what it does not know to be done.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use robust_proto::v1::role_message::Body;
use robust_proto::v1::{FaultStruck, RoleFault};
use robust_shared::fault::{At, Kind};
use robust_shared::ids::Role;
use robust_shared::phase::Phase;
use robust_transport::{Address, Trouble};
use tokio::sync::mpsc::UnboundedSender;

use super::Outgoing;
use crate::exit;

/// What is to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deed {
    /// The process ends.
    Exit {
        /// With this code.
        code: u8,
    },
    /// An exception of the role's code.
    Exception,
    /// The loss is no number.
    Nan,
    /// Weights change where they are served from.
    CorruptWeights,
    /// Nothing works between this transport and another.
    Network {
        /// Where the other listens.
        peer: Address,
        /// What is wrong.
        trouble: Trouble,
        /// For how long.
        lasts: Duration,
    },
    /// The tool does not answer.
    HangTool {
        /// For how long.
        lasts: Duration,
    },
    /// Every process of the tool is killed.
    KillTool {
        /// For how long.
        lasts: Duration,
    },
    /// The busiest process that the engine's first one started is killed.
    KillEngineChild,
    /// The engine's first process is killed.
    KillEngineLeader,
    /// All processes of the engine are stopped.
    HangEngine,
    /// The engine is paused, as by a client that leaves it so.
    PauseEngine {
        /// For how long.
        lasts: Duration,
    },
}

/// Does what is particular to a role; the error is why it cannot.
pub type Hands = dyn Fn(Deed, Option<At>) -> Result<(), String> + Send + Sync;

/// An exception on request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("exception on request in {phase}")]
pub struct Injected {
    /// Where it was raised.
    pub phase: Phase,
}

/// What is armed in this process.
pub(super) struct Faults {
    role: Role,
    hands: Box<Hands>,
    say: UnboundedSender<Outgoing>,
    /// Phases change often, faults are rare.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Faults by their number, and what was said of each; none: it did not strike yet.
    known: BTreeMap<u64, Option<String>>,
    armed: Vec<Armed>,
    phase: Option<Phase>,
    /// Bytes that a pull has, and those of its version.
    pull: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy)]
struct Armed {
    id: u64,
    deed: Deed,
    at: Option<At>,
}

/// A cut lasts at least so long: it has to be there for a pull that is about to begin.
const CUT: Duration = Duration::from_secs(2);

/// What a rank comes into; a fault at another moment would wait for ever.
const OF_A_RANK: [Phase; 7] = [
    Phase::LoadCheckpoint,
    Phase::AwaitBatch,
    Phase::RefLogprob,
    Phase::OldLogprob,
    Phase::Update,
    Phase::Snapshot,
    Phase::Publish,
];

impl Armed {
    /// Reads an order, and checks that its moment can come.
    fn read(order: &RoleFault, role: Role) -> Result<Self, String> {
        let kind: Kind = order.kind.parse().map_err(|e| format!("{e}"))?;
        if !kind.roles().contains(&role) {
            return Err(format!("`{kind}` is nothing that can befall a {role}"));
        }
        let at = match order.at.as_str() {
            "" => None,
            text => Some(text.parse::<At>().map_err(|e| e.to_string())?),
        };
        at.map_or(Ok(()), |at| at.check(role))
            .map_err(|e| e.to_string())?;
        let armed = Self {
            id: order.id,
            deed: deed(kind, order)?,
            at,
        };
        match armed.never(role) {
            Some(why) => Err(why.to_owned()),
            None => Ok(armed),
        }
    }

    /// Why its moment will not come.
    fn never(&self, role: Role) -> Option<&'static str> {
        let phase = self.at?.phase;
        match self.deed {
            Deed::Nan if phase != Phase::Update => Some("a loss is made in `update`"),
            Deed::CorruptWeights if role == Role::Trainer && phase != Phase::Publish => {
                Some("a trainer's weights are served from `publish` on")
            }
            _ if role == Role::Trainer && !OF_A_RANK.contains(&phase) => {
                Some("this trainer does not come into that phase")
            }
            _ => None,
        }
    }

    /// Whether the role's own code does it where it comes to it: a call has to fail, a loss to be
    /// made, a version to be published, a tool to be called.
    fn is_of_the_code(&self, role: Role) -> bool {
        let at = self.at.map(|at| at.phase);
        match (role, self.deed) {
            (_, Deed::Nan) | (Role::Trainer, Deed::CorruptWeights) => true,
            (Role::Trainer, Deed::Exception) => at.is_some_and(|at| at != Phase::AwaitBatch),
            (Role::Agent, Deed::HangTool { .. } | Deed::KillTool { .. }) => {
                at == Some(Phase::AwaitingTool)
            }
            _ => false,
        }
    }
}

fn deed(kind: Kind, order: &RoleFault) -> Result<Deed, String> {
    let lasts = Duration::try_from_secs_f64(order.seconds).map_err(|e| e.to_string());
    let network = |trouble, lasts| {
        let peer = order.peer_addr.parse();
        let peer = peer.map_err(|_| format!("{} has no address to know it by", order.peer))?;
        Ok(Deed::Network {
            peer,
            trouble,
            lasts,
        })
    };
    match kind {
        Kind::Exit => {
            let code = u8::try_from(order.code).map_err(|e| e.to_string())?;
            Ok(Deed::Exit { code })
        }
        Kind::Exception => Ok(Deed::Exception),
        Kind::Nan => Ok(Deed::Nan),
        Kind::CorruptWeights => Ok(Deed::CorruptWeights),
        Kind::StallNetwork => network(Trouble::Stall, lasts?),
        Kind::CutNetwork => network(Trouble::Cut, lasts?.max(CUT)),
        Kind::HangTool => Ok(Deed::HangTool { lasts: lasts? }),
        Kind::KillTool => Ok(Deed::KillTool { lasts: lasts? }),
        Kind::KillEngineChild => Ok(Deed::KillEngineChild),
        Kind::KillEngineLeader => Ok(Deed::KillEngineLeader),
        Kind::HangEngine => Ok(Deed::HangEngine),
        Kind::PauseEngine => Ok(Deed::PauseEngine { lasts: lasts? }),
        other => Err(format!("`{other}` is done from outside")),
    }
}

impl State {
    fn is_there(&self, at: Option<At>) -> bool {
        let Some(at) = at else { return true };
        match at.phase {
            // A replica generates while it pulls, and tells of the pull apart from its phase.
            Phase::PullWeights => {
                let reached = |pull| at.reached(Phase::PullWeights, Some(pull));
                self.pull.is_some_and(reached)
            }
            _ => self.phase.is_some_and(|phase| at.reached(phase, None)),
        }
    }
}

impl Faults {
    pub fn new(role: Role, hands: Box<Hands>, say: UnboundedSender<Outgoing>) -> Self {
        Self {
            role,
            hands,
            say,
            any: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// The daemon asks for a fault.
    pub fn arm(&self, order: &RoleFault) {
        let known = self.state().known.get(&order.id).cloned();
        match known {
            // What was said of it was lost with a link, or with the daemon that heard it.
            Some(Some(refused)) => return self.tell(order.id, refused),
            Some(None) => {
                tracing::debug!(id = order.id, "a fault that was known");
                return;
            }
            None => drop(self.state().known.insert(order.id, None)),
        }
        match Armed::read(order, self.role) {
            Ok(armed) => {
                tracing::warn!(id = armed.id, deed = ?armed.deed, at = order.at, "a fault is armed");
                self.state().armed.push(armed);
                self.any.store(true, Ordering::Relaxed);
                self.look();
            }
            Err(refused) => self.tell(order.id, refused),
        }
    }

    /// It is not wanted any more.
    pub fn disarm(&self, id: u64) {
        self.state().armed.retain(|armed| armed.id != id);
    }

    /// This process enters a phase.
    pub fn enter(&self, phase: Phase) {
        self.state().phase = Some(phase);
        self.look();
    }

    /// A pull of weights has so many bytes of so many; none goes on.
    pub fn pulled(&self, pull: Option<(u64, u64)>) {
        self.state().pull = pull;
        self.look();
    }

    /// The first deed that the role's own code does here, if there is one. It is said to be done.
    pub fn take(&self, here: Phase, which: impl Fn(Deed) -> bool) -> Option<Deed> {
        if !self.any.load(Ordering::Relaxed) {
            return None;
        }
        let mut state = self.state();
        let fits = |armed: &Armed| {
            let here = armed.at.is_none_or(|at| at.phase == here);
            here && armed.is_of_the_code(self.role) && which(armed.deed)
        };
        let at = state.armed.iter().position(fits)?;
        let armed = state.armed.remove(at);
        drop(state);
        self.tell(armed.id, String::new());
        Some(armed.deed)
    }

    /// Strikes what is due.
    fn look(&self) {
        if !self.any.load(Ordering::Relaxed) {
            return;
        }
        let due: Vec<Armed> = {
            let state = &mut *self.state();
            let armed = std::mem::take(&mut state.armed);
            let due = |a: &Armed| !a.is_of_the_code(self.role) && state.is_there(a.at);
            let (due, later) = armed.into_iter().partition(due);
            state.armed = later;
            self.any.store(!state.armed.is_empty(), Ordering::Relaxed);
            due
        };
        due.into_iter().for_each(|armed| self.strike(armed));
    }

    fn strike(&self, armed: Armed) {
        let Armed { id, deed, at } = armed;
        let phase = self.state().phase.unwrap_or(Phase::Init);
        match deed {
            Deed::Exit { code } => {
                self.tell(id, String::new());
                exit::struck(code);
            }
            Deed::Exception => {
                self.tell(id, String::new());
                // As main does with an error that nobody handled.
                eprintln!("error: {}", Injected { phase });
                exit::struck(exit::code::EXCEPTION);
            }
            _ => {
                let done = (self.hands)(deed, at);
                self.tell(id, done.err().unwrap_or_default());
            }
        }
    }

    /// Says that it strikes, or why it cannot.
    fn tell(&self, id: u64, refused: String) {
        // May be the process's last line, and so what its incident says of its end.
        if refused.is_empty() {
            tracing::warn!("fault {id} on request strikes");
        } else {
            tracing::warn!("fault {id} on request was refused: {refused}");
        }
        self.state().known.insert(id, Some(refused.clone()));
        let body = Body::Struck(FaultStruck { id, refused });
        // Fails only after the end, and then nobody needs it.
        let _ = self.say.send(Outgoing { body, epoch: None });
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
