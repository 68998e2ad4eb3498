//! One source, one puller, loopback: with what the machine and UCX's own perf tool can do beside it.
use std::time::Instant;

use super::copies::{
    PERF_TESTS, PIECE_BYTES, PerfTest, UNDELIVERED, gb_per_s, has_perftest, memcpy, perftest,
    tcp_copy,
};
use super::node::{Node, Trainer, order, rollout};
use super::{BenchArgs, Report};
use crate::cli::{Told, Wish};

/// `pull_*_gb_per_s`, those of its peers, and the ratios.
pub(crate) fn measure(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.pair_mib << 20;
    let perf = has_perftest();
    if !perf {
        report.skip("ucx_perftest", "not installed (package ucx-utils)");
    }
    copies(args, bytes, report)?;
    let mut trainer = Trainer::start(bytes, &[None])?;
    let mut puller = rollout(1, bytes, None)?;
    for _ in 0..args.rounds {
        if perf {
            for test in PERF_TESTS {
                report.add(test.figure(), perftest(test, PIECE_BYTES, bytes)?);
                if test.delivers {
                    report.add(test.whole_figure(), perftest(test, bytes, bytes)?);
                }
            }
        }
        trainer.publish()?;
        let (node, version) = (&mut puller, trainer.version);
        // Both have slept while the perf tool ran, which warms itself up before it measures.
        raw(node, &trainer, bytes)?;
        // The bare fetch first: the version is not here yet, and does not stay. Digests are not
        // looked at, but taken: the copy that takes them is the only one that there is.
        report.add("pull_nodigest_gb_per_s", raw(node, &trainer, bytes)?);
        let started = Instant::now();
        order(node, &trainer, trainer.shares())?;
        let took = node.wait_ok(version)? - started;
        report.add("pull_gb_per_s", gb_per_s(bytes, took));
    }
    // The best that the perf tool does that leaves these bytes in a buffer, as a pull does, in messages
    // of our size, from cache to cache; and of that what a plain TCP connection does between two
    // buffers as large as ours.
    let (pull, raw, pieces) = (
        "pull_gb_per_s",
        "pull_nodigest_gb_per_s",
        best(report, PerfTest::figure),
    );
    report.ratio("pull_over_perftest", pull, &pieces);
    report.ratio("pull_over_perftest_nodigest", raw, &pieces);
    report.ratio("tcp_over_perftest", "tcp_gb_per_s", &pieces);
    // Its best between two buffers as large as ours.
    let whole = best(report, PerfTest::whole_figure);
    report.ratio("pull_over_perftest_whole", pull, &whole);
    // For who wants to know what the last copy costs.
    let undelivered = format!("perftest_{UNDELIVERED}_gb_per_s");
    report.ratio("pull_over_perftest_undelivered", pull, &undelivered);
    report.ratio("pull_over_tcp", "pull_gb_per_s", "tcp_gb_per_s");
    Ok(())
}

/// The key of the largest of these figures of the tests that deliver.
fn best(report: &Report, figure: fn(&PerfTest) -> String) -> String {
    let median = |key: &String| {
        let figure = report.get(key);
        figure.and_then(|figure| figure.median()).unwrap_or(0.0)
    };
    let delivering = PERF_TESTS.iter().filter(|test| test.delivers);
    let best = delivering
        .map(figure)
        .max_by(|a, b| median(a).total_cmp(&median(b)));
    best.unwrap_or_default()
}

fn copies(args: &BenchArgs, bytes: u64, report: &mut Report) -> anyhow::Result<()> {
    let size = bytes.to_string();
    let source = Node::start(0, None, &["tcp-source", "--bytes", &size])?;
    let from = vec![1_u8; usize::try_from(bytes)?];
    let mut to = vec![2_u8; from.len()];
    for _ in 0..args.rounds {
        report.add("memcpy_gb_per_s", memcpy(&from, &mut to));
        report.add("tcp_gb_per_s", tcp_copy(&source, &mut to)?);
    }
    Ok(())
}

fn raw(node: &mut Node, trainer: &Trainer, bytes: u64) -> anyhow::Result<f64> {
    node.tell(&Wish::RawFetch(trainer.rank(0)))?;
    let time = node.wait(|told| match told {
        Told::RawFetched { time } => Some(*time),
        _ => None,
    })?;
    Ok(gb_per_s(bytes, time))
}
