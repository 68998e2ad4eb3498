//! What a group limits, and how each version of control groups is told so.
use std::fmt;

/// What limits something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// Memory.
    Memory,
    /// Processor time.
    Cpu,
    /// Processes and threads.
    Pids,
}

impl Controller {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Memory, Self::Cpu, Self::Pids];

    /// The kernel's name for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Cpu => "cpu",
            Self::Pids => "pids",
        }
    }
}

impl fmt::Display for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::Cpu => "processor time",
            Self::Pids => "the number of processes",
        })
    }
}

/// What the processes of a group may use together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct GroupLimits {
    /// Bytes of memory; no swap beside it.
    pub memory_bytes: Option<u64>,
    /// Processors.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u64>,
}

/// Microseconds over which processor time is counted, the kernel's own default.
const PERIOD_US: u64 = 100_000;

/// A file of a group, and what is written to it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Setting {
    pub file: &'static str,
    pub value: String,
    /// Some kernels do not have it: then nothing is limited by it.
    pub may_be_missing: bool,
}

fn setting(file: &'static str, value: impl ToString) -> Setting {
    let value = value.to_string();
    Setting {
        file,
        value,
        may_be_missing: false,
    }
}

impl GroupLimits {
    /// Whether nothing is limited.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// What is to have a controller.
    pub fn controllers(&self) -> impl Iterator<Item = Controller> {
        let has = |controller: &Controller| match controller {
            Controller::Memory => self.memory_bytes.is_some(),
            Controller::Cpu => self.cpus.is_some(),
            Controller::Pids => self.pids.is_some(),
        };
        let has = Controller::ALL.map(|controller| has(&controller).then_some(controller));
        has.into_iter().flatten()
    }

    /// In the order in which it has to be written.
    pub(super) fn of_version_2(&self, controller: Controller) -> Vec<Setting> {
        match controller {
            Controller::Memory => self.memory_bytes.map_or_else(Vec::new, |bytes| {
                let swap = setting("memory.swap.max", 0);
                vec![setting("memory.max", bytes), optional(swap)]
            }),
            Controller::Cpu => {
                let value = self.cpus.map(|c| format!("{} {PERIOD_US}", quota(c)));
                value.map(|v| setting("cpu.max", v)).into_iter().collect()
            }
            Controller::Pids => self.pids_max(),
        }
    }

    /// In the order in which it has to be written: memory and swap together may not be less than memory.
    pub(super) fn of_version_1(&self, controller: Controller) -> Vec<Setting> {
        match controller {
            Controller::Memory => self.memory_bytes.map_or_else(Vec::new, |bytes| {
                let both = setting("memory.memsw.limit_in_bytes", bytes);
                vec![setting("memory.limit_in_bytes", bytes), optional(both)]
            }),
            Controller::Cpu => self.cpus.map_or_else(Vec::new, |cpus| {
                vec![
                    setting("cpu.cfs_period_us", PERIOD_US),
                    setting("cpu.cfs_quota_us", quota(cpus)),
                ]
            }),
            Controller::Pids => self.pids_max(),
        }
    }

    fn pids_max(&self) -> Vec<Setting> {
        let value = self.pids.map(|pids| setting("pids.max", pids));
        value.into_iter().collect()
    }
}

fn optional(of: Setting) -> Setting {
    Setting {
        may_be_missing: true,
        ..of
    }
}

/// Microseconds of each period; less than a millisecond the kernel refuses.
fn quota(cpus: f64) -> u64 {
    ((cpus * PERIOD_US as f64).round() as u64).max(1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_are_told_the_same() {
        let limits = GroupLimits {
            memory_bytes: Some(64 << 20),
            cpus: Some(2.5),
            pids: Some(100),
        };
        let told = |of: &dyn Fn(Controller) -> Vec<Setting>| {
            let all = limits.controllers().flat_map(of);
            let all = all.map(|s| format!("{}={}", s.file, s.value));
            all.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            told(&|c| limits.of_version_2(c)),
            "memory.max=67108864 memory.swap.max=0 cpu.max=250000 100000 pids.max=100"
        );
        assert_eq!(
            told(&|c| limits.of_version_1(c)),
            "memory.limit_in_bytes=67108864 memory.memsw.limit_in_bytes=67108864 \
             cpu.cfs_period_us=100000 cpu.cfs_quota_us=250000 pids.max=100"
        );
        assert_eq!(quota(0.001), 1000);
        let none = GroupLimits::default();
        assert_eq!(none.controllers().count(), 0);
        assert!(none.is_empty() && !limits.is_empty());
    }
}
