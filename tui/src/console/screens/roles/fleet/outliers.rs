//! Who stands out: by what the controller says of them, then by figures that are far from those of the others of their role.
//!
//! The status does not say when an instance was last heard of: one whose beats are late is `suspect` by the controller's own
//! rules, which know what is late in which phase.
use super::health::Health;
use crate::format::{count, is_engine, millis_tight};
use robust_proto::v1::RoleStatus;
use robust_shared::outliers::Usual;
use robust_shared::phase::Phase;
use robust_shared::wire::InstanceState;
use std::collections::BTreeMap;

/// An engine's rate is a mean over some two seconds: after so long in its phase (ms) it says nothing of what was before.
const SETTLED_MS: u64 = 5_000;

/// A figure that is compared within a role.
#[derive(Debug)]
struct Figure {
    /// None where it says nothing of an instance.
    of: fn(&RoleStatus) -> Option<f64>,
    /// The smallest spread that means anything, given the median.
    grain: fn(f64) -> f64,
    /// Being far below is what stands out, or being far above.
    below: bool,
    /// The figure and the median, in words.
    words: fn(f64, f64) -> String,
}

/// With a spread of a tenth of the median a figure stands out that is more than half of it away.
fn tenth(median: f64) -> f64 {
    median / 10.0
}

static FIGURES: [Figure; 3] = [
    Figure {
        of: |r| (generates(r) && r.phase_ms >= SETTLED_MS).then_some(r.tokens_per_s),
        grain: tenth,
        below: true,
        words: |value, median| {
            let (value, median) = (count(value), count(median));
            format!("{value} tokens/s where the median is {median}")
        },
    },
    Figure {
        of: |r| serves(r).then_some(r.weight_version as f64),
        // Versions are whole numbers: half of one is as near as they tell. Three behind stand out.
        grain: |_| 0.5,
        below: true,
        words: |value, median| format!("serves version {value}, the median is {median}"),
    },
    Figure {
        of: |r| (r.state() == Some(InstanceState::Running)).then_some(r.step_ms? as f64),
        grain: tenth,
        below: false,
        words: |value, median| {
            let (value, median) = (millis_tight(value), millis_tight(median));
            format!("a step took {value} where the median is {median}")
        },
    },
];

fn serves(r: &RoleStatus) -> bool {
    r.state() == Some(InstanceState::Running) && r.admitted && !r.quarantined && is_engine(&r.role)
}

fn generates(r: &RoleStatus) -> bool {
    serves(r) && r.running > 0 && r.phase() == Some(Phase::Generating)
}

/// An instance that stands out.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// Where it stands in the status.
    pub row: usize,
    /// How it is.
    pub health: Health,
    /// How far off it is; of those that a state says it of how long it lasts, in ms.
    far: f64,
    /// Which of the figures, and the median of its role.
    figure: Option<(usize, f64)>,
}

impl Outlier {
    /// Why it stands out, in words.
    pub fn why(&self, r: &RoleStatus) -> String {
        let known = self.figure.and_then(|(number, median)| {
            let figure = &FIGURES[number];
            Some((figure.words)((figure.of)(r)?, median))
        });
        known.unwrap_or_else(|| {
            let lasts = millis_tight(r.phase_ms as f64);
            let phase = match r.phase.as_str() {
                "" => r.state.as_str(),
                phase => phase,
            };
            match r.restarted.last() {
                Some(last) => format!("{phase} for {lasts}; last restart: {}", last.why),
                None => format!("{phase} for {lasts}"),
            }
        })
    }
}

/// How all instances are.
#[derive(Debug)]
pub struct Found {
    /// How each is, as the status has them.
    pub health: Vec<Health>,
    /// Those that stand out, the worst first.
    pub outliers: Vec<Outlier>,
}

impl Found {
    /// Among the instances of a status.
    pub fn among(roles: &[RoleStatus]) -> Found {
        let mut health: Vec<Health> = roles.iter().map(Health::of).collect();
        let stand_out = health.iter().enumerate().filter(|(_, h)| h.stands_out());
        let mut outliers: Vec<Outlier> = stand_out
            .map(|(row, health)| Outlier {
                row,
                health: *health,
                far: roles[row].phase_ms as f64,
                figure: None,
            })
            .collect();
        for outlier in far_off(roles).into_values() {
            // What a state says of an instance counts for more, and then its figures are not compared.
            health[outlier.row] = outlier.health;
            outliers.push(outlier);
        }
        outliers.sort_by(|a, b| {
            let worse = b.health.cmp(&a.health).then(b.far.total_cmp(&a.far));
            worse.then(a.row.cmp(&b.row))
        });
        Found { health, outliers }
    }

    /// The worst of these rows; of several the first.
    pub fn worst(&self, rows: &[usize]) -> Option<usize> {
        let all = rows.iter().copied();
        all.reduce(|worst, row| match self.health[row] > self.health[worst] {
            true => row,
            false => worst,
        })
    }

    /// Where one stands among those that stand out.
    pub fn place(&self, row: usize) -> Option<usize> {
        self.outliers.iter().position(|o| o.row == row)
    }
}

/// Those of which a figure is far off, by their rows; of several figures of one the farthest.
fn far_off(roles: &[RoleStatus]) -> BTreeMap<usize, Outlier> {
    let mut found: BTreeMap<usize, Outlier> = BTreeMap::new();
    for (number, figure) in FIGURES.iter().enumerate() {
        let mut by_role: BTreeMap<&str, Vec<(usize, f64)>> = BTreeMap::new();
        for (row, r) in roles.iter().enumerate() {
            if let Some(value) = (figure.of)(r) {
                by_role.entry(&r.role).or_default().push((row, value));
            }
        }
        for values in by_role.into_values() {
            let Some(usual) = Usual::of(values.iter().map(|(_, value)| *value), figure.grain)
            else {
                continue;
            };
            let is_far = |value: f64| match figure.below {
                true => usual.is_far_below(value),
                false => usual.is_far_above(value),
            };
            for (row, value) in values.into_iter().filter(|(_, value)| is_far(*value)) {
                let outlier = Outlier {
                    row,
                    health: Health::Off,
                    far: usual.score(value).abs(),
                    figure: Some((number, usual.median())),
                };
                let known = found
                    .get(&row)
                    .is_some_and(|known| known.far >= outlier.far);
                if !known {
                    found.insert(row, outlier);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn engine(index: u32) -> RoleStatus {
        RoleStatus {
            role: "rollout".into(),
            index,
            state: "running".into(),
            phase: "generating".into(),
            phase_ms: 8_000,
            admitted: true,
            running: 12,
            weight_version: 118,
            tokens_per_s: 800.0 + f64::from(index),
            ..Default::default()
        }
    }

    fn engines() -> Vec<RoleStatus> {
        (0..12).map(engine).collect()
    }

    fn said(roles: &[RoleStatus]) -> Vec<String> {
        let found = Found::among(roles);
        let line = |o: &Outlier| format!("{} {}", roles[o.row].index, o.why(&roles[o.row]));
        found.outliers.iter().map(line).collect()
    }

    #[test]
    fn among_engines_that_do_alike_nobody_stands_out() {
        assert_eq!(said(&engines()), [""; 0]);
    }

    #[test]
    fn an_engine_far_below_the_median_of_its_role_stands_out() {
        let mut roles = engines();
        roles[3].tokens_per_s = 210.0;
        let expected = "3 210 tokens/s where the median is 806";
        assert_eq!(said(&roles), [expected]);
        assert_eq!(Found::among(&roles).health[3], Health::Off);
        // One that has nothing to do, or has just begun, is as slow for a reason.
        roles[3].running = 0;
        assert_eq!(said(&roles), [""; 0]);
        (roles[3].running, roles[3].phase_ms) = (12, 900);
        assert_eq!(said(&roles), [""; 0]);
    }

    #[test]
    fn a_version_or_two_behind_is_usual_and_three_are_not() {
        let mut roles = engines();
        roles[0].weight_version = 117;
        roles[1].weight_version = 116;
        assert_eq!(said(&roles), [""; 0]);
        roles[1].weight_version = 115;
        assert_eq!(said(&roles), ["1 serves version 115, the median is 118"]);
    }

    #[test]
    fn a_rank_whose_step_took_far_longer_stands_out() {
        let rank = |index: u32| RoleStatus {
            role: "trainer".into(),
            index,
            state: "running".into(),
            step_ms: Some(if index == 5 {
                9_400
            } else {
                1_200 + u64::from(index)
            }),
            ..Default::default()
        };
        let ranks: Vec<RoleStatus> = (0..8).map(rank).collect();
        let expected = "5 a step took 9.40s where the median is 1.20s";
        assert_eq!(said(&ranks), [expected]);
        assert_eq!(said(&ranks[4..]), [""; 0], "four are too few to say");
    }

    #[test]
    fn the_worst_comes_first_and_what_a_state_says_before_figures() {
        let mut roles = engines();
        roles[1].tokens_per_s = 90.0;
        for (row, state, ms) in [
            (2, "recovering", 10),
            (4, "suspect", 20),
            (6, "down", 30),
            (7, "down", 40),
            (8, "waiting", 50),
        ] {
            (roles[row].state, roles[row].phase_ms) = (state.into(), ms);
        }
        roles[5].quarantined = true;
        // Slow, and down: it has no process that could be fast.
        roles[6].tokens_per_s = 0.0;
        let found = Found::among(&roles);
        let rows: Vec<usize> = found.outliers.iter().map(|o| o.row).collect();
        assert_eq!(rows, [7, 6, 4, 2, 5, 8, 1]);
        assert_eq!(found.worst(&[0, 1, 2, 5]), Some(2));
        assert_eq!(found.worst(&[0, 3]), Some(0), "of equals the first");
        assert_eq!(found.worst(&[]), None);
        assert_eq!(found.place(4), Some(2));
    }

    #[test]
    fn of_one_who_was_restarted_the_reason_is_said() {
        let mut roles = engines();
        roles[0].state = "recovering".into();
        roles[0].restarted.push(robust_proto::v1::Restarted {
            at_ms: 1,
            why: "exit: killed by SIGKILL".into(),
            incident: 7,
        });
        let expected = "0 generating for 8.00s; last restart: exit: killed by SIGKILL";
        assert_eq!(said(&roles), [expected]);
    }
}
