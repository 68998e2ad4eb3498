//! Page-aligned host memory, all of it there before anybody depends on it.
#![allow(unsafe_code)]

use std::fs::File;

use rustix::fs::FallocateFlags;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};

use crate::error::BufferError;

/// A mapping, private or of a file; unmapped when dropped.
pub(crate) struct Mapping {
    /// As an integer: the compiler must not assume who else accesses the bytes.
    address: usize,
    mapped: usize,
}

impl Mapping {
    /// Maps at least `len` zeroed bytes and touches every page, so that no later access can fail or
    /// stall for want of memory.
    pub fn new(len: usize) -> Result<Mapping, BufferError> {
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
        let mapping = Mapping {
            address: mapping.map_err(no_memory)?.expose_provenance(),
            mapped,
        };
        mapping.populate().map_err(no_memory)?;
        Ok(mapping)
    }

    /// Maps `len` bytes of a file from `offset` on, a multiple of the page size, and gives the file the
    /// memory for them first, so that no later access can fail for want of it. What the file has there
    /// stays; who else maps it sees what is written.
    pub fn of_file(file: &File, offset: usize, len: usize) -> Result<Mapping, BufferError> {
        let bad = BufferError::BadLength { len: len as u64 };
        let aligned = offset.is_multiple_of(rustix::param::page_size());
        let mapped = mapped_len(len).filter(|_| aligned).ok_or(bad)?;
        let no_memory = |e: rustix::io::Errno| BufferError::NoMemory {
            len: len as u64,
            reason: e.to_string(),
        };
        let (start, bytes) = (offset as u64, len as u64);
        rustix::fs::fallocate(file, FallocateFlags::empty(), start, bytes).map_err(no_memory)?;
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new shared mapping at an address of the kernel's choice. Its pages exist; whoever
        // may truncate the file may do anything to this process's folder.
        let mapping = unsafe {
            mmap(
                std::ptr::null_mut(),
                mapped,
                prot,
                MapFlags::SHARED,
                file,
                start,
            )
        };
        let mapping = Mapping {
            address: mapping.map_err(no_memory)?.expose_provenance(),
            mapped,
        };
        let at = mapping.as_ptr();
        // SAFETY: advice for a whole mapping; it changes no byte. Older kernels fault pages in later.
        let _ = unsafe { madvise(at.cast(), mapping.mapped, Advice::LinuxPopulateWrite) };
        Ok(mapping)
    }

    /// Where it begins.
    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Makes every page be there; huge pages if the system has them, for a version is read and
    /// written from end to end.
    fn populate(&self) -> Result<(), rustix::io::Errno> {
        let at = self.as_ptr();
        // SAFETY: advice for a whole mapping; it changes no byte. Without huge pages, small ones do.
        let _ = unsafe { madvise(at.cast(), self.mapped, Advice::LinuxHugepage) };
        // SAFETY: as before.
        match unsafe { madvise(at.cast(), self.mapped, Advice::LinuxPopulateWrite) } {
            // A kernel before 5.14.
            Err(rustix::io::Errno::INVAL) => {
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
        // SAFETY: mapped by a constructor with this length; the last reference is gone.
        let _ = unsafe { munmap(self.as_ptr().cast(), self.mapped) };
    }
}

/// Whole pages for `len` bytes; none if that is no possible allocation.
fn mapped_len(len: usize) -> Option<usize> {
    let mapped = len.checked_next_multiple_of(rustix::param::page_size())?;
    (mapped > 0 && isize::try_from(mapped).is_ok()).then_some(mapped)
}
