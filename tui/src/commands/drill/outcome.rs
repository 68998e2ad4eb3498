//! What came out of a drill: figures of each run, verdicts, JSON.
use crate::format::who;
use crate::machine::cores;
use robust_proto::v1;
use robust_shared::drill::{
    Expectation, Facts, Measured, SeriesPlan, Strike, Verdict, WEIGHTS_IDENTICAL, metric,
};
use robust_shared::job::Mode;
use robust_shared::median::median;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The whole drill.
pub struct DrillOutcome {
    /// Its name.
    pub name: String,
    /// In order; the first is the one whose figures stand at the top of the JSON.
    pub series: Vec<SeriesOutcome>,
    /// Load average (1, 5, 15 minutes) when it began.
    pub load_before: [f64; 3],
    /// And when it ended.
    pub load_after: [f64; 3],
}

/// Runs that are compared with each other.
pub struct SeriesOutcome {
    /// Its name.
    pub name: String,
    /// The mode of its runs.
    pub mode: Mode,
    /// Steps of each run.
    pub steps: u64,
    /// What struck the runs with faults.
    pub strikes: Vec<Strike>,
    /// In order; the first is fault-free.
    pub runs: Vec<RunOutcome>,
    /// By name, as expectations see them.
    pub metrics: BTreeMap<String, f64>,
    /// Each expectation and what became of it.
    pub verdicts: Vec<(Expectation, Verdict)>,
}

/// One run.
pub struct RunOutcome {
    /// Its name.
    pub name: String,
    /// The daemon's report.
    pub report: v1::Report,
    /// What expectations in words are held against.
    pub facts: Facts,
    /// Training steps that were lost under way and done again.
    pub steps_repeated: u64,
    /// Digest of the final weights and optimiser, where there are any to read.
    pub weights: Option<String>,
    /// Load average when it began.
    pub load_before: [f64; 3],
    /// And when it ended.
    pub load_after: [f64; 3],
}

impl RunOutcome {
    /// The time of a step: the median, without the first, which holds the start of the processes.
    pub fn median_step_s(&self) -> f64 {
        middle(self.report.step_lines.iter().skip(1).map(|l| l.seconds))
    }

    /// Median over the incidents.
    pub fn of_incidents(&self, part: fn(&v1::Incident) -> f64) -> f64 {
        middle(self.report.incidents.iter().map(part))
    }

    /// Fault to every process attached again.
    pub fn restart_s(&self) -> f64 {
        self.of_incidents(|i| i.detect_ms + i.restart_ms) / 1000.0
    }

    fn json(&self, fault_free: &RunOutcome) -> Value {
        let r = &self.report;
        json!({
            "name": self.name,
            "policy": r.policy,
            "time_s": r.duration_s,
            "overhead_s": r.duration_s - fault_free.report.duration_s,
            "ettr": r.ettr,
            "goodput": r.goodput,
            "restarts": r.incidents.len(),
            "steps_repeated": self.steps_repeated,
            "detect_ms": self.of_incidents(|i| i.detect_ms),
            "restart_ms": self.of_incidents(|i| i.restart_ms),
            "reconnect_ms": self.of_incidents(|i| i.reconnect_ms),
            "total_ms": self.of_incidents(|i| i.total_ms),
            "step_s": self.median_step_s(),
            "restart_over_step": self.restart_s() / fault_free.median_step_s(),
            "step_seconds": r.step_lines.iter().map(|l| l.seconds).collect::<Vec<_>>(),
            "incidents": r.incidents.iter().map(incident).collect::<Vec<_>>(),
            "tokens": r.tokens,
            "weights": self.weights,
            "load_before": self.load_before,
            "load_after": self.load_after,
        })
    }
}

impl SeriesOutcome {
    /// Measures the runs and holds them against what was expected.
    pub fn new(plan: &SeriesPlan, runs: Vec<RunOutcome>) -> Self {
        let facts = |run: &RunOutcome| (run.name.clone(), run.facts.clone());
        let measured = Measured {
            figures: metrics(&runs),
            runs: runs.iter().map(facts).collect(),
        };
        let verdict = |e: &Expectation| (e.clone(), e.verdict(&measured));
        let verdicts = plan.expect.iter().map(verdict).collect();
        let strikes = plan.runs.iter().map(|r| &r.strikes).find(|s| !s.is_empty());
        Self {
            name: plan.name.clone(),
            mode: plan.mode,
            steps: plan.runs.first().map_or(0, |r| r.steps),
            strikes: strikes.cloned().unwrap_or_default(),
            runs,
            metrics: measured.figures,
            verdicts,
        }
    }

    fn json(&self) -> Value {
        let first = self.runs.first();
        let runs = self.runs.iter().filter_map(|r| Some(r.json(first?)));
        let verdicts = self.verdicts.iter().map(|(expectation, v)| {
            json!({
                "text": expectation.text,
                "held": v.held,
                "found": v.found,
                "left": v.left,
                "right": v.right,
            })
        });
        json!({
            "name": self.name,
            "mode": self.mode.name(),
            "steps": self.steps,
            "faults": self.strikes.iter().map(Strike::to_string).collect::<Vec<_>>(),
            "runs": runs.collect::<Vec<_>>(),
            "expectations": verdicts.collect::<Vec<_>>(),
        })
    }
}

impl DrillOutcome {
    /// How many expectations were not met.
    pub fn missed(&self) -> usize {
        let verdicts = self.series.iter().flat_map(|s| &s.verdicts);
        verdicts.filter(|(_, v)| !v.held).count()
    }

    /// Whether the runs in mode sync ended with the same weights; none without such runs.
    fn sync_weights_identical(&self) -> Option<bool> {
        let sync = self.series.iter().filter(|s| s.mode == Mode::Sync);
        let same = sync.map(|s| s.metrics.get(WEIGHTS_IDENTICAL) == Some(&1.0));
        same.reduce(|a, b| a && b)
    }

    /// The result as JSON: the first series' figures at the top, `ettr_role`, `time_role_s`, ...
    pub fn json(&self) -> Value {
        let mut top = Map::new();
        if let Some(first) = self.series.first() {
            for run in &first.runs {
                for (what, unit) in [
                    ("ettr", ""),
                    ("goodput", ""),
                    ("time", "_s"),
                    ("restart_over_step", ""),
                ] {
                    let name = metric(what, &run.name);
                    let value = first.metrics.get(&name);
                    top.insert(name + unit, json!(value));
                }
            }
        }
        top.extend([
            ("drill".to_owned(), json!(self.name)),
            (
                "sync_weights_identical".to_owned(),
                json!(self.sync_weights_identical()),
            ),
            ("held".to_owned(), json!(self.missed() == 0)),
            ("cores".to_owned(), json!(cores())),
            ("load_before".to_owned(), json!(self.load_before)),
            ("load_after".to_owned(), json!(self.load_after)),
            (
                "series".to_owned(),
                self.series.iter().map(SeriesOutcome::json).collect(),
            ),
        ]);
        Value::Object(top)
    }
}

fn incident(i: &v1::Incident) -> Value {
    json!({
        "who": who(&i.role, i.index),
        "step": i.step,
        "plan": i.plan,
        "total_ms": i.total_ms,
        "stages": i.stages.iter().map(|s| (&s.name, s.ms)).collect::<Vec<_>>(),
    })
}

fn metrics(runs: &[RunOutcome]) -> BTreeMap<String, f64> {
    let mut metrics = BTreeMap::new();
    let Some(first) = runs.first() else {
        return metrics;
    };
    for run in runs {
        let (time, free) = (run.report.duration_s, first.report.duration_s);
        for (what, value) in [
            ("time", time),
            ("ettr", run.report.ettr),
            ("goodput", run.report.goodput),
            ("overhead", time - free),
            ("restarts", run.report.incidents.len() as f64),
            ("repeated", run.steps_repeated as f64),
            ("restart_over_step", run.restart_s() / first.median_step_s()),
        ] {
            metrics.insert(metric(what, &run.name), value);
        }
    }
    let same = first.weights.is_some() && runs.iter().all(|run| run.weights == first.weights);
    metrics.insert(WEIGHTS_IDENTICAL.to_owned(), f64::from(u8::from(same)));
    metrics
}

/// The median; 0 for nothing.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    median(&mut values.collect::<Vec<_>>()).unwrap_or(0.0)
}

#[cfg(test)]
pub mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn step(seconds: f64) -> v1::StepLine {
        v1::StepLine {
            seconds,
            ..Default::default()
        }
    }

    fn incident(detect_ms: f64, restart_ms: f64) -> v1::Incident {
        v1::Incident {
            detect_ms,
            restart_ms,
            reconnect_ms: 40.0,
            total_ms: detect_ms + restart_ms + 40.0,
            ..Default::default()
        }
    }

    /// A run of that name and length; its incidents restart in so many milliseconds.
    pub fn run(name: &str, time_s: f64, ettr: f64, restarts_ms: &[f64]) -> RunOutcome {
        RunOutcome {
            name: name.to_owned(),
            report: v1::Report {
                policy: "role".to_owned(),
                duration_s: time_s,
                ettr,
                goodput: ettr - 0.02,
                step_lines: vec![step(9.0), step(0.4), step(0.6), step(0.5)],
                incidents: restarts_ms.iter().map(|ms| incident(50.0, *ms)).collect(),
                ..Default::default()
            },
            steps_repeated: restarts_ms.len() as u64,
            facts: Facts::default(),
            weights: Some("aa".to_owned()),
            load_before: [1.0; 3],
            load_after: [2.0; 3],
        }
    }

    /// Three runs in mode sync and an expectation that holds, one that does not.
    pub fn drill(weights: &str) -> DrillOutcome {
        let mut runs = vec![
            run("none", 50.0, 0.95, &[]),
            run("task", 65.0, 0.75, &[1150.0, 1250.0, 1200.0]),
            run("role", 53.0, 0.92, &[300.0, 250.0, 350.0]),
        ];
        runs[2].weights = Some(weights.to_owned());
        let names = ["none", "task", "role"];
        let expect = ["ettr_role >= 0.85", "overhead_role <= overhead_task / 6"];
        let expect = expect.map(|text| Expectation::comparison(text, &names).unwrap());
        let plan = SeriesPlan {
            name: "sync".to_owned(),
            mode: Mode::Sync,
            runs: Vec::new(),
            expect: expect.into(),
        };
        DrillOutcome {
            name: "paper".to_owned(),
            series: vec![SeriesOutcome::new(&plan, runs)],
            load_before: [1.0; 3],
            load_after: [2.0; 3],
        }
    }

    #[test]
    fn the_json_has_the_first_series_figures_at_its_top() {
        let json = drill("aa").json();
        assert_eq!(json["ettr_role"], 0.92);
        assert_eq!(json["time_task_s"], 65.0);
        assert_eq!(json["sync_weights_identical"], true);
        assert_eq!(json["restart_over_step_task"], 2.5);
        assert_eq!(json["held"], false, "one expectation is not met");
        let series = &json["series"][0];
        assert_eq!(series["runs"][2]["overhead_s"], 3.0);
        let held = |n: usize| series["expectations"][n]["held"].as_bool();
        assert_eq!((held(0), held(1)), (Some(true), Some(false)));
    }

    #[test]
    fn one_run_with_other_weights_makes_them_not_identical() {
        assert_eq!(drill("ab").json()["sync_weights_identical"], false);
    }
}
