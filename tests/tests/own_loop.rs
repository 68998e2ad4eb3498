//! Trainers whose loop is their own, at each level: real programs, really killed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, bin, example, roles, start_torch, torch_python};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A model for the job's engines, in a folder of its own.
fn model() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new(torch_python())
        .arg(example("own_loop").join("make_model.py"))
        .arg(dir.path())
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    dir
}

/// The job of `examples/own_loop` with this model.
fn own_loop(model: &Path, steps: u64) -> JobFile {
    let folder = example("own_loop").to_string_lossy().into_owned();
    JobFile::of_fixture("jobs/demo-own-loop.toml")
        .set("model", "path", model.to_string_lossy().into_owned())
        .set("trainer.command", "cwd", folder)
        .set("trainer.command.env", "STEPS", steps.to_string())
}

/// A job of two ranks that each run this text with a program.
fn plain(program: &[&str], text: &str) -> JobFile {
    let argv: Vec<&str> = program.iter().copied().chain([text]).collect();
    let argv: Vec<toml::Value> = argv.into_iter().map(Into::into).collect();
    JobFile::of_text("[job]\nname = \"plain\"\n[detect]\nsample_interval_ms = 250\n")
        .set("trainer.command", "level", "none")
        .set("trainer.command", "argv", argv)
}

fn lives(status: &Value, role: &str) -> Vec<u64> {
    let of = roles(status, role);
    of.iter()
        .map(|r| r["incarnation"].as_u64().unwrap())
        .collect()
}

fn lines(daemon: &Daemon, log: &str) -> Vec<String> {
    let text = std::fs::read_to_string(daemon.state_dir().join("logs").join(log)).unwrap();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_loop_that_asks_the_engines_itself_outlives_a_rank_an_engine_and_the_daemon() {
    let model = model();
    let mut daemon = start_torch(&own_loop(model.path(), 60));
    let before = daemon.until_step(3);
    assert_eq!(
        before["steps_total"], 0,
        "nobody knows how many there will be"
    );
    let engines = lives(&before, "rollout");
    let reply = daemon.json(&["inject", "--kill", "trainer", "--index", "1", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    let step = reply["incident"]["step"].as_u64().unwrap();
    let after = daemon.until_step(step + 2);
    assert_eq!(lives(&after, "rollout"), engines, "no engine was restarted");
    // Requests that ran there are answered by the other one.
    let trainers = lives(&after, "trainer");
    let reply = daemon.json(&["inject", "--kill", "rollout", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    daemon.until_step(step + 5);
    daemon.kill_daemon();
    daemon.launch();
    let last = daemon.until_step(step + 9);
    assert_eq!(lives(&last, "trainer"), trainers, "the gang did not notice");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert!(
        daemon.stdout().contains("completed after 60 steps"),
        "{}",
        daemon.stdout()
    );
}

/// Publishes, and keeps its own state: a number in a file.
const PUBLISHES: &str = r#"
import os, time, torch, robustrl
from transformers import AutoModelForCausalLM
job = robustrl.attach()
model = AutoModelForCausalLM.from_pretrained(job.model, dtype=torch.float32)
own = os.path.join(os.environ["OWN"], f"rank-{job.rank}")
at = int(open(own).read()) if os.path.exists(own) else 0
print(f"begins at {at}", flush=True)
job.publish(model)
while at < 12:
    with torch.no_grad():
        model.model.norm.weight.mul_(1.001)
    at += 1
    time.sleep(0.1)
    job.publish(model)
    if at % 4 == 0:
        with open(own, "w") as file:
            file.write(str(at))
"#;

#[test]
fn versions_of_a_program_that_keeps_its_own_state_are_steps_and_never_go_back() {
    let (model, own) = (model(), tempfile::tempdir().unwrap());
    let program = PUBLISHES.replace('{', "{{").replace('}', "}}");
    let argv: Vec<toml::Value> = vec!["{env:TORCH_PYTHON}".into(), "-c".into(), program.into()];
    let job = own_loop(model.path(), 0)
        .set("trainer.command", "level", "weights")
        .set("trainer.command", "argv", argv)
        .set(
            "trainer.command.env",
            "OWN",
            own.path().to_string_lossy().into_owned(),
        );
    let mut daemon = start_torch(&job);
    daemon.until_step(6);
    let reply = daemon.json(&["inject", "--kill", "trainer", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let log = lines(&daemon, "trainer-0.log");
    let begins: Vec<_> = log.iter().filter(|l| l.starts_with("begins at")).collect();
    assert_eq!(begins, ["begins at 0", "begins at 4"], "{}", daemon.logs());
    // Six or seven versions before, and as many as were left from its own state on, the first of them new.
    let steps = daemon.stdout();
    let last = steps.lines().rfind(|l| l.starts_with("step")).unwrap();
    let number: u64 = last.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!((14..=17).contains(&number), "{steps}");
}

#[test]
fn a_program_that_knows_nothing_of_it_is_restarted_as_a_gang_with_what_it_needs_to_go_on() {
    let text = "echo life $TORCHELASTIC_RESTART_COUNT of rank $RANK at $MASTER_PORT; \
                if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then sleep 600; fi; echo resumed by $0; \
                sleep 3";
    let job = plain(&["sh", "-c"], text).set(
        "trainer.command",
        "restore_args",
        vec![toml::Value::from("--resume")],
    );
    let mut daemon = Daemon::start(&job);
    daemon.wait_for("both ranks to run", |d| {
        ["trainer-0.log", "trainer-1.log"].iter().all(|log| {
            let path = d.state_dir().join("logs").join(log);
            std::fs::read_to_string(path).is_ok_and(|text| text.contains("life 0"))
        })
    });
    let reply = daemon.json(&["inject", "--kill", "trainer", "--index", "1", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    for (rank, log) in ["trainer-0.log", "trainer-1.log"].into_iter().enumerate() {
        let of = |life: u32| {
            let begin = format!("life {life} of rank {rank} at ");
            let all = lines(&daemon, log);
            let line = all.iter().find(|line| line.starts_with(&begin)).cloned();
            line.unwrap_or_else(|| panic!("{all:?}"))
        };
        let port = |line: String| line.rsplit(' ').next().unwrap().to_owned();
        assert_ne!(port(of(0)), port(of(1)), "a new gang meets at a new port");
        assert!(lines(&daemon, log).contains(&"resumed by --resume".to_owned()));
    }
    assert_eq!(daemon.processes(), []);
}

/// In its first life one of the two ranks is killed when they have met.
const MEETS: &str = r#"import os, signal, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
life, rank = os.environ["ROBUST_GENERATION"], dist.get_rank()
line = f"life {life} rank {rank} of {int(one)} at {os.environ['MASTER_PORT']}\n"
os.write(1, line.encode())  # in one piece: the other rank writes to the same log
dist.barrier()
if life == "1" and rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600 if life == "1" else 0)
"#;

#[test]
fn torchrun_starts_the_ranks_of_its_node_and_a_killed_one_restarts_them_all() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("train.py"), MEETS).unwrap();
    let argv = [
        "{env:TORCH_PYTHON}",
        "-m",
        "torch.distributed.run",
        "train.py",
    ];
    let argv: Vec<toml::Value> = argv.into_iter().map(Into::into).collect();
    let job = JobFile::of_text("[job]\nname = \"launcher\"\n")
        .set("trainer", "ranks", 1)
        .set("trainer.command", "argv", argv)
        .set("trainer.command", "level", "none")
        .set("trainer.command", "launcher", "job")
        .set("trainer.command", "slots", 2)
        .set(
            "trainer.command",
            "cwd",
            folder.path().to_string_lossy().into_owned(),
        );
    let mut daemon = start_torch(&job);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let log = lines(&daemon, "trainer-0.log");
    let port = |life: u32, rank: u32| {
        let begin = format!("life {life} rank {rank} of 2 at ");
        let mut said = log.iter().filter_map(|line| line.strip_prefix(&begin));
        said.next().unwrap_or_else(|| panic!("{log:?}")).to_owned()
    };
    assert_eq!(port(1, 0), port(1, 1));
    assert_eq!(port(2, 0), port(2, 1));
    assert_ne!(port(1, 0), port(2, 0), "a new gang meets at a new port");
    let stdout = daemon.stdout();
    let incidents: Vec<_> = stdout.lines().filter(|l| l.contains("trainer-0")).collect();
    assert_eq!(incidents.len(), 1, "{stdout}");
    assert!(incidents[0].ends_with("recovered"), "{stdout}");
    assert_eq!(daemon.processes(), []);
}

#[test]
fn a_program_that_is_through_may_kill_what_it_started() {
    let text = "import subprocess, time\nchild = subprocess.Popen(['sleep', '600'])\ntime.sleep(6)\n\
                child.kill()\nchild.wait()";
    let mut daemon = start_torch(&plain(&["{env:TORCH_PYTHON}", "-c"], text));
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert!(
        daemon.stdout().contains("no incidents"),
        "{}",
        daemon.stdout()
    );
}

#[test]
fn a_program_that_ends_with_an_error_is_told_with_its_last_line_and_fails_in_the_end() {
    let job = plain(
        &["sh", "-c"],
        "echo 'ImportError: no module named torhc'; exit 3",
    );
    let mut daemon = Daemon::start(&job);
    assert_ne!(daemon.finish(), 0);
    let said = std::fs::read_to_string(daemon.stderr()).unwrap();
    assert!(
        said.contains("no module named torhc") && said.contains("code 3"),
        "{said}"
    );
}

/// A program that writes a traceback of this exception in life `$life` and ends, with other numbers each time.
fn raises(exception: &str) -> String {
    format!(
        "life=$TORCHELASTIC_RESTART_COUNT; sleep 1; echo \"loss 0.$$\"; \
         echo 'Traceback (most recent call last):'; \
         echo \"  File \\\"/tmp/tmp$$/train.py\\\", line 4$life, in step\"; echo '    take(batch)'; \
         {exception}; exit 1"
    )
}

/// The incidents of a job that is over, as they are on disk.
fn incidents(daemon: &Daemon) -> Vec<Value> {
    let mut shown = Command::new(bin("robustd"))
        .arg("--inspect")
        .arg("--state-dir")
        .arg(daemon.state_dir())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    daemon.wait_for("the job to be shown", |d| {
        d.ctl(&["status"]).status.success()
    });
    let report = daemon.json(&["report"]);
    shown.kill().unwrap();
    shown.wait().unwrap();
    report["incidents"].as_array().unwrap().clone()
}

#[test]
fn a_program_that_dies_of_one_exception_each_time_ends_the_job_with_its_words() {
    let job = plain(&["sh", "-c"], &raises("echo \"KeyError: 'prompt'\"")).set(
        "restart",
        "max_task_restarts",
        20,
    );
    let mut daemon = Daemon::start(&job);
    assert_eq!(daemon.finish(), 1);
    let said = std::fs::read_to_string(daemon.stderr()).unwrap() + &daemon.stdout();
    let words = "this will not heal: exit code 6: KeyError: 'prompt'; the trainer, last trainer-";
    assert!(said.contains(words), "{said}");
    let all = incidents(&daemon);
    let counts: Vec<_> = all.iter().map(|i| i["cause"]["count"].as_u64()).collect();
    assert_eq!(counts, [1, 2, 3, 4].map(Some), "{all:#?}");
    let first = &all[0]["cause"]["fingerprint"];
    assert!(all.iter().all(|i| i["cause"]["fingerprint"] == *first));
}

#[test]
fn a_program_that_dies_of_two_exceptions_in_turns_goes_on() {
    let turns = "case $life in 0|2) echo \"KeyError: 'prompt'\";; 1|3) echo 'ValueError: no key';; *) exit 0;; esac";
    let job = plain(&["sh", "-c"], &raises(turns)).set("restart", "max_task_restarts", 20);
    let mut daemon = Daemon::start(&job);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let all = incidents(&daemon);
    let counts: Vec<_> = all.iter().map(|i| i["cause"]["count"].as_u64()).collect();
    assert_eq!(counts, [1, 1, 2, 2].map(Some), "{all:#?}");
}

#[test]
fn a_program_that_says_nothing_is_up_when_its_log_says_so_and_of_its_end_the_known_error_is_told() {
    // Its second life ends, but not before it is up.
    let text = "sleep 1; echo 'loaded the model'; if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then sleep 1; exit 0; fi; \
                sleep 1; echo 'NCCL WARN Net: failed'; echo 'goodbye'; exit 3";
    let (log, error) = ("^loaded the", "NCCL WARN .* failed");
    let job = plain(&["sh", "-c"], text)
        .set("trainer.command.ready", "log", log)
        .set("trainer.command", "errors", vec![toml::Value::from(error)]);
    let mut daemon = Daemon::start(&job);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let said = daemon.stdout();
    assert!(said.contains("recovered"), "{said}");
    let why = std::fs::read_to_string(daemon.stderr()).unwrap();
    assert!(why.contains("code 3: NCCL WARN Net: failed"), "{why}");
}

#[test]
fn a_program_that_tells_its_phases_alone_is_restarted_and_may_end() {
    let text = "import os, robustrl, time\njob = robustrl.attach()\n\
                until = 600 if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' else 3\n\
                end = time.monotonic() + until\n\
                while time.monotonic() < end:\n  with job.phase('mine'): time.sleep(0.05)";
    let job = plain(&["{env:TORCH_PYTHON}", "-c"], text)
        .set("trainer.command", "level", "phases")
        .set("trainer.command", "phases", vec![toml::Value::from("mine")])
        .set(
            "trainer.command.env",
            "PYTHONPATH",
            example("../python/src").to_string_lossy().into_owned(),
        );
    let mut daemon = start_torch(&job);
    daemon.until("both ranks in their loop", |s| {
        roles(s, "trainer").iter().all(|r| r["phase"] == "loop")
    });
    let reply = daemon.json(&["inject", "--kill", "trainer", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
}

#[test]
fn a_program_that_does_not_come_up_is_given_up_and_the_key_is_named() {
    let job = plain(&["sleep"], "600")
        .set("trainer.command.ready", "file", "no-such-file")
        .set("trainer.command.ready", "timeout_s", 1.0);
    let mut daemon = Daemon::start(&job);
    assert_ne!(daemon.finish(), 0);
    let said = std::fs::read_to_string(daemon.stderr()).unwrap();
    let key = "what `trainer.command.ready` waits for did not come within 1 s";
    assert!(said.contains(key), "{said}");
}

#[test]
fn a_program_that_stands_still_is_found_by_the_window_of_its_own_loop() {
    // It computes longer than that, which is no reason.
    let text = "if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exit 0; fi; \
                end=$(($(date +%s) + 6)); while [ $(date +%s) -lt $end ]; do :; done; \
                echo computed; exec sleep 600";
    let mut daemon =
        Daemon::start(&plain(&["sh", "-c"], text).set("trainer.command.watch", "silent_s", 3.0));
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let said = daemon.stdout();
    assert!(said.contains("trainer idle"), "{said}");
    assert!(
        lines(&daemon, "trainer-0.log").contains(&"computed".to_owned()),
        "{}",
        daemon.logs()
    );
}

#[test]
fn what_a_level_does_not_have_is_refused_in_the_program_with_the_key_to_change() {
    let text = "import robustrl; job = robustrl.attach(); job.commit(loss=1.0)";
    let job = plain(&["{env:TORCH_PYTHON}", "-c"], text)
        .set("trainer.command", "level", "phases")
        .set(
            "trainer.command.env",
            "PYTHONPATH",
            example("../python/src").to_string_lossy().into_owned(),
        );
    let mut daemon = start_torch(&job);
    assert_ne!(daemon.finish(), 0);
    let said = std::fs::read_to_string(daemon.stderr()).unwrap();
    assert!(
        said.contains("commit() is for programs of level")
            && said.contains("trainer.command.level"),
        "{said}"
    );
}

/// Two parameters' worth of training, the same whatever the number of ranks, and held against the same
/// without any of this.
const RESHARDS: &str = r#"
import time, torch, robustrl, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
def made():
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Linear(5, 3))
def trains(model, optim):
    optim.zero_grad()
    loss = model(torch.ones(2, 4)).square().sum()
    loss.backward()
    optim.step()
    return loss
job = robustrl.attach()
dist.init_process_group("gloo")
model, plain = made(), made()
fully_shard(model, mesh=init_device_mesh("cpu", (job.world_size,)))
optim, other = (torch.optim.AdamW(m.parameters(), lr=0.01) for m in (model, plain))
step = job.restore({"model": model, "optim": optim})
print(f"begins at {step} of {job.world_size}", flush=True)
for _ in range(step):
    trains(plain, other)
while step < 60 and not job.over:
    time.sleep(0.1)
    loss = trains(model, optim)
    trains(plain, other)
    for one, of in zip(model.parameters(), plain.parameters()):
        torch.testing.assert_close(one.full_tensor(), of.detach())
    job.commit(loss=loss)
    step += 1
dist.destroy_process_group()
"#;

#[test]
fn a_state_that_dcp_planned_is_taken_up_by_another_number_of_ranks_and_goes_on_as_it_was() {
    let program = RESHARDS.replace('{', "{{").replace('}', "}}");
    let package = example("../python/src").to_string_lossy().into_owned();
    let job = plain(&["{env:TORCH_PYTHON}", "-c"], &program)
        .set("trainer.command", "level", "state")
        .set("trainer.command", "snapshot", "dcp")
        .set("trainer.command.env", "PYTHONPATH", package);
    let mut daemon = start_torch(&job);
    daemon.until_step(3);
    daemon.ctl(&["scale", "trainer", "1"]);
    let alone = daemon.until("one rank", |s| roles(s, "trainer").len() == 1);
    let step = alone["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    let reply = daemon.json(&["inject", "--kill", "trainer", "--wait"]);
    assert_eq!(reply["incident"]["outcome"], "recovered", "{reply}");
    let step = reply["incident"]["step"].as_u64().unwrap();
    daemon.until_step(step + 2);
    daemon.ctl(&["scale", "trainer", "2"]);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let log = lines(&daemon, "trainer-0.log");
    let begins: Vec<&str> = log
        .iter()
        .filter_map(|line| line.strip_prefix("begins at "))
        .collect();
    let of: Vec<&str> = begins
        .iter()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(of, ["2", "1", "1", "2"], "{begins:?}");
    assert!(!begins[1..].iter().any(|line| line.starts_with("0 ")));
}
