//! `robust-bench state`: what the controller's state costs with a record, as what changed of it and as
//! all of it.
//!
//! The stream of [`Stream`] runs at each size, in which all of a step's work happens between two writes; with every input that leaves records, what changed since those
//! before is taken and encoded, as the daemon does in its loop of decisions. Beside it the whole state is
//! encoded, as the daemon did before: here and nowhere else. Then engines end one by one, with nothing beside it: what one fault costs.
use crate::goals::{put_json, write};
use crate::machine::{load, loads};
use robust_shared::core::Core;
use robust_sim::stream::Stream;
use robustctl::measuring::{CliError, Paint, Table, put};
use serde::Serialize;
use std::path::PathBuf;
use std::time::Instant;

/// What is measured, and where it goes.
#[derive(Debug, clap::Args)]
pub struct StateArgs {
    /// Writes that are measured at each size, at least; medians are shown
    #[arg(long, value_name = "N", default_value_t = 40)]
    writes: usize,
    /// Write the result as JSON to this file too
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Machines of the stream, of which some have agent workers beside: 7, 200 and 10,000 instances.
const SIZES: [u32; 3] = [5, 193, 9_616];
/// Engines that end, a step after the other.
const FAULTS: u64 = 9;
/// Steps that are measured, at least.
const STEPS: u64 = 3;

/// What a size cost.
#[derive(Debug, Serialize)]
struct Cost {
    instances: usize,
    /// Writes that were measured: the records of one input are written together.
    writes: usize,
    /// All of them in which a step committed.
    steps: u64,
    whole: Figures,
    changes: Figures,
    /// Entries that changed.
    entries: Spread,
    /// Of the records of an engine's end, when nothing else happened since the last ones.
    fault: Fault,
    load: f64,
}

/// What the end of one engine costs.
#[derive(Debug, Serialize)]
struct Fault {
    whole: Figures,
    changes: Figures,
    entries: Spread,
}

/// Of one way to write.
#[derive(Debug, Serialize)]
struct Figures {
    bytes: Spread,
    us: Spread,
    /// Bytes a step; of faults, bytes a fault.
    bytes_per_step: f64,
}

/// A figure over all writes.
#[derive(Debug, Serialize)]
struct Spread {
    median: f64,
    p90: f64,
    max: f64,
}

impl Spread {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let last = all.len().saturating_sub(1);
            all.get((last as f64 * share).round() as usize)
                .copied()
                .unwrap_or(f64::NAN)
        };
        Self {
            median: at(0.5),
            p90: at(0.9),
            max: at(1.0),
        }
    }
}

/// What one way cost, write by write.
#[derive(Default)]
struct Seen {
    bytes: Vec<f64>,
    us: Vec<f64>,
}

impl Seen {
    fn figures(self, steps: u64) -> Figures {
        let sum: f64 = self.bytes.iter().sum();
        Figures {
            bytes: Spread::of(self.bytes),
            us: Spread::of(self.us),
            bytes_per_step: sum / steps as f64,
        }
    }

    /// Does it, and notes the bytes that it made and the time it took.
    fn add(&mut self, write: impl FnOnce() -> Result<usize, String>) -> Result<(), String> {
        let began = Instant::now();
        let bytes = write()?;
        self.us.push(began.elapsed().as_secs_f64() * 1e6);
        self.bytes.push(bytes as f64);
        Ok(())
    }
}

/// Measures all sizes.
pub fn run(args: &StateArgs, json: bool) -> Result<(), CliError> {
    let sizes: Result<Vec<Cost>, String> = SIZES
        .into_iter()
        .map(|nodes| measure(nodes, args.writes))
        .collect();
    let sizes = sizes.map_err(|e| CliError::Failed(format!("the state cannot be written: {e}")))?;
    let all = serde_json::json!({"sizes": sizes, "load": loads()});
    write(args.out.as_deref(), &all)?;
    match json {
        true => put_json(&all),
        false => put(&text(&sizes)),
    }
}

fn measure(nodes: u32, least: usize) -> Result<Cost, String> {
    let mut stream = Stream::new(nodes);
    // Until the stream is steady, what changed is taken, as it would be.
    let mut handled = 0;
    while handled < u64::from(nodes) * 40 + 10_000 {
        handled += stream.prepare();
        stream.handle_and_record(|core| drop(core.take_changes()));
        stream.settle();
    }
    let (mut whole, mut changes, mut entries) = (Seen::default(), Seen::default(), Vec::new());
    let (mut failed, first) = (None, stream.steps());
    let mut instances = 0;
    while (stream.steps() < first + STEPS || entries.len() < least) && failed.is_none() {
        stream.prepare();
        stream.handle_and_record(|core| {
            let written = whole
                .add(|| encode_whole(core))
                .and_then(|()| changes.add(|| encode_changes(core, &mut entries)));
            failed = failed.take().or(written.err());
            instances = core.state().instances();
        });
        stream.settle();
    }
    let steps = stream.steps() - first;
    let fault = faults(&mut stream)?;
    match failed {
        Some(why) => Err(why),
        None => Ok(Cost {
            instances,
            writes: entries.len(),
            steps,
            whole: whole.figures(steps),
            changes: changes.figures(steps),
            entries: Spread::of(entries),
            fault,
            load: load(),
        }),
    }
}

/// Engines end, each when the job has gone on from the one before.
fn faults(stream: &mut Stream) -> Result<Fault, String> {
    let (mut whole, mut changes, mut entries) = (Seen::default(), Seen::default(), Vec::new());
    let mut failed = None;
    for which in 0..FAULTS {
        let mut is_before = true;
        // What happened meanwhile is written before the engine ends.
        stream.lose_engine(which * 7, |core| {
            if std::mem::take(&mut is_before) {
                return drop(core.take_changes());
            }
            let written = whole
                .add(|| encode_whole(core))
                .and_then(|()| changes.add(|| encode_changes(core, &mut entries)));
            failed = failed.take().or(written.err());
        });
        let back = stream.steps() + 1;
        while stream.steps() < back {
            stream.settle();
            stream.prepare();
            stream.handle_and_record(|core| drop(core.take_changes()));
        }
        stream.settle();
    }
    match failed {
        Some(why) => Err(why),
        None => Ok(Fault {
            whole: whole.figures(FAULTS),
            changes: changes.figures(FAULTS),
            entries: Spread::of(entries),
        }),
    }
}

fn encode_whole(core: &Core) -> Result<usize, String> {
    let mut bytes = Vec::new();
    ciborium::into_writer(core.state(), &mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes.len())
}

fn encode_changes(core: &mut Core, entries: &mut Vec<f64>) -> Result<usize, String> {
    let (changes, mut bytes) = (core.take_changes(), 0);
    for (key, entry) in &changes.puts {
        let value = entry.encode(*key).map_err(|e| e.to_string())?;
        bytes += key.encode().len() + value.len();
    }
    let removed = changes.removed.iter().map(|key| key.encode().len());
    bytes += removed.sum::<usize>();
    entries.push(changes.len() as f64);
    Ok(bytes)
}

fn text(sizes: &[Cost]) -> String {
    let mut table = Table::new(&[
        ">INSTANCES",
        "",
        ">BYTES",
        ">P90",
        ">US",
        ">P90",
        ">KB/STEP",
        ">ENTRIES",
        ">LOAD",
    ]);
    for cost in sizes {
        for (name, figures, entries) in [
            ("whole", &cost.whole, "-".to_owned()),
            (
                "changes",
                &cost.changes,
                format!("{:.0}", cost.entries.median),
            ),
        ] {
            table.row([
                cost.instances.to_string(),
                name.to_owned(),
                format!("{:.0}", figures.bytes.median),
                format!("{:.0}", figures.bytes.p90),
                format!("{:.1}", figures.us.median),
                format!("{:.1}", figures.us.p90),
                format!("{:.1}", figures.bytes_per_step / 1e3),
                entries,
                format!("{:.1}", cost.load),
            ]);
        }
    }
    table.render(Paint::stdout())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_changed_is_less_than_the_whole_and_of_one_fault_a_small_part_of_it() {
        let cost = measure(193, 20).unwrap();
        assert_eq!(cost.instances, 200);
        assert!(cost.writes >= 20 && cost.steps >= STEPS, "{cost:?}");
        let (whole, changes) = (&cost.whole.bytes, &cost.changes.bytes);
        assert!(changes.median * 2.0 < whole.median, "{cost:?}");
        let (whole, changes) = (&cost.fault.whole.bytes, &cost.fault.changes.bytes);
        assert!(changes.median * 20.0 < whole.median, "{cost:?}");
        let shown = text(&[cost]);
        assert!(
            shown.contains("whole") && shown.contains("changes"),
            "{shown}"
        );
    }
}
