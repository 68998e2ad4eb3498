//! A table of causes with their rates, from which a trace is drawn.
use super::rows::{Class, Fault, LONGEST, Trace};
use robust_ahead::cluster::{LongTail, unit};
use robust_ahead::dice::Dice;
use serde::Deserialize;
use std::time::Duration;

/// Causes, as so many machines met them in so many days.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mix {
    /// Machines of the cluster where they were counted.
    pub nodes: u32,
    /// Days in which they were.
    pub days: f64,
    /// Machines that fail more often than others.
    #[serde(default)]
    pub offenders: Option<Offenders>,
    /// The causes.
    #[serde(rename = "cause")]
    pub causes: Vec<Counted>,
}

/// One cause.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counted {
    /// Its name.
    pub name: String,
    /// How often it was met.
    pub count: f64,
    /// What becomes of a machine.
    pub class: Class,
    /// Hours that a machine is away; half of them take less.
    #[serde(default)]
    pub repair_h: Option<f64>,
    /// Spread of the logarithm of those hours; 0: all are equal.
    #[serde(default)]
    pub spread: f64,
    /// Neighbours that are struck at once, as when a switch or a rack's power fails.
    #[serde(default = "one")]
    pub at_once: u32,
}

/// Machines that fail more often.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Offenders {
    /// Their part of all, 0 to 1.
    pub share: f64,
    /// How many times as often as the others.
    pub times: f64,
}

fn one() -> u32 {
    1
}

impl Mix {
    /// Reads one; what is wrong with it is told with its place.
    pub fn from_toml(text: &str) -> Result<Self, String> {
        let mix: Self = toml::from_str(text).map_err(|e| e.to_string())?;
        let is_fine = |n: f64| n.is_finite() && n >= 0.0;
        if mix.nodes == 0 || !is_fine(mix.days) || mix.days == 0.0 {
            return Err(
                "`nodes` and `days` say where the causes were counted: both above 0".into(),
            );
        }
        for cause in &mix.causes {
            let name = &cause.name;
            let numbers = [cause.count, cause.spread, cause.repair_h.unwrap_or(0.0)];
            if !numbers.into_iter().all(is_fine) || cause.at_once == 0 {
                return Err(format!("`{name}`: its numbers must not be below 0"));
            }
            if cause.repair_h.is_some() && !cause.class.takes_the_machine() {
                let class = cause.class;
                return Err(format!(
                    "`{name}`: a machine stays where the class is {class}: no repair_h"
                ));
            }
        }
        match mix.offenders {
            Some(o) if !(0.0..=1.0).contains(&o.share) || !is_fine(o.times) => {
                Err("`offenders`: a share from 0 to 1, and how many times as often".to_owned())
            }
            _ => Ok(mix),
        }
    }

    /// Faults a day of so many machines.
    pub fn a_day(&self, machines: u32) -> f64 {
        let all: f64 = self.causes.iter().map(|cause| cause.count).sum();
        all / self.days * f64::from(machines) / f64::from(self.nodes)
    }

    /// The faults of so many machines, numbered from 0, in that time. Each cause is independent of the others
    /// and of itself: the time to its next fault is exponential.
    pub fn draw(&self, machines: u32, time: Duration, seed: u64) -> Trace {
        let time = time.min(LONGEST);
        let often = self.often(machines, seed);
        let all: f64 = often.iter().sum();
        let mut faults = Vec::new();
        for (cause, key) in self.causes.iter().zip(1..) {
            let mut dice = Dice::keyed(seed, key);
            let a_second =
                cause.count / (self.days * 86_400.0) * f64::from(machines) / f64::from(self.nodes);
            let mut at = 0.0;
            loop {
                at += -unit(&mut dice).ln() / a_second;
                // Also where nothing of it ever comes.
                if at.is_nan() || at > time.as_secs_f64() {
                    break;
                }
                let first = pick(&often, all, unit(&mut dice));
                for of in 0..cause.at_once.min(machines) {
                    faults.push(Fault {
                        at: Duration::from_secs_f64(at),
                        node: ((first + of) % machines).to_string(),
                        class: cause.class,
                        cause: cause.name.clone(),
                        repair: cause.repair(&mut dice),
                        line: 0,
                    });
                }
            }
        }
        Trace::new(faults)
    }

    /// How often each machine fails, against one of the others.
    fn often(&self, machines: u32, seed: u64) -> Vec<f64> {
        let mut often = vec![1.0; machines as usize];
        let Some(Offenders { share, times }) = self.offenders else {
            return often;
        };
        let mut dice = Dice::keyed(seed, 0x6f66_6665);
        let mut left = (f64::from(machines) * share).round() as usize;
        while left > 0 && times != 1.0 {
            let at = usize::try_from(dice.below(machines.into())).unwrap_or(0);
            if often[at] == 1.0 {
                often[at] = times;
                left -= 1;
            }
        }
        often
    }
}

impl Counted {
    fn repair(&self, dice: &mut Dice) -> Option<Duration> {
        let hours = self.repair_h?;
        let length = LongTail {
            median: Duration::from_secs_f64(hours * 3600.0),
            sigma: self.spread,
            max: LONGEST,
        };
        Some(length.draw(dice))
    }
}

/// The one at this part of all.
fn pick(often: &[f64], all: f64, part: f64) -> u32 {
    let mut left = part * all;
    for (number, weight) in (0..).zip(often) {
        left -= weight;
        if left <= 0.0 {
            return number;
        }
    }
    u32::try_from(often.len().saturating_sub(1)).unwrap_or(0)
}
