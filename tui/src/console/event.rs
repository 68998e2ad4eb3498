//! What the console reacts to and what it can want done.
use super::act::Act;
use super::drills::{DrillEnd, DrillFile};
use super::names::ScreenId;
use super::reading::{GroupRead, TrajectoryRead};
use super::several::Answers;
use super::stored::Stored;
use crossterm::event::{KeyEvent, MouseEvent};
use robust_proto::v1;
use robust_shared::ids::TrajectoryId;
use std::path::PathBuf;

/// Everything that can happen to the console, in one order.
#[derive(Clone, Debug)]
pub enum Event {
    /// A key was pressed.
    Key(KeyEvent),
    /// The mouse did something.
    Mouse(MouseEvent),
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
    /// Phases that ended.
    Phases {
        /// Over which connection they were asked for.
        link: u64,
        /// In the order in which they ended.
        spans: Vec<v1::PhaseSpan>,
    },
    /// No more phases are told.
    PhasesEnded {
        /// Over which connection they were asked for.
        link: u64,
        /// The daemon is of an older build, which tells none.
        never: bool,
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
    /// Several acts, or one of several parts, were answered one after the other.
    AnsweredAll(Box<Answers>),
    /// What an act that is being asked about would bring.
    Foreseen {
        /// Which.
        act: Box<Act>,
        /// A sentence each.
        lines: Vec<String>,
    },
    /// An instance's log was read.
    LogRead {
        /// Whose.
        who: String,
        /// Its last lines, or why there are none.
        lines: Result<Vec<String>, String>,
    },
    /// Processes were looked at, or asked.
    LookedInside {
        /// What was asked for.
        asked: Asked,
        /// What was found, in lines, or why nothing was.
        found: Result<Vec<String>, String>,
    },
    /// Figures of committed steps were read.
    StepsRead {
        /// Of the job that began then, in Unix ms.
        started_ms: u64,
        /// In order; none: the daemon cannot be asked for them.
        lines: Option<Vec<v1::StepLine>>,
    },
    /// The store was looked at.
    StoreRead(Box<Stored>),
    /// A trajectory was read.
    TrajectoryRead(Box<TrajectoryRead>),
    /// The trajectories of a prompt were looked at.
    GroupRead(Box<GroupRead>),
    /// The drill files that there are.
    DrillsRead(Result<Vec<DrillFile>, String>),
    /// The running drill said something.
    DrillSaid(String),
    /// The running drill is over.
    DrillEnded(DrillEnd),
    /// Where the recording that is played is.
    Played(Playback),
    /// SIGINT or SIGTERM, or nobody types any more.
    Terminate,
}

impl Event {
    /// The screen that asked for it, where one did.
    pub fn belongs_to(&self) -> Option<ScreenId> {
        match self {
            Event::LogRead { .. } => Some(ScreenId::Roles),
            Event::StoreRead(_) | Event::TrajectoryRead(_) | Event::GroupRead(_) => {
                Some(ScreenId::Store)
            }
            Event::DrillsRead(_) | Event::DrillSaid(_) | Event::DrillEnded(_) => {
                Some(ScreenId::Drills)
            }
            _ => None,
        }
    }
}

/// What is to be known of processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// What an instance does now.
    Inside {
        /// Its role.
        role: String,
        /// Its number.
        index: u32,
    },
    /// What each of several does now: their roles and numbers.
    InsideOf(Vec<(String, u32)>),
    /// Whether everybody answers.
    Answers,
}

/// Where a recording is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Playback {
    /// Unix ms of its begin, as recorded.
    pub from: u64,
    /// And of its end.
    pub to: u64,
    /// And of what is shown.
    pub at: u64,
    /// Recorded time over real time.
    pub speed: f64,
    /// It stands still.
    pub paused: bool,
}

/// What to do with the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// Stand still, or go on.
    Pause,
    /// So many ms on, or back.
    Seek(i64),
    /// Twice as fast.
    Faster,
    /// Half as fast.
    Slower,
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
    /// Hear of phases as they end, until [`Action::LeavePhases`] or the next connection.
    FollowPhases {
        /// The connection's number.
        link: u64,
        /// Unix ms; those that ended later.
        after_ms: u64,
    },
    /// Hear of them no more.
    LeavePhases,
    /// What the operator confirmed.
    Do(Act),
    /// Ask what it would bring.
    Foresee(Act),
    /// Read the log of an instance.
    ReadLog {
        /// Its name.
        who: String,
        /// It runs on the leader's machine.
        on_leader: bool,
    },
    /// Look at processes, or ask them.
    LookInside(Asked),
    /// Read the figures of committed steps.
    ReadSteps {
        /// Those of later steps than this one.
        after: u64,
        /// Of the job that began then, in Unix ms.
        started_ms: u64,
    },
    /// Look at the store.
    ReadStore,
    /// Read a trajectory.
    ReadTrajectory {
        /// Which.
        id: TrajectoryId,
        /// Of so many of its tokens the text is known.
        known: u64,
    },
    /// Look at the trajectories of a prompt.
    ReadGroup {
        /// Of this batch.
        batch: u64,
        /// Its number there.
        group: u32,
    },
    /// Find the drill files.
    ReadDrills,
    /// Run one.
    RunDrill(PathBuf),
    /// End the one that runs.
    EndDrill,
    /// Show the jobs of all contexts over this console.
    ShowJobs,
    /// Steer the recording.
    Play(Play),
    /// Ring the terminal's bell, and have it notify with these words.
    Ring(String),
    /// Put this text into the clipboard.
    Copy(String),
    /// Leave the console.
    Quit(Quit),
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
