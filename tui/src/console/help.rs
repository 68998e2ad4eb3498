//! What the keys of each screen are, for the help and the last line.
use super::screen::Screen;

/// A key and what it does.
pub type Help = (&'static str, &'static str);

/// The keys of every screen.
const EVERYWHERE: [Help; 13] = [
    ("1 to 8, Tab", "another screen"),
    ("j k g G PgUp PgDn", "select a row"),
    ("/", "filter the table; Esc ends it"),
    ("< > =", "sort by another column, turn"),
    ("[ ]", "scroll the lower half"),
    ("P", "pause the job, or go on"),
    ("T", "restart the whole task"),
    ("s", "end the job and its daemon"),
    ("r", "reach for a lost daemon now"),
    ("y Enter, n Esc", "yes, no in a dialog"),
    ("mouse", "tabs, rows, headings, wheel"),
    ("?", "this help"),
    ("q Ctrl-C", "leave the console; the job goes on"),
];

const INSTANCES: [Help; 9] = [
    ("K", "kill the selected instance"),
    ("H", "hang it"),
    ("L", "kill it and lose its slot"),
    ("I", "all faults that can befall it, also armed"),
    ("D", "take back a fault armed for it"),
    ("R", "restart it, without a fault"),
    ("Q", "an engine out of traffic, or in"),
    ("S", "scale its role"),
    ("U", "a new value for its role"),
];

/// The keys of a screen, its own first, for the help.
pub fn help(screen: Screen, playing: bool) -> Vec<Help> {
    let mut keys: Vec<Help> = match screen {
        Screen::Overview => INSTANCES.to_vec(),
        Screen::Roles => [&[("f", "find words in the log")], &INSTANCES[..]].concat(),
        Screen::Timeline => [
            &[
                ("+ -", "zoom in, out"),
                ("h l, Left Right", "scroll in time"),
                ("0", "follow the present"),
            ],
            &INSTANCES[..2],
        ]
        .concat(),
        Screen::Weights | Screen::Incidents => Vec::new(),
        Screen::Store => vec![("h l, Left Right", "checkpoints or trajectories")],
        Screen::Nodes => vec![
            ("C", "cordon the selected node, or uncordon it"),
            ("D", "drain it: cordon, and restart elsewhere what is there"),
            ("I", "faults of the node, the leader and its store"),
            ("R", "restore its first lost slot"),
        ],
        Screen::Drills => vec![
            ("Enter", "run the selected drill, on jobs of its own"),
            ("X", "end the drill that runs"),
        ],
    };
    if playing {
        keys.extend([
            ("Space", "pause the recording, or go on"),
            ("{ }", "10 s back, on"),
            ("( )", "half, twice the speed"),
        ]);
    }
    keys.extend(EVERYWHERE);
    keys
}

/// The most useful ones, for the last line.
pub fn hints(screen: Screen) -> &'static [Help] {
    match screen {
        Screen::Overview | Screen::Roles => &[
            ("j/k", "select"),
            ("K", "kill"),
            ("I", "fault"),
            ("R", "restart"),
            ("P", "pause"),
            ("/", "filter"),
            ("s", "stop job"),
            ("?", "help"),
            ("q", "quit"),
        ],
        Screen::Timeline => &[
            ("+/-", "zoom"),
            ("h/l", "scroll"),
            ("0", "now"),
            ("/", "filter"),
            ("?", "help"),
            ("q", "quit"),
        ],
        Screen::Weights | Screen::Incidents => &[
            ("j/k", "select"),
            ("/", "filter"),
            ("< >", "sort"),
            ("[ ]", "scroll"),
            ("?", "help"),
            ("q", "quit"),
        ],
        Screen::Store => &[
            ("h/l", "list"),
            ("j/k", "select"),
            ("/", "filter"),
            ("< >", "sort"),
            ("?", "help"),
            ("q", "quit"),
        ],
        Screen::Nodes => &[
            ("j/k", "select"),
            ("C", "cordon"),
            ("D", "drain"),
            ("R", "restore slot"),
            ("/", "filter"),
            ("?", "help"),
            ("q", "quit"),
        ],
        Screen::Drills => &[
            ("j/k", "select"),
            ("Enter", "run"),
            ("X", "end"),
            ("[ ]", "scroll"),
            ("?", "help"),
            ("q", "quit"),
        ],
    }
}
