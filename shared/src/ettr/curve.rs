//! ETTR and goodput over a whole run, from its intervals, in bounded room.
//!
//! Time is kept in at most [`CELLS`] cells of equal length, which double when the run outgrows them: a
//! day is told in cells of 64 s, a week in cells of 9 minutes. Sums are exact, only their place in
//! time is as coarse as a cell.
use super::{Cause, Interval, WINDOW};
use crate::time::Time;
use std::time::Duration;

/// Cells at most. A cell of a run of half an hour is a second, as in the sliding figures.
const CELLS: usize = 2048;
const SECOND: u64 = 1_000_000;

/// The figures at one instant.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// When.
    pub at: Time,
    /// Mean of what the instants before counted, over five minutes or one cell if that is longer.
    pub sliding: f64,
    /// The same without what was thrown away later.
    pub sliding_goodput: f64,
    /// Mean since the begin.
    pub total: f64,
    /// The same without what was thrown away.
    pub goodput: f64,
}

/// Sums of intervals by time. See the module's doc.
#[derive(Clone, Debug, Default)]
pub struct Curve {
    origin: Option<Time>,
    end: Time,
    /// Microseconds.
    width: u64,
    /// Counted and wasted microseconds of each cell.
    cells: Vec<(f64, f64)>,
    /// Seconds of plain intervals by cause, and the counted part of wasted ones.
    causes: Vec<(Cause, f64)>,
}

impl Curve {
    /// Takes an interval in; plain ones in the order of time.
    pub fn add(&mut self, interval: &Interval) {
        let origin = *self.origin.get_or_insert(interval.from);
        if !interval.waste {
            self.end = self.end.max(interval.to);
        }
        let weight = if interval.waste { interval.value } else { 1.0 };
        self.cause(interval.cause, weight * interval.seconds());
        self.width = self.width.max(SECOND);
        let from = interval.from.0.saturating_sub(origin.0);
        let to = interval.to.0.saturating_sub(origin.0);
        while to > self.width * CELLS as u64 {
            self.double();
        }
        self.fill(from, to, interval);
    }

    /// Seconds that each cause lasted in all, in the order in which they first came.
    pub fn causes(&self) -> &[(Cause, f64)] {
        &self.causes
    }

    /// What a cell lasts.
    pub fn resolution(&self) -> Duration {
        Duration::from_micros(self.width)
    }

    /// The figures at so many instants of equal distance, the end the last; fewer in a short run.
    pub fn points(&self, most: usize) -> Vec<Point> {
        let Some(origin) = self.origin.filter(|_| !self.cells.is_empty()) else {
            return Vec::new();
        };
        let sums = self.sums();
        let cells = sums.len() - 1;
        let count = most.clamp(1, cells);
        let point = |i: usize| self.point(origin, &sums, (i + 1) * cells / count);
        (0..count).map(point).collect()
    }

    /// The figures after so many cells.
    fn point(&self, origin: Time, sums: &[(f64, f64)], cell: usize) -> Point {
        let whole = self.end.0.saturating_sub(origin.0);
        let end = (cell as u64 * self.width).min(whole);
        let window = u64::try_from(WINDOW.as_micros()).unwrap_or(u64::MAX) / self.width.max(1);
        let first = cell.saturating_sub(usize::try_from(window.max(1)).unwrap_or(usize::MAX));
        let over = |from: usize| -> (f64, f64) {
            let (begin, until) = (sums[from], sums[cell]);
            let span = end.saturating_sub(from as u64 * self.width).max(1) as f64;
            let (counted, wasted) = (until.0 - begin.0, until.1 - begin.1);
            let mean = |sum: f64| (sum / span).clamp(0.0, 1.0);
            (mean(counted), mean(counted - wasted))
        };
        let (sliding, sliding_goodput) = over(first);
        let (total, goodput) = over(0);
        Point {
            at: Time(origin.0 + end),
            sliding,
            sliding_goodput,
            total,
            goodput,
        }
    }

    /// Sums of the first 0, 1, 2, .. cells.
    fn sums(&self) -> Vec<(f64, f64)> {
        let whole = self.end.0.saturating_sub(self.origin.unwrap_or_default().0);
        let used = whole.div_ceil(self.width.max(1)).max(1);
        let used = usize::try_from(used).unwrap_or(CELLS);
        let mut sum = (0.0, 0.0);
        let mut sums = vec![sum];
        for cell in 0..used {
            let (counted, wasted) = self.cells.get(cell).copied().unwrap_or_default();
            sum = (sum.0 + counted, sum.1 + wasted);
            sums.push(sum);
        }
        sums
    }

    fn fill(&mut self, from: u64, to: u64, interval: &Interval) {
        let mut at = from;
        while at < to {
            let cell = usize::try_from(at / self.width).unwrap_or(usize::MAX);
            let until = ((at / self.width + 1) * self.width).min(to);
            if self.cells.len() <= cell {
                self.cells.resize(cell + 1, (0.0, 0.0));
            }
            let counted = (until - at) as f64 * interval.value;
            match interval.waste {
                true => self.cells[cell].1 += counted,
                false => self.cells[cell].0 += counted,
            }
            at = until;
        }
    }

    fn double(&mut self) {
        self.width *= 2;
        let pair = |pair: &[(f64, f64)]| {
            let add = |sum: (f64, f64), cell: &(f64, f64)| (sum.0 + cell.0, sum.1 + cell.1);
            pair.iter().fold((0.0, 0.0), add)
        };
        self.cells = self.cells.chunks(2).map(pair).collect();
    }

    fn cause(&mut self, cause: Cause, seconds: f64) {
        match self.causes.iter_mut().find(|(known, _)| *known == cause) {
            Some((_, sum)) => *sum += seconds,
            None => self.causes.push((cause, seconds)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ettr::totals;
    use proptest::prelude::*;

    fn interval(from: u64, to: u64, value: f64, waste: bool) -> Interval {
        Interval {
            from: Time(from),
            to: Time(to),
            value,
            cause: if waste {
                Cause::StepRepeated
            } else {
                Cause::Both
            },
            waste,
        }
    }

    /// Plain intervals one after the other, in microseconds, and which of them are lost later.
    fn run(parts: &[(u64, u8, bool)]) -> Vec<Interval> {
        let (mut at, mut all) = (5_000_000, Vec::new());
        for (length, value, lost) in parts {
            let to = at + length;
            let value = f64::from(*value) / 10.0;
            all.push(interval(at, to, value, false));
            if *lost {
                all.push(interval(at, to, value / 2.0, true));
            }
            at = to;
        }
        all
    }

    fn curve(intervals: &[Interval]) -> Curve {
        let mut curve = Curve::default();
        intervals.iter().for_each(|i| curve.add(i));
        curve
    }

    proptest! {
        #[test]
        fn the_last_point_is_the_whole_runs_figure_however_long_the_run(
            parts in prop::collection::vec((1_u64..4_000_000_000, 0_u8..=10, any::<bool>()), 1..60),
        ) {
            let intervals = run(&parts);
            let curve = curve(&intervals);
            prop_assert!(curve.cells.len() <= CELLS);
            let points = curve.points(100);
            prop_assert!(points.len() <= 100);
            let last = points.last().copied().unwrap_or(Point {
                at: Time(0), sliding: 0.0, sliding_goodput: 0.0, total: -1.0, goodput: -1.0,
            });
            let (ettr, goodput) = totals(&intervals);
            prop_assert!((last.total - ettr).abs() < 1e-6, "{last:?} {ettr}");
            prop_assert!((last.goodput - goodput).abs() < 1e-6, "{last:?} {goodput}");
            prop_assert!(points.windows(2).all(|w| w[0].at < w[1].at));
        }
    }

    #[test]
    fn a_fault_is_a_dip_where_it_was_and_five_minutes_later_it_is_forgotten() {
        let second = 1_000_000;
        let curve = curve(&[
            interval(0, 600 * second, 1.0, false),
            interval(600 * second, 630 * second, 0.0, false),
            interval(630 * second, 1_200 * second, 1.0, false),
        ]);
        let points = curve.points(1_200);
        let at = |s: usize| points[s - 1];
        assert_eq!(at(600).sliding, 1.0);
        assert!((at(630).sliding - 0.9).abs() < 1e-9, "{:?}", at(630));
        assert_eq!(at(931).sliding, 1.0);
        assert!((at(1_200).total - 0.975).abs() < 1e-9);
    }

    #[test]
    fn a_week_is_told_in_cells_of_minutes_and_every_second_of_a_cause_is_counted() {
        let week = run(&vec![(5_000_000, 10, false); 7 * 24 * 720]);
        let curve = curve(&week);
        assert_eq!(curve.resolution(), Duration::from_secs(512));
        let [(Cause::Both, seconds)] = curve.causes() else {
            unreachable!("{:?}", curve.causes());
        };
        assert!((seconds - 7.0 * 86_400.0).abs() < 1e-3, "{seconds}");
        assert_eq!(curve.points(600).len(), 600);
    }

    #[test]
    fn without_an_interval_there_is_nothing_to_show() {
        assert_eq!(Curve::default().points(10), []);
    }
}
