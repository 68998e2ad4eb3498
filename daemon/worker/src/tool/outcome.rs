//! Whose doing it is that a tool call has no value.
//!
//! The rule: **an infrastructure failure is never a sample**. What the model asked for in a wrong way is
//! its own doing, and it sees an empty result that it is rewarded with or without. What would have gone
//! wrong with any call says nothing of the model: it is asked again, and else its trajectory is given
//! back, so that no reward and no mean of a group ever knows of it.
//!
//! | what was seen | whose doing |
//! | --- | --- |
//! | the tool refuses the expression (exit code 1) | the model's |
//! | it answers more than anybody reads | the model's |
//! | it is overdue, or over its bound of processor time, and really computed | the model's |
//! | it is overdue and stood still | infrastructure: the machine is overloaded, or the tool hangs |
//! | a signal ended it that we did not send: killed by somebody, no memory | infrastructure |
//! | any other exit code: it could not set its bounds, or broke | infrastructure |
//! | it could not be started, or not be read from | infrastructure |
//!
//! In doubt it is infrastructure: a call that is made again costs a moment, a reward for what the model
//! did not do is trained on. A tool that can tell that an expression asks for too much says so with
//! exit code 1.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::signal::Signal;

/// Bytes of output that are read.
pub const MAX_OUTPUT_BYTES: usize = 4096;

/// Why a tool call has no value.
#[derive(Debug, thiserror::Error)]
pub enum ToolError {
    /// The model's doing.
    #[error(transparent)]
    Call(#[from] CallError),
    /// Nobody's doing whom we train.
    #[error(transparent)]
    Infrastructure(#[from] Infrastructure),
}

/// What is wrong with the call itself: it would be wrong anywhere. The conversation goes on with an
/// empty result.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The tool says that the expression has no value.
    #[error("{0}")]
    Refused(String),
    /// Its processor time was used up by computing.
    #[error("no value after computing for {0:?}")]
    Computes(Duration),
    /// The answer is longer than anybody reads.
    #[error("the answer is longer than {MAX_OUTPUT_BYTES} bytes")]
    Verbose,
}

/// What failed around the call: the same call may work in a moment, or elsewhere.
#[derive(Debug, thiserror::Error)]
pub enum Infrastructure {
    /// The tool could not be started.
    #[error("{program} could not be started: {source}")]
    NotStarted {
        /// The program.
        program: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Nothing could be read from it, or its end not be seen.
    #[error("its answer could not be read: {0}")]
    Unread(#[from] io::Error),
    /// A signal ended it that neither we nor a bound of ours sent.
    #[error("the tool was killed by {0}")]
    Killed(&'static str),
    /// It ended with a code that is no refusal.
    #[error("the tool broke with exit code {code}: {said}")]
    Broke {
        /// The code.
        code: i32,
        /// What it said.
        said: String,
    },
    /// It did not answer in time, and hardly computed.
    #[error("no answer after {waited:?}, of which it computed for {computed:?}")]
    Silent {
        /// The time it had.
        waited: Duration,
        /// What it made of it.
        computed: Duration,
    },
}

/// How a tool's process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// By itself, with a code.
    Exited(i32),
    /// By a signal.
    Killed(Signal),
    /// We killed it at its deadline, after so much processor time.
    Overdue(Duration),
}

/// What was seen of a call.
#[derive(Debug)]
pub(super) struct Seen {
    pub end: End,
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
}

impl Seen {
    /// The value, or whose doing it is that there is none. `time` is what the call had.
    pub fn judge(self, time: Duration) -> Result<String, ToolError> {
        if self.stdout.len() > MAX_OUTPUT_BYTES {
            return Err(CallError::Verbose.into());
        }
        match self.end {
            End::Exited(0) => Ok(text(&self.stdout)),
            End::Exited(1) => Err(CallError::Refused(text(&self.stderr)).into()),
            End::Exited(code) => {
                let said = text(&self.stderr);
                Err(Infrastructure::Broke { code, said }.into())
            }
            // The bound of processor time that the tool was started with.
            End::Killed(Signal::SIGXCPU) => Err(CallError::Computes(time).into()),
            End::Killed(signal) => Err(Infrastructure::Killed(signal.as_str()).into()),
            // A call that computes gets a core for most of its time; one that has to share it with
            // many others, or waits for something, did not have what it was promised.
            End::Overdue(computed) if computed >= time / 2 => {
                Err(CallError::Computes(computed).into())
            }
            End::Overdue(computed) => Err(Infrastructure::Silent {
                waited: time,
                computed,
            }
            .into()),
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;

    const TIME: Duration = Duration::from_secs(2);

    fn judged(end: End, stdout: &str, stderr: &str) -> Result<String, ToolError> {
        let (stdout, stderr) = (stdout.into(), stderr.into());
        let seen = Seen {
            end,
            stdout,
            stderr,
        };
        seen.judge(TIME)
    }

    #[track_caller]
    fn by_the_model(judged: Result<String, ToolError>) -> CallError {
        match judged {
            Err(ToolError::Call(error)) => error,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn by_infrastructure(judged: Result<String, ToolError>) -> String {
        match judged {
            Err(ToolError::Infrastructure(failure)) => failure.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_value_is_a_value_and_a_refusal_is_the_models() {
        assert_eq!(judged(End::Exited(0), "46\n", "").unwrap(), "46");
        let refused = by_the_model(judged(End::Exited(1), "", "division by zero\n"));
        assert_eq!(refused, CallError::Refused("division by zero".into()));
    }

    #[test]
    fn an_answer_that_nobody_reads_to_its_end_is_the_models_however_the_tool_ended() {
        let long = "9".repeat(MAX_OUTPUT_BYTES + 1);
        for end in [
            End::Exited(0),
            End::Killed(Signal::SIGPIPE),
            End::Overdue(Duration::ZERO),
        ] {
            assert_eq!(by_the_model(judged(end, &long, "")), CallError::Verbose);
        }
    }

    #[test]
    fn time_is_the_models_where_it_was_really_computed_and_else_infrastructure() {
        let computed = by_the_model(judged(End::Overdue(TIME / 2), "", ""));
        assert_eq!(computed, CallError::Computes(TIME / 2));
        let bound = by_the_model(judged(End::Killed(Signal::SIGXCPU), "", ""));
        assert_eq!(bound, CallError::Computes(TIME));
        let still = End::Overdue(Duration::from_millis(30));
        assert_eq!(
            by_infrastructure(judged(still, "", "")),
            "no answer after 2s, of which it computed for 30ms"
        );
    }

    #[test]
    fn a_signal_that_nobody_of_us_sent_is_infrastructure() {
        for signal in [
            Signal::SIGKILL,
            Signal::SIGTERM,
            Signal::SIGSEGV,
            Signal::SIGABRT,
        ] {
            assert_eq!(
                by_infrastructure(judged(End::Killed(signal), "46", "")),
                format!("the tool was killed by {}", signal.as_str())
            );
        }
    }

    #[test]
    fn any_other_exit_code_is_a_tool_that_broke() {
        for code in [2, 101, 127] {
            assert_eq!(
                by_infrastructure(judged(End::Exited(code), "", "setting limits: EPERM\n")),
                format!("the tool broke with exit code {code}: setting limits: EPERM")
            );
        }
    }
}
