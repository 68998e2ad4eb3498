//! The middle of figures.

/// The median, in time that grows with their number; of an even number the mean of the two in the middle, and none of none.
/// They are left in another order.
pub fn median(figures: &mut [f64]) -> Option<f64> {
    if figures.is_empty() {
        return None;
    }
    let (middle, even) = (figures.len() / 2, figures.len().is_multiple_of(2));
    let (below, upper, _) = figures.select_nth_unstable_by(middle, f64::total_cmp);
    let upper = *upper;
    if !even {
        return Some(upper);
    }
    let lower = below.iter().copied().max_by(f64::total_cmp)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_even_number_it_is_between_the_two_in_the_middle_and_none_of_none() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [7.0]), Some(7.0));
        assert_eq!(median(&mut []), None);
    }
}
