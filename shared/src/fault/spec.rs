//! A fault as it is written down: a kind and what goes with it, none of it checked yet.
use super::{Fault, Kind};
use crate::ids::InstanceId;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What may go with a kind. The same names in drill files, in the protocol and, as flags, on the
/// command line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Spec {
    /// The kind's name.
    pub kind: String,
    /// `exit`: the code [default: 1].
    pub code: Option<u32>,
    /// How long it lasts [default: 10].
    pub seconds: Option<f64>,
    /// `slow`: the part of the time it runs, in percent [default: 50].
    pub percent: Option<u32>,
    /// `stall-network`, `cut-network`: the other instance, as `rollout-1`.
    pub peer: Option<String>,
    /// `lose-node`: the node's name.
    pub node: Option<String>,
    /// `hardware`: what the device shows.
    pub event: Option<String>,
}

/// Why something written down is no fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// No kind has this name.
    #[error("unknown fault `{name}`; {hint}")]
    Unknown {
        /// What was written.
        name: String,
        /// What was probably meant, or what there is.
        hint: String,
    },
    /// The kind needs something more.
    #[error("`{kind}` needs {what}")]
    Needs {
        /// The kind.
        kind: Kind,
        /// What is missing, with an example.
        what: &'static str,
    },
    /// The kind has no use for it.
    #[error("`{kind}` takes no `{what}`; remove it")]
    NotTaken {
        /// The kind.
        kind: Kind,
        /// What is too much.
        what: &'static str,
    },
    /// A value out of its range.
    #[error("`{kind}`: {what} must be {must}, not {found}")]
    Range {
        /// The kind.
        kind: Kind,
        /// Which value.
        what: &'static str,
        /// Its range.
        must: &'static str,
        /// What it is.
        found: String,
    },
    /// Not an instance.
    #[error("`{peer}` is no instance; write role and number, as in `rollout-1`")]
    Peer {
        /// What was written.
        peer: String,
    },
    /// Nothing a device can show.
    #[error("unknown hardware event `{event}`; {hint}")]
    Event {
        /// What was written.
        event: String,
        /// What was probably meant, or what there is.
        hint: String,
    },
    /// Words after the kind that say nothing.
    #[error("`{kind}`: nothing is known of `{word}`")]
    Word {
        /// The kind.
        kind: Kind,
        /// The word.
        word: String,
    },
}

/// The longest that a fault may last: nothing that an operator forgot stays for days.
const LONGEST_S: f64 = 3600.0;
const DEFAULT_S: f64 = 10.0;

impl Spec {
    /// A kind with nothing that goes with it.
    pub fn of(kind: Kind) -> Self {
        Self {
            kind: kind.name().to_owned(),
            ..Self::default()
        }
    }

    /// Reads a line such as `slow 20% 10s`, `exit 3`, `stall-network rollout-2 5s`; the order of the
    /// words after the kind does not matter.
    pub fn parse(text: &str) -> Result<Self, FaultError> {
        let mut words = text.split_whitespace();
        let kind: Kind = words.next().unwrap_or_default().parse()?;
        let mut spec = Self::of(kind);
        for word in words {
            spec.take(kind, word)?;
        }
        Ok(spec)
    }

    fn take(&mut self, kind: Kind, word: &str) -> Result<(), FaultError> {
        let percent = || word.strip_suffix('%')?.parse().ok();
        let seconds = || word.strip_suffix('s')?.parse().ok();
        let text = || Some(word.to_owned());
        match kind {
            Kind::LoseNode if self.node.is_none() => self.node = text(),
            Kind::Hardware if self.event.is_none() => self.event = text(),
            Kind::Exit if self.code.is_none() => self.code = word.parse().ok(),
            _ if percent().is_some() => self.percent = percent(),
            _ if seconds().is_some() => self.seconds = seconds(),
            Kind::StallNetwork | Kind::CutNetwork if self.peer.is_none() => self.peer = text(),
            _ => return Err(unknown_word(kind, word)),
        }
        match (kind, self.code) {
            (Kind::Exit, None) => Err(unknown_word(kind, word)),
            _ => Ok(()),
        }
    }

    /// The fault; refused when something is missing, too much or out of its range.
    pub fn fault(&self) -> Result<Fault, FaultError> {
        let kind: Kind = self.kind.parse()?;
        self.check_extra(kind)?;
        Ok(match kind {
            Kind::Kill => Fault::Kill,
            Kind::Exit => Fault::Exit {
                code: self.code(kind)?,
            },
            Kind::Hang => Fault::Hang,
            Kind::Slow => Fault::Slow {
                percent: self.part(kind)?,
                lasts: self.lasts(kind)?,
            },
            Kind::Oom => Fault::Oom,
            Kind::Exception => Fault::Exception,
            Kind::Nan => Fault::Nan,
            Kind::CorruptWeights => Fault::CorruptWeights,
            Kind::StallNetwork => Fault::StallNetwork {
                peer: self.peer(kind)?,
                lasts: self.lasts(kind)?,
            },
            Kind::CutNetwork => Fault::CutNetwork {
                peer: self.peer(kind)?,
            },
            Kind::KillTool => Fault::KillTool {
                lasts: self.lasts(kind)?,
            },
            Kind::HangTool => Fault::HangTool {
                lasts: self.lasts(kind)?,
            },
            Kind::KillEngineChild => Fault::KillEngineChild,
            Kind::KillEngineLeader => Fault::KillEngineLeader,
            Kind::HangEngine => Fault::HangEngine,
            Kind::PauseEngine => Fault::PauseEngine {
                lasts: self.lasts(kind)?,
            },
            Kind::CorruptCheckpoint => Fault::CorruptCheckpoint,
            Kind::LoseSlot => Fault::LoseSlot,
            Kind::LoseNode => {
                let node = self.node.clone().filter(|n| !n.is_empty());
                let what = "the node's name";
                let node = node.ok_or(FaultError::Needs { kind, what })?;
                Fault::LoseNode { node }
            }
            Kind::DiskFull => Fault::DiskFull {
                lasts: self.lasts(kind)?,
            },
            Kind::NoProcesses => Fault::NoProcesses {
                lasts: self.lasts(kind)?,
            },
            Kind::Hardware => {
                let what = "an event, such as `xid-48`";
                let event = self.event.as_deref();
                let event = event.ok_or(FaultError::Needs { kind, what })?;
                Fault::Hardware {
                    event: event.parse()?,
                }
            }
            Kind::LeaderCrash => Fault::LeaderCrash,
        })
    }

    fn check_extra(&self, kind: Kind) -> Result<(), FaultError> {
        use Kind::{CutNetwork, DiskFull, Exit, HangTool, Hardware, KillTool, LoseNode};
        use Kind::{NoProcesses, PauseEngine, Slow, StallNetwork};
        let given: [(&'static str, bool, &[Kind]); 6] = [
            ("code", self.code.is_some(), &[Exit]),
            (
                "seconds",
                self.seconds.is_some(),
                &[
                    Slow,
                    StallNetwork,
                    HangTool,
                    KillTool,
                    PauseEngine,
                    DiskFull,
                    NoProcesses,
                ],
            ),
            ("percent", self.percent.is_some(), &[Slow]),
            ("peer", self.peer.is_some(), &[StallNetwork, CutNetwork]),
            ("node", self.node.is_some(), &[LoseNode]),
            ("event", self.event.is_some(), &[Hardware]),
        ];
        let extra = given
            .into_iter()
            .find(|(_, given, kinds)| *given && !kinds.contains(&kind));
        extra.map_or(Ok(()), |(what, ..)| {
            Err(FaultError::NotTaken { kind, what })
        })
    }

    fn code(&self, kind: Kind) -> Result<u8, FaultError> {
        let code = self.code.unwrap_or(1);
        u8::try_from(code).map_err(|_| FaultError::Range {
            kind,
            what: "the code",
            must: "0 to 255",
            found: code.to_string(),
        })
    }

    /// Not less than 5%: below, a busy process looks like one that hangs.
    fn part(&self, kind: Kind) -> Result<u8, FaultError> {
        let percent = self.percent.unwrap_or(50);
        let fits = u8::try_from(percent).ok();
        fits.filter(|p| (5..=95).contains(p))
            .ok_or_else(|| FaultError::Range {
                kind,
                what: "the percentage",
                must: "5 to 95 (for 0, use `hang`)",
                found: percent.to_string(),
            })
    }

    fn lasts(&self, kind: Kind) -> Result<Duration, FaultError> {
        let seconds = self.seconds.unwrap_or(DEFAULT_S);
        match seconds > 0.0 && seconds <= LONGEST_S {
            true => Ok(Duration::from_secs_f64(seconds)),
            false => Err(FaultError::Range {
                kind,
                what: "the time in seconds",
                must: "above 0 and at most 3600",
                found: seconds.to_string(),
            }),
        }
    }

    fn peer(&self, kind: Kind) -> Result<InstanceId, FaultError> {
        let what = "a peer, such as `rollout-1`";
        let peer = self.peer.as_deref();
        let peer = peer.ok_or(FaultError::Needs { kind, what })?;
        peer.parse().map_err(|_| FaultError::Peer {
            peer: peer.to_owned(),
        })
    }
}

fn unknown_word(kind: Kind, word: &str) -> FaultError {
    FaultError::Word {
        kind,
        word: word.to_owned(),
    }
}

/// A fault written down; [`Spec::fault`] gives it back.
impl From<&Fault> for Spec {
    fn from(fault: &Fault) -> Self {
        let mut spec = Self::of(fault.kind());
        spec.peer = fault.peer().map(|p| p.to_string());
        match fault {
            Fault::Exit { code } => spec.code = Some((*code).into()),
            Fault::Slow { percent, lasts } => {
                spec.percent = Some((*percent).into());
                spec.seconds = Some(lasts.as_secs_f64());
            }
            Fault::StallNetwork { lasts, .. }
            | Fault::HangTool { lasts }
            | Fault::KillTool { lasts }
            | Fault::PauseEngine { lasts }
            | Fault::DiskFull { lasts }
            | Fault::NoProcesses { lasts } => spec.seconds = Some(lasts.as_secs_f64()),
            Fault::LoseNode { node } => spec.node = Some(node.clone()),
            Fault::Hardware { event } => spec.event = Some(event.to_string()),
            _ => {}
        }
        spec
    }
}
