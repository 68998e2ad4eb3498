//! How a role is run.
use crate::ids::Role;
use crate::job::{
    Dtype, EngineKind, EngineWeights, Job, Level as ProgramLevel, Needed, RolloutCommand, Service,
    Verification,
};
use crate::wire::HostingKind;
use std::fmt;

/// A role, and how it is run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosted {
    /// The role's name, or a service's.
    pub role: String,
    /// How.
    pub hosting: Hosting,
}

/// How a role is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hosting {
    /// By `robust-worker`.
    BuiltIn,
    /// By an engine of the user's, with `robust-shim` beside it.
    Engine(Engine),
    /// By a program of the user's, with `robust-shim` beside it.
    Program(Program),
    /// By environments of the user's, with `robust-shim` beside them.
    Environment,
    /// By any other program of the user's, which `robust-shim` watches.
    Service {
        /// What its absence does to the job.
        needed: Needed,
    },
}

/// What of a trainer's command decides what is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// What of the package it uses.
    pub level: ProgramLevel,
    /// Its state is kept for it.
    pub keeps_state: bool,
}

/// What of an engine's command decides what is promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Its make.
    pub kind: EngineKind,
    /// How weights come into it.
    pub weights: EngineWeights,
    /// Its checksums of its parameters are compared.
    pub checksums: bool,
    /// Its answer to a canary is compared.
    pub canary: bool,
}

impl Hosted {
    /// A role of a job.
    pub(super) fn role(job: &Job, role: Role) -> Self {
        let command = job.rollout.command.as_ref().filter(|_| role.is_engine());
        let trainer = job.trainer.command.as_ref();
        let program = trainer.filter(|_| role == Role::Trainer);
        let hosting = match (command, program) {
            (Some(command), _) => Hosting::Engine(Engine::of(command)),
            (None, Some(program)) => Hosting::Program(Program {
                level: program.level,
                keeps_state: job.own_loop().is_none_or(|own| own.keeps_state),
            }),
            (None, None) if role == Role::Agent && job.agent.command.is_some() => {
                Hosting::Environment
            }
            (None, None) => Hosting::BuiltIn,
        };
        let role = role.name().to_owned();
        Self { role, hosting }
    }

    /// A service of a job.
    pub(super) fn service(name: &str, service: &Service) -> Self {
        let needed = service.needed;
        Self {
            role: name.to_owned(),
            hosting: Hosting::Service { needed },
        }
    }
}

impl Hosting {
    /// Which kind of it, as JSON has it.
    pub fn kind(self) -> HostingKind {
        match self {
            Self::BuiltIn => HostingKind::BuiltIn,
            Self::Engine(_) => HostingKind::Engine,
            Self::Program(_) => HostingKind::Program,
            Self::Environment => HostingKind::Environment,
            Self::Service { .. } => HostingKind::Service,
        }
    }
}

impl Engine {
    /// As a command has it. Of an engine that rounds what it was given checksums say nothing.
    pub(super) fn of(command: &RolloutCommand) -> Self {
        let looks_at = |what| command.verify.contains(&what);
        Self {
            kind: command.kind,
            weights: command.weights,
            checksums: looks_at(Verification::Checksum) && command.dtype == Dtype::Float32,
            canary: looks_at(Verification::Canary),
        }
    }
}

impl fmt::Display for Hosting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BuiltIn => f.write_str("built-in"),
            Self::Service { .. } => f.write_str("a service of yours"),
            Self::Environment => f.write_str("environments of yours behind robust-shim"),
            Self::Program(Program { level, .. }) => {
                let level = level.name();
                write!(f, "a program of yours (level {level}) behind robust-shim")
            }
            Self::Engine(Engine { kind, weights, .. }) => {
                let (kind, weights) = (kind.name(), weights.name());
                write!(
                    f,
                    "an engine of yours ({kind}) behind robust-shim, weights \"{weights}\""
                )
            }
        }
    }
}
