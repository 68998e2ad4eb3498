//! The real driver and a real device: `make test-device` runs these where there is one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::time::Instant;

use robust_ckpt::slot::{Image, Slot};
use robust_device::{BLOCK_BYTES, DeviceError, Memory, Purpose, SMALLEST, Staging, Tensor};
use robust_shared::ids::{Generation, Step};

/// Bytes of what is timed.
const LARGE: usize = 1 << 30;

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words = (0..len.div_ceil(8)).flat_map(|_| next().to_le_bytes());
    words.take(len).collect()
}

/// Prints how fast these bytes went; never judged.
fn timed<T>(what: &str, len: usize, run: impl FnOnce() -> T) -> T {
    let start = Instant::now();
    let result = run();
    let gb_s = len as f64 / 1e9 / start.elapsed().as_secs_f64();
    println!("{what}: {gb_s:.2} GB/s");
    result
}

#[test]
#[ignore = "needs an NVIDIA device"]
fn what_is_written_to_a_real_device_is_read_back_from_any_place() {
    let staging = Staging::open(0, SMALLEST).unwrap();
    let len = 3 * BLOCK_BYTES + 777;
    let memory = Memory::new(staging.device(), len).unwrap();
    let mut all = vec![1; len];
    staging.read(&memory, 0, &mut all).unwrap();
    assert!(all.iter().all(|byte| *byte == 0), "new memory is zeroed");
    let mut expected = all;
    let parts = [
        (0, len),
        (5, 1),
        (BLOCK_BYTES - 3, 7),
        (999, 2 * BLOCK_BYTES),
        (len, 0),
    ];
    for (offset, size) in parts {
        let part = bytes(size, offset as u64 + 1);
        staging.write(&memory, offset, &part).unwrap();
        expected[offset..offset + size].copy_from_slice(&part);
    }
    let mut all = vec![0; len];
    staging.read(&memory, 0, &mut all).unwrap();
    assert!(all == expected);
    assert_eq!(staging.left(Purpose::Local), 2);
}

#[test]
#[ignore = "needs an NVIDIA device"]
fn a_snapshot_of_a_real_device_is_that_of_the_host_and_comes_back() {
    const HEADER: usize = 4096;
    let staging = Staging::open(0, 64 << 20).unwrap();
    let host = bytes(LARGE, 7);
    let memory = Memory::new(staging.device(), LARGE).unwrap();
    timed("to the device", LARGE, || staging.write(&memory, 0, &host)).unwrap();
    let (header, dir) = (&[7; HEADER][..], tempfile::tempdir_in("/dev/shm").unwrap());
    let open = |name| Slot::open(&dir.path().join(name), (HEADER + LARGE) as u64).unwrap();
    let (mut slot, mut of_host) = (open("device"), open("host"));
    let take = |slot: &mut Slot, step| {
        let tensor = Tensor::new(&staging, &memory, 0..LARGE).unwrap();
        slot.write((Step(step), Generation(1)), step, &[&header, &tensor])
    };
    // The first one pays for the slot's pages.
    timed("first snapshot", LARGE, || take(&mut slot, 6)).unwrap();
    let taken = timed("snapshot", LARGE, || take(&mut slot, 7)).unwrap();
    let of = (Step(7), Generation(1));
    of_host.write(of, 7, &[&header, &&host[..]]).unwrap();
    let [image, plain] =
        ["device", "host"].map(|name| Image::open(&dir.path().join(name), taken).unwrap());
    let digest = image.digest().unwrap();
    assert_eq!(digest, plain.digest().unwrap());
    staging.write(&memory, 0, &bytes(LARGE, 9)).unwrap();
    let mut tensor = Tensor::new(&staging, &memory, 0..LARGE).unwrap();
    let restored = timed("restored", LARGE, || {
        image.restore(HEADER as u64, &mut [&mut tensor], Some(digest))
    });
    restored.unwrap();
    let mut back = vec![0; LARGE];
    timed("to the host", LARGE, || staging.read(&memory, 0, &mut back)).unwrap();
    assert!(back == host);
}

#[test]
#[ignore = "needs an NVIDIA device"]
fn a_device_that_is_full_or_not_there_is_an_error_in_the_drivers_words() {
    let staging = Staging::open(0, SMALLEST).unwrap();
    let error = Memory::new(staging.device(), 1 << 45).unwrap_err();
    println!("{error}");
    assert!(error.to_string().contains("CUDA_ERROR_OUT_OF_MEMORY"));
    // The device is as good as before.
    let memory = Memory::new(staging.device(), 100).unwrap();
    staging.write(&memory, 0, &[3; 100]).unwrap();
    let error = Staging::open(4096, SMALLEST).err().unwrap();
    println!("{error}");
    assert!(error.to_string().contains("CUDA_ERROR_INVALID_DEVICE"));
    let error = staging.write(&memory, 100, &[1]).unwrap_err();
    assert!(matches!(error, DeviceError::Bounds { .. }), "{error}");
}
