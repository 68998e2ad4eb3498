//! The console's screens and tables by name.

/// A screen; each has a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
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

impl Screen {
    /// In the order of their keys, from 1.
    pub const ALL: [Screen; 8] = [
        Screen::Overview,
        Screen::Roles,
        Screen::Timeline,
        Screen::Weights,
        Screen::Store,
        Screen::Incidents,
        Screen::Nodes,
        Screen::Drills,
    ];

    /// Its name on the tab bar.
    pub fn title(self) -> &'static str {
        match self {
            Screen::Overview => "Overview",
            Screen::Roles => "Roles",
            Screen::Timeline => "Timeline",
            Screen::Weights => "Weights",
            Screen::Store => "Store",
            Screen::Incidents => "Incidents",
            Screen::Nodes => "Nodes",
            Screen::Drills => "Drills",
        }
    }

    /// The screen of a digit.
    pub fn of_key(key: char) -> Option<Screen> {
        let number = key.to_digit(10)? as usize;
        Screen::ALL.get(number.checked_sub(1)?).copied()
    }

    /// The one so many places to the right, around the end.
    pub fn next(self, by: isize) -> Screen {
        let all = Screen::ALL.len() as isize;
        let at = (self as isize + by).rem_euclid(all);
        Screen::ALL[at as usize]
    }
}

/// A table; each keeps its own selection, order and filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableId {
    /// Instances; shown by several screens, with one selection.
    Roles,
    /// The distribution tree.
    Weights,
    /// On disk.
    Checkpoints,
    /// Not yet consumed.
    Trajectories,
    /// Newest first.
    Incidents,
    /// Machines.
    Nodes,
    /// Drill files.
    Drills,
}

impl TableId {
    /// How many there are.
    pub const COUNT: usize = 7;
}
