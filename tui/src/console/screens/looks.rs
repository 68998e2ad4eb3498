//! When something beside the status was looked at last.

/// Between two looks.
const EVERY_MS: u64 = 1_000;

/// Something that is looked at again and again while it is shown.
#[derive(Debug, Default)]
pub struct Looks {
    /// Unix ms.
    last: u64,
}

impl Looks {
    /// Whether it is time.
    pub fn due(&self, now: u64) -> bool {
        now.saturating_sub(self.last) >= EVERY_MS
    }

    /// It is looked at now.
    pub fn taken(&mut self, now: u64) {
        self.last = now;
    }

    /// Something else is wanted, as soon as can be.
    pub fn at_once(&mut self) {
        self.last = 0;
    }
}
