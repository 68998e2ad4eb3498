//! A drill and its job brought together: every run's job file and strikes.
use super::{
    Drill, DrillError, DrillProblem, Expectation, Ground, ONLY, Strike, WEIGHTS_IDENTICAL,
};
use crate::core::Rule;
use crate::job::{Job, Mode, Policy};
use std::path::Path;
use std::time::Duration;
use toml::{Table, Value};

/// All that is run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The drill's name.
    pub name: String,
    /// In order.
    pub series: Vec<SeriesPlan>,
}

/// Runs that are compared with each other.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesPlan {
    /// Its name.
    pub name: String,
    /// The mode of its runs.
    pub mode: Mode,
    /// In order; the first has no faults.
    pub runs: Vec<RunPlan>,
    /// What must come out.
    pub expect: Vec<Expectation>,
}

/// One run.
#[derive(Clone, Debug, PartialEq)]
pub struct RunPlan {
    /// Its name.
    pub name: String,
    /// What a fault restarts.
    pub policy: Policy,
    /// Steps of its job.
    pub steps: u64,
    /// The job file to run, its paths absolute.
    pub job_text: String,
    /// What strikes it; the same in all runs of the series that have faults.
    pub strikes: Vec<Strike>,
    /// The nodes that join its leader.
    pub nodes: Vec<String>,
    /// Whether the job's failure is what must come out.
    pub may_fail: bool,
    /// Whether somebody wants to know what is in its store.
    pub check_store: bool,
    /// How soon every fault must be found; none: nobody says.
    pub detected_within: Option<Duration>,
}

impl Plan {
    /// Checks the drill against its job. `job_path` is absolute; the job's paths are relative to
    /// its folder.
    pub fn make(drill: &Drill, job_text: &str, job_path: &Path) -> Result<Self, DrillError> {
        let refuse = |e| drill.refuse("job", DrillProblem::Job(e));
        Job::parse(job_text, job_path).map_err(refuse)?;
        let base: Table = job_text.parse().unwrap_or_default();
        let series = (0..drill.series.len()).map(|i| drill.series_plan(i, &base, job_path));
        Ok(Self {
            name: drill.name.clone(),
            series: series.collect::<Result<_, _>>()?,
        })
    }

    /// The same with a rule switched off in every job: what is expected of the rule cannot be met then, and
    /// a job may well fail.
    pub fn without(mut self, rule: &Rule) -> Self {
        for run in self.series.iter_mut().flat_map(|s| &mut s.runs) {
            let mut job: Table = run.job_text.parse().unwrap_or_default();
            let detect = job.get("detect").and_then(|detect| detect.get("off"));
            let mut off = detect.and_then(Value::as_array).cloned();
            off.get_or_insert_default().push(rule.key().into());
            put(&mut job, "detect.off", off.unwrap_or_default());
            run.job_text = job.to_string();
            run.may_fail = true;
        }
        self
    }
}

impl Drill {
    fn series_plan(&self, at: usize, base: &Table, path: &Path) -> Result<SeriesPlan, DrillError> {
        let series = &self.series[at];
        let mut table = base.clone();
        merge(&mut table, &self.set);
        merge(&mut table, &series.set);
        let job = self.job_of(at, &table, path)?;
        let of_batches = job.own_loop().is_none();
        for (key, path) in [
            ("data.prompts", of_batches.then_some(&job.data.prompts)),
            ("data.tokenizer", of_batches.then_some(&job.data.tokenizer)),
            ("model.path", job.model.path.as_ref()),
        ] {
            if let Some(path) = path {
                put(&mut table, key, path.to_string_lossy().into_owned());
            }
        }
        let ground = Ground::of(&job);
        let strikes = self.strikes(&ground)?;
        let expect = self.expectations(at, Some(job.job.mode), &self.run_names())?;
        let may_fail = expect.iter().any(Expectation::wants_failure);
        let check_store = expect.iter().any(Expectation::asks_the_store);
        let detected_within = expect.iter().filter_map(Expectation::detected_within).min();
        let run = |run: &super::Run| {
            let policy = run.policy.unwrap_or(job.job.policy);
            let mut table = table.clone();
            put(&mut table, "job.policy", policy.name());
            RunPlan {
                name: run.name.clone(),
                policy,
                steps: job.steps().unwrap_or(u32::MAX.into()),
                job_text: table.to_string(),
                strikes: run.policy.map_or_else(Vec::new, |_| strikes.clone()),
                nodes: ground.nodes.iter().skip(1).cloned().collect(),
                may_fail,
                check_store,
                detected_within,
            }
        };
        Ok(SeriesPlan {
            name: series.name.clone(),
            mode: job.job.mode,
            runs: self.runs.iter().map(run).collect(),
            expect,
        })
    }

    /// The job with the series' values, its paths absolute.
    fn job_of(&self, at: usize, table: &Table, path: &Path) -> Result<Job, DrillError> {
        let mut job = Job::parse(&table.to_string(), path).map_err(|e| {
            let series = self.series[at].name.clone();
            let key = e.problem.key().unwrap_or_default().to_owned();
            // Of the two that may have set it, the later.
            let place = match has(&self.series[at].set, &key) {
                true => format!("series.{at}.set.{key}"),
                false => format!("set.{key}"),
            };
            let problem = *e.problem;
            self.refuse(&place, DrillProblem::Override { series, problem })
        })?;
        job.resolve(path.parent().unwrap_or(Path::new("/")));
        Ok(job)
    }

    fn run_names(&self) -> Vec<&str> {
        self.runs.iter().map(|r| r.name.as_str()).collect()
    }

    /// Of a series over these runs; without a mode they are not compared.
    fn expectations(
        &self,
        at: usize,
        mode: Option<Mode>,
        runs: &[&str],
    ) -> Result<Vec<Expectation>, DrillError> {
        let series = &self.series[at];
        let mut all = Vec::new();
        for line in series.expect.lines(runs) {
            let key = self.expect_key(at, &line.key);
            let text = line.text.clone();
            let parsed = line
                .read()
                .map_err(|why| self.refuse(&key, DrillProblem::Expectation { text, why }))?;
            if let Some(problem) = self.incomparable(at, &parsed, mode, runs.len()) {
                return Err(self.refuse(&key, problem));
            }
            all.push(parsed);
        }
        Ok(all)
    }

    /// Why the weights of so many runs in that mode cannot be compared as is expected.
    fn incomparable(
        &self,
        at: usize,
        expectation: &Expectation,
        mode: Option<Mode>,
        runs: usize,
    ) -> Option<DrillProblem> {
        let series = self.series[at].name.clone();
        match mode {
            _ if !expectation.mentions(WEIGHTS_IDENTICAL) => None,
            Some(mode) if mode != Mode::Sync => {
                let mode = mode.name();
                Some(DrillProblem::NotSync { series, mode })
            }
            _ if runs < 2 => Some(DrillProblem::OneRun { series }),
            _ => None,
        }
    }

    /// The strikes of the first series against a job that runs already, and what must come out of
    /// it. `ground` is what is left of it.
    pub fn attach(
        &self,
        ground: &Ground,
    ) -> Result<(String, Vec<Strike>, Vec<Expectation>), DrillError> {
        let struck = self.runs.iter().rev().find(|r| r.policy.is_some());
        let run = struck.map_or(ONLY, |r| r.name.as_str());
        let strikes = self.strikes(ground)?;
        Ok((run.to_owned(), strikes, self.expectations(0, None, &[run])?))
    }
}

/// Lays `over` over `table`, section by section.
fn merge(table: &mut Table, over: &Table) {
    for (key, value) in over {
        match (table.get_mut(key), value) {
            (Some(Value::Table(below)), Value::Table(above)) => merge(below, above),
            _ => {
                table.insert(key.clone(), value.clone());
            }
        }
    }
}

fn put(table: &mut Table, dotted: &str, value: impl Into<Value>) {
    let nested = dotted.rsplit('.').fold(value.into(), |value, key| {
        Value::Table(Table::from_iter([(key.to_owned(), value)]))
    });
    if let Value::Table(over) = nested {
        merge(table, &over);
    }
}

fn has(table: &Table, dotted: &str) -> bool {
    let (first, rest) = dotted
        .split_once('.')
        .map_or((dotted, None), |(f, r)| (f, Some(r)));
    match (table.get(first), rest) {
        (None, _) => false,
        (Some(Value::Table(inner)), Some(rest)) => has(inner, rest),
        (Some(_), _) => true,
    }
}
