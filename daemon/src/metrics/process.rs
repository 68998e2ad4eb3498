//! The daemon's own process, by the names that every client library uses.
use super::sheet::Sheet;
use crate::launcher::proc_stat::ProcStat;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use std::{fmt, fs, io};

#[derive(Debug)]
pub(super) struct ProcessCollector;

impl Collector for ProcessCollector {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        // A scrape tells the rest where `/proc` does not answer.
        match Usage::read() {
            Ok(usage) => usage.write(&mut Sheet(encoder)),
            Err(_) => Ok(()),
        }
    }
}

struct Usage {
    cpu_seconds: f64,
    resident_bytes: f64,
    started: f64,
    open_fds: usize,
    max_fds: Option<u64>,
}

impl Usage {
    fn read() -> io::Result<Self> {
        let stat = ProcStat::read(std::process::id())?;
        let hz = rustix::param::clock_ticks_per_second() as f64;
        let page = rustix::param::page_size() as f64;
        let limits = rustix::process::getrlimit(rustix::process::Resource::Nofile);
        Ok(Self {
            cpu_seconds: (stat.user_ticks + stat.system_ticks) as f64 / hz,
            resident_bytes: stat.rss_pages as f64 * page,
            started: boot_time()? + stat.start_time as f64 / hz,
            // Less the one that reads the folder.
            open_fds: fs::read_dir("/proc/self/fd")?.count().saturating_sub(1),
            max_fds: limits.current,
        })
    }

    fn write(&self, sheet: &mut Sheet<'_>) -> fmt::Result {
        let help = "Processor time of robustd itself.";
        sheet.counter_of("process_cpu_seconds", help, self.cpu_seconds)?;
        let help = "Memory robustd itself holds, snapshots it maps among it.";
        sheet.gauge("process_resident_memory_bytes", help, self.resident_bytes)?;
        let help = "When this robustd was started, as Unix time.";
        sheet.gauge("process_start_time_seconds", help, self.started)?;
        let help = "File descriptors robustd has open.";
        sheet.gauge("process_open_fds", help, self.open_fds as f64)?;
        match self.max_fds {
            Some(max) => {
                let help = "File descriptors robustd may have open.";
                sheet.gauge("process_max_fds", help, max as f64)
            }
            None => Ok(()),
        }
    }
}

/// When the machine was started, as Unix time.
fn boot_time() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/stat")?;
    let line = text.lines().find_map(|l| l.strip_prefix("btime "));
    let number = line.and_then(|n| n.trim().parse().ok());
    number.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "/proc/stat has no btime"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[test]
    fn this_process_was_started_a_moment_ago_and_uses_something() {
        let usage = Usage::read().unwrap();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - usage.started;
        // Boot time is known to the second, and clocks are set while machines run.
        assert!((-3600.0..3600.0).contains(&age), "{age}");
        assert!(usage.resident_bytes > 1e6 && usage.open_fds >= 3);
        assert!(usage.max_fds.is_none_or(|max| max >= usage.open_fds as u64));
    }
}
