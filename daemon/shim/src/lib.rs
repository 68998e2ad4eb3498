//! `robust-shim`: stands beside an inference engine of the user's, which knows nothing of it.
//!
//! ```text
//!  daemon ◄── role.proto, as rollout-0 ──► robust-shim ── argv ──► the engine's processes
//!  agents, trainers ── HTTP, stable port ─►  │   ── its dialect ──► its own port, nobody else's
//!  trainer, relays ◄══ weights, chunks ═══►  └── /dev/shm/…/v7/model.safetensors
//! ```
//! To the daemon it is a rollout as any other: it attaches, pulls weights, says its phases and figures. To
//! clients it is a stable address. To the engine it is the only client.
//!
//! Happy path: what an earlier incarnation left is ended ([`home`]), the engine is started and every one
//! of its processes watched ([`process`]), and when it answers ([`ready`]) it is *stale*: nobody knows what
//! it serves. A version is pulled and verified chunk by chunk into a model folder in shared memory, the
//! engine loads it from there, and must prove that it did ([`weights`]). Only then the door opens
//! ([`state`], [`gate`]), and requests pass ([`front`]).
//!
//! The death of any of the engine's processes is the instance's death, and the last line of its log says
//! which it was. The shim never restarts an engine: that is the controller's to decide.
//!
//! A service of the job ([`service`]) is hosted in the same way, but that the shim only watches it: it
//! has no link to the daemon, and clients reach the service itself.
//!
//! A rank of the trainer that is the user's own program is hosted by [`trainer`], environments by [`agent`].
//!
//! Outside of any job [`check`] starts such a program once, for `robustctl doctor --check-roles`.
//!
//! # Rules
//! - **S-1** Nothing that the engine says reaches a client before the version behind it was verified in
//!   the engine (I-4).
//! - **S-2** The door closes before the engine is paused.
//! - **S-3** An engine is started only when no process of an earlier one of its instance is left.
//! - **S-4** A pause or an update that others order is seen, and told as a phase (I-8).
//! - **S-5** A hybrid engine's slot is its rank's only when its memory is back, and its own only when its
//!   weights were loaded and verified again ([`slot`]).

pub mod agent;
pub mod check;
pub mod client;
pub mod connect;
pub mod error;
pub mod front;
pub mod gang;
pub mod gate;
mod hands;
pub mod home;
pub mod hosted;
pub mod log;
pub mod process;
pub mod ready;
pub mod run;
pub mod service;
mod sight;
pub mod slot;
pub mod state;
pub mod trainer;
pub mod weights;
mod words;
