//! What an instance does and what is measured of it: it changes with every phase and sample, so it is stored
//! apart from what else is known of it, and short.
use super::Instance;
use crate::core::input::Sample;
use crate::ids::Step;
use crate::phase::Phase;
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What [`Instance::measure`] and [`Instance::enter`] change, and when an engine's load began.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    #[serde(rename = "b")]
    busy_ns: u64,
    #[serde(rename = "n")]
    tokens_total: u64,
    #[serde(rename = "q")]
    running: u32,
    #[serde(rename = "m")]
    rss_bytes: u64,
    #[serde(rename = "r", default)]
    disk_read_bytes: u64,
    #[serde(rename = "w", default)]
    disk_write_bytes: u64,
    #[serde(rename = "x", default)]
    accelerator_ns: Option<u64>,
    #[serde(rename = "f", default)]
    tool_failures: u64,
    #[serde(rename = "c", default)]
    callers_refused: u64,
    #[serde(rename = "s")]
    sampled_at: Time,
    #[serde(rename = "a")]
    active_at: Time,
    #[serde(rename = "v")]
    moved_at: Time,
    #[serde(rename = "t")]
    tokens_at: Time,
    #[serde(rename = "p")]
    tokens_per_s: f64,
    #[serde(rename = "u")]
    cpu: f64,
    #[serde(rename = "l")]
    last_sign: Time,
    #[serde(rename = "h")]
    phase: Phase,
    #[serde(rename = "k")]
    phase_step: Step,
    #[serde(rename = "j")]
    phase_since: Time,
    #[serde(rename = "e", default)]
    alone_ns: u64,
    #[serde(rename = "o", default)]
    overrun: bool,
}

/// Enough for five centuries.
fn nanoseconds(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

impl Measured {
    /// Of an instance as it is now.
    pub fn of(i: &Instance) -> Self {
        let sample = &i.sample;
        Self {
            busy_ns: nanoseconds(sample.busy),
            tokens_total: sample.tokens_total,
            running: sample.running,
            rss_bytes: sample.rss_bytes,
            disk_read_bytes: sample.disk_read_bytes,
            disk_write_bytes: sample.disk_write_bytes,
            accelerator_ns: sample.accelerator.map(nanoseconds),
            tool_failures: sample.tool_failures,
            callers_refused: sample.callers_refused,
            sampled_at: i.sampled_at,
            active_at: i.active_at,
            moved_at: i.moved_at,
            tokens_at: i.tokens_at,
            tokens_per_s: i.tokens_per_s,
            cpu: i.cpu,
            last_sign: i.last_sign,
            phase: i.phase,
            phase_step: i.phase_step,
            phase_since: i.phase_since,
            alone_ns: nanoseconds(i.alone()),
            overrun: i.overrun,
        }
    }

    /// Lays it over what else is known of the instance.
    pub fn put_back(self, i: &mut Instance) {
        i.sample = Sample {
            busy: Duration::from_nanos(self.busy_ns),
            tokens_total: self.tokens_total,
            running: self.running,
            rss_bytes: self.rss_bytes,
            disk_read_bytes: self.disk_read_bytes,
            disk_write_bytes: self.disk_write_bytes,
            accelerator: self.accelerator_ns.map(Duration::from_nanos),
            tool_failures: self.tool_failures,
            callers_refused: self.callers_refused,
        };
        i.sampled_at = self.sampled_at;
        i.active_at = self.active_at;
        i.moved_at = self.moved_at;
        i.tokens_at = self.tokens_at;
        i.tokens_per_s = self.tokens_per_s;
        i.cpu = self.cpu;
        i.last_sign = self.last_sign;
        i.phase = self.phase;
        i.phase_step = self.phase_step;
        i.phase_since = self.phase_since;
        if let Some(rank) = i.rank_mut() {
            rank.alone = Duration::from_nanos(self.alone_ns);
        }
        i.overrun = self.overrun;
    }
}
