//! Why a command did not succeed, and the exit code that says so.
use std::error::Error as _;
use tonic::Code;

/// How the program ends; the numbers are part of its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ExitCode {
    /// Nothing to complain about.
    Done = 0,
    /// It did not come out well.
    Failed = 1,
    /// The arguments make no sense.
    Usage = 2,
    /// Nobody listens.
    NoDaemon = 3,
    /// The daemon said no.
    Refused = 4,
    /// The daemon cannot be understood.
    Protocol = 5,
    /// Ended after SIGHUP.
    HungUp = 129,
    /// Ended after SIGINT.
    Interrupted = 130,
    /// Ended after SIGTERM.
    Terminated = 143,
}

impl ExitCode {
    /// All of them, by number.
    pub const ALL: [Self; 9] = [
        Self::Done,
        Self::Failed,
        Self::Usage,
        Self::NoDaemon,
        Self::Refused,
        Self::Protocol,
        Self::HungUp,
        Self::Interrupted,
        Self::Terminated,
    ];

    /// What it tells whoever started the program; the help and the documents have these words.
    pub fn meaning(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => {
                "it did not come out well: a recovery did not finish, the job failed, records contradict each other \
                 (`traj show`, `report --step`), a role does not answer (`probe`), a check (`doctor`, `ckpt verify`, `store check`), an expectation of a drill or an invariant in `sim` does not hold"
            }
            Self::Usage => {
                "wrong usage; a file that is named cannot be read, a checkpoint is not there, Slurm's commands or \
                 robust-bench are not there"
            }
            Self::NoDaemon => {
                "no daemon reachable (the message names what was tried), or none that answers within 10 s"
            }
            Self::Refused => {
                "refused by the daemon or by Slurm (the reason is printed); a protected job without --i-know"
            }
            Self::Protocol => "protocol error: daemon and robustctl do not understand each other",
            Self::HungUp => "a drill or `compare` was ended by SIGHUP",
            Self::Interrupted => "a drill, `run`, `doctor` or `compare` was ended by SIGINT",
            Self::Terminated => "a drill, `run` or `compare` was ended by SIGTERM",
        }
    }
}

/// Every way a command can end without success.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// What was asked for did not come out well: a recovery, a job.
    #[error("{0}")]
    Failed(String),
    /// The arguments make no sense together, or name a file that cannot be read.
    #[error("{0}")]
    Usage(String),
    /// Nobody listens there.
    #[error("no daemon reachable at {place}: {reason}\n{fix}")]
    NoDaemon {
        /// The socket or address that was tried.
        place: String,
        /// What the system said.
        reason: String,
        /// What to do about it.
        fix: String,
    },
    /// The daemon understood and said no.
    #[error("refused: {0}")]
    Refused(String),
    /// An answer that this version does not understand.
    #[error("protocol error: {0}")]
    Protocol(String),
    /// A signal ended it.
    #[error("ended by a signal; everything it had started was ended too")]
    Interrupted {
        /// 128 and the signal's number, as shells have it.
        code: u8,
    },
    /// The robustd that was started ended; its exit code is ours.
    #[error("{text}")]
    JobEnded {
        /// It.
        code: u8,
        /// What it said last.
        text: String,
    },
    /// The reader of our output left (`robustctl events | head`): nothing to complain about.
    #[error("output closed")]
    OutputClosed,
}

impl CliError {
    /// 0 is success; the numbers are part of the command's interface (`robustctl --help`).
    pub fn exit_code(&self) -> u8 {
        match self {
            CliError::OutputClosed => ExitCode::Done as u8,
            CliError::Failed(_) => ExitCode::Failed as u8,
            CliError::Usage(_) => ExitCode::Usage as u8,
            CliError::NoDaemon { .. } => ExitCode::NoDaemon as u8,
            CliError::Refused(_) => ExitCode::Refused as u8,
            CliError::Protocol(_) => ExitCode::Protocol as u8,
            CliError::Interrupted { code } | CliError::JobEnded { code, .. } => *code,
        }
    }

    /// Whether the daemon may be back after a while.
    pub fn is_lost(&self) -> bool {
        matches!(self, CliError::NoDaemon { .. })
    }

    /// The word for it that programs are told.
    pub fn kind(&self) -> &'static str {
        match self {
            CliError::OutputClosed => "output_closed",
            CliError::Failed(_) => "failed",
            CliError::Usage(_) => "usage",
            CliError::NoDaemon { .. } => "no_daemon",
            CliError::Refused(_) => "refused",
            CliError::Protocol(_) => "protocol",
            CliError::Interrupted { .. } => "interrupted",
            CliError::JobEnded { .. } => "job_ended",
        }
    }

    /// What cannot be written as JSON.
    pub fn unshown(error: &serde_json::Error) -> CliError {
        CliError::Protocol(format!("cannot be shown as JSON: {error}"))
    }

    /// What a gRPC status from a daemon that was reached means. `place` is where it listens.
    pub fn from_status(status: &tonic::Status, place: &str) -> CliError {
        let message = status.message().to_owned();
        match status.code() {
            Code::FailedPrecondition
            | Code::InvalidArgument
            | Code::NotFound
            | Code::OutOfRange
            | Code::AlreadyExists
            | Code::ResourceExhausted
            | Code::PermissionDenied
            | Code::Unauthenticated => CliError::Refused(message),
            Code::Unimplemented => CliError::Refused(of_earlier_build(&message)),
            Code::DeadlineExceeded => CliError::Failed(message),
            // Said by the daemon itself: it is there, and on its way out.
            Code::Unavailable if status.source().is_none() => CliError::NoDaemon {
                place: place.to_owned(),
                reason: message,
                fix: "try again when it is back".to_owned(),
            },
            Code::Internal | Code::DataLoss if !is_lost(status) => {
                CliError::Failed(format!("the daemon failed: {message}"))
            }
            _ if is_lost(status) => CliError::NoDaemon {
                place: place.to_owned(),
                reason: format!("the connection broke ({message})"),
                fix: "it may be restarting; try again, or look at its log".to_owned(),
            },
            code => CliError::Protocol(format!("{code}: {message}")),
        }
    }
}

/// What a daemon says that lacks a call, which has come since. Its own words name the call, if it has any.
fn of_earlier_build(said: &str) -> String {
    let said = match said.is_empty() {
        true => String::new(),
        false => format!(" ({said})"),
    };
    format!("the daemon is of an earlier build and does not know what was asked{said}; upgrade it")
}

impl From<std::io::Error> for CliError {
    fn from(e: std::io::Error) -> Self {
        if e.kind() == std::io::ErrorKind::BrokenPipe {
            return CliError::OutputClosed;
        }
        CliError::Failed(format!("cannot write the output: {e}"))
    }
}

/// Whether the daemon (or the way to it) is gone, rather than its answer being a refusal.
fn is_lost(status: &tonic::Status) -> bool {
    // A process that dies in a call shows as UNKNOWN or CANCELLED with the transport's error below.
    match status.code() {
        Code::Unavailable => true,
        Code::Unknown | Code::Internal | Code::Cancelled => {
            status.source().is_some() || status.message().contains("h2 protocol error")
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_that_lacks_a_call_refuses_it_and_is_to_be_upgraded() {
        let told = |said: &str| {
            let status = tonic::Status::unimplemented(said);
            let error = CliError::from_status(&status, "unix socket s");
            (error.exit_code(), error.to_string())
        };
        let plain = "refused: the daemon is of an earlier build and does not know what was asked; upgrade it";
        assert_eq!(told(""), (4, plain.to_owned()));
        let named = "refused: the daemon is of an earlier build and does not know what was asked (Inspect is no method of \
                     this daemon); upgrade it";
        let said = "Inspect is no method of this daemon";
        assert_eq!(told(said), (4, named.to_owned()));
    }
}
