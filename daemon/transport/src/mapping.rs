//! Anonymous memory whose addresses, once exposed, stay readable.
//!
//! Without RDMA hardware a get is emulated: the source's progress thread copies from the address
//! that the puller names, unchecked. A puller that is a moment late would make the source read
//! memory that has been unmapped, and die. So the range of an exposed buffer is never unmapped:
//! its pages go back to the system (a late read sees zeros, its digest differs), and the range is
//! used again for the next buffer of the same size. What remains is address space.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::sync::{Mutex, PoisonError};

use rustix::mm::{Advice, MapFlags, ProtFlags};

use crate::error::BufferError;

/// Address of a range that is mapped but has no owner.
static RETIRED: Mutex<BTreeMap<usize, Vec<usize>>> = Mutex::new(BTreeMap::new());

pub(crate) struct Mapping {
    address: usize,
    bytes: usize,
    retired: bool,
}

impl Mapping {
    /// At least `len` zeroed bytes, every page touched.
    pub fn new(len: usize) -> Result<Mapping, BufferError> {
        let page = rustix::param::page_size();
        let bytes = len
            .checked_next_multiple_of(page)
            .filter(|bytes| *bytes > 0 && isize::try_from(*bytes).is_ok())
            .ok_or(BufferError::BadLength { len: len as u64 })?;
        let address = match take_retired(bytes) {
            Some(address) => address,
            None => map(bytes)
                .map_err(|e| BufferError::NoMemory { len: len as u64, reason: e.to_string() })?,
        };
        let mapping = Mapping { address, bytes, retired: false };
        // A retired range lost its pages: populate both kinds alike.
        for offset in (0..bytes).step_by(page) {
            // SAFETY: inside of the mapping, which nobody else knows yet (late remote readers see
            // zero before and after).
            unsafe { std::ptr::write_volatile(mapping.as_ptr().add(offset), 0) };
        }
        Ok(mapping)
    }

    pub fn as_ptr(&self) -> *mut u8 {
        std::ptr::with_exposed_provenance_mut(self.address)
    }

    /// Gives the pages back and keeps the range; for the owner's `drop`.
    pub fn retire(&mut self) {
        let ptr: *mut c_void = self.as_ptr().cast();
        // SAFETY: the range is ours, and its owner, who calls this, is done with its contents.
        if unsafe { rustix::mm::madvise(ptr, self.bytes, Advice::LinuxDontNeed) }.is_err() {
            // Memory is then kept but never zeroed: do not hand it out again.
            self.retired = true;
            return;
        }
        self.retired = true;
        let mut retired = RETIRED.lock().unwrap_or_else(PoisonError::into_inner);
        retired.entry(self.bytes).or_default().push(self.address);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if !self.retired {
            let ptr: *mut c_void = self.as_ptr().cast();
            // SAFETY: mapped by `map` with this length; never exposed, so no one reads it.
            let _ = unsafe { rustix::mm::munmap(ptr, self.bytes) };
        }
    }
}

fn take_retired(bytes: usize) -> Option<usize> {
    RETIRED.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&bytes)?.pop()
}

fn map(bytes: usize) -> rustix::io::Result<usize> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new private anonymous mapping at an address of the kernel's choice.
    let ptr = unsafe {
        rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, prot, MapFlags::PRIVATE)?
    };
    Ok(ptr.expose_provenance())
}
