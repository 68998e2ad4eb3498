//! With groups of this machine, where it lets the tests make some.
#![allow(clippy::unwrap_used)]
use super::*;
use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Groups of a test's own; what is left of them is removed with this.
struct Bench {
    groups: Groups,
    children: Vec<Child>,
}

impl Bench {
    fn new(mounts: &Mounts, test: &str) -> Self {
        let name = format!("robust-test-{}-{test}", std::process::id());
        Self {
            groups: Groups::of(mounts, &name),
            children: Vec::new(),
        }
    }

    /// Of all that is mounted; none, which is said, where nothing of this can be made.
    fn here(test: &str, limits: &[Controller]) -> Option<Self> {
        Self::on(&Mounts::here().unwrap(), test, limits)
    }

    fn on(mounts: &Mounts, test: &str, limits: &[Controller]) -> Option<Self> {
        let bench = Self::new(mounts, test);
        match bench.groups.prepare(limits.iter().copied()) {
            Ok(_) => Some(bench),
            Err(why) => {
                robust_needs::skip(why, robust_needs::ROOT);
                None
            }
        }
    }

    /// A shell in a group; its first line.
    fn run(&mut self, group: &Group, script: &str) -> String {
        let door = group.door().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdout(Stdio::piped());
        let enter = move || {
            door.enter_unified()?;
            door.enter_version_1()
        };
        // SAFETY: system calls alone.
        #[allow(unsafe_code)]
        unsafe {
            command.pre_exec(enter);
        }
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        let mut output = std::io::BufReader::new(child.stdout.take().unwrap());
        std::io::BufRead::read_line(&mut output, &mut line).unwrap();
        self.children.push(child);
        line.trim().to_owned()
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.groups.sweep(&BTreeSet::new());
        self.groups.forget();
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Group {
    /// A file of one of its hierarchies.
    fn file(&self, name: &str) -> Option<PathBuf> {
        let folders = self.unified.iter().chain(&self.version_1);
        let mut files = folders.map(|folder| folder.join(name));
        files.find(|file| file.exists())
    }
}

fn ended(pid: u32) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    let there = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        stat.is_ok_and(|stat| !stat.contains(") Z") && !stat.contains(") X"))
    };
    while there() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    !there()
}

fn removed(group: &Group) -> bool {
    let until = Instant::now() + Duration::from_secs(10);
    while !group.remove().unwrap() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

/// One that left its group and session and its parents, and whose environment says nothing of whose it is.
const ESCAPES: &str = "setsid env -i sleep 1000 >/dev/null 2>&1 & echo $!; exit 0";

fn what_escapes_ends_with_its_group(mut bench: Bench) {
    let group = bench
        .groups
        .make("rollout-0.7", &GroupLimits::default())
        .unwrap();
    let escaped: u32 = bench.run(&group, ESCAPES).parse().unwrap();
    bench.children[0].wait().unwrap();
    assert!(group.members().contains(&escaped), "{group:?}");
    assert!(!group.remove().unwrap(), "somebody is in it");
    group.kill();
    assert!(ended(escaped) && removed(&group));
    assert!(bench.groups.find("rollout-0.7").is_none());
}

#[test]
fn a_process_that_left_its_session_ends_by_cgroup_kill() {
    let mounts = Mounts::here().unwrap();
    let Some(bench) = Bench::on(&mounts, "escapes", &[]) else {
        return;
    };
    if mounts.unified.is_none() {
        return robust_needs::skip("version 2 is not mounted", robust_needs::ROOT);
    }
    let group = bench.groups.make("probe", &GroupLimits::default()).unwrap();
    let unified = group.unified.clone().unwrap();
    assert!(unified.join("cgroup.kill").exists() && group.version_1.is_empty());
    what_escapes_ends_with_its_group(bench);
}

#[test]
fn it_ends_with_version_1_alone_where_that_can_freeze_and_where_it_cannot() {
    let mounts = Mounts::here().unwrap().without_version_2();
    if mounts.version_1.is_empty() {
        return robust_needs::elsewhere("version 1 is not mounted", "a machine with version 1");
    }
    let Some(bench) = Bench::on(&mounts, "frozen", &[]) else {
        return;
    };
    what_escapes_ends_with_its_group(bench);
    let mut without = mounts;
    without
        .version_1
        .retain(|(of, _)| !of.iter().any(|c| c == "freezer"));
    if let Some(bench) = Bench::on(&without, "unfrozen", &[]) {
        what_escapes_ends_with_its_group(bench);
    }
}

#[test]
fn a_process_is_in_all_groups_of_its_life_and_held_to_their_limits() {
    let Some(mut bench) = Bench::here("limits", &Controller::ALL) else {
        return;
    };
    let limits = GroupLimits {
        memory_bytes: Some(64 << 20),
        cpus: Some(0.5),
        pids: Some(20),
    };
    let group = bench.groups.make("trainer-0.1", &limits).unwrap();
    let memory = group.memory().unwrap().clone();
    assert_eq!((memory.bytes, memory.was_reached()), (64 << 20, false));
    // More than 20 cannot be started.
    let script = "echo up; for i in $(seq 30); do sleep 100 & done 2>/dev/null";
    bench.run(&group, script);
    let pids = bench.groups.find("trainer-0.1").unwrap();
    let events = pids.file("pids.events").unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    while read(events.clone()).trim() == "max 0" && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_ne!(read(events).trim(), "max 0");
    let members = group.members().len();
    assert!((2..=20).contains(&members), "{members}");
    group.kill();
    assert!(removed(&group));
    // It keeps its input until the end of it, which does not come.
    let group = bench.groups.make("trainer-0.2", &limits).unwrap();
    assert_eq!(bench.run(&group, "tail /dev/zero; echo $?"), "137");
    let memory = group.memory().unwrap();
    let kills = std::fs::read_to_string(&memory.kills).unwrap();
    assert!(
        kills.contains("oom_kill 1") && memory.was_reached(),
        "{kills}"
    );
    // As the next robustd finds it.
    let found = bench.groups.find("trainer-0.2").unwrap();
    assert_eq!(found.memory(), Some(memory));
}

#[test]
fn a_group_in_the_way_is_ended_and_what_nobody_knows_is_swept() {
    let Some(mut bench) = Bench::here("sweep", &[]) else {
        return;
    };
    let none = GroupLimits::default();
    let earlier = bench.groups.make("agent-0.3", &none).unwrap();
    let earlier: u32 = {
        let escaped = bench.run(&earlier, ESCAPES);
        escaped.parse().unwrap()
    };
    let group = bench.groups.make("agent-0.3", &none).unwrap();
    assert!(ended(earlier) && group.members().is_empty());
    let known: u32 = bench.run(&group, ESCAPES).parse().unwrap();
    let other = bench.groups.make("agent-1.4", &none).unwrap();
    let stranger: u32 = bench.run(&other, ESCAPES).parse().unwrap();
    // Made, and never used.
    bench.groups.make("agent-2.5", &none).unwrap();
    let living = BTreeSet::from(["agent-0.3".to_owned()]);
    assert_eq!(bench.groups.sweep(&living), ["agent-1.4"]);
    assert!(ended(stranger));
    assert_eq!(group.members(), BTreeSet::from([known]));
    bench.groups.forget();
    assert!(
        bench.groups.find("agent-0.3").is_some(),
        "somebody lives in it"
    );
    assert!(bench.groups.find("agent-2.5").is_none());
}

#[test]
fn a_life_is_found_where_an_earlier_robustd_began_it() {
    let Some(mut bench) = Bench::here("found", &[]) else {
        return;
    };
    let group = bench
        .groups
        .make("agent-0.6", &GroupLimits::default())
        .unwrap();
    let escaped: u32 = bench.run(&group, ESCAPES).parse().unwrap();
    // One that was started from another group of the machine has its own folder there.
    let mut later = Groups::of(&Mounts::default(), bench.groups.name());
    assert!(later.find("agent-0.6").is_none());
    let found = later.find_of("agent-0.6", escaped).unwrap();
    assert_eq!(found.members(), group.members());
    assert!(
        later.find_of("agent-0.7", escaped).is_none(),
        "another life"
    );
    later = Groups::of(&Mounts::default(), "robust-other");
    assert!(
        later.find_of("agent-0.6", escaped).is_none(),
        "another robustd's"
    );
}

#[test]
fn a_group_that_cannot_be_limited_is_not_there_afterwards() {
    let Some(bench) = Bench::here("whole", &[Controller::Pids]) else {
        return;
    };
    let more = GroupLimits {
        pids: Some(1 << 40),
        ..GroupLimits::default()
    };
    let refused = bench
        .groups
        .make("rollout-1.9", &more)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("cannot write 1099511627776 to "),
        "{refused}"
    );
    assert!(bench.groups.find("rollout-1.9").is_none());
}

#[test]
fn where_nothing_is_mounted_or_nothing_may_be_made_it_is_said_why() {
    let nothing = Bench::new(&Mounts::default(), "nothing");
    let why = nothing.groups.prepare([]).unwrap_err().to_string();
    assert_eq!(
        why,
        "no control group can be made here (none are mounted, or not those that robustd is in)"
    );
    let made = nothing.groups.make("x", &GroupLimits::default());
    assert!(matches!(made, Err(GroupError::NotPrepared)));
    assert!(nothing.groups.sweep(&BTreeSet::new()).is_empty());
    let dir = tempfile::tempdir().unwrap();
    let gone = dir.path().join("gone").display().to_string();
    let mounts = format!(
        "1 2 0:3 / {gone} rw - cgroup2 none rw\n4 5 0:6 / {gone} rw - cgroup none rw,memory\n"
    );
    let bench = Bench::new(&Mounts::of(&mounts, "0::/\n4:memory:/\n"), "refused");
    let why = bench.groups.prepare([]).unwrap_err().to_string();
    let parts = why.matches("No such file or directory").count();
    assert_eq!(parts, 2, "{why}");
}

/// A folder that looks as a group of version 2 does with all its controllers, which this machine need not have.
fn recorded(dir: &Path, controllers: &str, procs: &str) -> Mounts {
    let base = dir.join("service");
    std::fs::create_dir(&base).unwrap();
    std::fs::write(base.join("cgroup.controllers"), controllers).unwrap();
    std::fs::write(base.join("cgroup.subtree_control"), "cpu\n").unwrap();
    std::fs::write(base.join("cgroup.procs"), procs).unwrap();
    let mount = format!("1 2 0:3 / {} rw - cgroup2 none rw\n", dir.display());
    Mounts::of(&mount, "0::/service\n")
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn controllers_of_version_2_are_handed_down_to_the_groups_of_lives() {
    let dir = tempfile::tempdir().unwrap();
    let mounts = recorded(
        dir.path(),
        "cpuset cpu io memory hugetlb pids rdma misc\n",
        "",
    );
    let groups = Groups::of(&mounts, "robust-x");
    assert_eq!(
        groups
            .prepare([Controller::Cpu, Controller::Memory])
            .unwrap(),
        "version 2"
    );
    let base = dir.path().join("service");
    assert_eq!(read(base.join("cgroup.subtree_control")), "+memory");
    assert_eq!(
        read(base.join("robust-x/cgroup.subtree_control")),
        "+memory"
    );
    let limits = GroupLimits {
        memory_bytes: Some(1 << 30),
        cpus: Some(8.0),
        pids: None,
    };
    let group = groups.make("rollout-0.1", &limits).unwrap();
    let file = |name: &str| base.join("robust-x/rollout-0.1").join(name);
    assert_eq!(read(file("memory.max")), "1073741824");
    assert_eq!(read(file("cpu.max")), "800000 100000");
    assert!(
        !file("memory.swap.max").exists(),
        "a kernel without it is told nothing"
    );
    let memory = group.memory().unwrap();
    assert_eq!(memory.kills, file("memory.events"));
    // Linux 6.12: the machine was out of memory, then the group.
    let events = |oom| format!("low 0\nhigh 0\nmax 31\noom {oom}\noom_kill 1\noom_group_kill 0\n");
    std::fs::write(file("memory.events"), events(0)).unwrap();
    assert!(!memory.was_reached());
    std::fs::write(file("memory.events"), events(1)).unwrap();
    assert!(memory.was_reached());
}

#[test]
fn a_controller_that_is_not_there_is_named_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    let mounts = recorded(dir.path(), "cpu\n", "");
    let groups = Groups::of(&mounts, "robust-x");
    let why = groups
        .prepare([Controller::Memory])
        .unwrap_err()
        .to_string();
    assert_eq!(
        why,
        "no control group here limits memory (version 2 has no such controller here; version 1 is not \
         mounted with it)"
    );
}

/// With a controller that version 2 has on this machine, and version 1 has not taken.
#[test]
fn robustd_steps_aside_where_it_is_alone_and_moves_nobody_else() {
    let mounts = Mounts::here().unwrap();
    let Some(own) = mounts.unified.as_ref().map(|h| h.own.clone()) else {
        return robust_needs::skip("version 2 is not mounted", robust_needs::ROOT);
    };
    let free = std::fs::read_to_string(own.join("cgroup.controllers")).unwrap_or_default();
    let Some(controller) = free.split_whitespace().next() else {
        return robust_needs::elsewhere(
            "version 2 has no controllers here",
            "a machine where it has some",
        );
    };
    let base = own.join(format!("robust-test-{}-aside", std::process::id()));
    if let Err(why) = std::fs::create_dir(&base) {
        return robust_needs::skip(format!("{}: {why}", base.display()), robust_needs::ROOT);
    }
    let _handed = std::fs::write(own.join("cgroup.subtree_control"), format!("+{controller}"));
    std::fs::write(base.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    let mut other = Command::new("sleep").arg("1000").spawn().unwrap();
    let refused = super::place::step_aside(&base);
    other.kill().unwrap();
    other.wait().unwrap();
    let alone = super::place::step_aside(&base);
    let order = std::fs::write(
        base.join("cgroup.subtree_control"),
        format!("+{controller}"),
    );
    let within = std::fs::read_to_string(base.join("robustd/cgroup.procs"));
    std::fs::write(own.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    std::fs::remove_dir(base.join("robustd")).unwrap();
    std::fs::remove_dir(&base).unwrap();
    let _taken_back = std::fs::write(own.join("cgroup.subtree_control"), format!("-{controller}"));
    let why = refused.unwrap_err();
    assert!(why.contains("has processes besides robustd"), "{why}");
    alone.unwrap();
    order.unwrap();
    assert_eq!(within.unwrap().trim(), std::process::id().to_string());
}
