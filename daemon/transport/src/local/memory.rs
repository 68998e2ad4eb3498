//! Memory that a peer showed.
//!
//! Sealed against shrinking it is mapped, and nothing that its owner does takes a page away under a
//! reader: no SIGBUS. What is not sealed, a file that an engine maps by its path, is read with `pread`,
//! which ends early instead.
//!
//! Its owner may write there at any time (T-6): see [`Outside`]. Then the digest is of what was copied, and
//! not the one that was published.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::SealFlags;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

use crate::outside::Outside;

/// Memory of another process, for reading.
pub(super) enum Memory {
    Mapped(Mapped),
    File(File),
}

/// A mapping of all of it, unmapped when dropped.
pub(super) struct Mapped {
    /// As an integer: the compiler must not assume who else accesses the bytes.
    address: usize,
    len: usize,
}

impl Memory {
    /// What this descriptor leads to, of which `size` bytes are meant.
    pub fn of(descriptor: OwnedFd, size: u64) -> io::Result<Memory> {
        let stat = rustix::fs::fstat(&descriptor)?;
        let size = usize::try_from(size).ok().filter(|size| *size > 0);
        let size = size.ok_or(io::ErrorKind::InvalidInput)?;
        let regular = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_file();
        let there = usize::try_from(stat.st_size).is_ok_and(|there| size <= there);
        if !regular || !there {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        // Only files in memory have seals.
        let seals = rustix::fs::fcntl_get_seals(&descriptor).unwrap_or(SealFlags::empty());
        match seals.contains(SealFlags::SHRINK) {
            true => Ok(Memory::Mapped(Mapped::new(&descriptor, size)?)),
            false => Ok(Memory::File(File::from(descriptor))),
        }
    }

    /// Shows a range; one that is not there (any more) is an error. `scratch` is for bytes that have to
    /// be read first.
    pub fn show<R>(
        &self,
        (offset, len): (u64, u64),
        scratch: &mut Vec<u8>,
        show: impl FnOnce(Outside<'_>) -> R,
    ) -> io::Result<R> {
        let len = usize::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
        match self {
            Memory::Mapped(mapped) => mapped.show(offset, len, show),
            Memory::File(file) => {
                scratch.resize(len, 0);
                file.read_exact_at(scratch, offset)?;
                Ok(show(scratch.as_slice().into()))
            }
        }
    }
}

impl Mapped {
    fn new(descriptor: impl AsFd, len: usize) -> io::Result<Mapped> {
        // SAFETY: a new shared mapping at an address of the kernel's choice, of as many bytes as the
        // caller saw there; the seal keeps them there.
        let mapping = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                descriptor,
                0,
            )
        };
        Ok(Mapped {
            address: mapping?.expose_provenance(),
            len,
        })
    }

    fn show<R>(
        &self,
        offset: u64,
        len: usize,
        show: impl FnOnce(Outside<'_>) -> R,
    ) -> io::Result<R> {
        let bad = || io::Error::from(io::ErrorKind::InvalidInput);
        let offset = usize::try_from(offset).map_err(|_| bad())?;
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        end.ok_or_else(bad)?;
        let start: *const u8 = std::ptr::with_exposed_provenance(self.address + offset);
        // SAFETY: within the mapping, which lives as long as this.
        Ok(show(unsafe { Outside::new(start, len) }))
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        let start = std::ptr::with_exposed_provenance_mut(self.address);
        // SAFETY: mapped by the constructor with this length; nobody has a reference any more.
        let _ = unsafe { munmap(start, self.len) };
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use rustix::fs::{MemfdFlags, memfd_create};

    use xxhash_rust::xxh3::xxh3_64;

    use super::*;
    use crate::digest::PartDigest;

    fn shown(memory: &Memory, range: (u64, u64)) -> io::Result<Vec<u8>> {
        memory.show(range, &mut Vec::new(), |bytes| {
            let mut copy = vec![0; bytes.len()];
            // SAFETY: as long, and nobody else's.
            unsafe { bytes.copy_to(copy.as_mut_ptr()) };
            copy
        })
    }

    #[test]
    fn memory_that_could_shrink_is_read_and_not_mapped_and_its_loss_is_an_error() {
        let file = File::from(memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap());
        file.write_all_at(b"some bytes", 0).unwrap();
        let memory = Memory::of(file.try_clone().unwrap().into(), 10).unwrap();
        assert!(matches!(memory, Memory::File(_)));
        assert_eq!(shown(&memory, (5, 5)).unwrap(), b"bytes");
        file.set_len(3).unwrap();
        assert!(shown(&memory, (5, 5)).is_err());
    }

    #[test]
    fn sealed_memory_is_mapped_and_shown_within_its_bounds_only() {
        let file = File::from(memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap());
        file.write_all_at(b"some bytes", 0).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let memory = Memory::of(file.try_clone().unwrap().into(), 10).unwrap();
        assert!(matches!(memory, Memory::Mapped(_)));
        assert_eq!(shown(&memory, (5, 5)).unwrap(), b"bytes");
        for range in [(5, 6), (u64::MAX, 2), (11, 0), (0, u64::MAX)] {
            assert!(shown(&memory, range).is_err(), "{range:?}");
        }
    }

    #[test]
    fn what_is_digested_is_what_is_copied_whatever_its_owner_writes_meanwhile() {
        use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
        const LEN: usize = (256 << 10) + 70;
        let file = File::from(memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap());
        file.set_len(LEN as u64).unwrap();
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        let memory = Memory::of(file.try_clone().unwrap().into(), LEN as u64).unwrap();
        let (over, written) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let value = written.fetch_add(1, Ordering::Relaxed) as u8;
                    file.write_all_at(&vec![value; LEN], 0).unwrap();
                }
            });
            let mut into = vec![0; LEN];
            let mut looks = 0;
            while looks < 500 || written.load(Ordering::Relaxed) < 100 {
                let mut digest = PartDigest::new(LEN);
                let copied = memory.show((0, LEN as u64), &mut Vec::new(), |bytes| {
                    // SAFETY: as long, and nobody else's.
                    unsafe { digest.copy(0, bytes, into.as_mut_ptr()) };
                });
                copied.unwrap();
                assert_eq!(digest.finished(), Some(xxh3_64(&into)));
                looks += 1;
            }
            over.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn what_is_no_memory_or_less_than_was_said_is_refused() {
        let (reader, _writer) = std::io::pipe().unwrap();
        assert!(Memory::of(reader.into(), 1).is_err());
        let short = || memfd_create("test", MemfdFlags::ALLOW_SEALING).unwrap();
        assert!(Memory::of(short(), 1).is_err());
        assert!(Memory::of(short(), 0).is_err());
    }
}
