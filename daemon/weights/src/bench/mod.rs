//! Measures what the transfer of weights takes, with what else can move bytes beside it.
//!
//! Everything runs in other processes that end with this one. Rounds of what is compared alternate,
//! so that they see about the same load.
mod copies;
mod cores;
mod deltas;
mod figure;
mod gloo;
mod netns;
mod node;
mod pair;
mod recovery;
mod relays;
mod same_host;
mod tls;
mod way;

use std::path::PathBuf;
use std::time::Instant;

use robust_shared::figure::{Figure, Figures};
use serde_json::{Value, json};

pub(crate) use copies::tcp_source;

/// What is measured, and where it goes.
#[derive(clap::Args)]
pub(crate) struct BenchArgs {
    /// Rounds of each measurement.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// MiB of weights between two processes.
    #[arg(long, default_value_t = 1024)]
    pair_mib: u64,
    /// MiB of weights along relays.
    #[arg(long, default_value_t = 256)]
    relay_mib: u64,
    /// Rate of the shaped links, as `tc` takes it.
    #[arg(long, default_value = "1gbit")]
    rate: String,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Write the report as JSON to this file.
    #[arg(long)]
    out: Option<PathBuf>,
    /// Only these parts: pair, same_host, tls, loopback, links, deltas, recovery, cut, idle.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// All that was measured.
pub(crate) struct Report {
    figures: Figures,
    started: Instant,
}

impl Report {
    /// Says on standard error what is going on.
    fn say(&self, text: &str) {
        eprintln!("[{:5.1} s] {text}", self.started.elapsed().as_secs_f64());
    }

    fn skip(&mut self, what: &str, reason: impl std::fmt::Display) {
        let line = format!("{what} skipped: {reason}");
        self.say(&line);
        self.figures.skip(line);
    }

    /// Notes one round's value of a figure.
    fn add(&mut self, name: impl Into<String>, value: f64) {
        self.figures.add(name, value, figure::load());
    }

    fn put(&mut self, name: &str, figure: Figure) {
        self.say(&format!(
            "{name}: {:.3}",
            figure.median().unwrap_or(f64::NAN)
        ));
        self.figures.put(name, figure);
    }

    fn get(&self, name: &str) -> Option<&Figure> {
        self.figures.get(name)
    }

    /// Puts `name`, round by round `a` over `b`, if both were measured.
    fn ratio(&mut self, name: &str, a: &str, b: &str) {
        if let Some(ratio) = self.figures.ratio(a, b) {
            self.put(name, ratio);
        }
    }

    fn json(&self, args: &BenchArgs) -> Value {
        let (pair, relay, rate) = (args.pair_mib, args.relay_mib, &args.rate);
        let settings = json!({"rounds": args.rounds, "pair_mib": pair, "relay_mib": relay,
            "rate": rate, "cores": std::thread::available_parallelism().ok().map(usize::from)});
        self.figures
            .report(self.started.elapsed().as_secs_f64(), settings)
    }

    fn print(&self) {
        println!(
            "{:36} {:>9} {:>9} {:>9} {:>6}",
            "figure", "median", "min", "max", "load"
        );
        for (name, figure) in self.figures.iter() {
            let all = figure.summary();
            let [median, min, max, load] =
                [all.median, all.min, all.max, all.load].map(|v| v.unwrap_or(f64::NAN));
            println!("{name:36} {median:9.3} {min:9.3} {max:9.3} {load:6.1}");
        }
        let skipped = self.figures.skipped();
        skipped.iter().for_each(|line| println!("{line}"));
    }
}

/// One part: its name, what goes before it in the report's words, and what it does.
type Part = (
    &'static str,
    fn(&BenchArgs, &mut Report) -> anyhow::Result<()>,
);

const PARTS: [Part; 9] = [
    ("pair", pair::measure),
    ("same_host", same_host::measure),
    ("tls", tls::measure),
    ("loopback", relays::loopback),
    ("links", relays::links),
    ("deltas", deltas::measure),
    ("recovery", recovery::measure),
    ("cut", recovery::cut),
    ("idle", recovery::idle),
];

/// Measures all parts; one that fails is left out, with the reason in the report.
pub(crate) fn bench(args: &BenchArgs) -> anyhow::Result<()> {
    let mut report = Report {
        figures: Figures::default(),
        started: Instant::now(),
    };
    for (name, measure) in PARTS {
        if !args.only.is_empty() && !args.only.iter().any(|only| only == name) {
            continue;
        }
        report.say(&format!("{name} ..."));
        if let Err(error) = measure(args, &mut report) {
            report.skip(name, format!("{error:#}"));
        }
    }
    let json = report.json(args);
    if let Some(path) = &args.out {
        std::fs::write(path, serde_json::to_vec_pretty(&json)?)?;
    }
    match args.json {
        true => println!("{json:#}"),
        false => report.print(),
    }
    Ok(())
}
