#![allow(clippy::unwrap_used)]
use super::*;
use crate::job::{EngineKind, EngineWeights, Level as ProgramLevel, Needed};
use std::path::Path;

const PAGE: &str = include_str!("../../../docs/reference/your-programs.md");

fn job(more: &str) -> Job {
    let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{more}");
    Job::parse(&text, Path::new("job.toml")).unwrap()
}

fn engines(more: &str) -> Job {
    job(&format!(
        "[job]\nmode='sync'\n[rollout.command]\nkind='vllm'\nargv=['x','{{port}}','--weight-transfer-config=robustrl']\n{more}"
    ))
}

fn of(job: &Job, invariant: Invariant) -> (Level, Vec<String>) {
    let all = Promises::of(job).promises;
    let found = all.into_iter().find(|p| p.invariant == invariant).unwrap();
    (found.level, found.reasons)
}

fn engine(weights: EngineWeights) -> Hosting {
    Hosting::Engine(Engine {
        kind: EngineKind::Vllm,
        weights,
        checksums: true,
        canary: true,
    })
}

fn program(level: ProgramLevel, keeps_state: bool) -> Hosting {
    Hosting::Program(Program { level, keeps_state })
}

/// The documents' table, a column for each way of hosting.
fn table() -> String {
    let columns = [
        ("built-in", Hosting::BuiltIn),
        (
            "an engine, `weights = \"disk\"` or `\"plugin\"`",
            engine(EngineWeights::Disk),
        ),
        ("an engine, `\"theirs\"`", engine(EngineWeights::Theirs)),
        ("an engine, `\"none\"`", engine(EngineWeights::None)),
        (
            "a trainer of yours, `level = \"data\"`",
            program(ProgramLevel::Data, true),
        ),
        ("`\"state\"`", program(ProgramLevel::State, true)),
        ("`\"weights\"`", program(ProgramLevel::Weights, false)),
        (
            "`\"phases\"`, `\"none\"`",
            program(ProgramLevel::None, false),
        ),
        ("environments of yours", Hosting::Environment),
        (
            "a service",
            Hosting::Service {
                needed: Needed::Wait,
            },
        ),
    ];
    let heads = columns.map(|(head, _)| head);
    let mut text = format!(
        "| promise | {} |\n|{}\n",
        heads.join(" | "),
        " --- |".repeat(11)
    );
    for invariant in Invariant::ALL {
        let cell = |(_, hosting): (_, Hosting)| {
            let word = hosting.promised(invariant);
            word.map_or_else(|| "-".to_owned(), |word| word.to_string())
        };
        let cells = columns.map(cell).join(" | ");
        text += &format!("| {} {} | {cells} |\n", invariant.id(), invariant.words());
    }
    text
}

#[test]
fn the_readme_has_the_table_of_what_is_promised() {
    let table = table();
    assert!(
        PAGE.contains(&table),
        "the table of docs/reference/your-programs.md is to be:\n{table}"
    );
}

#[test]
fn a_built_in_job_in_mode_sync_has_every_promise_and_in_another_mode_all_but_the_last() {
    let sync = Promises::of(&job("[job]\nmode='sync'\n"));
    assert!(
        sync.promises
            .iter()
            .all(|p| p.level == Level::Yes && p.reasons.is_empty())
    );
    let roles: Vec<_> = sync.hosted.iter().map(|h| h.role.as_str()).collect();
    assert_eq!(roles, ["trainer", "rollout", "agent"]);
    assert!(sync.hosted.iter().all(|h| h.hosting == Hosting::BuiltIn));
    let other = Promises::of(&job("[job]\nmode='async'\n"));
    let short: Vec<_> = other
        .promises
        .iter()
        .filter(|p| p.level != Level::Yes)
        .collect();
    assert_eq!(short.len(), 1);
    assert_eq!(
        (
            short[0].invariant,
            short[0].level,
            short[0].reasons.as_slice()
        ),
        (
            Invariant::BitForBit,
            Level::No,
            &["mode async: what is trained on depends on when it is generated".to_owned()][..]
        )
    );
}

#[test]
fn an_engine_is_promised_as_much_as_is_looked_at_in_it() {
    let verified = |more: &str| of(&engines(more), Invariant::VerifiedVersions);
    for (more, level, why) in [
        (
            "",
            Level::Partly,
            "by digest up to the engine, by checksums and a canary in it",
        ),
        (
            "dtype='bfloat16'\n",
            Level::Partly,
            "by digest up to the engine, by a canary in it",
        ),
        (
            "verify=['checksum']\nweights='plugin'\n",
            Level::Partly,
            "by digest up to the engine, by checksums in it",
        ),
        (
            "verify=['version']\n",
            Level::Partly,
            "by digest up to the engine, by the version it names alone in it",
        ),
        (
            "weights='theirs'\n",
            Level::Partly,
            "by the version it names alone",
        ),
        (
            "weights='none'\n",
            Level::No,
            "it serves what it was started with, unverified",
        ),
    ] {
        assert_eq!(
            verified(more),
            (level, vec![format!("rollout: {why}")]),
            "{more}"
        );
    }
}

#[test]
fn with_engines_the_last_promise_is_not_made_and_the_first_three_are() {
    let job = engines("");
    for invariant in [
        Invariant::OneGeneration,
        Invariant::AcknowledgedTurns,
        Invariant::ConsumedOnce,
    ] {
        assert_eq!(of(&job, invariant), (Level::Yes, Vec::new()));
    }
    let (level, reasons) = of(&job, Invariant::BitForBit);
    assert_eq!(level, Level::No);
    assert_eq!(
        reasons,
        ["rollout: its tokens depend on what runs beside them"]
    );
}

#[test]
fn roles_and_services_with_the_same_cause_are_told_together() {
    let job = job(
        "[trainer]\nhybrid=true\n[job]\nmode='sync'\n[rollout.command]\nkind='sglang'\n\
         argv=['x','{port}','--enable-memory-saver']\n[service.a]\nargv=['a']\n[service.b]\nargv=['b']\n\
         [service.c]\nargv=['c']\nneeded='fail'\n",
    );
    let hosted = Promises::of(&job).hosted;
    let shown: Vec<String> = hosted
        .iter()
        .map(|h| format!("{}: {}", h.role, h.hosting))
        .collect();
    let engine = "an engine of yours (sglang) behind robust-shim, weights \"disk\"";
    assert_eq!(
        shown,
        [
            "trainer: built-in".to_owned(),
            format!("hybrid: {engine}"),
            format!("rollout: {engine}"),
            "agent: built-in".to_owned(),
            "a: a service of yours".to_owned(),
            "b: a service of yours".to_owned(),
            "c: a service of yours".to_owned(),
        ]
    );
    let (level, reasons) = of(&job, Invariant::NoEndlessRestart);
    assert_eq!(level, Level::Partly);
    assert_eq!(
        reasons,
        ["a, b: beyond its budget it is tried again, every 5 min at last"]
    );
    let (level, reasons) = of(&job, Invariant::HealthyLives);
    assert_eq!(level, Level::Partly);
    assert_eq!(
        reasons,
        ["hybrid, rollout: as far as pauses go through the shim"]
    );
    let (level, reasons) = of(&job, Invariant::BitForBit);
    assert_eq!((level, reasons.len()), (Level::No, 2));
}

#[test]
fn every_line_fits_a_terminal_of_eighty_columns() {
    let job = engines("verify=['version']\n[service.reward]\nargv=['r']\n");
    for promise in Promises::of(&job).promises {
        let line = promise.invariant.words().chars().count();
        assert!(line <= 40, "{}", promise.invariant.words());
        for reason in &promise.reasons {
            assert!(reason.chars().count() <= 75, "{reason}");
        }
    }
}
