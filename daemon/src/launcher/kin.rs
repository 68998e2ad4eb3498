//! Whether a process is of a role: one that was started here, or whatever descends from one.
use super::given_up::GivenUp;
use super::proc_stat::ProcStat;
use std::fs;

/// Processes between a role and one that it started.
const MAX_ANCESTORS: usize = 64;

/// Names, in a role's environment, the state directory it belongs to: found again by it when nobody
/// remembers the process.
pub const OWNER_VARIABLE: &str = "ROBUST_ROLE_OF";
/// The same, in the environment of a service's shim.
pub const SERVICE_VARIABLE: &str = "ROBUST_SERVICE_OF";

/// Whether a process of this machine may be one of a role or of a service, of whichever job.
///
/// It is taken for one if it, or one that it descends from, has the name of a state directory in its environment as
/// roles have. It also is if it gave up what this process kept and roles give up ([`GivenUp`]): one that left its
/// parents behind has nothing else left that shows it.
pub fn is_of_a_role(pid: u32) -> bool {
    let own = GivenUp::of("self").unwrap_or_default();
    // One that is gone already, or may not be looked at, is another's or has nobody to answer for it.
    let Some(its) = GivenUp::of(&pid.to_string()) else {
        return true;
    };
    if its.is_more_than(own) {
        return true;
    }
    let mut next = pid;
    for _ in 0..MAX_ANCESTORS {
        if is_marked(next) {
            return true;
        }
        match ProcStat::read(next) {
            Ok(stat) if stat.parent > 1 => next = stat.parent,
            _ => return false,
        }
    }
    false
}

fn is_marked(pid: u32) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    let mut entries = environment.split(|byte| *byte == 0);
    entries.any(|entry| {
        let name = entry.split(|byte| *byte == b'=').next();
        let marks = [OWNER_VARIABLE, SERVICE_VARIABLE];
        marks.iter().any(|mark| name == Some(mark.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn started(marked: bool) -> Child {
        let mut command = Command::new("sleep");
        command.arg("60");
        if marked {
            command.env(OWNER_VARIABLE, "/somewhere");
        }
        command.spawn().unwrap()
    }

    #[test]
    fn a_process_with_a_roles_environment_is_one_and_another_is_not() {
        let (mut role, mut tool) = (started(true), started(false));
        // One that is just being executed has no environment for a moment.
        let until = Instant::now() + Duration::from_secs(10);
        while !is_of_a_role(role.id()) && Instant::now() < until {}
        assert!(is_of_a_role(role.id()));
        assert!(!is_of_a_role(tool.id()) && !is_of_a_role(std::process::id()));
        for child in [&mut role, &mut tool] {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert!(is_of_a_role(tool.id()), "nobody answers for it any more");
    }
}
