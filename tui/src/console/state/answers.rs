//! What was asked of the daemon and is not answered yet. Who leaves meanwhile hears no answer, and of several acts those
//! that were not asked for by then are not done.

/// Said instead of leaving; the next key leaves all the same.
const ONCE_MORE: &str = "an answer of the daemon is awaited; q once more leaves without it";

/// Acts that wait for their answers.
#[derive(Debug, Default)]
pub struct Awaited {
    acts: usize,
    /// It was said to whoever wanted to leave.
    said: bool,
}

impl Awaited {
    /// Another act was asked for.
    pub fn asked(&mut self) {
        self.acts += 1;
        self.said = false;
    }

    /// One of them was answered.
    pub fn answered(&mut self) {
        self.acts = self.acts.saturating_sub(1);
    }

    /// Whether there is one.
    pub fn is_any(&self) -> bool {
        self.acts > 0
    }

    /// What to say to whoever wants to leave, once; none: nothing is in the way.
    pub fn warn(&mut self) -> Option<&'static str> {
        let warns = self.is_any() && !self.said;
        self.said |= warns;
        warns.then_some(ONCE_MORE)
    }
}
