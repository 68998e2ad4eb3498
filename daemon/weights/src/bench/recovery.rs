//! A relay is killed in the middle; and what a connected process costs that does nothing.
use std::time::{Duration, Instant};

use anyhow::Context;

use super::netns::Net;
use super::node::{Node, Trainer, order, rollout};
use super::{BenchArgs, Report};
use crate::cli::{Done, Told};

/// `detect_ms`, `resume_ms` (from the pull's error to new bytes from elsewhere) and
/// `refetched_chunks`, with the relay killed when half of the bytes have come.
pub(crate) fn measure(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.pair_mib << 19;
    let mut trainer = Trainer::start(bytes, &[None; 2])?;
    let mut puller = rollout(1, bytes, None)?;
    for _ in 0..args.rounds {
        let mut relay = rollout(2, bytes, None)?;
        trainer.publish()?;
        let before = puller.fetched()?;
        let first = trainer.rank(0);
        let relayed = order(&mut relay, &trainer, vec![first])?;
        order(&mut puller, &trainer, vec![relayed])?;
        puller.wait(|told| match told {
            Told::Progress { bytes: here, .. } if *here >= bytes / 2 => Some(()),
            Told::Done(_) => Some(()),
            _ => None,
        })?;
        let killed = Instant::now();
        drop(relay);
        let (failed, result) = puller.wait_at(|told, at| match told {
            Told::Done(Done { result, .. }) => Some((at, result.clone())),
            _ => None,
        })?;
        if result == "ok" {
            continue; // It was through already; not a round.
        }
        let had = puller.fetched()?;
        let second = trainer.rank(1);
        let asked = Instant::now();
        order(&mut puller, &trainer, vec![second])?;
        let resumed = puller.wait_at(|told, at| match told {
            Told::Progress { fetched, .. } if before + fetched > had => Some(at),
            _ => None,
        })?;
        puller.wait_ok(trainer.version)?;
        let again = puller.fetched()? - before - bytes;
        report.add("detect_ms", (failed - killed).as_secs_f64() * 1e3);
        report.add("resume_ms", (resumed - asked).as_secs_f64() * 1e3);
        report.add(
            "refetched_chunks",
            again as f64 / trainer.manifest.chunk_bytes as f64,
        );
    }
    report
        .get("resume_ms")
        .context("every pull was through before its relay was killed")?;
    Ok(())
}

/// `idle_cpu_percent` of one core: a source with eight pullers connected and nothing to do.
pub(crate) fn idle(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = 4 << 20;
    let trainer = Trainer::start(bytes, &[None])?;
    let rollouts: anyhow::Result<Vec<Node>> = (0..8).map(|id| rollout(id, bytes, None)).collect();
    let mut rollouts = rollouts?;
    for rollout in &mut rollouts {
        order(rollout, &trainer, vec![trainer.rank(0)])?;
        rollout.wait_ok(trainer.version)?;
    }
    let pid = trainer.ranks[0].pid();
    // It has worked until now; a kernel that counts nothing would make any figure 0.
    anyhow::ensure!(
        !cpu(pid)?.is_zero(),
        "this kernel's schedstat counts nothing"
    );
    for _ in 0..args.rounds {
        let (started, before) = (Instant::now(), cpu(pid)?);
        std::thread::sleep(Duration::from_secs(1));
        let used = (cpu(pid)? - before).as_secs_f64();
        report.add(
            "idle_cpu_percent",
            100.0 * used / started.elapsed().as_secs_f64(),
        );
    }
    Ok(())
}

/// Time that all threads of a process ran.
fn cpu(pid: u32) -> anyhow::Result<Duration> {
    let mut nanos = 0;
    for task in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let text = std::fs::read_to_string(task?.path().join("schedstat"))?;
        let ran = text
            .split_whitespace()
            .next()
            .context("schedstat is empty")?;
        nanos += ran.parse::<u64>()?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// `detect_cut_ms`: until a source behind a cut network is given up; nobody reports such a cut.
pub(crate) fn cut(args: &BenchArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 18;
    for _ in 0..args.rounds.min(3) {
        let mut net = Net::new().map_err(anyhow::Error::msg)?;
        let mut host = || net.host(Some(&args.rate)).map_err(anyhow::Error::msg);
        let (far, near) = (host()?, host()?);
        let trainer = Trainer::start(bytes, &[Some(&far)])?;
        let mut puller = rollout(1, bytes, Some(&near))?;
        order(&mut puller, &trainer, vec![trainer.rank(0)])?;
        puller.wait(|told| matches!(told, Told::Progress { .. }).then_some(()))?;
        net.cut(&far).map_err(anyhow::Error::msg)?;
        let cut = Instant::now();
        let ended = puller.wait_at(|told, at| matches!(told, Told::Done(_)).then_some(at))?;
        report.add("detect_cut_ms", (ended - cut).as_secs_f64() * 1e3);
    }
    Ok(())
}
