//! Screens and tables by name.

/// The screens by name; each has a digit.
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
}

impl ScreenId {
    /// In the order of their keys, from 1.
    pub const ALL: [ScreenId; 8] = [
        ScreenId::Overview,
        ScreenId::Roles,
        ScreenId::Timeline,
        ScreenId::Weights,
        ScreenId::Store,
        ScreenId::Incidents,
        ScreenId::Nodes,
        ScreenId::Drills,
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
        }
    }

    /// The screen of a digit.
    pub fn of_key(key: char) -> Option<ScreenId> {
        let number = key.to_digit(10)? as usize;
        ScreenId::ALL.get(number.checked_sub(1)?).copied()
    }

    /// The one so many places to the right, around the end.
    pub fn next(self, by: isize) -> ScreenId {
        let all = ScreenId::ALL.len() as isize;
        let at = (self as isize + by).rem_euclid(all);
        ScreenId::ALL[at as usize]
    }

    /// Whether it shows phases as they end.
    pub fn shows_phases(self) -> bool {
        matches!(self, ScreenId::Roles | ScreenId::Timeline)
    }

    /// Whether there is something to see before any daemon is reached: drills are files on this machine.
    pub fn needs_no_daemon(self) -> bool {
        self == ScreenId::Drills
    }
}

/// A table's name, by which the mouse and the last frame know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableId(pub &'static str);
