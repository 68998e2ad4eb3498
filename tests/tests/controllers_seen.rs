//! What operators see of several controllers, and how a leader that cannot write gives its place away.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use nix::sys::signal::Signal;
use robust_tests::{Controllers, JobFile};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

const SLOTS: &[(&str, i64)] = &[("train", 2), ("rollout", 3), ("agent", 2)];

fn start() -> Option<Controllers> {
    let job = JobFile::small()
        .set("job", "steps", 1_000)
        .nodes(&[("a", SLOTS)]);
    let mut all = Controllers::seen(&job, 3)?;
    all.join("a");
    Some(all)
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap_or(0)
}

fn following(status: &Value) -> Vec<String> {
    let all = status["controllers"]["followers"].as_array().cloned();
    let all = all.unwrap_or_default().into_iter();
    let follows = all.filter(|follower| follower["state"] == "follows");
    follows
        .map(|follower| follower["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// The metrics that are shown at an address; none: nobody shows any.
fn scraped(at: &str) -> Option<String> {
    let mut stream = TcpStream::connect(at).ok()?;
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut said = String::new();
    stream.read_to_string(&mut said).ok()?;
    said.starts_with("HTTP/1.1 200").then_some(said)
}

#[test]
fn the_leader_is_found_and_says_who_follows_it_and_how_it_took_over() {
    let Some(mut all) = start() else { return };
    let (first, status) = all.until("two controllers to follow", |s| {
        step(s) >= 1 && following(s).len() == 2
    });
    assert_eq!(status["controllers"]["leader"], format!("c{first}"));
    let follower = (first + 1) % 3;
    let control = |status: &Value| status["controllers"]["leader"].clone();
    let elsewhere = all.wait_until(|all| all.asked(follower, &["status"]));
    assert_eq!(control(&elsewhere), format!("c{first}"));
    let by_address = all.wait_until(|all| all.asked_all(follower, &["status"]));
    assert_eq!(control(&by_address), format!("c{first}"));

    // One that follows leads there too, and shows itself.
    let by_follower =
        all.wait_until(|all| all.asked_at(&all.control[follower], follower, &["status"]));
    assert_eq!(control(&by_follower), format!("c{first}"));
    let shows = |all: &Controllers, which: usize, line: &str| {
        let text = scraped(&all.metrics[which])?;
        text.contains(line).then_some(text)
    };
    let epoch = &by_address["controllers"]["epoch"];
    let follows =
        format!("robust_candidate_epoch{{name=\"c{follower}\",leader=\"c{first}\"}} {epoch}");
    let shown = all.wait_until(|all| shows(all, follower, &follows));
    let may_lead = format!("robust_candidate_may_lead{{name=\"c{follower}\"}} 1");
    assert!(shown.contains(&may_lead), "{shown}");
    assert!(!shown.contains("robust_job_info"), "{shown}");
    let leads = |which: usize| format!("robust_candidate_leads{{name=\"c{which}\"}} 1");
    all.wait_until(|all| shows(all, first, &leads(first)));

    all.signal(first, Signal::SIGKILL);
    let after = all.wait_until(|all| {
        let status = all.asked_all(follower, &["status"])?;
        let is_whole = step(&status) > step(&by_address) && following(&status).len() == 1;
        (is_whole
            && status["controllers"]["takeover"]["stages"]
                .as_array()?
                .len()
                == 5)
            .then_some(status)
    });
    let takeover = &after["controllers"]["takeover"];
    assert_eq!(takeover["from"], format!("c{first}"), "{takeover}");
    assert!(takeover["total_ms"].as_f64().unwrap() > 0.0, "{takeover}");
    let stages = takeover["stages"].as_array().unwrap();
    let names: Vec<&str> = stages.iter().filter_map(|s| s["name"].as_str()).collect();
    assert_eq!(names, ["silence", "election", "log", "start", "record"]);
    let epochs = [&by_address, &after].map(|s| s["controllers"]["epoch"].as_u64());
    assert!(epochs[0] < epochs[1], "{epochs:?}");
    // The address of one that followed is the leader's now.
    let name = after["controllers"]["leader"].as_str().unwrap();
    let second: usize = name.strip_prefix('c').unwrap().parse().unwrap();
    let shown = all.wait_until(|all| shows(all, second, &leads(second)));
    assert!(shown.contains("robust_job_info"), "{shown}");
}

#[test]
fn a_leader_that_cannot_write_the_log_gives_its_place_to_a_follower_that_can() {
    let Some(mut all) = start() else { return };
    let (first, before) = all.until("two controllers to follow", |s| {
        step(s) >= 1 && following(s).len() == 2
    });
    let roles = all.roles();
    all.cut_log(first);
    let (second, after) = all.until_other(first, |s| {
        s["controllers"]["leader"] != before["controllers"]["leader"] && step(s) > step(&before)
    });
    assert_eq!(
        after["controllers"]["takeover"]["from"],
        format!("c{first}")
    );
    assert_eq!(roles, all.roles(), "{}", all.logs());
    let log = all.log(&format!("control-{first}"));
    assert!(log.contains("which another controller could"), "{log}");
    // It follows again once it reaches the log.
    all.mend_log(first);
    all.until("all to follow", |s| {
        s["controllers"]["leader"] == format!("c{second}") && following(s).len() == 2
    });
}

#[test]
fn a_leader_keeps_its_place_while_nobody_can_write_the_log() {
    let Some(mut all) = start() else { return };
    let (first, before) = all.until("two controllers to follow", |s| {
        step(s) >= 1 && following(s).len() == 2
    });
    for which in 0..3 {
        all.cut_log(which);
    }
    let alarm = |s: &Value| {
        s["alarms"]
            .as_array()
            .is_some_and(|a| a.iter().any(|a| a["kind"] == "log away"))
    };
    all.until("the alarm", alarm);
    // The leader has doubted for some time that it should lead.
    let tried = |all: &Controllers| {
        let followers = (0..3).filter(|which| *which != first);
        followers.fold(0, |n, which| {
            let log = all.log(&format!("control-{which}"));
            n + log.matches("neither can this controller").count()
        }) >= 8
    };
    all.wait_for("the followers to have tried for some seconds", tried);
    // The leader first: from then on somebody can write, and it is one of them.
    for which in [first, (first + 1) % 3, (first + 2) % 3] {
        all.mend_log(which);
    }
    let (now, _) = all.until("the job to go on", |s| step(s) > step(&before) && !alarm(s));
    assert_eq!(now, first, "{}", all.logs());
    assert!(
        !all.log(&format!("control-{first}"))
            .contains("leads no more")
    );
}

#[test]
fn a_controller_that_nobody_follows_says_so() {
    let Some(mut all) = start() else { return };
    let (first, _) = all.until("two controllers to follow", |s| following(s).len() == 2);
    for which in (0..3).filter(|which| *which != first) {
        all.signal(which, Signal::SIGKILL);
    }
    let (_, status) = all.until("the alarm", |s| {
        s["alarms"]
            .as_array()
            .is_some_and(|a| a.iter().any(|a| a["kind"] == "no follower"))
    });
    assert!(following(&status).is_empty(), "{status}");
    all.launch((first + 1) % 3);
    all.until("its end", |s| {
        s["alarms"].as_array().is_some_and(Vec::is_empty) && following(s).len() == 1
    });
}
