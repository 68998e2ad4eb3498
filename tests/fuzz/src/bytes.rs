//! Decisions out of bytes. Where they end, all that follows is 0, so a shorter input is a simpler one.

/// The bytes that are left.
pub struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    /// Takes decisions from these.
    pub fn new(bytes: &'a [u8]) -> Bytes<'a> {
        Bytes(bytes)
    }

    /// Whether none is left.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    /// One of two.
    pub fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    /// One of so many, which are fewer than 256.
    pub fn below(&mut self, count: usize) -> usize {
        usize::from(self.byte()) % count.max(1)
    }

    /// Two bytes.
    pub fn short(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// Eight bytes.
    pub fn long(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// A number that is small as a rule, and now and then any: both ends of what a u64 can be are tried.
    pub fn number(&mut self) -> u64 {
        match self.byte() {
            byte @ 0..=239 => byte.into(),
            240..=243 => self.short().into(),
            244..=247 => self.long(),
            byte => u64::MAX - u64::from(byte - 248),
        }
    }

    /// One of these; none where there are none.
    pub fn one_of<'b, T>(&mut self, all: &'b [T]) -> Option<&'b T> {
        let at = self.below(all.len());
        all.get(at)
    }

    /// So many of them at most.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All that are left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}
