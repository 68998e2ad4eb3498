//! Who takes part in a job that runs, and where: nodes that are lost, late or closed, and roles that
//! follow the slots.
use crate::cluster::{Cluster, on};
use nix::sys::signal::Signal;
use robust_proto::v1;
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// Quick to give a node up: a beat is sent every second.
const QUICK: &str = "node_lost = { window_s = 3 }\n";
const TWO: &str = "\
[[node]]\nname = \"a\"\npools = { train = 2, rollout = 1, agent = 2 }\n\
[[node]]\nname = \"b\"\npools = { rollout = 2 }\n";

fn here(status: &v1::Status, node: &str) -> bool {
    let found = status.nodes.iter().find(|n| n.name == node);
    found.is_some_and(|n| n.state == "here")
}

/// Every role has a slot and runs there.
fn is_whole(status: &v1::Status) -> bool {
    status.roles.iter().all(|r| r.state == "running")
}

#[tokio::test]
async fn a_node_that_joins_while_the_job_runs_takes_what_waits_for_a_slot() {
    let mut cluster = Cluster::with(1000, TWO);
    cluster.lead();
    let waiting = |s: &v1::Status| s.step >= 2;
    let before = cluster.wait_for("steps without b", waiting).await;
    assert_eq!(on(&before, "a").len(), 5, "{before:#?}");
    assert_eq!(on(&before, ""), ["rollout-1", "rollout-2"]);
    // The job file does not know it.
    let pools = [
        "--name",
        "d",
        "--pools",
        "rollout=1",
        "--labels",
        "dc=x,rack=r7",
    ];
    cluster.join_with("d", "token", &pools);
    let joined = |s: &v1::Status| on(s, "d").len() == 1 && on(s, "").len() == 1;
    let status = cluster.wait_for("a rollout on d", joined).await;
    let d = status.nodes.iter().find(|n| n.name == "d").unwrap();
    assert_eq!((d.dc.as_str(), d.rack.as_str()), ("x", "r7"));
    assert_eq!(d.pools, [("rollout".to_owned(), 1)].into());
    cluster.join("b");
    let step = status.step;
    let whole = |s: &v1::Status| is_whole(s) && s.step > step + 2;
    let after = cluster.wait_for("all of it", whole).await;
    assert_eq!((on(&after, "b").len(), on(&after, "d").len()), (1, 1));
    assert!(after.incidents.is_empty(), "{after:#?}");
    assert_eq!(cluster.roles("d").len(), 1);
    // It is a node like any other: the leader's restart finds it again.
    cluster.kill("a");
    cluster.lead();
    let step = after.step;
    let again = cluster.wait_for("more steps", |s| s.step > step + 2).await;
    assert_eq!(on(&again, "d"), on(&after, "d"));
    assert!(again.incidents.is_empty(), "{again:#?}");
    // It says goodbye: what ran there goes on in the slot that is left.
    cluster.terminate("d");
    assert_eq!(cluster.end_of("d"), 143, "{}", cluster.log("d"));
    let left = |s: &v1::Status| on(s, "b").len() == 2 && is_whole(s);
    let gone = cluster.wait_for("its rollout to run on b", left).await;
    let [incident] = gone.incidents.as_slice() else {
        panic!("{gone:#?}");
    };
    assert_eq!(incident.rule, "node lost", "{incident:?}");
    assert!(
        incident.reason.starts_with("its node d left"),
        "{incident:?}"
    );
}

#[tokio::test]
async fn a_rank_whose_node_joins_late_waits_for_it_and_takes_no_rollouts_slot() {
    let mut cluster = Cluster::new(1000);
    cluster.lead();
    cluster.join("c");
    let there =
        |s: &v1::Status| on(s, "c").len() == 1 && s.roles.iter().any(|r| r.state != "starting");
    cluster.wait_for("c to have a rollout", there).await;
    cluster.join("b");
    let whole = |s: &v1::Status| is_whole(s) && s.step >= 2;
    let status = cluster.wait_for("the job to run", whole).await;
    assert!(
        on(&status, "b").contains(&"trainer-1".to_owned()),
        "{status:#?}"
    );
}

#[tokio::test]
async fn a_machine_that_stood_still_is_lost_and_what_it_still_runs_is_over_when_it_goes_on() {
    let nodes = "[[node]]\nname = \"a\"\npools = { train = 1, rollout = 1, agent = 1 }\n\
                 [[node]]\nname = \"b\"\npools = { train = 1, rollout = 1, agent = 1 }\n\
                 [[node]]\nname = \"c\"\npools = { train = 1, rollout = 1 }\n";
    let sections = format!("{QUICK}[trainer]\nranks = 2\n[rollout]\nreplicas = 2\n{nodes}");
    let mut cluster = Cluster::with(1000, &sections);
    cluster.lead();
    cluster.join("b");
    let placed = |s: &v1::Status| on(s, "b").len() == 3 && s.step >= 2 && is_whole(s);
    let before = cluster.wait_for("b to be full", placed).await;
    cluster.join("c");
    cluster.wait_for("c", |s| here(s, "c")).await;
    let stale: BTreeSet<i32> = cluster.roles("b").into_iter().collect();
    cluster.strike("b", Signal::SIGSTOP);
    let moved = |s: &v1::Status| on(s, "c").len() == 2 && s.step > before.step + 3;
    let lost = cluster.wait_for("its roles to run on c", moved).await;
    assert_eq!(on(&lost, "c"), ["trainer-1", "rollout-1"]);
    assert_eq!(on(&lost, ""), ["agent-1"], "it waits for a slot");
    let mut incidents: Vec<_> = lost
        .incidents
        .iter()
        .map(|i| (i.role.clone(), i.rule.clone()))
        .collect();
    incidents.sort();
    let expected =
        ["agent", "rollout", "trainer"].map(|role| (role.to_owned(), "node lost".to_owned()));
    assert_eq!(incidents, expected, "{lost:#?}");
    let of_gang = lost.incidents.iter().find(|i| i.role == "trainer").unwrap();
    assert!(
        of_gang
            .reason
            .starts_with("its node b was not heard for 3."),
        "{of_gang:?}"
    );
    assert!(
        of_gang
            .plan
            .contains("trainer-1 moves to slot 0 of pool `train`"),
        "{of_gang:?}"
    );
    cluster.strike("b", Signal::SIGCONT);
    let back = |s: &v1::Status| here(s, "b") && is_whole(s) && s.step > lost.step + 3;
    let after = cluster.wait_for("b with the agent", back).await;
    assert_eq!(on(&after, "b"), ["agent-1"], "{after:#?}");
    assert_eq!(after.incidents.len(), 3, "{after:#?}");
    let left: BTreeSet<i32> = cluster.roles("b").into_iter().collect();
    let logs = || cluster.logs();
    assert!(left.is_disjoint(&stale), "{stale:?} {left:?}\n{}", logs());
    alone(&cluster, &after, &["a", "b", "c"]);
}

/// I-1: of each place one process is left, and it is the one that the leader names.
fn alone(cluster: &Cluster, status: &v1::Status, nodes: &[&str]) {
    for node in nodes {
        let running: BTreeSet<i32> = cluster.roles(node).into_iter().collect();
        let there = status.roles.iter().filter(|r| r.node == *node);
        let named: BTreeSet<i32> = there.map(|r| r.pid.cast_signed()).collect();
        assert_eq!(running, named, "{node}: {status:#?}\n{}", cluster.logs());
    }
}

#[tokio::test]
async fn machines_lost_one_after_the_other_while_the_gang_forms_leave_one_gang() {
    let nodes = "[[node]]\nname = \"a\"\npools = { train = 1, rollout = 1, agent = 2 }\n\
                 [[node]]\nname = \"b\"\npools = { train = 1 }\n\
                 [[node]]\nname = \"c\"\npools = { train = 1 }\n";
    let sections = format!("{QUICK}[trainer]\nranks = 2\n[rollout]\nreplicas = 1\n{nodes}");
    let mut cluster = Cluster::with(1000, &sections);
    cluster.lead();
    cluster.join("b");
    let placed = |s: &v1::Status| on(s, "b") == ["trainer-1"] && s.step >= 2;
    cluster.wait_for("b to have the rank", placed).await;
    cluster.join("c");
    cluster.wait_for("c", |s| here(s, "c")).await;
    // The rank that is to start on `c` never does: that machine stands still, too, and is lost later.
    cluster.strike("b", Signal::SIGSTOP);
    cluster
        .wait_for("b to be lost", |s| on(s, "c") == ["trainer-1"])
        .await;
    cluster.strike("c", Signal::SIGSTOP);
    let both = |s: &v1::Status| !here(s, "b") && !here(s, "c");
    let lost = cluster.wait_for("both to be lost", both).await;
    let waits = cluster
        .wait_for("the rank to wait", |s| on(s, "") == ["trainer-1"])
        .await;
    assert_eq!(waits.step, lost.step);
    cluster.strike("c", Signal::SIGCONT);
    let trains = |s: &v1::Status| on(s, "c") == ["trainer-1"] && s.step > waits.step + 2;
    cluster.wait_for("the gang to train with c", trains).await;
    cluster.strike("b", Signal::SIGCONT);
    let back = |s: &v1::Status| here(s, "b") && s.step > waits.step + 5;
    let after = cluster.wait_for("b to be back", back).await;
    assert!(
        after.incidents.iter().all(|i| i.rule == "node lost"),
        "{after:#?}"
    );
    alone(&cluster, &after, &["a", "b", "c"]);
}

#[tokio::test]
async fn new_values_reach_the_roles_of_other_nodes() {
    let mut cluster = Cluster::with(1000, TWO);
    cluster.lead();
    cluster.join("b");
    let ready = |s: &v1::Status| is_whole(s) && s.step >= 1;
    let before = cluster.wait_for("all of it", ready).await;
    let mut control = cluster.control().await.unwrap();
    let update = |change: &str| v1::UpdateRequest {
        role: "rollout".to_owned(),
        changes: vec![change.to_owned()],
    };
    let refused = control.update(update("rollout.max_running=0")).await;
    let words = refused.unwrap_err();
    assert!(words.message().contains("max_running"), "{words}");
    let reply = control.update(update("rollout.max_running=3")).await;
    assert_eq!(reply.unwrap().into_inner().revision, 1);
    let old: Vec<_> = before.roles.iter().map(|r| r.incarnation).collect();
    let renewed = |s: &v1::Status| {
        let mut rollouts = s.roles.iter().filter(|r| r.role == "rollout");
        is_whole(s) && rollouts.all(|r| !old.contains(&r.incarnation))
    };
    let after = cluster.wait_for("new rollouts", renewed).await;
    let kept = |r: &&v1::RoleStatus| r.role != "rollout";
    let others = after.roles.iter().filter(kept);
    assert!(others.map(|r| r.incarnation).all(|i| old.contains(&i)));
    assert!(after.incidents.is_empty(), "{after:#?}");
    let revision = cluster.file("state-b/job.1.json");
    let job = std::fs::read_to_string(&revision).unwrap();
    let job: serde_json::Value = serde_json::from_str(&job).unwrap();
    assert_eq!(job["rollout"]["max_running"], 3);
    for pid in cluster.roles("b") {
        let line = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        let line = String::from_utf8_lossy(&line).into_owned();
        assert!(line.contains("job.1.json"), "{line}");
    }
    alone(&cluster, &after, &["a", "b"]);
}

#[tokio::test]
async fn more_rollouts_are_started_where_there_are_slots_and_fewer_end_without_a_fault() {
    let mut cluster = Cluster::with(1000, &format!("[rollout]\nreplicas = 1\n{TWO}"));
    cluster.lead();
    cluster.join("b");
    cluster
        .wait_for("a step", |s| s.step >= 1 && here(s, "b"))
        .await;
    let scale = |count| v1::ScaleRequest {
        role: "rollout".to_owned(),
        count,
    };
    let mut control = cluster.control().await.unwrap();
    let refused = control.scale(scale(4)).await.unwrap_err();
    let words = refused.message();
    assert!(
        words.contains("pool `rollout`") && words.contains("1 more"),
        "{words}"
    );
    let reply = control.scale(scale(3)).await.unwrap().into_inner();
    assert_eq!((reply.from, reply.to, reply.when.as_str()), (1, 3, "now"));
    let three = |s: &v1::Status| on(s, "b").len() == 2 && is_whole(s);
    let status = cluster.wait_for("two on b", three).await;
    assert_eq!(on(&status, "b"), ["rollout-1", "rollout-2"]);
    control.scale(scale(2)).await.unwrap();
    let two = |s: &v1::Status| on(s, "b") == ["rollout-1"] && s.step > status.step + 2;
    let after = cluster.wait_for("one on b", two).await;
    assert!(after.incidents.is_empty(), "{after:#?}");
    assert_eq!(cluster.roles("b").len(), 1);
    // The number outlives the leader.
    cluster.kill("a");
    cluster.lead();
    let more = |s: &v1::Status| s.step > after.step + 2 && is_whole(s);
    let again = cluster.wait_for("more steps", more).await;
    assert_eq!(on(&again, "b"), ["rollout-1"], "{again:#?}");
}

#[tokio::test]
async fn on_a_cordoned_node_nothing_new_is_started() {
    let mut cluster = Cluster::with(1000, TWO);
    cluster.lead();
    cluster.join("b");
    let ready = |s: &v1::Status| is_whole(s) && s.step >= 1;
    cluster.wait_for("all of it", ready).await;
    let mut control = cluster.control().await.unwrap();
    let cordon = |out| v1::CordonRequest {
        node: "b".to_owned(),
        out,
    };
    let foresee = |act| v1::ForecastRequest {
        acts: vec![v1::ForecastAct { act: Some(act) }],
        ..Default::default()
    };
    let asked = foresee(v1::forecast_act::Act::Cordon(cordon(true)));
    let foreseen = control.forecast(asked).await.unwrap().into_inner();
    let plan = "nothing new is started on b; what runs there goes on";
    assert_eq!(foreseen.plan, [plan], "{foreseen:#?}");
    let kill = v1::InjectRequest {
        fault: "kill".to_owned(),
        role: "rollout".to_owned(),
        index: Some(1),
        ..Default::default()
    };
    let asked = foresee(v1::forecast_act::Act::Inject(kill));
    let foreseen = control.forecast(asked).await.unwrap().into_inner();
    assert_eq!(foreseen.restarts, ["rollout-1"], "{foreseen:#?}");
    assert!(foreseen.whole_ms.is_some(), "{foreseen:#?}");
    let nowhere = v1::CordonRequest {
        node: "z".to_owned(),
        out: true,
    };
    let asked = foresee(v1::forecast_act::Act::Cordon(nowhere));
    let foreseen = control.forecast(asked).await.unwrap().into_inner();
    let why = "the job's nodes are `a`, `b`";
    assert!(foreseen.refused.contains(why), "{foreseen:#?}");
    // Nothing of that was done.
    let untouched = |s: &v1::Status| !s.nodes[1].cordoned && s.incidents.is_empty();
    cluster.wait_for("nothing to be done", untouched).await;
    control.cordon(cordon(true)).await.unwrap();
    let status = cluster
        .wait_for("the cordon", |s| s.nodes[1].cordoned)
        .await;
    assert_eq!(on(&status, "b").len(), 2, "what runs there goes on");
    cluster.signal_roles("b", Signal::SIGKILL);
    let homeless = |s: &v1::Status| on(s, "").len() == 2 && s.step > status.step + 2;
    let waits = cluster.wait_for("both to wait", homeless).await;
    for incident in &waits.incidents {
        assert!(
            incident.plan.ends_with("waits for a slot: no slot is free"),
            "{incident:?}"
        );
    }
    control.cordon(cordon(false)).await.unwrap();
    let back = |s: &v1::Status| is_whole(s) && s.step > waits.step + 2;
    let after = cluster.wait_for("both to be back", back).await;
    assert_eq!(on(&after, "b").len(), 2);
    let unknown = v1::CordonRequest {
        node: "z".to_owned(),
        out: true,
    };
    let refused = control.cordon(unknown).await.unwrap_err();
    assert!(
        refused.message().contains("the job's nodes are `a`, `b`"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_node_whose_roles_die_again_and_again_is_cordoned_and_left_until_an_operator_lets_it_in()
{
    let nodes = "[[node]]\nname = \"a\"\npools = { train = 2, rollout = 1, agent = 2 }\n\
                 [[node]]\nname = \"b\"\npools = { rollout = 1 }\n\
                 [[node]]\nname = \"c\"\npools = { rollout = 1 }\n";
    let sections = format!("[restart]\ncordon_after = 2\n[rollout]\nreplicas = 2\n{nodes}");
    let mut cluster = Cluster::with(1000, &sections);
    cluster.lead();
    cluster.join("b");
    let placed = |s: &v1::Status| on(s, "b").len() == 1 && s.step >= 1 && is_whole(s);
    cluster.wait_for("b to have a rollout", placed).await;
    cluster.join("c");
    cluster.wait_for("c", |s| here(s, "c")).await;
    let faults = |s: &v1::Status| (s.nodes[1].faults, s.nodes[1].cordoned_for_faults);
    cluster.signal_roles("b", Signal::SIGKILL);
    let again = |s: &v1::Status| s.incidents.len() == 1 && on(s, "b").len() == 1 && is_whole(s);
    let once = cluster.wait_for("it to run on b again", again).await;
    assert_eq!(faults(&once), (1, false));
    // What dies within five seconds counts as one fault.
    let first = once.nodes[1].last_fault_ms;
    let apart = |s: &v1::Status| s.now_ms > first + 5000;
    cluster.wait_for("a while to go by", apart).await;
    cluster.signal_roles("b", Signal::SIGKILL);
    let moved = |s: &v1::Status| on(s, "c") == ["rollout-1"] && is_whole(s);
    let left = cluster.wait_for("it to run on c", moved).await;
    assert_eq!(faults(&left), (2, true), "{left:#?}");
    assert_eq!((left.nodes[0].faults, left.nodes[2].faults), (0, 0));
    let alarm = left.alarms.iter().find(|a| a.kind == "node cordoned");
    assert!(
        alarm.unwrap().text.contains("`robustctl uncordon b`"),
        "{alarm:?}"
    );
    // Another leader knows of it.
    cluster.kill("a");
    cluster.lead();
    let step = left.step;
    let more = |s: &v1::Status| s.step > step && is_whole(s) && here(s, "b");
    let kept = cluster.wait_for("more steps", more).await;
    assert_eq!(faults(&kept), (2, true));
    let mut control = cluster.control().await.unwrap();
    let (node, out) = ("b".to_owned(), false);
    control
        .cordon(v1::CordonRequest { node, out })
        .await
        .unwrap();
    let open =
        |s: &v1::Status| !s.nodes[1].cordoned && s.alarms.iter().all(|a| a.kind != "node cordoned");
    let after = cluster.wait_for("b to be open", open).await;
    assert_eq!(faults(&after), (0, false));
}

/// Hands on what comes to its port, both ways, and keeps a copy of it all.
fn tap(to: u16) -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let seen: Arc<Mutex<Vec<u8>>> = Arc::default();
    let copy = |mut from: TcpStream, mut to: TcpStream, seen: Arc<Mutex<Vec<u8>>>| {
        std::thread::spawn(move || {
            let mut piece = vec![0; 1 << 16];
            while let Ok(read @ 1..) = from.read(&mut piece) {
                seen.lock().unwrap().extend_from_slice(&piece[..read]);
                if to.write_all(&piece[..read]).is_err() {
                    return;
                }
            }
            let _ = to.shutdown(Shutdown::Both);
        });
    };
    let all = Arc::clone(&seen);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let Ok(leader) = TcpStream::connect(("127.0.0.1", to)) else {
                continue;
            };
            let (there, back) = (stream.try_clone().unwrap(), leader.try_clone().unwrap());
            copy(there, leader, Arc::clone(&all));
            copy(back, stream, Arc::clone(&all));
        }
    });
    (port, seen)
}

#[tokio::test]
async fn whoever_reads_along_between_two_daemons_reads_nothing_of_the_job() {
    let mut cluster = Cluster::with(1000, TWO);
    cluster.lead();
    let (port, seen) = tap(cluster.port());
    cluster.join_at("b", port, "token", &["--name", "b"]);
    let whole = |s: &v1::Status| is_whole(s) && on(s, "b").len() == 2 && s.step > 5;
    cluster.wait_for("steps with b", whole).await;
    let seen = seen.lock().unwrap().clone();
    let has = |text: &str| seen.windows(text.len()).any(|part| part == text.as_bytes());
    // A connection begins with a record of the handshake (type 22).
    assert!(
        seen.len() > 10_000 && seen.starts_with(&[22, 3]),
        "{} bytes",
        seen.len()
    );
    // Paths of calls, the job as nodes are told it, the header that carries a session's key, messages of roles.
    for plain in [
        "robust.v1",
        "NodeHost",
        "rollout",
        "tokenizer",
        "robust-session",
        "pools",
    ] {
        assert!(!has(plain), "{plain} was read");
    }
}
