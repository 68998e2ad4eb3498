//! Page-aligned host memory that peers may read and fetches may fill.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

use crate::error::BufferError;

/// Page-aligned, touched host memory.
///
/// Local accesses exclude each other (T-6): [`Buffer::with_bytes`] and [`Buffer::with_bytes_mut`]
/// lend references, so they are refused with [`BufferError::Busy`] while a fetch into the buffer
/// or a conflicting loan goes on; [`Buffer::read_at`] is allowed during a fetch, for parts that
/// have arrived. **Remote reads are not excluded**: while a buffer is exposed, a peer may read
/// what its owner is writing and get a mixture of old and new bytes. Verify digests.
pub struct Buffer {
    /// As an integer: the compiler must not assume who else accesses the bytes.
    address: usize,
    len: usize,
    uses: Mutex<Uses>,
}

#[derive(Default)]
struct Uses {
    readers: u32,
    writer: bool,
    fetches: u32,
}

/// Keeps loans away from a buffer while UCX writes into it.
pub(crate) struct FetchGuard(Arc<Buffer>);

/// Ends a loan also when the closure panics.
struct Loan<'a>(&'a Buffer, fn(&mut Uses));

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.1(&mut self.0.uses());
    }
}

impl FetchGuard {
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.0
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        self.0.uses().fetches -= 1;
    }
}

impl Buffer {
    /// Allocates `len` zeroed bytes and touches every page, so that no later access can fail or
    /// stall for want of memory.
    pub fn new(len: usize) -> Result<Arc<Buffer>, BufferError> {
        let mapped = mapped_len(len).ok_or(BufferError::BadLength { len: len as u64 })?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // Populated: every page is there before anybody depends on it.
        let flags = MapFlags::PRIVATE | MapFlags::POPULATE;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice.
        let mapping = unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, prot, flags) };
        let address = mapping
            .map_err(|e| BufferError::NoMemory {
                len: len as u64,
                reason: e.to_string(),
            })?
            .expose_provenance();
        Ok(Arc::new(Buffer {
            address,
            len,
            uses: Mutex::default(),
        }))
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: a buffer has at least one byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes are, for libraries that copy by address. The loans' rules are then the
    /// caller's to keep.
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Copies `bytes` to `offset`. Refused while the buffer is lent or fetched into.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), BufferError> {
        self.check(offset, bytes.len())?;
        let uses = self.uses();
        uses.check_writable()?;
        // SAFETY: in bounds by `check`; `uses` is locked and shows no loan and no fetch, so
        // nothing in this process accesses the range; `bytes` cannot overlap what is not lent.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr().add(offset), bytes.len());
        }
        drop(uses);
        Ok(())
    }

    /// Copies from `offset` into `bytes`. Allowed during a fetch: parts reported as done are
    /// whole, others may be mixtures.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), BufferError> {
        self.check(offset, bytes.len())?;
        let uses = self.uses();
        if uses.writer {
            return Err(BufferError::Busy {
                by: "a mutable loan",
            });
        }
        // SAFETY: in bounds by `check`; no mutable loan; `bytes` is the caller's own memory. A
        // running fetch writes from C, outside of Rust's references.
        unsafe {
            let from = self.as_ptr().add(offset);
            std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), bytes.len());
        }
        drop(uses);
        Ok(())
    }

    /// Lends all bytes for reading.
    pub fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R, BufferError> {
        {
            let mut uses = self.uses();
            uses.check_readable()?;
            uses.readers += 1;
        }
        let _loan = Loan(self, |uses| uses.readers -= 1);
        // SAFETY: the mapping is `len` initialised bytes and lives as long as `self`; the loan
        // keeps writers and fetches away.
        Ok(read(unsafe {
            std::slice::from_raw_parts(self.as_ptr(), self.len)
        }))
    }

    /// Lends all bytes for writing in place.
    pub fn with_bytes_mut<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R, BufferError> {
        {
            let mut uses = self.uses();
            uses.check_writable()?;
            uses.writer = true;
        }
        let _loan = Loan(self, |uses| uses.writer = false);
        // SAFETY: as in `with_bytes`; the mutable loan excludes every other local access.
        Ok(write(unsafe {
            std::slice::from_raw_parts_mut(self.as_ptr(), self.len)
        }))
    }

    /// Marks the buffer as being fetched into. Several fetches may share it (disjoint parts).
    pub(crate) fn begin_fetch(self: &Arc<Self>) -> Result<FetchGuard, BufferError> {
        let mut uses = self.uses();
        if uses.writer || uses.readers > 0 {
            return Err(BufferError::Busy {
                by: "a loan to its owner",
            });
        }
        uses.fetches += 1;
        drop(uses);
        Ok(FetchGuard(Arc::clone(self)))
    }

    /// Copies bytes that arrived for a fetch; its guard keeps loans away.
    pub(crate) fn fill(&self, offset: usize, bytes: &[u8]) -> Result<(), BufferError> {
        self.check(offset, bytes.len())?;
        // SAFETY: in bounds by `check`. The fetch's guard excludes references lent by
        // `with_bytes`; `read_at` copies by address and may see a mixture, as documented.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.as_ptr().add(offset), bytes.len());
        }
        Ok(())
    }

    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self, offset: usize, len: usize) -> Result<(), BufferError> {
        match offset.checked_add(len) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(BufferError::Bounds {
                offset: offset as u64,
                len: len as u64,
                buffer: self.len as u64,
            }),
        }
    }
}

impl Uses {
    fn check_readable(&self) -> Result<(), BufferError> {
        if self.writer {
            return Err(BufferError::Busy {
                by: "a mutable loan",
            });
        }
        if self.fetches > 0 {
            return Err(BufferError::Busy {
                by: "a fetch into it",
            });
        }
        Ok(())
    }

    fn check_writable(&self) -> Result<(), BufferError> {
        self.check_readable()?;
        if self.readers > 0 {
            return Err(BufferError::Busy {
                by: "a loan to a reader",
            });
        }
        Ok(())
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(mapped) = mapped_len(self.len) {
            // SAFETY: mapped by `new` with this length; the last reference is gone.
            let _ = unsafe { munmap(self.as_ptr().cast(), mapped) };
        }
    }
}

/// Whole pages for `len` bytes; none if that is no possible allocation.
fn mapped_len(len: usize) -> Option<usize> {
    let mapped = len.checked_next_multiple_of(rustix::param::page_size())?;
    (mapped > 0 && isize::try_from(mapped).is_ok()).then_some(mapped)
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}
