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

/// Tensor cores that are less active than this do not tell work from a hang: a kernel of an attention in float32 uses them
/// a little. A rank below the same share counts as idle.
const AT_WORK_PERCENT: f64 = 2.0;

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
    /// Those of the reading before: who ended with an error of the device is no longer on it.
    before: Vec<u32>,
    /// Whether its tensor cores were at work yet. Computing in float32 nearly does without, and is no hang.
    uses_tensor_cores: bool,
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
        let percent = slot.reading.activity_percent(slot.uses_tensor_cores);
        let share = percent.map(|p| p / 100.0);
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
        let slot = self.slots.get(&device);
        let pids = slot.map(|slot| [&slot.pids[..], &slot.before].concat());
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
        let before = self.slots.get(&reading.index);
        let uses_tensor_cores = before.is_some_and(|slot| slot.uses_tensor_cores)
            || reading
                .tensor_percent
                .is_some_and(|of| of >= AT_WORK_PERCENT);
        let percent = reading.activity_percent(uses_tensor_cores);
        let share = percent.unwrap_or_default() / 100.0;
        let busy = before.map_or(Duration::ZERO, |slot| {
            let since = taken.duration_since(slot.taken);
            slot.busy + since.mul_f64(share.clamp(0.0, 1.0))
        });
        let slot = Slot {
            before: before.map(|slot| slot.pids.clone()).unwrap_or_default(),
            pids,
            uses_tensor_cores,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the device was busy since it was last read, by what it shows now.
    fn busy(board: &mut Board, tensor_percent: f64, sm_percent: f64) -> Duration {
        let of = |board: &Board| board.slots.get(&3).map_or(Duration::ZERO, |slot| slot.busy);
        let before = of(board);
        std::thread::sleep(Duration::from_millis(1));
        let reading = Reading {
            index: 3,
            tensor_percent: Some(tensor_percent),
            sm_percent: Some(sm_percent),
            ..Reading::default()
        };
        let pids = Vec::new();
        board.put(DeviceSample { reading, pids });
        of(board) - before
    }

    #[test]
    fn who_computes_without_tensor_cores_is_busy_until_the_device_shows_that_it_uses_them() {
        let mut board = Board::default();
        busy(&mut board, 0.0, 50.0);
        for tensor_percent in [0.0, 1.5, 0.0] {
            let busy = busy(&mut board, tensor_percent, 50.0);
            assert!(busy >= Duration::from_micros(500), "{busy:?}");
        }
        assert!(busy(&mut board, 30.0, 50.0) >= Duration::from_micros(300));
        // A collective that hangs keeps multiprocessors busy, and is no work.
        assert_eq!(busy(&mut board, 0.0, 50.0), Duration::ZERO);
    }
}
