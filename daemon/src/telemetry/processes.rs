//! Processor time, memory and disk of watched processes, and the thread that sends all samples.
use super::host::{HostSample, HostSampler};
use super::sampler::{DeviceSampler, Devices, Seen};
use crate::launcher::proc_stat::{ProcStat, SHIM, hosted_by};
use robust_shared::hardware::Reading;
use robust_shared::ids::Incarnation;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedSender;

/// Processes that ended and may yet be named by what their device shows.
const REMEMBERED: usize = 64;

/// What a process used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Processor time of all its threads, user and system.
    pub busy: Duration,
    /// Resident memory in bytes; of a shim with the program that it hosts.
    pub rss_bytes: u64,
    /// Whether a signal stopped it.
    pub stopped: bool,
    /// Bytes it read from disk.
    pub disk_read_bytes: u64,
    /// Bytes it had written to disk.
    pub disk_write_bytes: u64,
    /// How long its accelerator was busy, where it uses one that can be measured.
    pub accelerator: Option<Duration>,
}

/// A sample of one watched process.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessSample {
    /// Which.
    pub incarnation: Incarnation,
    /// What it used so far.
    pub usage: Usage,
    /// What the devices it computes on show now, where they tell.
    pub device: Option<DeviceUse>,
}

/// What devices show now, whoever else uses them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DeviceUse {
    /// How busy they are, on average.
    pub percent: Option<f64>,
    /// Memory in use on all of them.
    pub memory_bytes: Option<u64>,
    /// Memory that they have.
    pub memory_total_bytes: Option<u64>,
    /// The temperature of the hottest.
    pub celsius: Option<u32>,
}

impl DeviceUse {
    /// Of the devices that a process computes on; none: of no device known.
    fn of(seen: &[Seen], process: &Watched) -> Option<Self> {
        let on = || seen.iter().filter(|s| process.is_among(&s.pids));
        on().next()?;
        let readings = || on().map(|s| &s.reading);
        let busy: Vec<f64> = readings()
            .filter_map(|r| r.util_percent.or(r.activity_percent(true)))
            .collect();
        let sum =
            |of: fn(&Reading) -> Option<u64>| readings().filter_map(of).reduce(u64::saturating_add);
        Some(Self {
            percent: (!busy.is_empty()).then(|| busy.iter().sum::<f64>() / busy.len() as f64),
            memory_bytes: sum(|r| r.memory_used_bytes),
            memory_total_bytes: sum(|r| r.memory_total_bytes),
            celsius: readings().filter_map(|r| r.temperature_c).max(),
        })
    }
}

/// A watched process. Of a shim the programs that it hosts are part of it: they compute, and a device's driver
/// names them and not the shim.
pub(super) struct Watched {
    pid: u32,
    /// All that it had started when it was last looked at.
    hosted: Vec<u32>,
    /// Those that ended since, the newest last: what they did to a device may be told later.
    ended: VecDeque<u32>,
}

impl Watched {
    pub(super) fn new(pid: u32) -> Self {
        Self {
            pid,
            hosted: Vec::new(),
            ended: VecDeque::new(),
        }
    }

    /// What it used so far. An error when it is gone.
    pub(super) fn look(&mut self) -> io::Result<Usage> {
        let stat = ProcStat::read(self.pid)?;
        if stat.is_dead() {
            return Err(io::ErrorKind::NotFound.into());
        }
        if stat.name == SHIM {
            self.hosts(hosted_by(self.pid));
        }
        // What processes share counts for each.
        let pages = |pid: &u32| ProcStat::read(*pid).map_or(0, |stat| stat.rss_pages);
        let hosted: u64 = self.hosted.iter().map(pages).sum();
        Ok(Usage {
            busy: processor_time(self.pid)?,
            rss_bytes: (stat.rss_pages + hosted).saturating_mul(rustix::param::page_size() as u64),
            stopped: matches!(stat.state, 'T' | 't'),
            disk_read_bytes: io_bytes(self.pid, "read_bytes:"),
            disk_write_bytes: io_bytes(self.pid, "write_bytes:"),
            accelerator: None,
        })
    }

    fn hosts(&mut self, now: Vec<u32>) {
        let gone = self.hosted.iter().filter(|pid| !now.contains(pid));
        self.ended.extend(gone);
        let too_many = self.ended.len().saturating_sub(REMEMBERED);
        self.ended.drain(..too_many);
        self.hosted = now;
    }

    /// Whether it is one of these, or hosts one.
    fn is_among(&self, pids: &[u32]) -> bool {
        let mut own = std::iter::once(&self.pid).chain(&self.hosted);
        own.any(|pid| pids.contains(pid))
    }

    /// Whether it is, or was lately.
    fn was_among(&self, pids: &[u32]) -> bool {
        self.is_among(pids) || self.ended.iter().any(|pid| pids.contains(pid))
    }
}

/// A line of `/proc/PID/io`; 0 where it may not be read, as that of a process of another user.
fn io_bytes(pid: u32, key: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.and_then(|n| n.trim().parse().ok()).unwrap_or_default()
}

/// All that is known at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Samples {
    /// One for each watched process that lives.
    pub processes: Vec<ProcessSample>,
    /// Every device as it was last read, and what they showed since the last message.
    pub devices: Devices,
    /// The machine.
    pub host: Option<HostSample>,
}

/// What is sampled besides the processes.
#[derive(Default)]
pub struct Sources {
    /// The accelerators.
    pub devices: Option<DeviceSampler>,
    /// The machine.
    pub host: Option<HostSampler>,
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
    /// Starts the thread; every `interval` it sends what is known.
    pub fn start(
        interval: Duration,
        sources: Sources,
        samples: UnboundedSender<Samples>,
    ) -> io::Result<Self> {
        let (changes, receiver) = channel();
        std::thread::Builder::new()
            .name("telemetry".to_owned())
            .spawn(move || run(interval, &sources, &receiver, &samples))?;
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
    sources: &Sources,
    changes: &Receiver<Change>,
    samples: &UnboundedSender<Samples>,
) {
    let (mut watched, mut former) = (BTreeMap::new(), VecDeque::new());
    let mut next = Instant::now() + interval;
    loop {
        match changes.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Change::Watch(incarnation, pid)) => {
                watched.insert(incarnation, Watched::new(pid));
            }
            Ok(Change::Unwatch(incarnation)) => {
                if let Some(process) = watched.remove(&incarnation) {
                    former.push_back((incarnation, process));
                    former.drain(..former.len().saturating_sub(REMEMBERED));
                }
            }
            Err(RecvTimeoutError::Timeout) => {
                if samples.send(take(&mut watched, &former, sources)).is_err() {
                    return;
                }
                // A machine that slept must not get the missed samples in a burst.
                next = (next + interval).max(Instant::now());
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn take(
    watched: &mut BTreeMap<Incarnation, Watched>,
    former: &VecDeque<(Incarnation, Watched)>,
    sources: &Sources,
) -> Samples {
    let read = |devices: &DeviceSampler| devices.read();
    let mut devices = sources.devices.as_ref().map(read).unwrap_or_default();
    for found in &mut devices.findings {
        let all = watched.iter().map(|(life, process)| (*life, process));
        let all = all.chain(former.iter().map(|(life, process)| (*life, process)));
        let users = all.filter(|(_, process)| process.was_among(&found.pids));
        found.users = users.map(|(incarnation, _)| incarnation).collect();
    }
    let sample = |(incarnation, process): (&Incarnation, &mut Watched)| {
        let usage = process.look().ok()?;
        Some(ProcessSample {
            incarnation: *incarnation,
            usage: Usage {
                accelerator: busy(&devices.seen, process),
                ..usage
            },
            device: DeviceUse::of(&devices.seen, process),
        })
    };
    Samples {
        processes: watched.iter_mut().filter_map(sample).collect(),
        host: sources.host.as_ref().and_then(HostSampler::read),
        devices,
    }
}

/// How long the devices that a process computes on were busy. None when one of them is not known:
/// processor time is then all that can be said.
fn busy(seen: &[Seen], process: &Watched) -> Option<Duration> {
    let mut on = seen.iter().filter(|s| process.is_among(&s.pids)).peekable();
    on.peek()?;
    on.map(|s| s.busy).sum()
}
