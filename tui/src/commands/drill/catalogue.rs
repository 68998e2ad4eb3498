//! The drills that there are: the files of a folder, and one of them by its name.
use super::{Read, read};
use crate::commands::{put, put_json};
use crate::error::CliError;
use crate::paint::Paint;
use crate::table::Table;
use robust_shared::drill::{Drill, Plan};
use robust_shared::nearest::nearest;
use serde_json::json;
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
                        let plan = super::make(&drill, &job, &job_path)?;
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

/// Prints a line for each drill of a folder.
pub fn list(folder: Option<&Path>, json: bool) -> Result<(), CliError> {
    let folder = folder.map_or_else(default_folder, Path::to_path_buf);
    let entries = catalogue(&folder).map_err(CliError::Usage)?;
    match json {
        true => put_json(&entries.iter().map(as_json).collect::<Vec<_>>()),
        false => put(&table(&entries).render(Paint::stdout())),
    }
}

fn table(entries: &[Entry]) -> Table {
    let mut table = Table::new(&["DRILL", "SPEED", ">FAULTS", "ABOUT"]);
    for entry in entries {
        let speed = match &entry.planned {
            Ok((drill, _)) => drill.speed.name(),
            Err(_) => "refused",
        };
        let about = entry.about();
        table.row([
            entry.name.clone(),
            speed.to_owned(),
            entry.faults().to_string(),
            first_sentence(&about).to_owned(),
        ]);
    }
    table
}

fn as_json(entry: &Entry) -> serde_json::Value {
    let mut value = json!({
        "name": entry.name,
        "file": entry.path,
        "faults": entry.faults(),
    });
    match &entry.planned {
        Ok((drill, plan)) => {
            let expect = plan.series.iter().flat_map(|s| &s.expect);
            value["about"] = json!(drill.about());
            value["speed"] = json!(drill.speed.name());
            value["covers"] = json!(drill.covers);
            value["expect"] = expect.map(|e| e.text.as_str()).collect();
        }
        Err(why) => value["refused"] = json!(why),
    }
    value
}

fn first_sentence(text: &str) -> &str {
    text.split_once(". ")
        .map_or(text, |(first, _)| first)
        .trim_end_matches('.')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_list_has_a_line_for_each_drill_and_says_why_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("job.txt"),
            "[data]\nprompts = \"p\"\ntokenizer = \"t\"\n",
        )
        .unwrap();
        let drill = "# One dies. And more.\nversion = 1\nname = \"n\"\njob = \"job.txt\"\nseed = 1\n\
                     covers = [\"exit\"]\nspeed = \"slow\"\nexpect = [\"no restart\"]\n\
                     faults = [{ kind = \"kill\", role = \"agent\", at_step = 2 }]\n";
        std::fs::write(dir.path().join("good.toml"), drill).unwrap();
        let bad = drill.replace("kill", "kil");
        std::fs::write(dir.path().join("bad.toml"), bad).unwrap();
        let entries = catalogue(dir.path()).unwrap();
        let text = table(&entries).render(Paint::plain());
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("refused") && lines[1].contains("did you mean"));
        let words: Vec<&str> = lines[2].split_whitespace().collect();
        assert_eq!(words, ["good", "slow", "1", "One", "dies"]);
        let json = as_json(&entries[1]);
        assert_eq!(
            (&json["covers"][0], &json["faults"]),
            (&json!("exit"), &json!(1))
        );
        assert!(as_json(&entries[0])["refused"].is_string());
    }

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
