//! Chance that repeats: a counter-based generator, so that a draw depends on the seed and on its
//! number (or key) only, never on a clock or on the machine.
use std::time::Duration;

/// The n-th draw is a hash of the seed and n.
#[derive(Clone, Debug)]
pub struct Dice {
    seed: u64,
    drawn: u64,
}

impl Dice {
    /// The dice of a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: 0 }
    }

    /// The dice of one thing under a seed: its draws are the same whatever was drawn before.
    pub fn keyed(seed: u64, key: u64) -> Self {
        Self::new(mix(seed ^ mix(key)))
    }

    /// Any number.
    pub fn draw(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed ^ self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.draw() % n.max(1)
    }

    /// True so many times in a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// A time up to `most`.
    pub fn up_to(&mut self, most: Duration) -> Duration {
        let most = u64::try_from(most.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(self.below(most.saturating_add(1)))
    }
}

/// The finaliser of splitmix64.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_seed_and_number_only() {
        let mut a = Dice::new(7);
        let first: Vec<u64> = (0..4).map(|_| a.draw()).collect();
        let mut b = Dice::new(7);
        assert_eq!(first, (0..4).map(|_| b.draw()).collect::<Vec<_>>());
        assert_ne!(first[0], Dice::new(8).draw());
        assert_eq!(Dice::keyed(7, 3).draw(), Dice::keyed(7, 3).draw());
        assert_ne!(Dice::keyed(7, 3).draw(), Dice::keyed(7, 4).draw());
    }

    #[test]
    fn a_draw_stays_below_its_bound_and_reaches_all_of_it() {
        let mut dice = Dice::new(1);
        let mut seen = [0u32; 5];
        for _ in 0..1000 {
            seen[usize::try_from(dice.below(5)).unwrap_or(0)] += 1;
        }
        assert!(seen.iter().all(|n| *n > 120), "{seen:?}");
    }
}
