//! What people write: job files, drill files, faults and their moments, values to change, templates of commands. What
//! is taken is the same when it is written and read again.
#![no_main]
#![allow(missing_docs)]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use robust_shared::core::{Core, CoreConfig, Input};
use robust_shared::drill::{Drill, Expectation, Plan};
use robust_shared::fault::{At, Spec};
use robust_shared::ids::{InstanceId, Role};
use robust_shared::job::{Job, Template};
use robust_shared::time::Time;

fuzz_target!(|bytes: &[u8]| {
    let Some((how, rest)) = bytes.split_first() else {
        return;
    };
    let Ok(text) = std::str::from_utf8(rest) else {
        return;
    };
    match how % 8 {
        0..=2 => job(text),
        3 => drill(text),
        4 => changes(text),
        5 => fault(text),
        6 => drop(Expectation::comparison(text, &["main", "clean"])),
        _ => words(text),
    }
});

fn job(text: &str) {
    let Ok(mut job) = Job::parse(text, Path::new("job.toml")).map_err(|e| e.to_string()) else {
        return;
    };
    let json = serde_json::to_vec(&job).expect("a job can be written");
    let again = Job::from_json(&json).expect("a job that was written can be read");
    assert!(again == job, "a job changed on its way through JSON");
    job.resolve(Path::new("/folder"));
    drop(job.required_files());
    // A job of a million places is possible, and takes its time.
    let places = |role| u64::from(job.count(role));
    if Role::ALL.into_iter().map(places).sum::<u64>() + job.samples_per_step() < 10_000 {
        let mut core = Core::new(CoreConfig::from(&job));
        core.handle(Time(1_000_000_000), Input::Start);
        while core.poll_output().is_some() {}
        core.check().expect("the index of a new job");
    }
}

fn drill(text: &str) {
    match Drill::parse(text, Path::new("drill.toml")) {
        Ok(drill) => {
            drop(drill.about());
            let _ = Plan::make(&drill, JOB, Path::new("job.toml")).map_err(|e| e.to_string());
        }
        Err(e) => drop(e.to_string()),
    }
}

/// A job that drills are about.
const JOB: &str = include_str!("../../../fixtures/jobs/demo.toml");

/// Values that an operator changes while the job runs.
fn changes(text: &str) {
    let Ok(job) = Job::parse(JOB, Path::new("job.toml")) else {
        return;
    };
    let changes: Vec<String> = text.lines().map(str::to_owned).collect();
    for role in Role::ALL {
        if let Ok(updated) = job.updated(role, &changes) {
            let json = serde_json::to_vec(&updated).expect("a job can be written");
            assert!(Job::from_json(&json).is_ok_and(|again| again == updated));
        }
    }
}

fn fault(text: &str) {
    let Ok(fault) = Spec::parse(text).and_then(|spec| spec.fault()) else {
        return;
    };
    drop(fault.done());
    let written = fault.to_string();
    let again = Spec::parse(&written).and_then(|spec| spec.fault());
    assert_eq!(again.ok().as_ref(), Some(&fault), "{written}");
}

fn words(text: &str) {
    if let Ok(at) = text.parse::<At>() {
        assert_eq!(at.to_string().parse(), Ok(at));
    }
    if let Ok(id) = text.parse::<InstanceId>() {
        assert_eq!(id.to_string().parse(), Ok(id));
    }
    if let Ok(template) = Template::parse(text) {
        assert!(template.placeholders().count() <= template.parts().len());
    }
}
