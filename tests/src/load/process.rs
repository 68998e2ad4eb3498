//! What a process used, as /proc tells.
use std::fs::read_to_string;

/// Processor time and memory of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// Processor time since its start, of all its threads, in seconds.
    pub cpu_s: f64,
    /// Memory that it has now, in MiB.
    pub rss_mib: f64,
    /// The most that it had.
    pub peak_mib: f64,
}

impl Used {
    /// By the process of this id; none where there is none.
    pub fn by(pid: u32) -> Option<Self> {
        let stat = read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name, in parentheses, may have spaces. The 14th and 15th words are in clock ticks, a hundred a second.
        let mut words = stat.rsplit(')').next()?.split_whitespace().skip(11);
        let mut ticks = || words.next()?.parse::<f64>().ok();
        let cpu_s = (ticks()? + ticks()?) / 100.0;
        let status = read_to_string(format!("/proc/{pid}/status")).ok()?;
        let kib = |key: &str| -> Option<f64> {
            let line = status.lines().find(|line| line.starts_with(key))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        Some(Self {
            cpu_s,
            rss_mib: kib("VmRSS:")? / 1024.0,
            peak_mib: kib("VmHWM:")? / 1024.0,
        })
    }
}
