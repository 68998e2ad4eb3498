//! What every role program has in common. It speaks the roles' protocol, and nothing else does.
//!
//! ```text
//!                 argv, environment                       the daemon's socket
//!                        │                                        ▲
//!   ┌────────────────────┼────────────────────────────────────────┼───────────────────┐
//!   │ role program       ▼                                        ▼                   │
//!   │            program::{main, run} ── RoleArgs ──► start ──► Link: hello, phases,  │
//!   │                                                   │       replies, samples,     │
//!   │                                                   │       faults on purpose     │
//!   │                          inbox: FromHost ◄────────┘             ▲               │
//!   │                             │                                   │               │
//!   │        ┌────────────────────┼─────────────────────┐             │               │
//!   │        ▼ Call               ▼ Pull                ▼ ...         │               │
//!   │  calls::Calls         pull::Puller           the role's own     │               │
//!   │        │                    │ Engine::swap        │             │               │
//!   │        ▼                    ▼                     └── reports ──┘               │
//!   │  snapshot::Slots      robust_weights::Slots                                     │
//!   │  serve::Publisher ─────────┴──────────────────────── weights ──► other roles    │
//!   └─────────────────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Happy path: [`program::main`] starts the log, [`program::Process`] reads the command line,
//! [`program::run`] makes the runtime. The role [`start`]s its [`Link`] with a hello that says what it
//! is at any moment, tells its phases, and obeys what comes down the inbox: a trainer answers calls
//! ([`calls`]), keeps snapshots ([`snapshot`]) and publishes weights ([`serve`]); a replica pulls
//! them and serves them on ([`pull`]). The link attaches again by itself when the daemon was away; it
//! ends when the daemon says so, knows a newer incarnation, or stays away too long, and the process
//! ends with the exit code for that.
//!
//! ```no_run
//! use std::time::Instant;
//!
//! use clap::Parser;
//! use robust_proto::v1::Hello;
//! use robust_role::program::{self, Process};
//! use robust_role::{FromHost, LinkEnd, RoleArgs, StartError};
//! use robust_shared::{ids::Role, phase::Phase};
//! use tokio::runtime::Handle;
//!
//! #[derive(Parser)]
//! struct Cli {
//!     #[command(flatten)]
//!     process: Process,
//! }
//!
//! fn idle(args: &RoleArgs, runtime: &Handle, _: Instant) -> Result<LinkEnd, StartError> {
//!     let no_hands = |deed, _| Err(format!("{deed:?} is nothing that this role can do"));
//!     let config = args.link(Role::Agent);
//!     let (link, mut inbox) = robust_role::start(runtime, config, Hello::default, no_hands);
//!     link.phase(Phase::Idle, 0);
//!     loop {
//!         match inbox.blocking_recv() {
//!             Some(FromHost::Message(_, message)) => println!("to do: {message:?}"),
//!             Some(FromHost::Ended(end)) => return Ok(end),
//!             None => return Ok(LinkEnd::Shutdown),
//!         }
//!     }
//! }
//!
//! let started = Instant::now();
//! let cli = Cli::parse();
//! program::main(|| program::run(&cli.process.role_args()?, started, idle))
//! ```

mod args;
pub mod calls;
pub mod exit;
mod facts;
mod identity;
mod link;
pub mod program;
pub mod pull;
mod rdma;
pub mod scrub;
pub mod serve;
pub mod snapshot;
pub mod spare;
mod stages;
pub mod turns;

pub use args::{RoleArgs, StartError, model_folder};
pub use facts::Facts;
pub use link::{
    Busy, Counters, DaemonEpoch, Deed, FromHost, Hands, Injected, Link, LinkConfig, LinkEnd,
    WELCOME_WITHIN, channel, network, start,
};
pub use stages::Stages;
