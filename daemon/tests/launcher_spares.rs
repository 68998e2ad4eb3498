//! Spares of real processes, which a program of the tests' own is: it says the words of `robust_shared::spare`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_shared::core::Exit;
use robust_shared::ids::{Incarnation, Role};
use robust_shared::job::Passed;
use robust_shared::spare::NEVER_READY;
use robust_tree::{Controller, GroupLimits, Groups, Mounts};
use robustd::launcher::proc_stat::ProcStat;
use robustd::launcher::{
    LaunchEvent, Launcher, LifeGroup, Parked, ParkedGroup, Signal, SpareSeen, SpawnSpec,
};
use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// A launcher, and where its processes log.
struct Bench {
    launcher: Launcher,
    events: UnboundedReceiver<LaunchEvent>,
    dir: tempfile::TempDir,
}

impl Bench {
    fn new() -> Self {
        Self::with(Launcher::new)
    }

    fn with(
        launcher: impl FnOnce(UnboundedSender<LaunchEvent>) -> std::io::Result<Launcher>,
    ) -> Self {
        let (sender, events) = unbounded_channel();
        Self {
            launcher: launcher(sender).unwrap(),
            events,
            dir: tempfile::tempdir().unwrap(),
        }
    }

    async fn exit(&mut self) -> (u64, Exit, String) {
        let wait = tokio::time::timeout(Duration::from_secs(20), self.events.recv());
        let event = wait.await.expect("an event within 20 s").unwrap();
        let LaunchEvent::Exited {
            incarnation,
            exit,
            tail_of_log,
            ..
        } = event;
        (incarnation.0, exit, tail_of_log)
    }

    /// Waits for the n-th life to have written a line below its header, and returns it.
    fn line(&self, n: u64) -> String {
        let path = self.dir.path().join(format!("logs/{n}.log"));
        let mut line = None;
        until("a line of a life", || {
            let text = std::fs::read_to_string(&path).unwrap_or_default();
            line = text.lines().nth(1).map(str::to_owned);
            line.is_some() && text.ends_with('\n')
        });
        line.unwrap()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for (life, _) in self.launcher.running() {
            self.launcher.kill(life);
        }
    }
}

fn gone_within(pid: u32, limit: Duration) -> bool {
    let deadline = Instant::now() + limit;
    while ProcStat::read(pid).is_ok_and(|stat| !stat.is_dead()) {
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// Waits, is handed a life, and runs its command line with its log and environment. What an argument says it leaves out.
const SPARE: &str = r#"
import array, json, os, socket, sys
leaves_out = sys.argv[1]
daemon = socket.socket(fileno=0)
if leaves_out == "the start":
    sys.exit(1)
daemon.send(b"ready")
if leaves_out == "the wait":
    sys.exit(0)
data, beside, _, _ = daemon.recvmsg(1 << 17, 64)
if not data:
    sys.exit(0)
if leaves_out == "the answer":
    import time; time.sleep(1000)
log = array.array("i", beside[0][2])[0]
handed = json.loads(data)
os.dup2(log, 1)
os.dup2(log, 2)
daemon.send(b"taken")
os.environ.update(dict(handed["env"]))
os.dup2(os.open("/dev/null", os.O_RDONLY), 0)
os.execvp(handed["argv"][0], handed["argv"])
"#;

fn parked(dir: &Path, leaves_out: &str) -> Parked {
    Parked {
        role: Role::Trainer,
        argv: ["python3", "-c", SPARE, leaves_out]
            .map(str::to_owned)
            .to_vec(),
        passed: Passed::default(),
        env: Vec::new(),
        log_path: dir.join("logs/spare.log"),
        limits: None,
    }
}

/// A life that such a spare can become.
fn spec(bench: &Bench, n: u64, script: &str, parked: &Parked) -> SpawnSpec {
    SpawnSpec {
        incarnation: Incarnation(n),
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        passed: Passed::default(),
        env: vec![("COLOUR".to_owned(), "green".to_owned())],
        log_path: bench.dir.path().join(format!("logs/{n}.log")),
        header: format!("== incarnation {n}"),
        group: None,
        parked: Some(Box::new(parked.clone())),
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < deadline, "{what} within 20 s");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn ready(launcher: &Launcher, count: usize) -> Vec<SpareSeen> {
    let are = |seen: &[SpareSeen]| seen.len() == count && seen.iter().all(|s| s.ready);
    until("spares to be ready", || are(&launcher.spares()));
    launcher.spares()
}

#[tokio::test]
async fn a_spare_becomes_one_life_with_its_number_log_and_end_and_the_next_is_started() {
    let mut bench = Bench::new();
    let parked = parked(bench.dir.path(), "nothing");
    bench.launcher.keep_spares(&[(parked.clone(), 1)]);
    let waits = ready(&bench.launcher, 1)[0].clone();
    assert_eq!(waits.role, Role::Trainer);
    assert!(waits.rss_bytes > 1 << 20, "{waits:?}");
    let script = "echo colour $COLOUR; exec sleep 1000";
    let taken = bench.launcher.spawn(spec(&bench, 1, script, &parked));
    let taken = taken.unwrap();
    assert_eq!(taken.pid, waits.pid, "it was there before");
    assert_eq!(
        bench.line(1),
        "colour green",
        "under the header of its life"
    );
    assert_eq!(bench.launcher.spares(), []);
    let known = bench.launcher.running();
    assert_eq!(
        known.iter().map(|(n, r)| (n.0, r.pid)).collect::<Vec<_>>(),
        [(1, taken.pid)]
    );
    // Nobody is parked meanwhile, so this one is started.
    let next = bench
        .launcher
        .spawn(spec(&bench, 2, script, &parked))
        .unwrap();
    assert_ne!(next.pid, taken.pid);
    assert!(bench.launcher.kill(Incarnation(1)));
    assert_eq!(
        bench.exit().await,
        (1, Exit::Signal(9), "colour green".to_owned())
    );
}

#[tokio::test]
async fn two_lives_at_once_are_not_one_spare() {
    let bench = Bench::new();
    let parked = parked(bench.dir.path(), "nothing");
    bench.launcher.keep_spares(&[(parked.clone(), 1)]);
    let waits = ready(&bench.launcher, 1)[0].pid;
    let started: Vec<u32> = std::thread::scope(|scope| {
        let (bench, parked) = (&bench, &parked);
        let start = |n| {
            scope.spawn(move || {
                let spec = spec(bench, n, "exec sleep 1000", parked);
                bench.launcher.spawn(spec).unwrap().pid
            })
        };
        let all = [1, 2, 3].map(start);
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let those = started.iter().filter(|pid| **pid == waits).count();
    assert_eq!(those, 1, "{started:?}");
    assert_eq!(bench.launcher.running().len(), 3);
}

#[tokio::test]
async fn a_spare_that_died_or_says_nothing_costs_a_start_little_and_is_no_life() {
    let mut bench = Bench::new();
    let silent = parked(bench.dir.path(), "the answer");
    bench.launcher.keep_spares(&[(silent.clone(), 1)]);
    let waits = ready(&bench.launcher, 1)[0].pid;
    let begun = Instant::now();
    let started = bench.launcher.spawn(spec(&bench, 1, "exit 3", &silent));
    assert_ne!(started.unwrap().pid, waits);
    assert!(begun.elapsed() < Duration::from_secs(2), "{begun:?}");
    assert_eq!(bench.exit().await.1, Exit::Code(3));
    assert!(gone_within(waits, Duration::from_secs(5)), "it is killed");

    let sound = parked(bench.dir.path(), "nothing");
    bench.launcher.keep_spares(&[(sound.clone(), 1)]);
    let waits = ready(&bench.launcher, 1)[0].pid;
    let pid = rustix::process::Pid::from_raw(i32::try_from(waits).unwrap()).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    let started = bench.launcher.spawn(spec(&bench, 2, "exit 4", &sound));
    assert_ne!(started.unwrap().pid, waits);
    assert_eq!(bench.exit().await.1, Exit::Code(4));
    until("it to be reaped", || bench.launcher.spares().is_empty());
}

#[tokio::test]
async fn spares_of_another_program_are_ended_and_made_anew() {
    let bench = Bench::new();
    let before = parked(bench.dir.path(), "nothing");
    bench.launcher.keep_spares(&[(before.clone(), 2)]);
    let old: Vec<u32> = ready(&bench.launcher, 2).iter().map(|s| s.pid).collect();
    let mut after = before.clone();
    after.env.push(("REVISION".to_owned(), "2".to_owned()));
    let (wanted, same) = ([(after.clone(), 1)], [(before.clone(), 2)]);
    assert!(!bench.launcher.has_spares(&wanted) && bench.launcher.has_spares(&same));
    let life = bench
        .launcher
        .spawn(spec(&bench, 1, "exec sleep 1000", &after));
    assert!(!old.contains(&life.unwrap().pid), "it fits no other's life");
    bench.launcher.keep_spares(&wanted);
    let new = ready(&bench.launcher, 1)[0].pid;
    assert!(!old.contains(&new));
    assert!(
        old.iter()
            .all(|pid| gone_within(*pid, Duration::from_secs(5)))
    );
    bench.launcher.end_spares();
    assert!(gone_within(new, Duration::from_secs(5)));
}

#[tokio::test]
async fn spares_that_never_come_up_are_given_up_until_something_is_changed() {
    let bench = Bench::new();
    // Neither does one that is ready, and ends at once.
    for leaves_out in ["the start", "the wait"] {
        let broken = parked(bench.dir.path(), leaves_out);
        let wanted = [(broken.clone(), 1)];
        until("spares to be given up", || {
            bench.launcher.keep_spares(&wanted);
            bench.launcher.spares().is_empty() && bench.launcher.has_spares(&wanted)
        });
    }
    let changed = [(parked(bench.dir.path(), "nothing"), 1)];
    bench.launcher.keep_spares(&changed);
    ready(&bench.launcher, 1);
}

/// As a program of the user's that does not wait in `attach()`.
#[tokio::test]
async fn the_first_spare_that_says_that_none_like_it_will_be_ready_is_the_last_of_its_kind() {
    let bench = Bench::new();
    let begun = bench.dir.path().join("begun");
    let never = |script: &str| Parked {
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        ..parked(bench.dir.path(), "nothing")
    };
    let script = format!("echo once >> {}; exit {NEVER_READY}", begun.display());
    let wanted = [(never(&script), 1)];
    bench.launcher.keep_spares(&wanted);
    until("it to be the last one", || {
        bench.launcher.spares().is_empty() && bench.launcher.has_spares(&wanted)
    });
    bench.launcher.keep_spares(&wanted);
    assert_eq!(bench.launcher.spares(), []);
    assert_eq!(std::fs::read_to_string(&begun).unwrap(), "once\n");
    // Its start is one as any other.
    let life = bench
        .launcher
        .spawn(spec(&bench, 1, "exec sleep 1000", &wanted[0].0));
    assert!(life.is_ok());
    // Another revision of the job is another program, perhaps.
    let changed = [(parked(bench.dir.path(), "nothing"), 1)];
    bench.launcher.keep_spares(&changed);
    ready(&bench.launcher, 1);
}

/// In a group of its own, so that its memory counts in no other's limit; a later daemon finds it there.
#[tokio::test]
async fn a_life_that_was_a_spare_has_the_control_group_that_it_waited_in_and_its_limits() {
    let name = format!("robust-test-{}-spares", std::process::id());
    let groups = Groups::of(&Mounts::here().unwrap(), &name);
    if let Err(why) = groups.prepare([Controller::Memory]) {
        return robust_needs::skip(why, robust_needs::ROOT);
    }
    let mut bench = Bench::with(|events| Launcher::with_groups(events, groups.clone()));
    let limits = GroupLimits {
        memory_bytes: Some(64 << 20),
        ..GroupLimits::default()
    };
    let parked = Parked {
        limits: Some(ParkedGroup {
            limits,
            table: "trainer.limits".to_owned(),
            needed: true,
        }),
        ..parked(bench.dir.path(), "nothing")
    };
    bench.launcher.keep_spares(&[(parked.clone(), 1)]);
    let waits = ready(&bench.launcher, 1)[0].pid;
    let there: Vec<String> = groups.lives().into_iter().collect();
    assert!(
        matches!(&there[..], [one] if one.starts_with("spare-trainer.")),
        "{there:?}"
    );
    let group = LifeGroup {
        name: "trainer-0.1".to_owned(),
        limits,
        table: "trainer.limits".to_owned(),
        needed: true,
    };
    let go = bench.dir.path().join("go");
    let waits_for_it = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    // It keeps its input until the end of it, which does not come.
    let script = format!("echo up; {waits_for_it}; exec tail /dev/zero");
    let life = SpawnSpec {
        group: Some(group),
        ..spec(&bench, 1, &script, &parked)
    };
    let life = bench.launcher.spawn(life).unwrap();
    assert_eq!(life.pid, waits);
    assert_eq!(bench.line(1), "up");
    let found = groups.find_around(waits, "spare-").unwrap();
    assert_eq!(found.name(), there[0]);
    assert!(found.members().contains(&waits));
    assert!(groups.find_around(waits, "other-").is_none());
    std::fs::write(&go, "").unwrap();
    let (_, exit, tail) = bench.exit().await;
    assert_eq!(exit, Exit::Signal(9));
    assert!(tail.contains("trainer.limits.memory"), "{tail}");
    until("its group to be gone", || groups.lives().is_empty());
    groups.sweep(&BTreeSet::new());
    groups.forget();
}

#[tokio::test]
async fn a_spare_ends_with_the_launcher_that_started_it() {
    let bench = Bench::new();
    let parked = parked(bench.dir.path(), "nothing");
    bench.launcher.keep_spares(&[(parked, 1)]);
    let waits = ready(&bench.launcher, 1)[0].pid;
    drop(bench);
    assert!(gone_within(waits, Duration::from_secs(5)));
}
