//! `doctor` on this machine, with a driver that is played, and on recorded ones.
use super::leader::Leader;
use super::{err, out, run};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn fixture(name: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures");
    root.join(name).display().to_string()
}

/// A worker program that says what the real one would.
fn worker(dir: &Path) -> PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let says = r#"{"version":"0.1.0","torch":"2.11.0","torch_cuda":false,"ucx":{"Ok":
        {"version":"1.13.1","transports":["tcp/lo"]}}}"#;
    let path = dir.join("worker");
    std::fs::write(
        &path,
        format!("#!/bin/sh\n[ \"$1\" = doctor ] && echo '{says}'\n"),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn checks(json: &Value) -> Vec<(String, String)> {
    let text = |v: &Value| v.as_str().unwrap().to_owned();
    let checks = json["checks"].as_array().unwrap();
    let pair = |c: &Value| (text(&c["name"]), text(&c["verdict"]));
    checks.iter().map(pair).collect()
}

#[test]
fn every_check_has_a_verdict_on_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let worker = worker(dir.path()).display().to_string();
    let (job, held) = (
        fixture("jobs/demo.toml"),
        std::net::TcpListener::bind("127.0.0.1:0"),
    );
    let at = held.as_ref().unwrap().local_addr().unwrap().to_string();
    let output = run(
        dir.path(),
        &[
            "doctor",
            "--json",
            "--job",
            &job,
            "--worker",
            &worker,
            "--disk-mib",
            "16",
            "--listen",
            &at,
            "--advertise",
            "127.0.0.1",
            "--nvml-lib",
            "/nonexistent/libnvidia-ml.so.1",
        ],
    );
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checks = checks(&json);
    let verdict = |name: &str| {
        let found = checks.iter().find(|(n, _)| n == name);
        found
            .map(|(_, v)| v.as_str())
            .unwrap_or_else(|| panic!("no {name}: {json}"))
    };
    for name in [
        "job file",
        "worker program",
        "versions",
        "libtorch",
        "driver and NVML",
        "device memory",
        "leftover processes",
        "shared memory",
        "file descriptors",
        "locked memory",
        "state directory",
        "disk space",
        "disk speed",
        "TMPDIR",
        "UCX transports",
        "ports of roles",
        "own address",
    ] {
        verdict(name);
    }
    assert_eq!(verdict("job file"), "ok", "{json}");
    assert_eq!(verdict("worker program"), "ok", "{json}");
    assert_eq!(verdict("UCX transports"), "ok", "{json}");
    assert_eq!(verdict("own address"), "ok", "{json}");
    // Somebody has it: this test.
    assert_eq!(
        (verdict("port"), output.status.code()),
        ("fail", Some(1)),
        "{json}"
    );
    assert!(err(&output).contains("failed"), "{}", err(&output));
    assert!(json["facts"]["disk"]["Ok"]["bytes"].as_u64().unwrap() > 0);
}

#[test]
fn the_programs_of_a_jobs_commands_are_tried() {
    let dir = tempfile::tempdir().unwrap();
    let worker = worker(dir.path()).display().to_string();
    let engine = dir.path().join("fake-engine");
    std::fs::write(&engine, "#!/bin/sh\necho fake-engine 0.32.0\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&engine, mode).unwrap();
    let job = fixture("jobs/engines-fake.toml");
    let ask = |variable: Option<&Path>| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_robustctl"));
        command.args(["doctor", "--json", "--disk-mib", "0", "--job", &job]);
        command.args([
            "--worker",
            &worker,
            "--nvml-lib",
            "/nonexistent/libnvidia-ml.so.1",
        ]);
        command
            .env_remove("FAKE_ENGINE")
            .env("ROBUST_STATE_DIR", dir.path());
        if let Some(path) = variable {
            command.env("FAKE_ENGINE", path);
        }
        let output = command.output().unwrap();
        let json: Value = serde_json::from_slice(&output.stdout).unwrap();
        json
    };
    let verdict = |json: &Value, name: &str| {
        let found = checks(json).into_iter().find(|(n, _)| n == name);
        found.unwrap_or_else(|| panic!("no {name}: {json}")).1
    };
    let there = ask(Some(&engine));
    for name in ["program", "variables", "engine version"] {
        assert_eq!(verdict(&there, name), "ok", "{there}");
    }
    // It asks for loopback, and a version of its weights is known.
    assert_eq!(verdict(&there, "engine isolation"), "warn", "{there}");
    verdict(&there, "engine memory");
    let gone = ask(None);
    for (name, words) in [
        ("program", "fail"),
        ("variables", "fail"),
        ("engine version", "skipped"),
    ] {
        assert_eq!(verdict(&gone, name), words, "{gone}");
    }
}

#[test]
fn facts_of_another_machine_are_judged_as_if_they_were_found_here() {
    let dir = tempfile::tempdir().unwrap();
    let healthy = run(
        dir.path(),
        &["doctor", "--facts", &fixture("doctor/h200_node.json")],
    );
    assert!(healthy.status.success(), "{}", out(&healthy));
    let facts = fixture("doctor/nothing_fits.json");
    let broken = run(dir.path(), &["doctor", "--json", "--facts", &facts]);
    assert_eq!(broken.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&broken.stdout).unwrap();
    // What is printed can be judged again.
    let again = dir.path().join("again.json");
    std::fs::write(&again, json.to_string()).unwrap();
    let again = run(
        dir.path(),
        &["doctor", "--json", "--facts", again.to_str().unwrap()],
    );
    assert_eq!(again.stdout, broken.stdout);
    let wrong = run(
        dir.path(),
        &["doctor", "--facts", &fixture("jobs/demo.toml")],
    );
    assert_eq!(wrong.status.code(), Some(2), "{}", err(&wrong));
}

const TOKEN: &str = "0123456789abcdef0123456789abcdef";

/// A file with the token of the tests.
fn token_file(folder: &Path) -> String {
    let path = folder.join("token");
    std::fs::write(&path, TOKEN).unwrap();
    path.display().to_string()
}

#[test]
fn a_peer_that_is_not_there_and_a_program_that_is_not_there_fail_with_a_fix() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(
        dir.path(),
        &[
            "doctor",
            "--disk-mib",
            "0",
            "--worker",
            "/nonexistent/robust-worker",
            // Nobody listens on the port of discarded bytes.
            "--peer",
            "127.0.0.1:9",
            "--token-file",
            &token_file(dir.path()),
        ],
    );
    let text = out(&output);
    assert_eq!(output.status.code(), Some(1));
    for part in [
        "fail     worker program",
        "fix: build it",
        "fail     peer",
        "127.0.0.1:9: ",
    ] {
        assert!(text.contains(part), "{part:?} is missing in\n{text}");
    }
}

#[test]
fn the_drivers_library_is_asked_for_devices_and_their_processes() {
    let library = nvml_fake();
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("libnvidia-ml.so.1");
    std::fs::copy(library, &copy).unwrap();
    let own = std::process::id();
    let scenario = format!(
        "driver = \"580.95.05\"\n[[device]]\nmemory_used = 1073741824\nmemory_total = 150754820096\n\
         processes = [{own}]\n[[device]]\nlost_at = \"DeviceGetMemoryInfo\"\n"
    );
    std::fs::write(dir.path().join("scenario.toml"), scenario).unwrap();
    let library = copy.display().to_string();
    let args = [
        "doctor",
        "--json",
        "--disk-mib",
        "0",
        "--nvml-lib",
        &library,
    ];
    let output = run(dir.path(), &args);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    let nvml = &json["facts"]["driver"]["nvml"]["Ok"];
    assert_eq!(nvml["driver"], "580.95.05", "{json}");
    assert_eq!(nvml["devices"].as_array().unwrap().len(), 2, "{json}");
    let holder = &json["facts"]["processes"][0];
    assert_eq!(
        (&holder["pid"], &holder["device"]),
        (&own.into(), &0.into()),
        "{json}"
    );
    let leftover = checks(&json)
        .into_iter()
        .find(|(n, _)| n == "leftover processes");
    assert_eq!(
        leftover.unwrap().1,
        "warn",
        "a process that is no role: {json}"
    );
}

/// Built beside the tests where the workspace is.
fn nvml_fake() -> PathBuf {
    let target = Path::new(env!("CARGO_BIN_EXE_robustctl")).parent().unwrap();
    let places = ["libnvml_fake.so", "deps/libnvml_fake.so"].map(|name| target.join(name));
    let found = places.into_iter().find(|path| path.is_file());
    found.expect("the library that plays NVML is built beside the tests")
}

#[test]
fn a_peers_clock_is_told_with_what_the_way_may_explain() {
    let dir = tempfile::tempdir().unwrap();
    let token = token_file(dir.path());
    let strange = Leader::start("another token, as long as it is", 0);
    let (right, ahead) = (Leader::start(TOKEN, 0), Leader::start(TOKEN, 60_000));
    let [right, ahead, strange] =
        [right, ahead, strange].map(|leader| (leader.addr.to_string(), leader));
    let args = [
        "doctor",
        "--json",
        "--disk-mib",
        "0",
        "--token-file",
        &token,
        "--peer",
        &right.0,
        "--peer",
        &ahead.0,
        "--peer",
        &strange.0,
    ];
    let json: Value = serde_json::from_slice(&run(dir.path(), &args).stdout).unwrap();
    let refused = json["facts"]["peers"][2]["answer"]["Err"].as_str().unwrap();
    assert!(refused.starts_with("it does not know the token of --token-file"));
    let clocks = checks(&json).into_iter().filter(|(n, _)| n == "clock");
    let clocks: Vec<String> = clocks.map(|(_, verdict)| verdict).collect();
    assert_eq!(clocks, ["ok", "fail"], "{json}");
    let answer = &json["facts"]["peers"][1]["answer"]["Ok"];
    let number = |key: &str| answer[key].as_f64().unwrap();
    assert!(
        (number("ahead_ms") - 60_000.0).abs() <= number("within_ms") + 1.0,
        "{json}"
    );
    assert_eq!(answer["seen_as"], "127.0.0.1");
}
