//! It must work every time.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use robust_tests::{Daemon, JobFile};

#[test]
fn twenty_five_kills_of_the_trainer_are_twenty_five_role_restarts() {
    let mut daemon = Daemon::start(&JobFile::small().set("job", "steps", 2000));
    let mut step = 1;
    let mut totals = Vec::new();
    for kill in 0..25 {
        daemon.until_step(step);
        let index = (kill % 2).to_string();
        let reply = daemon.json(&["inject", "--kill", "trainer", "--index", &index, "--wait"]);
        let incident = &reply["incident"];
        assert_eq!(
            incident["outcome"],
            "recovered",
            "kill {kill}: {reply}\n{}",
            daemon.logs()
        );
        assert!(
            incident["plan"]
                .as_str()
                .unwrap()
                .starts_with("restart the trainer gang"),
            "kill {kill}: {incident}"
        );
        // A fault before the restarted gang's first step would rightly restart the task.
        step = incident["step"].as_u64().unwrap() + 1;
        totals.push(incident["total_ms"].as_f64().unwrap());
    }
    totals.sort_by(f64::total_cmp);
    println!(
        "total_ms of 25 recoveries: median {}, worst {}",
        totals[12], totals[24]
    );
    let status = daemon.until_step(step);
    assert_eq!(
        status["incidents"].as_array().unwrap().len(),
        25,
        "{status}"
    );
}
