//! Appends of trajectories: how many are acknowledged in a second, and how long the slowest wait.
//!
//! ```text
//!  1,000 trajectories, each with one append under way ──► Store::append_turn ──► group commit
//!         ▲                                                                          │
//!         └───────────────── the next turn, once the one before is durable ◄─────────┘
//! ```
//! Beside it what the disk allows: one write of 4 KiB and one `fdatasync` after the other.
use crate::store::{Store, StoreError};
use prost::Message;
use robust_proto::v1::{Span, Turn};
use robust_shared::ids::TrajectoryId;
use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Bytes of a turn as it is stored.
const TURN_BYTES: usize = 1024;
/// Appends under way at a time, each of a trajectory of its own.
const IN_FLIGHT: u32 = 1000;
/// Appends of a round.
const APPENDS: usize = 100_000;
/// How long the disk alone is measured.
const DISK: Duration = Duration::from_millis(500);

/// What a round showed.
#[derive(Clone, Copy, Debug)]
pub struct Round {
    /// Acknowledged appends of 1 KiB.
    pub appends_per_s: f64,
    /// From the call to the acknowledgement: half of them take less.
    pub append_p50_ms: f64,
    /// 99 of 100 take less.
    pub append_p99_ms: f64,
    /// `fdatasync` after a write of 4 KiB, one after the other, on the same disk.
    pub fdatasyncs_per_s: f64,
}

/// One round in a new store under `dir`, which must be on the disk that is meant.
pub fn round(dir: &Path) -> Result<Round, StoreError> {
    let fdatasyncs_per_s = disk(dir).map_err(|e| StoreError::io("measure", dir, e))?;
    let (store, _) = Store::open(dir)?;
    let (mut latencies, took) = appends(&store)?;
    latencies.sort_unstable();
    let at = |share: usize| {
        let found = latencies.get(latencies.len() * share / 100);
        found.copied().unwrap_or_default().as_secs_f64() * 1e3
    };
    Ok(Round {
        appends_per_s: latencies.len() as f64 / took.as_secs_f64(),
        append_p50_ms: at(50),
        append_p99_ms: at(99),
        fdatasyncs_per_s,
    })
}

fn appends(store: &Store) -> Result<(Vec<Duration>, Duration), StoreError> {
    let began = Instant::now();
    let (mut under_way, mut latencies) = (VecDeque::new(), Vec::with_capacity(APPENDS));
    let mut next = (0..).map(|n: u32| (n % IN_FLIGHT, n / IN_FLIGHT));
    let mut left = APPENDS;
    while left > 0 || !under_way.is_empty() {
        if left > 0 && under_way.len() < IN_FLIGHT as usize {
            let Some((member, index)) = next.next() else {
                break;
            };
            let turn = turn(index);
            let asked = Instant::now();
            let prompt = if index == 0 { vec![1; 16] } else { Vec::new() };
            under_way.push_back((asked, store.append_turn(which(member), prompt, turn)));
            left -= 1;
            continue;
        }
        // Answers come in the order of the calls.
        if let Some((asked, answer)) = under_way.pop_front() {
            answer.wait()?;
            latencies.push(asked.elapsed());
        }
    }
    Ok((latencies, began.elapsed()))
}

fn which(member: u32) -> TrajectoryId {
    TrajectoryId {
        batch: 1,
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
