//! The machine: its memory, its load, and the disk that holds the state directory.
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The machine's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct HostSample {
    /// Bytes left for us on the state directory's disk.
    pub disk_free_bytes: u64,
    /// Bytes of that disk.
    pub disk_total_bytes: u64,
    /// Memory that can be had without swapping.
    pub memory_available_bytes: u64,
    /// Memory in all.
    pub memory_total_bytes: u64,
    /// Processes that run or want to, over the last minute.
    pub load_1m: f64,
}

impl HostSample {
    /// Of this machine, and of the disk that holds `dir`.
    pub fn take(dir: &Path) -> io::Result<Self> {
        let disk = rustix::fs::statvfs(dir)?;
        let memory = std::fs::read_to_string("/proc/meminfo")?;
        let load = std::fs::read_to_string("/proc/loadavg")?;
        let first = load.split_ascii_whitespace().next();
        Ok(Self {
            disk_free_bytes: disk.f_bavail.saturating_mul(disk.f_frsize),
            disk_total_bytes: disk.f_blocks.saturating_mul(disk.f_frsize),
            memory_available_bytes: kibibytes(&memory, "MemAvailable:"),
            memory_total_bytes: kibibytes(&memory, "MemTotal:"),
            load_1m: first.and_then(|n| n.parse().ok()).unwrap_or_default(),
        })
    }
}

fn kibibytes(text: &str, key: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next());
    let kib: u64 = number.and_then(|n| n.parse().ok()).unwrap_or_default();
    kib * 1024
}

/// Between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// Samples on a thread of its own: the state directory may be on a disk that does not answer.
pub struct HostSampler {
    last: Arc<Mutex<Option<HostSample>>>,
}

impl HostSampler {
    /// Starts the thread; it ends some time after the sampler is dropped.
    pub fn start(dir: PathBuf) -> io::Result<Self> {
        let last = Arc::new(Mutex::new(HostSample::take(&dir).ok()));
        let board: Weak<Mutex<Option<HostSample>>> = Arc::downgrade(&last);
        std::thread::Builder::new()
            .name("host".to_owned())
            .spawn(move || {
                loop {
                    std::thread::sleep(INTERVAL);
                    let sample = HostSample::take(&dir).ok();
                    let Some(board) = board.upgrade() else { return };
                    *board.lock().unwrap_or_else(PoisonError::into_inner) = sample;
                }
            })?;
        Ok(Self { last })
    }

    /// The last sample; none where the machine does not tell.
    pub fn read(&self) -> Option<HostSample> {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
