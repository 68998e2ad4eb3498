//! A report that `robustctl report --json` wrote.
use crate::error::CliError;
use robust_proto::v1;
use serde_json::Value;
use std::path::Path;

/// Figures of a step that JSON has as `null` where they are no number, as after a training that went astray.
const NUMBERS: [&str; 4] = ["reward", "loss", "grad_norm", "seconds"];

/// Reads it.
pub fn read(path: &Path) -> Result<v1::Report, CliError> {
    let usage = |why: String| CliError::Usage(format!("{}: {why}", path.display()));
    let text = std::fs::read(path).map_err(|e| usage(e.to_string()))?;
    report(&text).map_err(|why| {
        usage(format!(
            "it is no report that `robustctl report --json` wrote: {why}"
        ))
    })
}

/// The report of its text, or what is wrong with it.
pub fn report(text: &[u8]) -> Result<v1::Report, String> {
    let mut value: Value = serde_json::from_slice(text).map_err(|e| e.to_string())?;
    let lines = match value
        .as_object_mut()
        .and_then(|all| all.remove("step_lines"))
    {
        Some(Value::Array(lines)) => lines,
        _ => return Err("it has no `step_lines`".to_owned()),
    };
    let lines: Result<Vec<_>, _> = lines.into_iter().map(line).collect();
    let step_lines = lines.map_err(|e| e.to_string())?;
    drop_nulls(&mut value);
    let report: v1::Report = serde_json::from_value(value).map_err(|e| e.to_string())?;
    match report.job.is_empty() {
        true => Err("it has no `job`".to_owned()),
        false => Ok(v1::Report {
            step_lines,
            ..report
        }),
    }
}

fn line(mut value: Value) -> Result<v1::StepLine, serde_json::Error> {
    let is_none = |name: &str| value.get(name).is_some_and(Value::is_null);
    let [reward, loss, grad_norm, seconds] = NUMBERS.map(is_none);
    drop_nulls(&mut value);
    let mut line: v1::StepLine = serde_json::from_value(value)?;
    let figures = [
        (reward, &mut line.reward),
        (loss, &mut line.loss),
        (grad_norm, &mut line.grad_norm),
        (seconds, &mut line.seconds),
    ];
    for (is_none, figure) in figures {
        if is_none {
            *figure = f64::NAN;
        }
    }
    Ok(line)
}

/// What is not there is left out: numbers are not read from `null`.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(all) => {
            all.retain(|_, value| !value.is_null());
            all.values_mut().for_each(drop_nulls);
        }
        Value::Array(all) => all.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}
