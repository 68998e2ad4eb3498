//! Processor time and memory of watched processes.
use crate::launcher::proc_stat::ProcStat;
use robust_shared::ids::Incarnation;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// What a process used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all its threads, user and system.
    pub busy: Duration,
    /// Resident memory in bytes.
    pub rss_bytes: u64,
    /// Whether a signal stopped it.
    pub stopped: bool,
}

/// A sample of one watched process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSample {
    /// Which.
    pub incarnation: Incarnation,
    /// What it used so far.
    pub usage: Usage,
}

/// What a process used so far. An error when it is gone.
pub fn usage(pid: u32) -> io::Result<Usage> {
    let stat = ProcStat::read(pid)?;
    if stat.is_dead() {
        return Err(io::ErrorKind::NotFound.into());
    }
    Ok(Usage {
        busy: processor_time(pid)?,
        rss_bytes: stat
            .rss_pages
            .saturating_mul(rustix::param::page_size() as u64),
        stopped: matches!(stat.state, 'T' | 't'),
    })
}

/// Nanosecond-fine: the ticks of /proc/PID/stat (10 ms) miss the heartbeat of a healthy process
/// that waits, and it would look stopped.
fn processor_time(pid: u32) -> io::Result<Duration> {
    let pid = nix::unistd::Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?);
    let clock = nix::time::clock_getcpuclockid(pid)?;
    Ok(nix::time::clock_gettime(clock)?.into())
}

enum Change {
    Watch(Incarnation, u32),
    Unwatch(Incarnation),
}

/// Samples the watched processes. Cheap to clone; the thread ends with the last clone.
#[derive(Clone)]
pub struct Telemetry {
    changes: Sender<Change>,
}

impl Telemetry {
    /// Starts the thread; every `interval` it sends one sample for each process that lives.
    pub fn start(
        interval: Duration,
        samples: UnboundedSender<Vec<ProcessSample>>,
    ) -> io::Result<Self> {
        let (changes, receiver) = channel();
        std::thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || run(interval, &receiver, &samples))?;
        Ok(Self { changes })
    }

    /// Adds a process.
    pub fn watch(&self, incarnation: Incarnation, pid: u32) {
        // The thread ends early only when nobody receives its samples any more.
        let _ = self.changes.send(Change::Watch(incarnation, pid));
    }

    /// Removes a process.
    pub fn unwatch(&self, incarnation: Incarnation) {
        let _ = self.changes.send(Change::Unwatch(incarnation));
    }
}

fn run(
    interval: Duration,
    changes: &Receiver<Change>,
    samples: &UnboundedSender<Vec<ProcessSample>>,
) {
    let mut watched = BTreeMap::new();
    let mut next = Instant::now() + interval;
    loop {
        match changes.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Change::Watch(incarnation, pid)) => {
                watched.insert(incarnation, pid);
            }
            Ok(Change::Unwatch(incarnation)) => {
                watched.remove(&incarnation);
            }
            Err(RecvTimeoutError::Timeout) => {
                let sample = |(i, pid): (&Incarnation, &u32)| {
                    Some(ProcessSample {
                        incarnation: *i,
                        usage: usage(*pid).ok()?,
                    })
                };
                if samples
                    .send(watched.iter().filter_map(sample).collect())
                    .is_err()
                {
                    return;
                }
                // A machine that slept must not get the missed samples in a burst.
                next = (next + interval).max(Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
