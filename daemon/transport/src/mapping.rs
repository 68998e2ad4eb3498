//! Page-aligned host memory, all of it there before anybody depends on it.
#![allow(unsafe_code)]

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::error::BufferError;
use crate::huge::{Collapsing, HUGE};

/// A mapping of memory that can be shown to other processes; unmapped when dropped.
pub(crate) struct Mapping {
    /// As an integer: the compiler must not assume who else accesses the bytes.
    address: usize,
    mapped: usize,
    /// What it is a mapping of, for readers.
    shown: OwnedFd,
    /// Where in that it begins.
    offset: u64,
    huge: Option<Collapsing>,
}

impl Mapping {
    /// Maps at least `len` zeroed bytes and touches every page, so that no later access can fail or
    /// stall for want of memory. Who is shown them can neither write to them nor make them fewer, and
    /// this process cannot make them fewer either.
    pub fn new(len: usize) -> Result<Mapping, BufferError> {
        let mapped = mapped_len(len).ok_or(BufferError::BadLength { len: len as u64 })?;
        let no_memory = no_memory(len);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let memory = rustix::fs::memfd_create("robust-buffer", flags).map_err(&no_memory)?;
        rustix::fs::ftruncate(&memory, mapped as u64).map_err(&no_memory)?;
        let mapping = Mapping::map(memory.as_fd(), (0, mapped)).map_err(&no_memory)?;
        let mut mapping = Mapping {
            address: mapping,
            mapped,
            shown: memory,
            offset: 0,
            huge: None,
        };
        mapping.populate().map_err(&no_memory)?;
        // SAFETY: it is dropped before the mapping is.
        mapping.huge = unsafe { Collapsing::begin(mapping.address, mapped) };
        // The mapping above stays writable.
        let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
        rustix::fs::fcntl_add_seals(&mapping.shown, seals).map_err(&no_memory)?;
        Ok(mapping)
    }

    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size, and gives the file the
    /// memory for them first, so that no later access can fail for want of it. What the file has there
    /// stays; who else maps it sees what is written.
    pub fn of_file(file: &File, offset: usize, len: usize) -> Result<Mapping, BufferError> {
        let bad = BufferError::BadLength { len: len as u64 };
        let aligned = offset.is_multiple_of(rustix::param::page_size());
        let mapped = mapped_len(len).filter(|_| aligned).ok_or(bad)?;
        let no_memory = no_memory(len);
        let (start, bytes) = (offset as u64, len as u64);
        rustix::fs::fallocate(file, FallocateFlags::empty(), start, bytes).map_err(&no_memory)?;
        // Readers get one that cannot be written to.
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let shown = rustix::fs::open(path, flags, Mode::empty()).map_err(&no_memory)?;
        // Its pages exist; whoever may truncate the file may do anything to this process's folder.
        let mapping = Mapping::map(file.as_fd(), (start, mapped)).map_err(&no_memory)?;
        let mapping = Mapping {
            address: mapping,
            mapped,
            shown,
            offset: start,
            // Whose program maps the file decides about its pages.
            huge: None,
        };
        let at = mapping.as_ptr();
        // SAFETY: advice for a whole mapping; it changes no byte. Older kernels fault pages in later.
        let _ = unsafe { madvise(at.cast(), mapping.mapped, Advice::LinuxPopulateWrite) };
        Ok(mapping)
    }

    /// `len` is whole pages.
    fn map(of: BorrowedFd<'_>, (offset, len): (u64, usize)) -> Result<usize, Errno> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        if len < HUGE {
            let anywhere = std::ptr::null_mut();
            // SAFETY: a new shared mapping at an address of the kernel's choice.
            let mapping = unsafe { mmap(anywhere, len, prot, MapFlags::SHARED, of, offset) };
            return Ok(mapping?.expose_provenance());
        }
        // Huge pages begin at their multiples, so room is taken for one more, and what is too much given
        // back.
        let room = len.checked_add(HUGE).ok_or(Errno::NOMEM)?;
        let (none, private) = (ProtFlags::empty(), MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a new mapping at an address of the kernel's choice, which nobody can access.
        let taken = unsafe { mmap_anonymous(std::ptr::null_mut(), room, none, private) }?;
        let taken = taken.expose_provenance();
        let start = taken.next_multiple_of(HUGE);
        let at = |address| std::ptr::with_exposed_provenance_mut(address);
        let fixed = MapFlags::SHARED | MapFlags::FIXED;
        // SAFETY: within the room that was taken just now, which nobody else knows.
        let mapping = unsafe { mmap(at(start), len, prot, fixed, of, offset) };
        let (before, end) = (start - taken, start + len);
        let after = HUGE - before;
        // SAFETY: the parts of the room outside of the mapping.
        unsafe {
            if before > 0 {
                let _ = munmap(at(taken), before);
            }
            if after > 0 {
                let _ = munmap(at(end), after);
            }
        }
        if mapping.is_err() {
            // SAFETY: what is left of the room.
            let _ = unsafe { munmap(at(start), len) };
        }
        Ok(mapping?.expose_provenance())
    }

    /// What can be shown to other processes of this machine, and where in it the bytes begin.
    pub fn shown(&self) -> (BorrowedFd<'_>, u64) {
        (self.shown.as_fd(), self.offset)
    }

    /// Where it begins.
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Makes every page be there; huge pages if the system has them, for a version is read and
    /// written from end to end.
    fn populate(&self) -> Result<(), Errno> {
        let at = self.as_ptr();
        // SAFETY: advice for a whole mapping; it changes no byte. Without huge pages, small ones do.
        let _ = unsafe { madvise(at.cast(), self.mapped, Advice::LinuxHugepage) };
        // SAFETY: as before.
        match unsafe { madvise(at.cast(), self.mapped, Advice::LinuxPopulateWrite) } {
            // A kernel before 5.14.
            Err(Errno::INVAL) => {
                for page in (0..self.mapped).step_by(rustix::param::page_size()) {
                    // SAFETY: within the mapping, which nobody else knows and which is zero.
                    unsafe { at.add(page).write_volatile(0) };
                }
                Ok(())
            }
            done => done,
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.huge.take());
        // SAFETY: mapped by a constructor with this length; the last reference is gone.
        let _ = unsafe { munmap(self.as_ptr().cast(), self.mapped) };
    }
}

/// Whole pages for `len` bytes; none if that is no possible allocation.
fn mapped_len(len: usize) -> Option<usize> {
    let mapped = len.checked_next_multiple_of(rustix::param::page_size())?;
    (mapped > 0 && isize::try_from(mapped).is_ok()).then_some(mapped)
}

fn no_memory(len: usize) -> impl Fn(Errno) -> BufferError {
    move |errno| BufferError::NoMemory {
        len: len as u64,
        reason: errno.to_string(),
    }
}
