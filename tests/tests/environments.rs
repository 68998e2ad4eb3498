//! Environments of the user's own, in Python: really killed, failing, and going astray.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_tests::{
    Daemon, JobFile, assert_consumed_once, engine_process, example, roles, start_torch,
};
use serde_json::Value;

/// The small job with this program for its conversations.
fn with_program(argv: &[&str]) -> JobFile {
    let argv: Vec<toml::Value> = argv.iter().map(|text| (*text).into()).collect();
    let text = |name: &str| example(name).to_string_lossy().into_owned();
    JobFile::small()
        .set("agent.command", "argv", argv)
        .set("agent.command", "cwd", text("own_environment"))
        .set("agent.command.ready", "timeout_s", 60)
        .set("agent.command.env", "PYTHONPATH", text("../python/src"))
}

/// The one of `examples/own_environment`.
fn with_example() -> JobFile {
    with_program(&["{env:TORCH_PYTHON}", "environment.py"])
}

/// One whose text is this.
fn with_text(text: &str) -> JobFile {
    let text = text.replace('{', "{{").replace('}', "}}");
    with_program(&["{env:TORCH_PYTHON}", "-c", &text])
}

fn given_back(status: &Value) -> u64 {
    status["trajectories_given_back"].as_u64().unwrap()
}

#[test]
fn in_mode_sync_an_environment_in_python_gives_the_bits_of_the_built_in_one_though_it_is_killed() {
    const STEPS: i64 = 12;
    let sync = |job: JobFile| {
        job.set("job", "steps", STEPS)
            .set("job", "mode", "sync")
            .set("checkpoint", "every", 4)
            .set("agent", "durable_every_ms", 20)
    };
    let mut built_in = Daemon::start(&sync(JobFile::small()));
    assert_eq!(built_in.finish(), 0, "{}", built_in.logs());
    let mut daemon = start_torch(&sync(with_example()));
    for step in [2, 4, 6] {
        daemon.until_step(step);
        daemon.wait_for("a program of an agent", |d| {
            engine_process(d, "agent", 0, "environment.py").is_some()
        });
        let python = engine_process(&daemon, "agent", 0, "environment.py").unwrap();
        kill(Pid::from_raw(python), Signal::SIGKILL).unwrap();
        daemon.until("its worker is back", |s| {
            let of = s["incidents"].as_array().unwrap();
            let named = |i: &Value| {
                i["reason"]
                    .as_str()
                    .unwrap()
                    .contains(&format!("(pid {python})"))
            };
            of.iter().any(|i| named(i) && i["outcome"] == "recovered")
        });
    }
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), STEPS as u64, 16);
    assert!(
        built_in.checkpoint(STEPS) == daemon.checkpoint(STEPS),
        "the same conversations give the same weights"
    );
}

#[test]
fn an_environment_outlives_its_daemon_and_is_adopted_by_the_next() {
    let mut daemon = start_torch(&with_example().set("job", "steps", 60));
    let before = daemon.until_step(3);
    daemon.kill_daemon();
    daemon.launch();
    let after = daemon.until_step(before["step"].as_u64().unwrap() + 4);
    let lives = |status: &Value| -> Vec<u64> {
        let all = roles(status, "agent").into_iter();
        all.map(|r| r["incarnation"].as_u64().unwrap()).collect()
    };
    assert_eq!(lives(&before), lives(&after));
    assert_eq!(
        after["incidents"],
        serde_json::json!([]),
        "{}",
        daemon.logs()
    );
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), 60, 16);
}

/// Its tool fails for a while in every process, and it raises by itself once.
const FAILS: &str = r#"
import asyncio, robustrl
failures = {"tool": 20, "own": 2}
def tool(n):
    if failures["tool"] > 0:
        failures["tool"] -= 1
        raise OSError("no space left on device")
    return n + 1
@robustrl.environment
async def rollout(prompt, engine):
    if failures["own"] > 0:
        failures["own"] -= 1
        raise RuntimeError("the sandbox is not up yet")
    tokenizer = engine.job.tokenizer
    said = await engine.generate(tokenizer.encode(prompt.text).ids)
    assert await engine.tool("tool", tool, 1, retries=1) == 2
    return 0.5, tokenizer.decode(said.ids)
robustrl.serve()
"#;

#[test]
fn what_an_environment_raises_is_no_sample_and_its_conversation_is_held_again() {
    let mut daemon = start_torch(&with_text(FAILS).set("job", "steps", 4));
    let status = daemon.until("it is over", |s| {
        s["state"] == "completed" || s["step"] == 3
    });
    assert!(given_back(&status) >= 4, "{status}");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), 4, 16);
    let said = std::fs::read_to_string(daemon.stderr()).unwrap();
    for words in [
        "the tool tool failed 2 times, at last with OSError: no space left on device",
        "RuntimeError: the sandbox is not up yet",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

/// What it adds differs each time, and it waits where it can be killed.
const STRAYS: &str = r#"
import asyncio, random, robustrl
@robustrl.environment
async def rollout(prompt, engine):
    ids = engine.job.tokenizer.encode(prompt.text).ids
    for turn in range(2):
        said = await engine.generate(ids, max_new_tokens=4)
        ids = [*ids, *said.ids, random.randrange(2, 10), random.randrange(2, 10)]
    said = await engine.generate(ids, max_new_tokens=4)
    ids = [*ids, *said.ids, 5]
    await asyncio.sleep(0.7)
    await engine.generate(ids, max_new_tokens=4)
    return random.random()
robustrl.serve()
"#;

/// Whether some conversation has what a program that begins it again would have to say once more.
fn has_said(daemon: &Daemon) -> bool {
    let held = daemon.ctl(&["traj", "ls", "--state", "running", "--json"]);
    let lines = String::from_utf8(held.stdout).unwrap();
    let turns = |line| serde_json::from_str::<Value>(line).unwrap()["turn_count"].as_u64();
    lines.lines().any(|line| turns(line) >= Some(3))
}

#[test]
fn one_that_goes_another_way_after_its_death_begins_its_conversations_anew() {
    let mut daemon = start_torch(&with_text(STRAYS).set("job", "steps", 8));
    daemon.until_step(1);
    let mut killed = 0;
    while killed < 3 {
        daemon.wait_for("a conversation in its last turn", has_said);
        let program = engine_process(&daemon, "agent", 0, "robustrl.serve()");
        if let Some(program) = program {
            kill(Pid::from_raw(program), Signal::SIGKILL).unwrap();
            killed += 1;
        }
        let incidents = daemon.status()["incidents"].as_array().unwrap().len();
        daemon.until("the worker is back", |s| {
            let all = s["incidents"].as_array().unwrap();
            all.len() >= incidents && all.iter().all(|i| i["outcome"] == "recovered")
        });
    }
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), 8, 16);
    let said = std::fs::read_to_string(daemon.stderr()).unwrap();
    assert!(
        said.contains("other tokens follow the model's than did before"),
        "{said}"
    );
}

#[test]
fn one_that_says_nothing_of_a_conversation_loses_it_and_keeps_the_others() {
    let text = "import asyncio, robustrl\nstuck = [True]\n@robustrl.environment\n\
                async def rollout(prompt, engine):\n    if stuck and stuck.pop():\n        \
                await asyncio.sleep(3600)\n    await engine.generate([5, 6], max_new_tokens=2)\n    \
                return 1.0\nrobustrl.serve()";
    let job = with_text(text)
        .set("job", "steps", 3)
        .set("agent.command", "silent_s", 1.5);
    let mut daemon = start_torch(&job);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    let said = std::fs::read_to_string(daemon.stderr()).unwrap();
    assert!(
        said.contains("the environment said nothing for 1.5 s (agent.command.silent_s)"),
        "{said}"
    );
    assert_consumed_once(&daemon.state_dir(), 3, 16);
}

#[test]
fn a_program_that_does_not_come_up_is_told_with_its_own_last_line() {
    for (text, words) in [
        ("import robustlr", "No module named 'robustlr'"),
        (
            "import robustrl; robustrl.serve()",
            "there is no environment; decorate one with @robustrl.environment",
        ),
    ] {
        let mut daemon = start_torch(&with_text(text));
        assert_ne!(daemon.finish(), 0);
        let said = std::fs::read_to_string(daemon.stderr()).unwrap();
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_reward_alone_is_an_environment_of_one_turn() {
    let text = "import robustrl\n@robustrl.reward\ndef reward(prompt, text):\n    \
                return float(prompt.answer in text) - len(text) / 100\nrobustrl.serve()";
    let mut daemon = start_torch(&with_text(text).set("job", "steps", 12));
    let seen = daemon.until_step(1);
    let hosting = seen["hosted"].as_array().unwrap();
    let agent = hosting.iter().find(|h| h["role"] == "agent").unwrap();
    assert_eq!(agent["hosting"], "environment", "{agent}");
    assert_eq!(roles(&seen, "agent").len(), 2);
    // A Python is more than its shim.
    daemon.until("its program's memory to be seen", |s| {
        let of = |r: &Value| r["rss_bytes"].as_u64().unwrap();
        roles(s, "agent").iter().all(|r| of(r) > 30 << 20)
    });
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), 12, 16);
    // Answers end where the model ends them: none that learnt to answer needs so many tokens.
    let steps = daemon.stdout();
    let tokens = |line: &str| -> Option<u64> {
        let (_, rest) = line.split_once("tokens")?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let all: Vec<u64> = steps.lines().filter_map(tokens).collect();
    assert!(all.iter().any(|n| *n < 16 * 24 / 2), "{steps}");
}

/// It ends with these words where it reaches what listens at the port, and serves a reward where it does not.
const CAUTIOUS: &str = "import robustrl, socket, sys
try:
    socket.create_connection(('127.0.0.1', PORT), 5).close()
    sys.exit('the network is open')
except OSError:
    pass
@robustrl.reward
def reward(prompt, text):
    return float(prompt.answer in text)
robustrl.serve()";

#[test]
fn an_environment_without_a_network_reaches_no_port_of_its_machine_and_the_job_trains() {
    if let Err(why) = robust_tree::permitted() {
        return robust_needs::skip(
            format!("network namespaces cannot be made ({why})"),
            robust_needs::ROOT,
        );
    }
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let job = with_text(&CAUTIOUS.replace("PORT", &port)).set("job", "steps", 3);
    let mut open = start_torch(&job);
    assert_ne!(open.finish(), 0);
    let said = std::fs::read_to_string(open.stderr()).unwrap();
    assert!(said.contains("the network is open"), "{said}");
    let mut closed = start_torch(&job.set("agent.command", "network", false));
    assert_eq!(closed.finish(), 0, "{}", closed.logs());
    assert_consumed_once(&closed.state_dir(), 3, 16);
}
