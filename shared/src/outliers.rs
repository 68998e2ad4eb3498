//! How far a figure is from those of its peers, by a measure that is not moved by what is far off.
//!
//! Mean and standard deviation go along with what is far off, so that a few such figures hide each other. The median, and the
//! median of the distances from it (MAD), stay where they are until half of the figures are far off.
use crate::median::median as middle;

/// Of fewer figures nobody can say what is usual: of four, two that are far off are half.
pub const FEWEST: usize = 5;
/// A figure with a higher score than this, up or down, is far off: Iglewicz and Hoaglin's advice.
pub const FAR: f64 = 3.5;
/// The third quartile of the normal distribution, in standard deviations: with it the score of figures that are spread
/// normally is how many standard deviations they are from the middle.
const THIRD_QUARTILE: f64 = 0.6745;

/// What is usual among peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usual {
    median: f64,
    spread: f64,
}

impl Usual {
    /// What is usual among these figures, in their unit. None where there are fewer than [`FEWEST`] of them, or where they
    /// have no spread: then nobody is far off. What is no number does not count.
    ///
    /// `grain` is asked for the smallest spread that means anything, given the median: of figures that lie closer together
    /// the spread is taken to be that, for one beside a thousand that are all the same is not far off by any difference. With
    /// 0 the figures' own spread counts whatever it is.
    pub fn of(
        figures: impl IntoIterator<Item = f64>,
        grain: impl FnOnce(f64) -> f64,
    ) -> Option<Usual> {
        let mut figures: Vec<f64> = figures.into_iter().filter(|f| f.is_finite()).collect();
        if figures.len() < FEWEST {
            return None;
        }
        let median = middle(&mut figures)?;
        for figure in &mut figures {
            *figure = (*figure - median).abs();
        }
        let mad = middle(&mut figures)?;
        let spread = mad.max(grain(median));
        (spread > 0.0).then_some(Usual { median, spread })
    }

    /// The middle one of the figures; of an even number the mean of the two in the middle.
    pub fn median(&self) -> f64 {
        self.median
    }

    /// How far a figure is from the median, negative below it: the modified z-score `0.6745 (x - median) / MAD` of
    /// B. Iglewicz and D. Hoaglin, How to Detect and Handle Outliers (ASQC Basic References in Quality Control 16, 1993);
    /// also in the NIST/SEMATECH e-Handbook of Statistical Methods, section 1.3.5.17. No unit.
    pub fn score(&self, figure: f64) -> f64 {
        THIRD_QUARTILE * (figure - self.median) / self.spread
    }

    /// Whether a figure is far below the others.
    pub fn is_far_below(&self, figure: f64) -> bool {
        self.score(figure) < -FAR
    }

    /// Whether a figure is far above the others.
    pub fn is_far_above(&self, figure: f64) -> bool {
        self.score(figure) > FAR
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use proptest::prelude::*;

    /// Those that are far off, as they come.
    fn far(figures: &[f64], grain: f64) -> Vec<f64> {
        let Some(usual) = Usual::of(figures.iter().copied(), |_| grain) else {
            return Vec::new();
        };
        let is_far = |f: &f64| usual.is_far_below(*f) || usual.is_far_above(*f);
        figures.iter().copied().filter(is_far).collect()
    }

    #[test]
    fn the_score_is_that_of_the_handbook() {
        // Median 3, distances 2 1 0 1 7, their median 1.
        let usual = Usual::of([1.0, 2.0, 3.0, 4.0, 10.0], |_| 0.0).unwrap();
        assert_eq!(usual.median(), 3.0);
        assert!((usual.score(10.0) - 0.6745 * 7.0).abs() < 1e-12);
        assert!((usual.score(1.0) + 0.6745 * 2.0).abs() < 1e-12);
        assert!(usual.is_far_above(10.0) && !usual.is_far_below(1.0));
    }

    #[test]
    fn of_an_even_number_the_median_is_between_the_two_in_the_middle() {
        let usual = Usual::of([6.0, 1.0, 4.0, 2.0, 9.0, 3.0], |_| 0.0).unwrap();
        assert_eq!(usual.median(), 3.5);
    }

    #[test]
    fn of_too_few_nothing_is_said() {
        assert_eq!(far(&[1.0, 1.1, 0.9, 1_000.0], 0.1), [0.0; 0]);
        assert_eq!(far(&[1.0, 1.1, 0.9, 1.0, 1_000.0], 0.1), [1_000.0]);
        let none = [f64::NAN, f64::INFINITY, 1.0, 2.0, 3.0, 4.0];
        assert_eq!(Usual::of(none, |_| 1.0), None, "what is no number");
    }

    #[test]
    fn without_a_spread_nobody_is_far_off_unless_a_grain_says_what_counts() {
        let figures = [7.0, 7.0, 7.0, 7.0, 7.0, 6.0, 1.0];
        assert_eq!(far(&figures, 0.0), [0.0; 0]);
        assert_eq!(far(&figures, 0.5), [1.0]);
        let of_the_median = |figure: f64| {
            let usual = Usual::of(figures, |median| median / 10.0).unwrap();
            usual.is_far_below(figure)
        };
        assert!(of_the_median(3.0) && !of_the_median(4.0));
    }

    #[test]
    fn several_that_are_far_off_do_not_hide_each_other() {
        let mut figures: Vec<f64> = (0..60).map(|n| 800.0 + f64::from(n)).collect();
        figures.extend([10.0, 12.0, 11.0, 9.0, 13.0]);
        assert_eq!(far(&figures, 1.0), [10.0, 12.0, 11.0, 9.0, 13.0]);
    }

    /// Figures, and the same in another order.
    fn shuffled() -> impl Strategy<Value = (Vec<f64>, Vec<f64>)> {
        let figures = prop::collection::vec(-1e6..1e6_f64, 0..80);
        figures.prop_flat_map(|figures| (Just(figures.clone()), Just(figures).prop_shuffle()))
    }

    proptest! {
        #[test]
        fn among_equals_nobody_is_far_off(
            figure in -1e12..1e12_f64, n in 0..60_usize, grain in 0.0..10.0_f64
        ) {
            prop_assert_eq!(far(&vec![figure; n], grain), [0.0; 0]);
        }

        /// The others lie within 100, so their distances from the median do too, and the score is above 4.
        #[test]
        fn one_that_is_far_off_is_found(
            mut figures in prop::collection::vec(800.0..900.0_f64, 5..80),
            odd in prop_oneof![0.0..200.0_f64, 1_500.0..9_000.0_f64],
            at in any::<prop::sample::Index>(),
        ) {
            figures.insert(at.index(figures.len() + 1), odd);
            prop_assert!(far(&figures, 1.0).contains(&odd));
        }

        #[test]
        fn their_order_is_no_matter((figures, others) in shuffled(), grain in 0.0..10.0_f64) {
            let usual = |figures: &[f64]| Usual::of(figures.iter().copied(), |_| grain);
            prop_assert_eq!(usual(&figures), usual(&others));
        }
    }
}
