//! A snapshot into shared memory and back, against memcpy of the same bytes.
use super::disk::Folder;
use super::memory::Memory;
use super::{BenchError, Report, StoreArgs};
use robust_ckpt::image::{Layout, TENSORS};
use robust_ckpt::slot::{Image, Slot, SnapshotMemory, Taken};
use robust_shared::ids::{Generation, Step};
use std::path::Path;
use std::time::Instant;

/// Where snapshots lie.
const SHARED_MEMORY: &str = "/dev/shm";

/// A rank's weights and moments, and its two slots.
pub(super) struct Rank {
    layout: Layout,
    memory: Memory,
    slots: [(std::path::PathBuf, Slot); 2],
    _folder: Folder,
}

impl Rank {
    /// With an image of about so many bytes.
    pub fn new(bytes: usize) -> Result<Self, BenchError> {
        let folder = Folder::make(Path::new(SHARED_MEMORY))?;
        // Whole pages in each tensor.
        let tensor = (bytes / TENSORS.len()).next_multiple_of(4096);
        let layout = Layout {
            rank: 0,
            ranks: 1,
            elements: tensor / 4,
        };
        let slot = |n| {
            let path = folder.path().join(format!("trainer-0.slot{n}"));
            let slot = Slot::open(&path, layout.bytes())?;
            Ok::<_, BenchError>((path, slot))
        };
        Ok(Self {
            layout,
            memory: Memory::new(tensor * TENSORS.len()),
            slots: [slot(0)?, slot(1)?],
            _folder: folder,
        })
    }

    /// The weights and moments.
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// A step of training.
    pub fn train(&mut self, step: u64) {
        self.memory.change(step);
    }

    /// Takes a step's snapshot; its slot, and the seconds that a trainer is blocked.
    pub fn snapshot(&mut self, step: u64) -> Result<(&Path, Taken, f64), BenchError> {
        let parts: Vec<&[u8]> = self
            .memory
            .bytes()
            .chunks(self.layout.tensor_bytes())
            .collect();
        let (path, slot) = &mut self.slots[(step % 2) as usize];
        let started = Instant::now();
        let header = self.layout.header();
        let header = header.as_slice();
        let mut all: Vec<&dyn SnapshotMemory> = vec![&header];
        all.extend(parts.iter().map(|part| part as &dyn SnapshotMemory));
        let taken = slot.write((Step(step), Generation(1)), step, &all)?;
        Ok((path, taken, started.elapsed().as_secs_f64()))
    }
}

/// Seconds until an image is back in memory, header and checks included.
pub(super) fn restore(path: &Path, taken: Taken, to: &mut [u8]) -> Result<f64, BenchError> {
    let started = Instant::now();
    let image = Image::open(path, taken)?;
    let header = image.header()?;
    let tensor = to.len() / TENSORS.len();
    let mut parts = to.chunks_mut(tensor);
    let lacking = || BenchError::Else("too few tensors".to_owned());
    let mut next = || parts.next().ok_or_else(lacking);
    let (mut params, mut m, mut v) = (next()?, next()?, next()?);
    image.restore(header.data, &mut [&mut params, &mut m, &mut v], None)?;
    Ok(started.elapsed().as_secs_f64())
}

pub(super) fn measure(args: &StoreArgs, _: &Path, report: &mut Report) -> Result<(), BenchError> {
    let mut rank = Rank::new(args.mib << 20)?;
    let mut to = Memory::new(rank.bytes().len());
    for round in 1..=args.rounds as u64 {
        rank.train(round);
        let started = Instant::now();
        to.bytes_mut().copy_from_slice(rank.bytes());
        report.add("memcpy_s", started.elapsed().as_secs_f64());
        let (path, taken, seconds) = rank.snapshot(round)?;
        report.add("snapshot_s", seconds);
        let path = path.to_owned();
        to.bytes_mut().fill(0);
        let seconds = restore(&path, taken, to.bytes_mut())?;
        report.add("restore_s", seconds);
        if to.bytes() != rank.bytes() {
            return Err(BenchError::Else(
                "what was restored is not what was taken".to_owned(),
            ));
        }
    }
    report.ratio("snapshot_over_memcpy", "snapshot_s", "memcpy_s");
    report.ratio("restore_over_memcpy", "restore_s", "memcpy_s");
    Ok(())
}
