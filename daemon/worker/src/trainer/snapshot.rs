//! A rank's shard of weights and optimiser in shared memory.
//!
//! The shard is a complete safetensors image (readable by any tool) in one of two slots, by the
//! step's parity: while a step is written, the slot of the committed step before it stays whole.
//! The slot's file is allocated once and overwritten in place with the same layout each time, so a
//! snapshot costs one copy and no page faults. The header is padded to a multiple of a page:
//! tensors lie aligned for direct writes to disk.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use robust_proto::v1::SnapshotReply;
use rustix::fs::{FallocateFlags, fallocate};
use serde_json::json;
use xxhash_rust::xxh3::Xxh3;

use super::state::TrainState;

/// Version of the image's layout, in its metadata as `version`.
pub(super) const FORMAT: &str = "robust-shard";
/// The only version so far.
pub(super) const VERSION: &str = "1";
/// The tensors of an image, in order.
pub(super) const TENSORS: [&str; 3] = ["params", "adam_m", "adam_v"];
/// The header with its length word fills whole pages.
const PAGE: usize = 4096;
/// Numbers in the metadata are padded, so that the header's length is the same in every step.
const DIGITS: usize = 20;

/// Why a shard could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{doing} {path}: {source}")]
pub struct SnapshotError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Elements of the flat buffers that a rank keeps.
pub(super) fn shard(elements: usize, rank: u32, ranks: u32) -> Range<usize> {
    let cut = |rank: u32| (elements as u128 * u128::from(rank) / u128::from(ranks.max(1))) as usize;
    cut(rank)..cut(rank + 1)
}

/// The two slots of a rank.
pub(super) struct Slots {
    folder: PathBuf,
    rank: u32,
    ranks: u32,
    files: [Option<File>; 2],
}

impl Slots {
    pub fn new(folder: &Path, rank: u32, ranks: u32) -> Self {
        Self {
            folder: folder.to_owned(),
            rank,
            ranks,
            files: [None, None],
        }
    }

    /// Allocates both slots ahead of the first snapshot. What they hold stays: it may be what the
    /// gang is about to restore.
    pub fn prepare(&mut self, elements: usize) -> Result<(), SnapshotError> {
        let bytes = PAGE + shard(elements, self.rank, self.ranks).len() * 4 * TENSORS.len();
        for slot in 0..2 {
            self.open(slot, bytes as u64)?;
        }
        Ok(())
    }

    /// Writes the state's shard into the slot of its step.
    pub fn write(
        &mut self,
        state: &TrainState,
        generation: u64,
    ) -> Result<SnapshotReply, SnapshotError> {
        let params = state.model.params();
        let shard = shard(params.len(), self.rank, self.ranks);
        let header = header(&Description {
            step: state.step,
            generation,
            rank: self.rank,
            ranks: self.ranks,
            adam_step: state.adam.step_count(),
            first: shard.start,
            elements: params.len(),
            count: shard.len(),
        });
        let bytes = shard.start * 4..shard.end * 4;
        let tensors = [
            params.as_bytes(),
            state.adam.m_bytes(),
            state.adam.v_bytes(),
        ];
        let parts = std::iter::once(header.as_slice())
            .chain(tensors.iter().map(|tensor| &tensor[bytes.clone()]));
        let total = header.len() + bytes.len() * TENSORS.len();
        let slot = (state.step % 2) as usize;
        let path = self.path(slot);
        let file = self.open(slot, total as u64)?;
        let (mut hash, mut at) = (Xxh3::new(), 0);
        for part in parts {
            file.write_all_at(part, at)
                .map_err(|source| SnapshotError {
                    doing: "writing snapshot",
                    path: path.clone(),
                    source,
                })?;
            hash.update(part);
            at += part.len() as u64;
        }
        let path = path.to_string_lossy().into_owned();
        Ok(SnapshotReply {
            step: state.step,
            path,
            bytes: at,
            xxh3: hash.digest(),
        })
    }

    fn path(&self, slot: usize) -> PathBuf {
        self.folder
            .join(format!("trainer-{}.slot{slot}", self.rank))
    }

    fn open(&mut self, slot: usize, bytes: u64) -> Result<&mut File, SnapshotError> {
        let path = self.path(slot);
        let at = |doing| {
            let path = path.clone();
            move |source: io::Error| SnapshotError {
                doing,
                path,
                source,
            }
        };
        let file = match self.files[slot].take() {
            Some(file) => file,
            None => OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(at("opening snapshot"))?,
        };
        // Never smaller: a gang of more ranks may yet have to restore what a smaller one wrote.
        if file.metadata().map_err(at("reading"))?.len() < bytes {
            file.set_len(bytes).map_err(at("sizing snapshot"))?;
            // All pages now: a full /dev/shm is an error here, and a SIGBUS or a torn image later.
            fallocate(&file, FallocateFlags::empty(), 0, bytes)
                .map_err(|errno| at("allocating snapshot")(errno.into()))?;
        }
        Ok(self.files[slot].insert(file))
    }
}

struct Description {
    step: u64,
    generation: u64,
    rank: u32,
    ranks: u32,
    adam_step: u64,
    first: usize,
    elements: usize,
    count: usize,
}

fn header(d: &Description) -> Vec<u8> {
    let number = |value: u64| format!("{value:0DIGITS$}");
    let metadata: BTreeMap<&str, String> = [
        ("format", FORMAT.to_owned()),
        ("version", VERSION.to_owned()),
        ("step", number(d.step)),
        ("generation", number(d.generation)),
        ("rank", number(d.rank.into())),
        ("ranks", number(d.ranks.into())),
        ("adam_step", number(d.adam_step)),
        ("first", number(d.first as u64)),
        ("elements", number(d.elements as u64)),
    ]
    .into();
    let mut root = serde_json::Map::new();
    root.insert("__metadata__".to_owned(), json!(metadata));
    for (index, name) in TENSORS.into_iter().enumerate() {
        let bytes = d.count * 4;
        let offsets = [index * bytes, (index + 1) * bytes];
        let tensor = json!({"dtype": "F32", "shape": [d.count], "data_offsets": offsets});
        root.insert(name.to_owned(), tensor);
    }
    let mut text = serde_json::Value::Object(root).to_string().into_bytes();
    let padded = (text.len() + 8).next_multiple_of(PAGE) - 8;
    text.resize(padded, b' ');
    let mut image = (padded as u64).to_le_bytes().to_vec();
    image.append(&mut text);
    image
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn shards_tile_the_buffer() {
        for (elements, ranks) in [(10, 3), (7, 1), (2, 4), (1 << 33, 7)] {
            let shards: Vec<_> = (0..ranks)
                .map(|rank| shard(elements, rank, ranks))
                .collect();
            assert_eq!(shards[0].start, 0);
            assert_eq!(shards.last().unwrap().end, elements);
            assert!(shards.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }

    #[test]
    fn an_image_header_fills_one_page_and_has_one_length_whatever_the_numbers() {
        let describe = |step, count| Description {
            step,
            generation: step,
            rank: 1,
            ranks: 2,
            adam_step: step,
            first: 5,
            elements: count * 2,
            count,
        };
        assert_eq!(header(&describe(1, 10)).len(), PAGE);
        assert_eq!(header(&describe(u64::MAX, 1 << 40)).len(), PAGE);
    }
}
