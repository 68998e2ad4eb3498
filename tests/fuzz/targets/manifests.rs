//! Descriptions of bytes that come from elsewhere: manifests of weights with the plan of a pull made of them, manifests
//! of checkpoints, headers of files of weights. What is taken describes bytes that are there, each once.
#![no_main]
#![allow(missing_docs)]

use std::path::{Path, PathBuf};

use libfuzzer_sys::fuzz_target;
use robust_ckpt::{WeightFiles, manifest};
use robust_fuzz::Bytes;
use robust_shared::ids::WeightVersion;
use robust_shared::weights::{Manifest, PullTracker, TensorSpec};

fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else {
        return;
    };
    match how % 4 {
        0 | 1 => pull(&mut Bytes::new(rest)),
        2 => checkpoint(rest),
        _ => weights(rest),
    }
});

fn pull(bytes: &mut Bytes<'_>) {
    let Ok(mut tracker) = PullTracker::new(described(bytes)) else {
        return;
    };
    let total = tracker.manifest().bytes;
    // Who serves says what it has, and may say anything.
    let run = |bytes: &mut Bytes<'_>| (bytes.number(), bytes.number(), bytes.number());
    let runs = |bytes: &mut Bytes<'_>| (0..bytes.below(5)).map(|_| run(bytes)).collect();
    let sources: Vec<Vec<_>> = (0..bytes.below(4)).map(|_| runs(bytes)).collect();
    let mut pieces: Vec<_> = tracker.pieces(&sources).into_iter().flatten().collect();
    pieces.sort_by_key(|piece| piece.dst);
    let mut end = 0;
    for piece in &pieces {
        assert!(piece.len > 0 && piece.dst >= end, "a byte is fetched twice");
        end = piece.dst + piece.len;
        assert!(end <= total, "a piece lies outside of the buffer");
        let chunk = tracker
            .manifest()
            .chunk_range(piece.chunk)
            .expect("a piece of a chunk");
        assert!(
            chunk.start <= piece.dst && end <= chunk.end,
            "a piece of two chunks"
        );
        if tracker.arrived(piece) {
            match bytes.flag() {
                true => tracker.verified(piece.chunk),
                false => tracker.refused(piece.chunk),
            }
        }
    }
    assert!(tracker.verified_bytes() <= total && tracker.bytes_here() <= total);
    assert!(!tracker.is_complete() || tracker.verified_bytes() == total);
    if let Ok(next) = tracker.succeed(described(bytes)) {
        assert!(next.verified_chunks() <= next.manifest().chunks());
    }
}

/// Most that a manifest of this target describes: who sends one sends a digest for each chunk.
const CHUNKS: u64 = 300;

fn described(bytes: &mut Bytes<'_>) -> Manifest {
    let (total, chunk_bytes) = (bytes.number(), bytes.number());
    let chunks = total.div_ceil(chunk_bytes.max(1)).min(CHUNKS) + u64::from(bytes.byte() > 250);
    let mut offset = 0_u64;
    let tensors = (0..bytes.below(4)).map(|at| {
        let shape: Vec<u64> = (0..bytes.below(3)).map(|_| bytes.number()).collect();
        let size = match bytes.flag() {
            true => shape
                .iter()
                .fold(2, |size: u64, side| size.saturating_mul(*side)),
            false => bytes.number(),
        };
        let dtype = (*bytes
            .one_of(&["BF16", "F32", "F8_E4M3", "I64"])
            .unwrap_or(&""))
        .to_owned();
        let tensor = TensorSpec {
            name: at.to_string(),
            dtype,
            shape,
            offset,
            bytes: size,
        };
        offset = offset.saturating_add(size);
        tensor
    });
    let tensors: Vec<_> = tensors.collect();
    let total = if bytes.flag() { offset } else { total };
    let mut shards: Vec<_> = (0..bytes.below(4))
        .map(|_| bytes.number()..bytes.number())
        .collect();
    if bytes.flag() {
        shards.push(0..total);
    }
    let chunks = match chunk_bytes {
        0 => chunks,
        _ => total.div_ceil(chunk_bytes).min(CHUNKS),
    };
    let named = match bytes.below(3) {
        0 => chunks,
        1 => u64::from(bytes.byte()),
        _ => 0,
    };
    Manifest {
        version: WeightVersion(bytes.number()),
        bytes: total,
        chunk_bytes,
        chunk_xxh3: (0..chunks).map(|_| u64::from(bytes.byte())).collect(),
        chunk_blake3: (0..named).map(|_| [bytes.byte(); 32]).collect(),
        tensors,
        shards,
    }
}

fn checkpoint(text: &[u8]) {
    let folder = Path::new("/checkpoints/step-7");
    if let Ok(checkpoint) = manifest::parse(text, folder) {
        for shard in &checkpoint.shards {
            assert_eq!(
                shard.path.parent(),
                Some(folder),
                "a file outside of its folder"
            );
        }
    }
}

/// A folder in memory for this process.
fn folder() -> &'static Path {
    static FOLDER: std::sync::OnceLock<PathBuf> = std::sync::OnceLock::new();
    FOLDER.get_or_init(|| {
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() {
            shared.to_owned()
        } else {
            std::env::temp_dir()
        };
        let folder = parent.join(format!("robust-fuzz-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder can be made");
        folder
    })
}

/// The bytes as the header of a file of weights, whose tensors are holes.
fn weights(bytes: &[u8]) {
    let Some((tail, header)) = bytes.split_first_chunk::<2>() else {
        return;
    };
    let file = folder().join("model.safetensors");
    let tail = vec![0; usize::from(u16::from_le_bytes(*tail) % 256)];
    let length = (header.len() as u64).to_le_bytes();
    std::fs::write(&file, [&length[..], header, &tail].concat()).expect("a file can be written");
    let len = 8 + header.len() as u64 + tail.len() as u64;
    let found = WeightFiles::find(folder()).and_then(|files| files.tensors());
    for (name, tensor) in found.into_iter().flatten() {
        assert!(
            tensor
                .at
                .checked_add(tensor.bytes)
                .is_some_and(|end| end <= len),
            "{name}"
        );
    }
}
