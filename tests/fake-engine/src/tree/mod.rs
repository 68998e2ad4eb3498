//! The engine's processes: this program again, under the names that the real ones give themselves.
//!
//! ```text
//!  vllm:    leader ──commands──► VLLM::EngineCore ──commands──► VLLM::Worker
//!             ▲                      │     ▲                      │
//!             └───────reports────────┘     └───────reports────────┘
//!  sglang:  leader ──commands──► sglang::scheduler
//!             ▲                      │ reports
//!             └──reports── sglang::detokenizer
//! ```
//! Beside them stands Python's resource tracker, which does nothing. Every arrow is a pipe, so what
//! the kernel does to a process has its consequences: a stopped worker makes no tokens while the
//! leader goes on answering, a killed one breaks its pipe.

mod core;
mod spawn;
mod worker;

pub use spawn::Tree;

use crate::protocol::Boot;
use std::process::ExitCode;
use std::time::Duration;

/// The variable that says which child this process is.
const ROLE: &str = "FAKE_ENGINE_CHILD";
/// The variable with the child's `Boot`.
const BOOT: &str = "FAKE_ENGINE_BOOT";
/// Orphans end by themselves after this, so that a test that forgot them leaves nothing for long.
const ORPHAN_LIFE: Duration = Duration::from_secs(300);

/// Runs this process as a child of the tree, if it was started as one.
pub fn child() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let boot = std::env::var(BOOT)
        .ok()
        .and_then(|text| serde_json::from_str::<Boot>(&text).ok())?;
    if let Some(title) = std::env::args()
        .next()
        .and_then(|t| std::ffi::CString::new(t).ok())
    {
        let _ = nix::sys::prctl::set_name(&title);
    }
    let ended = match role.as_str() {
        "core" => core::run(&boot),
        "detokenizer" => core::detokenize(&boot),
        "tracker" => core::track(&boot),
        _ => worker::run(&boot),
    };
    Some(ended.map_or_else(
        |error| {
            eprintln!("fake-engine: {role}: {error}");
            ExitCode::FAILURE
        },
        |()| ExitCode::SUCCESS,
    ))
}

/// What a time of the real engine is here.
pub fn scaled(boot: &Boot, seconds: f64) -> Duration {
    Duration::from_secs_f64((seconds * boot.time_scale).max(0.0))
}

/// What a child does whose leader is gone: SGLang's end soon, vLLM's and those of the quirk live
/// on.
fn orphaned(boot: &Boot, soon_s: f64) {
    let ends = boot.dialect == crate::protocol::Dialect::Sglang && !boot.quirks.orphan_children;
    std::thread::sleep(if ends {
        scaled(boot, soon_s)
    } else {
        ORPHAN_LIFE
    });
}
