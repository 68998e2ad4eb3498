//! Checkpoints in the hands of an operator, when the daemon is gone.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile, bin, fixture, torch_python};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn steps(daemon: &Daemon) -> Vec<u64> {
    let listed = daemon.json(&["ckpt", "ls"]);
    let all = listed["checkpoints"].as_array().unwrap().iter();
    all.map(|c| c["step"].as_u64().unwrap()).collect()
}

fn said(daemon: &Daemon, args: &[&str]) -> (Option<i32>, String) {
    let out = daemon.ctl(args);
    let text = [out.stdout, out.stderr].concat();
    (
        out.status.code(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// What python's `transformers` makes of the folder: tensors whose numbers are not those of the file,
/// or that it had to make up.
fn transformers_complains(folder: &Path) -> String {
    let script = "
import sys
import torch, safetensors.torch
from transformers import AutoModelForCausalLM, AutoTokenizer
model, info = AutoModelForCausalLM.from_pretrained(sys.argv[1], output_loading_info=True, dtype='float32')
AutoTokenizer.from_pretrained(sys.argv[1])
file = safetensors.torch.load_file(sys.argv[1] + '/model.safetensors')
have = model.state_dict()
print([n for n, t in file.items() if not torch.equal(have[n], t)], list(info['missing_keys']), list(info['unexpected_keys']))
";
    let out = Command::new(torch_python())
        .args(["-c", script])
        .arg(folder)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{said}");
    String::from_utf8_lossy(&out.stdout).trim().to_owned()
}

#[test]
fn checkpoints_outlive_the_job_and_begin_another() {
    // Two that are surely written: the first, before which none is under way, and that at the end.
    let job = JobFile::small()
        .set("job", "steps", 6)
        .set("checkpoint", "every", 4)
        .set("checkpoint", "keep", 1)
        .set("checkpoint", "keep_every", 4);
    let mut daemon = Daemon::start(&job);
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_eq!(steps(&daemon), [4, 6], "the newest, and every fourth");

    let (code, text) = said(&daemon, &["ckpt", "verify"]);
    assert_eq!(code, Some(0), "{text}");
    what_was_generated_can_be_read(&daemon);
    let shown = daemon.json(&["ckpt", "show", "6"]);
    let consumed = shown["consumed"].as_array().unwrap().len() as u64;
    assert_eq!(Some(consumed), shown["trajectories"].as_u64());
    assert!(consumed > 0 && shown["reward"].is_number(), "{shown}");

    let folder = daemon.state_dir().join("exported");
    let to = folder.to_str().unwrap();
    let exported = daemon.json(&["ckpt", "export", "latest", to]);
    assert_eq!(exported["step"], 6);
    assert_eq!(transformers_complains(&folder), "[] [] []");
    let (code, text) = said(&daemon, &["ckpt", "export", "5", "/nowhere"]);
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("those of steps 4, 6"), "{text}");

    // Another job begins from it, with the same numbers. Its file lies in another folder than the one
    // it is made from, whose paths are relative.
    let base = fixture("jobs/test.toml");
    let next = daemon.state_dir().join("next.toml");
    let (base, out) = (base.to_str().unwrap(), next.to_str().unwrap());
    let import = ["ckpt", "import", to, "--job", base, "--out", out];
    let own = folder.canonicalize().unwrap().join("tokenizer.json");
    assert_eq!(daemon.json(&import)["tokenizer"], own.to_str().unwrap());
    for gone in [&own, &next] {
        std::fs::remove_file(gone).unwrap();
    }
    let (code, text) = said(&daemon, &import);
    assert_eq!(code, Some(0), "{text}");
    let mut second = Daemon::start(&JobFile::read(&next).set("job", "steps", 1));
    assert_eq!(second.finish(), 0, "{}", second.logs());

    flip_a_bit(&daemon, &shown);
    let (code, text) = said(&daemon, &["ckpt", "verify", "--json"]);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("does not match its digest"), "{text}");
    let (_, text) = said(&daemon, &["ckpt", "export", "6", &format!("{to}-2")]);
    assert!(text.contains("does not match its digest"), "{text}");

    assert_eq!(said(&daemon, &["ckpt", "pin", "4"]).0, Some(0));
    assert_eq!(said(&daemon, &["ckpt", "gc"]).0, Some(0));
    assert_eq!(steps(&daemon), [4, 6]);
}

/// Nothing of the job runs any more: a daemon that only shows answers.
fn what_was_generated_can_be_read(daemon: &Daemon) {
    let mut shown = Command::new(bin("robustd"))
        .args(["--inspect", "--state-dir"])
        .arg(daemon.state_dir())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !daemon.ctl(&["status"]).status.success() {
        assert!(Instant::now() < until, "nothing is shown");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(daemon.json(&["report"])["steps"], 6);
    let (code, text) = said(daemon, &["store", "check"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("6 committed steps") && text.contains("2 checkpoints"),
        "{text}"
    );
    let (code, text) = said(daemon, &["inject", "--kill", "trainer"]);
    assert_eq!(code, Some(4), "{text}");
    let file = daemon.state_dir().join("out.jsonl");
    let args = ["traj", "export", "--from", "2", "--to-batch", "3"];
    let exported = daemon.json(&[&args[..], &[file.to_str().unwrap()]].concat());
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert_eq!(exported["trajectories"], lines.len());
    assert!(!lines.is_empty());
    for t in &lines {
        let batch = t["batch"].as_u64().unwrap();
        assert!([2, 3].contains(&batch) && t["consumed_by"] == batch, "{t}");
        assert!(
            !t["turns"][0]["spans"][0]["ids"]
                .as_array()
                .unwrap()
                .is_empty()
        );
    }
    let parquet = daemon.state_dir().join("out.parquet");
    let exported = daemon.json(&["traj", "export", parquet.to_str().unwrap()]);
    assert!(exported["trajectories"].as_u64().unwrap() > lines.len() as u64);
    assert!(daemon.ctl(&["stop"]).status.success());
    assert!(shown.wait().unwrap().success());
}

fn flip_a_bit(daemon: &Daemon, shown: &Value) {
    let file = shown["shards"][0]["file"].as_str().unwrap();
    assert!(Path::new(file).starts_with(daemon.state_dir()));
    let mut bytes = std::fs::read(file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(file, bytes).unwrap();
}
