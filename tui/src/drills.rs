//! Drill files: one is read and checked against its job, and those of a folder are the catalogue.
use crate::error::CliError;
use robust_shared::drill::{Drill, DrillError, DrillProblem, Plan};
use robust_shared::nearest::nearest;
use std::path::{Path, PathBuf};

/// A drill file.
pub struct Entry {
    /// Where.
    pub path: PathBuf,
    /// The file's name without its end.
    pub name: String,
    /// The drill and what would be run, or why it cannot be.
    pub planned: Result<(Drill, Plan), String>,
}

impl Entry {
    fn of(path: PathBuf) -> Self {
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        Self {
            name: name.into_owned(),
            planned: read(&path)
                .and_then(
                    |Read {
                         drill,
                         job,
                         job_path,
                     }| {
                        let plan = make(&drill, &job, &job_path)?;
                        Ok((drill, plan))
                    },
                )
                .map_err(|e| e.to_string()),
            path,
        }
    }

    /// The comment it begins with, or why it cannot be run.
    pub fn about(&self) -> String {
        match &self.planned {
            Ok((drill, _)) => drill.about(),
            Err(why) => why.clone(),
        }
    }

    /// Faults of a run of its first series.
    pub fn faults(&self) -> usize {
        let plan = self.planned.as_ref().ok().map(|(_, plan)| plan);
        let runs = plan.and_then(|p| p.series.first()).map(|s| &s.runs);
        let faults = runs.and_then(|runs| runs.iter().map(|r| r.strikes.len()).max());
        faults.unwrap_or(0)
    }
}

/// Where drill files are looked for when the operator names no folder.
pub fn default_folder() -> PathBuf {
    let here = PathBuf::from("fixtures/drills");
    if here.is_dir() {
        return here;
    }
    let own = std::env::current_exe().unwrap_or_default();
    let above = own.ancestors().map(|dir| dir.join("fixtures/drills"));
    above.into_iter().find(|dir| dir.is_dir()).unwrap_or(here)
}

/// The files of a folder, by name.
pub fn catalogue(folder: &Path) -> Result<Vec<Entry>, String> {
    let mut entries: Vec<Entry> = files(folder)?.into_iter().map(Entry::of).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let unreadable = |e| format!("no drills in {}: {e}", folder.display());
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|e| e == "toml") {
            files.push(path);
        }
    }
    Ok(files)
}

/// A file as it is named, or one of the catalogue by its name.
pub fn find(file: &Path) -> Result<PathBuf, CliError> {
    if file.is_file() || file.components().count() != 1 {
        return Ok(file.to_owned());
    }
    let folder = default_folder();
    let name = file.to_string_lossy();
    let inside = folder.join(format!("{}.toml", name.trim_end_matches(".toml")));
    if inside.is_file() {
        return Ok(inside);
    }
    let known = files(&folder).unwrap_or_default();
    let stems: Vec<String> = known
        .iter()
        .filter_map(|path| Some(path.file_stem()?.to_string_lossy().into_owned()))
        .collect();
    let hint = match nearest(&name, stems.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "`robustctl drill --list` shows them".to_owned(),
    };
    Err(CliError::Usage(format!(
        "there is no file {name} here and no drill of that name in {}; {hint}",
        folder.display()
    )))
}

/// A drill and the text of its job file.
pub struct Read {
    /// What it says.
    pub drill: Drill,
    /// The text of its job file.
    pub job: String,
    /// Where that lies.
    pub job_path: PathBuf,
}

/// Reads both.
pub fn read(file: &Path) -> Result<Read, CliError> {
    let unreadable = |path: &Path, e: std::io::Error| {
        CliError::Usage(format!("cannot read {}: {e}", path.display()))
    };
    let text = std::fs::read_to_string(file).map_err(|e| unreadable(file, e))?;
    let drill = Drill::parse(&text, file).map_err(usage)?;
    let folder = std::path::absolute(file).map_err(|e| unreadable(file, e))?;
    let job_path: PathBuf = folder.parent().unwrap_or(Path::new("/")).join(&drill.job);
    let job = std::fs::read_to_string(&job_path).map_err(|e| {
        let (path, reason) = (job_path.clone(), e.to_string());
        usage(drill.refuse("job", DrillProblem::NoJob { path, reason }))
    })?;
    Ok(Read {
        drill,
        job,
        job_path,
    })
}

/// Checks the drill against its job.
pub fn make(drill: &Drill, job: &str, job_path: &Path) -> Result<Plan, CliError> {
    Plan::make(drill, job, job_path).map_err(usage)
}

/// What is wrong with a drill, as an error of the command line.
pub fn usage(e: DrillError) -> CliError {
    CliError::Usage(e.to_string())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_that_is_no_drill_is_refused_with_the_nearest() {
        let folder = tempfile::tempdir().unwrap();
        let there = folder.path().join("a.toml");
        std::fs::write(&there, "").unwrap();
        assert_eq!(find(&there).unwrap(), there);
        let wrong = find(Path::new("no-such-drill-at-all-anywhere")).unwrap_err();
        assert!(wrong.to_string().contains("no drill of that name"));
    }
}
