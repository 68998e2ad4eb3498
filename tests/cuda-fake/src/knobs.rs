//! What a test can set and read. The numbers are those of the two C symbols.
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a test sets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Knob {
    /// The n-th copy from now on, and every later one, fails with [`FAILURE`]; 0: none.
    FailCopy = 0,
    /// The n-th synchronisation from now on fails; 0: none.
    FailSync = 1,
    /// The n-th allocation of device memory from now on fails for want of it; 0: none.
    FailAlloc = 2,
    /// Not 0: synchronisations wait until it is 0 again.
    Hold = 3,
    /// The n-th copy from the device from now on has a flipped bit; 0: none.
    FlipDown = 4,
    /// The n-th copy to the device from now on has a flipped bit; 0: none.
    FlipUp = 5,
    /// Whatever is set: [`Count::PinnedMost`] counts from now on.
    ForgetMost = 6,
}

/// What a test reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Count {
    /// Copies made, both ways.
    Copies = 0,
    /// Bytes copied to devices.
    BytesUp = 1,
    /// Bytes copied from devices.
    BytesDown = 2,
    /// Bytes of device memory allocated now.
    DeviceBytes = 3,
    /// Bytes pinned now.
    PinnedBytes = 4,
    /// The most bytes ever pinned, or since [`Knob::ForgetMost`].
    PinnedMost = 5,
    /// Calls that a real driver would not have survived, or would have made slow: see the crate.
    Misuses = 6,
    /// Synchronisations that wait because of [`Knob::Hold`], now.
    Held = 7,
}

/// The error of injected failures: CUDA_ERROR_ILLEGAL_ADDRESS.
pub const FAILURE: u32 = 700;

static KNOBS: [AtomicU64; 7] = [const { AtomicU64::new(0) }; 7];
static COUNTS: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
/// Counts the most pinned in one step.
static MOST: Mutex<()> = Mutex::new(());

/// Whether a knob is not 0.
pub(crate) fn is_set(knob: Knob) -> bool {
    KNOBS[knob as usize].load(Ordering::SeqCst) != 0
}

/// Counts a knob down; whether this is its turn. With `stays`, also every turn after it.
pub(crate) fn turn(knob: Knob, stays: bool) -> bool {
    let next = |left: u64| match left {
        0 => None,
        1 if stays => Some(1),
        more => Some(more - 1),
    };
    let before = KNOBS[knob as usize].fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
    before == Ok(1)
}

pub(crate) fn add(count: Count, by: u64) {
    COUNTS[count as usize].fetch_add(by, Ordering::SeqCst);
}

pub(crate) fn sub(count: Count, by: u64) {
    COUNTS[count as usize].fetch_sub(by, Ordering::SeqCst);
}

pub(crate) fn pinned(by: u64) {
    let _one = MOST.lock();
    add(Count::PinnedBytes, by);
    let now = COUNTS[Count::PinnedBytes as usize].load(Ordering::SeqCst);
    COUNTS[Count::PinnedMost as usize].fetch_max(now, Ordering::SeqCst);
}

fn forget_most() {
    let _one = MOST.lock();
    let now = COUNTS[Count::PinnedBytes as usize].load(Ordering::SeqCst);
    COUNTS[Count::PinnedMost as usize].store(now, Ordering::SeqCst);
}

/// Something that no correct program does; said on standard error too.
pub(crate) fn misuse(what: &str) {
    eprintln!("cuda-fake: {what}");
    add(Count::Misuses, 1);
}

/// Sets a knob.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_fake_set(knob: u32, value: u64) {
    if let Some(knob) = KNOBS.get(knob as usize) {
        knob.store(value, Ordering::SeqCst);
    }
    if knob == Knob::ForgetMost as u32 {
        forget_most();
    }
}

/// Reads a count.
#[unsafe(no_mangle)]
pub extern "C" fn cuda_fake_get(count: u32) -> u64 {
    let count = COUNTS.get(count as usize);
    count.map_or(0, |count| count.load(Ordering::SeqCst))
}
