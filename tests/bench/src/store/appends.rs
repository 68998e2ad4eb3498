//! Appends of trajectories: how many are acknowledged in a second, and how long the slowest wait.
//!
//! ```text
//!  1,000 trajectories, each with one append under way ──► Store::append_turn ──► group commit
//!         ▲                                                                          │
//!         └───────────────── the next turn, once the one before is durable ◄─────────┘
//! ```
//! So many at a time give the most appends a second, and a latency that follows from the two
//! (`append_saturated_p99_ms`: a thousand appends take so long). What the goal's rate costs is measured
//! with 20,000 offered a second, each counted from when it was due (`append_p99_ms`). Beside them what
//! the disk allows: a write of 4 KiB and an `fdatasync`, one after the other. With a log and etcd the same
//! appends are measured once more as under `[ha]`, round by round beside the others (`.._with_ha_ms`).
use super::logged::Site;
use super::{BenchError, Report, StoreArgs};
use futures::FutureExt;
use prost::Message;
use robust_proto::v1::{Span, Turn};
use robust_shared::ids::TrajectoryId;
use robustd::store::{Store, StoreError};
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a turn as it is stored.
const TURN_BYTES: usize = 1024;
/// Appends under way at a time, each of a trajectory of its own.
const IN_FLIGHT: u32 = 1000;
/// Appends of a round, of either kind.
const APPENDS: u32 = 40_000;
/// Time between two appends at the goal's rate.
const PACE: Duration = Duration::from_micros(50);
/// Pause when nothing is due and nothing is answered.
const PAUSE: Duration = Duration::from_micros(100);
/// How long the disk alone is measured.
const DISK: Duration = Duration::from_millis(500);

/// Each round in a store of its own, on the disk that is meant.
pub(super) fn measure(args: &StoreArgs, dir: &Path, report: &mut Report) -> Result<(), BenchError> {
    let site = Site::of(args)?;
    for round in 0..args.rounds {
        let dir = dir.join(format!("appends-{round}"));
        report.add("fdatasyncs_per_s", disk(&dir)?);
        let (store, _) = Store::open(&dir)?;
        add(&store, "", report)?;
        drop(store);
        std::fs::remove_dir_all(&dir)?;
        if let Some(site) = &site {
            let store = site.store(&dir, &format!("appends-{round}"))?;
            add(&store, "_with_ha", report)?;
            drop(store);
            std::fs::remove_dir_all(&dir)?;
        }
    }
    Ok(())
}

/// The figures of one store, whose names say which it is.
fn add(store: &Store, which: &str, report: &mut Report) -> Result<(), BenchError> {
    let saturated = appends(store, 1, None)?;
    report.add(
        format!("appends_per_s{which}"),
        f64::from(APPENDS) / saturated.took.as_secs_f64(),
    );
    report.add(
        format!("append_saturated_p99{which}_ms"),
        saturated.slowest_hundredth_ms(),
    );
    let paced = appends(store, 2, Some(PACE))?;
    report.add(
        format!("append_p99{which}_ms"),
        paced.slowest_hundredth_ms(),
    );
    Ok(())
}

/// What a run of appends took.
struct Run {
    latencies: Vec<Duration>,
    took: Duration,
}

impl Run {
    /// 99 of 100 take less.
    fn slowest_hundredth_ms(&self) -> f64 {
        let mut sorted = self.latencies.clone();
        sorted.sort_unstable();
        let found = sorted.get(sorted.len() * 99 / 100);
        found.copied().unwrap_or_default().as_secs_f64() * 1e3
    }
}

/// Appends turns of a batch, one whenever the pace says so, or as many at a time as there may be.
fn appends(store: &Store, batch: u64, pace: Option<Duration>) -> Result<Run, StoreError> {
    let (began, mut sent) = (Instant::now(), 0);
    let (mut under_way, mut latencies) = (VecDeque::new(), Vec::new());
    while latencies.len() < APPENDS as usize {
        let now = Instant::now();
        let due = pace.map_or(now, |pace| began + pace * sent);
        if sent < APPENDS && under_way.len() < IN_FLIGHT as usize && due <= now {
            let (member, index) = (sent % IN_FLIGHT, sent / IN_FLIGHT);
            let prompt = if index == 0 { vec![1; 16] } else { Vec::new() };
            let answer = store.append_turn(which(batch, member), prompt, turn(index));
            under_way.push_back((due, answer));
            sent += 1;
            continue;
        }
        // Answers come in the order of the calls.
        match under_way
            .front_mut()
            .map(|(due, answer)| (*due, answer.now_or_never()))
        {
            Some((due, Some(answer))) => {
                answer?;
                latencies.push(due.elapsed());
                under_way.pop_front();
            }
            _ => std::thread::sleep(PAUSE),
        }
    }
    let took = began.elapsed();
    Ok(Run { latencies, took })
}

fn which(batch: u64, member: u32) -> TrajectoryId {
    TrajectoryId {
        batch,
        group: member / 8,
        member: member % 8,
    }
}

/// A turn of 150 tokens and a tool's answer that fills it up.
pub(super) fn turn(index: u32) -> Turn {
    let ids: Vec<u32> = (0..150).map(|i| 200 + (i * 37 + index) % 15_000).collect();
    let logprobs = ids.iter().map(|id| -1.0 / *id as f32).collect();
    let mut turn = Turn {
        index,
        spans: vec![Span {
            ids,
            logprobs,
            version: 7,
        }],
        tool_call: "12+34".to_owned(),
        ..Turn::default()
    };
    let missing = TURN_BYTES.saturating_sub(turn.encoded_len() + 2);
    turn.tool_result = "9".repeat(missing);
    turn
}

/// Writes of 4 KiB into a file that has its length, each synchronised.
fn disk(dir: &Path) -> std::io::Result<f64> {
    std::fs::create_dir_all(dir)?;
    let path = dir.join("disk");
    let file = File::create(&path)?;
    let (block, blocks) = ([7; 4096], 256);
    for at in 0..blocks {
        file.write_all_at(&block, at * 4096)?;
    }
    file.sync_all()?;
    let (began, mut count) = (Instant::now(), 0_u64);
    while began.elapsed() < DISK {
        file.write_all_at(&block, count % blocks * 4096)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = count as f64 / began.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_of_the_benchmark_has_a_kibibyte() {
        for index in [0, 7, 99] {
            let bytes = turn(index).encoded_len();
            assert!(
                (TURN_BYTES - 4..=TURN_BYTES + 4).contains(&bytes),
                "{bytes}"
            );
        }
    }
}
