//! What a step changed, instead of the whole version.
use std::sync::Arc;
use std::time::Instant;

use robust_shared::ids::WeightVersion;
use robust_shared::weights::Manifest;
use robust_transport::{Buffer, PIECE_BYTES};
use robust_weights::{Version, compare};

use super::netns::{Host, Net};
use super::node::{Node, Trainer, follow, rollout};
use super::way::Way;
use super::{Report, WeightsArgs};
use robust_weights::made_up::{fill, one_tensor, step};

/// Words of a million that a step changes, at two learning rates: as bfloat16 weights of a spread of 0.035
/// change when each is moved by up to that rate.
const STEPS: [(&str, u32); 2] = [("1e6", 14_000), ("3e5", 210_000)];
const PULLERS: [usize; 2] = [1, 8];

/// `delta_build_*` and `delta_moved_bytes_share_*` of two versions in one process; `delta_pull_*_s` to
/// pullers behind shaped links, each with a full pull to the same pullers beside it, and what left the
/// source.
pub(crate) fn measure(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    for (name, ppm) in STEPS {
        let (base, next) = (version(bytes, None)?, version(bytes, Some(ppm))?);
        for _ in 0..args.rounds {
            let started = Instant::now();
            let made = compare(&base, &next);
            let seconds = started.elapsed().as_secs_f64();
            let (patches, _) = made.ok_or_else(|| anyhow::anyhow!("no patches can be made"))?;
            report.add(
                format!("delta_build_{name}_gb_s"),
                bytes as f64 / 1e9 / seconds,
            );
            let share = patches as f64 / bytes as f64;
            report.add(format!("delta_moved_bytes_share_{name}"), share);
        }
    }
    links(args, report)
}

/// Noise, or noise of which so many words were moved by one.
fn version(bytes: u64, changed_ppm: Option<u32>) -> anyhow::Result<Version> {
    let buffer = Buffer::new(usize::try_from(bytes)?)?;
    let tensors = one_tensor("BF16", bytes);
    let manifest = buffer.with_bytes_mut(|all| {
        fill(1, 0, all);
        if let Some(ppm) = changed_ppm {
            step(1, ppm, all);
        }
        let version = WeightVersion(changed_ppm.map_or(1, |_| 2));
        Manifest::build(version, all, PIECE_BYTES, tensors)
    })??;
    let manifest = Arc::new(manifest);
    Ok(Version { manifest, buffer })
}

fn links(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let bytes = args.relay_mib << 20;
    let way = Way::tls().of_short_words("delta_");
    let mut net = Net::new().map_err(anyhow::Error::msg)?;
    let hosts: Result<Vec<Host>, String> = (0..9).map(|_| net.host(Some(&args.rate))).collect();
    let hosts = hosts.map_err(anyhow::Error::msg)?;
    let (rank, places) = hosts.split_at(1);
    let mut trainer = Trainer::start(bytes, &[rank.first()], &way)?;
    let start = |(id, host)| rollout(id, bytes, Some(host), &way);
    let rollouts: anyhow::Result<Vec<Node>> = (0..).zip(places).map(start).collect();
    let mut rollouts = rollouts?;
    let sent = || {
        rank[0]
            .traffic()
            .map(|(_, sent)| sent)
            .map_err(anyhow::Error::msg)
    };
    for round in 0..args.rounds {
        report.say(&format!("what changed, on links, round {}", round + 1));
        for pullers in PULLERS {
            let rollouts = &mut rollouts[..pullers];
            trainer.publish()?;
            let whole = follow(&trainer, rollouts)?;
            report.add(way.figure(format!("full_pull_{pullers}_s")), whole);
            for (name, ppm) in STEPS {
                trainer.step(ppm)?;
                let before = sent()?;
                let seconds = follow(&trainer, rollouts)?;
                report.add(way.figure(format!("pull_{pullers}_{name}_s")), seconds);
                report.add(
                    way.figure(format!("over_full_{pullers}_{name}")),
                    seconds / whole,
                );
                let share = (sent()? - before) as f64 / bytes as f64;
                report.add(way.figure(format!("sent_share_{pullers}_{name}")), share);
            }
        }
        behind(&way, report, &mut trainer, &mut rollouts)?;
    }
    for (name, _) in STEPS {
        let (eight, one) = (format!("pull_8_{name}_s"), format!("pull_1_{name}_s"));
        let ratio = way.figure(format!("pull8_over_1_{name}"));
        report.ratio(&ratio, &way.figure(eight), &way.figure(one));
    }
    Ok(())
}

/// `delta_pull_behind_*`: to one that has missed two versions, while another one followed them.
fn behind(
    way: &Way,
    report: &mut Report,
    trainer: &mut Trainer,
    rollouts: &mut [Node],
) -> anyhow::Result<()> {
    let [follower, behind, ..] = rollouts else {
        anyhow::bail!("two pullers are needed");
    };
    let (name, ppm) = STEPS[0];
    for _ in 0..3 {
        trainer.step(ppm)?;
        // It has all patches only once they are made.
        follow(trainer, std::slice::from_mut(follower))?;
    }
    let before = behind.fetched()?;
    let seconds = follow(trainer, std::slice::from_mut(behind))?;
    report.add(way.figure(format!("pull_behind_{name}_s")), seconds);
    let share = (behind.fetched()? - before) as f64 / trainer.manifest.bytes as f64;
    report.add(way.figure(format!("fetched_share_behind_{name}")), share);
    Ok(())
}
