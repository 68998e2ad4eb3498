//! The end of processes that this daemon did not start.
use super::proc_stat::ProcStat;
use super::{LaunchEvent, Launcher, OWNER_VARIABLE, Running, owned_by};
use robust_proto::INCARNATION_VARIABLE;
use robust_shared::ids::Incarnation;
use rustix::process::{Pid, Signal, kill_process_group};
use std::ffi::OsStr;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, timeout_at};

/// How long the kernel may take to end a killed process.
const FORCED: Duration = Duration::from_secs(5);

/// Kills processes that no life of this daemon started; those that do not end are returned. Several may have one number:
/// all spares have that of nobody.
pub async fn kill_and_wait(processes: Vec<(Incarnation, Running)>) -> std::io::Result<Vec<u32>> {
    let (events, mut exits) = unbounded_channel();
    let launcher = Launcher::new(events)?;
    let of_its_own = (0..).map(Incarnation);
    let all = of_its_own.zip(processes.into_iter().map(|(_, running)| running));
    let mut left: Vec<(Incarnation, Running)> = all.collect();
    left.retain(|(number, running)| {
        launcher.adopt(*number, *running, None, None) && launcher.kill(*number)
    });
    let deadline = Instant::now() + FORCED;
    while !left.is_empty() {
        match timeout_at(deadline, exits.recv()).await {
            Ok(Some(LaunchEvent::Exited { incarnation, .. })) => {
                left.retain(|(number, _)| *number != incarnation);
            }
            Ok(None) | Err(_) => break,
        }
    }
    Ok(left.iter().map(|(_, running)| running.pid).collect())
}

/// Kills the spares of an earlier daemon of this state directory: processes of it without a number that are no life which
/// was adopted. They end by themselves with that daemon, but for one that is stopped.
pub fn kill_spares_before(owner: &OsStr, lives: &Launcher) {
    let adopted = lives.running();
    let of_owner = owned_by((OWNER_VARIABLE, owner), INCARNATION_VARIABLE);
    for (number, spare) in of_owner {
        let is_life = adopted.iter().any(|(_, life)| life.pid == spare.pid);
        if number == Incarnation(0) && !is_life {
            tracing::info!(
                "a spare of an earlier daemon is ended, process {}",
                spare.pid
            );
            kill_group(spare);
        }
    }
}

fn kill_group(process: Running) {
    let same = |stat: ProcStat| stat.start_time == process.start_time;
    let id = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    if let Some(id) = id.filter(|_| ProcStat::read(process.pid).is_ok_and(same)) {
        // It may have ended by itself meanwhile.
        let _ = kill_process_group(id, Signal::KILL);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::{CommandExt, ExitStatusExt};
    use std::process::{Child, Command};

    const NOBODY: &str = "00000000000000000000";

    /// A process of that owner, once its environment can be seen.
    fn started(owner: &str, number: &str) -> (Child, Running) {
        let mut command = Command::new("sleep");
        command.arg("60").process_group(0);
        command.env(OWNER_VARIABLE, owner);
        command.env(INCARNATION_VARIABLE, number);
        let child = command.spawn().unwrap();
        let running = found(owner, child.id());
        (child, running)
    }

    /// That process, once its environment can be seen.
    fn found(owner: &str, pid: u32) -> Running {
        let until = std::time::Instant::now() + Duration::from_secs(10);
        loop {
            let found = owned_by((OWNER_VARIABLE, OsStr::new(owner)), INCARNATION_VARIABLE);
            if let Some((_, running)) = found.iter().find(|(_, of)| of.pid == pid) {
                return *running;
            }
            assert!(std::time::Instant::now() < until, "it is found within 10 s");
        }
    }

    fn signal_of(child: &mut Child) -> Option<i32> {
        child.wait().unwrap().signal()
    }

    #[tokio::test]
    async fn several_spares_which_all_are_nobody_are_ended_at_once() {
        let owner = format!("/test/nobody/{}", std::process::id());
        let (mut one, first) = started(&owner, NOBODY);
        let (mut other, second) = started(&owner, NOBODY);
        let nobody = Incarnation(0);
        let left = kill_and_wait(vec![(nobody, first), (nobody, second)]);
        assert_eq!(left.await.unwrap(), Vec::<u32>::new());
        assert_eq!(
            (signal_of(&mut one), signal_of(&mut other)),
            (Some(9), Some(9))
        );
    }

    #[tokio::test]
    async fn a_daemon_that_starts_again_ends_its_predecessors_spares_and_no_life() {
        let owner = format!("/test/spares/{}", std::process::id());
        let (mut spare, _) = started(&owner, NOBODY);
        let (mut life, _) = started(&owner, "00000000000000000007");
        // As a program shows it whose environment cannot be written over.
        let (mut unnumbered, adopted) = started(&owner, NOBODY);
        let (events, _ends) = unbounded_channel();
        let launcher = Launcher::new(events).unwrap();
        assert!(launcher.adopt(Incarnation(8), adopted, None, None));
        kill_spares_before(OsStr::new(&owner), &launcher);
        assert_eq!(signal_of(&mut spare), Some(9));
        for child in [&mut life, &mut unnumbered] {
            assert!(child.try_wait().unwrap().is_none(), "a life goes on");
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
}
