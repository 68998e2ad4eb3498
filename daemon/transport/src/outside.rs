//! Bytes that others may write while they are read.
#![allow(unsafe_code)]

use std::marker::PhantomData;

/// Bytes of a length that is known, which somebody outside of this program may write at any time: there is
/// never a reference to them, for two looks at one of them may find two values. Each is read once, into
/// memory of this process's own, and what is looked at is there.
#[derive(Clone, Copy)]
pub(crate) struct Outside<'a> {
    start: *const u8,
    len: usize,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Outside<'a> {
    /// # Safety
    /// There are as many bytes at `start` as long as `'a`.
    pub unsafe fn new(start: *const u8, len: usize) -> Outside<'a> {
        let of = PhantomData;
        Outside { start, len, of }
    }

    /// How many.
    pub fn len(self) -> usize {
        self.len
    }

    /// Where they begin.
    pub fn start(self) -> *const u8 {
        self.start
    }

    /// The first `at`, and the others.
    pub fn split_at(self, at: usize) -> (Outside<'a>, Outside<'a>) {
        assert!(at <= self.len, "a split beyond the end");
        let behind = Outside {
            start: self.start.wrapping_add(at),
            len: self.len - at,
            of: self.of,
        };
        (Outside { len: at, ..self }, behind)
    }

    /// Copies them all.
    ///
    /// # Safety
    /// `to` is writable for as many bytes, which are not these, and nobody else accesses it meanwhile.
    #[cfg(target_arch = "x86_64")]
    pub unsafe fn copy_to(self, to: *mut u8) {
        // To the compiler this is no access that could race: the processor copies, in its own order.
        // SAFETY: the caller's promise, and the constructor's; the direction flag is clear, as it always is.
        unsafe {
            std::arch::asm!(
                "rep movsb",
                inout("rcx") self.len => _,
                inout("rdi") to => _,
                inout("rsi") self.start => _,
                options(nostack, preserves_flags),
            );
        }
    }

    /// Copies them all.
    ///
    /// # Safety
    /// `to` is writable for as many bytes, which are not these, and nobody else accesses it meanwhile.
    #[cfg(not(target_arch = "x86_64"))]
    pub unsafe fn copy_to(self, to: *mut u8) {
        for at in 0..self.len {
            // SAFETY: the caller's promise, and the constructor's. Volatile: read once, as they are then.
            unsafe { to.add(at).write(self.start.add(at).read_volatile()) };
        }
    }
}

impl<'a> From<&'a [u8]> for Outside<'a> {
    fn from(bytes: &'a [u8]) -> Outside<'a> {
        // SAFETY: it lives as long.
        unsafe { Outside::new(bytes.as_ptr(), bytes.len()) }
    }
}
