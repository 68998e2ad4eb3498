//! What somebody who is not of a running job gets of it, on its own machine and from another one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::unistd::geteuid;
use robust_tests::{Cluster, JobFile, Net};
use std::collections::BTreeSet;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user `nobody`.
const STRANGER: u32 = 65_534;

/// What a shell script prints as another user, given these words.
fn as_stranger(script: &str, words: impl IntoIterator<Item = String>) -> String {
    let mut command = Command::new("/bin/sh");
    command
        .args(["-c", script, "sh"])
        .args(words)
        .current_dir("/");
    let said = command.uid(STRANGER).gid(STRANGER).output().unwrap();
    String::from_utf8_lossy(&said.stdout).into_owned()
}

/// All files and sockets below a folder.
fn all_below(folder: &Path) -> Vec<String> {
    let (mut folders, mut found) = (vec![folder.to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().flatten() {
            match entry.file_type().unwrap().is_dir() {
                true => folders.push(entry.path()),
                false => found.push(entry.path().display().to_string()),
            }
        }
    }
    found
}

/// The ports on which these processes listen for TCP.
fn ports(pids: &[i32]) -> BTreeSet<u16> {
    let sockets = |pid: &i32| {
        let open = std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter();
        let links = open.flatten().flatten();
        links
            .filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .collect::<Vec<PathBuf>>()
    };
    let own: BTreeSet<PathBuf> = pids.iter().flat_map(sockets).collect();
    // In their own network.
    let table = std::fs::read_to_string(format!("/proc/{}/net/tcp", pids[0])).unwrap();
    let listens = |line: &str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        // 0A: it listens.
        let mine = fields[3] == "0A" && own.contains(Path::new(&format!("socket:[{}]", fields[9])));
        let (_, port) = fields[1].rsplit_once(':')?;
        mine.then(|| u16::from_str_radix(port, 16).unwrap())
    };
    table.lines().skip(1).filter_map(listens).collect()
}

/// A shell's words that ask whatever listens there for what only those of the job may have. Of each answer they print
/// the code, and whether there was a connection at all.
fn asks(at: &str) -> String {
    format!(
        "for path in generate pause_generation abort_request; do curl -s -k -m 5 -o /dev/null -w '%{{http_code}}/%{{num_connects}} ' \
         -H 'Content-Type: application/json' -d '{{\"text\": \"1+1=\", \"abort_all\": true}}' {at}/$path; done"
    )
}

#[test]
fn another_user_of_the_machine_gets_nothing_of_a_running_job() {
    if !geteuid().is_root() {
        return robust_needs::skip("no other user can be played", robust_needs::ROOT);
    }
    if robust_needs::program("curl").is_none() {
        return;
    }
    let any = "127.0.0.1:0";
    let listens = ["--listen", any, "--router", any, "--metrics", any];
    let job = JobFile::small().set("job", "steps", 1000_i64);
    let mut cluster = Cluster::start_with(&job, &listens);
    let before = cluster.leader.until_step(2);
    let state = std::fs::canonicalize(cluster.leader.state_dir()).unwrap();
    let memory = robustd::state::snapshot_dir(&state);
    let pids: Vec<i32> = cluster.leader.processes().iter().map(|p| p.0).collect();
    // The folder of the test is its owner's alone: without this nobody would come as far as the job's own.
    let around = state.parent().unwrap();
    std::fs::set_permissions(around, Permissions::from_mode(0o755)).unwrap();

    // Secrets, sockets, checkpoints, trajectories, weights in shared memory.
    let files = [all_below(&state), all_below(&memory)].concat();
    let secrets = [
        "token",
        "authority.key",
        "nodes.token",
        "router.key",
        "control.sock",
    ];
    for secret in secrets {
        let path = state.join(secret).display().to_string();
        assert!(files.contains(&path), "{secret} is not among {files:?}");
    }
    let read =
        "for f; do cat \"$f\" > /dev/null 2>&1 && echo \"$f\"; test -w \"$f\" && echo \"$f\"; done";
    assert_eq!(as_stranger(read, files), "");
    let public = around.join("public").display().to_string();
    std::fs::write(&public, "beside the state directory").unwrap();
    assert_eq!(as_stranger(read, [public.clone()]).trim(), public);
    let folders = [&state, &memory].map(|folder| folder.display().to_string());
    let listed = "for folder; do ls \"$folder\" 2> /dev/null; done";
    assert_eq!(as_stranger(listed, folders), "");

    // Their environment, which has keys, their memory, and their lives.
    assert!(pids.len() > 5, "{pids:?}");
    let struck = "for p; do cat /proc/$p/environ /proc/$p/mem > /dev/null 2>&1 && echo $p; \
                  ls /proc/$p/fd > /dev/null 2>&1 && echo $p; kill -0 $p 2> /dev/null && echo $p; done";
    assert_eq!(as_stranger(struck, pids.iter().map(i32::to_string)), "");

    // Everything that listens: operators' API, nodes, router, metrics, engines, weights.
    let ports = ports(&pids);
    assert!(ports.len() >= 6, "{ports:?}");
    let asked = format!("for port; do {}; done", asks("http://127.0.0.1:$port"));
    let answers = as_stranger(&asked, ports.iter().map(u16::to_string));
    let answers: Vec<&str> = answers.split_whitespace().collect();
    assert_eq!(answers.len(), 3 * ports.len(), "{answers:?}");
    // Each of them is there, and takes the stranger's connection: what it says then is what counts.
    let answers: Vec<&str> = answers
        .iter()
        .map(|answer| answer.strip_suffix("/1").expect(answer))
        .collect();
    // No key, no such thing, or nothing that is HTTP.
    let refused = ["401", "404", "405", "000"];
    assert!(
        answers.iter().all(|code| refused.contains(code)),
        "{answers:?}"
    );
    let keyless = answers.iter().filter(|code| **code == "401");
    assert!(
        keyless.count() >= 9,
        "the router and two engines: {answers:?}"
    );

    // And the job did not notice.
    let step = before["step"].as_u64().unwrap();
    let after = cluster.leader.until_step(step + 2);
    assert_eq!(after["incidents"].as_array().unwrap().len(), 0, "{after}");
}

#[test]
fn another_machine_of_the_network_gets_nothing_of_a_running_job() {
    if robust_needs::program("curl").is_none() {
        return;
    }
    let Some(net) = Net::try_new() else {
        return;
    };
    let listen = format!("{}:0", net.leader());
    let pools: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];
    let job = JobFile::small()
        .set("job", "steps", 1000_i64)
        .nodes(&[("a", pools), ("b", pools)]);
    let served = [
        "--listen",
        &listen,
        "--router",
        &listen,
        "--metrics",
        &listen,
    ];
    let mut cluster = Cluster::start_on_with(&job, &net, &served);
    cluster.join_on("b", &net, 1);
    let before = cluster.leader.until_step(2);
    let leader: Vec<i32> = cluster.leader.processes().iter().map(|p| p.0).collect();
    let node: Vec<i32> = cluster.processes("b").iter().map(|p| p.0).collect();
    let mut answers = Vec::new();
    for (side, pids) in [(0, leader), (1, node)] {
        let ports = ports(&pids);
        assert!(ports.len() >= 3, "of {side}: {ports:?}");
        let at = Net::address(side);
        for scheme in ["http", "https"] {
            let script = format!(
                "for port; do {}; done",
                asks(&format!("{scheme}://{at}:$port"))
            );
            let words = net.on(2);
            let mut attacker = Command::new(&words[0]);
            attacker.args(&words[1..]).args(["sh", "-c", &script, "sh"]);
            attacker.args(ports.iter().map(u16::to_string));
            let said = attacker.output().unwrap().stdout;
            let said = String::from_utf8_lossy(&said).into_owned();
            // What listens on loopback only takes no connection from here.
            let code = |answer: &str| answer.split('/').next().unwrap_or_default().to_owned();
            let said: Vec<String> = said.split_whitespace().map(code).collect();
            assert_eq!(said.len(), 3 * ports.len(), "{said:?}");
            answers.extend(said);
        }
    }
    // In clear it is told to speak TLS, within TLS that it lacks the key; the rest takes no stranger at all.
    let refused = ["401", "404", "405", "426", "000"];
    assert!(
        answers.iter().all(|code| refused.contains(&&**code)),
        "{answers:?}"
    );
    // Engines, router and metrics, for each of three paths.
    for (code, at_least) in [("426", 12), ("401", 12)] {
        let said = answers.iter().filter(|said| *said == code).count();
        assert!(said >= at_least, "{code}: {answers:?}");
    }
    let step = before["step"].as_u64().unwrap();
    let after = cluster.leader.until_step(step + 2);
    assert_eq!(after["incidents"].as_array().unwrap().len(), 0, "{after}");
}

#[test]
fn a_client_of_another_machine_is_served_over_tls_by_whom_it_knows_with_the_key_it_has() {
    if robust_needs::program("curl").is_none() {
        return;
    }
    let Some(net) = Net::try_new() else {
        return;
    };
    let router = format!("{}:7080", net.leader());
    let metrics = format!("{}:9464", net.leader());
    let job = JobFile::small().set("job", "steps", 1000_i64);
    let served = ["--router", &router, "--metrics", &metrics];
    let mut cluster = Cluster::start_on_with(&job, &net, &served);
    cluster.leader.until_step(1);
    let state = cluster.leader.state_dir();
    let key = |name: &str| std::fs::read_to_string(state.join(name)).unwrap();
    let authority = state.join("clients.pem").display().to_string();
    let asks = |url: &str, key: &str, more: &[&str]| {
        let words = net.on(2);
        let mut curl = Command::new(&words[0]);
        curl.args(&words[1..])
            .args(["curl", "-s", "-m", "30", "-w", " %{http_code}", "-H"])
            .arg(format!("Authorization: Bearer {}", key.trim()))
            .args(more)
            .arg(url);
        String::from_utf8_lossy(&curl.output().unwrap().stdout).into_owned()
    };
    let known = ["--cacert", &authority];
    let generate = [
        "--cacert",
        &authority,
        "-H",
        "Content-Type: application/json",
        "-d",
        r#"{"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 4}}"#,
    ];
    let (router, metrics) = (format!("{router}/generate"), format!("{metrics}/metrics"));
    let generated = asks(&format!("https://{router}"), &key("router.key"), &generate);
    assert!(
        generated.contains("output_ids") && generated.ends_with(" 200"),
        "{generated}"
    );
    let scraped = asks(&format!("https://{metrics}"), &key("metrics.key"), &known);
    assert!(
        scraped.contains("robust_ettr") && scraped.ends_with(" 200"),
        "{scraped}"
    );
    // The other's key opens nothing, an unknown authority is not believed, and nothing is said in clear.
    let of_another = asks(&format!("https://{metrics}"), &key("router.key"), &known);
    assert!(of_another.ends_with(" 401"), "{of_another}");
    let unknown = asks(&format!("https://{router}"), &key("router.key"), &[]);
    assert_eq!(unknown, " 000");
    let in_clear = asks(&format!("http://{router}"), &key("router.key"), &generate);
    assert!(
        in_clear.contains("over TLS (https)") && in_clear.ends_with(" 426"),
        "{in_clear}"
    );
}
