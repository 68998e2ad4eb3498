//! Two trainer ranks, then 1, 2, 4 and 8 rollouts in a chain.
use std::path::Path;

use super::cores::steadily;
use super::gloo;
use super::netns::{Host, Net};
use super::node::{Node, Trainer, chain, rollout};
use super::{BenchArgs, Report};

/// Lengths of the chains.
const CHAINS: [usize; 4] = [1, 2, 4, 8];

/// Two trainer ranks, and rollouts.
const RANKS: usize = 2;

/// On loopback, where the cores are the limit.
pub(crate) fn loopback(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    let mut trainer = Trainer::start(bytes, &[None; RANKS])?;
    let rollouts: anyhow::Result<Vec<Node>> = (0..8).map(|id| rollout(id, bytes, None)).collect();
    let mut rollouts = rollouts?;
    for _ in 0..args.rounds {
        for length in CHAINS {
            let seconds = chain(&mut trainer, &mut rollouts[..length])?;
            report.add(format!("loopback_{length}_s"), seconds);
            let moved = (bytes * length as u64) as f64 / 1e9 / seconds;
            report.add(format!("loopback_{length}_moved_gb_per_s"), moved);
        }
    }
    for length in CHAINS {
        let moved = format!("loopback_{length}_moved_gb_per_s");
        let name = format!("loopback_{length}_moved_over_memcpy");
        report.ratio(&name, &moved, "memcpy_gb_per_s");
    }
    let Some(python) = gloo::python() else {
        report.skip(
            "gloo",
            "no Python with torch; ROBUST_BENCH_PYTHON may name one",
        );
        return Ok(());
    };
    drop((trainer, rollouts));
    gloo_on_loopback(&python, args, report)
}

/// One rank and as many rollouts as gloo has receivers: the same number of processes.
fn gloo_on_loopback(python: &Path, args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    let mut trainer = Trainer::start(bytes, &[None])?;
    let rollouts: anyhow::Result<Vec<Node>> = (0..4).map(|id| rollout(id, bytes, None)).collect();
    let mut rollouts = rollouts?;
    for receivers in [1, 2, 4] {
        report.say(&format!("gloo to {receivers} ..."));
        // Ours right after it, by the same machine.
        let (gloo, ours) = steadily(report, || {
            let gloo = gloo::broadcast(python, receivers, bytes, args.rounds, &[])?;
            let chain = |_: &f64| chain(&mut trainer, &mut rollouts[..receivers]);
            let ours: anyhow::Result<Vec<f64>> = gloo.iter().map(chain).collect();
            Ok((gloo, ours?))
        })?;
        for (gloo, ours) in gloo.into_iter().zip(ours) {
            report.add(format!("gloo_{receivers}_s"), gloo);
            report.add(format!("gloo_ratio_{receivers}"), gloo / ours);
        }
    }
    Ok(())
}

/// On shaped links, as between machines.
pub(crate) fn links(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    let mut net = Net::new().map_err(anyhow::Error::msg)?;
    let hosts: Result<Vec<Host>, String> =
        (0..RANKS + 8).map(|_| net.host(Some(&args.rate))).collect();
    let hosts = hosts.map_err(anyhow::Error::msg)?;
    let (ranks, places) = hosts.split_at(RANKS);
    let ranks_there: Vec<Option<&Host>> = ranks.iter().map(Some).collect();
    let mut trainer = Trainer::start(bytes, &ranks_there)?;
    let start = |(id, host)| rollout(id, bytes, Some(host));
    let rollouts: anyhow::Result<Vec<Node>> = (0..).zip(places).map(start).collect();
    let mut rollouts = rollouts?;
    for round in 0..args.rounds {
        report.say(&format!("links, round {}", round + 1));
        for length in CHAINS {
            let before = sent(ranks)?;
            let seconds = chain(&mut trainer, &mut rollouts[..length])?;
            report.add(format!("relay_{length}_s"), seconds);
            let copies = (sent(ranks)? - before) as f64 / bytes as f64;
            report.add(format!("source_copies_{length}"), copies);
        }
    }
    drop((trainer, rollouts));
    report.ratio("relay8_over_1", "relay_8_s", "relay_1_s");
    if let Some(copies) = report.get("source_copies_8").cloned() {
        report.put("source_copies", copies);
    }
    let Some(python) = gloo::python() else {
        return Ok(());
    };
    report.say("gloo on links ...");
    for host in &hosts {
        host.reach_itself().map_err(anyhow::Error::msg)?;
    }
    for seconds in gloo::broadcast(&python, 2, bytes, args.rounds, &hosts)? {
        report.add("gloo_links_2_s", seconds);
    }
    report.ratio("gloo_links_ratio_2", "gloo_links_2_s", "relay_2_s");
    Ok(())
}

/// Bytes that left these hosts, headers included.
fn sent(hosts: &[Host]) -> anyhow::Result<u64> {
    let sent: Result<Vec<u64>, String> = hosts.iter().map(|h| Ok(h.traffic()?.1)).collect();
    Ok(sent.map_err(anyhow::Error::msg)?.iter().sum())
}
