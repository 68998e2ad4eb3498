//! A run as MLflow's file store has it (`mlflow/store/tracking/file_store.py`):
//!
//! ```text
//!  DIR/EXPERIMENT/meta.yaml                 the experiment, which has the job's name
//!      EXPERIMENT/RUN/meta.yaml             the run
//!                    /metrics/GROUP/SERIES  a line a point: time in ms, value, step
//!                    /params/KEY            a key of the job file
//!                    /tags/NAME
//!                    /artifacts/incidents.md
//! ```
//! The run's number comes from the job's name and begin: an export that is made again writes the same files. Of two at
//! the same time one would put its points behind those of the other, so that who writes a run holds a lock on its folder.
mod lock;
mod meta;

use super::gather::Told;
use super::series::{INCIDENTS, SHARES, STEPS, Series};
use super::{Board, files};
use lock::Lock;
use meta::{Experiment, Run};
use robust_proto::v1;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// The longest value of a parameter that MLflow takes, in characters.
const LONGEST_VALUE: usize = 6_000;

/// A file store.
pub struct Store {
    root: PathBuf,
    /// The folder of the run that was written last.
    run: Option<PathBuf>,
    /// Of that folder.
    lock: Option<Lock>,
}

impl Store {
    /// A folder, which need not be there yet.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            run: None,
            lock: None,
        }
    }
}

impl Board for Store {
    fn whole(&mut self, told: &Told) -> io::Result<PathBuf> {
        std::fs::create_dir_all(&self.root)?;
        let root = self.root.canonicalize()?;
        let experiment = Experiment::of(&root, told)?;
        let run = Run::of(&root, &experiment.experiment_id, told)?;
        let folder = root.join(&experiment.experiment_id).join(&run.run_id);
        std::fs::create_dir_all(&folder)?;
        self.lock = Some(Lock::of(&folder, self.lock.take())?);
        for below in ["params", "tags", "artifacts", "metrics"] {
            std::fs::create_dir_all(folder.join(below))?;
        }
        let put =
            |name: &str, text: &str| files::replace(&folder.join(name), &folder, text.as_bytes());
        let params = params(told);
        for (key, value) in &params {
            put(&format!("params/{key}"), value)?;
        }
        keep_only(
            &folder.join("params"),
            params.iter().map(|(key, _)| key.as_str()),
        )?;
        put("tags/mlflow.runName", &run.run_name)?;
        put("tags/mlflow.source.name", "robustctl")?;
        put("artifacts/incidents.md", &incidents(&told.incidents))?;
        let metrics = metrics(told, true);
        let shares = metrics
            .iter()
            .filter_map(|(name, _)| name.strip_prefix(SHARES));
        let shares = shares.filter_map(|name| name.strip_prefix('/'));
        keep_only(&folder.join("metrics").join(SHARES), shares)?;
        for (name, lines) in &metrics {
            let path = folder.join("metrics").join(name);
            match lines.is_empty() {
                // An earlier export may have had some, of steps that were given up since.
                true => remove(&path)?,
                false => {
                    path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
                    files::replace(&path, &folder, lines.as_bytes())?;
                }
            }
        }
        // What names the run comes last: half a run is none.
        put("meta.yaml", &meta::yaml(&run)?)?;
        experiment.write(&root)?;
        self.run = Some(folder.clone());
        Ok(folder)
    }

    fn more(&mut self, told: &Told) -> io::Result<()> {
        let Some(folder) = &self.run else {
            return Ok(());
        };
        for (name, lines) in metrics(told, false) {
            if lines.is_empty() {
                continue;
            }
            let path = folder.join("metrics").join(&name);
            path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
            let mut file = OpenOptions::new().create(true).append(true).open(path)?;
            file.write_all(lines.as_bytes())?;
        }
        Ok(())
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(()),
    }
}

/// Removes what an earlier export wrote into a folder and this one does not.
fn keep_only<'a>(folder: &Path, kept: impl Iterator<Item = &'a str>) -> io::Result<()> {
    let kept: BTreeSet<&str> = kept.collect();
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name();
        let is_kept = name.to_str().is_some_and(|name| kept.contains(name));
        if !is_kept && entry.file_type()?.is_file() {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Names of files for names of others, in their order. Where two come out the same, the later one has a digest of the
/// name behind it, so that neither replaces the other.
fn file_names<'a>(names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut taken = BTreeSet::new();
    let file_name = |name: &str| {
        let mut file = files::file_name(name);
        if taken.contains(&file) {
            let digest = blake3::hash(name.as_bytes()).to_hex();
            file = format!("{file}-{}", &digest[..8]);
        }
        taken.insert(file.clone());
        file
    };
    names.map(file_name).collect()
}

/// Each series with its lines; the shares of time, which replace those before, of the whole run only.
fn metrics(told: &Told, whole: bool) -> Vec<(String, String)> {
    let step = |p: &super::series::Point| (p.line.at_ms, p.line.step);
    let number = |i: &v1::Incident| (i.at_ms, i.id);
    let steps = STEPS.iter().map(|series| lines(series, &told.points, step));
    let incidents = INCIDENTS
        .iter()
        .map(|series| lines(series, &told.incidents, number));
    let mut all: Vec<_> = steps.chain(incidents).collect();
    if whole {
        let last = told.points.last().map_or(0, |p| p.line.step);
        let names = file_names(told.shares.iter().map(|(cause, _)| cause.as_str()));
        let share = |(name, (_, share)): (String, &(String, f64))| {
            let line = format!("{} {share} {last}\n", told.until_ms);
            (format!("{SHARES}/{name}"), line)
        };
        all.extend(names.into_iter().zip(&told.shares).map(share));
    }
    all
}

/// A series with a line for each of its points.
fn lines<T>(
    (name, of): &Series<T>,
    points: &[T],
    place: impl Fn(&T) -> (u64, u64),
) -> (String, String) {
    let mut lines = String::new();
    for point in points {
        if let Some(value) = of(point) {
            let (at_ms, step) = place(point);
            let _ = writeln!(lines, "{at_ms} {value} {step}");
        }
    }
    ((*name).to_owned(), lines)
}

/// Keys of the job file as MLflow names parameters, with values that fit.
fn params(told: &Told) -> Vec<(String, String)> {
    let names = file_names(told.config.iter().map(|(key, _)| key.as_str()));
    let param = |(name, (_, json)): (String, &(String, String))| {
        let text = serde_json::from_str::<String>(json).ok();
        // A parameter is a line: a text of several stays as it is in JSON.
        let text = text.filter(|text| !text.chars().any(char::is_control));
        let value = text.unwrap_or_else(|| json.clone());
        (name, value.chars().take(LONGEST_VALUE).collect::<String>())
    };
    names.into_iter().zip(&told.config).map(param).collect()
}

/// Incidents as a table in Markdown.
fn incidents(all: &[v1::Incident]) -> String {
    let mut text = "| id | who | step | rule | detect s | restart s | reconnect s | total s | outcome | reason |\n\
                    | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    for i in all {
        let plain = |text: &str| robust_shared::printable::one_line(text).replace('|', "\\|");
        let _ = writeln!(
            text,
            "| {} | {} | {} | {} | {:.3} | {:.3} | {:.3} | {:.3} | {} | {} |",
            i.id,
            plain(&crate::format::who(&i.role, i.index)),
            i.step,
            plain(&i.rule),
            i.detect_ms / 1e3,
            i.restart_ms / 1e3,
            i.reconnect_ms / 1e3,
            i.total_ms / 1e3,
            plain(&i.outcome),
            plain(&i.reason),
        );
    }
    text
}

#[cfg(test)]
mod tests;
