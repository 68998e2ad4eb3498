//! With real processes in real control groups, where this machine lets the tests make some.
#![allow(clippy::unwrap_used, clippy::expect_used)]
use super::tests::{Bench, gone_within};
use super::*;
use robust_tree::{Controller, Groups, Mounts};
use std::collections::BTreeSet;
use std::time::Duration;

/// Groups of a test's own; what is left of them is removed with this.
struct Own(Groups);

impl Own {
    /// Of what is mounted there; none, which is said, where none can be made that limit this.
    fn on(mounts: &Mounts, test: &str, limits: &[Controller]) -> Option<Self> {
        let name = format!("robust-test-{}-{test}", std::process::id());
        let groups = Groups::of(mounts, &name);
        match groups.prepare(limits.iter().copied()) {
            Ok(_) => Some(Self(groups)),
            Err(why) => {
                robust_needs::skip(why, robust_needs::ROOT);
                None
            }
        }
    }

    fn here(test: &str, limits: &[Controller]) -> Option<Self> {
        Self::on(&Mounts::here().unwrap(), test, limits)
    }

    fn bench(&self) -> Bench {
        Bench::with(|events| Launcher::with_groups(events, self.0.clone()))
    }

    fn is_empty(&self) -> bool {
        (1..10).all(|n| self.0.find(&name(n)).is_none())
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.0.sweep(&BTreeSet::new());
        self.0.forget();
    }
}

fn name(n: u64) -> String {
    format!("rollout-0.{n}")
}

fn life(n: u64, limits: GroupLimits) -> LifeGroup {
    LifeGroup {
        name: name(n),
        limits,
        table: "rollout.limits".to_owned(),
        needed: true,
    }
}

fn in_group(bench: &Bench, n: u64, script: &str) -> SpawnSpec {
    SpawnSpec {
        group: Some(life(n, GroupLimits::default())),
        ..bench.spec(n, script)
    }
}

/// It leaves its session, its group of processes, its parents and its environment.
const ESCAPES: &str = "setsid env -i sleep 1000 > /dev/null 2>&1 & p=$!; \
    until grep -q sleep /proc/$p/comm; do :; done; echo $p;";

#[tokio::test]
async fn what_left_its_process_group_ends_with_its_life_in_either_version() {
    let here = Mounts::here().unwrap();
    for (mounts, version) in [(here.clone(), "2"), (here.without_version_2(), "1")] {
        let Some(own) = Own::on(&mounts, &format!("escapes-{version}"), &[]) else {
            continue;
        };
        let mut bench = own.bench();
        let ends = in_group(&bench, 1, &format!("{ESCAPES} exit 0"));
        bench.launcher.spawn(ends).unwrap();
        let escaped: u32 = bench.line(1).parse().unwrap();
        assert_eq!(bench.exit().await.1, Exit::Code(0));
        assert!(
            gone_within(escaped, Duration::from_secs(5)),
            "version {version}"
        );
        let killed = in_group(&bench, 2, &format!("{ESCAPES} exec sleep 1000"));
        bench.launcher.spawn(killed).unwrap();
        let escaped: u32 = bench.line(2).parse().unwrap();
        assert!(bench.launcher.kill(Incarnation(2)));
        assert_eq!(bench.exit().await.1, Exit::Signal(9));
        assert!(
            gone_within(escaped, Duration::from_secs(5)),
            "version {version}"
        );
        bench.launcher.forget_groups();
        assert!(own.is_empty());
    }
}

/// As elsewhere: who leaves its process group is left to the shim of its role.
#[tokio::test]
async fn without_a_control_group_it_does_not() {
    let mut bench = Bench::new();
    let ends = bench.spec(1, &format!("{ESCAPES} exit 0"));
    bench.launcher.spawn(ends).unwrap();
    let escaped: u32 = bench.line(1).parse().unwrap();
    assert_eq!(bench.exit().await.1, Exit::Code(0));
    assert!(!gone_within(escaped, Duration::from_millis(200)));
    let escaped = i32::try_from(escaped).unwrap();
    let escaped = rustix::process::Pid::from_raw(escaped).unwrap();
    rustix::process::kill_process(escaped, Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_life_that_reaches_its_limit_of_memory_is_told_so_and_others_live_on() {
    let Some(own) = Own::here("memory", &[Controller::Memory]) else {
        return;
    };
    let mut bench = own.bench();
    let limits = GroupLimits {
        memory_bytes: Some(64 << 20),
        ..GroupLimits::default()
    };
    let limited = |bench: &Bench, n, script| SpawnSpec {
        group: Some(life(n, limits)),
        ..bench.spec(n, script)
    };
    let other = limited(&bench, 1, "echo up; exec sleep 1000");
    bench.launcher.spawn(other).unwrap();
    bench.line(1);
    // It keeps its input until the end of it, which does not come.
    let hog = limited(&bench, 2, "exec tail /dev/zero");
    bench.launcher.spawn(hog).unwrap();
    let (who, exit, tail) = bench.exit().await;
    assert_eq!((who, exit), (2, Exit::Signal(9)));
    assert_eq!(
        tail,
        "the kernel killed a process of it for want of memory: its limit of 64MiB (rollout.limits.memory) was \
         reached; raise it, or have what runs there need less"
    );
    // A program that a role started: the role ends of it by itself.
    let shim = limited(
        &bench,
        3,
        "tail /dev/zero; echo error: the engine is gone; exit 5",
    );
    bench.launcher.spawn(shim).unwrap();
    let (who, exit, tail) = bench.exit().await;
    assert_eq!((who, exit), (3, Exit::Code(5)));
    assert!(
        tail.contains("its limit of 64MiB (rollout.limits.memory)"),
        "{tail}"
    );
    let running = bench.launcher.running();
    assert_eq!(running.len(), 1, "{running:?}");
    assert!(bench.launcher.kill(Incarnation(1)));
    assert_eq!(bench.exit().await.2, "up", "it was killed from here");
    bench.launcher.forget_groups();
    assert!(own.is_empty());
}

#[tokio::test]
async fn a_life_stays_in_its_group_when_its_daemon_dies_and_what_nobody_adopts_ends() {
    let Some(own) = Own::here("adopted", &[]) else {
        return;
    };
    let first = own.bench();
    let script = format!("{ESCAPES} exec sleep 1000");
    let lives = first.launcher.spawn(in_group(&first, 1, &script)).unwrap();
    first.launcher.spawn(in_group(&first, 2, &script)).unwrap();
    let (of_1, of_2): (u32, u32) = (
        first.line(1).parse().unwrap(),
        first.line(2).parse().unwrap(),
    );
    // A daemon that died between the group and the process.
    own.0.make(&name(3), &GroupLimits::default()).unwrap();
    let mut second = own.bench();
    let group = life(1, GroupLimits::default());
    let adopts = |of: &LifeGroup| second.launcher.adopt(Incarnation(1), lives, None, Some(of));
    assert!(adopts(&group));
    second.launcher.sweep_groups(&[]);
    assert!(gone_within(of_2, Duration::from_secs(5)));
    assert!(own.0.find(&name(2)).is_none() && own.0.find(&name(3)).is_none());
    assert!(own.0.find(&name(1)).is_some());
    assert!(second.launcher.kill(Incarnation(1)));
    assert_eq!(second.exit().await.1, Exit::Gone);
    assert!(gone_within(of_1, Duration::from_secs(5)));
    second.launcher.forget_groups();
    assert!(own.is_empty());
}

#[tokio::test]
async fn a_life_that_needs_a_group_is_not_started_without_and_another_is() {
    let mut bench = Bench::with(|events| {
        let nowhere = Groups::of(&Mounts::default(), "robust-test");
        Launcher::with_groups(events, nowhere)
    });
    let needs = in_group(&bench, 1, "exit 3");
    let error = bench.launcher.spawn(needs.clone()).unwrap_err().to_string();
    assert_eq!(
        error,
        "#1 is not started: no control group can be made here"
    );
    let group = needs.group.clone().map(|of| LifeGroup {
        needed: false,
        ..of
    });
    bench.launcher.spawn(SpawnSpec { group, ..needs }).unwrap();
    assert_eq!(bench.exit().await.1, Exit::Code(3));
}

#[tokio::test]
async fn what_cannot_start_in_its_group_says_why_and_leaves_none() {
    let Some(own) = Own::here("refused", &[]) else {
        return;
    };
    let bench = own.bench();
    let mut spec = in_group(&bench, 1, "");
    spec.argv = vec!["/no/such/program".to_owned()];
    let error = bench.launcher.spawn(spec.clone()).unwrap_err().to_string();
    assert!(
        error.starts_with("cannot start /no/such/program: No such file"),
        "{error}"
    );
    spec.argv = vec!["/etc/passwd".to_owned()];
    let error = bench.launcher.spawn(spec).unwrap_err().to_string();
    assert!(error.contains("Permission denied"), "{error}");
    bench.launcher.forget_groups();
    assert!(own.is_empty());
}

/// As where a filter of system calls hides `clone3`.
#[tokio::test]
async fn a_process_that_cannot_be_made_in_its_group_goes_in_before_it_runs_its_program() {
    let Some(own) = Own::here("goes-in", &[]) else {
        return;
    };
    let group = own.0.make(&name(1), &GroupLimits::default()).unwrap();
    let bench = own.bench();
    let spec = bench.spec(1, "echo x; exec sleep 1000");
    let null = || std::fs::File::open("/dev/null").unwrap();
    let files = super::spawn::Files {
        stdin: null(),
        log: null(),
    };
    let pid = forked::start_into(&spec, files, &group.door().unwrap(), None).unwrap();
    assert_eq!(group.members(), BTreeSet::from([pid]));
    group.kill();
    assert!(gone_within(pid, Duration::from_secs(5)));
}

/// What a process has of its parent, as the kernel says it, and its environment.
fn inheritance(bench: &Bench, n: u64, pid: u32) -> Vec<String> {
    bench.line(n);
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let kept = ["Umask", "SigBlk", "SigIgn", "NoNewPrivs", "PPid"];
    let kept = status
        .lines()
        .filter(|l| kept.iter().any(|k| l.starts_with(k)));
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let ids: Vec<&str> = stat.split_ascii_whitespace().skip(4).take(2).collect();
    let leads = ids == [pid.to_string(), pid.to_string()];
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let mut environment: Vec<&str> = environment.split('\0').collect();
    environment.sort_unstable();
    let fds = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mut fds: Vec<String> = fds
        .map(|fd| std::fs::read_link(fd.unwrap().path()).unwrap())
        .map(|to| {
            to.display()
                .to_string()
                .replace(&format!("/{n}.log"), "/N.log")
        })
        .collect();
    fds.sort();
    let mut all: Vec<String> = kept.map(str::to_owned).collect();
    all.extend([
        format!("leads {leads}"),
        environment.join(" "),
        fds.join(" "),
    ]);
    all
}

#[tokio::test]
async fn a_process_in_a_group_begins_as_one_without() {
    let Some(own) = Own::here("alike", &[]) else {
        return;
    };
    let bench = own.bench();
    let leaky = std::fs::File::open("/dev/null").unwrap();
    rustix::io::fcntl_setfd(&leaky, rustix::io::FdFlags::empty()).unwrap();
    let script = "read line; echo \"up $COLOUR\"; kill -STOP $$";
    let alone = bench.launcher.spawn(bench.spec(1, script)).unwrap();
    let within = bench.launcher.spawn(in_group(&bench, 2, script)).unwrap();
    let alone = inheritance(&bench, 1, alone.pid);
    assert_eq!(inheritance(&bench, 2, within.pid), alone);
    assert!(alone.contains(&"leads true".to_owned()), "{alone:?}");
    assert_eq!(bench.line(2), "up green");
    for n in [1, 2] {
        assert!(bench.launcher.kill(Incarnation(n)));
    }
}

/// `cargo test -p robustd --lib -- --ignored --nocapture launcher::groups_tests`
#[tokio::test]
#[ignore = "measures"]
async fn what_a_control_group_costs_a_start() {
    let Some(own) = Own::here("cost", &Controller::ALL) else {
        return;
    };
    let mut bench = own.bench();
    let none = GroupLimits::default();
    let memory = GroupLimits {
        memory_bytes: Some(1 << 30),
        ..none
    };
    let every = GroupLimits {
        cpus: Some(2.0),
        pids: Some(1000),
        ..memory
    };
    let all = [None, Some(none), Some(memory), Some(every)];
    let mut took = all.map(|_| Vec::new());
    for n in 0..400 {
        let which = usize::try_from(n).unwrap() % all.len();
        let spec = SpawnSpec {
            group: all[which].map(|limits| life(n, limits)),
            ..bench.spec(n, "exit 0")
        };
        let begun = std::time::Instant::now();
        bench.launcher.spawn(spec).unwrap();
        took[which].push(begun.elapsed());
        bench.exit().await;
        // The group before is gone.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for (limits, mut took) in all.iter().zip(took) {
        took.sort();
        let (median, tenth) = (took[took.len() / 2], took[took.len() / 10]);
        println!("{limits:?}: median {median:?}, a tenth within {tenth:?}");
    }
    bench.launcher.forget_groups();
}
