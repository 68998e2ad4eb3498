//! What a weight version consists of, and how its bytes are checked.
use crate::ids::WeightVersion;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_64;

/// Where one tensor lies in the flat buffer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TensorSpec {
    /// Hugging Face name.
    pub name: String,
    /// As in safetensors: `F32`, `F16`, `BF16`, `F8_E4M3`, `F8_E5M2`.
    pub dtype: String,
    /// Row-major shape.
    pub shape: Vec<u64>,
    /// First byte in the buffer.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
}

/// A weight version: one flat little-endian buffer of `bytes` bytes, cut into chunks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Which version.
    pub version: WeightVersion,
    /// Size of the buffer.
    pub bytes: u64,
    /// Size of every chunk but the last, which may be shorter.
    pub chunk_bytes: u64,
    /// Digest of each chunk (xxh3-64, seed 0), in order: finds damage, and forgeries not, for other
    /// bytes with the same digest can be made.
    pub chunk_xxh3: Vec<u64>,
    /// BLAKE3 of each chunk, in order, where versions leave the publisher's machine; empty where they
    /// do not. What another machine sends counts by these alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chunk_blake3: Vec<[u8; 32]>,
    /// The tensors by offset; together they are the buffer, without gaps.
    pub tensors: Vec<TensorSpec>,
    /// Which bytes of the buffer each rank of the trainer holds, in rank order: a rank's region is
    /// its range. Together they are the buffer; where ranks hold the same bytes, the reshard plan
    /// divides them.
    pub shards: Vec<Range<u64>>,
}

/// Why a manifest is no description of a buffer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// Chunks of no bytes.
    #[error("chunk_bytes is 0")]
    NoChunkSize,
    /// The number of digests does not fit the sizes.
    #[error(
        "{got} chunk digests for {bytes} bytes in chunks of {chunk_bytes}: expected {expected}"
    )]
    ChunkCount {
        /// Size of the buffer.
        bytes: u64,
        /// Size of a chunk.
        chunk_bytes: u64,
        /// Chunks that makes.
        expected: u64,
        /// Digests given.
        got: u64,
    },
    /// Some chunks have a BLAKE3 digest, and others do not.
    #[error("{got} BLAKE3 digests for {expected} chunks: there has to be one of each, or none")]
    Blake3Count {
        /// Chunks of the version.
        expected: u64,
        /// Digests given.
        got: u64,
    },
    /// A tensor does not begin where the one before it ended.
    #[error("tensor `{name}` begins at byte {offset}, expected {expected}")]
    Gap {
        /// The tensor.
        name: String,
        /// Where it begins.
        offset: u64,
        /// Where the one before ended.
        expected: u64,
    },
    /// A tensor's type is not known here.
    #[error("tensor `{name}` has dtype `{dtype}`, expected F32, F16, BF16, F8_E4M3 or F8_E5M2")]
    Dtype {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
    },
    /// A tensor's shape and size contradict each other (or their product overflows).
    #[error("tensor `{name}` of {dtype} {shape:?} cannot have {bytes} bytes")]
    Size {
        /// The tensor.
        name: String,
        /// Its type.
        dtype: String,
        /// Its shape.
        shape: Vec<u64>,
        /// Its size.
        bytes: u64,
    },
    /// Two tensors of one name.
    #[error("tensor `{name}` occurs twice")]
    Twice {
        /// The name.
        name: String,
    },
    /// A rank's range is none of the buffer's.
    #[error("rank {rank} holds bytes {start}..{end} of {bytes}")]
    Shard {
        /// The rank.
        rank: usize,
        /// Its first byte.
        start: u64,
        /// Its end.
        end: u64,
        /// Size of the buffer.
        bytes: u64,
    },
    /// No rank holds a byte.
    #[error("no rank holds byte {at}")]
    Nobody {
        /// The first such byte.
        at: u64,
    },
    /// The tensors end before or after the buffer.
    #[error("the tensors have {tensors} bytes, the buffer {bytes}")]
    Total {
        /// Sum of the tensors.
        tensors: u64,
        /// Size of the buffer.
        bytes: u64,
    },
}

/// Why a chunk's bytes are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    /// No such chunk.
    #[error("there is no chunk {chunk}; the version has {count}")]
    Unknown {
        /// The chunk.
        chunk: u64,
        /// Chunks of the version.
        count: u64,
    },
    /// Too few or too many bytes.
    #[error("chunk {chunk} has {got} bytes, expected {expected}")]
    Length {
        /// The chunk.
        chunk: u64,
        /// Its size.
        expected: u64,
        /// Bytes given.
        got: u64,
    },
    /// Other bytes than the published ones.
    #[error("chunk {chunk} is corrupt: its digest is {got:016x}, published was {expected:016x}")]
    Digest {
        /// The chunk.
        chunk: u64,
        /// The manifest's digest.
        expected: u64,
        /// The bytes' digest.
        got: u64,
    },
    /// Other bytes than the published ones, made so that the quick digest does not tell.
    #[error("chunk {chunk} is not the published one: its BLAKE3 digest is another")]
    Forged {
        /// The chunk.
        chunk: u64,
    },
    /// Bytes of another machine, of which nobody can say whether they were published.
    #[error(
        "the manifest has no BLAKE3 digests, and without them nothing counts that comes from another \
         machine: let the trainer run this build of robust, and reach it by a road between machines"
    )]
    Nameless,
}

impl Manifest {
    /// Describes a buffer that one rank holds; reads every byte once. Refuses tensors that are not
    /// the buffer's.
    pub fn build(
        version: WeightVersion,
        buffer: &[u8],
        chunk_bytes: u64,
        tensors: Vec<TensorSpec>,
    ) -> Result<Self, ManifestError> {
        let step = usize::try_from(chunk_bytes).unwrap_or(usize::MAX);
        if step == 0 {
            return Err(ManifestError::NoChunkSize);
        }
        let chunk_xxh3 = buffer.chunks(step).map(xxh3_64).collect();
        let bytes = buffer.len() as u64;
        let manifest = Self {
            version,
            bytes,
            chunk_bytes,
            chunk_xxh3,
            chunk_blake3: Vec::new(),
            tensors,
            shards: vec![Range {
                start: 0,
                end: bytes,
            }],
        };
        manifest.check()?;
        Ok(manifest)
    }

    /// The same, held by these ranks.
    pub fn held_by(mut self, shards: Vec<Range<u64>>) -> Result<Self, ManifestError> {
        self.shards = shards;
        self.check()?;
        Ok(self)
    }

    /// The same with BLAKE3 digests of the chunks of this buffer, which is the one that it was built of:
    /// so that they can be verified on other machines.
    pub fn named_by(mut self, buffer: &[u8]) -> Result<Self, ManifestError> {
        let step = usize::try_from(self.chunk_bytes).unwrap_or(usize::MAX);
        let chunks = buffer.chunks(step.max(1));
        self.chunk_blake3 = chunks
            .map(|chunk| *blake3::hash(chunk).as_bytes())
            .collect();
        self.check()?;
        Ok(self)
    }

    /// Whether the numbers describe a buffer at all. To be called on every manifest that came from
    /// elsewhere before anything else is done with it; whether it is the *expected* layout is
    /// [`Self::same_layout`].
    pub fn check(&self) -> Result<(), ManifestError> {
        if self.chunk_bytes == 0 {
            return Err(ManifestError::NoChunkSize);
        }
        let (expected, got) = (self.chunks(), self.chunk_xxh3.len() as u64);
        if expected != got {
            let (bytes, chunk_bytes) = (self.bytes, self.chunk_bytes);
            return Err(ManifestError::ChunkCount {
                bytes,
                chunk_bytes,
                expected,
                got,
            });
        }
        let got = self.chunk_blake3.len() as u64;
        if got != 0 && got != expected {
            return Err(ManifestError::Blake3Count { expected, got });
        }
        let mut names = BTreeSet::new();
        let mut end = 0_u64;
        for tensor in &self.tensors {
            let name = tensor.name.clone();
            if tensor.offset != end {
                return Err(ManifestError::Gap {
                    name,
                    offset: tensor.offset,
                    expected: end,
                });
            }
            if !names.insert(tensor.name.as_str()) {
                return Err(ManifestError::Twice { name });
            }
            end = tensor.checked_end()?;
        }
        if end != self.bytes {
            return Err(ManifestError::Total {
                tensors: end,
                bytes: self.bytes,
            });
        }
        self.check_shards()
    }

    fn check_shards(&self) -> Result<(), ManifestError> {
        let bytes = self.bytes;
        for (rank, shard) in self.shards.iter().enumerate() {
            let (start, end) = (shard.start, shard.end);
            if start > end || end > bytes {
                return Err(ManifestError::Shard {
                    rank,
                    start,
                    end,
                    bytes,
                });
            }
        }
        let mut sorted: Vec<_> = self.shards.iter().collect();
        sorted.sort_by_key(|shard| shard.start);
        let covered = sorted.iter().fold(0, |at, shard| match shard.start <= at {
            true => shard.end.max(at),
            false => at,
        });
        match covered == bytes {
            true => Ok(()),
            false => Err(ManifestError::Nobody { at: covered }),
        }
    }

    /// Whether the tensors are these, byte for byte at the same places: a puller compares with its
    /// own model's before it trusts any size.
    pub fn same_layout(&self, tensors: &[TensorSpec]) -> bool {
        self.tensors == tensors
    }

    /// Number of chunks.
    pub fn chunks(&self) -> u64 {
        self.bytes.div_ceil(self.chunk_bytes.max(1))
    }

    /// The bytes of a chunk within the buffer; none when there is no such chunk.
    pub fn chunk_range(&self, chunk: u64) -> Option<Range<u64>> {
        let start = chunk
            .checked_mul(self.chunk_bytes)
            .filter(|&start| start < self.bytes)?;
        Some(start..start.saturating_add(self.chunk_bytes).min(self.bytes))
    }

    /// Chunks that are the same bytes at the same place in another version, in order: by all digests
    /// that this one has of them.
    pub fn same_chunks(&self, other: &Self) -> impl Iterator<Item = u64> {
        let digests = self.chunk_xxh3.iter().zip(&other.chunk_xxh3);
        (0..).zip(digests).filter_map(|(chunk, (own, others))| {
            let same = own == others
                && self.chunk_range(chunk) == other.chunk_range(chunk)
                && (!self.has_blake3() || self.blake3_of(chunk) == other.blake3_of(chunk));
            same.then_some(chunk)
        })
    }

    /// Whether bytes of another machine can be verified by it.
    pub fn has_blake3(&self) -> bool {
        !self.chunk_blake3.is_empty()
    }

    /// The BLAKE3 digest of a chunk; none where there is no such chunk, or none has one.
    pub fn blake3_of(&self, chunk: u64) -> Option<&[u8; 32]> {
        self.chunk_blake3.get(usize::try_from(chunk).ok()?)
    }

    /// Whether bytes of this BLAKE3 digest, of a chunk that [`Self::verify_digest`] let pass, are the
    /// published ones, whoever sent them.
    pub fn verify_blake3(&self, chunk: u64, digest: &[u8; 32]) -> Result<(), ChunkError> {
        match self.blake3_of(chunk) {
            None => Err(ChunkError::Nameless),
            Some(published) if published == digest => Ok(()),
            Some(_) => Err(ChunkError::Forged { chunk }),
        }
    }

    /// Whether these are the published bytes of a chunk.
    pub fn verify_chunk(&self, chunk: u64, bytes: &[u8]) -> Result<(), ChunkError> {
        self.verify_digest(chunk, bytes.len() as u64, || xxh3_64(bytes))
    }

    /// The same, of so many bytes whose digest (xxh3-64, seed 0) was taken elsewhere. It is asked
    /// for only if the length is right.
    pub fn verify_digest(
        &self,
        chunk: u64,
        length: u64,
        digest: impl FnOnce() -> u64,
    ) -> Result<(), ChunkError> {
        let count = self.chunks();
        let unknown = ChunkError::Unknown { chunk, count };
        let range = self.chunk_range(chunk).ok_or_else(|| unknown.clone())?;
        let at = usize::try_from(chunk).unwrap_or(usize::MAX);
        let expected = *self.chunk_xxh3.get(at).ok_or(unknown)?;
        let chunk_bytes = range.end - range.start;
        if chunk_bytes != length {
            return Err(ChunkError::Length {
                chunk,
                expected: chunk_bytes,
                got: length,
            });
        }
        let got = digest();
        if expected != got {
            return Err(ChunkError::Digest {
                chunk,
                expected,
                got,
            });
        }
        Ok(())
    }

    /// Names version and content: blake3 (derive-key context `robust manifest v2`, or `robust manifest
    /// v3` of one with BLAKE3 digests) over, all numbers as 8 bytes little-endian: version, what
    /// [`Self::content_digest`] covers, number of ranks, and of each the first byte it holds and the end.
    pub fn digest(&self) -> [u8; 32] {
        let context = match self.has_blake3() {
            true => "robust manifest v3",
            false => "robust manifest v2",
        };
        let mut hasher = blake3::Hasher::new_derive_key(context);
        number(&mut hasher, self.version.0);
        self.hash_content(&mut hasher);
        number(&mut hasher, self.shards.len() as u64);
        for shard in &self.shards {
            number(&mut hasher, shard.start);
            number(&mut hasher, shard.end);
        }
        *hasher.finalize().as_bytes()
    }

    /// Names the content, whatever its version: blake3 (context `robust weights v1`) over bytes,
    /// chunk_bytes, number of chunks, their digests, number of tensors, and of each: name (length,
    /// UTF-8), dtype (length, UTF-8), number of dimensions, dimensions, offset, bytes. Of a manifest
    /// with BLAKE3 digests (context `robust weights v2`) these follow, 32 bytes each.
    pub fn content_digest(&self) -> [u8; 32] {
        let context = match self.has_blake3() {
            true => "robust weights v2",
            false => "robust weights v1",
        };
        let mut hasher = blake3::Hasher::new_derive_key(context);
        self.hash_content(&mut hasher);
        *hasher.finalize().as_bytes()
    }

    /// [`Self::digest`] in hex, as shown and sent.
    pub fn digest_hex(&self) -> String {
        blake3::Hash::from_bytes(self.digest()).to_hex().to_string()
    }

    fn hash_content(&self, hasher: &mut blake3::Hasher) {
        number(hasher, self.bytes);
        number(hasher, self.chunk_bytes);
        number(hasher, self.chunk_xxh3.len() as u64);
        for &digest in &self.chunk_xxh3 {
            number(hasher, digest);
        }
        number(hasher, self.tensors.len() as u64);
        for tensor in &self.tensors {
            for text in [&tensor.name, &tensor.dtype] {
                number(hasher, text.len() as u64);
                hasher.update(text.as_bytes());
            }
            number(hasher, tensor.shape.len() as u64);
            for &size in &tensor.shape {
                number(hasher, size);
            }
            number(hasher, tensor.offset);
            number(hasher, tensor.bytes);
        }
        for digest in &self.chunk_blake3 {
            hasher.update(digest);
        }
    }
}

fn number(hasher: &mut blake3::Hasher, value: u64) {
    hasher.update(&value.to_le_bytes());
}

impl TensorSpec {
    /// Bytes of one element, for the known types.
    pub fn element_bytes(&self) -> Option<u64> {
        match self.dtype.as_str() {
            "F32" => Some(4),
            "F16" | "BF16" => Some(2),
            "F8_E4M3" | "F8_E5M2" => Some(1),
            _ => None,
        }
    }

    /// What type and shape make, if the type is known and nothing overflows.
    pub fn size(&self) -> Option<u64> {
        let mut sizes = self.shape.iter();
        sizes.try_fold(self.element_bytes()?, |size, &d| size.checked_mul(d))
    }

    /// The byte after its last, if type, shape and size agree and nothing overflows.
    fn checked_end(&self) -> Result<u64, ManifestError> {
        let (name, dtype) = (self.name.clone(), self.dtype.clone());
        if self.element_bytes().is_none() {
            return Err(ManifestError::Dtype { name, dtype });
        }
        self.size()
            .filter(|&size| size == self.bytes)
            .and_then(|size| self.offset.checked_add(size))
            .ok_or(ManifestError::Size {
                name,
                dtype,
                shape: self.shape.clone(),
                bytes: self.bytes,
            })
    }
}

#[cfg(test)]
#[path = "manifest_tests.rs"]
mod tests;
