//! Whether a counter rises steadily: more than so much within a window, in more than one jump.
//!
//! ```text
//!  fires       ▁▂▃▄▅▆   every step within the window counts but its largest
//!  does not    ▁▁▁▁██   one jump, however high: it is its own largest
//! ```
//! Leaving the largest step out tells wear (errors that keep coming) from one burst, after which the
//! counter stands still again; a burst that is grave in itself has a finding of its own.
use crate::time::Time;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

/// When a counter counts as rising.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slope {
    /// By this much or more, the largest single step left out.
    pub rise: u64,
    /// Within this time.
    pub window: Duration,
}

impl Slope {
    /// `rise` within `minutes`.
    pub const fn per_minutes(rise: u64, minutes: u64) -> Self {
        Self {
            rise,
            window: Duration::from_secs(minutes * 60),
        }
    }
}

/// A counter rose as steeply as its slope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rise {
    /// By so much in all.
    pub by: u64,
    /// In so many steps.
    pub steps: usize,
    /// Within this time.
    pub within: Duration,
}

impl fmt::Display for Rise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { by, steps, within } = self;
        write!(
            f,
            "{by} more in {steps} steps within {:.0} s",
            within.as_secs_f64()
        )
    }
}

/// Follows one counter.
#[derive(Clone, Debug)]
pub struct Trend {
    slope: Slope,
    last: Option<u64>,
    /// The steps up within the window, oldest first.
    steps: VecDeque<(Time, u64)>,
    rising: bool,
}

impl Trend {
    /// Of a counter of which nothing is known.
    pub fn new(slope: Slope) -> Self {
        Self {
            slope,
            last: None,
            steps: VecDeque::new(),
            rising: false,
        }
    }

    /// Whether it rose as steeply as the slope when it was last looked at.
    pub fn rising(&self) -> bool {
        self.rising
    }

    /// Takes the counter at `now`. Says so when it begins to rise as steeply as the slope, and again
    /// only after it was flatter in between.
    pub fn add(&mut self, now: Time, counter: u64) -> Option<Rise> {
        // The first value is where it stood; a lower one means that it was reset.
        let before = self.last.replace(counter).unwrap_or(counter);
        if let Some(up) = counter.checked_sub(before).filter(|up| *up > 0) {
            self.steps.push_back((now, up));
        }
        let window = self.slope.window;
        while self
            .steps
            .front()
            .is_some_and(|(at, _)| now.since(*at) >= window)
        {
            self.steps.pop_front();
        }
        let ups = || self.steps.iter().map(|(_, up)| *up);
        let by = ups().fold(0, u64::saturating_add);
        let rising = by - ups().max().unwrap_or(0) >= self.slope.rise.max(1);
        let was = std::mem::replace(&mut self.rising, rising);
        let first = self.steps.front()?;
        (rising && !was).then(|| Rise {
            by,
            steps: self.steps.len(),
            within: now.since(first.0),
        })
    }
}
