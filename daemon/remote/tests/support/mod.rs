//! Checkpoints on disk to put somewhere.
#![allow(dead_code, clippy::unwrap_used)]
use robust_ckpt::disk::RealDisk;
use robust_ckpt::{Checkpoint, Shard, manifest};
use robust_remote::{Kept, Local, Remote};
use robust_shared::ids::{Generation, Step, TrajectoryId};
use std::path::{Path, PathBuf};
use xxhash_rust::xxh3::xxh3_64;

/// No multiple of anything, and less than a part.
pub const SMALL: usize = 100_003;
/// Three parts.
pub const LARGE: usize = (17 << 20) + 5;

pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let word = |i: usize| (i as u64 ^ seed).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (0..length).map(|i| (word(i) >> 32) as u8).collect()
}

/// Writes a checkpoint of two ranks; returns its folder.
pub fn checkpoint(ckpt: &Path, generation: u64, step: u64, length: usize) -> PathBuf {
    let dir = ckpt.join(format!("step-{step}"));
    std::fs::create_dir_all(&dir).unwrap();
    let shard = |rank: u32| {
        let data = bytes(
            length + rank as usize,
            generation * 1000 + step + u64::from(rank),
        );
        let path = dir.join(manifest::shard_file(rank));
        std::fs::write(&path, &data).unwrap();
        Shard {
            rank,
            path,
            bytes: data.len() as u64,
            xxh3: xxh3_64(&data),
        }
    };
    let made = Checkpoint {
        step: Step(step),
        generation: Generation(generation),
        shards: (0..2).map(shard).collect(),
        consumed: vec![TrajectoryId {
            batch: step,
            group: 1,
            member: 0,
        }],
        reward: Some(step as f64),
        at: None,
        adam_step: None,
        tensors: Vec::new(),
        dir: dir.clone(),
    };
    manifest::store(&RealDisk, &made).unwrap();
    dir
}

pub async fn put(remote: &Remote, run: &str, dir: &Path) {
    let local = Local::open(dir).unwrap();
    remote.upload(run, local, &mut |_| ()).await.unwrap();
}

pub fn steps(kept: &[Kept]) -> Vec<(u64, u64)> {
    let step = |k: &Kept| (k.place.generation.0, k.place.step.0);
    kept.iter().map(step).collect()
}

/// What is in the shards' files of a folder, by name.
pub fn content(dir: &Path) -> Vec<(String, Vec<u8>)> {
    let mut all: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap())
        .map(|e| {
            let name = e.file_name().into_string().unwrap();
            (name, std::fs::read(e.path()).unwrap())
        })
        .collect();
    all.sort();
    all
}
