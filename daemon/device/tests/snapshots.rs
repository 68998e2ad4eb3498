//! Snapshots of device memory in real slots, over a driver of plain memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::{Arc, Mutex, PoisonError};

use cuda_fake::{Count, Fake, Knob};
use robust_ckpt::slot::{Image, Slot, Taken};
use robust_device::{BLOCK_BYTES, Memory, Purpose, SMALLEST, Staging, Tensor};
use robust_shared::ids::{Generation, Step};

/// Bytes of the shard of each tensor: a few blocks and a bit.
const SHARD: usize = 3 * BLOCK_BYTES + 100;
/// Where the shard begins in its tensor.
const FIRST: usize = 4096 + 8;
const HEADER: usize = 4096;

/// The driver is the process's: under `cargo test` the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

/// Three tensors on a device, as a rank has them.
struct Rank {
    staging: Arc<Staging>,
    tensors: Vec<Memory>,
}

impl Rank {
    fn new() -> Rank {
        let staging = Staging::open(0, SMALLEST).unwrap();
        let tensor = |_| Memory::new(staging.device(), FIRST + SHARD + 64).unwrap();
        Rank {
            tensors: (0..3).map(tensor).collect(),
            staging,
        }
    }

    fn fill(&self, step: u64) {
        for (at, tensor) in self.tensors.iter().enumerate() {
            self.staging.write(tensor, 0, &plain(at, step)).unwrap();
        }
    }

    fn shard(&self) -> [Tensor; 3] {
        let shard = |at: usize| {
            Tensor::new(&self.staging, &self.tensors[at], FIRST..FIRST + SHARD).unwrap()
        };
        [0, 1, 2].map(shard)
    }

    fn snapshot(&self, slot: &mut Slot, step: u64) -> Result<Taken, robust_ckpt::CkptError> {
        let [params, m, v] = self.shard();
        let header = &[step as u8; HEADER][..];
        let of = (Step(step), Generation(1));
        slot.write(of, step, &[&header, &params, &m, &v])
    }

    fn restore(&self, image: &Image, xxh3: Option<u64>) -> Result<(), robust_ckpt::CkptError> {
        let [mut params, mut m, mut v] = self.shard();
        image.restore(HEADER as u64, &mut [&mut params, &mut m, &mut v], xxh3)
    }

    /// Whether the shards are those of a step, and the bytes around them those of another.
    fn has(&self, step: u64, around: u64) -> bool {
        (0..3).all(|at| {
            let mut expected = plain(at, around);
            expected[FIRST..FIRST + SHARD].copy_from_slice(&plain(at, step)[FIRST..FIRST + SHARD]);
            let mut found = vec![0; expected.len()];
            self.staging.read(&self.tensors[at], 0, &mut found).unwrap();
            found == expected
        })
    }
}

/// A tensor's bytes after a step.
fn plain(tensor: usize, step: u64) -> Vec<u8> {
    let mut state = (step * 8 + tensor as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..FIRST + SHARD + 64).map(next).collect()
}

#[test]
fn a_snapshot_of_a_device_is_that_of_the_host_and_comes_back_through_pinned_blocks_alone() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let fake = Fake::load().expect("the library is built with the tests");
    let before = fake.count(Count::Misuses);
    let (dir, rank) = (tempfile::tempdir().unwrap(), Rank::new());
    let bytes = (HEADER + 3 * SHARD) as u64;
    let open = |name| Slot::open(&dir.path().join(name), bytes).unwrap();
    let (mut slot, mut of_host) = (open("device"), open("host"));
    rank.fill(7);
    let taken = rank.snapshot(&mut slot, 7).unwrap();
    let host: Vec<Vec<u8>> = (0..3).map(|at| plain(at, 7)).collect();
    let header = &[7; HEADER][..];
    let [params, m, v] = [0, 1, 2].map(|at: usize| &host[at][FIRST..FIRST + SHARD]);
    of_host
        .write((Step(7), Generation(1)), 7, &[&header, &params, &m, &v])
        .unwrap();
    let [image, plain] =
        ["device", "host"].map(|name| Image::open(&dir.path().join(name), taken).unwrap());
    assert_eq!(image.digest().unwrap(), plain.digest().unwrap());
    for xxh3 in [None, Some(image.digest().unwrap())] {
        rank.fill(9);
        rank.restore(&image, xxh3).unwrap();
        assert!(rank.has(7, 9));
    }
    let error = rank.restore(&image, Some(1)).unwrap_err();
    assert!(error.to_string().contains("corrupt"), "{error}");
    assert_eq!(fake.count(Count::Misuses), before);
    assert_eq!(fake.count(Count::PinnedBytes), SMALLEST as u64);
    assert_eq!(rank.staging.left(Purpose::Local), 2);
}

#[test]
fn a_device_that_fails_in_the_middle_leaves_no_snapshot_and_no_block_held() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let fake = Fake::load().expect("the library is built with the tests");
    let (dir, rank) = (tempfile::tempdir().unwrap(), Rank::new());
    let path = dir.path().join("slot");
    let mut slot = Slot::open(&path, (HEADER + 3 * SHARD) as u64).unwrap();
    rank.fill(1);
    let taken = rank.snapshot(&mut slot, 1).unwrap();
    let restored = |error: String| error.contains("CUDA_ERROR_ILLEGAL_ADDRESS");
    // In the first block, between two tensors, in the last one.
    for at in [1, 5, 12] {
        fake.set(Knob::FailCopy, at);
        let error = rank.snapshot(&mut slot, 2).unwrap_err().to_string();
        assert!(restored(error.clone()), "{error}");
        fake.set(Knob::FailCopy, 0);
        let error = Image::open(&path, taken).unwrap_err().to_string();
        assert!(error.contains("it is being written"), "{error}");
        let again = rank.snapshot(&mut slot, 1).unwrap();
        let image = Image::open(&path, again).unwrap();
        fake.set(Knob::FailCopy, at);
        let error = rank.restore(&image, None).unwrap_err().to_string();
        assert!(restored(error.clone()), "{error}");
        fake.set(Knob::FailCopy, 0);
        rank.fill(3);
        rank.restore(&image, None).unwrap();
        assert!(rank.has(1, 3));
        assert_eq!(rank.staging.left(Purpose::Local), 2);
        rank.fill(1);
    }
}
