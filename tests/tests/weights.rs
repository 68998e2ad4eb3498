//! Weights on their way: every party of a pull killed, stopped or corrupted in the middle of it. After
//! each, every rollout serves, byte for byte, what was published, and training goes on.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, SlowLoopback, roles};
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

/// A version of this job takes half a second and more to reach all rollouts.
const MBIT: u32 = 30;

fn long_job() -> JobFile {
    JobFile::small()
        .set("job", "steps", 400)
        .set("weights", "stall_timeout_s", 2.0)
}

/// A daemon whose pulls take their time; none where that cannot be had.
fn slow(job: &JobFile) -> Option<(SlowLoopback, Daemon)> {
    let net = SlowLoopback::try_new(MBIT)?;
    let daemon = Daemon::start_on(job, &net);
    Some((net, daemon))
}

/// A rollout in the middle of a pull, by who sends: (puller's index, role and index of the source).
fn in_mid_pull(status: &Value, from: &str) -> Option<(u64, String)> {
    roles(status, "rollout").iter().find_map(|r| {
        let (bytes, total) = (r["pull_bytes"].as_u64()?, r["pull_total"].as_u64()?);
        let (role, index) = r["pull_source"].as_str()?.split_once('-')?;
        let under_way = 0 < bytes && bytes < total && role == from;
        under_way.then(|| (r["index"].as_u64().unwrap(), index.to_owned()))
    })
}

/// Waits until somebody is in the middle of a pull from this role; the source's index.
fn until_mid_pull(daemon: &mut Daemon, from: &str) -> String {
    let mut source = None;
    let what = format!("a pull from a {from} to be under way");
    daemon.until(&what, |s| {
        source = in_mid_pull(s, from).map(|(_, index)| index);
        source.is_some()
    });
    source.unwrap()
}

fn goes_on(daemon: &mut Daemon) {
    let status = daemon.until_all_serve_what_was_published();
    let step = status["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    daemon.until_all_serve_what_was_published();
}

fn strike(daemon: &Daemon, args: &[&str]) -> Value {
    let reply = daemon.json(&[&["inject", "--wait", "--timeout", "120"], args].concat());
    let incident = reply["incident"].clone();
    assert_eq!(
        incident["outcome"],
        "recovered",
        "{reply}\n{}",
        daemon.logs()
    );
    incident
}

#[test]
fn a_relay_killed_in_the_middle_of_a_pull_costs_nobody_its_version() {
    let Some((_net, mut daemon)) = slow(&long_job()) else {
        return;
    };
    daemon.until_step(2);
    for _ in 0..3 {
        let relay = until_mid_pull(&mut daemon, "rollout");
        let incident = strike(&daemon, &["--kill", "rollout", "--index", &relay]);
        assert_eq!(incident["rule"], "exit", "{incident}");
        goes_on(&mut daemon);
    }
}

#[test]
fn a_relay_stopped_in_the_middle_of_a_pull_is_left_for_another_source() {
    let Some((_net, mut daemon)) = slow(&long_job()) else {
        return;
    };
    daemon.until_step(2);
    let relay = until_mid_pull(&mut daemon, "rollout");
    strike(&daemon, &["--hang", "rollout", "--index", &relay]);
    goes_on(&mut daemon);
}

#[test]
fn a_trainer_killed_while_it_publishes_publishes_again_and_nobody_serves_a_part() {
    let Some((_net, mut daemon)) = slow(&long_job()) else {
        return;
    };
    daemon.until_step(2);
    for rank in ["0", "1"] {
        until_mid_pull(&mut daemon, "trainer");
        let incident = strike(&daemon, &["--kill", "trainer", "--index", rank]);
        assert_eq!(incident["rule"], "exit", "{incident}");
        goes_on(&mut daemon);
    }
}

#[test]
fn corrupt_bytes_in_a_relays_memory_are_pulled_elsewhere_and_the_relay_is_named() {
    // Steps long enough for a rollout to be restarted within one.
    let job = long_job()
        .set("batch", "prompts", 256)
        .set("rollout", "replicas", 2)
        .set("detect.corruption", "reports", 1);
    let mut daemon = Daemon::start(&job);
    daemon.until_step(1);
    let version = daemon.status()["weight_version"].clone();
    let fresh = daemon.until("both rollouts to serve a new version", |s| {
        let newest = |r: &Value| r["weight_version"] == s["weight_version"];
        s["weight_version"] != version && roles(s, "rollout").into_iter().all(newest)
    });
    let damaged = roles(&fresh, "rollout")[0].clone();
    daemon.flip_in_memory(&damaged);
    // The only one left that has the version is damaged; the other's successor asks it first.
    daemon.json(&["inject", "--kill", "rollout", "--index", "1"]);
    let of_corruption = |s: &Value| {
        let incidents = s["incidents"].as_array().cloned().unwrap_or_default();
        incidents.into_iter().find(|i| i["rule"] == "corruption")
    };
    let status = daemon.until("the damage to be found", |s| of_corruption(s).is_some());
    let incident = of_corruption(&status).unwrap();
    assert_eq!(incident["role"], "rollout", "{incident}");
    for key in ["index", "incarnation"] {
        assert_eq!(incident[key], damaged[key], "{key} of {incident}");
    }
    let served = daemon.until("both rollouts to be at work again", |s| {
        let incidents = s["incidents"].as_array().cloned().unwrap_or_default();
        let over = |i: &Value| i["outcome"] == "recovered";
        incidents.len() == 2 && incidents.iter().all(over)
    });
    assert_eq!(roles(&served, "rollout").len(), 2);
    goes_on(&mut daemon);
}

#[test]
fn weights_that_are_swapped_between_turns_reach_every_rollout() {
    let mut daemon = Daemon::start(&long_job().set("rollout", "swap", "turn"));
    daemon.until_step(2);
    goes_on(&mut daemon);
}

/// Where the sockets of a process take calls, on this machine.
fn open_ports(pid: u64) -> BTreeSet<u16> {
    let links = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
    let links = links
        .flatten()
        .flatten()
        .map(|fd| std::fs::read_link(fd.path()));
    let own: BTreeSet<String> = links
        .flatten()
        .filter_map(|to| {
            Some(
                to.to_str()?
                    .strip_prefix("socket:[")?
                    .trim_end_matches(']')
                    .to_owned(),
            )
        })
        .collect();
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let port = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // 0A: it listens.
        let listens = fields.get(3) == Some(&"0A") && own.contains(*fields.get(9)?);
        let port = u16::from_str_radix(fields.get(1)?.rsplit(':').next()?, 16).ok()?;
        listens.then_some(port)
    };
    table.lines().skip(1).filter_map(port).collect()
}

/// What UCX's TCP transport takes for its own from anybody: its magic number, and the order to write
/// eight bytes at an address of the sender's choice, here one that nobody has. The sender waits until the
/// other side has done something about it, or for a moment.
fn order_to_write(port: u16) {
    let mut packet = 0xCAFE_BABE_1234_5678_u64.to_le_bytes().to_vec();
    // UCT_TCP_EP_PUT_REQ_AM_ID, and the length of what it says: where, how much, which one.
    packet.push(33);
    packet.extend(20_u32.to_le_bytes());
    packet.extend(4096_u64.to_le_bytes());
    packet.extend(8_u64.to_le_bytes());
    packet.extend(1_u32.to_le_bytes());
    packet.extend([0xAA; 8]);
    let Ok(mut to) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else {
        return;
    };
    to.set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    // Refused in the middle is refused.
    let _ = to.write_all(&packet);
    let _ = to.read(&mut [0; 64]);
}

/// Sends the order to every port of every role; how many there were.
fn attack(status: &Value) -> usize {
    let all = status["roles"].as_array().unwrap();
    let ports = all
        .iter()
        .flat_map(|role| open_ports(role["pid"].as_u64().unwrap()));
    ports.map(order_to_write).count()
}

/// Sends the order to every port of a job whose weights take the named road; the status afterwards,
/// after further steps.
fn unharmed_by_an_attack(daemon: &mut Daemon, status: &Value) -> Value {
    assert!(attack(status) > 0, "rollouts answer HTTP");
    goes_on(daemon);
    let after = daemon.status();
    assert_eq!(after["incidents"].as_array().unwrap().len(), 0, "{after}");
    let pids = |status: &Value| -> Vec<Value> {
        let all = status["roles"].as_array().unwrap();
        all.iter().map(|role| role["pid"].clone()).collect()
    };
    assert_eq!(pids(&after), pids(status));
    after
}

#[test]
fn what_anybody_may_order_of_ucx_changes_nothing_in_a_job_on_shared_memory() {
    let mut daemon = Daemon::start(&long_job());
    let status = daemon.until_step(2);
    for rank in roles(&status, "trainer") {
        let ports = open_ports(rank["pid"].as_u64().unwrap());
        assert_eq!(ports, BTreeSet::new(), "a rank takes calls by the network");
    }
    unharmed_by_an_attack(&mut daemon, &status);
}

#[test]
fn what_anybody_may_order_of_ucx_changes_nothing_in_a_job_on_tls_and_is_counted() {
    let mut daemon = Daemon::start(&long_job().set("weights", "transport", "tls"));
    let status = daemon.until_step(2);
    for (role, port) in [("trainer", 1), ("rollout", 2)] {
        for of in roles(&status, role) {
            let ports = open_ports(of["pid"].as_u64().unwrap());
            assert_eq!(ports.len(), port, "{role}: one for weights, HTTP beside it");
        }
    }
    let pulled = |of: &&&Value| of["pull_road"] == "tls";
    assert!(
        roles(&status, "rollout").iter().any(|of| pulled(&of)),
        "{status}"
    );
    let after = unharmed_by_an_attack(&mut daemon, &status);
    for role in ["trainer", "rollout"] {
        for of in roles(&after, role) {
            assert!(of["callers_refused"].as_u64() >= Some(1), "{of}");
        }
    }
}

/// What the test above keeps out is real, and the transport's name says so.
#[test]
fn the_same_order_kills_the_roles_of_a_job_on_ucx_over_tcp() {
    let job = long_job().set("weights", "transport", "ucx-tcp-unsafe");
    let mut daemon = Daemon::start(&job);
    let status = daemon.until_step(2);
    let rank = roles(&status, "trainer")[0]["pid"].as_u64().unwrap();
    let ports = open_ports(rank);
    assert!(!ports.is_empty());
    ports.into_iter().for_each(order_to_write);
    let status = daemon.until("the rank to be dead of it", |s| {
        !s["incidents"].as_array().unwrap().is_empty()
    });
    let incident = &status["incidents"][0];
    assert_eq!(incident["role"], "trainer", "{incident}");
    assert_eq!(incident["rule"], "exit", "{incident}");
    let events = daemon.events("incident").join("\n");
    assert!(events.contains("killed by signal 11"), "{events}");
}

#[test]
fn of_bfloat16_versions_between_machines_only_what_changed_is_sent() {
    let job = long_job()
        .set("weights", "transport", "tls")
        .set("rollout", "dtype", "bfloat16")
        .set("train", "lr", 1e-6);
    let mut daemon = Daemon::start(&job);
    let few = |of: &Value| {
        let of = |name: &str| of[name].as_u64().unwrap();
        let (patched, fetched) = (of("pull_patched"), of("pull_fetched"));
        // Whole chunks are none of them, and all of them are an index and a little.
        patched > 0 && fetched < of("pull_total") / 4
    };
    let by_changes = |s: &Value| roles(s, "rollout").iter().all(|of| few(of));
    daemon.until("all rollouts to pull what changed", by_changes);
    goes_on(&mut daemon);
    strike(&daemon, &["--kill", "rollout"]);
    // Its next life has nothing that patches could be applied to, and then it has.
    goes_on(&mut daemon);
    let status = daemon.until("all rollouts to pull what changed again", by_changes);
    let wrong = |of: &&&Value| of["pull_wrong_patches"] != 0;
    assert_eq!(
        roles(&status, "rollout").iter().filter(wrong).count(),
        0,
        "{status}"
    );
}
