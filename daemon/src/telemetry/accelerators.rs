//! Accelerator slots, behind a trait and a deadline.
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// One accelerator's figures. What the device does not report is none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SlotSample {
    /// The device's number.
    pub index: u32,
    /// Time any kernel ran, percent.
    pub util_percent: Option<f64>,
    /// Tensor core activity since the last sample, percent (Hopper and later).
    pub tensor_percent: Option<f64>,
    /// Memory used, bytes.
    pub memory_used_bytes: Option<u64>,
    /// Memory in all, bytes.
    pub memory_total_bytes: Option<u64>,
    /// Degrees Celsius.
    pub temperature_c: Option<u32>,
    /// Watts.
    pub power_w: Option<f64>,
    /// Uncorrected memory errors since the driver was loaded. Normal: 0.
    pub uncorrected_ecc: Option<u64>,
    /// Xid errors since the last sample. Normal: none.
    pub xids: Vec<u64>,
}

/// A source of slot samples. A call may block; only [`SlotSampler`]'s thread makes it.
pub trait Accelerators: Send {
    /// Samples every device.
    fn sample(&mut self) -> Result<Vec<SlotSample>, String>;
}

/// There is none: no samples.
#[derive(Clone, Copy, Debug)]
pub struct NoAccelerator;

impl Accelerators for NoAccelerator {
    fn sample(&mut self) -> Result<Vec<SlotSample>, String> {
        Ok(Vec::new())
    }
}

/// The last samples.
#[derive(Clone, Debug, PartialEq)]
pub struct SlotReading {
    /// One for each device.
    pub samples: Vec<SlotSample>,
    /// How long ago they were taken.
    pub age: Duration,
    /// The driver has not answered within the deadline: a finding in itself.
    pub overdue: bool,
    /// Why the last call failed, if it did.
    pub error: Option<String>,
}

struct Last {
    samples: Vec<SlotSample>,
    taken: Instant,
    call_began: Option<Instant>,
    error: Option<String>,
}

/// Samples accelerators on a thread of its own, which a hanging driver may keep for ever.
pub struct SlotSampler {
    last: Arc<Mutex<Last>>,
    deadline: Duration,
    ended: Arc<AtomicBool>,
}

impl SlotSampler {
    /// Samples every `interval`; a call longer than `deadline` is overdue.
    pub fn start(
        mut source: Box<dyn Accelerators>,
        interval: Duration,
        deadline: Duration,
    ) -> io::Result<Self> {
        let last = Last {
            samples: vec![],
            taken: Instant::now(),
            call_began: None,
            error: None,
        };
        let (last, ended) = (Arc::new(Mutex::new(last)), Arc::new(AtomicBool::new(false)));
        let sampler = Self {
            last: Arc::clone(&last),
            deadline,
            ended: Arc::clone(&ended),
        };
        std::thread::Builder::new()
            .name("accelerators".to_owned())
            .spawn(move || {
                while !ended.load(Ordering::Relaxed) {
                    lock(&last).call_began = Some(Instant::now());
                    let result = source.sample();
                    let mut now = lock(&last);
                    now.call_began = None;
                    match result {
                        Ok(samples) => {
                            (now.samples, now.taken, now.error) = (samples, Instant::now(), None);
                        }
                        Err(error) => now.error = Some(error),
                    }
                    drop(now);
                    std::thread::sleep(interval);
                }
            })?;
        Ok(sampler)
    }

    /// The last samples, at once.
    pub fn read(&self) -> SlotReading {
        let last = lock(&self.last);
        SlotReading {
            samples: last.samples.clone(),
            age: last.taken.elapsed(),
            overdue: last
                .call_began
                .is_some_and(|began| began.elapsed() > self.deadline),
            error: last.error.clone(),
        }
    }
}

impl Drop for SlotSampler {
    /// Does not wait: the thread may be stuck in the driver.
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

fn lock(last: &Mutex<Last>) -> std::sync::MutexGuard<'_, Last> {
    last.lock().unwrap_or_else(PoisonError::into_inner)
}
