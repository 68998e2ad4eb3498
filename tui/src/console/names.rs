//! Screens and tables by name.

/// The screens by name; each has a digit, the last one 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScreenId {
    /// The job at a glance.
    Overview,
    /// Every instance, and all about the selected one.
    Roles,
    /// Phases of every instance over time.
    Timeline,
    /// Who pulls weights from whom.
    Weights,
    /// Checkpoints and trajectories.
    Store,
    /// Faults, how they were found and what was done.
    Incidents,
    /// Machines and their slots.
    Nodes,
    /// Rehearsed faults.
    Drills,
    /// How the steps' figures go.
    Training,
    /// Where the job's time went.
    Time,
}

impl ScreenId {
    /// In the order of their keys, from 1 to 9 and 0.
    pub const ALL: [ScreenId; 10] = [
        ScreenId::Overview,
        ScreenId::Roles,
        ScreenId::Timeline,
        ScreenId::Weights,
        ScreenId::Store,
        ScreenId::Incidents,
        ScreenId::Nodes,
        ScreenId::Drills,
        ScreenId::Training,
        ScreenId::Time,
    ];

    /// Its name on the tab bar.
    pub fn title(self) -> &'static str {
        match self {
            ScreenId::Overview => "Overview",
            ScreenId::Roles => "Roles",
            ScreenId::Timeline => "Timeline",
            ScreenId::Weights => "Weights",
            ScreenId::Store => "Store",
            ScreenId::Incidents => "Incidents",
            ScreenId::Nodes => "Nodes",
            ScreenId::Drills => "Drills",
            ScreenId::Training => "Training",
            ScreenId::Time => "Time",
        }
    }

    /// Its name on the tab bar where those of all do not fit.
    pub fn short(self) -> &'static str {
        match self {
            ScreenId::Overview => "Over",
            ScreenId::Roles => "Roles",
            ScreenId::Timeline => "Line",
            ScreenId::Weights => "Wgts",
            ScreenId::Store => "Store",
            ScreenId::Incidents => "Incid",
            ScreenId::Nodes => "Nodes",
            ScreenId::Drills => "Drills",
            ScreenId::Training => "Train",
            ScreenId::Time => "Time",
        }
    }

    /// Its digit.
    pub fn key(self) -> char {
        match self {
            ScreenId::Overview => '1',
            ScreenId::Roles => '2',
            ScreenId::Timeline => '3',
            ScreenId::Weights => '4',
            ScreenId::Store => '5',
            ScreenId::Incidents => '6',
            ScreenId::Nodes => '7',
            ScreenId::Drills => '8',
            ScreenId::Training => '9',
            ScreenId::Time => '0',
        }
    }

    /// The screen of a digit.
    pub fn of_key(key: char) -> Option<ScreenId> {
        ScreenId::ALL.into_iter().find(|screen| screen.key() == key)
    }

    /// The one so many places to the right, around the end.
    pub fn next(self, by: isize) -> ScreenId {
        let all = ScreenId::ALL.len() as isize;
        let at = (self as isize + by).rem_euclid(all);
        ScreenId::ALL[at as usize]
    }

    /// Whether there is something to see before any daemon is reached: drills are files on this machine.
    pub fn needs_no_daemon(self) -> bool {
        self == ScreenId::Drills
    }
}

/// A table's name, by which the mouse and the last frame know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(pub &'static str);
