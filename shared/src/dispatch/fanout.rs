//! The four ways in which one call becomes several.
use super::{DispatchError, Shape};
use crate::batch::BatchError;
use std::fmt;

/// How a call fans out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dispatch {
    /// Every rank gets the same.
    OneToAll,
    /// The driver gives one argument per rank.
    AllToAll,
    /// The samples are split over the data-parallel ranks.
    SplitDp,
    /// Only rank 0 is called.
    RankZero,
}

impl fmt::Display for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Dispatch::OneToAll => "one to all",
            Dispatch::AllToAll => "all to all",
            Dispatch::SplitDp => "split",
            Dispatch::RankZero => "rank zero",
        })
    }
}

/// One argument per rank called, and how the samples were cut.
#[derive(Debug)]
pub struct Scattered<A> {
    /// Rank and argument, in rank order.
    pub sends: Vec<(u32, A)>,
    /// For calls that are split.
    pub shape: Shape,
}

/// Turns the driver's argument into the ranks'.
pub trait FanOut<W, A> {
    /// Which of the four it is.
    const DISPATCH: Dispatch;

    /// One argument for each rank that is called; `call` is for messages.
    fn scatter(call: &'static str, whole: W, ranks: u32) -> Result<Scattered<A>, DispatchError>;
}

/// Arguments that hold samples.
pub trait Split: Sized {
    /// Equal contiguous runs of the samples, `parts` of them, after padding; and the samples per run
    /// and the padding.
    fn split(self, parts: usize) -> Result<(Vec<Self>, Shape), BatchError>;
}

/// Every rank gets the same.
#[derive(Debug)]
pub enum OneToAll {}

/// The driver gives one argument per rank.
#[derive(Debug)]
pub enum AllToAll {}

/// The samples are split over the data-parallel ranks.
#[derive(Debug)]
pub enum SplitDp {}

/// Only rank 0 is called.
#[derive(Debug)]
pub enum RankZero {}

impl<A: Clone> FanOut<A, A> for OneToAll {
    const DISPATCH: Dispatch = Dispatch::OneToAll;

    fn scatter(_: &'static str, whole: A, ranks: u32) -> Result<Scattered<A>, DispatchError> {
        let sends = (0..ranks).map(|rank| (rank, whole.clone())).collect();
        Ok(Scattered {
            sends,
            shape: Shape::default(),
        })
    }
}

impl<A> FanOut<Vec<A>, A> for AllToAll {
    const DISPATCH: Dispatch = Dispatch::AllToAll;

    fn scatter(
        call: &'static str,
        whole: Vec<A>,
        ranks: u32,
    ) -> Result<Scattered<A>, DispatchError> {
        if whole.len() as u64 != u64::from(ranks) {
            return Err(DispatchError::Arguments {
                call,
                got: whole.len(),
                ranks,
            });
        }
        Ok(Scattered {
            sends: (0..ranks).zip(whole).collect(),
            shape: Shape::default(),
        })
    }
}

impl<A: Split> FanOut<A, A> for SplitDp {
    const DISPATCH: Dispatch = Dispatch::SplitDp;

    fn scatter(call: &'static str, whole: A, ranks: u32) -> Result<Scattered<A>, DispatchError> {
        let parts = usize::try_from(ranks).unwrap_or(usize::MAX);
        let (runs, shape) = whole
            .split(parts)
            .map_err(|source| DispatchError::Batch { call, source })?;
        Ok(Scattered {
            sends: (0..ranks).zip(runs).collect(),
            shape,
        })
    }
}

impl<A> FanOut<A, A> for RankZero {
    const DISPATCH: Dispatch = Dispatch::RankZero;

    fn scatter(_: &'static str, whole: A, _: u32) -> Result<Scattered<A>, DispatchError> {
        Ok(Scattered {
            sends: vec![(0, whole)],
            shape: Shape::default(),
        })
    }
}
