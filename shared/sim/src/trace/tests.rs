//! Traces are read as they are written, and cost what they must.
#![allow(clippy::panic, clippy::unwrap_used)]
use super::*;
use robust_shared::core::Policy;
use std::time::Duration;

const fn hours(n: u64) -> Duration {
    Duration::from_secs(n * 3600)
}

fn setup(nodes: u32, spares: u32, policy: Policy) -> Setup {
    Setup {
        nodes,
        spares,
        policy,
        repair: hours(24),
        seed: 1,
    }
}

fn ran(setup: Setup, text: &str, time: Duration) -> Summary {
    let trace = read(text, &Mapping::default()).unwrap();
    let mut run = setup.start(trace).unwrap();
    run.run_until(time);
    let summary = run.summary();
    assert_eq!(summary.broken, None, "{summary:?}");
    assert_eq!(summary.ended, None, "{summary:?}");
    summary
}

fn lost(summary: &Summary, cause: &str) -> f64 {
    let found = summary.lost_by_cause.iter().find(|l| l.cause == cause);
    found.map_or(0.0, |loss| loss.hours)
}

#[test]
fn lines_of_json_and_a_table_say_the_same() {
    let json = "{\"time\": 7200, \"node\": 3, \"class\": \"node\", \"cause\": \"HBM3\", \"repair\": 3600}\n\n\
                {\"time\": \"60.5\", \"node\": \"4\", \"class\": \"hang\"}\n";
    let csv = "time,node,class,cause,repair\n7200,3,node,HBM3,3600\n60.5,4,hang,,\n";
    let read = |text| read(text, &Mapping::default()).unwrap();
    let (a, b) = (read(json), read(csv));
    let lines = |trace: &Trace| {
        let of = trace.faults().iter().map(|f| Fault {
            line: 0,
            ..f.clone()
        });
        of.collect::<Vec<_>>()
    };
    assert_eq!(lines(&a), lines(&b));
    let first = &a.faults()[0];
    assert_eq!((first.class, first.cause.as_str()), (Class::Hang, "hang"));
    assert_eq!(
        (first.at, first.repair),
        (Duration::from_millis(60_500), None)
    );
    assert_eq!(a.last(), hours(2));
}

#[test]
fn a_mapping_says_which_field_is_what_in_which_unit_and_what_its_words_mean() {
    let mapping = Mapping::from_toml(
        "format = \"csv\"\ndelimiter = \";\"\ntime = \"start\"\nnode = \"host\"\nclass = \"kind\"\n\
         cause = \"kind\"\nrepaired = \"end\"\ntime_unit = \"rfc3339\"\ndefault_class = \"process\"\n\
         [classes]\n\"off the bus\" = \"node\"\n",
    );
    let text = "host;kind;start;end\nb;off the bus;2026-03-01T02:00:00+01:00;2026-03-02T01:00:00Z\n\
                a;segfault;2026-03-01T00:00:00Z;\n";
    let trace = read(text, &mapping.unwrap()).unwrap();
    let [first, second] = trace.faults() else {
        panic!("{trace:?}");
    };
    assert_eq!(
        (first.at, first.class, first.cause.as_str()),
        (hours(0), Class::Process, "segfault")
    );
    assert_eq!(
        (second.at, second.class, second.repair),
        (hours(1), Class::Node, Some(hours(24)))
    );
    let units = Mapping::from_toml("time_unit = \"d\"\nrepair_unit = \"h\"\nfrom = 2.0\n").unwrap();
    let trace = read("time,node,repair\n3,0,6\n", &units).unwrap();
    assert_eq!(
        (trace.last(), trace.faults()[0].repair),
        (hours(24), Some(hours(6)))
    );
}

#[test]
fn what_cannot_be_read_is_named_with_its_line_and_column() {
    let fails = |text: &str| read(text, &Mapping::default()).unwrap_err().to_string();
    let told = [
        (
            "time,node\n1,a\nsoon,b\n",
            "line 3, column 1: `soon` is no number",
        ),
        (
            "time,node,class\n1,a,fire\n",
            "line 2, column 5: `fire` is no class; classes are node",
        ),
        (
            "time,node\n1,a,b\n",
            "line 2, column 5: it has 3 fields, the first line names 2",
        ),
        ("time,node\n1\n", "line 2, column 2: it has 1 fields"),
        (
            "when,node\n1,a\n",
            "line 1, column 1: there is no column `time`; there are when, node",
        ),
        (
            "time,node\n1,\"a\n",
            "line 2, column 3: a quoted field does not end",
        ),
        (
            "time,node,repair\n1,a,-5\n",
            "line 2, column 5: it lies 5.0 s before",
        ),
        (
            "time,node\n1e12,a\n",
            "line 2, column 1: 11574074 days are too many",
        ),
        (
            "{\"time\": 1, \"node\": }\n",
            "line 1, column 21: it is no JSON object: expected value",
        ),
        (
            "{\"time\": 1, \"node\": 2}\n{\"node\": 1}\n",
            "line 2, column 1: `time` is missing",
        ),
        (
            "{\"node\": 2, \"time\": true}\n",
            "line 1, column 13: `true` is no number",
        ),
        ("time,node\n", "line 1, column 1: there is no fault in it"),
    ];
    for (text, want) in told {
        let found = fails(text);
        assert!(found.starts_with(want), "{text}: {found}");
    }
    let dates = Mapping::from_toml("time_unit = \"rfc3339\"").unwrap();
    let found = read("time,node\n2026-01-01,a\n", &dates)
        .unwrap_err()
        .to_string();
    assert!(
        found.starts_with("line 2, column 1: `2026-01-01` is no date"),
        "{found}"
    );
    let unknown = Mapping::from_toml("tiem = \"a\"").unwrap_err();
    assert!(
        unknown.contains("tiem") && unknown.contains("line 1, column 1"),
        "{unknown}"
    );
}

#[test]
fn machines_are_their_numbers_or_get_one_each() {
    let numbers = |text: &str, machines| {
        let trace = read(text, &Mapping::default()).unwrap();
        trace.number(machines, 1).map_err(|e| e.to_string())
    };
    assert_eq!(numbers("time,node\n1,7\n2,0\n", 8), Ok(vec![7, 0]));
    let beyond = numbers("time,node\n1,7\n2,8\n", 8).unwrap_err();
    assert!(
        beyond.starts_with("line 3: node 8 is not there: the 8 machines"),
        "{beyond}"
    );
    let named = numbers("time,node\n1,a\n2,b\n3,a\n", 2).unwrap();
    assert!(named[0] == named[2] && named[0] != named[1], "{named:?}");
    let many = numbers("time,node\n1,a\n2,b\n3,c\n", 2).unwrap_err();
    assert!(
        many.starts_with("line 4: node `c` is one more than the 2 machines"),
        "{many}"
    );
}

/// Of 10 machines 0 and 1 train: at these times a rank's machine dies, a rollout's processes end, and a
/// rank hangs.
const THREE: &str = "time,node,class,cause,repair\n20000,0,node,gpu,86400\n40000,5,process,bug,\n60000,1,hang,nccl,\n";

#[test]
fn a_small_trace_costs_what_its_restarts_take() {
    let role = ran(setup(10, 1, Policy::Role), THREE, hours(24));
    let restarts = Restarts {
        trainer: 2,
        rollout: 1,
        ..Restarts::default()
    };
    assert_eq!(role.restarts, restarts, "{role:?}");
    assert_eq!(
        (role.faults.of_the_job, role.spares_used, role.most_missing),
        (3, 1, 1)
    );
    // A minute until the spare is there.
    assert!((role.missing_h * 3600.0 - 60.0).abs() < 1.0, "{role:?}");
    // Each of the trainer's faults costs two tenths of a start and the step that was under way.
    for cause in ["gpu", "nccl"] {
        let lost = lost(&role, cause) * 3600.0;
        assert!(
            (20.0..2100.0).contains(&lost),
            "{cause}: {lost} s, {role:?}"
        );
    }
    assert_eq!(
        lost(&role, "bug"),
        0.0,
        "a rollout's fault stops nobody: {role:?}"
    );
    let task = ran(setup(10, 1, Policy::Task), THREE, hours(24));
    assert_eq!(
        task.restarts,
        Restarts {
            task: 3,
            ..Restarts::default()
        },
        "{task:?}"
    );
    assert!(
        task.goodput < role.goodput && task.steps <= role.steps,
        "{task:?} {role:?}"
    );
    assert!(
        lost(&task, "bug") * 3600.0 > 200.0,
        "everything was restarted: {task:?}"
    );
    assert_eq!(
        ran(setup(10, 1, Policy::Role), THREE, hours(24)),
        role,
        "it is the same every time"
    );
}

#[test]
fn a_hang_is_found_by_the_rules_after_their_windows() {
    let text = "time,node,class\n20000,0,hang\n";
    let trace = read(text, &Mapping::default()).unwrap();
    let mut run = setup(10, 0, Policy::Role).start(trace).unwrap();
    run.run_until(hours(12));
    let incidents: Vec<_> = run.incidents().cloned().collect();
    let [incident] = &incidents[..] else {
        panic!("{incidents:?}");
    };
    assert_eq!(incident.rule, "trainer idle");
    let detect = incident.detect().as_secs_f64();
    assert!((300.0..330.0).contains(&detect), "{detect}");
    let text = "time,node,class\n20000,5,hang\n";
    let trace = read(text, &Mapping::default()).unwrap();
    let mut run = setup(10, 0, Policy::Role).start(trace).unwrap();
    run.run_until(hours(12));
    let rules: Vec<_> = run.incidents().map(|i| i.rule.clone()).collect();
    assert_eq!(rules, ["rollout silent"]);
}

#[test]
fn a_burst_of_a_tenth_of_the_machines_and_repairs_of_days_are_survived() {
    // Two of the trainer's and four of the rollouts' at once, for three days, one spare.
    let mut text = "time,node,class,cause,repair\n".to_owned();
    for node in [0, 1, 20, 30, 40, 50] {
        text += &format!("50000,{node},node,switch,259200\n");
    }
    let role = ran(setup(60, 1, Policy::Role), &text, hours(24 * 5));
    assert_eq!(
        (role.faults.of_the_job, role.most_missing),
        (6, 6),
        "{role:?}"
    );
    assert!(
        (role.missing_h - 5.0 * 72.0).abs() < 2.0,
        "five places are empty for three days: {role:?}"
    );
    assert!(
        role.ettr > 0.98 && role.steps > 200,
        "rollouts gave up their places: {role:?}"
    );
    let task = ran(setup(60, 1, Policy::Task), &text, hours(24 * 5));
    // Nobody may take another's place: the ranks wait for the first repair.
    assert!(task.ettr < 0.5, "{task:?}");
    assert!(lost(&task, "switch") > 40.0, "{task:?}");
}

#[test]
fn a_machine_that_fails_again_and_again_restarts_what_runs_there_and_nothing_else() {
    let mut text = "time,node,class,cause\n".to_owned();
    for n in 1..=12 {
        text += &format!("{},7,process,flaky\n", n * 10_000);
    }
    let summary = ran(setup(20, 1, Policy::Role), &text, hours(72));
    let restarts = Restarts {
        rollout: 12,
        ..Restarts::default()
    };
    assert_eq!((summary.restarts, summary.spares_used), (restarts, 0));
    assert_eq!(lost(&summary, "flaky"), 0.0, "{summary:?}");
}

#[test]
fn maintenance_that_is_said_beforehand_costs_less_than_a_machine_that_dies() {
    let of = |class| {
        let text = format!("time,node,class,repair\n50000,0,{class},7200\n60000,7,{class},7200\n");
        ran(setup(20, 1, Policy::Role), &text, hours(48))
    };
    let (maintained, died) = (of("maintenance"), of("node"));
    assert_eq!(maintained.restarts, Restarts::default(), "{maintained:?}");
    assert_eq!(
        (died.restarts.trainer, died.restarts.rollout),
        (1, 1),
        "{died:?}"
    );
    assert!(maintained.goodput > died.goodput, "{maintained:?} {died:?}");
    assert_eq!(maintained.missing_h, 0.0, "the spare was there before");
}

const MIX: &str = "nodes = 100\ndays = 10\n[[cause]]\nname = \"gpu\"\ncount = 40\nclass = \"node\"\nrepair_h = 6\n\
                   spread = 0.5\n[[cause]]\nname = \"switch\"\ncount = 2\nclass = \"node\"\nrepair_h = 2\nat_once = 4\n\
                   [[cause]]\nname = \"hang\"\ncount = 20\nclass = \"hang\"\n";

#[test]
fn a_mix_draws_as_many_of_each_cause_as_were_counted() {
    let mix = Mix::from_toml(MIX).unwrap();
    let trace = mix.draw(200, hours(24 * 100), 1);
    let of = |cause| trace.faults().iter().filter(move |f| f.cause == cause);
    // Twice the machines, ten times the days: 800, 40 with four machines each, 400.
    let expected = [("gpu", 800.0_f64), ("switch", 160.0), ("hang", 400.0)];
    for (cause, expected) in expected {
        let count = of(cause).count() as f64;
        let spread = 4.0 * (expected * if cause == "switch" { 4.0 } else { 1.0 }).sqrt();
        assert!((count - expected).abs() < spread, "{cause}: {count}");
    }
    let repairs: Vec<_> = of("gpu").filter_map(|f| f.repair).collect();
    let longer = repairs.iter().filter(|r| **r > hours(6)).count() as f64;
    assert!(
        (0.4..0.6).contains(&(longer / repairs.len() as f64)),
        "6 h is the median"
    );
    assert!(of("hang").all(|f| f.repair.is_none()));
    assert_eq!(
        mix.draw(200, hours(24 * 100), 1),
        trace,
        "a seed draws the same"
    );
    assert!((mix.a_day(200) - 12.4).abs() < 1e-9);
}

#[test]
fn offenders_of_a_mix_fail_as_many_times_as_often_as_it_says() {
    let text = format!("{MIX}\n[offenders]\nshare = 0.05\ntimes = 20\n");
    let trace = Mix::from_toml(&text).unwrap().draw(100, hours(24 * 100), 1);
    let mut each = vec![0; 100];
    let single = trace.faults().iter().filter(|f| f.cause != "switch");
    for number in single.map(|f| f.node.parse::<usize>().unwrap()) {
        each[number] += 1;
    }
    each.sort_unstable();
    let (often, all): (i32, i32) = (each[95..].iter().sum(), each.iter().sum());
    // Five of 20 against 95 of 1.
    let part = f64::from(often) / f64::from(all);
    assert!((part - 100.0 / 195.0).abs() < 0.08, "{part}");
}

#[test]
fn a_table_that_makes_no_sense_is_refused() {
    let told = [
        ("nodes = 0\ndays = 1\ncause = []\n", "both above 0"),
        (
            "nodes = 1\ndays = 1\n[[cause]]\nname = \"a\"\ncount = -1\nclass = \"node\"\n",
            "`a`",
        ),
        (
            "nodes = 1\ndays = 1\n[[cause]]\nname = \"a\"\ncount = 1\nclass = \"fire\"\n",
            "line 6, column 9",
        ),
        (
            "nodes = 1\ndays = 1\n[[cause]]\nname = \"a\"\ncount = 1\nclass = \"hang\"\nrepair_h = 1\n",
            "stays",
        ),
    ];
    for (text, want) in told {
        let found = Mix::from_toml(text).unwrap_err();
        assert!(found.contains(want), "{found}");
    }
}

/// The table that comes with the program is the one of the Llama 3 report.
#[test]
fn the_table_of_llama_3_has_the_counts_of_its_report() {
    let text = include_str!("../../../../fixtures/traces/llama3.toml");
    let mix = Mix::from_toml(text).unwrap();
    assert_eq!((mix.nodes, mix.days), (2048, 54.0));
    let sum = |planned: bool| -> f64 {
        let of = mix.causes.iter();
        let of = of.filter(|c| (c.name == "planned maintenance and changes") == planned);
        of.map(|c| c.count).sum()
    };
    assert_eq!(
        (sum(false), sum(true)),
        (419.0, 47.0),
        "419 unexpected of 466"
    );
    let first = &mix.causes[0];
    assert_eq!((first.name.as_str(), first.count), ("faulty GPU", 148.0));
}
