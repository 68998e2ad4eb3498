//! Which engine it is, and of which version.

use std::fmt;
use std::str::FromStr;

use robust_shared::nearest::instead_of;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::request::Request;

/// Versions that recorded exchanges are held against, oldest first.
const SGLANG: &[Version] = &[Version::new(0, 5, 23)];
const VLLM: &[Version] = &[Version::new(0, 32, 0)];
/// The built-in rollout is of the same build.
const ROBUST: &[Version] = &[Version::new(0, 1, 0)];

/// Where SGLang and the built-in rollout say what they are.
const SERVER_INFO: &str = "/server_info";
/// Where vLLM says it.
const VERSION: &str = "/version";
/// The key of `/server_info` that only the built-in rollout has.
pub(crate) const ROBUST_VERSION: &str = "robust_version";

/// An engine's make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// SGLang's server.
    Sglang,
    /// vLLM's server.
    Vllm,
    /// The built-in rollout: SGLang's API with keys of our own.
    Robust,
}

impl Kind {
    /// Every make, in the order in which they are listed to users.
    pub const ALL: [Kind; 3] = [Kind::Sglang, Kind::Vllm, Kind::Robust];

    /// The name in job files and commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Sglang => "sglang",
            Kind::Vllm => "vllm",
            Kind::Robust => "robust",
        }
    }

    /// The versions that were tried, oldest first.
    pub fn tested(self) -> &'static [Version] {
        match self {
            Kind::Sglang => SGLANG,
            Kind::Vllm => VLLM,
            Kind::Robust => ROBUST,
        }
    }

    /// The name as its makers write it.
    pub fn proper_name(self) -> &'static str {
        match self {
            Kind::Sglang => "SGLang",
            Kind::Vllm => "vLLM",
            Kind::Robust => "the built-in rollout",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// A name that is no engine's; the text says what was probably meant.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no engine is called `{name}`; {instead}")]
pub struct UnknownKind {
    name: String,
    instead: String,
}

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        let known = Kind::ALL.into_iter().find(|kind| kind.as_str() == name);
        known.ok_or_else(|| UnknownKind {
            name: name.to_owned(),
            instead: instead_of(name, &Kind::ALL.map(Kind::as_str), "the engines are"),
        })
    }
}

/// The numbers of a version; what follows them, such as `.post1` or `+cpu`, changes no dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    const fn new(major: u32, minor: u32, patch: u32) -> Self {
        Self {
            major,
            minor,
            patch,
        }
    }

    /// Reads the leading numbers of a text; none when it does not begin with two of them.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().trim_start_matches('v').splitn(4, '.');
        let mut number = || {
            let part = parts.next()?;
            let end = part.find(|c: char| !c.is_ascii_digit());
            part[..end.unwrap_or(part.len())].parse().ok()
        };
        let (major, minor) = (number()?, number()?);
        Some(Self::new(major, minor, number().unwrap_or(0)))
    }

    /// How far away another version is: a larger number counts before a smaller one.
    fn distance(self, other: Self) -> (u32, u32, u32) {
        (
            self.major.abs_diff(other.major),
            self.minor.abs_diff(other.minor),
            self.patch.abs_diff(other.patch),
        )
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// How one engine is spoken to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dialect {
    kind: Kind,
    version: String,
    spoken: Version,
}

impl Dialect {
    /// The dialect of a version as the engine says it. A version that was never tried is spoken to
    /// as the nearest one that was, see [`Dialect::caution`].
    pub fn new(kind: Kind, version: &str) -> Self {
        let newest = kind.tested()[kind.tested().len() - 1];
        let wanted = Version::parse(version).unwrap_or(newest);
        let tested = kind.tested().iter().copied();
        let spoken = tested.min_by_key(|tested| tested.distance(wanted));
        Self {
            kind,
            version: version.to_owned(),
            spoken: spoken.unwrap_or(newest),
        }
    }

    /// The dialect of the newest version that was tried.
    pub fn newest(kind: Kind) -> Self {
        let newest = kind.tested()[kind.tested().len() - 1];
        Self::new(kind, &newest.to_string())
    }

    /// The questions whose answers say what an engine is, to be asked in this order until
    /// [`Dialect::detect`] knows.
    pub fn questions() -> [Request; 2] {
        [Request::get(SERVER_INFO), Request::get(VERSION)]
    }

    /// What the engine is that answered a question of [`Dialect::questions`] with success; none
    /// when this reply does not say. vLLM answers `/server_info` too, but without its version.
    pub fn detect(path: &str, body: &str) -> Option<Self> {
        let body: Value = serde_json::from_str(body).ok()?;
        let text = |key: &str| body[key].as_str();
        match path {
            SERVER_INFO => match text(ROBUST_VERSION) {
                Some(version) => Some(Self::new(Kind::Robust, version)),
                None => Some(Self::new(Kind::Sglang, text("version")?)),
            },
            VERSION => Some(Self::new(Kind::Vllm, text("version")?)),
            _ => None,
        }
    }

    /// The engine's make.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The version as the engine says it.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The tried version as which it is spoken to.
    pub fn spoken(&self) -> Version {
        self.spoken
    }

    /// What a user is to be told of the version; none when exactly this one was tried.
    pub fn caution(&self) -> Option<String> {
        let (name, version, spoken) = (self.kind.proper_name(), &self.version, self.spoken);
        match Version::parse(version) {
            Some(version) if version == spoken => None,
            _ => Some(format!(
                "{name} {version} was never tried; it is spoken to as {spoken}"
            )),
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.version)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_engine_is_known_by_what_it_says_of_itself() {
        let known = |path, body| Dialect::detect(path, body).map(|d| (d.kind(), d.version));
        let sglang = r#"{"version": "0.5.23", "internal_states": [], "frontend": "python"}"#;
        assert_eq!(
            known(SERVER_INFO, sglang),
            Some((Kind::Sglang, "0.5.23".into()))
        );
        assert_eq!(known(SERVER_INFO, r#"{"vllm_config": "model=.."}"#), None);
        assert_eq!(
            known(VERSION, r#"{"version": "0.32.0"}"#),
            Some((Kind::Vllm, "0.32.0".into()))
        );
        let ours = r#"{"version": "0.5.23", "robust_version": "0.1.0"}"#;
        assert_eq!(
            known(SERVER_INFO, ours),
            Some((Kind::Robust, "0.1.0".into()))
        );
        for nothing in ["", "Not Found", "[]", r#"{"version": 1}"#] {
            assert_eq!(known(SERVER_INFO, nothing), None);
            assert_eq!(known(VERSION, nothing), None);
        }
    }

    #[test]
    fn a_version_never_tried_is_spoken_to_as_the_nearest_and_says_so() {
        let other = Dialect::new(Kind::Sglang, "0.5.9");
        assert_eq!(other.spoken().to_string(), "0.5.23");
        assert_eq!(
            other.caution().unwrap(),
            "SGLang 0.5.9 was never tried; it is spoken to as 0.5.23"
        );
        assert_eq!(Dialect::new(Kind::Vllm, "0.32.0+cpu").caution(), None);
        assert_eq!(Dialect::new(Kind::Sglang, "0.5.23.post1").caution(), None);
        assert!(Dialect::new(Kind::Vllm, "main").caution().is_some());
    }

    #[test]
    fn an_engines_name_is_read_and_a_typo_is_told() {
        for kind in Kind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert_eq!(
            "sglnag".parse::<Kind>().unwrap_err().to_string(),
            "no engine is called `sglnag`; did you mean `sglang`?"
        );
    }
}
