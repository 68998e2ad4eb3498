//! Detect: one file per rule. A rule says when it is due (`due`) and what it finds then; it is
//! silent in every phase it does not name (I-8). A new one is its file, with what can be set of it, its
//! line in the table below, and a drill that fails while the rule is switched off (`detect.off`).
//!
//! ```text
//!            rule                                  evidence in, or late
//!  healthy ───────► verdict (exit, overdue) ──────────────────────────────► kill, restart
//!     │                                               ▲
//!     ├── trainer idle, agent silent,                 │
//!     │   context switch ──► condemned ───────────────┤
//!     └── rollout silent ──► suspect ── probe failed ─┤
//!     └── health probe ────► suspect ── again, again ─┘
//!              ▲                 │
//!              └── probe ok ─────┘
//! ```
pub mod agent_silent;
pub mod agent_unable;
pub mod attach_overdue;
pub mod context_switch;
pub mod corruption;
pub(in crate::core) mod durations;
pub mod exception;
pub mod exit;
mod falls;
pub mod hardware;
pub mod health_probe;
pub mod node_lost;
pub mod numeric;
pub mod paused_too_long;
pub mod phase_overrun;
pub mod poison;
pub mod pull_stall;
pub mod rollout_silent;
mod rule;
mod ruleset;
mod scope;
mod setting;
mod sight;
pub mod straggler;
pub mod trainer_idle;
mod verdict;

#[cfg(test)]
mod tests;

pub use rule::Rule;
pub use ruleset::InForce;
pub use setting::{LONGEST_S, Setting, Source};
pub use verdict::Verdict;

use rule::{Fall, Watch};
use ruleset::registry;
use setting::{ByPhase, ByRole, ForAll, NoSettings, Settings, Values, settings};
use sight::{Finding, Sight};

registry! {
    exit: NoSettings = exit::RULE,
    spawn: NoSettings = exit::SPAWN,
    attach_overdue: attach_overdue::AttachOverdue = attach_overdue::RULE,
    link_lost: attach_overdue::LinkLost = attach_overdue::LINK_LOST,
    trainer_idle: trainer_idle::TrainerIdle = trainer_idle::RULE,
    rollout_silent: rollout_silent::RolloutSilent = rollout_silent::RULE,
    health_probe: health_probe::HealthProbe = health_probe::RULE,
    agent_silent: agent_silent::AgentSilent = agent_silent::RULE,
    pull_stall: pull_stall::PullStall = pull_stall::RULE,
    exception: NoSettings = exception::RULE,
    numeric: NoSettings = numeric::RULE,
    corruption: corruption::Corruption = corruption::RULE,
    phase_overrun: phase_overrun::PhaseOverrun = phase_overrun::RULE,
    straggler: straggler::Straggler = straggler::RULE,
    context_switch: context_switch::ContextSwitch = context_switch::RULE,
    node_lost: node_lost::NodeLost = node_lost::RULE,
    hardware: NoSettings = hardware::RULE,
    paused_too_long: paused_too_long::PausedTooLong = paused_too_long::RULE,
    poison: poison::Poison = poison::RULE,
    agent_unable: agent_unable::AgentUnable = agent_unable::RULE,
}
