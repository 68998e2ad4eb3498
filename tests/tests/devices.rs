//! `CUDA_VISIBLE_DEVICES` by slot: programs that only show what they were given, for no device is here.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::unistd::{Pid, getpgid};
use robust_tests::{Daemon, JobFile, bin, roles};
use serde_json::Value;
use std::process::Command;

const VARIABLE: &str = "CUDA_VISIBLE_DEVICES";

/// Two engines, and a service that writes down which devices it was told of.
fn job() -> JobFile {
    let argv = ["sh", "-c", "echo {devices} > {state}/devices; sleep 600"];
    let argv: Vec<toml::Value> = argv.map(Into::into).into();
    let pools: &[(&str, i64)] = &[("train", 2), ("rollout", 2), ("agent", 2), ("tools", 1)];
    JobFile::of_fixture("jobs/engines-fake.toml")
        .set("job", "steps", 400)
        .set("service.tool", "argv", argv)
        .set("service.tool", "pool", "tools")
        .set("service.tool", "ports", 0)
        .nodes(&[("local", pools)])
}

fn start(job: &JobFile, own: Option<&str>) -> Daemon {
    let engine = bin("fake-engine");
    let engine = engine.to_string_lossy();
    let mut environment = vec![("FAKE_ENGINE", &*engine)];
    environment.extend(own.map(|own| (VARIABLE, own)));
    Daemon::start_with(job, &environment)
}

/// The variable in a process's environment.
fn sees(pid: i64) -> Option<String> {
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    let prefix = format!("{VARIABLE}=");
    let mut entries = environment.split('\0');
    entries.find_map(|entry| Some(entry.strip_prefix(&prefix)?.to_owned()))
}

/// What the program of each engine sees, which is no child of robustd's.
fn engines_see(status: &Value) -> Vec<Option<String>> {
    let of = |role: &Value| {
        let group = role["pid"].as_i64().unwrap();
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let found = all.filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let of = getpgid(Some(Pid::from_raw(pid))).ok()?;
            let line = std::fs::read(entry.path().join("cmdline")).ok()?;
            let engine = String::from_utf8_lossy(&line).contains("--dialect");
            (i64::from(of.as_raw()) == group && engine).then_some(i64::from(pid))
        });
        sees(found.min().expect("the engine runs"))
    };
    roles(status, "rollout")
        .iter()
        .map(|role| of(role))
        .collect()
}

fn each_sees(status: &Value, role: &str) -> Vec<Option<String>> {
    let pids = roles(status, role)
        .iter()
        .map(|r| r["pid"].as_i64().unwrap())
        .collect::<Vec<_>>();
    pids.into_iter().map(sees).collect()
}

fn tool_was_told(daemon: &Daemon) -> String {
    let path = daemon.state_dir().join("services/service-tool-0/devices");
    std::fs::read_to_string(path).unwrap().trim().to_owned()
}

fn some(devices: &[&str]) -> Vec<Option<String>> {
    devices.iter().map(|of| Some((*of).to_owned())).collect()
}

#[test]
fn every_slot_has_the_device_that_the_job_file_names() {
    let job = job().devices(&[("rollout", &[3, 1]), ("tools", &[5]), ("train", &[0, 2])]);
    let mut daemon = start(&job, None);
    let status = daemon.until_step(1);
    assert_eq!(engines_see(&status), some(&["3", "1"]));
    assert_eq!(each_sees(&status, "trainer"), some(&["0", "2"]));
    assert_eq!(each_sees(&status, "agent"), [None, None]);
    assert_eq!(tool_was_told(&daemon), "5");
    daemon.ctl(&["stop"]);
    daemon.finish();
}

#[test]
fn pools_lie_over_the_devices_that_robustd_was_given_and_a_programs_own_word_wins() {
    // By name: the rollouts' pool, then the tools'. The built-in roles take none.
    let mut daemon = start(&job(), Some("7,GPU-5a,4"));
    let status = daemon.until_step(1);
    assert_eq!(engines_see(&status), some(&["7", "GPU-5a"]));
    assert_eq!(tool_was_told(&daemon), "4");
    assert_eq!(each_sees(&status, "trainer"), some(&["7,GPU-5a,4"; 2]));
    daemon.ctl(&["stop"]);
    daemon.finish();
    let own = job().set("rollout.command.env", VARIABLE, "{devices},9");
    let mut daemon = start(&own, Some("7,GPU-5a,4"));
    let status = daemon.until_step(1);
    assert_eq!(engines_see(&status), some(&["7,9", "GPU-5a,9"]));
    daemon.ctl(&["stop"]);
    daemon.finish();
}

#[test]
fn a_device_that_there_is_not_is_refused_before_anything_starts() {
    let temp = tempfile::tempdir().unwrap();
    let job = job().devices(&[("rollout", &[3, 1])]).write(temp.path());
    let output = Command::new(bin("robustd"))
        .arg("--job")
        .arg(job)
        .arg("--state-dir")
        .arg(temp.path().join("state"))
        .env("FAKE_ENGINE", bin("fake-engine"))
        .env("ROBUST_CACHE", robust_tests::cache())
        .env(VARIABLE, "0,1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    let expected = "node `local` is to have device 3 for pool `rollout`, and robustd sees 2 there \
                    (its own CUDA_VISIBLE_DEVICES)";
    assert!(said.contains(expected), "{said}");
}
