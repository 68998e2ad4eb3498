//! How far a run is: a bar on a terminal, lines elsewhere, objects for programs; all on stderr.
use super::outcome::RunOutcome;
use crate::format::{clock, millis, ratio};
use crate::output;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use robust_proto::v1;
use robust_shared::drill::Strike;
use robust_shared::printable::one_line;
use robust_shared::wire::JobState;
use std::io::IsTerminal as _;

/// Shows one run.
pub struct Progress {
    bar: ProgressBar,
    json: bool,
    place: String,
    faults: usize,
    struck: usize,
    reason: String,
    recovered: usize,
}

impl Progress {
    /// Begins a run.
    pub fn start(place: String, steps: u64, faults: usize, json: bool) -> Self {
        let bar = match std::io::stderr().is_terminal() && !json {
            true => ProgressBar::new(steps),
            false => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
        };
        let look = "{prefix:16} {bar:30} step {pos}/{len} {elapsed} {msg}";
        if let Ok(style) = ProgressStyle::with_template(look) {
            bar.set_style(style);
        }
        bar.set_prefix(place.clone());
        let progress = Self {
            bar,
            json,
            place,
            faults,
            struck: 0,
            reason: String::new(),
            recovered: 0,
        };
        progress.say(&format!("{steps} steps, {faults} faults"));
        progress
    }

    /// A line that stays.
    pub fn say(&self, text: &str) {
        let line = format!("{}: {text}", self.place);
        if self.json {
            output::note(&line, true);
        } else if self.bar.is_hidden() {
            output::say(&line);
        } else {
            self.bar.println(one_line(&line));
        }
    }

    /// Takes in where the job is.
    pub fn update(&mut self, status: &v1::Status) {
        self.bar.set_position(status.step);
        let incidents = &status.incidents;
        while let Some(i) = incidents.get(self.recovered).filter(|i| i.total_ms > 0.0) {
            self.recovered += 1;
            let total = millis(i.total_ms);
            self.say(&format!("back at work after {total}: {}", i.plan));
        }
        let starting = status.state() == Some(JobState::Starting);
        if starting && self.reason != status.reason {
            self.reason.clone_from(&status.reason);
            self.bar.set_message(one_line(&self.reason));
        } else if !starting {
            let (struck, of) = (self.struck, self.faults);
            self.bar
                .set_message(format!("fault {struck}/{of}, {}", status.state));
        }
    }

    /// A fault was struck.
    pub fn struck(&mut self, strike: &Strike, reply: &v1::InjectReply, step: u64) {
        self.struck += 1;
        let word = match reply.armed {
            Some(_) => "armed",
            None => "fault",
        };
        let (n, of, step) = (self.struck, self.faults, step + 1);
        self.say(&format!("{word} {n}/{of} in step {step}: {strike}"));
    }

    /// The incidents so far are none of the drill's.
    pub fn skip_incidents(&mut self, status: &v1::Status) {
        self.recovered = status.incidents.len();
    }

    /// The run is over.
    pub fn finish(&self, outcome: &RunOutcome) {
        self.say(&format!(
            "done in {}, ETTR {}",
            clock(outcome.report.duration_s),
            ratio(outcome.report.ettr)
        ));
        self.bar.finish_and_clear();
    }
}
