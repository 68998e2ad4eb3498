//! Where a snapshot comes from and goes back to: the host's memory, or a device's through staging.

/// Memory that a snapshot is taken of.
pub trait SnapshotMemory: Sync {
    /// Its length in bytes.
    fn bytes(&self) -> usize;

    /// Copies `to.len()` bytes from `at` on; the error is a sentence.
    fn copy_to(&self, at: usize, to: &mut [u8]) -> Result<(), String>;
}

/// Memory that a snapshot is restored into.
pub trait RestoreMemory: Send {
    /// Its length in bytes.
    fn bytes(&self) -> usize;

    /// A part of it to write the image's bytes into, from `at` on and up to `most` bytes: the memory
    /// itself where the host can write there, else staging.
    fn part(&mut self, at: usize, most: usize) -> &mut [u8];

    /// The last [`Self::part`] is filled; the error is a sentence.
    fn filled(&mut self) -> Result<(), String>;
}

impl SnapshotMemory for &[u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn copy_to(&self, at: usize, to: &mut [u8]) -> Result<(), String> {
        let from = self.get(at..).and_then(|rest| rest.get(..to.len()));
        to.copy_from_slice(from.ok_or("it is shorter than the snapshot's part")?);
        Ok(())
    }
}

impl RestoreMemory for &mut [u8] {
    fn bytes(&self) -> usize {
        self.len()
    }

    fn part(&mut self, at: usize, most: usize) -> &mut [u8] {
        let at = at.min(self.len());
        let end = self.len().min(at.saturating_add(most));
        &mut self[at..end]
    }

    fn filled(&mut self) -> Result<(), String> {
        Ok(())
    }
}
