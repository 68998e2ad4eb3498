//! How long the stages of a start take.

use std::time::{Duration, Instant};

use crate::spare;

/// Durations of the stages of a start, for one log line.
#[derive(Debug)]
pub struct Stages {
    since: Instant,
    line: String,
}

impl Stages {
    /// Counts from the beginning of `main`, or of a spare from when it was taken; what came before it (loading
    /// libtorch, waiting as a spare) is noted.
    pub fn since(since: Instant) -> Self {
        let before = process_age().map(|age| age.saturating_sub(since.elapsed()));
        let line = match (before, spare::was_one()) {
            (Some(waited), true) => format!("a spare for {} s", waited.as_secs()),
            (Some(before), false) => format!("load {} ms", before.as_millis()),
            (None, _) => String::new(),
        };
        Self { since, line }
    }

    /// Notes the end of a stage.
    pub fn end(&mut self, stage: &str) {
        let comma = if self.line.is_empty() { "" } else { ", " };
        let ms = self.since.elapsed().as_millis();
        self.line.push_str(&format!("{comma}{stage} {ms} ms"));
        self.since = Instant::now();
    }

    /// The line.
    pub fn line(&self) -> &str {
        &self.line
    }
}

/// Time since this process was made, to 10 ms.
fn process_age() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    // The name in parentheses may hold blanks; the start is the 20th field after it.
    let ticks: f64 = stat
        .rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19)?
        .parse()
        .ok()?;
    let uptime = std::fs::read_to_string("/proc/uptime").ok()?;
    let uptime: f64 = uptime.split_whitespace().next()?.parse().ok()?;
    Duration::try_from_secs_f64(uptime - ticks / 100.0).ok()
}
