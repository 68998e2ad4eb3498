//! What the console reacts to and what it can want done.
use crossterm::event::KeyEvent;
use robust_proto::v1;

/// Everything that can happen to the console, in one order.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The terminal has another size; nothing but drawing follows.
    Resize,
    /// A quarter of a second went by.
    Tick,
    /// A status over link number `link`.
    Status {
        /// Which connection; older ones are fenced off.
        link: u64,
        /// The status.
        status: Box<v1::Status>,
    },
    /// The daemon's journal grew.
    Logged {
        /// Which connection.
        link: u64,
        /// The entry.
        event: Box<v1::Event>,
    },
    /// The connection ended, or could not be made.
    Lost {
        /// Which connection.
        link: u64,
        /// Why.
        reason: String,
    },
    /// An action was answered by the daemon.
    Answered(Result<String, String>),
    /// SIGINT or SIGTERM, or nobody types any more.
    Terminate,
}

/// What the runner is to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Drop the connection there is and make this one.
    Connect {
        /// Its number.
        link: u64,
        /// The last event known, or 0.
        since_seq: u64,
    },
    /// Strike an instance.
    Inject(Strike),
    /// End the job and the daemon.
    Stop,
    /// Leave the console.
    Quit(Quit),
}

/// A fault to inject.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Strike {
    /// Kill or hang.
    pub fault: Fault,
    /// The role's name.
    pub role: String,
    /// Rank or replica.
    pub index: u32,
    /// The life that was shown when the operator chose.
    pub incarnation: u64,
    /// Its process.
    pub pid: u32,
}

/// Which fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Hang,
}

impl Fault {
    /// The name in the protocol.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Kill => "kill",
            Fault::Hang => "hang",
        }
    }

    /// What was done, as a word.
    pub fn done(self) -> &'static str {
        match self {
            Fault::Kill => "killed",
            Fault::Hang => "hung",
        }
    }
}

/// Why the console is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quit {
    /// The operator wants to.
    Asked,
    /// The job is over and `--exit-when-done` was given.
    JobOver,
    /// With `--exit-when-done`: the daemon did not come back.
    DaemonGone(String),
}
