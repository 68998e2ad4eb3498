//! The names in braces that a command may have.
use super::super::error::list;
use crate::nearest::nearest;
use std::fmt;

/// Something that a command is told when it is started.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placeholder {
    /// `{index}`: which of its role's instances it is, from 0.
    Index,
    /// `{incarnation}`: which process of the job's roles, or of its services, it is; no other of them
    /// ever has the number.
    Incarnation,
    /// `{generation}`: the gang's.
    Generation,
    /// `{rank}`: of a trainer.
    Rank,
    /// `{world_size}`: ranks of the gang.
    WorldSize,
    /// `{local_rank}`: of a trainer among those of its node.
    LocalRank,
    /// `{master_addr}`: where the gang of this generation meets.
    MasterAddr,
    /// `{master_port}`: the port there, another one in each generation.
    MasterPort,
    /// `{slots}`: how many slots it has.
    Slots,
    /// `{devices}`: the devices of its slots, with commas.
    Devices,
    /// `{port}` (0), `{port1}` and on: ports that are lent to this life.
    Port(u32),
    /// `{bind}`: the address to listen on.
    Bind,
    /// `{advertise}`: the address by which others reach its node.
    Advertise,
    /// `{model}`: the folder of the initial weights.
    Model,
    /// `{job}`: the job's name.
    Job,
    /// `{state}`: a folder that is its own.
    State,
    /// `{shm}`: a folder in shared memory that is its own.
    Shm,
    /// `{uds}`: the path of the Unix socket that an engine is to listen on.
    Uds,
    /// `{checkpoint}`: the folder of the newest checkpoint.
    Checkpoint,
    /// `{step}`: the step of that.
    Step,
    /// `{service.NAME}`: the addresses (`host:port`, with commas) of a service.
    Service(String),
    /// `{rollouts}`: the addresses (`host:port`, with commas) of all rollouts for clients.
    Rollouts,
    /// `{env:NAME}`: a variable of robustd's own environment.
    Env(String),
}

/// Whose command it is: not every placeholder has a meaning for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// A rollout's.
    Rollout,
    /// A trainer's rank's.
    Trainer,
    /// A service's.
    Service,
    /// An agent worker's.
    Agent,
}

/// Those that are one name; `{port}` begins a row of them.
const NAMES: [(&str, Placeholder); 21] = [
    ("index", Placeholder::Index),
    ("incarnation", Placeholder::Incarnation),
    ("generation", Placeholder::Generation),
    ("rank", Placeholder::Rank),
    ("world_size", Placeholder::WorldSize),
    ("local_rank", Placeholder::LocalRank),
    ("master_addr", Placeholder::MasterAddr),
    ("master_port", Placeholder::MasterPort),
    ("slots", Placeholder::Slots),
    ("devices", Placeholder::Devices),
    ("port", Placeholder::Port(0)),
    ("bind", Placeholder::Bind),
    ("advertise", Placeholder::Advertise),
    ("model", Placeholder::Model),
    ("job", Placeholder::Job),
    ("state", Placeholder::State),
    ("shm", Placeholder::Shm),
    ("uds", Placeholder::Uds),
    ("checkpoint", Placeholder::Checkpoint),
    ("step", Placeholder::Step),
    ("rollouts", Placeholder::Rollouts),
];

impl Placeholder {
    /// Whether it says the same in every life of a trainer's rank, whichever rank that is.
    pub fn is_common(&self) -> bool {
        matches!(
            self,
            Self::Slots | Self::Model | Self::Job | Self::Service(_) | Self::Env(_)
        )
    }

    /// The placeholder of this name (without braces); else the nearest one, in braces.
    pub fn named(name: &str) -> Result<Self, Option<String>> {
        if let Some((_, found)) = NAMES.into_iter().find(|(known, _)| *known == name) {
            return Ok(found);
        }
        if let Some(of) = name.strip_prefix("service.").filter(|n| !n.is_empty()) {
            return Ok(Self::Service(of.to_owned()));
        }
        if let Some(of) = name.strip_prefix("env:").filter(|n| is_variable(n)) {
            return Ok(Self::Env(of.to_owned()));
        }
        let number = name.strip_prefix("port").and_then(|n| n.parse().ok());
        match number.filter(|n| *n > 0 && name == format!("port{n}")) {
            Some(number) => Ok(Self::Port(number)),
            None => Err(meant(name)),
        }
    }

    /// Whether it has a meaning for a command.
    pub fn is_of(&self, scope: Scope) -> bool {
        match self {
            Self::Generation
            | Self::Rank
            | Self::WorldSize
            | Self::LocalRank
            | Self::MasterAddr
            | Self::MasterPort => scope == Scope::Trainer,
            Self::Checkpoint | Self::Step => false,
            Self::Uds => scope == Scope::Rollout,
            // A rollout that waits for all rollouts' addresses waits for its own.
            Self::Rollouts => !matches!(scope, Scope::Rollout | Scope::Agent),
            Self::Port(_) => scope != Scope::Agent,
            _ => true,
        }
    }
}

impl Scope {
    /// In a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rollout => "rollout",
            Self::Trainer => "trainer",
            Self::Service => "service",
            Self::Agent => "agent",
        }
    }

    /// The placeholders that have a meaning for it, in words.
    pub fn placeholders(self) -> String {
        let of_it = NAMES.into_iter().filter(|(_, p)| p.is_of(self));
        let mut names: Vec<String> = of_it.map(|(_, p)| p.to_string()).collect();
        names.extend(["{service.NAME}".to_owned(), "{env:NAME}".to_owned()]);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        list(&names, "and")
    }
}

/// The name that was probably meant, in braces.
fn meant(name: &str) -> Option<String> {
    let quoted = |n: &str| format!("{{{n}}}");
    for (separator, first) in [('.', "service"), (':', "env")] {
        let prefix = name.split_once(separator).map(|(prefix, _)| prefix);
        if prefix.is_some_and(|prefix| nearest(prefix, [first]).is_some()) {
            return Some(quoted(&format!("{first}{separator}NAME")));
        }
    }
    let names = NAMES.iter().map(|(name, _)| *name);
    nearest(name, names).map(quoted)
}

/// Whether an environment's variable may have the name.
pub(in crate::job) fn is_variable(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_';
    name.chars().all(fits) && name.starts_with(|c: char| !c.is_ascii_digit())
}

impl fmt::Display for Placeholder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(name) => write!(f, "{{service.{name}}}"),
            Self::Env(name) => write!(f, "{{env:{name}}}"),
            Self::Port(number @ 1..) => write!(f, "{{port{number}}}"),
            other => {
                let found = NAMES.iter().find(|(_, known)| known == other);
                write!(f, "{{{}}}", found.map_or("", |(name, _)| name))
            }
        }
    }
}
