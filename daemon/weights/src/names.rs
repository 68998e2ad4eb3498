//! What names the chunks of a version that leaves its machine: XXH3 and BLAKE3 of each.
//!
//! BLAKE3 takes several times as long as XXH3, and the trainer waits for it. So threads share the chunks,
//! and a chunk that is, byte by byte, what it was in the version before keeps its name: to compare bytes
//! costs as little as XXH3, which is asked first.
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use robust_shared::weights::Manifest;
use robust_transport::{Buffer, BufferError};

/// Threads beyond these wait for memory, and a trainer's machine has others that compute.
const MOST_THREADS: usize = 8;

/// XXH3-64 and BLAKE3 of a chunk.
type Names = (u64, [u8; 32]);

/// Those of the chunks of `manifest`, which lie in `buffer`, in order. `before` is a version whose bytes are
/// still there.
pub(crate) fn of(
    manifest: &Manifest,
    buffer: &Buffer,
    before: Option<(&Manifest, &Buffer)>,
) -> Result<Vec<Names>, BufferError> {
    let ranges: Vec<Range<u64>> = (0..manifest.chunks())
        .map_while(|chunk| manifest.chunk_range(chunk))
        .collect();
    let next = AtomicUsize::new(0);
    // Every thread takes the next chunk that nobody has taken, until there is none.
    let work = || -> Result<Vec<(usize, Names)>, BufferError> {
        let mut named = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(range) = ranges.get(at) else {
                return Ok(named);
            };
            named.push((at, of_chunk(at as u64, range, buffer, before)?));
        }
    };
    let mut all = vec![Names::default(); ranges.len()];
    std::thread::scope(|scope| {
        let others: Vec<_> = (1..threads(buffer, ranges.len()))
            .map_while(|_| std::thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut put = |named: Vec<(usize, Names)>| {
            for (at, names) in named {
                all[at] = names;
            }
        };
        put(work()?);
        for thread in others {
            match thread.join() {
                Ok(named) => put(named?),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        Ok(all)
    })
}

/// A device's bytes come through one staging, which several threads would only wait for.
fn threads(buffer: &Buffer, chunks: usize) -> usize {
    if buffer.device_memory().is_some() {
        return 1;
    }
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    cores.min(MOST_THREADS).min(chunks)
}

fn of_chunk(
    chunk: u64,
    range: &Range<u64>,
    buffer: &Buffer,
    before: Option<(&Manifest, &Buffer)>,
) -> Result<Names, BufferError> {
    let bytes = range.start as usize..range.end as usize;
    let xxh3 = buffer.digest(bytes.clone())?;
    if let Some((held, older)) = before
        && held.chunk_xxh3.get(chunk as usize) == Some(&xxh3)
        && held.chunk_range(chunk).as_ref() == Some(range)
        && let Some(blake3) = held.blake3_of(chunk)
        && are_equal(buffer, older, bytes.clone())
    {
        return Ok((xxh3, *blake3));
    }
    Ok((xxh3, buffer.blake3(bytes)?))
}

/// Whether both have the same bytes there; those of a device, or that are lent, are not compared.
fn are_equal(one: &Buffer, other: &Buffer, range: Range<usize>) -> bool {
    let same = one.with_range(range.clone(), |one| {
        other.with_range(range, |other| one == other)
    });
    matches!(same, Ok(Ok(true)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use robust_shared::ids::WeightVersion;
    use robust_shared::weights::TensorSpec;

    use super::*;

    const BYTES: usize = 40_000;

    fn buffer(seed: u8) -> std::sync::Arc<Buffer> {
        let buffer = Buffer::new(BYTES).unwrap();
        let fill = |bytes: &mut [u8]| {
            for (at, byte) in bytes.iter_mut().enumerate() {
                *byte = (at / 7) as u8 ^ seed;
            }
        };
        buffer.with_bytes_mut(fill).unwrap();
        buffer
    }

    fn built(buffer: &Buffer) -> Manifest {
        let tensors = vec![TensorSpec {
            name: "w".into(),
            dtype: "F32".into(),
            shape: vec![BYTES as u64 / 4],
            offset: 0,
            bytes: BYTES as u64,
        }];
        let build = |bytes: &[u8]| {
            let built = Manifest::build(WeightVersion(1), bytes, 3000, tensors);
            built.unwrap().named_by(bytes).unwrap()
        };
        buffer.with_bytes(build).unwrap()
    }

    #[test]
    fn every_chunk_has_both_its_digests_however_many_threads_take_them() {
        let buffer = buffer(1);
        let expected = built(&buffer);
        let names = of(&expected, &buffer, None).unwrap();
        let (xxh3, blake3): (Vec<_>, Vec<_>) = names.into_iter().unzip();
        assert_eq!((xxh3, blake3), (expected.chunk_xxh3, expected.chunk_blake3));
    }

    #[test]
    fn a_chunk_keeps_its_name_only_while_its_bytes_are_those_of_the_version_before() {
        let (older, newer) = (buffer(1), buffer(1));
        let mut held = built(&older);
        // A mark that only a name which was kept can have.
        held.chunk_blake3.fill([9; 32]);
        newer.write_at(3000, &[0xee; 10]).unwrap();
        let expected = built(&newer);
        let names = of(&expected, &newer, Some((&held, &older))).unwrap();
        let kept = |at: usize| names[at].1 == [9; 32];
        assert!(kept(0) && !kept(1) && (2..names.len()).all(kept));
        assert_eq!(names[1].1, expected.chunk_blake3[1]);
        // Its XXH3 says that it is the same, and it is not.
        held.chunk_xxh3[1] = expected.chunk_xxh3[1];
        let names = of(&expected, &newer, Some((&held, &older))).unwrap();
        assert_eq!(names[1].1, expected.chunk_blake3[1]);
        // The version before had none: it came from where nobody of another machine did.
        held.chunk_blake3.clear();
        let names = of(&expected, &newer, Some((&held, &older))).unwrap();
        let blake3: Vec<_> = names.into_iter().map(|names| names.1).collect();
        assert_eq!(blake3, expected.chunk_blake3);
    }
}
