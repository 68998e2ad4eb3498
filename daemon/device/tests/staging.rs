//! The real bindings over a driver of plain memory: blocks, copies, and what the driver refuses.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(unsafe_code)]

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cuda_fake::{Count, Fake, Knob};
use robust_device::{
    BLOCK_BYTES, Copied, Copy, Device, DeviceError, Memory, Purpose, SMALLEST, Staging, Way,
};

/// The driver is the process's: under `cargo test` the tests take turns.
static TURN: Mutex<()> = Mutex::new(());

fn fake() -> (Fake, MutexGuard<'static, ()>) {
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let fake = Fake::load().expect("the library is built with the tests");
    for knob in [Knob::FailCopy, Knob::FailSync, Knob::FailAlloc, Knob::Hold] {
        fake.set(knob, 0);
    }
    (fake, turn)
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..len).map(next).collect()
}

#[test]
fn what_is_written_is_read_back_from_any_place_and_goes_through_pinned_blocks_alone() {
    let (fake, _turn) = fake();
    let before = fake.count(Count::Misuses);
    let staging = Staging::open(0, SMALLEST).unwrap();
    let len = 3 * BLOCK_BYTES + 777;
    let memory = Memory::new(staging.device(), len).unwrap();
    let mut all = vec![1; len];
    staging.read(&memory, 0, &mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 0), "new memory is zeroed");
    let mut expected = all;
    for (offset, size) in [
        (0, len),
        (5, 1),
        (BLOCK_BYTES - 3, 7),
        (999, 2 * BLOCK_BYTES),
        (len, 0),
    ] {
        let part = bytes(size, offset as u64);
        staging.write(&memory, offset, &part).unwrap();
        expected[offset..offset + size].copy_from_slice(&part);
        let mut back = vec![0; size];
        staging.read(&memory, offset, &mut back).unwrap();
        assert!(back == part, "{offset}+{size}");
    }
    let mut all = vec![0; len];
    staging.read(&memory, 0, &mut all).unwrap();
    assert!(all == expected);
    assert_eq!(fake.count(Count::Misuses), before);
}

#[test]
fn an_access_beyond_the_end_is_refused_and_moves_nothing() {
    let (fake, _turn) = fake();
    let staging = Staging::open(0, SMALLEST).unwrap();
    let memory = Memory::new(staging.device(), 100).unwrap();
    let before = fake.count(Count::Copies);
    for (offset, len) in [(100, 1), (0, 101), (usize::MAX, 2)] {
        let error = staging.write(&memory, offset, &vec![0; len]).unwrap_err();
        assert!(matches!(error, DeviceError::Bounds { .. }), "{error}");
        let error = staging
            .read(&memory, offset, &mut vec![0; len])
            .unwrap_err();
        assert!(matches!(error, DeviceError::Bounds { .. }), "{error}");
    }
    assert_eq!(fake.count(Count::Copies), before);
}

#[test]
fn everything_is_given_back() {
    let (fake, _turn) = fake();
    let now = || [Count::DeviceBytes, Count::PinnedBytes].map(|count| fake.count(count));
    let before = now();
    let staging = Staging::open(1, SMALLEST + 3 * BLOCK_BYTES).unwrap();
    let memory = Memory::new(staging.device(), 1000).unwrap();
    // SAFETY: the memory outlives the loan.
    let borrowed = unsafe { Memory::borrowed(staging.device(), memory.address(), 1000) };
    staging.write(&borrowed, 0, &[7; 1000]).unwrap();
    drop(borrowed);
    let held = staging.take(Purpose::Fetch).unwrap();
    let pinned = (SMALLEST + 3 * BLOCK_BYTES) as u64;
    assert_eq!(now(), [before[0] + 1000, before[1] + pinned]);
    drop((memory, staging));
    assert_eq!(now(), [before[0], before[1] + pinned], "a block is held");
    drop(held);
    assert_eq!(now(), before);
}

#[test]
fn each_purpose_has_blocks_of_its_own_and_none_more() {
    let (_fake, _turn) = fake();
    let staging = Staging::open(0, SMALLEST + BLOCK_BYTES).unwrap();
    let take = |purpose| -> Vec<_> { std::iter::from_fn(|| staging.take(purpose)).collect() };
    let fetch = take(Purpose::Fetch);
    assert_eq!(fetch.len(), 2);
    let serve = take(Purpose::Serve);
    assert_eq!(serve.len(), 1);
    assert_eq!(take(Purpose::Local).len(), 2);
    let mut places: Vec<usize> = fetch
        .iter()
        .chain(&serve)
        .map(|b| b.as_ptr() as usize)
        .collect();
    places.dedup();
    assert_eq!(places.len(), 3);
    drop(fetch);
    assert_eq!(staging.left(Purpose::Fetch), 2);
    assert_eq!(staging.left(Purpose::Serve), 0);
    let error = Staging::open(0, SMALLEST - 1).unwrap_err();
    assert!(matches!(error, DeviceError::Staging { .. }), "{error}");
}

#[test]
fn a_failed_copy_is_an_error_in_words_and_the_next_one_works() {
    let (fake, _turn) = fake();
    let staging = Staging::open(0, SMALLEST).unwrap();
    let memory = Memory::new(staging.device(), 3 * BLOCK_BYTES).unwrap();
    let plain = bytes(3 * BLOCK_BYTES, 1);
    fake.set(Knob::FailSync, 1);
    let error = staging.write(&memory, 0, &plain).unwrap_err();
    assert_eq!(
        error.to_string(),
        "copying to the device: CUDA_ERROR_ILLEGAL_ADDRESS, an illegal memory access was \
         encountered (CUDA error 700)"
    );
    fake.set(Knob::FailCopy, 2);
    let error = staging.read(&memory, 0, &mut plain.clone()).unwrap_err();
    assert!(
        error.to_string().starts_with("copying from the device: "),
        "{error}"
    );
    fake.set(Knob::FailCopy, 0);
    staging.write(&memory, 0, &plain).unwrap();
    let mut back = vec![0; plain.len()];
    staging.read(&memory, 0, &mut back).unwrap();
    assert!(back == plain);
    assert_eq!(staging.left(Purpose::Local), 2);
}

#[test]
fn no_memory_on_the_device_is_an_error() {
    let (fake, _turn) = fake();
    let device = Device::open(0).unwrap();
    fake.set(Knob::FailAlloc, 1);
    let error = Memory::new(&device, 10).unwrap_err();
    let text = "allocating device memory: CUDA_ERROR_OUT_OF_MEMORY, out of memory (CUDA error 2)";
    assert_eq!(error.to_string(), text);
    let error = Device::open(7).unwrap_err();
    assert!(
        error.to_string().contains("invalid device ordinal"),
        "{error}"
    );
}

#[test]
fn a_copy_that_is_not_wanted_any_more_is_not_made() {
    let (fake, _turn) = fake();
    let staging = Staging::open(0, SMALLEST).unwrap();
    let memory = Memory::new(staging.device(), BLOCK_BYTES).unwrap();
    fake.set(Knob::Hold, 1);
    let (ended, ends) = channel();
    let start = |purpose, wanted: bool| {
        let ended = ended.clone();
        staging.start(Copy {
            way: Way::Up,
            block: staging.take(purpose).unwrap(),
            memory: memory.clone(),
            range: 0..BLOCK_BYTES,
            wanted: Box::new(move || wanted),
            done: Box::new(move |_, copied| ended.send(copied).unwrap()),
        });
    };
    start(Purpose::Fetch, true);
    while fake.count(Count::Held) == 0 {
        std::thread::yield_now();
    }
    start(Purpose::Serve, false);
    assert!(ends.try_recv().is_err(), "the driver has not answered");
    let before = fake.count(Count::BytesUp);
    fake.set(Knob::Hold, 0);
    let limit = Duration::from_secs(20);
    let ends: Vec<Copied> = (0..2).map(|_| ends.recv_timeout(limit).unwrap()).collect();
    assert_eq!(ends, [Copied::Done, Copied::Skipped]);
    assert_eq!(fake.count(Count::BytesUp), before + BLOCK_BYTES as u64);
}

#[test]
fn callers_share_the_local_blocks_and_all_get_through() {
    let (_fake, _turn) = fake();
    let staging = Staging::open(0, SMALLEST).unwrap();
    let len = 5 * BLOCK_BYTES + 1;
    let memory: Arc<Vec<Memory>> = Arc::new(
        (0..4)
            .map(|_| Memory::new(staging.device(), len).unwrap())
            .collect(),
    );
    std::thread::scope(|scope| {
        for at in 0..4 {
            let (staging, memory) = (&staging, &memory[at]);
            scope.spawn(move || {
                let own = bytes(len, at as u64);
                for _ in 0..5 {
                    staging.write(memory, 0, &own).unwrap();
                    let mut back = vec![0; len];
                    staging.read(memory, 0, &mut back).unwrap();
                    assert!(back == own);
                }
            });
        }
    });
    assert_eq!(staging.left(Purpose::Local), 2);
}
