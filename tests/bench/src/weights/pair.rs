//! One source, one puller, loopback: with what the machine and UCX's own perf tool can do beside it.
//!
//! What a ratio compares was measured one right after the other, and the machine's cores did not move
//! in between (see `cores`).
use std::time::Instant;

use robust_shared::figure::Figure;
use robust_transport::PIECE_BYTES;

use super::copies::{
    IN_CACHE, PERF_TESTS, PerfTest, gb_per_s, has_perftest, memcpy, perftest, tcp_copy,
};
use super::cores::{cpu, steadily};
use super::node::{Node, Trainer, order, rollout};
use super::way::Way;
use super::{Report, WeightsArgs};
use crate::machine::load;
use robust_weights::lines::{Told, Wish};

const PULL: &str = "pull_gb_per_s";
const RAW: &str = "pull_nodigest_gb_per_s";
/// Rounds of what is compared with the perf tool, for each of the others. Within seconds the tool makes
/// 4 GB/s or 9, as the host lets it: a median of five such ratios is off by a tenth.
const TIMES: usize = 3;

/// `pull_*_gb_per_s`, those of its peers, and the ratios.
pub(crate) fn measure(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.pair_mib << 20;
    copies(args, bytes, report)?;
    let mut pair = Pair::start(bytes, &Way::ucx())?;
    if !has_perftest() {
        report.skip("ucx_perftest", "not installed (package ucx-utils)");
        for _ in 0..args.rounds {
            let (raw, pull) = steadily(report, || {
                pair.trainer.publish()?;
                pair.pull()
            })?;
            report.add(RAW, raw);
            report.add(PULL, pull);
        }
        return Ok(());
    }
    let mut tests = PERF_TESTS.map(Beside::new);
    let mut in_cache = Beside::new(IN_CACHE);
    for _ in 0..TIMES * args.rounds {
        for test in tests.iter_mut().chain([&mut in_cache]) {
            test.measure(&mut pair, report)?;
        }
    }
    // Against what the perf tool does in messages of our size, from cache to cache; and between two
    // buffers as large as ours.
    let ratios: [(&str, Ratio); 3] = [
        ("pull_over_perftest", |t| t.pull.over(&t.pieces)),
        ("pull_over_perftest_nodigest", |t| t.raw.over(&t.pieces)),
        ("pull_over_perftest_whole", |t| t.pull.over(&t.whole)),
    ];
    for (name, ratio) in ratios {
        report.put(name, strictest(&tests, ratio));
    }
    report.put("pull_over_perftest_sndbuf", ratios[0].1(&in_cache));
    Ok(())
}

/// Round by round something of ours over something of the tool's.
type Ratio = fn(&Beside) -> Figure;

/// The ratio to the test that we compare worst with. Not the test with the best figure: its rounds may
/// have met the better machine.
fn strictest(tests: &[Beside], ratio: Ratio) -> Figure {
    let median = |figure: &Figure| figure.median().unwrap_or(f64::INFINITY);
    let ratios = tests.iter().map(ratio);
    let least = ratios.min_by(|a, b| median(a).total_cmp(&median(b)));
    least.unwrap_or_default()
}

/// A test of the perf tool, and what was measured beside it.
struct Beside {
    test: PerfTest,
    /// The tool's, in messages of the size of our pieces. It sends one buffer of that size again and
    /// again into another one, from cache to cache; the bytes of weights lie in memory, and shall lie
    /// there again.
    pieces: Figure,
    /// The tool's, with all bytes as one message.
    whole: Figure,
    pull: Figure,
    /// A pull that does not look at digests.
    raw: Figure,
}

impl Beside {
    fn new(test: PerfTest) -> Self {
        let none = Figure::default;
        Self {
            test,
            pieces: none(),
            whole: none(),
            pull: none(),
            raw: none(),
        }
    }

    /// The tool, both pulls, and the tool again.
    fn measure(&mut self, pair: &mut Pair, report: &mut Report) -> anyhow::Result<()> {
        let (test, bytes) = (self.test, pair.bytes);
        let measured = steadily(report, || {
            pair.trainer.publish()?;
            let pieces = perftest(test, PIECE_BYTES, bytes)?;
            let (raw, pull) = pair.pull()?;
            Ok((pieces, raw, pull, perftest(test, bytes, bytes)?))
        })?;
        let (pieces, raw, pull, whole) = measured;
        let load = load();
        let mut add = |figure: &mut Figure, key: String, value| {
            figure.add(value, load);
            report.add(key, value);
        };
        add(&mut self.pieces, test.figure(), pieces);
        add(&mut self.raw, RAW.into(), raw);
        add(&mut self.pull, PULL.into(), pull);
        add(&mut self.whole, test.whole_figure(), whole);
        Ok(())
    }
}

/// A source and a puller.
pub(crate) struct Pair {
    /// The source.
    pub trainer: Trainer,
    puller: Node,
    bytes: u64,
}

impl Pair {
    /// For versions of so many bytes.
    pub fn start(bytes: u64, way: &Way) -> anyhow::Result<Self> {
        Ok(Self {
            trainer: Trainer::start(bytes, &[None], way)?,
            puller: rollout(1, bytes, None, way)?,
            bytes,
        })
    }

    /// Waits until the pages of both sides' buffers are huge: a thread in each makes them so after the start,
    /// and takes the core that a pull would have.
    pub fn settle(&self) -> anyhow::Result<()> {
        self.trainer.ranks[0].settle()?;
        self.puller.settle()
    }

    /// GB/s of a bare fetch and of a pull of the version that was published last.
    pub fn pull(&mut self) -> anyhow::Result<(f64, f64)> {
        // Both have slept while others were measured, which the perf tool warms itself up before.
        self.raw()?;
        // The bare fetch first: the version is not here yet, and does not stay. Digests are not
        // looked at, but taken: the copy that takes them is the only one that there is.
        let raw = self.raw()?;
        let started = Instant::now();
        let shares = self.trainer.shares();
        order(&mut self.puller, &self.trainer, shares)?;
        let took = self.puller.wait_ok(self.trainer.version)? - started;
        Ok((raw, gb_per_s(self.bytes, took)))
    }

    /// Processor seconds of the source and the puller so far.
    pub fn cpu(&self) -> anyhow::Result<f64> {
        let (source, puller) = (cpu(self.trainer.ranks[0].pid())?, cpu(self.puller.pid())?);
        Ok((source + puller).as_secs_f64())
    }

    fn raw(&mut self) -> anyhow::Result<f64> {
        self.puller.tell(&Wish::RawFetch(self.trainer.rank(0)))?;
        let time = self.puller.wait(|told| match told {
            Told::RawFetched { time } => Some(*time),
            _ => None,
        })?;
        Ok(gb_per_s(self.bytes, time))
    }
}

fn copies(args: &WeightsArgs, bytes: u64, report: &mut Report) -> anyhow::Result<()> {
    let size = bytes.to_string();
    let source = Node::tcp_source(&["--bytes", &size])?;
    let from = vec![1_u8; usize::try_from(bytes)?];
    let mut to = vec![2_u8; from.len()];
    for _ in 0..args.rounds {
        report.add("memcpy_gb_per_s", memcpy(&from, &mut to));
        report.add("tcp_gb_per_s", tcp_copy(&source, &mut to)?);
    }
    Ok(())
}
