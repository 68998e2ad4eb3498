//! Faults that the real engines have or may have, switched on by name.

use serde::{Deserialize, Serialize};

/// The variable that holds quirks, separated by commas, besides those of `--quirk`.
pub const ENV: &str = "FAKE_ENGINE_QUIRKS";

/// What a life of the engine does otherwise than a sound one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Quirks {
    /// `hang[=TOKENS]`: after so many tokens no request gets another; `/health` goes on with 200.
    pub hang_after: Option<u64>,
    /// `orphan-children`: the children outlive their leader, however it ends.
    pub orphan_children: bool,
    /// `slow-pause[=SECONDS]`: a pause takes so much longer.
    pub slow_pause_s: f64,
    /// `lying-reload[=LOADS]`: so many loads are acknowledged, and tokens go on as before.
    pub lying_loads: u64,
    /// `wrong-reload=FIRST`: that load and the one after it are acknowledged, and other numbers are in
    /// memory than the folder has.
    pub wrong_from: Option<u64>,
    /// `stale-kv`: a prompt seen before is answered from the weights of then, until a flush.
    pub stale_kv: bool,
    /// `die-in-load`: a load kills the process that does it.
    pub die_in_load: bool,
    /// `poison=TOKEN[+TOKEN..]`: a request that begins with these tokens, or has the only one, kills the
    /// process that works on it.
    pub poison: Vec<u32>,
    /// `exit-zero`: the leader ends with 0 when a child of it dies.
    pub exit_zero: bool,
    /// `late-start=SECONDS`: so long nothing listens.
    pub late_start_s: f64,
    /// `never-ready`: nothing ever listens.
    pub never_ready: bool,
    /// `bad-logprobs[=OFFSET]`: log probabilities are told with this added.
    pub logprob_offset: f64,
    /// `hang-wake[=WAKES]`: after so many wake-ups the next one is never answered.
    pub hang_wake: Option<u64>,
    /// `forgetful-wake`: keys and values that come again lie over the weights.
    pub forgetful_wake: bool,
}

impl Quirks {
    /// Whether this load, counted from 1, goes wrong.
    pub fn is_wrong(&self, load: u64) -> bool {
        let first = self.wrong_from;
        first.is_some_and(|first| (first..first + 2).contains(&load))
    }

    /// Whether a request with these tokens kills who works on it.
    pub fn is_poisoned(&self, ids: &[u32]) -> bool {
        match self.poison.as_slice() {
            [] => false,
            [only] => ids.contains(only),
            all => ids.starts_with(all),
        }
    }
}

/// A quirk that cannot be switched on as it was written.
#[derive(Debug, thiserror::Error)]
pub enum QuirkError {
    /// There is no quirk of that name.
    #[error("no quirk is named {0:?}; they are {list}", list = NAMES.join(", "))]
    Unknown(String),
    /// The quirk needs another argument than it got.
    #[error("quirk {name}: {text:?} is not {wanted}")]
    Argument {
        name: String,
        text: String,
        wanted: &'static str,
    },
}

const NAMES: [&str; 14] = [
    "hang",
    "orphan-children",
    "slow-pause",
    "lying-reload",
    "wrong-reload",
    "stale-kv",
    "die-in-load",
    "poison",
    "exit-zero",
    "late-start",
    "never-ready",
    "bad-logprobs",
    "hang-wake",
    "forgetful-wake",
];

impl Quirks {
    /// Reads quirks as `NAME` or `NAME=ARG`.
    pub fn parse<'a>(all: impl IntoIterator<Item = &'a str>) -> Result<Self, QuirkError> {
        let mut quirks = Self::default();
        for text in all.into_iter().map(str::trim).filter(|t| !t.is_empty()) {
            quirks.add(text)?;
        }
        Ok(quirks)
    }

    fn add(&mut self, text: &str) -> Result<(), QuirkError> {
        let (name, arg) = text
            .split_once('=')
            .map_or((text, None), |(n, a)| (n, Some(a)));
        match name {
            "hang" => self.hang_after = Some(number(name, arg.or(Some("0")))?),
            "orphan-children" => self.orphan_children = true,
            "slow-pause" => self.slow_pause_s = number(name, arg.or(Some("5")))?,
            "lying-reload" => {
                self.lying_loads = arg.map_or(Ok(u64::MAX), |a| number(name, Some(a)))?
            }
            "wrong-reload" => self.wrong_from = Some(number(name, arg)?),
            "stale-kv" => self.stale_kv = true,
            "die-in-load" => self.die_in_load = true,
            "poison" => {
                let tokens = arg.unwrap_or_default().split('+');
                let tokens = tokens.map(|token| number(name, Some(token)));
                self.poison = tokens.collect::<Result<_, _>>()?;
            }
            "exit-zero" => self.exit_zero = true,
            "late-start" => self.late_start_s = number(name, arg)?,
            "never-ready" => self.never_ready = true,
            "bad-logprobs" => self.logprob_offset = number(name, arg.or(Some("-1")))?,
            "hang-wake" => self.hang_wake = Some(number(name, arg.or(Some("0")))?),
            "forgetful-wake" => self.forgetful_wake = true,
            _ => return Err(QuirkError::Unknown(name.to_owned())),
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(name: &str, arg: Option<&str>) -> Result<T, QuirkError> {
    let text = arg.unwrap_or_default();
    text.parse().map_err(|_| QuirkError::Argument {
        name: name.to_owned(),
        text: text.to_owned(),
        wanted: "a number",
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn quirks_are_read_with_and_without_an_argument() {
        let quirks = Quirks::parse(["hang=10", "lying-reload", "poison=7", " exit-zero "]).unwrap();
        assert_eq!(quirks.hang_after, Some(10));
        assert_eq!(quirks.lying_loads, u64::MAX);
        assert_eq!(quirks.poison, [7]);
        assert!(quirks.is_poisoned(&[1, 7]) && !quirks.is_poisoned(&[1]));
        let quirks = Quirks::parse(["poison=7+8"]).unwrap();
        assert!(quirks.is_poisoned(&[7, 8, 1]) && !quirks.is_poisoned(&[1, 7, 8]));
        let quirks = Quirks::parse(["hang=10", "lying-reload", " exit-zero "]).unwrap();
        assert!(!quirks.is_poisoned(&[7]));
        assert!(quirks.exit_zero && !quirks.stale_kv);
    }

    #[test]
    fn what_is_no_quirk_is_refused_with_the_names_that_are() {
        let error = Quirks::parse(["hagn"]).unwrap_err().to_string();
        assert!(
            error.contains("\"hagn\"") && error.contains("hang"),
            "{error}"
        );
        let error = Quirks::parse(["poison=x"]).unwrap_err().to_string();
        assert_eq!(error, "quirk poison: \"x\" is not a number");
    }
}
