//! When something that grows is asked for again.

/// An answer that did not come by then is not waited for any more, in ms.
const LOST_MS: u64 = 10_000;
/// After an answer at least so many times as long as it took: who looks on shall not be what keeps the daemon busy.
const REST: u64 = 10;

/// What is asked for again and again.
#[derive(Debug, Default)]
pub struct Asks {
    /// Unix ms of the one under way.
    asked: Option<u64>,
    /// Unix ms of the next; none: there is none.
    next: Option<u64>,
    /// The first one was asked.
    begun: bool,
}

impl Asks {
    /// Whether to ask now.
    pub fn due(&self, now: u64) -> bool {
        match self.asked {
            Some(at) => now.saturating_sub(at) >= LOST_MS,
            None => !self.begun || self.next.is_some_and(|next| now >= next),
        }
    }

    /// It is asked for.
    pub fn taken(&mut self, now: u64) {
        (self.asked, self.begun) = (Some(now), true);
    }

    /// An answer came; the next is wanted so many ms later, or never.
    pub fn answered(&mut self, now: u64, again_ms: Option<u64>) {
        let took = self.asked.take().map_or(0, |at| now.saturating_sub(at));
        self.next = again_ms.map(|ms| now + ms.max(took * REST));
    }

    /// Something else is wanted, as soon as can be.
    pub fn anew(&mut self) {
        *self = Asks::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_is_waited_for_and_the_next_is_asked_for_in_time() {
        let mut asks = Asks::default();
        assert!(asks.due(5), "at once");
        asks.taken(5);
        assert!(!asks.due(9_000) && asks.due(10_005), "one that is lost");
        asks.answered(25, Some(1_000));
        assert!(!asks.due(1_024) && asks.due(1_025));
        asks.taken(2_000);
        asks.answered(2_500, Some(1_000));
        assert!(!asks.due(7_499) && asks.due(7_500), "a long answer");
        asks.taken(8_000);
        asks.answered(8_001, None);
        assert!(!asks.due(u64::MAX));
        asks.anew();
        assert!(asks.due(8_002));
    }
}
