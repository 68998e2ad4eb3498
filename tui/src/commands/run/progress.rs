//! How far the job is: a bar on a terminal, robustd's own lines on stdout, or statuses as JSON.
use crate::error::CliError;
use crate::format::ratio;
use crate::output::{self, put, put_json};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use robust_proto::v1;
use robust_shared::printable::one_line;
use robust_shared::wire::JobState;
use std::io::IsTerminal as _;

/// Shows one job.
pub struct Progress {
    bar: ProgressBar,
    json: bool,
    quiet: bool,
    reason: String,
}

impl Progress {
    /// Of a job that is seen through.
    pub fn new(json: bool) -> Self {
        let bar = match std::io::stderr().is_terminal() && !json {
            true => ProgressBar::new(0),
            false => ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()),
        };
        if let Ok(style) = ProgressStyle::with_template("{bar:30} step {pos}/{len} {elapsed} {msg}")
        {
            bar.set_style(style);
        }
        Self {
            bar,
            json,
            quiet: false,
            reason: String::new(),
        }
    }

    /// Of one that is left when it runs: what it waits for is said on stderr.
    pub fn quiet(json: bool) -> Self {
        Self {
            quiet: true,
            ..Self::new(json)
        }
    }

    /// robustd printed this.
    pub fn line(&self, line: &str) -> Result<(), CliError> {
        match self.json {
            true => Ok(()),
            false => self.bar.suspend(|| put(&format!("{line}\n"))),
        }
    }

    /// Where the job is.
    pub fn update(&mut self, status: &v1::Status) -> Result<(), CliError> {
        if self.json && !self.quiet {
            return put_json(status);
        }
        // Where nobody knows how many there will be, all that were done are all.
        self.bar.set_length(status.steps_total.max(status.step));
        self.bar.set_position(status.step);
        let ettr = ratio(status.ettr_sliding);
        let message = format!(
            "{} reward {} ettr {ettr}",
            status.state,
            ratio(status.reward)
        );
        self.bar.set_message(message);
        if self.reason != status.reason && status.state() == Some(JobState::Starting) {
            self.reason.clone_from(&status.reason);
            if self.json {
                output::note(&self.reason, true);
            } else if self.bar.is_hidden() && self.quiet {
                output::say(&self.reason);
            } else {
                self.bar.println(one_line(&self.reason));
            }
        }
        Ok(())
    }

    /// Nothing is shown any more.
    pub fn end(&self) {
        self.bar.finish_and_clear();
    }
}
