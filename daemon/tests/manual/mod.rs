//! What the program says about itself and in which form it logs.
use super::{Site, said};
use serde_json::Value;
use std::fs;

fn objects(text: &str) -> Vec<Value> {
    let line = |line: &str| {
        let read = serde_json::from_str::<Value>(line);
        read.unwrap_or_else(|e| panic!("not JSON ({e}): {line}"))
    };
    text.lines().map(line).collect()
}

#[test]
fn as_json_every_line_of_the_daemon_and_the_begin_of_each_life_is_an_object() {
    let site = Site::new(2);
    // The form is handed on to roles in their environment.
    let script = fs::read_to_string(site.file("worker")).unwrap();
    let tells = "#!/bin/sh\necho \"{\\\"told\\\": \\\"$ROBUST_LOG_FORMAT\\\"}\"\n";
    fs::write(site.file("worker"), script.replace("#!/bin/sh\n", tells)).unwrap();
    let output = site.run(&["--log-format", "json"]);
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
    let lines = objects(&said(&output));
    for line in &lines {
        for key in ["timestamp", "level", "target", "fields"] {
            assert!(line.get(key).is_some(), "no {key}: {line}");
        }
    }
    let log = fs::read_to_string(site.state().join("logs/rollout-0.log")).unwrap();
    let begin: Vec<&str> = log.lines().take(2).collect();
    let begin = objects(&begin.join("\n"));
    assert_eq!(begin[0]["instance"], "rollout-0", "{log}");
    assert!(begin[0]["incarnation"].as_u64().unwrap() > 0, "{log}");
    assert_eq!(begin[1]["told"], "json", "{log}");
}

#[test]
fn as_json_the_reason_of_a_refusal_is_an_object_too() {
    let site = Site::new(2);
    fs::remove_file(site.file("data.jsonl")).unwrap();
    let output = site.run(&["--log-format", "json"]);
    assert_eq!(output.status.code(), Some(6), "{}", said(&output));
    let last = objects(&said(&output)).pop().unwrap();
    assert_eq!(last["level"], "ERROR");
    let message = last["fields"]["message"].as_str().unwrap();
    assert!(message.contains("data.prompts"), "{message}");
}

#[test]
fn the_manual_and_the_completions_are_made_without_a_job() {
    let run = |args: &[&str]| {
        let program = env!("CARGO_BIN_EXE_robustd");
        let output = std::process::Command::new(program).args(args).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    let page = run(&["man"]);
    assert!(page.contains(".TH robustd 1"), "{page}");
    assert!(page.contains("log\\-format"), "{page}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(
            run(&["completions", shell]).contains("listen-nodes"),
            "{shell}"
        );
    }
}
