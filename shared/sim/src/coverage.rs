//! What a search tried: how often each input met each state of each machine, and which cells nobody can
//! reach, each with the reason.
use robust_shared::core::{CELL_TABLES, Cell, Core, Input};
use std::fmt;

/// Counts by cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coverage {
    /// One vector a table, row by row.
    counts: Vec<Vec<u64>>,
}

impl Default for Coverage {
    fn default() -> Self {
        let cells =
            |table: &robust_shared::core::CellTable| table.states.len() * table.inputs.len();
        Self {
            counts: CELL_TABLES.iter().map(|t| vec![0; cells(t)]).collect(),
        }
    }
}

impl Coverage {
    /// Counts what an input is about to meet.
    pub fn note(&mut self, core: &Core, input: &Input) {
        core.cells(input, |cell| self.counts[cell.table][at(cell)] += 1);
    }

    /// Takes in what another run met.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                *mine += theirs;
            }
        }
    }

    /// How often a cell was met.
    pub fn of(&self, cell: Cell) -> u64 {
        self.counts[cell.table][at(cell)]
    }

    /// Cells that this one met and the other did not.
    pub fn beyond(&self, other: &Self) -> Vec<Cell> {
        cells()
            .filter(|cell| self.of(*cell) > 0 && other.of(*cell) == 0)
            .collect()
    }

    /// Cells that can be reached and were not.
    pub fn missed(&self) -> Vec<Cell> {
        let missed = |cell: &Cell| self.of(*cell) == 0 && unreachable(*cell).is_none();
        cells().filter(missed).collect()
    }

    /// Cells that were met though they are said to be out of reach.
    pub fn surprising(&self) -> Vec<Cell> {
        let met = |cell: &Cell| self.of(*cell) > 0 && unreachable(*cell).is_some();
        cells().filter(met).collect()
    }
}

/// Every cell, table by table and row by row.
pub fn cells() -> impl Iterator<Item = Cell> {
    CELL_TABLES.iter().enumerate().flat_map(|(table, of)| {
        let rows = 0..of.states.len();
        rows.flat_map(move |state| {
            (0..of.inputs.len()).map(move |input| Cell {
                table,
                state,
                input,
            })
        })
    })
}

fn at(cell: Cell) -> usize {
    cell.state * CELL_TABLES[cell.table].inputs.len() + cell.input
}

/// A cell in words: `gang: step done while forming`.
pub fn named(cell: Cell) -> String {
    let table = CELL_TABLES[cell.table];
    let (machine, state, input) = (
        table.machine,
        table.states[cell.state],
        table.inputs[cell.input],
    );
    format!("{machine}: {input} while {state}")
}

/// Why an input never meets this state; none where it can.
pub fn unreachable(cell: Cell) -> Option<&'static str> {
    let table = CELL_TABLES[cell.table];
    let (state, input) = (table.states[cell.state], table.inputs[cell.input]);
    let known = UNREACHABLE.iter().filter(|u| u.machine == table.machine);
    let mut known = known.filter(|u| u.states.is_empty() || u.states.contains(&state));
    known
        .find(|u| u.inputs.is_empty() || u.inputs.contains(&input))
        .map(|u| u.why)
}

/// States in which some inputs cannot come.
struct Unreachable {
    machine: &'static str,
    /// Empty: in all.
    states: &'static [&'static str],
    /// Empty: none of them.
    inputs: &'static [&'static str],
    why: &'static str,
}

const UNREACHABLE: &[Unreachable] = &[
    Unreachable {
        machine: "instance",
        states: &["waiting"],
        inputs: &[],
        why: "a place without a process has no incarnation that anybody could speak for",
    },
    Unreachable {
        machine: "instance",
        states: &["spawning", "starting"],
        inputs: &[
            "phase changed",
            "trajectory returned",
            "route requested",
            "damaged",
        ],
        why: "a process says nothing before it has linked, and these do not come twice",
    },
    Unreachable {
        machine: "instance",
        states: &["spawning", "starting"],
        inputs: &["probed", "switched", "evidence", "fault struck"],
        why: "nobody is asked anything before it has linked, and answers end with the daemon that asked",
    },
    Unreachable {
        machine: "instance",
        states: &[
            "starting",
            "attached",
            "pulling",
            "suspect",
            "going",
            "condemned",
            "unlinked",
        ],
        inputs: &["spawn failed"],
        why: "a process that was started did not fail to start",
    },
    Unreachable {
        machine: "instance",
        states: &["going"],
        inputs: &["switched"],
        why: "an engine on a trainer's slot goes with its rank, and is never asked to leave by itself",
    },
    Unreachable {
        machine: "instance",
        states: &["pulling", "suspect"],
        inputs: &[
            "trajectory finished",
            "trajectory returned",
            "route requested",
        ],
        why: "an agent worker neither pulls nor is probed",
    },
    Unreachable {
        machine: "instance",
        states: &["unlinked"],
        inputs: &["phase changed", "damaged"],
        why: "a link that is closed brings nothing more",
    },
    Unreachable {
        machine: "gang",
        states: &["former"],
        inputs: &[
            "a rank attached",
            "a rank detached",
            "a rank exited",
            "an engine exited",
            "an agent exited",
        ],
        why: "what an instance says meets the gang that there is",
    },
    Unreachable {
        machine: "gang",
        states: &["forming", "restoring", "ready", "publishing", "preparing"],
        inputs: &["trainer over"],
        why: "a program ends by itself in its own loop, which is the stage training, and the job with it",
    },
    Unreachable {
        machine: "gang",
        states: &["forming", "restoring"],
        inputs: &["prepared", "step done", "published"],
        why: "only a gang that has restored is called to compute, and answers end with the daemon that asked",
    },
    Unreachable {
        machine: "gang",
        states: &["forming"],
        inputs: &["restored"],
        why: "a generation restores after it has formed, and answers end with the daemon that asked",
    },
    Unreachable {
        machine: "gang",
        states: &["forming", "ready"],
        inputs: &["step failed"],
        why: "no call is under way: one that fails ends its generation, and answers end with the daemon that asked",
    },
    Unreachable {
        machine: "trajectory",
        states: &["unknown", "finished"],
        inputs: &["route requested"],
        why: "whoever stores its end tells of it while it holds the lease, and the next holder asks later",
    },
    Unreachable {
        machine: "trajectory",
        states: &["set aside"],
        inputs: &["finished"],
        why: "the engines that it took along gave no answer that its end could be made of",
    },
    Unreachable {
        machine: "node",
        states: &["left"],
        inputs: &["left", "hardware"],
        why: "it left on its stream, which ended with that",
    },
    Unreachable {
        machine: "node",
        states: &["unknown"],
        inputs: &["beat", "left", "hardware"],
        why: "a node is known from its join on",
    },
    Unreachable {
        machine: "node",
        states: &["awaited"],
        inputs: &["left", "hardware"],
        why: "a node says nothing of itself before it joins",
    },
    Unreachable {
        machine: "job",
        states: &["new"],
        // All but the start, which is the first.
        inputs: CELL_TABLES[4].inputs.split_at(1).1,
        why: "nobody is heard before the start",
    },
];

/// Rows and columns, a dot where nothing can come and `0` where nothing came.
impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, table) in CELL_TABLES.iter().enumerate() {
            let name = table.inputs.iter().map(|i| i.len()).max().unwrap_or(0);
            write!(f, "{:name$}", table.machine)?;
            for state in table.states {
                write!(f, " {state:>9}")?;
            }
            writeln!(f)?;
            for (input, words) in table.inputs.iter().enumerate() {
                write!(f, "{words:name$}")?;
                for state in 0..table.states.len() {
                    let cell = Cell {
                        table: index,
                        state,
                        input,
                    };
                    let width = table.states[state].len().max(9);
                    match (self.of(cell), unreachable(cell)) {
                        (0, Some(_)) => write!(f, " {:>width$}", ".")?,
                        (n, _) => write!(f, " {:>width$}", short(n))?,
                    }
                }
                writeln!(f)?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

/// Five characters at most: `980`, `12k`, `3M`.
fn short(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..10_000_000 => format!("{}k", n / 1000),
        _ => format!("{}M", n / 1_000_000),
    }
}
