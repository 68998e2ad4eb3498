//! Role processes that nobody remembers, found by what they were given in their environment.
use super::Running;
use super::proc_stat::ProcStat;
use robust_shared::ids::Incarnation;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

/// No process of a job has a higher number.
const LARGEST: u64 = u64::MAX / 2;

/// Living leaders of process groups whose environment says `owner`, with the incarnation that
/// `number` says. Those that may not be looked at are other users', and none of this daemon's.
pub fn owned_by((owner, value): (&str, &OsStr), number: &str) -> Vec<(Incarnation, Running)> {
    let own = std::process::id();
    let found = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let environment = fs::read(entry.path().join("environ")).ok()?;
        if pid == own || variable(&environment, owner)? != value.as_bytes() {
            return None;
        }
        let number: u64 = std::str::from_utf8(variable(&environment, number)?)
            .ok()?
            .parse()
            .ok()?;
        // No job counts so far; the number after it would be the first one again.
        if number > LARGEST {
            return None;
        }
        let stat = ProcStat::read(pid).ok()?;
        let start_time = stat.start_time;
        let running = Running { pid, start_time };
        (stat.group == pid && !stat.is_dead()).then_some((Incarnation(number), running))
    };
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(found).collect()
}

fn variable<'a>(environment: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let mut entries = environment.split(|byte| *byte == 0);
    entries.find_map(|entry| entry.strip_prefix(name.as_bytes())?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::Command;
    use std::time::{Duration, Instant};

    #[test]
    fn a_process_is_found_by_its_environment_until_it_has_ended() {
        let owner = format!("/test/{}", std::process::id());
        let start = |group: bool| {
            let mut command = Command::new("sleep");
            command
                .arg("60")
                .env("T_OWNER", &owner)
                .env("T_NUMBER", "7")
                .env("T_HUGE", u64::MAX.to_string());
            if group {
                command.process_group(0);
            }
            command.spawn().unwrap()
        };
        let (mut role, mut tool) = (start(true), start(false));
        let find = |of: &str| owned_by(("T_OWNER", OsStr::new(of)), "T_NUMBER");
        // One that is just being executed has no environment for a moment.
        let until = Instant::now() + Duration::from_secs(10);
        let mut found = find(&owner);
        while found.is_empty() && Instant::now() < until {
            found = find(&owner);
        }
        let pids: Vec<_> = found.iter().map(|(n, r)| (n.0, r.pid)).collect();
        assert_eq!(pids, [(7, role.id())], "the leader alone");
        assert_eq!(find("/test/0"), []);
        let huge = owned_by(("T_OWNER", OsStr::new(&owner)), "T_HUGE");
        assert_eq!(huge, [], "a number that no other could follow");
        for child in [&mut role, &mut tool] {
            child.kill().unwrap();
        }
        role.wait().unwrap();
        tool.wait().unwrap();
        assert_eq!(find(&owner), []);
    }

    #[test]
    fn a_name_is_matched_whole() {
        let environment = b"XA=1\0A_B=2\0A=3\0";
        assert_eq!(variable(environment, "A"), Some(&b"3"[..]));
        assert_eq!(variable(environment, "B"), None);
    }
}
