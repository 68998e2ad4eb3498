//! What is said of a process that the kernel killed for want of memory: the launcher says it behind the end
//! of the process's log, whatever that says.

/// How that line begins.
const KILLED: &str = "the kernel killed a process of it for want of memory: ";
/// How it goes on where it was the role's own limit, which another start does not change.
const ITS_LIMIT: &str = "its limit of ";

/// The line, where the process's own limit was reached, which this key of the job file sets.
pub fn killed_by_limit(limit: &str, key: &str) -> String {
    format!(
        "{KILLED}{ITS_LIMIT}{limit} ({key}) was reached; raise it, or have what runs there need less"
    )
}

/// The line, where memory was wanting around it, as this count says.
pub fn killed_for_memory(count: u64, file: &str) -> String {
    format!(
        "{KILLED}the machine, or the control group that it is in, has none left (oom_kill is {count} in {file})"
    )
}

/// That line of the end of a log.
pub fn for_memory(log: &str) -> Option<&str> {
    log.lines().rev().find(|line| line.starts_with(KILLED))
}

/// The same where it was the process's own limit.
pub fn by_limit(log: &str) -> Option<&str> {
    for_memory(log).filter(|line| line[KILLED.len()..].starts_with(ITS_LIMIT))
}
