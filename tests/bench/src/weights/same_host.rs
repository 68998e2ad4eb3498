//! One source, one puller, shared memory: beside what as many threads of this machine can do with as
//! many bytes.
//!
//! What a ratio compares was measured one right after the other, and the machine's cores did not move in
//! between (see `cores`).
use std::hint::black_box;
use std::time::Instant;

use xxhash_rust::xxh3::xxh3_64;

use super::copies::{gb_per_s, memcpy};
use super::cores::steadily;
use super::pair::Pair;
use super::way::Way;
use super::{Report, WeightsArgs};

/// Of all bytes at once, and of a quarter.
const SIZES: [(&str, u64); 2] = [("1g", 1), ("256m", 4)];

/// Threads that a pull keeps at work: the one that asked for it, and the transport's own.
const THREADS: usize = 2;

/// `shm_*`: a pull and a bare fetch; `same_host_over_memcpy_*`: the pull over a copy and then a digest of what
/// was copied, on as many threads, as a program would do it that has nothing better.
pub(crate) fn measure(args: &WeightsArgs, report: &mut Report) -> anyhow::Result<()> {
    let folder = tempfile::Builder::new().prefix("robust-bench.").tempdir()?;
    let shm = Way::shm(&folder.path().join("roads"));
    for (name, part) in SIZES {
        let bytes = (args.pair_mib << 20) / part;
        let mut pair = Pair::start(bytes, &shm)?;
        let from = vec![1_u8; usize::try_from(bytes)?];
        let mut to = vec![2_u8; from.len()];
        for _ in 0..args.rounds {
            let (raw, pull, copied, both) = steadily(report, || {
                pair.trainer.publish()?;
                let (raw, pull) = pair.pull()?;
                let copied = memcpy(&from, &mut to);
                let both = copy_and_digest(&from, &mut to);
                Ok((raw, pull, copied, both))
            })?;
            report.add(format!("shm_pull_{name}_gb_per_s"), pull);
            report.add(format!("shm_nodigest_{name}_gb_per_s"), raw);
            report.add(format!("memcpy_{name}_gb_per_s"), copied);
            report.add(format!("memcpy_digest_{name}_gb_per_s"), both);
        }
        report.ratio(
            &format!("same_host_over_memcpy_{name}"),
            &format!("shm_pull_{name}_gb_per_s"),
            &format!("memcpy_digest_{name}_gb_per_s"),
        );
    }
    Ok(())
}

/// Each thread copies its part, and digests it when it is there; GB/s.
fn copy_and_digest(from: &[u8], to: &mut [u8]) -> f64 {
    let part = from.len().div_ceil(THREADS).max(1);
    let started = Instant::now();
    std::thread::scope(|scope| {
        for (from, to) in from.chunks(part).zip(to.chunks_mut(part)) {
            scope.spawn(|| {
                to.copy_from_slice(from);
                black_box(xxh3_64(to));
            });
        }
    });
    gb_per_s(from.len() as u64, started.elapsed())
}
