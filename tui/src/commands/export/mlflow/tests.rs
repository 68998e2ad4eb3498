#![allow(clippy::unwrap_used)]
use super::super::tests::{run, step_again};
use super::*;
use serde_norway::Value;
use std::collections::BTreeMap;

/// Every file below a folder, by its path there.
fn tree(folder: &Path) -> BTreeMap<String, String> {
    let (mut files, mut folders) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).unwrap().display().to_string();
            files.insert(name, std::fs::read_to_string(&path).unwrap());
        }
    }
    files
}

fn meta(folder: &Path) -> Value {
    let text = std::fs::read_to_string(folder.join("meta.yaml")).unwrap();
    serde_norway::from_str(&text).unwrap()
}

#[test]
fn a_run_is_where_mlflow_looks_for_it() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().canonicalize().unwrap().join("mlruns");
    let folder = Store::new(&root).whole(&run(3)).unwrap();
    let files = tree(&folder);
    assert_eq!(
        files["metrics/train/reward"],
        "1700000001000 0.5 1\n1700000003000 1 2\n1700000005000 1.5 3\n"
    );
    assert_eq!(files["metrics/incidents/total_s"], "1700000002500 1.5 4\n");
    assert_eq!(files["metrics/time/both"], "1700000006000 0.75 3\n");
    assert_eq!(files["params/job.name"], "arith");
    assert_eq!(files["params/data.mix"], "[1,2]");
    assert_eq!(files["tags/mlflow.runName"], "arith 2023-11-14 22:13:20");
    assert!(files["artifacts/incidents.md"].contains("killed by SIGKILL"));
    let read = meta(&folder);
    let id = folder.file_name().unwrap().to_str().unwrap();
    assert_eq!((read["run_id"].as_str(), id.len()), (Some(id), 32));
    assert_eq!(read["status"].as_u64(), Some(1));
    assert!(read["end_time"].is_null());
    let artifacts = format!("file://{}/artifacts", folder.display());
    assert_eq!(read["artifact_uri"].as_str(), Some(artifacts.as_str()));
    let experiment = meta(folder.parent().unwrap());
    assert_eq!(experiment["name"].as_str(), Some("arith"));
    // A string, though it is a number: MLflow compares it with the folder's name.
    assert_eq!(read["experiment_id"], experiment["experiment_id"]);
    assert!(experiment["experiment_id"].is_string());
}

#[test]
fn an_export_that_is_made_again_leaves_the_same_files_and_steps_done_again_replace_those_before() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Store::new(dir.path()).whole(&run(5)).unwrap();
    let first = tree(dir.path());
    assert_eq!(Store::new(dir.path()).whole(&run(5)).unwrap(), folder);
    assert_eq!(tree(dir.path()), first);
    let mut ended = step_again(3);
    ended.state = "failed".to_owned();
    ended.incidents.clear();
    Store::new(dir.path()).whole(&ended).unwrap();
    let files = tree(&folder);
    assert_eq!(
        files["metrics/train/reward"],
        "1700000001000 0.5 1\n1700000003000 1 2\n1700000005500 9 3\n"
    );
    assert!(!files.contains_key("metrics/incidents/total_s"));
    assert_eq!(meta(&folder)["status"].as_u64(), Some(4));
    assert_eq!(meta(&folder)["end_time"].as_u64(), Some(1_700_000_006_000));
}

#[test]
fn what_comes_later_is_put_behind_what_is_there() {
    let dir = tempfile::tempdir().unwrap();
    let mut board = Store::new(dir.path());
    let folder = board.whole(&run(2)).unwrap();
    let mut later = run(3);
    later.points.drain(..2);
    later.incidents.clear();
    board.more(&later).unwrap();
    let files = tree(&folder);
    assert_eq!(files["metrics/train/reward"].lines().count(), 3);
    assert_eq!(files["metrics/time/both"].lines().count(), 1);
}

#[test]
fn an_experiment_of_the_name_that_mlflow_made_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    for (number, name) in [("0", "Default"), ("17", "arith")] {
        let folder = dir.path().join(number);
        std::fs::create_dir(&folder).unwrap();
        let text = format!("experiment_id: '{number}'\nname: {name}\nworkspace: default\n");
        std::fs::write(folder.join("meta.yaml"), text).unwrap();
    }
    let folder = Store::new(dir.path()).whole(&run(1)).unwrap();
    assert_eq!(folder.parent().unwrap().file_name().unwrap(), "17");
    let text = std::fs::read_to_string(dir.path().join("17/meta.yaml")).unwrap();
    assert!(text.contains("workspace"), "it is as it was: {text}");
}

#[test]
fn parameters_and_causes_of_an_earlier_export_that_are_no_more_are_removed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = Store::new(dir.path()).whole(&run(2)).unwrap();
    let mut now = run(2);
    now.config.retain(|(key, _)| key == "job.name");
    now.shares.retain(|(cause, _)| cause == "both");
    Store::new(dir.path()).whole(&now).unwrap();
    let names: Vec<String> = tree(&folder).into_keys().collect();
    let below = |part: &str| {
        let below = names.iter().filter(|name| name.starts_with(part));
        below.map(String::as_str).collect::<Vec<_>>()
    };
    assert_eq!(below("params/"), ["params/job.name"]);
    assert_eq!(below("metrics/time/"), ["metrics/time/both"]);
    assert!(names.iter().any(|name| name == "metrics/train/reward"));
}

#[test]
fn keys_whose_files_would_have_the_same_name_replace_none_of_each_other() {
    let dir = tempfile::tempdir().unwrap();
    let mut told = run(1);
    told.config = [("a b", "1"), ("a_b", "2")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .to_vec();
    let folder = Store::new(dir.path()).whole(&told).unwrap();
    let files = tree(&folder);
    let params = files.iter().filter(|(name, _)| name.starts_with("params/"));
    let values: Vec<&str> = params.map(|(_, value)| value.as_str()).collect();
    assert_eq!(values, ["1", "2"]);
    assert_eq!(files["params/a_b"], "1");
}

#[test]
fn of_two_that_write_a_run_one_waits_until_the_other_has_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (mut first, mut second) = (Store::new(dir.path()), Store::new(dir.path()));
    let folder = first.whole(&run(2)).unwrap();
    let refused = second.whole(&run(3)).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
    assert!(refused.to_string().contains("another `robustctl export`"));
    let mut later = run(4);
    later.points.drain(..2);
    first.more(&later).unwrap();
    // Who holds it writes all of it again as well.
    first.whole(&run(4)).unwrap();
    drop(first);
    second.whole(&run(5)).unwrap();
    let files = tree(&folder);
    let steps: Vec<_> = files["metrics/train/reward"]
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap())
        .collect();
    assert_eq!(steps, ["1", "2", "3", "4", "5"]);
}
