//! Samples accelerators on a thread of its own, which a hanging driver may keep for ever.
//!
//! ```text
//!  sampler's thread: open ─► device 0, 1, .. ─► Xids ─► watches ─► sleep ─┐
//!                      │          │                       │   ▲           │
//!                      ▼          ▼ any call may hang     ▼   └───────────┘
//!                  ┌── Board: readings, findings, the call under way ──┐
//!                  └── read() at once, from any thread ────────────────┘
//! ```
//! Nobody waits for the thread, and nobody joins it: readers take the board as it is, and a call
//! that has been under way for too long is a finding like any other.
use super::accelerators::{Accelerators, DeviceSample};
use robust_shared::hardware::{Finding, FindingKind, Reading, Watch, WatchConfig};
use robust_shared::ids::Incarnation;
use robust_shared::time::Time;
use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How devices are sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Between two readings of a device.
    pub interval: Duration,
    /// A call into the driver that takes longer is stuck.
    pub stuck_after: Duration,
    /// When counters count as rising.
    pub watch: WatchConfig,
}

impl Default for DeviceConfig {
    /// A second: a reading is some twenty calls of up to a few milliseconds.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            stuck_after: Duration::from_secs(10),
            watch: WatchConfig::default(),
        }
    }
}

/// A finding and its device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFinding {
    /// The device's number.
    pub device: u32,
    /// What it showed.
    pub finding: Finding,
    /// Processes that compute on it, or did when it was last seen.
    pub pids: Vec<u32>,
    /// Those of them that are watched.
    pub users: Vec<Incarnation>,
}

/// A device as it was last read.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// Its figures.
    pub reading: Reading,
    /// How long ago they were taken.
    pub age: Duration,
    /// Processes that compute on it.
    pub pids: Vec<u32>,
    /// How long it was busy so far; none while it is not known, as when the driver does not answer.
    pub busy: Option<Duration>,
}

/// The board, as it is now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Devices {
    /// Every device.
    pub seen: Vec<Seen>,
    /// What they showed since the board was last read.
    pub findings: Vec<DeviceFinding>,
    /// How long the call under way is stuck, if it is.
    pub stuck: Option<Duration>,
}

struct Slot {
    reading: Reading,
    pids: Vec<u32>,
    taken: Instant,
    /// Activity times time, up to `taken`.
    busy: Duration,
}

#[derive(Default)]
struct Board {
    slots: BTreeMap<u32, Slot>,
    findings: Vec<DeviceFinding>,
    /// The call under way: since when, and of which device.
    call: Option<(Instant, u32)>,
    stuck_told: bool,
}

/// Reads the board.
pub struct DeviceSampler {
    board: Arc<Mutex<Board>>,
    config: DeviceConfig,
    ended: Arc<AtomicBool>,
}

impl DeviceSampler {
    /// Opens the devices and samples them, both on the new thread.
    pub fn start(
        open: impl FnOnce() -> Box<dyn Accelerators> + Send + 'static,
        config: DeviceConfig,
    ) -> io::Result<Self> {
        let sampler = Self {
            board: Arc::default(),
            config,
            ended: Arc::default(),
        };
        let (board, ended) = (Arc::clone(&sampler.board), Arc::clone(&sampler.ended));
        std::thread::Builder::new()
            .name("accelerators".to_owned())
            .spawn(move || {
                lock(&board).call = Some((Instant::now(), 0));
                let source = open();
                lock(&board).call = None;
                let mut rounds = Rounds::new(source, &config.watch);
                let began = Instant::now();
                while !ended.load(Ordering::Relaxed) && !rounds.watches.is_empty() {
                    rounds.one(&board, Time::default() + began.elapsed());
                    std::thread::sleep(config.interval);
                }
            })?;
        Ok(sampler)
    }

    /// What is known now, at once. Findings are handed out once.
    pub fn read(&self) -> Devices {
        let mut board = lock(&self.board);
        let stuck = self.stuck(&mut board);
        let seen = board.slots.values().map(|slot| self.seen(slot)).collect();
        Devices {
            seen,
            findings: std::mem::take(&mut board.findings),
            stuck,
        }
    }

    fn seen(&self, slot: &Slot) -> Seen {
        let age = slot.taken.elapsed();
        // Between two readings a device is taken to go on as before, and for no longer: a reader
        // must not mistake a driver that is late for a device that is idle.
        let fresh = age < self.config.interval * 3;
        let share = slot.reading.activity_percent().map(|p| p / 100.0);
        let since = age.min(self.config.interval);
        Seen {
            reading: slot.reading.clone(),
            age,
            pids: slot.pids.clone(),
            busy: share
                .filter(|_| fresh)
                .map(|share| slot.busy + since.mul_f64(share.clamp(0.0, 1.0))),
        }
    }

    fn stuck(&self, board: &mut Board) -> Option<Duration> {
        let (since, device) = board.call?;
        let under_way = since.elapsed();
        let stuck = under_way > self.config.stuck_after;
        if stuck && !std::mem::replace(&mut board.stuck_told, true) {
            let seconds = under_way.as_secs_f64();
            let text = format!("a call into the driver has not returned for {seconds:.0} s");
            let kind = FindingKind::DriverStuck;
            board.found(device, [Finding { kind, text }]);
        }
        stuck.then_some(under_way)
    }
}

impl Drop for DeviceSampler {
    /// Does not wait: the thread may be stuck in the driver.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// The thread's own: the source and a watch for each device.
pub(super) struct Rounds {
    source: Box<dyn Accelerators>,
    watches: BTreeMap<u32, Watch>,
}

impl Rounds {
    pub(super) fn new(source: Box<dyn Accelerators>, config: &WatchConfig) -> Self {
        let devices = source.devices();
        let watches = devices.into_iter().map(|d| (d, Watch::new(config)));
        let watches = watches.collect();
        Self { source, watches }
    }

    /// Reads every device and the Xids, each put on the board as it comes: the next call may hang.
    fn one(&mut self, board: &Mutex<Board>, now: Time) {
        let mut lost = None;
        for (device, watch) in &mut self.watches {
            let device = *device;
            lock(board).call = Some((Instant::now(), device));
            let sample = self.source.sample(device);
            let found = watch.take(now, &sample.reading);
            lost = lost.or(sample.reading.lost.as_ref().map(|_| device));
            let mut board = lock(board);
            board.put(sample);
            board.found(device, found);
        }
        let xids = self.source.xids();
        let mut board = lock(board);
        (board.call, board.stuck_told) = (None, false);
        for (device, xid) in xids {
            // One that does not even know its number is the one just lost.
            match device.or(lost) {
                Some(device) => board.found(device, [Finding::xid(xid)]),
                None => tracing::warn!("Xid {xid} of a device that is not known"),
            }
        }
    }
}

#[cfg(test)]
impl Rounds {
    /// A round on a board of its own.
    pub(super) fn alone(&mut self, now: Time) -> (Vec<DeviceSample>, Vec<DeviceFinding>) {
        let board = Mutex::new(Board::default());
        self.one(&board, now);
        let board = board.into_inner().unwrap_or_else(PoisonError::into_inner);
        let samples = board.slots.into_values().map(|slot| DeviceSample {
            reading: slot.reading,
            pids: slot.pids,
        });
        (samples.collect(), board.findings)
    }
}

impl Board {
    fn found(&mut self, device: u32, found: impl IntoIterator<Item = Finding>) {
        let pids = self.slots.get(&device).map(|slot| slot.pids.clone());
        let pids = pids.unwrap_or_default();
        let found = found.into_iter().map(|finding| DeviceFinding {
            device,
            finding,
            pids: pids.clone(),
            users: Vec::new(),
        });
        self.findings.extend(found);
    }

    fn put(&mut self, DeviceSample { reading, pids }: DeviceSample) {
        let taken = Instant::now();
        // A device that is lost does not say any more whose it was.
        let pids = match (&reading.lost, self.slots.get(&reading.index)) {
            (Some(_), Some(before)) => before.pids.clone(),
            _ => pids,
        };
        let share = reading.activity_percent().unwrap_or_default() / 100.0;
        let before = self.slots.get(&reading.index);
        let busy = before.map_or(Duration::ZERO, |slot| {
            let since = taken.duration_since(slot.taken);
            slot.busy + since.mul_f64(share.clamp(0.0, 1.0))
        });
        let slot = Slot {
            pids,
            taken,
            busy,
            reading,
        };
        self.slots.insert(slot.reading.index, slot);
    }
}

fn lock(board: &Mutex<Board>) -> MutexGuard<'_, Board> {
    board.lock().unwrap_or_else(PoisonError::into_inner)
}
