//! `traj export`: what it leaves where.
use super::fake::Book;
use super::{daemon, err, robustctl, run};
use robust_proto::v1;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What a loaded machine has not begun by then it never does.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK_EVERY: Duration = Duration::from_millis(20);

fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn book(batches: u64) -> Book {
    let trajectory = |batch| v1::Trajectory {
        batch,
        ..Default::default()
    };
    Book {
        trajectories: (1..=batches).map(trajectory).collect(),
        ..Default::default()
    }
}

#[test]
fn an_export_is_whole_under_its_name_and_leaves_nothing_else() {
    let (dir, _fake, _server) = daemon(book(3));
    let to = tempfile::tempdir().unwrap();
    for (name, lines) in [("t.jsonl", Some(3)), ("t.parquet", None)] {
        let file = to.path().join(name);
        let output = run(dir.path(), &["traj", "export", file.to_str().unwrap()]);
        assert!(output.status.success(), "{}", err(&output));
        let bytes = std::fs::read(&file).unwrap();
        let ends = bytes.iter().filter(|b| **b == b'\n').count();
        assert!(
            lines.is_none_or(|lines| lines == ends),
            "{name}: {ends} lines"
        );
    }
    assert_eq!(names(to.path()), ["t.jsonl", "t.parquet"]);
}

#[test]
fn an_export_does_not_touch_another_to_the_same_name_that_is_under_way() {
    let (dir, fake, _server) = daemon(book(3));
    fake.0.lock().unwrap().never_ends = true;
    let to = tempfile::tempdir().unwrap();
    let file = to.path().join("t.jsonl");
    let args = ["traj", "export", file.to_str().unwrap()];
    let mut slow = robustctl(dir.path(), &args)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let begin = Instant::now();
    while names(to.path()).is_empty() {
        assert!(begin.elapsed() < PATIENCE, "it was never begun");
        std::thread::sleep(LOOK_EVERY);
    }
    let under_way = names(to.path());
    fake.0.lock().unwrap().never_ends = false;
    let output = run(dir.path(), &args);
    let after = names(to.path());
    slow.kill().unwrap();
    slow.wait().unwrap();
    assert!(output.status.success(), "{}", err(&output));
    assert_eq!(after, ["t.jsonl", under_way[0].as_str()]);
    let whole = std::fs::read_to_string(&file).unwrap();
    assert_eq!(whole.lines().count(), 3);
}
