//! Real jobs on several daemons: whole machines killed, stopped, cut off, and added.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use robust_tests::{Capture, Cluster, JobFile, Net, assert_consumed_once, bin, roles};
use robustd::nodes::JobSecret;
use serde_json::Value;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

const FULL: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
const PER_STEP: usize = 16;

/// A rank, a rollout and an agent on `a` (the leader) and on `b`; another rollout and one free slot
/// of each kind on `c`.
fn job(steps: u64) -> JobFile {
    let spare: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];
    JobFile::small()
        .set("job", "steps", steps as i64)
        .set("detect.node_lost", "window_s", 3.0)
        .nodes(&[("a", FULL), ("b", FULL), ("c", spare)])
}

/// The nodes join one after the other, so that everybody's place is known.
fn three(mut cluster: Cluster, join: impl Fn(&mut Cluster, &str)) -> Cluster {
    join(&mut cluster, "b");
    cluster
        .leader
        .until("b to be full", |s| on(s, "b").len() == 3);
    join(&mut cluster, "c");
    cluster
}

fn places(status: &Value) -> Vec<(String, u64, String)> {
    let all = status["roles"].as_array().unwrap();
    let place = |r: &Value| {
        let name = format!("{}-{}", r["role"].as_str().unwrap(), r["index"]);
        let node = r["node"].as_str().unwrap().to_owned();
        (name, r["pid"].as_u64().unwrap(), node)
    };
    all.iter().map(place).collect()
}

fn on(status: &Value, node: &str) -> Vec<String> {
    let places = places(status).into_iter();
    places.filter(|p| p.2 == node).map(|p| p.0).collect()
}

fn is_here(status: &Value, node: &str) -> bool {
    let nodes = status["nodes"].as_array().unwrap();
    nodes
        .iter()
        .any(|n| n["name"] == node && n["state"] == "here")
}

/// Every role has a slot and serves.
fn is_whole(status: &Value) -> bool {
    let all = status["roles"].as_array().unwrap();
    let rollouts = roles(status, "rollout");
    all.iter().all(|r| r["state"] == "running") && rollouts.iter().all(|r| r["admitted"] == true)
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap()
}

/// The job ends, and its nodes with it.
fn finish(mut cluster: Cluster, steps: u64, nodes: &[&str]) {
    assert_eq!(cluster.leader.finish(), 0, "{}", cluster.logs());
    for node in nodes {
        assert_eq!(cluster.end_of(node), 0, "{}", cluster.logs());
        assert!(cluster.processes(node).is_empty(), "{node}");
    }
    assert_consumed_once(&cluster.leader.state_dir(), steps, PER_STEP);
}

#[test]
fn the_leaders_death_costs_no_role_on_any_node() {
    let steps = 12;
    let join = |cluster: &mut Cluster, node: &str| cluster.join(node, &[]);
    let mut cluster = three(Cluster::start(&job(steps)), join);
    let ready = |s: &Value| step(s) >= 2 && is_whole(s);
    let before = cluster.leader.until("the second step", ready);
    assert_eq!(on(&before, "b"), ["trainer-1", "rollout-1", "agent-1"]);
    assert_eq!(on(&before, "c"), ["rollout-2"]);
    cluster.leader.kill_daemon();
    cluster.leader.launch();
    let after = cluster.leader.until_step(step(&before) + 3);
    assert_eq!(places(&before), places(&after), "{}", cluster.logs());
    assert_eq!(after["incidents"].as_array().unwrap().len(), 0, "{after}");
    finish(cluster, steps, &["b", "c"]);
}

/// Strikes `b`, and waits until what ran there runs on `c`.
fn lose_b(cluster: &mut Cluster, strike: impl FnOnce(&mut Cluster)) -> Value {
    let ready = |s: &Value| step(s) >= 2 && is_whole(s);
    let before = cluster.leader.until("the second step", ready);
    assert_eq!(on(&before, "b"), ["trainer-1", "rollout-1", "agent-1"]);
    strike(cluster);
    let after = cluster.leader.until("the roles of b to run on c", |s| {
        let incidents = s["incidents"].as_array().unwrap();
        let closed = incidents.iter().all(|i| i["outcome"] != "recovering");
        on(s, "b").is_empty() && is_whole(s) && closed && step(s) >= step(&before) + 2
    });
    assert_eq!(on(&after, "c").len(), 4, "{after}");
    let incidents = after["incidents"].as_array().unwrap();
    for (role, moved) in [
        ("trainer", "trainer-1 moves to slot 0 of pool `train`"),
        ("rollout", "rollout-1 moves to slot 1 of pool `rollout`"),
        ("agent", "agent-1 moves to slot 0 of pool `agent`"),
    ] {
        let of: Vec<_> = incidents.iter().filter(|i| i["role"] == role).collect();
        let [incident] = of.as_slice() else {
            panic!("{role}: {after}\n{}", cluster.logs());
        };
        assert_eq!(incident["rule"], "node lost", "{incident}");
        assert_eq!(incident["outcome"], "recovered", "{incident}");
        let reason = incident["reason"].as_str().unwrap();
        assert!(reason.starts_with("its node b was not heard"), "{reason}");
        let plan = incident["plan"].as_str().unwrap();
        assert!(plan.contains(moved), "{plan}");
    }
    after
}

#[test]
fn a_machine_that_dies_with_all_its_roles_costs_no_committed_step() {
    let steps = 8;
    let join = |cluster: &mut Cluster, node: &str| cluster.join(node, &[]);
    let mut cluster = three(Cluster::start(&job(steps)), join);
    lose_b(&mut cluster, |c| c.strike("b", Signal::SIGKILL));
    let restored = cluster.leader.events("restored");
    let last = restored.last().unwrap();
    assert!(last.contains(" memory"), "{restored:?}");
    finish(cluster, steps, &["c"]);
}

/// `b` is back: its old roles end, the job goes on as it was.
fn is_back(cluster: &mut Cluster, before: &Value) {
    cluster.leader.until("b to join again", |s| is_here(s, "b"));
    let after = cluster.leader.until_step(step(before) + 3);
    assert_eq!(places(before), places(&after), "{}", cluster.logs());
    let left = cluster.processes("b");
    assert_eq!(left.len(), 1, "I-1: only its daemon is left: {left:?}");
}

#[test]
fn a_machine_that_stops_is_lost_and_what_it_still_runs_is_ended_when_it_goes_on() {
    let steps = 30;
    let join = |cluster: &mut Cluster, node: &str| cluster.join(node, &[]);
    let mut cluster = three(Cluster::start(&job(steps)), join);
    let after = lose_b(&mut cluster, |c| c.strike("b", Signal::SIGSTOP));
    let stale = cluster.processes("b").len();
    assert_eq!(stale, 4, "the daemon and three roles stand still");
    cluster.strike("b", Signal::SIGCONT);
    is_back(&mut cluster, &after);
    finish(cluster, steps, &["b", "c"]);
}

#[test]
fn a_machine_that_is_cut_off_is_lost_and_its_stale_roles_do_no_harm_when_it_is_back() {
    let Some(net) = Net::try_new() else {
        return;
    };
    let steps = 45;
    let side = |node: &str| usize::from(node == "b");
    let join = |cluster: &mut Cluster, node: &str| cluster.join_on(node, &net, side(node));
    let mut cluster = three(Cluster::start_on(&job(steps), &net), join);
    let after = lose_b(&mut cluster, |_| net.cut(true));
    net.cut(false);
    is_back(&mut cluster, &after);
    finish(cluster, steps, &["b", "c"]);
}

#[test]
fn a_leader_that_stood_still_blames_nobody_on_other_machines_for_what_it_did_not_hear() {
    let join = |cluster: &mut Cluster, node: &str| cluster.join(node, &[]);
    let mut cluster = three(Cluster::start(&job(400)), join);
    let before = cluster.leader.until("everybody to serve", is_whole);
    // Longer than the window of any rule of this job that judges silence.
    cluster.leader.stand_still(Duration::from_secs(8));
    let after = cluster.leader.until_step(step(&before) + 3);
    let incidents = after["incidents"].as_array().unwrap();
    assert_eq!(incidents.len(), 0, "{incidents:?}\n{}", cluster.logs());
    assert_eq!(places(&before), places(&after), "{}", cluster.logs());
}

/// How the weights of a rollout came, and whether its source has the same node.
fn ways(status: &Value) -> Vec<(String, bool, bool)> {
    let node = |name: &str| {
        let places = places(status).into_iter();
        places.filter(|p| p.0 == name).map(|p| p.2).next()
    };
    let way = |r: &Value| {
        let road = r["pull_road"].as_str().unwrap().to_owned();
        let from = node(r["pull_source"].as_str().unwrap());
        let here = from.as_deref() == r["node"].as_str();
        (road, here, r["pull_patched"].as_u64() > Some(0))
    };
    roles(status, "rollout").into_iter().map(way).collect()
}

#[test]
fn weights_cross_machines_by_tls_and_only_what_changed_and_within_one_go_through_memory() {
    let Some(net) = Net::try_new() else {
        return;
    };
    let steps = 12;
    let side = |node: &str| usize::from(node == "b");
    let join = |cluster: &mut Cluster, node: &str| cluster.join_on(node, &net, side(node));
    let job = job(steps)
        .set("rollout", "dtype", "bfloat16")
        .set("train", "lr", 1e-6);
    let mut cluster = three(Cluster::start_on(&job, &net), join);
    let far = |(road, here, patched): &(String, bool, bool)| road == "tls" && !here && *patched;
    let status = cluster.leader.until("what changed to cross machines", |s| {
        is_whole(s) && ways(s).iter().any(far)
    });
    for (road, here, _) in ways(&status) {
        // Those on one machine may all have their weights from elsewhere.
        assert!(!here || road == "shm", "{:?}", ways(&status));
    }
    finish(cluster, steps, &["b", "c"]);
}

/// One authority is left, and everybody is certified by it.
fn is_certified_by_one(shown: &Value, all: usize) -> bool {
    let certified = shown["certified"].as_array().unwrap();
    let by_it = certified.iter().all(|c| c["authority"] == shown["name"]);
    shown["stage"] == "" && certified.len() == all && by_it
}

#[test]
fn the_leaders_secret_is_replaced_under_roles_that_move_weights_between_machines() {
    let Some(net) = Net::try_new() else {
        return;
    };
    let steps = 60;
    let side = |node: &str| usize::from(node == "b");
    let join = |cluster: &mut Cluster, node: &str| cluster.join_on(node, &net, side(node));
    let mut cluster = three(Cluster::start_on(&job(steps), &net), join);
    let before = cluster.leader.until("everybody to serve", is_whole);
    // Seven roles and two nodes.
    let all = 9;
    let first = cluster.leader.json(&["ca", "show"]);
    assert!(is_certified_by_one(&first, all), "{first}");
    assert!(cluster.leader.ctl(&["ca", "rotate"]).status.success());
    let is_over = |leader: &robust_tests::Daemon| {
        let shown = leader.json(&["ca", "show"]);
        shown["name"] != first["name"] && is_certified_by_one(&shown, all)
    };
    cluster.leader.wait_for("end of the rotation", is_over);
    let at = step(&cluster.leader.status());
    let after = cluster.leader.until_step(at + 2);
    assert_eq!(places(&before), places(&after), "{}", cluster.logs());
    // New lives, which have never known the secret before, pull from and are asked by those that live on.
    for index in ["0", "1"] {
        let kill = ["inject", "--kill", "rollout", "--index", index, "--wait"];
        let struck = cluster.leader.ctl(&kill);
        assert!(struck.status.success(), "{struck:?}\n{}", cluster.logs());
    }
    let whole = cluster.leader.until("both to serve again", is_whole);
    let last = cluster.leader.until_step(step(&whole) + 2);
    let incidents = last["incidents"].as_array().unwrap();
    assert_eq!(incidents.len(), 2, "{incidents:?}\n{}", cluster.logs());
    let lived = |status: &Value| {
        let all = places(status).into_iter();
        let lived = all.filter(|p| p.0 != "rollout-0" && p.0 != "rollout-1");
        lived.collect::<Vec<_>>()
    };
    assert_eq!(lived(&before), lived(&last), "{}", cluster.logs());
    assert!(cluster.leader.ctl(&["stop", "--wait"]).status.success());
}

/// What a client of the router asks for, in curl's words.
const GENERATE: [&str; 4] = [
    "-H",
    "Content-Type: application/json",
    "-d",
    r#"{"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4}}"#,
];

/// What somebody hears who listens on the way between the machines.
#[test]
fn nothing_of_a_job_crosses_machines_in_clear() {
    let Some(net) = Net::try_new() else {
        return;
    };
    let capture = Capture::start(&net);
    let steps = 6;
    let side = |node: &str| if node == "b" { 1 } else { 2 };
    let join = |cluster: &mut Cluster, node: &str| cluster.join_on(node, &net, side(node));
    let at = |port: u16| format!("{}:{port}", net.leader());
    let (control, router, metrics) = (at(7070), at(7080), at(9464));
    let listens = [
        "--listen",
        &control,
        "--router",
        &router,
        "--metrics",
        &metrics,
    ];
    let mut cluster = three(Cluster::start_on_with(&job(steps), &net, &listens), join);
    cluster.leader.until("everybody to serve", is_whole);
    let state = cluster.leader.state_dir();
    let read = |path: &str| std::fs::read(path).unwrap();
    let job: Value =
        serde_json::from_slice(&read(state.join("job.json").to_str().unwrap())).unwrap();
    let tokenizer = read(job["data"]["tokenizer"].as_str().unwrap());
    let model = job["model"]["path"].as_str().unwrap();
    let weights = read(&format!("{model}/model.safetensors"));
    let secret = std::fs::read_to_string(state.join("authority.key")).unwrap();
    let token = JobSecret::of(&secret).job_token();
    let shared = std::fs::read_to_string(state.join("nodes.token")).unwrap();
    let ports = ["rollout-0", "rollout-1", "rollout-2"].map(|rollout| {
        let logs = [
            state.clone(),
            cluster.state_dir("b"),
            cluster.state_dir("c"),
        ];
        let of =
            |state: &PathBuf| std::fs::read_to_string(state.join(format!("logs/{rollout}.log")));
        let text = logs.iter().find_map(|state| of(state).ok()).unwrap();
        let (_, addr) = text.rsplit_once("http_addr=").unwrap();
        let addr: SocketAddr = addr.split_whitespace().next().unwrap().parse().unwrap();
        addr.port()
    });
    let on_side = |side: usize, program: &[&str]| {
        let words = net.on(side);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).args(program);
        command.output().unwrap()
    };
    let places = places(&cluster.leader.status());
    let is_on_a = |at: &usize| {
        let name = format!("rollout-{at}");
        places.iter().any(|p| p.0 == name && p.2 == "a")
    };
    let port = ports[(0..3).find(is_on_a).unwrap()];
    let url = format!("http://{}:{port}/health", net.leader());
    let code = ["curl", "-s", "-o", "/dev/null", "-w", "%{http_code}", &url];
    for (side, answer) in [(0, "200"), (1, "426"), (2, "426")] {
        let said = on_side(side, &code).stdout;
        assert_eq!(String::from_utf8_lossy(&said), answer, "from {side}");
    }
    // Of other machines: an operator who reads conversations, a client of the router, and who scrapes metrics.
    let secret_of = |name: &str| {
        let text = std::fs::read_to_string(state.join(name)).unwrap();
        text.trim().to_owned()
    };
    let keys = ["token", "router.key", "metrics.key"].map(secret_of);
    let robustctl = bin("robustctl").display().to_string();
    let token_file = format!("--token-file={}", state.join("token").display());
    let connect = format!("--connect={control}");
    let export = [&robustctl, &connect, &token_file, "traj", "export", "-"];
    let looked = on_side(1, &export);
    assert!(looked.status.success(), "{looked:?}");
    let conversations = String::from_utf8(looked.stdout).unwrap();
    assert!(conversations.contains("prompt_ids"), "{conversations}");
    let authority = state.join("clients.pem").display().to_string();
    for (side, key, url, more) in [
        (
            2,
            &keys[1],
            format!("https://{router}/generate"),
            &GENERATE[..],
        ),
        (2, &keys[2], format!("https://{metrics}/metrics"), &[]),
    ] {
        let shown = format!("Authorization: Bearer {key}");
        let asks = [
            "curl", "-s", "-f", "--cacert", &authority, "-H", &shown, &url,
        ];
        let answer = on_side(side, &[&asks[..], more].concat());
        assert!(
            answer.status.success() && !answer.stdout.is_empty(),
            "{url}: {answer:?}"
        );
    }
    finish(cluster, steps, &["b", "c"]);
    // That it would be heard.
    let marker = "a word that anybody may hear";
    let said = format!("echo {marker} > /dev/udp/10.213.77.2/9");
    assert!(on_side(0, &["bash", "-c", &said]).status.success());
    std::thread::sleep(Duration::from_millis(200));
    let heard = capture.end();
    assert!(heard.find(marker.as_bytes()).is_some());
    assert!(heard.bytes() > 1 << 20, "{} bytes", heard.bytes());
    let begins: Vec<_> = ports
        .iter()
        .flat_map(|port| heard.begins_to(*port))
        .collect();
    assert!(
        !begins.is_empty(),
        "nobody of another machine asked an engine"
    );
    let in_clear = begins.iter().filter(|begin| begin[..2] != [22, 3]);
    assert_eq!(in_clear.count(), 2, "what curl asked: {begins:?}");
    let middle = weights.len() / 2;
    let clear: [(&str, &[u8]); 15] = [
        ("a request", b"POST /"),
        ("a request's head", b"uthorization: "),
        ("a prompt", b"input_ids"),
        ("an engine's answer", b"meta_info"),
        ("the router's answer", b"output_ids"),
        ("metrics", b"robust_ettr"),
        ("the operators' token", keys[0].as_bytes()),
        ("the router's key", keys[1].as_bytes()),
        ("the metrics' key", keys[2].as_bytes()),
        ("the roles' token", token.reveal().as_bytes()),
        ("the join token", shared.trim().as_bytes()),
        ("a key", b"PRIVATE KEY"),
        ("the job", b"\"rollout\":{"),
        ("the tokenizer", &tokenizer[tokenizer.len() / 2..][..48]),
        ("the model", &weights[middle..middle + 32]),
    ];
    for (what, bytes) in clear {
        let found = heard.find(bytes);
        assert_eq!(found, None, "{what} was heard");
    }
}

#[test]
fn a_machine_added_while_the_job_runs_takes_what_had_no_slot() {
    let steps = 10;
    let job = job(steps).nodes(&[("a", FULL), ("b", FULL), ("c", &[("rollout", 1)])]);
    let join = |cluster: &mut Cluster, node: &str| cluster.join(node, &[]);
    let mut cluster = three(Cluster::start(&job), join);
    let ready = |s: &Value| step(s) >= 2 && is_whole(s);
    let before = cluster.leader.until("the second step", ready);
    cluster.strike("b", Signal::SIGKILL);
    // The rank takes the slot of the rollout on `c`; two rollouts and an agent have none.
    let lost = cluster.leader.until("the rank to live on c", |s| {
        on(s, "c") == ["trainer-1"] && step(s) > step(&before)
    });
    assert_eq!(on(&lost, ""), ["rollout-1", "rollout-2", "agent-1"]);
    let incidents = lost["incidents"].as_array().unwrap();
    let of_gang = incidents.iter().find(|i| i["role"] == "trainer").unwrap();
    let plan = of_gang["plan"].as_str().unwrap();
    assert!(
        plan.contains("trainer-1 takes rollout-2's slot 0"),
        "{plan}"
    );
    let args = ["--pools", "train=1,rollout=1,agent=1", "--labels", "rack=x"];
    cluster.join("d", &args);
    let after = cluster.leader.until("the job to be whole with d", |s| {
        is_whole(s) && step(s) >= step(&lost) + 2
    });
    assert_eq!(on(&after, "d"), ["rollout-1", "rollout-2", "agent-1"]);
    let text = String::from_utf8(cluster.leader.ctl(&["status"]).stdout).unwrap();
    let row = |node: &str| {
        let found = text.lines().find(|l| l.starts_with(node));
        found.unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    assert!(row("b ").contains("lost"), "{text}");
    assert!(row("d ").contains("agent 1, rollout 1, train 1"), "{text}");
    finish(cluster, steps, &["c", "d"]);
}

#[test]
fn a_cut_that_is_mended_within_the_window_costs_no_role() {
    let Some(net) = Net::try_new() else {
        return;
    };
    let steps = 12;
    let patient = |job: JobFile, rule: &str| job.set(&format!("detect.{rule}"), "window_s", 60.0);
    let rules = [
        "node_lost",
        "trainer_idle",
        "rollout_silent",
        "agent_silent",
    ];
    let job = rules.into_iter().fold(job(steps), patient);
    let side = |node: &str| usize::from(node == "b");
    let join = |cluster: &mut Cluster, node: &str| cluster.join_on(node, &net, side(node));
    let mut cluster = three(Cluster::start_on(&job, &net), join);
    let ready = |s: &Value| step(s) >= 2 && is_whole(s);
    let before = cluster.leader.until("the second step", ready);
    net.cut(true);
    // Both sides wait six seconds for a sign of the other, then give the connection up.
    cluster.until_log("b", "the leader is away");
    net.cut(false);
    let after = cluster.leader.until_step(step(&before) + 4);
    assert_eq!(places(&before), places(&after), "{}", cluster.logs());
    assert_eq!(after["incidents"].as_array().unwrap().len(), 0, "{after}");
    let joined = cluster.leader.events("node");
    let joined = joined.iter().filter(|text| *text == "node b joined");
    assert_eq!(joined.count(), 2, "{}", cluster.logs());
    finish(cluster, steps, &["b", "c"]);
}
