//! Controllers of which only some have what the job is made of: model, tokenizer and prompts.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use robust_tests::{Controllers, Daemon, JobFile, assert_consumed_once, lay_files, of_files};
use serde_json::Value;

const SLOTS: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
const MORE: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];
const PER_STEP: usize = 16;

fn job(steps: i64) -> JobFile {
    JobFile::small()
        .set("job", "steps", steps)
        .nodes(&[("a", SLOTS), ("b", MORE)])
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap_or(0)
}

fn is_whole(status: &Value) -> bool {
    let all = status["roles"].as_array().cloned().unwrap_or_default();
    all.len() >= 4 && all.iter().all(|r| r["state"] == "running")
}

/// The followers in this state.
fn followers(status: &Value, state: &str) -> Vec<String> {
    let all = status["controllers"]["followers"].as_array().cloned();
    let all = all.unwrap_or_default().into_iter();
    let such = all.filter(|follower| follower["state"] == state);
    such.map(|follower| follower["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

#[test]
fn a_job_whose_files_were_on_one_machine_goes_on_without_that_machine_and_starts_roles() {
    let Some(mut all) = Controllers::apart(&job(1_000), 3, &[0]) else {
        return;
    };
    all.join("a");
    all.join("b");
    // The others could lead once they have fetched everything.
    let (first, before) = all.until(
        "the job to be at work, and the others to have its files",
        |s| step(s) >= 2 && is_whole(s) && followers(s, "follows").len() == 2,
    );
    assert_eq!(first, 0, "{}", all.logs());
    for which in [1, 2] {
        let copies = all.state_dir(which).join("files");
        for name in [
            "prompts/prompts.jsonl",
            "tokenizer/tokenizer.json",
            "model/model.safetensors",
        ] {
            assert!(copies.join(name).is_file(), "{which}: {name}");
        }
    }
    let roles = all.roles();
    all.signal(0, Signal::SIGKILL);
    all.burn(0);
    let (second, after) = all.until_other(0, |s| step(s) > step(&before));
    assert_eq!(roles, all.roles(), "{}", all.logs());
    let log = all.log(&format!("control-{second}"));
    assert!(log.contains("data.prompts is the copy in"), "{log}");
    // A node without copies gets them of the new leader, and a new role begins with them.
    all.restart_node_without_files("b");
    all.wait_for("the node to have the files again", |all| {
        all.log("node-b")
            .matches("fetched model.safetensors")
            .count()
            == 2
    });
    let killed = all.kill_role("b", "rollout");
    let (_, last) = all.until("the role to be replaced, and the job to go on", |s| {
        step(s) > step(&after) + 1 && is_whole(s) && !s["incidents"].as_array().unwrap().is_empty()
    });
    assert!(
        !all.roles_of("b").iter().any(|(_, line)| *line == killed),
        "{last}"
    );
    // Nothing that the leader before kept in its own memory is offered as a shard of this one.
    for log in ["control-1", "control-2", "node-a", "node-b"] {
        assert!(!all.log(log).contains("is no shard of this job"), "{log}");
    }
    all.stop(second);
}

#[test]
fn whoever_lacks_a_file_does_not_lead_until_it_has_the_very_one() {
    // Nothing is copied: every controller has its own, or has not.
    let job = job(1_000);
    let apart = job.clone().set("store", "copy_files_up_to_mb", 0);
    let Some(mut all) = Controllers::apart(&apart, 3, &[0, 2]) else {
        return;
    };
    all.join("a");
    all.join("b");
    let (first, before) = all.until("the job to be at work, and c1 to say what it lacks", |s| {
        step(s) >= 2 && followers(s, "lacks files") == ["c1"] && followers(s, "follows").len() == 1
    });
    let second = 2 - first;
    let said = all.said(first, &["status"]);
    assert!(said.contains("c1 cannot lead: lacks"), "{said}");
    assert!(
        said.contains("arith.jsonl") || said.contains("prompts.jsonl"),
        "{said}"
    );
    all.signal(first, Signal::SIGKILL);
    let (leader, after) = all.until_other(first, |s| step(s) > step(&before));
    assert_eq!(leader, second, "{}", all.logs());
    // Now nobody can: what is missing, and where, is said at the one that is left.
    all.signal(second, Signal::SIGKILL);
    all.wait_for("c1 to say that nobody leads, and why", |all| {
        let said = all.said(1, &["status"]);
        said.contains("none leads")
            && said.contains("This controller cannot lead")
            && said.contains("site-1/files")
    });
    // Another file at the same path is not the job's.
    all.lay_files(&job, 1);
    let prompts = all.site(1).join("files/arith.jsonl");
    let whole = std::fs::read(&prompts).unwrap();
    let begun = blake3::hash(&whole).to_hex().to_string();
    let changed = [&whole[..], b"{\"prompt\": \"1+1\", \"answer\": \"2\"}\n"].concat();
    std::fs::write(&prompts, &changed).unwrap();
    all.wait_for("c1 to tell both digests", |all| {
        let said = all.said(1, &["status"]);
        said.contains(&begun) && said.contains(blake3::hash(&changed).to_hex().as_str())
    });
    std::fs::write(&prompts, &whole).unwrap();
    let (third, _) = all.until("c1 to lead", |s| step(s) > step(&after));
    assert_eq!(third, 1, "{}", all.logs());
    all.stop(1);
}

#[test]
fn a_job_is_restored_on_a_machine_that_never_had_its_files() {
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = |name: &str| format!("file://{}/{name}", elsewhere.path().display());
    let job = JobFile::small().set("job", "steps", 6);
    let site = elsewhere.path().join("site");
    lay_files(&job, &site);
    let named = of_files(&job);
    let absolute = |section: &str, key: &str| {
        let named = site.join(named.text_of(section, key));
        named.display().to_string()
    };
    let job = named
        .clone()
        .set("data", "prompts", absolute("data", "prompts"))
        .set("data", "tokenizer", absolute("data", "tokenizer"))
        .set("model", "path", absolute("model", "path"))
        .set("store", "remote_log", folder("log"))
        .set("checkpoint", "every", 1)
        .set("checkpoint", "remote", folder("ckpt"));
    let mut daemon = Daemon::start(&job);
    daemon.until_step(3);
    daemon.until("its files to be in the store", |_| {
        let files = elsewhere.path().join("log/test/files");
        let objects = std::fs::read_dir(files).into_iter().flatten().flatten();
        // What is on its way has another name.
        objects.filter(|o| o.file_name().len() == 64).count() == 4
    });
    std::fs::remove_dir_all(&site).unwrap();
    daemon.goes_on_from(&folder("log"));
    let after = daemon.until("the job to go on", |s| is_whole(s) || step(s) > 3);
    assert!(step(&after) >= 3, "{after}");
    assert_eq!(daemon.finish(), 0, "{}", daemon.logs());
    assert_consumed_once(&daemon.state_dir(), 6, PER_STEP);
}
