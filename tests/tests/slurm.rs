//! Jobs that Slurm starts, on a real one whose machines are all this one: a machine is lost, another joins, one leaves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_etcd::{Cluster as Etcd, Wire};
use robust_slurm::Slurm;
use robust_tests::{JobFile, bin, cache, processes_naming};
use serde_json::Value;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

const FULL: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
const SPARE: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];
/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(90);

/// A rank, a rollout and an agent on `a` (the controller's) and on `b`; another rollout and a free slot of each kind on `c`.
fn job(steps: i64) -> JobFile {
    JobFile::small()
        .set("job", "steps", steps)
        .set("detect.node_lost", "window_s", 3.0)
        .nodes(&[("a", FULL), ("b", FULL), ("c", SPARE)])
}

/// The same with three controllers, whose log and checkpoints are in this folder.
fn several(steps: i64, etcd: &Etcd, folder: &Path) -> JobFile {
    let secret = folder.join("secret");
    std::fs::write(&secret, "a secret of all controllers of this job\n").unwrap();
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
    let below = |name: &str| format!("file://{}/{name}", folder.display());
    let endpoints = etcd.endpoints().into_iter();
    let endpoints: Vec<toml::Value> = endpoints.map(|e| e.trim_end_matches('/').into()).collect();
    job(steps)
        .set("ha", "etcd", endpoints)
        .set("store", "remote_log", below("log"))
        .set("store", "secret_file", secret.display().to_string())
        .set("checkpoint", "every", 1)
        .set("checkpoint", "remote", below("checkpoints"))
}

/// The first of three ports that are free.
fn three_ports() -> u16 {
    let is_free = |port: u16| TcpListener::bind(("127.0.0.1", port)).is_ok();
    loop {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        if port < 65_000 && is_free(port + 1) && is_free(port + 2) {
            return port;
        }
    }
}

/// A job on a cluster of Slurm's.
struct Job {
    slurm: Slurm,
    file: PathBuf,
    /// As Slurm's jobs of other tests have the same number.
    port: String,
}

impl Job {
    fn new(job: &JobFile, machines: usize) -> Option<Self> {
        let slurm = Slurm::start(machines)?;
        let file = job.write(slurm.shared());
        let port = three_ports().to_string();
        Some(Self { slurm, file, port })
    }

    fn dir(&self) -> PathBuf {
        self.file.with_extension("slurm")
    }

    fn local(&self) -> PathBuf {
        self.slurm.shared().join("local")
    }

    fn ctl(&self, words: &[&str]) -> Output {
        let mut command = self.slurm.command(bin("robustctl"));
        command
            .env("ROBUST_CACHE", cache())
            .env("ROBUST_SLURM_DIR", self.dir());
        command.arg("slurm").args(words).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let out = self.ctl(words);
        assert!(out.status.success(), "{words:?}: {out:?}\n{}", self.logs());
        serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{words:?}: {e}: {out:?}"))
    }

    fn submit(&self, machines: &str) -> String {
        let (file, local) = (
            self.file.display().to_string(),
            self.local().display().to_string(),
        );
        let words = ["submit", &file, "--nodes", machines, "--local", &local];
        let words = [&words[..], &["--port", &self.port, "--json"]].concat();
        let said = self.json(&words);
        said["slurm_job"].as_str().unwrap().to_owned()
    }

    fn try_status(&self) -> Option<Value> {
        let out = self.ctl(&["ask", "--", "status", "--json"]);
        serde_json::from_slice(&out.stdout)
            .ok()
            .filter(|_| out.status.success())
    }

    fn until(&self, what: &str, mut done: impl FnMut(&Value) -> bool) -> Value {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.try_status()
                && done(&status)
            {
                return status;
            }
            self.patience(begun, what);
        }
    }

    /// What Slurm says of a job.
    fn slurm_says(&self, job: &str, what: &str) -> String {
        let said = self.slurm.asked("scontrol", &["show", "job", job]);
        let mut words = said.split_whitespace();
        let of = words.find_map(|word| word.strip_prefix(what)?.strip_prefix('='));
        of.unwrap_or_default().to_owned()
    }

    fn until_slurm_says(&self, job: &str, what: &str, value: &str) {
        let begun = Instant::now();
        while self.slurm_says(job, what) != value {
            self.patience(begun, &format!("{what} of Slurm's job {job} to be {value}"));
        }
    }

    fn patience(&self, begun: Instant, what: &str) {
        assert!(
            begun.elapsed() < PATIENCE,
            "waited {PATIENCE:?} for {what}\n{}",
            self.logs()
        );
        std::thread::sleep(Duration::from_millis(100));
    }

    fn logs(&self) -> String {
        let entries = std::fs::read_dir(self.dir())
            .into_iter()
            .flatten()
            .flatten();
        let logs = entries.filter(|entry| entry.path().extension().is_some_and(|end| end == "log"));
        let each = logs.map(|entry| {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!(
                "--- {:?}\n{}\n",
                entry.file_name(),
                lines[lines.len().saturating_sub(60)..].join("\n")
            )
        });
        each.collect::<String>() + &self.slurm.logs()
    }
}

fn on(status: &Value, node: &str) -> usize {
    let all = status["roles"].as_array().unwrap();
    all.iter().filter(|role| role["node"] == node).count()
}

fn is(status: &Value, node: &str, state: &str) -> bool {
    let nodes = status["nodes"].as_array().unwrap();
    nodes
        .iter()
        .any(|n| n["name"] == node && n["state"] == state)
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap()
}

/// Every role has a slot and serves.
fn is_whole(status: &Value) -> bool {
    let all = status["roles"].as_array().unwrap();
    all.len() == 7 && all.iter().all(|role| role["state"] == "running")
}

#[test]
fn a_job_outlives_a_machine_takes_another_one_in_and_gives_one_back() {
    let Some(mut job) = Job::new(&job(60), 4) else {
        return;
    };
    let number = job.submit("3");
    let token = job.dir().join("token");
    assert_eq!(
        token.metadata().unwrap().permissions().mode() & 0o777,
        0o600
    );
    let script = std::fs::read_to_string(job.dir().join("job.sh")).unwrap();
    let token = std::fs::read_to_string(token).unwrap();
    assert!(!script.contains(token.trim()));
    let before = job.until("the second step", |s| step(s) >= 2 && is_whole(s));
    // Machines join in any order, and everybody has a place on the first two: nobody is on a third that is not `c`.
    assert!(on(&before, "a") > 0 && on(&before, "c") > 0, "{before}");
    let second = job.ctl(&["submit", &job.file.display().to_string(), "--nodes", "3"]);
    assert_eq!(second.status.code(), Some(4), "it runs already: {second:?}");

    job.slurm.lose("n2");
    let after = job.until("the roles of b to run on c", |s| {
        on(s, "b") == 0 && is_whole(s) && step(s) >= step(&before) + 2
    });
    let rules = |status: &Value| {
        let all = status["incidents"].as_array().unwrap().clone();
        let rules = all
            .iter()
            .map(|incident| incident["rule"].as_str().unwrap().to_owned());
        rules.collect::<Vec<_>>()
    };
    assert!(
        rules(&after).iter().all(|rule| rule == "node lost"),
        "{after}"
    );

    let grown = job.json(&["grow", "1", "--like", "c", "--json"]);
    let grown = &grown["grown"][0];
    let (name, own) = (
        grown["node"].as_str().unwrap(),
        grown["slurm_job"].as_str().unwrap(),
    );
    job.until("the machine more to join", |s| is(s, name, "here"));
    let out = job.ctl(&["shrink", "c"]);
    assert!(out.status.success(), "{out:?}\n{}", job.logs());
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(
        said.starts_with("c has left, and n3 is Slurm's again"),
        "{said}"
    );
    let last = job.until("everybody to work elsewhere", |s| {
        is(s, "c", "left") && on(s, name) == 4 && is_whole(s) && step(s) > step(&after)
    });
    assert_eq!(
        rules(&last),
        rules(&after),
        "nothing was lost with it: {}",
        job.logs()
    );
    let wrong = job.ctl(&["shrink", "a"]);
    assert_eq!(wrong.status.code(), Some(4), "{wrong:?}");

    job.until_slurm_says(&number, "JobState", "COMPLETED");
    job.until_slurm_says(own, "JobState", "COMPLETED");
    assert_eq!(job.slurm_says(&number, "ExitCode"), "0:0", "{}", job.logs());
    assert_eq!(job.slurm.asked("squeue", &["--noheader"]), "");
    let left = processes_naming(&job.local());
    assert!(left.is_empty(), "{left:?}");
    let asked = job.ctl(&["ask", "--", "status"]);
    assert!(!asked.status.success(), "{asked:?}");
}

#[test]
fn a_job_whose_time_is_over_ends_in_order_and_goes_on_when_it_is_submitted_again() {
    let Some(job) = Job::new(&job(40), 3) else {
        return;
    };
    let first = job.submit("3");
    let before = job.until("the second step", |s| step(s) >= 2 && is_whole(s));
    // What Slurm sends before the time limit, by `--signal=B:TERM@120`.
    drop(
        job.slurm
            .asked("scancel", &["--batch", "--signal=TERM", &first]),
    );
    let begun = Instant::now();
    while !job.slurm.asked("squeue", &["--noheader"]).is_empty() {
        job.patience(begun, "the job to end in order");
    }
    assert_eq!(
        job.slurm_says(&first, "ExitCode"),
        "143:0",
        "{}",
        job.logs()
    );
    assert!(processes_naming(&job.local()).is_empty());
    let second = job.submit("3");
    let after = job.until("it to go on", |s| step(s) > step(&before));
    assert_eq!(after["incidents"].as_array().unwrap().len(), 0, "{after}");
    job.until_slurm_says(&second, "JobState", "COMPLETED");
}

#[test]
fn with_candidates_a_job_goes_on_after_the_whole_allocation_ended() {
    let Some(etcd) = Etcd::start(3, Wire::Plain) else {
        return;
    };
    let elsewhere = tempfile::tempdir().unwrap();
    let Some(job) = Job::new(&several(40, &etcd, elsewhere.path()), 3) else {
        return;
    };
    let follow = |status: &Value| {
        let all = status["controllers"]["followers"].as_array().cloned();
        let all = all.unwrap_or_default();
        all.iter().filter(|f| f["state"] == "follows").count()
    };
    let first = job.submit("3");
    let before = job.until("a checkpoint elsewhere, and two to follow", |s| {
        let kept = s["remote"]["step"].as_u64();
        kept.is_some_and(|step| step >= 2) && follow(s) == 2 && is_whole(s)
    });
    drop(
        job.slurm
            .asked("scancel", &["--batch", "--signal=TERM", &first]),
    );
    let begun = Instant::now();
    while !job.slurm.asked("squeue", &["--noheader"]).is_empty() {
        job.patience(begun, "the whole allocation to end");
    }
    assert!(processes_naming(&job.local()).is_empty());
    // As on other machines: nothing is left of any daemon but what is in the log and the object store.
    std::fs::remove_dir_all(job.local()).unwrap();

    let second = job.submit("3");
    assert_ne!(first, second);
    let again = job.until("it to go on", |s| follow(s) == 2 && is_whole(s));
    assert_eq!(
        again["started_ms"], before["started_ms"],
        "the job began anew: {again}"
    );
    assert!(step(&again) >= 2, "{again}");
    let epoch = |status: &Value| status["controllers"]["epoch"].as_u64().unwrap();
    assert!(epoch(&again) > epoch(&before), "{again}");

    let begun = Instant::now();
    while !job.slurm.asked("squeue", &["--noheader"]).is_empty() {
        job.patience(begun, "the Slurm job to end with the job");
    }
    assert!(
        job.logs().contains("the job is over: completed"),
        "{}",
        job.logs()
    );
}

#[test]
fn without_slurms_commands_it_is_said_what_is_missing_and_the_script_can_be_printed_all_the_same() {
    let temp = tempfile::tempdir().unwrap();
    let file = job(5).write(temp.path());
    let run = |words: &[&str]| {
        let mut command = Command::new(bin("robustctl"));
        command
            .env("PATH", temp.path())
            .args(["slurm", "submit"])
            .arg(&file);
        command.args(words).output().unwrap()
    };
    let out = run(&["--nodes", "3", "--json"]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    let error: Value = serde_json::from_slice(&out.stderr).unwrap();
    let message = error["error"]["message"].as_str().unwrap();
    assert!(
        message.starts_with("there is no `sbatch` on the search path"),
        "{message}"
    );
    std::fs::remove_dir_all(file.with_extension("slurm")).unwrap();
    let out = run(&[
        "--nodes",
        "3",
        "--print",
        "--",
        "--partition=gpu",
        "--time=2:00:00",
    ]);
    assert!(out.status.success(), "{out:?}");
    let script = String::from_utf8(out.stdout).unwrap();
    assert!(
        script.contains("\n#SBATCH --partition=gpu --time=2:00:00\n"),
        "{script}"
    );
    assert!(!file.with_extension("slurm").exists(), "nothing is written");
    let out = run(&["--nodes", "2"]);
    assert_eq!(out.status.code(), Some(2), "{out:?}");
    assert!(
        String::from_utf8_lossy(&out.stderr).contains("the job file has 3 nodes (a, b, c)"),
        "{out:?}"
    );
}
