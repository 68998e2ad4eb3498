//! Figures as a table, with what each should be, and as JSON.
use robustctl::measuring::{CliError, Paint, Table, put};
use serde_json::{Map, Value};
use std::path::Path;

/// What a figure should be.
#[derive(Clone, Copy)]
pub enum Goal {
    /// No less than this.
    AtLeast(f64),
    /// No more than this.
    AtMost(f64),
}

/// A figure's name and its goal.
pub type Named = (&'static str, Goal);

impl Goal {
    fn is_met(self, value: f64) -> bool {
        match self {
            Goal::AtLeast(goal) => value >= goal,
            Goal::AtMost(goal) => value <= goal,
        }
    }

    fn text(self) -> String {
        match self {
            Goal::AtLeast(goal) => format!(">= {goal}"),
            Goal::AtMost(goal) => format!("<= {goal}"),
        }
    }
}

/// Prints the figures as a table, or as a line of JSON, and writes them as JSON to a file where one is named.
pub fn show(
    all: &Map<String, Value>,
    goals: &[Named],
    out: Option<&Path>,
    json: bool,
) -> Result<(), CliError> {
    let whole = Value::Object(all.clone());
    write(out, &whole)?;
    match json {
        true => put_json(&whole),
        false => put(&text(all, goals)),
    }
}

/// Writes a result as JSON to this file, where one is named.
pub fn write(out: Option<&Path>, result: &Value) -> Result<(), CliError> {
    let Some(path) = out else {
        return Ok(());
    };
    std::fs::write(path, format!("{result:#}\n"))
        .map_err(|e| CliError::Failed(format!("{} cannot be written: {e}", path.display())))
}

/// Prints a result as one line of JSON.
pub fn put_json(result: &Value) -> Result<(), CliError> {
    put(&format!("{result}\n"))
}

fn text(all: &Map<String, Value>, goals: &[Named]) -> String {
    let mut table = Table::new(&["FIGURE", ">MEDIAN", ">MIN", ">MAX", ">LOAD", "GOAL", "MET"]);
    let number = |figure: &Value, key: &str| match figure[key].as_f64() {
        Some(value) => format!("{value:.3}"),
        None => "-".to_owned(),
    };
    let mut row = |name: &str, figure: &Value, goal: Option<Goal>| {
        let median = figure["median"].as_f64();
        let met = match (goal, median) {
            (Some(goal), Some(value)) if goal.is_met(value) => "yes",
            (Some(_), Some(_)) => "no",
            _ => "-",
        };
        table.row([
            name.to_owned(),
            number(figure, "median"),
            number(figure, "min"),
            number(figure, "max"),
            figure["load"]
                .as_f64()
                .map_or("-".to_owned(), |l| format!("{l:.1}")),
            goal.map_or_else(|| "-".to_owned(), Goal::text),
            met.to_owned(),
        ]);
    };
    for (name, goal) in goals {
        row(name, all.get(*name).unwrap_or(&Value::Null), Some(*goal));
    }
    let is_goal = |name: &str| goals.iter().any(|(goal, _)| *goal == name);
    for (name, figure) in all {
        if figure.get("median").is_some() && !is_goal(name) {
            row(name, figure, None);
        }
    }
    let mut text = table.render(Paint::stdout());
    for line in all
        .get("skipped")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        text += &format!("{}\n", line.as_str().unwrap_or_default());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const GOALS: [Named; 3] = [
        ("source_copies", Goal::AtMost(1.1)),
        ("relay8_over_1", Goal::AtMost(1.3)),
        ("gloo_ratio_2", Goal::AtLeast(1.0)),
    ];

    #[test]
    fn the_table_says_which_goals_are_met_and_what_was_skipped() {
        let all = json!({
            "source_copies": {"median": 1.0, "min": 1.0, "max": 1.0, "load": 2.0},
            "relay8_over_1": {"median": 1.4, "min": 1.2, "max": 1.9, "load": 2.0},
            "tcp_gb_per_s": {"median": 2.25, "min": 2.0, "max": 3.0, "load": 2.0},
            "skipped": ["gloo skipped: no torch"],
        });
        let text = text(all.as_object().map_or(&Map::new(), |all| all), &GOALS);
        let words = |name: &str| -> Vec<&str> {
            let line = text.lines().find(|l| l.starts_with(name));
            line.unwrap_or_default().split_whitespace().collect()
        };
        assert!(
            words("source_copies").ends_with(&["<=", "1.1", "yes"]),
            "{text}"
        );
        assert!(
            words("relay8_over_1").ends_with(&["<=", "1.3", "no"]),
            "{text}"
        );
        assert!(words("gloo_ratio_2").ends_with(&[">=", "1", "-"]), "{text}");
        assert!(words("tcp_gb_per_s").contains(&"2.250"), "{text}");
        assert!(text.ends_with("gloo skipped: no torch\n"), "{text}");
    }
}
