#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::*;
use crate::forge;
use proptest::prelude::*;

/// One tensor of F32 over the whole buffer.
pub(crate) fn whole(bytes: usize) -> Vec<TensorSpec> {
    let (name, dtype) = ("w".to_owned(), "F32".to_owned());
    let (shape, bytes) = (vec![bytes as u64 / 4], bytes as u64);
    vec![TensorSpec {
        name,
        dtype,
        shape,
        offset: 0,
        bytes,
    }]
}

fn manifest() -> Manifest {
    let buffer: Vec<u8> = (0..64).collect();
    let tensor = |name: &str, shape: &[u64], offset, bytes| TensorSpec {
        name: name.to_owned(),
        dtype: "F32".to_owned(),
        shape: shape.to_vec(),
        offset,
        bytes,
    };
    let tensors = vec![tensor("a", &[2, 3], 0, 24), tensor("b", &[10], 24, 40)];
    Manifest::build(WeightVersion(3), &buffer, 10, tensors).unwrap()
}

#[test]
fn the_digest_never_changes_its_encoding() {
    assert_eq!(
        manifest().digest_hex(),
        "a3fd08166c3507120e4e0a7cb7ab998915b4f38ac8b3109b5550be49c3bc7844"
    );
}

#[test]
fn every_float_type_has_the_bytes_of_its_elements() {
    let sizes = [
        ("F32", 4),
        ("F16", 2),
        ("BF16", 2),
        ("F8_E4M3", 1),
        ("F8_E5M2", 1),
    ];
    for (dtype, element) in sizes {
        let mut tensors = whole(64);
        tensors[0].dtype = dtype.into();
        tensors[0].shape = vec![64 / element];
        let built = Manifest::build(WeightVersion(1), &[3; 64], 10, tensors.clone());
        assert!(built.is_ok(), "{dtype}: {built:?}");
        tensors[0].shape = vec![64 / element + 1];
        let refused = Manifest::build(WeightVersion(1), &[3; 64], 10, tensors);
        assert!(
            matches!(refused, Err(ManifestError::Size { .. })),
            "{dtype}"
        );
    }
}

#[test]
fn the_digest_covers_every_field_and_the_content_digest_all_but_version_and_holders() {
    let first = manifest();
    let changes: [fn(&mut Manifest); 10] = [
        |m| m.version.0 += 1,
        |m| m.shards[0].end -= 1,
        |m| m.bytes += 1,
        |m| m.chunk_bytes += 1,
        |m| m.chunk_xxh3[6] ^= 1,
        |m| m.tensors[1].name.push('c'),
        |m| m.tensors[1].dtype = "F16".into(),
        |m| m.tensors[1].shape = vec![5, 2],
        |m| m.tensors[1].offset += 1,
        |m| m.tensors[1].bytes += 1,
    ];
    for (at, change) in changes.iter().enumerate() {
        let mut other = first.clone();
        change(&mut other);
        assert_ne!(first.digest(), other.digest(), "change {at}");
        assert_eq!(
            first.content_digest() == other.content_digest(),
            at < 2,
            "change {at}"
        );
    }
}

/// A manifest of two chunks with BLAKE3 digests, and its bytes.
fn named() -> (Manifest, Vec<u8>) {
    let buffer: Vec<u8> = (0..8192_u32).map(|at| (at * 31 + at / 251) as u8).collect();
    let built = Manifest::build(WeightVersion(3), &buffer, 4096, whole(buffer.len()));
    (built.unwrap().named_by(&buffer).unwrap(), buffer)
}

#[test]
fn a_chunk_made_to_have_the_published_xxh3_is_refused_by_its_blake3() {
    let (manifest, buffer) = named();
    let published = &buffer[4096..];
    let forged = forge::same_xxh3(published, &[0x55; 4096]);
    assert_ne!(forged, published);
    let stand_in = forged.iter().filter(|byte| **byte == 0x55).count();
    assert!(
        stand_in > 1900,
        "three blocks of four are forged, ten words of sixteen: {stand_in}"
    );
    assert_eq!(
        manifest.verify_chunk(1, &forged),
        Ok(()),
        "XXH3 does not tell"
    );
    let blake3 = |bytes: &[u8]| *blake3::hash(bytes).as_bytes();
    assert_eq!(manifest.verify_blake3(1, &blake3(published)), Ok(()));
    let refused = manifest.verify_blake3(1, &blake3(&forged)).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "chunk 1 is not the published one: its BLAKE3 digest is another"
    );
}

#[test]
fn a_manifest_without_blake3_digests_vouches_for_no_other_machine() {
    let (named, buffer) = named();
    let mut plain = named.clone();
    plain.chunk_blake3.clear();
    assert!(named.has_blake3() && !plain.has_blake3());
    let digest = *blake3::hash(&buffer[..4096]).as_bytes();
    assert_eq!(plain.verify_blake3(0, &digest), Err(ChunkError::Nameless));
    assert_ne!(named.digest(), plain.digest());
    assert_ne!(named.content_digest(), plain.content_digest());
    assert_eq!(named.same_chunks(&plain).count(), 0, "nobody can say so");
    assert_eq!(plain.same_chunks(&named).count(), 2);
}

#[test]
fn chunks_of_two_versions_are_the_same_only_by_all_their_digests() {
    let (first, buffer) = named();
    let mut second = first.clone();
    assert_eq!(first.same_chunks(&second).collect::<Vec<_>>(), [0, 1]);
    let forged = forge::same_xxh3(&buffer[..4096], &[0x55; 4096]);
    second.chunk_blake3[0] = *blake3::hash(&forged).as_bytes();
    assert_eq!(first.same_chunks(&second).collect::<Vec<_>>(), [1]);
    assert_ne!(first.digest(), second.digest());
    assert_ne!(first.content_digest(), second.content_digest());
    second.chunk_blake3.pop();
    assert!(matches!(
        second.check(),
        Err(ManifestError::Blake3Count {
            expected: 2,
            got: 1
        })
    ));
}

#[test]
fn hostile_manifests_are_refused_by_name() {
    let refused = |change: fn(&mut Manifest)| {
        let mut manifest = manifest();
        change(&mut manifest);
        manifest.check().unwrap_err().to_string()
    };
    assert_eq!(refused(|m| m.chunk_bytes = 0), "chunk_bytes is 0");
    assert_eq!(
        refused(|m| m.bytes = u64::MAX),
        "7 chunk digests for 18446744073709551615 bytes in chunks of 10: expected \
         1844674407370955162"
    );
    assert_eq!(
        refused(|m| m.tensors[1].offset = 28),
        "tensor `b` begins at byte 28, expected 24"
    );
    assert_eq!(
        refused(|m| m.tensors[1].offset = 20),
        "tensor `b` begins at byte 20, expected 24"
    );
    assert_eq!(
        refused(|m| m.tensors[1].shape = vec![1 << 40, 1 << 40]),
        "tensor `b` of F32 [1099511627776, 1099511627776] cannot have 40 bytes"
    );
    assert_eq!(
        refused(|m| m.tensors[1].name = "a".into()),
        "tensor `a` occurs twice"
    );
    assert_eq!(
        refused(|m| m.tensors[1].dtype = "I8".into()),
        "tensor `b` has dtype `I8`, expected F32, F16, BF16, F8_E4M3 or F8_E5M2"
    );
    assert_eq!(
        refused(|m| {
            m.tensors.pop();
        }),
        "the tensors have 24 bytes, the buffer 64"
    );
    assert_eq!(
        refused(|m| m.shards = vec![0..64, 60..65]),
        "rank 1 holds bytes 60..65 of 64"
    );
    assert_eq!(
        refused(|m| m.shards = vec![41..64, 0..40]),
        "no rank holds byte 40"
    );
    assert_eq!(refused(|m| m.shards.clear()), "no rank holds byte 0");
}

proptest! {
    #[test]
    fn the_chunks_cover_every_byte_exactly_once(bytes in 0_usize..3000, chunk in 1_u64..400) {
        let buffer = vec![7; bytes / 4 * 4];
        let manifest =
            Manifest::build(WeightVersion(1), &buffer, chunk, whole(buffer.len())).unwrap();
        let mut next = 0;
        for at in 0..manifest.chunks() {
            let range = manifest.chunk_range(at).unwrap();
            prop_assert_eq!(range.start, next);
            prop_assert!(range.end > range.start && range.end - range.start <= chunk);
            next = range.end;
        }
        prop_assert_eq!(next, buffer.len() as u64);
        prop_assert_eq!(manifest.chunk_range(manifest.chunks()), None);
        prop_assert_eq!(manifest.chunk_range(u64::MAX), None);
    }

    #[test]
    fn any_flipped_bit_is_found_and_named_by_its_chunk(
        mut buffer in prop::collection::vec(any::<u8>(), 4..2000),
        chunk in 1_u64..300,
        bit in any::<prop::sample::Index>(),
    ) {
        buffer.truncate(buffer.len() / 4 * 4);
        let manifest =
            Manifest::build(WeightVersion(1), &buffer, chunk, whole(buffer.len())).unwrap();
        let bit = bit.index(buffer.len() * 8);
        buffer[bit / 8] ^= 1 << (bit % 8);
        for at in 0..manifest.chunks() {
            let range = manifest.chunk_range(at).unwrap();
            let bytes = &buffer[range.start as usize..range.end as usize];
            let hit = range.contains(&(bit as u64 / 8));
            prop_assert_eq!(manifest.verify_chunk(at, bytes).is_err(), hit);
        }
    }

    #[test]
    fn no_numbers_make_the_checks_panic(
        bytes in any::<u64>(),
        chunk_bytes in any::<u64>(),
        chunk_xxh3 in prop::collection::vec(any::<u64>(), 0..4),
        shape in prop::collection::vec(any::<u64>(), 0..4),
        offset in any::<u64>(),
        at in any::<u64>(),
    ) {
        let (name, dtype) = ("w".to_owned(), "F32".to_owned());
        let tensors = vec![TensorSpec { name, dtype, shape, offset, bytes }];
        let (version, shards) = (WeightVersion(1), vec![offset..at, at..bytes]);
        let chunk_blake3 = vec![[7; 32]; chunk_xxh3.len()];
        let manifest = Manifest {
            version, bytes, chunk_bytes, chunk_xxh3, chunk_blake3, tensors, shards,
        };
        let _ = (manifest.check(), manifest.verify_chunk(at, b"x"), manifest.digest());
    }
}
