//! A source fails in the middle, on each road; and what a connected process costs that does nothing.
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use super::cores::cpu;
use super::netns::Net;
use super::node::{Node, Trainer, order, rollout};
use super::way::Way;
use super::{Report, WeightsArgs};
use robust_weights::lines::{Done, Told, Wish};

/// What happens to the relay that a puller reads from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// It is killed when the first bytes have come.
    Killed,
    /// It is stopped then: nobody reports that.
    Stopped,
    /// Its last chunk is damaged beforehand.
    Corrupt,
}

const FAULTS: [Fault; 3] = [Fault::Killed, Fault::Stopped, Fault::Corrupt];

impl Fault {
    /// What the names of its figures begin with.
    fn prefix(self) -> &'static str {
        match self {
            Fault::Killed => "",
            Fault::Stopped => "stopped_",
            Fault::Corrupt => "corrupt_",
        }
    }
}

/// For each road and fault `detect_ms` (from the fault to the pull's error, where it is a moment),
/// `resume_ms` (from asking another source to new bytes) and `refetched_chunks`; and `next_reader_s`, the
/// pull of a reader after another one of the same source was killed in the middle, beside `reader_s`.
pub(crate) fn measure(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("robust-bench.").tempdir()?;
    for way in [
        Way::ucx(),
        Way::shm(&folder.path().join("roads")),
        Way::tls(),
    ] {
        for fault in FAULTS {
            // The other roads can be measured all the same.
            if let Err(error) = relay_fails(args, report, (&way, fault)) {
                report.skip(&way.figure(format!("{}resume_ms", fault.prefix())), error);
            }
        }
        reader_exits(args, report, &way)?;
    }
    Ok(())
}

fn relay_fails(
    args: &WeightsArgs,
    report: &mut Report,
    (way, fault): (&Way, Fault),
) -> anyhow::Result<()> {
    let bytes = args.pair_mib << 19;
    let mut trainer = Trainer::start(bytes, &[None; 2], way)?;
    let mut puller = rollout(1, bytes, None, way)?;
    let name = |figure: &str| way.figure(format!("{}{figure}", fault.prefix()));
    for _ in 0..args.rounds {
        let mut relay = rollout(2, bytes, None, way)?;
        trainer.publish()?;
        let chunk = trainer.manifest.chunk_bytes;
        let before = puller.fetched()?;
        let first = trainer.rank(0);
        let relayed = order(&mut relay, &trainer, vec![first])?;
        if fault == Fault::Corrupt {
            relay.wait_ok(trainer.version)?;
            let (offset, len) = ((bytes - chunk) as usize, 1);
            relay.tell(&Wish::Corrupt { offset, len })?;
        }
        order(&mut puller, &trainer, vec![relayed])?;
        if fault != Fault::Corrupt {
            wait_begun(&mut puller)?;
        }
        let failing = Instant::now();
        let pid = Pid::from_raw(relay.pid() as i32).context("no such process")?;
        match fault {
            Fault::Killed => kill_process(pid, Signal::KILL)?,
            Fault::Stopped => kill_process(pid, Signal::STOP)?,
            Fault::Corrupt => {}
        }
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
        if fault != Fault::Corrupt {
            report.add(name("detect_ms"), (failed - failing).as_secs_f64() * 1e3);
        }
        report.add(name("resume_ms"), (resumed - asked).as_secs_f64() * 1e3);
        report.add(name("refetched_chunks"), again as f64 / chunk as f64);
    }
    report
        .get(&name("resume_ms"))
        .context("every pull was through before its relay failed")?;
    Ok(())
}

/// Waits until bytes have come, which is said after 10 ms: within 100 ms a version of these is through.
fn wait_begun(puller: &mut Node) -> anyhow::Result<()> {
    puller.wait(|told| match told {
        Told::Progress { bytes, .. } if *bytes > 0 => Some(()),
        Told::Done(_) => Some(()),
        _ => None,
    })
}

fn reader_exits(args: &WeightsArgs, report: &mut Report, way: &Way) -> anyhow::Result<()> {
    let bytes = args.pair_mib << 19;
    let mut trainer = Trainer::start(bytes, &[None], way)?;
    let mut reader = rollout(1, bytes, None, way)?;
    for _ in 0..args.rounds {
        trainer.publish()?;
        let mut pull = |trainer: &Trainer| -> anyhow::Result<f64> {
            let started = Instant::now();
            order(&mut reader, trainer, vec![trainer.rank(0)])?;
            Ok((reader.wait_ok(trainer.version)? - started).as_secs_f64())
        };
        report.add(way.figure("reader_s"), pull(&trainer)?);
        trainer.publish()?;
        let mut other = rollout(2, bytes, None, way)?;
        order(&mut other, &trainer, vec![trainer.rank(0)])?;
        wait_begun(&mut other)?;
        drop(other);
        report.add(way.figure("next_reader_s"), pull(&trainer)?);
    }
    Ok(())
}

/// `idle_cpu_percent` of one core, on each road: a source with eight pullers connected and nothing to do.
pub(crate) fn idle(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("robust-bench.").tempdir()?;
    let ways = [
        Way::ucx(),
        Way::shm(&folder.path().join("roads")),
        Way::tls(),
    ];
    ways.iter().try_for_each(|way| idle_on(args, report, way))
}

fn idle_on(args: &WeightsArgs, report: &mut Report, way: &Way) -> anyhow::Result<()> {
    let bytes = 4 << 20;
    let trainer = Trainer::start(bytes, &[None], way)?;
    let start = |id| rollout(id, bytes, None, way);
    let rollouts: anyhow::Result<Vec<Node>> = (0..8).map(start).collect();
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
            way.figure("idle_cpu_percent"),
            100.0 * used / started.elapsed().as_secs_f64(),
        );
    }
    Ok(())
}

/// `detect_cut_ms`: until a source behind a cut network is given up; nobody reports such a cut.
pub(crate) fn cut(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 18;
    for way in [Way::ucx(), Way::tls()] {
        for _ in 0..args.rounds.min(3) {
            let mut net = Net::new().map_err(anyhow::Error::msg)?;
            let mut host = || net.host(Some(&args.rate)).map_err(anyhow::Error::msg);
            let (far, near) = (host()?, host()?);
            let trainer = Trainer::start(bytes, &[Some(&far)], &way)?;
            let mut puller = rollout(1, bytes, Some(&near), &way)?;
            order(&mut puller, &trainer, vec![trainer.rank(0)])?;
            puller.wait(|told| matches!(told, Told::Progress { .. }).then_some(()))?;
            net.cut(&far).map_err(anyhow::Error::msg)?;
            let cut = Instant::now();
            let ended = puller.wait_at(|told, at| matches!(told, Told::Done(_)).then_some(at))?;
            let ms = (ended - cut).as_secs_f64() * 1e3;
            report.add(way.figure("detect_cut_ms"), ms);
        }
    }
    Ok(())
}
