//! Memory that shard bytes pass through on their way to disk.
use robust_ckpt::disk::ALIGN;
use std::sync::Arc;

/// Bytes per direct write: below 1 MiB they are slower, above 16 MiB they gain nothing.
pub const BLOCK_BYTES: usize = 4 << 20;

/// One block of memory, aligned to [`ALIGN`].
pub trait StagingBlock: Send {
    /// Its bytes, [`BLOCK_BYTES`] of them.
    fn bytes(&mut self) -> Result<&mut [u8], String>;
}

/// A source of blocks that snapshots are staged in: plain memory, or memory pinned for a device.
pub trait SnapshotMemory: Send {
    /// A new block.
    fn block(&self) -> Result<Box<dyn StagingBlock>, String>;
}

/// Plain memory.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory;

struct HostBlock {
    bytes: Vec<u8>,
    first: usize,
}

impl SnapshotMemory for HostMemory {
    fn block(&self) -> Result<Box<dyn StagingBlock>, String> {
        let bytes = vec![0; BLOCK_BYTES + ALIGN];
        let first = bytes.as_ptr().align_offset(ALIGN);
        Ok(Box::new(HostBlock { bytes, first }))
    }
}

impl StagingBlock for HostBlock {
    fn bytes(&mut self) -> Result<&mut [u8], String> {
        let end = self.first.saturating_add(BLOCK_BYTES);
        self.bytes
            .get_mut(self.first..end)
            .ok_or_else(|| "no aligned block".to_owned())
    }
}

/// Memory pinned by the CUDA driver, which a device copies into without a bounce. The driver's
/// library is loaded at run time. Its device path ran on no device yet.
pub struct PinnedMemory {
    context: Arc<cudarc::driver::CudaContext>,
}

struct PinnedBlock(cudarc::driver::PinnedHostSlice<u8>);

impl PinnedMemory {
    /// On a device; the error says in a few words why there is none.
    #[allow(unsafe_code)]
    pub fn open(device: usize) -> Result<Self, String> {
        // SAFETY: loads the CUDA driver's library, whose initialisers every CUDA program runs.
        if !unsafe { cudarc::driver::sys::is_culib_present() } {
            return Err("no CUDA driver library".to_owned());
        }
        let context = cudarc::driver::CudaContext::new(device).map_err(|e| e.to_string())?;
        Ok(Self { context })
    }
}

impl SnapshotMemory for PinnedMemory {
    #[allow(unsafe_code)]
    fn block(&self) -> Result<Box<dyn StagingBlock>, String> {
        // Not write-combined: the processor reads it to hash and to write it.
        // SAFETY: the memory is uninitialised until zeroed, which happens before it is shared.
        let pinned = unsafe { self.context.alloc_pinned_with_flags::<u8>(BLOCK_BYTES, 0) };
        let mut pinned = pinned.map_err(|e| e.to_string())?;
        let bytes = pinned.as_mut_slice().map_err(|e| e.to_string())?;
        bytes.fill(0);
        if bytes.as_ptr().align_offset(ALIGN) != 0 {
            return Err("pinned memory is not aligned for direct writes".to_owned());
        }
        Ok(Box::new(PinnedBlock(pinned)))
    }
}

impl StagingBlock for PinnedBlock {
    fn bytes(&mut self) -> Result<&mut [u8], String> {
        self.0.as_mut_slice().map_err(|e| e.to_string())
    }
}

/// Pinned memory where a CUDA driver and a device are there, else plain memory; one log line says
/// which.
pub fn detect() -> Box<dyn SnapshotMemory> {
    match PinnedMemory::open(0) {
        Ok(pinned) => {
            tracing::info!("snapshots are staged in memory pinned for device 0");
            Box::new(pinned)
        }
        Err(reason) => {
            tracing::info!("snapshots are staged in plain memory ({reason})");
            Box::new(HostMemory)
        }
    }
}
