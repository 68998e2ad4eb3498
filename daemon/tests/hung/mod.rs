//! A rank that is really stopped in the middle of a step: its gang's incident names it, whichever rank the
//! rule saw, and has the stacks of all.
use super::stalled::{pid_of, trains};
use super::{Site, fake};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_proto::v1;
use std::fs;

/// The exit code after SIGTERM.
const STOPPED: i32 = 143;

/// A job in which a hang is found after two seconds; debuggers have time enough on a busy machine.
fn site() -> Site {
    let site = Site::new(100_000);
    let job = fs::read_to_string(site.file("job.toml")).unwrap();
    let rules = "evidence_ms = 20000\ntrainer_idle = { window_s = 2 }\n";
    fs::write(site.file("job.toml"), job + rules).unwrap();
    site
}

#[tokio::test]
async fn the_rank_that_is_stopped_is_the_root_whichever_the_rule_saw_and_all_stacks_are_there() {
    let site = site();
    let daemon = site.start_env(&[(fake::UPDATE_MS, "60000"), (fake::WAITS, "")]);
    let before = site.wait_for("an update", |s| trains(s, 2)).await;
    let pids = [0, 1].map(|index| pid_of(&before, "trainer", index));
    // Both sleep through their update: to the rule one is as idle as the other, and it may name either.
    kill(Pid::from_raw(pids[1]), Signal::SIGSTOP).unwrap();

    let told = |s: &v1::Status| s.incidents.iter().any(|i| !i.root.is_empty());
    let status = site.wait_for("the verdict's evidence", told).await;
    let [incident] = status.incidents.as_slice() else {
        panic!("{:#?}", status.incidents);
    };
    let who = (&*incident.rule, &*incident.role, incident.index);
    assert_eq!(who, ("trainer idle", "trainer", 1), "{incident:#?}");
    let root = "trainer-1 is stopped (by a signal or a debugger), in update of step 1";
    assert!(incident.root.starts_with(root), "{incident:#?}");
    // The rule names the others that it found beside the first one.
    let judged = match incident.reason.contains("trainer-1 idle") {
        true => "trainer-0",
        false => "",
    };
    assert_eq!(incident.judged, judged, "{incident:#?}");
    for (pid, state) in [(pids[1], 'T'), (pids[0], 'S')] {
        let found = incident.evidence.find(&format!("process {pid} ("));
        let of = &incident.evidence[found.unwrap_or_else(|| panic!("{incident:#?}"))..];
        let line = of.lines().next().unwrap();
        assert!(line.ends_with(&format!("is in state {state}")), "{line}");
        assert!(of.contains("wchan"), "{of}");
    }
    let states: Vec<_> = incident.testimony.iter().map(|t| &*t.state).collect();
    assert_eq!(states, ["stopped", "lives"], "{incident:#?}");

    let again = |s: &v1::Status| trains(s, 2) && pid_of(s, "trainer", 1) != pids[1];
    site.wait_for("the update again", again).await;
    daemon.signal(Signal::SIGTERM);
    assert_eq!(daemon.output().0, STOPPED, "{}", site.log());
}
