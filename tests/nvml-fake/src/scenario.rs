//! What the devices show in which round. Round 0 is that in which the library is opened, the first
//! reading is round 1.
//!
//! ```toml
//! driver = "580.95.05"
//! [[device]]
//! gpm = true              # figures from round 0 on
//! temperature_c = 34
//! [[device.at]]           # from round 3 on these differ
//! round = 3
//! xids = [48]
//! ```
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a device shows. What is not given is not supported.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct Figures {
    /// Whether GPM is there (Hopper and later).
    pub gpm: Option<bool>,
    /// Time any kernel ran, percent.
    pub util: Option<u32>,
    /// Multiprocessors in use, percent.
    pub sm: Option<f64>,
    /// Tensor cores in use, percent.
    pub tensor: Option<f64>,
    /// Bytes.
    pub memory_used: Option<u64>,
    /// Bytes.
    pub memory_total: Option<u64>,
    /// Degrees.
    pub temperature_c: Option<u32>,
    /// Watts.
    pub power_w: Option<f64>,
    /// Since the driver was loaded; the life's counts are 100 more.
    pub ecc_corrected: Option<u64>,
    /// Since the driver was loaded; the life's counts are 100 more.
    pub ecc_uncorrected: Option<u64>,
    /// More corrected errors in every round from this one on.
    pub ecc_corrected_per_round: Option<u64>,
    /// Rows replaced for corrected and for uncorrected errors.
    pub remapped_rows: Option<u64>,
    /// A row waits.
    pub remap_pending: Option<bool>,
    /// A row could not be replaced.
    pub remap_failed: Option<bool>,
    /// NVML's bits of why the clocks are low.
    pub throttle: Option<u64>,
    /// NVLinks; absent where there are none.
    pub nvlinks: Option<u32>,
    /// Of every link.
    pub nvlink_replays: Option<u64>,
    /// Of every link.
    pub nvlink_recoveries: Option<u64>,
    /// Counted.
    pub pcie_replays: Option<u32>,
    /// Process ids.
    pub processes: Option<Vec<u32>>,
    /// Raised when this round begins.
    pub xids: Vec<u64>,
    /// The call (part of its symbol's name) from which on the device is lost.
    pub lost_at: Option<String>,
    /// The call that never returns while the figures are these.
    pub hangs_at: Option<String>,
}

/// A device's figures from a round on.
#[derive(Clone, Debug, Deserialize)]
struct Frame {
    round: u64,
    #[serde(flatten)]
    figures: BTreeMap<String, toml::Value>,
}

#[derive(Clone, Debug, Deserialize)]
struct Device {
    #[serde(default)]
    at: Vec<Frame>,
    #[serde(flatten)]
    base: BTreeMap<String, toml::Value>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    driver: String,
    #[serde(rename = "device", default)]
    devices: Vec<Device>,
}

/// Something more, shown while the scenario is played: from the next round on, on the device that
/// this process uses, else on the first.
#[derive(Clone, Debug, Deserialize)]
pub struct Strike {
    pid: u32,
    #[serde(flatten)]
    figures: BTreeMap<String, toml::Value>,
}

#[derive(Debug, Default, Deserialize)]
struct Strikes {
    #[serde(default)]
    strike: Vec<Strike>,
}

/// Why a scenario cannot be played.
#[derive(Debug)]
pub enum ScenarioError {
    /// It cannot be read.
    Unreadable(PathBuf, std::io::Error),
    /// It is not one.
    Wrong(PathBuf, Box<toml::de::Error>),
}

impl std::fmt::Display for ScenarioError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Wrong(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

/// A scenario: per device the figures of each frame, merged with those before it.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The driver's version.
    pub driver: String,
    devices: Vec<Vec<(u64, Figures)>>,
}

impl Scenario {
    /// Reads one.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| ScenarioError::Unreadable(path.to_owned(), error))?;
        Self::parse(&text).map_err(|error| ScenarioError::Wrong(path.to_owned(), Box::new(error)))
    }

    fn parse(text: &str) -> Result<Self, toml::de::Error> {
        let file: File = toml::from_str(text)?;
        let devices = file.devices.into_iter().map(frames);
        Ok(Self {
            driver: file.driver,
            devices: devices.collect::<Result<_, _>>()?,
        })
    }

    /// How many devices.
    pub fn count(&self) -> u32 {
        u32::try_from(self.devices.len()).unwrap_or(u32::MAX)
    }

    /// The strikes in the file beside the scenario; none while there is no file.
    pub fn strikes(scenario: &Path) -> Vec<Strike> {
        let text = std::fs::read_to_string(scenario.with_extension("strikes.toml"));
        let strikes = text.ok().and_then(|t| toml::from_str::<Strikes>(&t).ok());
        strikes.unwrap_or_default().strike
    }

    /// The device that a strike is for, now that the rounds of the devices are these.
    pub fn struck(&self, strike: &Strike, round: impl Fn(u32) -> u64) -> u32 {
        let uses = |device: &u32| {
            let processes = self.figures(*device, round(*device)).processes;
            processes.is_some_and(|p| p.contains(&strike.pid))
        };
        (0..self.count()).find(uses).unwrap_or(0)
    }

    /// Shows a strike from a round on; figures that nobody knows are shown to nobody.
    pub fn strike(&mut self, device: u32, round: u64, strike: &Strike) {
        let mut shown = self.figures(device, round);
        shown.xids.clear();
        // Whoever is struck on a device computes on it, whether the recording knows of it or not.
        let processes = shown.processes.get_or_insert_default();
        if !processes.contains(&strike.pid) {
            processes.push(strike.pid);
        }
        let Ok(toml::Value::Table(mut values)) = toml::Value::try_from(&shown) else {
            return;
        };
        values.extend(strike.figures.clone());
        let figures = toml::Value::Table(values).try_into();
        if let (Some(frames), Ok(figures)) = (self.devices.get_mut(device as usize), figures) {
            // What the scenario had planned for later is over with the first strike.
            frames.retain(|(from, _)| *from < round);
            frames.push((round, figures));
        }
    }

    /// What a device shows in a round.
    pub fn figures(&self, device: u32, round: u64) -> Figures {
        let frames = self.devices.get(device as usize).map_or(&[][..], |f| f);
        let Some((from, figures)) = frames.iter().rev().find(|(from, _)| *from <= round) else {
            return Figures::default();
        };
        let mut figures = figures.clone();
        if round != *from {
            figures.xids.clear();
        }
        let more = figures.ecc_corrected_per_round.unwrap_or_default() * (round - from);
        figures.ecc_corrected = figures.ecc_corrected.map(|n| n + more);
        figures
    }
}

fn frames(device: Device) -> Result<Vec<(u64, Figures)>, toml::de::Error> {
    let mut values = device.base;
    let figures = |v: &BTreeMap<String, toml::Value>| -> Result<Figures, toml::de::Error> {
        toml::Value::Table(v.clone().into_iter().collect()).try_into()
    };
    let mut all = vec![(0, figures(&values)?)];
    for frame in device.at {
        // Raised once, not in every later frame.
        values.remove("xids");
        values.extend(frame.figures);
        all.push((frame.round, figures(&values)?));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn later_frames_change_what_they_name_and_xids_are_raised_once() {
        let text = "driver = '1'\n[[device]]\ntemperature_c = 30\necc_corrected = 5\n\
                    [[device.at]]\nround = 2\nxids = [48]\necc_corrected_per_round = 3\n\
                    [[device.at]]\nround = 5\ntemperature_c = 90\n";
        let s = Scenario::parse(text).unwrap();
        let seen: Vec<_> = (0..6)
            .map(|round| s.figures(0, round))
            .map(|f| (f.temperature_c, f.ecc_corrected, f.xids))
            .collect();
        let cool = |ecc, xids| (Some(30), Some(ecc), xids);
        assert_eq!(seen[1], cool(5, vec![]));
        assert_eq!(seen[2], cool(5, vec![48]));
        assert_eq!(seen[4], cool(11, vec![]));
        assert_eq!(seen[5], (Some(90), Some(5), vec![]));
    }

    #[test]
    fn a_strike_is_shown_on_the_device_of_its_process_from_its_round_on() {
        let text = "driver = '1'\n[[device]]\nprocesses = [7]\n\
                    [[device]]\nprocesses = [8]\ntemperature_c = 30\n";
        let mut s = Scenario::parse(text).unwrap();
        let strikes: Strikes = toml::from_str("[[strike]]\npid = 8\nxids = [48]\n").unwrap();
        let strike = &strikes.strike[0];
        assert_eq!(s.struck(strike, |_| 4), 1);
        s.strike(1, 5, strike);
        let seen = |round| (s.figures(1, round).xids, s.figures(1, round).temperature_c);
        assert_eq!(seen(4), (vec![], Some(30)));
        assert_eq!(seen(5), (vec![48], Some(30)));
        assert_eq!(seen(6), (vec![], Some(30)));
        assert_eq!(s.figures(0, 5).xids, [] as [u64; 0]);
        assert_eq!(s.figures(1, 6).processes, Some(vec![8]));
    }

    #[test]
    fn a_struck_process_that_no_recording_knows_of_computes_on_the_first_device_from_then_on() {
        let mut s = Scenario::parse("driver = '1'\n[[device]]\nutil = 9\n").unwrap();
        let strikes: Strikes = toml::from_str("[[strike]]\npid = 8\nxids = [48]\n").unwrap();
        let strike = &strikes.strike[0];
        assert_eq!(s.struck(strike, |_| 4), 0);
        s.strike(0, 5, strike);
        assert_eq!(s.figures(0, 4).processes, None);
        assert_eq!(s.figures(0, 6).processes, Some(vec![8]));
    }

    #[test]
    fn a_figure_nobody_knows_is_refused() {
        let error = Scenario::parse("driver = '1'\n[[device]]\ntemprature = 30\n").unwrap_err();
        assert!(error.to_string().contains("temprature"), "{error}");
    }

    #[test]
    fn every_recorded_scenario_can_be_played() {
        let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/nvml");
        let mut played = 0;
        for entry in std::fs::read_dir(dir).unwrap() {
            let scenario = Scenario::read(&entry.unwrap().path());
            assert!(
                scenario.as_ref().is_ok_and(|s| s.count() > 0),
                "{scenario:?}"
            );
            played += 1;
        }
        assert!(played >= 11, "{played}");
    }
}
