//! What a trace says: faults of machines, in the order of time.
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// A trace is not longer than five years.
pub const LONGEST: Duration = Duration::from_secs(5 * 366 * 86_400);

/// What becomes of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// It dies with all its processes and is away until it is repaired.
    Node,
    /// Its processes end; it stays.
    Process,
    /// Its processes stand still until that is found; it stays.
    Hang,
    /// It is said beforehand that it will leave; it is away until it is done.
    Maintenance,
}

impl Class {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Node, Self::Process, Self::Hang, Self::Maintenance];

    /// Its name in traces, tables and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Process => "process",
            Self::Hang => "hang",
            Self::Maintenance => "maintenance",
        }
    }

    /// Whether the machine is away afterwards.
    pub fn takes_the_machine(self) -> bool {
        matches!(self, Self::Node | Self::Maintenance)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The text is no class.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no class; classes are node, process, hang, maintenance")]
pub struct UnknownClass(pub String);

impl FromStr for Class {
    type Err = UnknownClass;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|class| class.name() == text);
        named.ok_or_else(|| UnknownClass(text.to_owned()))
    }
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fault {
    /// When, since the trace begins.
    pub at: Duration,
    /// The machine's name.
    pub node: String,
    /// What becomes of it.
    pub class: Class,
    /// Why, in the trace's own words.
    pub cause: String,
    /// How long the machine is away; none: the trace does not say.
    pub repair: Option<Duration>,
    /// The line that says so, from 1; 0: it was drawn.
    #[serde(skip)]
    pub line: usize,
}

/// All of them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace {
    faults: Vec<Fault>,
}

impl Trace {
    /// These, put in the order of time; those of one instant stay in the order in which they were given.
    pub fn new(mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(|fault| fault.at);
        Self { faults }
    }

    /// In the order of time.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// When the last one strikes.
    pub fn last(&self) -> Duration {
        self.faults.last().map_or(Duration::ZERO, |fault| fault.at)
    }

    /// Its names of machines as numbers of machines of a cluster of so many. Where all are whole numbers they
    /// are those; else each name gets a number of its own, drawn with the seed, so that no place of the job
    /// fails more often for the order of names.
    pub fn number(&self, machines: u32, seed: u64) -> Result<Vec<u32>, TooMany> {
        let numbers = self.faults.iter().map(|fault| fault.node.parse::<u32>());
        let Ok(numbers) = numbers.collect::<Result<Vec<u32>, _>>() else {
            return self.deal(machines, seed);
        };
        let beyond = numbers.iter().position(|number| *number >= machines);
        match beyond.and_then(|at| self.faults.get(at)) {
            None => Ok(numbers),
            Some(fault) => Err(TooMany {
                line: fault.line,
                node: fault.node.clone(),
                machines,
                numbered: true,
            }),
        }
    }

    fn deal(&self, machines: u32, seed: u64) -> Result<Vec<u32>, TooMany> {
        let mut free: Vec<u32> = (0..machines).collect();
        let mut dice = robust_ahead::dice::Dice::keyed(seed, 0x6e6f_6465);
        let mut known = std::collections::BTreeMap::new();
        let mut numbers = Vec::with_capacity(self.faults.len());
        for fault in &self.faults {
            let number = match known.get(&fault.node) {
                Some(number) => *number,
                None if free.is_empty() => {
                    return Err(TooMany {
                        line: fault.line,
                        node: fault.node.clone(),
                        machines,
                        numbered: false,
                    });
                }
                None => {
                    let at = usize::try_from(dice.below(free.len() as u64)).unwrap_or(0);
                    let number = free.swap_remove(at);
                    known.insert(&fault.node, number);
                    number
                }
            };
            numbers.push(number);
        }
        Ok(numbers)
    }
}

/// A trace of more machines than the cluster has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TooMany {
    /// Where.
    pub line: usize,
    /// Which has no place.
    pub node: String,
    /// Machines of the cluster.
    pub machines: u32,
    /// They are numbers.
    pub numbered: bool,
}

impl fmt::Display for TooMany {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            line,
            node,
            machines,
            ..
        } = self;
        match self.numbered {
            true => write!(
                f,
                "line {line}: node {node} is not there: the {machines} machines (--nodes and --spares) are \
                 numbered from 0"
            ),
            false => write!(
                f,
                "line {line}: node `{node}` is one more than the {machines} machines (--nodes and --spares)"
            ),
        }
    }
}
