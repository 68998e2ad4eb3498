//! Counter-based random numbers: Philox 4x32-10 (Salmon et al., SC 2011).
//!
//! A number depends on its key and position alone, so a trajectory that is resumed elsewhere
//! continues with the numbers it would have drawn.

const MULTIPLIERS: [u32; 2] = [0xD251_1F53, 0xCD9E_8D57];
const WEYL: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];

/// Ten rounds of Philox on a 128-bit counter with a 64-bit key.
pub fn philox(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    for _ in 0..10 {
        let low = u64::from(MULTIPLIERS[0]) * u64::from(counter[0]);
        let high = u64::from(MULTIPLIERS[1]) * u64::from(counter[2]);
        counter = [
            (high >> 32) as u32 ^ counter[1] ^ key[0],
            high as u32,
            (low >> 32) as u32 ^ counter[3] ^ key[1],
            low as u32,
        ];
        key = [key[0].wrapping_add(WEYL[0]), key[1].wrapping_add(WEYL[1])];
    }
    counter
}

/// A number in [0, 1) with 53 random bits for this position of this trajectory.
pub fn uniform(seed: u64, trajectory: u64, position: u64) -> f64 {
    let halves = |x: u64| (x as u32, (x >> 32) as u32);
    let ((p0, p1), (t0, t1), (s0, s1)) = (halves(position), halves(trajectory), halves(seed));
    let out = philox([p0, p1, t0, t1], [s0, s1]);
    let bits = (u64::from(out[1]) << 32 | u64::from(out[0])) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// A small sequential generator over [`philox`], for data and initialisation.
#[derive(Debug, Clone)]
pub struct Stream {
    seed: u64,
    stream: u64,
    position: u64,
}

impl Stream {
    /// The stream's beginning.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self {
            seed,
            stream,
            position: 0,
        }
    }

    /// The next number in [0, 1).
    pub fn uniform(&mut self) -> f64 {
        self.position += 1;
        uniform(self.seed, self.stream, self.position)
    }

    /// A number in `0..bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((self.uniform() * bound as f64) as u64).min(bound.saturating_sub(1))
    }

    /// A number of the standard normal distribution (Box-Muller).
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (1.0 - self.uniform(), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn philox_gives_the_published_test_vectors() {
        let zeros = philox([0; 4], [0; 2]);
        assert_eq!(zeros, [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        let ones = philox([u32::MAX; 4], [u32::MAX; 2]);
        assert_eq!(ones, [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]);
    }

    #[test]
    fn uniform_numbers_fill_the_interval_evenly() {
        let mut bins = [0; 10];
        for position in 0..10_000 {
            bins[(uniform(7, 3, position) * 10.0) as usize] += 1;
        }
        assert!(
            bins.iter().all(|&count| (850..1150).contains(&count)),
            "{bins:?}"
        );
    }
}
