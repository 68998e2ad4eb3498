//! The curve of the simulator for 1 to 256 rollouts, as `robustctl sim weights` draws it.
use crate::programs;
use robustctl::measuring::CliError;
use serde_json::{Map, Value, json};

const ROLLOUTS: &str = "1,2,4,8,16,32,64,128,256";

/// Adds it to the figures, whole as `sim`, and the times for one and for 256 rollouts over the ideal one as figures.
pub fn add(chunk_mib: u64, all: &mut Map<String, Value>) -> Result<(), CliError> {
    let chunk = chunk_mib.to_string();
    let words: [&str; 7] = [
        "sim",
        "weights",
        "--json",
        "--rollouts",
        ROLLOUTS,
        "--chunk-mib",
        &chunk,
    ];
    let simulated = programs::json_of("robustctl", &words)?;
    let load = all.get("idle_cpu_percent").and_then(|f| f.get("load"));
    let load = load.cloned().unwrap_or(Value::Null);
    for key in ["sim_1", "sim_256"] {
        let figure = match simulated.get(key).and_then(Value::as_f64) {
            // In virtual time: the same in every run.
            Some(v) => json!({"median": v, "min": v, "max": v, "all": [v], "load": load}),
            None => Value::Null,
        };
        all.insert(key.to_owned(), figure);
    }
    all.insert("sim".to_owned(), Value::Object(simulated));
    Ok(())
}
