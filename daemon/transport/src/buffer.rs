//! Page-aligned host memory that peers may read and fetches may fill.
#![allow(unsafe_code)]

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

use crate::digest::PartDigest;
use crate::error::BufferError;
use crate::loans::{Loans, Use};

/// Page-aligned, touched host memory.
///
/// Local accesses exclude each other by range (T-6): loans lend references, so they are refused
/// with [`BufferError::Busy`] while a conflicting loan, or a fetch of one of the bytes, goes on.
/// Parts of a fetch that have arrived are free again. **Remote reads are not excluded**: while
/// bytes are exposed, a peer may read what their owner is writing and get a mixture of old and
/// new. Verify digests.
pub struct Buffer {
    /// As an integer: the compiler must not assume who else accesses the bytes.
    address: usize,
    len: usize,
    loans: Mutex<Loans>,
}

/// Ends a loan also when the closure panics.
struct Loan<'a>(&'a Buffer, Range<usize>, fn(&mut Loans, &Range<usize>));

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.2(&mut self.0.loans(), &self.1);
    }
}

impl Buffer {
    /// Allocates `len` zeroed bytes and touches every page, so that no later access can fail or
    /// stall for want of memory.
    pub fn new(len: usize) -> Result<Arc<Buffer>, BufferError> {
        let mapped = mapped_len(len).ok_or(BufferError::BadLength { len: len as u64 })?;
        let no_memory = |e: rustix::io::Errno| BufferError::NoMemory {
            len: len as u64,
            reason: e.to_string(),
        };
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new private anonymous mapping at an address of the kernel's choice.
        let mapping =
            unsafe { mmap_anonymous(std::ptr::null_mut(), mapped, prot, MapFlags::PRIVATE) };
        // From here on it is unmapped when dropped.
        let buffer = Buffer {
            address: mapping.map_err(no_memory)?.expose_provenance(),
            len,
            loans: Mutex::default(),
        };
        populate(buffer.as_ptr(), mapped).map_err(no_memory)?;
        Ok(Arc::new(buffer))
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

    /// Copies `bytes` to `offset`. Refused while one of these bytes is lent or being fetched.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), BufferError> {
        let range = self.range(offset, bytes.len())?;
        self.with_range_mut(range, |target| target.copy_from_slice(bytes))
    }

    /// Copies from `offset` into `bytes`. Refused while one of these bytes is being written or
    /// fetched; those of a fetch's part are free once it has arrived.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), BufferError> {
        let range = self.range(offset, bytes.len())?;
        self.with_range(range, |source| bytes.copy_from_slice(source))
    }

    /// Lends all bytes for reading.
    pub fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> Result<R, BufferError> {
        self.with_range(0..self.len, read)
    }

    /// Lends all bytes for writing in place.
    pub fn with_bytes_mut<R>(&self, write: impl FnOnce(&mut [u8]) -> R) -> Result<R, BufferError> {
        self.with_range_mut(0..self.len, write)
    }

    /// Lends some bytes for reading.
    pub fn with_range<R>(
        &self,
        range: Range<usize>,
        read: impl FnOnce(&[u8]) -> R,
    ) -> Result<R, BufferError> {
        self.check(&range)?;
        self.loans().share(&range)?;
        Ok(self.read_shared(range, read))
    }

    /// Lends some bytes for writing in place.
    pub fn with_range_mut<R>(
        &self,
        range: Range<usize>,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, BufferError> {
        self.check(&range)?;
        self.loans().take(&range, Use::Write)?;
        let loan = Loan(self, range, Loans::give_back);
        let (start, len) = (loan.1.start, loan.1.len());
        // SAFETY: initialised bytes of the mapping, in bounds by `check`; the loan excludes every
        // other local access to them until it drops, after `write`.
        Ok(write(unsafe {
            std::slice::from_raw_parts_mut(self.as_ptr().add(start), len)
        }))
    }

    /// Lends all bytes for reading for as long as the returned value lives.
    pub fn lend(self: &Arc<Self>) -> Result<Lent, BufferError> {
        self.loans().share(&(0..self.len))?;
        Ok(Lent(Arc::clone(self)))
    }

    /// `range` is within bounds and shared already; the loan ends here.
    fn read_shared<R>(&self, range: Range<usize>, read: impl FnOnce(&[u8]) -> R) -> R {
        let loan = Loan(self, range, Loans::unshare);
        let (start, len) = (loan.1.start, loan.1.len());
        // SAFETY: initialised bytes of the mapping, which lives as long as `self`, in bounds; the
        // loan keeps writers and fetches away from them until it drops, after `read`.
        read(unsafe { std::slice::from_raw_parts(self.as_ptr().add(start), len) })
    }

    /// Copies the piece at `at` of a part to `offset`; a fetch's guard holds the range.
    pub(crate) fn fill(
        &self,
        offset: usize,
        piece: &[u8],
        (digest, at): (&mut PartDigest, usize),
    ) -> Result<(), BufferError> {
        self.range(offset, piece.len())?;
        // SAFETY: in bounds; the fetch's guard excludes every reference to these bytes, and its
        // pieces come one after the other. `piece` is UCX's memory.
        unsafe { digest.copy(at, piece, self.as_ptr().add(offset)) };
        Ok(())
    }

    fn loans(&self) -> MutexGuard<'_, Loans> {
        self.loans.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn range(&self, offset: usize, len: usize) -> Result<Range<usize>, BufferError> {
        let range = offset..offset.saturating_add(len);
        self.check(&range)?;
        Ok(range)
    }

    fn check(&self, range: &Range<usize>) -> Result<(), BufferError> {
        if range.start <= range.end && range.end <= self.len {
            return Ok(());
        }
        Err(BufferError::Bounds {
            offset: range.start as u64,
            len: range.len() as u64,
            buffer: self.len as u64,
        })
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

/// Makes every page of a new mapping be there before anybody depends on it; huge pages if the
/// system has them, for a version is read and written from end to end.
fn populate(at: *mut u8, mapped: usize) -> Result<(), rustix::io::Errno> {
    // SAFETY: advice for a whole mapping; it changes no byte. Without huge pages, small ones do.
    let _ = unsafe { madvise(at.cast(), mapped, Advice::LinuxHugepage) };
    // SAFETY: as before.
    match unsafe { madvise(at.cast(), mapped, Advice::LinuxPopulateWrite) } {
        // A kernel before 5.14.
        Err(rustix::io::Errno::INVAL) => {
            for page in (0..mapped).step_by(rustix::param::page_size()) {
                // SAFETY: within the mapping, which nobody else knows and which is zero.
                unsafe { at.add(page).write_volatile(0) };
            }
            Ok(())
        }
        done => done,
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

/// A loan of a whole buffer to a reader, see [`Buffer::lend`].
pub struct Lent(Arc<Buffer>);

impl Lent {
    /// The buffer lent: nobody in this process writes to it or fetches into it meanwhile.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.0
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.loans().unshare(&(0..self.0.len));
    }
}

impl std::fmt::Debug for Lent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Lent").field(&self.0).finish()
    }
}

/// Keeps loans away from the parts of a fetch that have not arrived. Held by the progress thread
/// as long as it may write, and by the caller until it has seen every part: bytes are free when
/// both are through with them.
pub(crate) struct FetchGuard {
    buffer: Arc<Buffer>,
    /// By part; an arrived part has given its range back.
    ranges: Mutex<Vec<Range<usize>>>,
}

/// Why a fetch's parts could not be taken.
pub(crate) enum FetchConflict {
    /// This part's bytes are being fetched already.
    Overlap(usize),
    Busy(BufferError),
}

impl FetchGuard {
    /// Takes the `ranges`, all within bounds, or none of them.
    pub fn new(
        buffer: &Arc<Buffer>,
        ranges: Vec<Range<usize>>,
    ) -> Result<FetchGuard, FetchConflict> {
        let mut loans = buffer.loans();
        for (part, range) in ranges.iter().enumerate() {
            let fetched = loans.exclusive_in(range) == Some(Use::Fetch);
            let Err(busy) = loans.take(range, Use::Fetch) else {
                continue;
            };
            ranges[..part]
                .iter()
                .for_each(|taken| loans.give_back(taken));
            return Err(match fetched {
                true => FetchConflict::Overlap(part),
                false => FetchConflict::Busy(busy),
            });
        }
        drop(loans);
        Ok(FetchGuard {
            buffer: Arc::clone(buffer),
            ranges: Mutex::new(ranges),
        })
    }

    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }

    /// Lends the bytes of a part that the progress thread will not write to any more, and frees
    /// them afterwards.
    pub fn arrived<R>(&self, part: usize, read: impl FnOnce(&[u8]) -> R) -> Option<R> {
        let range = {
            let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            let range = std::mem::take(ranges.get_mut(part)?);
            let mut loans = self.buffer.loans();
            loans.give_back(&range);
            // Cannot be refused: the range was this fetch's own, and the lock is still held.
            loans.share(&range).ok()?;
            range
        };
        Some(self.buffer.read_shared(range, read))
    }
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let ranges =
            std::mem::take(&mut *self.ranges.lock().unwrap_or_else(PoisonError::into_inner));
        let mut loans = self.buffer.loans();
        ranges.iter().for_each(|range| loans.give_back(range));
    }
}
