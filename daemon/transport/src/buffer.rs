//! Memory that peers may read and fetches may fill: this host's, or a device's.
#![allow(unsafe_code)]

mod damage;
mod served;

use std::fs::File;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use robust_device::{BLOCK_BYTES, Memory, Staging};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::digest::PartDigest;
use crate::error::BufferError;
use crate::loans::{Loans, Use};
use crate::mapping::Mapping;
use crate::outside::Outside;

pub(crate) use self::served::Served;

/// Bytes in page-aligned, touched host memory, or in a device's.
///
/// One interface for both: [`Buffer::read_at`], [`Buffer::write_at`], [`Buffer::each`] and
/// [`Buffer::copy_to`] move bytes wherever they lie, those of a device through its pinned staging.
/// What lends references is for host memory only and refused with [`BufferError::OnDevice`].
///
/// Local accesses exclude each other by range (T-6): loans lend references, so they are refused
/// with [`BufferError::Busy`] while a conflicting loan, or a fetch of one of the bytes, goes on.
/// Parts of a fetch that have arrived are free again. Bytes that are on their way to a peer are lent
/// to it as to any reader here (`Served`), and a peer that asks for bytes while they are written is
/// refused: two threads of one process never have a `&mut` and a look at the same bytes. Another process of
/// this machine reads them from its own mapping, each byte once and without a reference (`Outside`). **Bytes that are exposed may still change between two of its pieces**: who writes
/// there before the region is withdrawn has readers with a mixture of old and new. Verify digests.
pub struct Buffer {
    /// Never used for another one.
    id: u64,
    place: Place,
    len: usize,
    loans: Mutex<Loans>,
}

/// Where the bytes are.
enum Place {
    Host(Mapping),
    Device(OnDevice),
}

/// A buffer's part of a device.
#[derive(Clone)]
pub(crate) struct OnDevice {
    pub memory: Memory,
    pub staging: Arc<Staging>,
}

/// Ends a loan also when the closure panics.
struct Loan<'a>(&'a Buffer, Range<usize>, fn(&mut Loans, &Range<usize>));

impl Loan<'_> {
    /// Shows the bytes of a shared loan; the buffer's begin at `start`, on the host.
    fn read<R>(&self, start: *const u8, read: impl FnOnce(&[u8]) -> R) -> R {
        // SAFETY: initialised bytes of the mapping, which lives as long as the buffer, in bounds;
        // the loan keeps writers and fetches away from them until it drops, after `read`.
        read(unsafe { std::slice::from_raw_parts(start.add(self.1.start), self.1.len()) })
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        self.2(&mut self.0.loans(), &self.1);
    }
}

impl Buffer {
    /// Allocates `len` zeroed bytes and touches every page, so that no later access can fail or
    /// stall for want of memory.
    pub fn new(len: usize) -> Result<Arc<Buffer>, BufferError> {
        let mapping = Mapping::new(len)?;
        Ok(Self::of(Place::Host(mapping), len))
    }

    /// The bytes of a file in memory (a tmpfs) from `offset` on, a multiple of the page size, for
    /// programs that read the file. The file grows as needed, and what it has there stays.
    pub fn in_file(file: &File, offset: usize, len: usize) -> Result<Arc<Buffer>, BufferError> {
        let mapping = Mapping::of_file(file, offset, len)?;
        Ok(Self::of(Place::Host(mapping), len))
    }

    /// Allocates `len` zeroed bytes on the device of `staging`, which they pass through on their
    /// way to others and back.
    pub fn on_device(staging: &Arc<Staging>, len: usize) -> Result<Arc<Buffer>, BufferError> {
        if len == 0 {
            return Err(BufferError::BadLength { len: 0 });
        }
        let memory = Memory::new(staging.device(), len)?;
        Ok(Self::over(staging, memory))
    }

    /// Device memory that is there already: a tensor's, by [`Memory::borrowed`]. Of at least one
    /// byte, and of the staging's device.
    pub fn over(staging: &Arc<Staging>, memory: Memory) -> Arc<Buffer> {
        let (len, staging) = (memory.len(), Arc::clone(staging));
        Self::of(Place::Device(OnDevice { memory, staging }), len)
    }

    fn of(place: Place, len: usize) -> Arc<Buffer> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Arc::new(Buffer {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            place,
            len,
            loans: Mutex::default(),
        })
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
    pub fn as_ptr(&self) -> Result<*mut u8, BufferError> {
        match &self.place {
            Place::Host(mapping) => Ok(mapping.as_ptr()),
            Place::Device(_) => Err(BufferError::OnDevice),
        }
    }

    /// Its number among all buffers of this process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// What other processes of this machine can be shown, and where in it the bytes begin; none for a
    /// device's.
    pub(crate) fn shown(&self) -> Option<(BorrowedFd<'_>, u64)> {
        match &self.place {
            Place::Host(mapping) => Some(mapping.shown()),
            Place::Device(_) => None,
        }
    }

    /// The device's side of it, if it is on one.
    pub fn device_memory(&self) -> Option<&Memory> {
        self.device().map(|device| &device.memory)
    }

    pub(crate) fn device(&self) -> Option<&OnDevice> {
        match &self.place {
            Place::Host(_) => None,
            Place::Device(device) => Some(device),
        }
    }

    /// Copies `bytes` to `offset`. Refused while one of these bytes is lent or being fetched.
    pub fn write_at(&self, offset: usize, bytes: &[u8]) -> Result<(), BufferError> {
        let range = self.range(offset, bytes.len())?;
        let Some(OnDevice { memory, staging }) = self.device() else {
            return self.with_range_mut(range, |target| target.copy_from_slice(bytes));
        };
        let _loan = self.take(range)?;
        Ok(staging.write(memory, offset, bytes)?)
    }

    /// The same, of bytes that are in the cache and will not be read there again soon; answers with their
    /// digest, XXH3-64 (seed 0), which is taken on the way.
    pub fn write_digested(&self, offset: usize, bytes: &[u8]) -> Result<u64, BufferError> {
        if self.device().is_some() {
            self.write_at(offset, bytes)?;
            return Ok(xxh3_64(bytes));
        }
        let range = self.range(offset, bytes.len())?;
        let mut digest = PartDigest::new(bytes.len());
        // SAFETY: the target is as long as `bytes`, and lent for writing to this closure alone.
        self.with_range_mut(range, |to| unsafe {
            digest.copy(0, bytes.into(), to.as_mut_ptr())
        })?;
        Ok(digest.finished().unwrap_or_else(|| xxh3_64(bytes)))
    }

    /// Copies from `offset` into `bytes`. Refused while one of these bytes is being written or
    /// fetched; those of a fetch's part are free once it has arrived.
    pub fn read_at(&self, offset: usize, bytes: &mut [u8]) -> Result<(), BufferError> {
        let range = self.range(offset, bytes.len())?;
        self.each(range, |at, block| {
            bytes[at..at + block.len()].copy_from_slice(block);
        })
    }

    /// Shows the bytes of a range in order, with their place in it: all at once, or, from a device,
    /// block by block, and then nothing else may be done meanwhile with a buffer on a device. Refused
    /// as [`Buffer::read_at`] is.
    pub fn each(
        &self,
        range: Range<usize>,
        mut show: impl FnMut(usize, &[u8]),
    ) -> Result<(), BufferError> {
        let Some(OnDevice { memory, staging }) = self.device() else {
            return self.with_range(range, |bytes| show(0, bytes));
        };
        let loan = self.share(range)?;
        Ok(staging.each(memory, loan.1.clone(), show)?)
    }

    /// XXH3-64 (seed 0) of a range.
    pub fn digest(&self, range: Range<usize>) -> Result<u64, BufferError> {
        let mut digest = Xxh3Default::new();
        self.each(range, |_, bytes| digest.update(bytes))?;
        Ok(digest.digest())
    }

    /// BLAKE3 of a range: who has other bytes with the same one has found them by no way that is known.
    pub fn blake3(&self, range: Range<usize>) -> Result<[u8; 32], BufferError> {
        let mut hasher = blake3::Hasher::new();
        self.each(range, |_, bytes| {
            hasher.update(bytes);
        })?;
        Ok(*hasher.finalize().as_bytes())
    }

    /// Copies a range to the same place in another buffer; answers with the digest of what was
    /// copied.
    pub fn copy_to(&self, range: Range<usize>, to: &Buffer) -> Result<u64, BufferError> {
        if self.device().is_some() && to.device().is_some() {
            return self.copy_between_devices(range, to);
        }
        let (start, mut digest, mut written) = (range.start, Xxh3Default::new(), Ok(()));
        self.each(range, |at, bytes| {
            if written.is_ok() {
                digest.update(bytes);
                written = to.write_at(start + at, bytes);
            }
        })?;
        written?;
        Ok(digest.digest())
    }

    /// Through plain memory: whoever shows a block of staging while he waits for another one may
    /// wait for himself.
    fn copy_between_devices(&self, range: Range<usize>, to: &Buffer) -> Result<u64, BufferError> {
        let mut digest = Xxh3Default::new();
        let mut plain = vec![0; BLOCK_BYTES.min(range.len())];
        for at in range.clone().step_by(BLOCK_BYTES) {
            let part = &mut plain[..BLOCK_BYTES.min(range.end - at)];
            self.read_at(at, part)?;
            digest.update(part);
            to.write_at(at, part)?;
        }
        Ok(digest.digest())
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
        let start = self.as_ptr()?;
        let loan = self.share(range)?;
        Ok(loan.read(start, read))
    }

    /// Lends some bytes for writing in place.
    pub fn with_range_mut<R>(
        &self,
        range: Range<usize>,
        write: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, BufferError> {
        let start = self.as_ptr()?;
        let loan = self.take(range)?;
        // SAFETY: initialised bytes of the mapping, in bounds by `take`; the loan excludes every
        // other local access to them until it drops, after `write`.
        Ok(write(unsafe {
            std::slice::from_raw_parts_mut(start.add(loan.1.start), loan.1.len())
        }))
    }

    /// Lends all bytes for reading for as long as the returned value lives.
    pub fn lend(self: &Arc<Self>) -> Result<Lent, BufferError> {
        self.loans().share(&(0..self.len))?;
        Ok(Lent(Arc::clone(self)))
    }

    fn share(&self, range: Range<usize>) -> Result<Loan<'_>, BufferError> {
        self.check(&range)?;
        self.loans().share(&range)?;
        Ok(Loan(self, range, Loans::unshare))
    }

    fn take(&self, range: Range<usize>) -> Result<Loan<'_>, BufferError> {
        self.check(&range)?;
        self.loans().take(&range, Use::Write)?;
        Ok(Loan(self, range, Loans::give_back))
    }

    /// Copies the piece at `at` of a part to `offset`; a fetch's guard holds the range.
    pub(crate) fn fill(
        &self,
        offset: usize,
        piece: Outside<'_>,
        (digest, at): (&mut PartDigest, usize),
    ) -> Result<(), BufferError> {
        self.range(offset, piece.len())?;
        let start = self.as_ptr()?;
        // SAFETY: in bounds; the fetch's guard excludes every reference to these bytes, and its
        // pieces come one after the other. `piece` is other memory: UCX's, a record's, another process's.
        unsafe { digest.copy(at, piece, start.add(offset)) };
        Ok(())
    }

    /// Shows a range of host memory without a loan: a fuzz target's look, which has one thread.
    #[cfg(fuzzing)]
    pub(crate) fn show_unlent<R>(&self, range: Range<usize>, show: impl FnOnce(&[u8]) -> R) -> R {
        assert!(
            range.start <= range.end && range.end <= self.len,
            "a read beyond its region was not refused before"
        );
        let start = self.as_ptr().unwrap_or(std::ptr::null_mut());
        // The engine sends a device's bytes from blocks.
        assert!(!start.is_null(), "not host memory");
        // SAFETY: initialised bytes in bounds, mapped as long as the buffer is.
        show(unsafe { std::slice::from_raw_parts(start.add(range.start), range.len()) })
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

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("len", &self.len)
            .field("device", &self.device_memory())
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
    pub fn arrived<R>(&self, part: usize, look: impl FnOnce(PartBytes<'_>) -> R) -> Option<R> {
        let range = {
            let mut ranges = self.ranges.lock().unwrap_or_else(PoisonError::into_inner);
            let range = std::mem::take(ranges.get_mut(part)?);
            let mut loans = self.buffer.loans();
            loans.give_back(&range);
            // Cannot be refused: the range was this fetch's own, and the lock is still held.
            loans.share(&range).ok()?;
            range
        };
        let loan = Loan(&self.buffer, range, Loans::unshare);
        Some(match self.buffer.as_ptr() {
            Ok(start) => loan.read(start, |bytes| look(PartBytes::Here(bytes))),
            Err(_) => look(PartBytes::On(&self.buffer, loan.1.clone())),
        })
    }
}

/// The bytes of a part that has arrived.
#[derive(Clone)]
pub(crate) enum PartBytes<'a> {
    Here(&'a [u8]),
    /// On a device.
    On(&'a Buffer, Range<usize>),
}

impl Drop for FetchGuard {
    fn drop(&mut self) {
        let ranges =
            std::mem::take(&mut *self.ranges.lock().unwrap_or_else(PoisonError::into_inner));
        let mut loans = self.buffer.loans();
        ranges.iter().for_each(|range| loans.give_back(range));
    }
}
