//! Processes that wait for a restart, in real jobs (`[restart] spares`).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use nix::unistd::{Pid, getpgid};
use robust_tests::{
    Cluster, Daemon, JobFile, assert_consumed_once, engine_process, roles, start_torch, torch_job,
};
use serde_json::Value;
use std::collections::BTreeSet;

/// Enough of them that spares are there long before the end, however busy the machine is.
const STEPS: i64 = 40;

fn job() -> JobFile {
    JobFile::small()
        .set("job", "steps", STEPS)
        .set("job", "mode", "sync")
        .set("checkpoint", "every", 4)
}

fn pids(of: &[&Value]) -> BTreeSet<u64> {
    of.iter().filter_map(|one| one["pid"].as_u64()).collect()
}

fn of_role(status: &Value, role: &str) -> BTreeSet<u64> {
    pids(&roles(status, role))
}

/// The spares for a role that have done all that they can.
fn ready(status: &Value, role: &str) -> BTreeSet<u64> {
    let all = status["spares"].as_array().expect("a status has spares");
    let fit = all
        .iter()
        .filter(|s| s["role"] == role && s["ready"] == true);
    pids(&fit.collect::<Vec<_>>())
}

/// Waits until the job is whole and so many are ready, for two ranks and an engine.
fn until_ready(daemon: &mut Daemon) -> Value {
    daemon.until("spares to be ready", |status| {
        ready(status, "trainer").len() == 2 && ready(status, "rollout").len() == 1
    })
}

fn kill(daemon: &Daemon, role: &str) {
    let out = daemon.ctl(&["inject", "--kill", role, "--index", "0", "--wait"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}\n{}", daemon.logs());
}

fn lives(pid: u64) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.contains(") Z ") && !stat.contains(") X "))
}

#[test]
fn a_killed_rank_and_a_killed_engine_are_spares_that_were_there_and_no_bit_differs() {
    let mut undisturbed = Daemon::start(&job());
    assert_eq!(undisturbed.finish(), 0, "{}", undisturbed.logs());

    let mut daemon = Daemon::start(&job().set("restart", "spares", 1));
    let before = until_ready(&mut daemon);
    let memory = before["spares"][0]["memory_bytes"].as_u64().unwrap();
    assert!(memory > 10 << 20, "{before}");
    kill(&daemon, "trainer");
    let after = daemon.status();
    assert_eq!(of_role(&after, "trainer"), ready(&before, "trainer"));
    assert_eq!(of_role(&after, "rollout"), of_role(&before, "rollout"));
    assert_eq!(after["incidents"][0]["outcome"], "recovered");

    // Others wait when the job is whole again.
    let again = until_ready(&mut daemon);
    let (used, waits) = (of_role(&again, "trainer"), ready(&again, "trainer"));
    assert!(used.is_disjoint(&waits));
    kill(&daemon, "rollout");
    let after = daemon.status();
    let waited = *ready(&again, "rollout").first().unwrap();
    assert!(of_role(&after, "rollout").contains(&waited), "{after}");

    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_eq!(daemon.processes(), [], "no spare outlives its job");
    assert!(
        undisturbed.checkpoint(STEPS) == daemon.checkpoint(STEPS),
        "I-9: the run whose roles were spares differs"
    );
}

#[test]
fn spares_end_with_their_daemon_and_lives_that_were_spares_go_on_as_any_others() {
    let mut daemon = Daemon::start(&job().set("restart", "spares", 1).set("job", "steps", 400));
    until_ready(&mut daemon);
    kill(&daemon, "trainer");
    let before = until_ready(&mut daemon);
    let trainers = of_role(&before, "trainer");
    let waiting = &ready(&before, "trainer") | &ready(&before, "rollout");
    daemon.kill_daemon();
    daemon.wait_for("spares to end with their daemon", |_| {
        !waiting.iter().any(|pid| lives(*pid))
    });
    assert!(trainers.iter().all(|pid| lives(*pid)), "{}", daemon.logs());
    daemon.launch();
    let adopted = until_ready(&mut daemon);
    assert_eq!(of_role(&adopted, "trainer"), trainers, "{}", daemon.logs());
    // The next daemon sees the end of a life that it did not start, and has spares of its own.
    kill(&daemon, "trainer");
    let after = daemon.status();
    assert_eq!(of_role(&after, "trainer"), ready(&adopted, "trainer"));
    let stopped = daemon.ctl(&["stop", "--wait"]);
    assert!(stopped.status.success(), "{}", daemon.logs());
    assert_eq!(daemon.processes(), [], "{}", daemon.logs());
}

/// The pids on a node of what is `running`, or of what is ready to be.
fn on_node(status: &Value, key: &str, role: &str, node: &str) -> BTreeSet<u64> {
    let all = status[key].as_array().unwrap().iter();
    let there = all.filter(|one| one["role"] == role && one["node"] == node);
    let ready = there.filter(|one| one["ready"] != false);
    pids(&ready.collect::<Vec<_>>())
}

fn spares(status: &Value, role: &str, node: &str) -> BTreeSet<u64> {
    on_node(status, "spares", role, node)
}

/// With certificates, which a spare has none of either until it is a life.
#[test]
fn ranks_on_every_node_are_taken_over_by_the_spares_of_their_node() {
    let each: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
    let job = job()
        .set("job", "steps", 400)
        .set("rollout", "replicas", 2)
        .set("restart", "spares", 1)
        .nodes(&[("a", each), ("b", each)]);
    let mut cluster = Cluster::start(&job);
    cluster.join("b", &[]);
    let before = cluster.leader.until("spares on both nodes", |status| {
        let both = |node: &str| {
            let all = ["trainer", "rollout"].map(|role| spares(status, role, node).len());
            all == [1, 1]
        };
        both("a") && both("b")
    });
    kill(&cluster.leader, "trainer");
    let after = cluster.leader.status();
    for node in ["a", "b"] {
        let now = on_node(&after, "roles", "trainer", node);
        assert_eq!(now, spares(&before, "trainer", node), "{}", cluster.logs());
    }
    let again = cluster.leader.until("spares on both again", |status| {
        let one = |node: &str| spares(status, "trainer", node).len() == 1;
        one("a") && one("b")
    });
    let waits = spares(&again, "trainer", "b");
    assert!(waits.is_disjoint(&spares(&before, "trainer", "b")));
    let stopped = cluster.leader.ctl(&["stop", "--wait"]);
    assert!(stopped.status.success(), "{}", cluster.logs());
}

#[test]
fn a_job_without_spares_has_none() {
    let mut daemon = Daemon::start(&job());
    let status = daemon.until_step(2);
    assert_eq!(status["spares"], serde_json::json!([]));
    let spare = |line: &str| line.contains("robust-worker spare");
    let found: Vec<_> = daemon
        .processes()
        .into_iter()
        .filter(|(_, line)| spare(line))
        .collect();
    assert_eq!(found, []);
}

/// The program that a spare's shim hosts, which is of its process group.
fn program_of(shim: u64) -> i32 {
    let of_group = |pid: i32| {
        let group = getpgid(Some(Pid::from_raw(pid))).ok()?;
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        let is_program = String::from_utf8_lossy(&line).contains("train.py");
        (u64::try_from(group.as_raw()) == Ok(shim) && is_program).then_some(pid)
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let found = pids.filter_map(of_group).min();
    found.unwrap_or_else(|| panic!("spare {shim} has no program"))
}

fn strike(pid: i32, signal: Signal) {
    nix::sys::signal::kill(Pid::from_raw(pid), signal).unwrap();
}

/// The programs of both ranks.
fn programs(daemon: &Daemon) -> BTreeSet<i32> {
    let of = |index| engine_process(daemon, "trainer", index, "train.py");
    (0..2).filter_map(of).collect()
}

/// What the ranks wrote in all their lives.
fn of_ranks(daemon: &Daemon) -> String {
    let log = |index| daemon.state_dir().join(format!("logs/trainer-{index}.log"));
    let text = |index| std::fs::read_to_string(log(index)).unwrap();
    format!("{}{}", text(0), text(1))
}

fn torch(steps: u64) -> JobFile {
    let steps = i64::try_from(steps).unwrap();
    torch_job()
        .set("job", "steps", steps)
        .set("restart", "spares", 1)
}

#[test]
fn a_killed_rank_that_is_a_program_goes_on_as_one_that_waited_in_attach() {
    const STEPS: u64 = 150;
    let mut daemon = start_torch(&torch(STEPS));
    let before = until_ready(&mut daemon);
    let waits = ready(&before, "trainer");
    let waiting: BTreeSet<i32> = waits.iter().map(|shim| program_of(*shim)).collect();
    let spares = before["spares"].as_array().unwrap().iter();
    let memory = spares.filter(|s| s["role"] == "trainer");
    let memory: Vec<_> = memory.filter_map(|s| s["memory_bytes"].as_u64()).collect();
    assert!(
        memory.iter().all(|bytes| *bytes > 64 << 20),
        "that of the program counts: {memory:?}"
    );
    kill(&daemon, "trainer");
    let after = daemon.status();
    assert_eq!(of_role(&after, "trainer"), waits, "{}", daemon.logs());
    assert_eq!(of_role(&after, "rollout"), of_role(&before, "rollout"));
    assert_eq!(programs(&daemon), waiting, "{}", daemon.logs());
    assert_eq!(after["incidents"][0]["outcome"], "recovered");
    let said = "the program is the one that waited";
    assert_eq!(of_ranks(&daemon).matches(said).count(), 2);

    // Again, from one to the next, and the program is killed, not its shim. A fault before the restarted gang's first
    // step would rightly restart the task.
    daemon.until_step(after["incidents"][0]["step"].as_u64().unwrap() + 2);
    let again = until_ready(&mut daemon);
    let waits = ready(&again, "trainer");
    strike(*programs(&daemon).first().unwrap(), Signal::SIGKILL);
    let status = daemon.until("the program's death is over", |status| {
        let incidents = status["incidents"].as_array().unwrap();
        incidents.len() == 2 && incidents[1]["outcome"] == "recovered"
    });
    assert_eq!(of_role(&status, "trainer"), waits, "{}", daemon.logs());
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_eq!(daemon.processes(), [], "no spare outlives its job");
    assert_consumed_once(&daemon.state_dir(), STEPS, 16);
}

#[test]
fn a_program_that_dies_or_stands_still_while_it_waits_is_replaced_and_nobody_is_blamed() {
    let mut daemon = start_torch(&torch(4000));
    let before = until_ready(&mut daemon);
    let dies = *ready(&before, "trainer").first().unwrap();
    strike(program_of(dies), Signal::SIGKILL);
    let again = daemon.until("another one to wait", |status| {
        let now = ready(status, "trainer");
        now.len() == 2 && !now.contains(&dies)
    });
    assert_eq!(again["incidents"], serde_json::json!([]));

    // It is told its rank, and does not hear it: the same life starts the program as any other.
    let waits = ready(&again, "trainer");
    let still = program_of(*waits.first().unwrap());
    strike(still, Signal::SIGSTOP);
    kill(&daemon, "trainer");
    let after = daemon.status();
    assert_eq!(of_role(&after, "trainer"), waits, "{}", daemon.logs());
    let now = programs(&daemon);
    assert!(now.len() == 2 && !now.contains(&still), "{now:?}");
    let said = "the program that waited is ended, and another one started: it did not answer";
    assert!(of_ranks(&daemon).contains(said), "{}", daemon.logs());
    let incidents = after["incidents"].as_array().unwrap();
    assert_eq!(incidents.len(), 1, "{after}");

    // While the daemon is away none waits.
    let waits = ready(&until_ready(&mut daemon), "trainer");
    let programs: Vec<_> = waits.iter().map(|shim| program_of(*shim)).collect();
    daemon.kill_daemon();
    daemon.wait_for("programs that wait to end with the daemon", |_| {
        !programs
            .iter()
            .any(|pid| lives(u64::from(pid.unsigned_abs())))
    });
    daemon.launch();
    until_ready(&mut daemon);
    let stopped = daemon.ctl(&["stop", "--wait"]);
    assert!(stopped.status.success(), "{}", daemon.logs());
    assert_eq!(daemon.processes(), [], "{}", daemon.logs());
}

/// Its ranks are right all the same.
#[test]
fn a_program_that_asks_for_its_rank_before_attach_has_no_spares_and_that_is_said_once() {
    let asks = "import os, runpy; int(os.environ['RANK']); runpy.run_path('train.py', run_name='__main__')";
    let argv: Vec<toml::Value> = ["{env:TORCH_PYTHON}", "-c", asks]
        .map(toml::Value::from)
        .to_vec();
    let mut daemon = start_torch(&torch(4000).set("trainer.command", "argv", argv));
    let said = "no spare for trainer is started any more until the job file is changed";
    let before = daemon.until("the engine's spare alone", |status| {
        ready(status, "rollout").len() == 1 && !status["spares"].to_string().contains("trainer")
    });
    let logged = |daemon: &Daemon| std::fs::read_to_string(daemon.stderr()).unwrap();
    daemon.wait_for("it to be said", |daemon| logged(daemon).contains(said));
    kill(&daemon, "trainer");
    let after = daemon.status();
    assert!(of_role(&after, "trainer").is_disjoint(&of_role(&before, "trainer")));
    let log = logged(&daemon);
    let sentence: Vec<_> = log.lines().filter(|line| line.contains(said)).collect();
    assert_eq!(sentence.len(), 1, "{log}");
    let why =
        "ValueError: invalid literal for int() with base 10: 'unknown until robustrl.attach()'";
    assert!(sentence[0].contains(why), "{sentence:?}");
}
