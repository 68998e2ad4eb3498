//! A run as TensorBoard reads it: an event file in a folder of the run's name.
//!
//! Every export writes a new file, whose name sorts behind those of earlier ones. It begins with the start of a
//! session at step 0: whoever reads both drops the points of the earlier one. That one stays for a while, as a
//! TensorBoard that runs goes on to the next file only where the one that it reads is still there.
mod event;
mod record;

use super::gather::Told;
use super::series::{INCIDENTS, Point, SHARES, STEPS};
use super::{Board, files};
use chrono::{DateTime, Utc};
use event::{Event, Summary};
use robust_proto::v1;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// What names of event files begin with. TensorBoard looks for `tfevents`, and reads a folder's files in the order of
/// their names.
const PREFIX: &str = "events.out.tfevents.";
/// What the names of ours end with: those of others are left alone.
const SUFFIX: &str = ".robustctl";

/// How long a file stays that another one replaced, in seconds: TensorBoard looks for new ones every few seconds.
const STAYS_S: u64 = 600;
/// Where the job file is put, at the first step: the start of a session drops what comes after its own step.
const FIRST_STEP: u64 = 1;

/// The folder that TensorBoard is shown.
pub struct Folder {
    root: PathBuf,
    /// The file that was written last.
    file: Option<PathBuf>,
}

impl Folder {
    /// A folder, which need not be there yet.
    pub fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            file: None,
        }
    }
}

impl Board for Folder {
    fn whole(&mut self, told: &Told) -> io::Result<PathBuf> {
        let folder = self.root.join(run_name(told));
        std::fs::create_dir_all(&folder)?;
        let (former, now) = (ours(&folder)?, now());
        let path = folder.join(next_name(&former, now));
        files::replace(&path, &folder, &whole(told))?;
        for name in outlived(&former, now) {
            std::fs::remove_file(folder.join(name))?;
        }
        self.file = Some(path);
        Ok(folder)
    }

    fn more(&mut self, told: &Told) -> io::Result<()> {
        let bytes = more(told);
        match &self.file {
            Some(path) if !bytes.is_empty() => {
                let mut file = OpenOptions::new().append(true).open(path)?;
                file.write_all(&bytes)
            }
            _ => Ok(()),
        }
    }
}

/// The job's name and its begin: other runs of the job have folders beside it.
fn run_name(told: &Told) -> String {
    let ms = i64::try_from(told.begun_ms).unwrap_or_default();
    let begin = DateTime::<Utc>::from_timestamp_millis(ms).unwrap_or_default();
    files::file_name(&format!("{}-{}", told.job, begin.format("%Y%m%dT%H%M%SZ")))
}

/// Names of the event files in a folder that exports wrote, in order.
fn ours(folder: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Unix time in seconds.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// The second in which a file was begun, by its name.
fn second_of(name: &str) -> Option<u64> {
    let rest = name.strip_prefix(PREFIX)?;
    rest.split('.').next()?.parse().ok()
}

/// A name that sorts behind those that are there: by its second, ten digits until the year 2286.
fn next_name(former: &[String], now: u64) -> String {
    let last = former.iter().filter_map(|name| second_of(name)).max();
    let second = last.map_or(now, |last| now.max(last.saturating_add(1)));
    let uname = rustix::system::uname();
    let host = files::file_name(&uname.nodename().to_string_lossy());
    let process = std::process::id();
    format!("{PREFIX}{second:010}.{host}.{process}.0{SUFFIX}")
}

/// Those of the files that others replaced long enough ago; the last one is replaced just now.
fn outlived(former: &[String], now: u64) -> &[String] {
    let is_old = |name: &&String| second_of(name).is_some_and(|s| s.saturating_add(STAYS_S) <= now);
    let replaced = former.iter().skip(1).take_while(is_old).count();
    &former[..replaced]
}

/// An event file.
fn whole(told: &Told) -> Vec<u8> {
    let mut out = Vec::new();
    let begin = seconds(told.begun_ms);
    record::put(&mut out, &Event::version(begin));
    record::put(&mut out, &Event::session_start(begin, 0));
    if !told.config.is_empty() {
        let config = Summary::text("job/config", table(&told.config));
        record::put(&mut out, &Event::summary(begin, FIRST_STEP, config));
    }
    out.extend(more(told));
    out.extend(shares(told));
    out
}

/// Steps and incidents as records.
fn more(told: &Told) -> Vec<u8> {
    let mut out = Vec::new();
    for point in &told.points {
        let mut summary = Summary::default();
        for (name, of) in STEPS {
            if let Some(value) = of(point) {
                summary.scalar(name, value);
            }
        }
        let Point { line, .. } = point;
        record::put(
            &mut out,
            &Event::summary(seconds(line.at_ms), line.step, summary),
        );
    }
    for incident in &told.incidents {
        let mut summary = Summary::text("incidents/what", words(incident));
        for (name, of) in INCIDENTS {
            if let Some(value) = of(incident) {
                summary.scalar(name, value);
            }
        }
        let at = seconds(incident.at_ms);
        record::put(&mut out, &Event::summary(at, incident.id, summary));
    }
    out
}

/// What the time of the run went to, at its last step.
fn shares(told: &Told) -> Vec<u8> {
    let mut out = Vec::new();
    let mut summary = Summary::default();
    for (cause, share) in &told.shares {
        summary.scalar(&format!("{SHARES}/{cause}"), *share);
    }
    if !told.shares.is_empty() {
        let step = told.points.last().map_or(0, |point| point.line.step);
        record::put(
            &mut out,
            &Event::summary(seconds(told.until_ms), step, summary),
        );
    }
    out
}

fn seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1e3
}

/// An incident in Markdown, which TensorBoard makes safe itself.
fn words(i: &v1::Incident) -> String {
    let who = crate::format::who(&i.role, i.index);
    format!(
        "**{who}**, step {}, {}: {}\n\n{}; {}",
        i.step, i.rule, i.reason, i.plan, i.outcome
    )
}

/// Keys and values as a table in Markdown.
fn table(rows: &[(String, String)]) -> String {
    let row = |(key, value): &(String, String)| {
        format!(
            "| {} | {} |\n",
            key.replace('|', "\\|"),
            value.replace('|', "\\|")
        )
    };
    let rows: String = rows.iter().map(row).collect();
    format!("| key | value |\n| --- | --- |\n{rows}")
}

#[cfg(test)]
mod tests;
