//! A disk that stands still for seconds while roles fail: verdicts and kills are not late, and nothing
//! that follows from a record comes before it is durable.
mod disk;

use super::full::on_a_small_disk;
use super::{Site, fake, fs};
use disk::StandingDisk;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_proto::v1;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the disk stands still.
const STALL: Duration = Duration::from_secs(5);
/// A verdict and its kills take no longer, whatever the disk does, on a machine that is busy, too.
const PROMPT: Duration = Duration::from_millis(1_500);
/// From a rank's last sign of life to the verdict that it hangs, in these jobs.
const IDLE: Duration = Duration::from_secs(1);
/// The exit code after SIGTERM.
const STOPPED: i32 = 143;

/// The file that every group of writes is synced in.
fn database() -> &'static Path {
    Path::new("db/db")
}

pub fn pid_of(status: &v1::Status, role: &str, index: u32) -> i32 {
    let found = status
        .roles
        .iter()
        .find(|r| r.role == role && r.index == index);
    i32::try_from(found.unwrap().pid).unwrap()
}

/// Whether so many ranks are in their update.
pub fn trains(status: &v1::Status, ranks: usize) -> bool {
    let all = status.roles.iter().filter(|r| r.role == "trainer");
    all.filter(|r| r.phase == "update").count() == ranks
}

fn lives(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    !state.is_empty() && !state.starts_with('Z')
}

/// Waits until it is so, and says how long that took since then.
async fn until(what: &str, since: Instant, holds: impl Fn() -> bool) -> Duration {
    while !holds() {
        assert!(since.elapsed() < STALL, "not within the stall: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    since.elapsed()
}

/// What agents were acknowledged so far, which is stored.
fn acknowledged(log: &Path) -> usize {
    let text = fs::read_to_string(log).unwrap_or_default();
    let of_store = |line: &&str| line.starts_with("turn ") || line.starts_with("end ");
    text.lines().filter(of_store).count()
}

/// A job like this in its rules, on a disk that can be made to stand still; none where that is not
/// permitted, which is recorded.
fn site(rules: &str) -> Option<Site> {
    let site = Site::new(100_000);
    let job = fs::read_to_string(site.file("job.toml")).unwrap();
    fs::write(site.file("job.toml"), job + rules).unwrap();
    on_a_small_disk(&site).then_some(site)
}

fn stand_still(site: &Site) -> Option<StandingDisk> {
    match StandingDisk::at(&site.state()) {
        Ok(disk) => Some(disk),
        Err(error) => {
            let lacks = format!("no file can be kept from being opened ({error})");
            robust_needs::skip(lacks, robust_needs::ROOT);
            None
        }
    }
}

#[tokio::test]
async fn an_exit_is_judged_while_the_disk_stands_still_and_new_lives_wait_for_their_records() {
    let Some(site) = site("") else { return };
    let log = site.file("acknowledged");
    let daemon = site.start_env(&[(fake::LOG, &log.display().to_string())]);
    let before = site.wait_for("two steps", |s| s.step >= 2).await;
    let ranks = [0, 1].map(|index| pid_of(&before, "trainer", index));

    let Some(disk) = stand_still(&site) else {
        return;
    };
    let held = || disk.keeps_waiting(database());
    until("a write is held", disk.since, held).await;
    let struck = Instant::now();
    kill(Pid::from_raw(ranks[1]), Signal::SIGKILL).unwrap();
    // The verdict costs the whole gang, whose other rank is well: its end is the verdict's doing.
    let took = until("the gang is killed", struck, || !lives(ranks[0])).await;
    assert!(took < PROMPT, "{took:?}\n{}", site.log_tail());

    // Their numbers are not on record, and no turn is acknowledged that is not.
    let stored = acknowledged(&log);
    while disk.since.elapsed() < STALL {
        assert_eq!(site.roles_named("trainer"), [0; 0], "{}", site.log_tail());
        assert_eq!(acknowledged(&log), stored, "{}", site.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(held(), "it stood still all the time");
    let rest = struck.elapsed();
    disk.go_on();

    let after = site
        .wait_for("steps after it", |s| s.step > before.step + 2)
        .await;
    let [incident] = after.incidents.as_slice() else {
        panic!("{:#?}", after.incidents);
    };
    assert_eq!((&*incident.rule, &*incident.role), ("exit", "trainer"));
    assert_eq!((incident.index, &*incident.outcome), (1, "recovered"));
    let detected = Duration::from_secs_f64(incident.detect_ms / 1e3);
    assert!(detected < PROMPT, "{incident:?}");
    let total = Duration::from_secs_f64(incident.total_ms / 1e3);
    assert!(
        total > rest,
        "nobody came back before the disk did: {incident:?}"
    );
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, STOPPED, "{}", site.log());
}

#[tokio::test]
async fn a_hung_gang_is_killed_while_the_disk_stands_still() {
    let idle = IDLE.as_secs();
    let rules = format!("trainer_idle = {{ window_s = {idle} }}\n");
    let Some(site) = site(&rules) else { return };
    // The update is not over when the disk goes on. No debugger is found: how long one takes is not the
    // point here.
    let daemon = site.start_env(&[(fake::UPDATE_MS, "60000"), ("PATH", "/nonexistent")]);
    let before = site.wait_for("an update", |s| trains(s, 2)).await;
    let ranks = [0, 1].map(|index| pid_of(&before, "trainer", index));

    let Some(disk) = stand_still(&site) else {
        return;
    };
    let stopped = Instant::now();
    kill(Pid::from_raw(ranks[1]), Signal::SIGSTOP).unwrap();
    let gone = || !ranks.iter().any(|pid| lives(*pid));
    let took = until("the gang is killed", stopped, gone).await;
    assert!(took >= IDLE / 2, "{took:?}: not for the hang");
    assert!(took < IDLE + PROMPT, "{took:?}\n{}", site.log_tail());
    until("the verdict's record is held", stopped, || {
        disk.keeps_waiting(database())
    })
    .await;
    while disk.since.elapsed() < STALL {
        assert_eq!(site.roles_named("trainer"), [0; 0], "{}", site.log_tail());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    disk.go_on();

    let again = |s: &v1::Status| trains(s, 2) && pid_of(s, "trainer", 1) != ranks[1];
    let after = site.wait_for("the update again", again).await;
    let [incident] = after.incidents.as_slice() else {
        panic!("{:#?}", after.incidents);
    };
    assert_eq!((&*incident.rule, incident.index), ("trainer idle", 1));
    assert!(incident.evidence.contains("is in state T"), "{incident:?}");
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, STOPPED, "{}", site.log());
}
