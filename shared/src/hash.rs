//! Hash maps by number, for look-ups only: nothing may depend on the order of their entries. Their hasher
//! has no seed, so that if something did, it would be the same in every run.
#![allow(
    clippy::disallowed_types,
    reason = "the one place that may have `HashMap`"
)]
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map from numbers (or few of them) that is only ever looked up.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// Multiplies and rotates: keys are our own numbers, so no defence against crafted ones is needed.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdHasher(u64);

/// 2^64 divided by the golden ratio, odd.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // The map takes its bits from both ends.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u64(u64::from(*byte));
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = (self.0.rotate_left(23) ^ n).wrapping_mul(SPREAD);
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(n.into());
    }

    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
