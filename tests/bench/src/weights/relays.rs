//! Two trainer ranks, then 1, 2, 4 and 8 rollouts in a chain.
use std::path::Path;

use super::cores::steadily;
use super::gloo;
use super::netns::{Host, Net};
use super::node::{Node, Trainer, chain, rollout};
use super::way::Way;
use super::{Report, WeightsArgs};

/// Lengths of the chains.
const CHAINS: [usize; 4] = [1, 2, 4, 8];

/// Two trainer ranks, and rollouts.
const RANKS: usize = 2;

/// On one machine, where the cores are the limit, on each road.
pub(crate) fn loopback(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("robust-bench.").tempdir()?;
    for way in [
        Way::ucx(),
        Way::shm(&folder.path().join("roads")),
        Way::tls(),
    ] {
        chains(args, report, &way)?;
    }
    let Some(python) = gloo::python() else {
        report.skip(
            "gloo",
            "no Python with torch; ROBUST_BENCH_PYTHON may name one",
        );
        return Ok(());
    };
    gloo_on_loopback(&python, args, report)
}

fn chains(args: &WeightsArgs, report: &mut Report, way: &Way) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    let mut trainer = Trainer::start(bytes, &[None; RANKS], way)?;
    let start = |id| rollout(id, bytes, None, way);
    let rollouts: anyhow::Result<Vec<Node>> = (0..8).map(start).collect();
    let mut rollouts = rollouts?;
    let moved = |length| way.figure(format!("loopback_{length}_moved_gb_per_s"));
    for _ in 0..args.rounds {
        for length in CHAINS {
            let seconds = chain(&mut trainer, &mut rollouts[..length])?;
            report.add(way.figure(format!("loopback_{length}_s")), seconds);
            let gb = (bytes * length as u64) as f64 / 1e9;
            report.add(moved(length), gb / seconds);
        }
    }
    for length in CHAINS {
        let name = way.figure(format!("loopback_{length}_moved_over_memcpy"));
        report.ratio(&name, &moved(length), "memcpy_gb_per_s");
    }
    Ok(())
}

/// One rank and as many rollouts as gloo has receivers: the same number of processes.
fn gloo_on_loopback(python: &Path, args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    let way = Way::ucx();
    let mut trainer = Trainer::start(bytes, &[None], &way)?;
    let start = |id| rollout(id, bytes, None, &way);
    let rollouts: anyhow::Result<Vec<Node>> = (0..4).map(start).collect();
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
pub(crate) fn links(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    let mut net = Net::new().map_err(anyhow::Error::msg)?;
    let hosts: Result<Vec<Host>, String> =
        (0..RANKS + 8).map(|_| net.host(Some(&args.rate))).collect();
    let hosts = hosts.map_err(anyhow::Error::msg)?;
    let (ranks, places) = hosts.split_at(RANKS);
    for way in [Way::ucx(), Way::tls()] {
        chains_on_links(args, report, &way, (ranks, places))?;
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

fn chains_on_links(
    args: &WeightsArgs,
    report: &mut Report,
    way: &Way,
    (ranks, places): (&[Host], &[Host]),
) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    let ranks_there: Vec<Option<&Host>> = ranks.iter().map(Some).collect();
    let mut trainer = Trainer::start(bytes, &ranks_there, way)?;
    let start = |(id, host)| rollout(id, bytes, Some(host), way);
    let rollouts: anyhow::Result<Vec<Node>> = (0..).zip(places).map(start).collect();
    let mut rollouts = rollouts?;
    for round in 0..args.rounds {
        report.say(&format!("links by {}, round {}", way.road, round + 1));
        for length in CHAINS {
            let before = sent(ranks)?;
            let seconds = chain(&mut trainer, &mut rollouts[..length])?;
            report.add(way.figure(format!("relay_{length}_s")), seconds);
            let copies = (sent(ranks)? - before) as f64 / bytes as f64;
            report.add(way.figure(format!("source_copies_{length}")), copies);
        }
    }
    let (eight, one) = (way.figure("relay_8_s"), way.figure("relay_1_s"));
    report.ratio(&way.figure("relay8_over_1"), &eight, &one);
    let copies = report.get(&way.figure("source_copies_8")).cloned();
    if let Some(copies) = copies {
        report.put(&way.figure("source_copies"), copies);
    }
    Ok(())
}

/// Bytes that left these hosts, headers included.
fn sent(hosts: &[Host]) -> anyhow::Result<u64> {
    let sent: Result<Vec<u64>, String> = hosts.iter().map(|h| Ok(h.traffic()?.1)).collect();
    Ok(sent.map_err(anyhow::Error::msg)?.iter().sum())
}
