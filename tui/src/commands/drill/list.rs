//! The drills that there are, a line each.
use crate::drills::{Entry, catalogue, default_folder};
use crate::error::CliError;
use crate::output::{put, put_json};
use crate::paint::Paint;
use crate::table::Table;
use serde_json::json;
use std::path::Path;

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
                     covers = [\"exit\"]\nspeed = \"slow\"\nexpect = { restart = \"none\" }\n\
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
}
