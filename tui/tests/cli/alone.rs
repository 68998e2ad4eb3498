//! The commands that need no daemon.
use super::{err, out, run};
use std::path::Path;
use std::process::Command;

#[test]
fn completions_are_made_without_a_daemon() {
    let dir = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = run(dir.path(), &["completions", shell]);
        assert!(
            output.status.success() && out(&output).contains("inject"),
            "{shell}"
        );
    }
}

#[test]
fn the_papers_experiments_print_every_run_and_their_proof_of_determinism() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["sim", "paper", "--steps", "10", "--json"]);
    assert!(output.status.success(), "{}", err(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(found["identical_journal_lines"].as_u64().unwrap() > 10_000);
    let rows = found["paper"].as_array().unwrap();
    assert_eq!(rows.len(), 27, "3 workloads, 3 modes, 3 policies");
    for row in rows {
        let ettr = row["ettr"].as_f64().unwrap();
        assert!(row["completed"].as_bool().unwrap() && ettr > 0.3, "{row}");
    }
    // Each claim has a figure for its workloads within its range; what the paper says is there or said not to
    // be known.
    let claims = found["claims"].as_array().unwrap();
    assert!(claims.len() > 15, "{}", claims.len());
    let unknown = claims.iter().filter(|claim| claim["paper"].is_null());
    assert!((1..claims.len()).contains(&unknown.count()));
    for claim in claims {
        let here = claim["here"].as_array().unwrap();
        assert!([1, 3].contains(&here.len()), "{claim}");
        for here in here {
            let of = |key: &str| here[key].as_f64().unwrap();
            assert!(
                of("least") <= of("value") && of("value") <= of("most"),
                "{claim}"
            );
        }
    }
}

#[test]
fn the_fault_search_runs_every_seed_that_was_asked_for_and_counts_the_same_each_time() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("found");
    let found = || {
        let folder = folder.to_str().unwrap();
        let args = [
            "sim", "search", "--seeds", "200", "--from", "7", "--json", "--found", folder,
        ];
        let output = run(dir.path(), &args);
        assert!(output.status.success(), "{}", err(&output));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let (one, two) = (found(), found());
    assert_eq!(
        (one["seeds"].as_u64(), one["asked"].as_u64()),
        (Some(200), Some(200))
    );
    assert!(one["inputs"].as_u64().unwrap() > 10_000, "{one}");
    assert_eq!(
        (&one["inputs"], &one["virtual_s"]),
        (&two["inputs"], &two["virtual_s"])
    );
    assert_eq!(one["failures"].as_array().map(Vec::len), Some(0), "{one}");
    assert!(!folder.exists(), "there is nothing to write");
}

#[test]
fn the_way_of_a_version_is_printed_beside_the_ideal_and_the_papers() {
    let dir = tempfile::tempdir().unwrap();
    let args = [
        "sim",
        "weights",
        "--rollouts",
        "1,4",
        "--chunk-mib",
        "256",
        "--json",
    ];
    let output = run(dir.path(), &args);
    assert!(output.status.success(), "{}", err(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let number = |value: &serde_json::Value| value.as_f64().unwrap();
    let ideal = number(&found["ideal_s"]);
    assert!((4.6..4.8).contains(&ideal), "{ideal}");
    let (one, four) = (&found["rows"][0], &found["rows"][1]);
    assert_eq!(found["sim_1"], one["over_ideal"]);
    assert!(found.get("sim_256").is_none(), "it was not asked for");
    assert!(
        number(&one["seconds"]) > ideal && number(&one["seconds"]) < 1.3 * ideal,
        "{one}"
    );
    assert!(
        number(&four["seconds"]) < number(&four["store_and_forward_s"]) / 1.9,
        "{four}"
    );
    assert_eq!(
        (number(&one["paper_s"]), number(&four["paper_s"])),
        (6.0, 18.0)
    );
}

#[test]
fn a_size_that_is_no_cluster_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let output = run(dir.path(), &["sim", "scale", "--nodes", "3"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("10..=60000"), "{}", err(&output));
}

#[test]
fn the_manual_has_a_page_for_every_command_and_names_the_nearest_for_a_wrong_one() {
    let dir = tempfile::tempdir().unwrap();
    let pages = dir.path().join("man1");
    let output = run(dir.path(), &["man", "--dir", pages.to_str().unwrap()]);
    assert!(output.status.success(), "{}", err(&output));
    for page in ["robustctl", "robustctl-inject", "robustctl-ckpt-verify"] {
        let text = std::fs::read_to_string(pages.join(format!("{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1")), "{page}: {text}");
    }
    for page in std::fs::read_dir(&pages).unwrap() {
        let name = page.unwrap().file_name().into_string().unwrap();
        assert!(!name.contains("-help"), "{name} repeats another page");
    }
    let one = out(&run(dir.path(), &["man", "ckpt", "verify"]));
    let written = std::fs::read_to_string(pages.join("robustctl-ckpt-verify.1")).unwrap();
    assert_eq!(one, written);
    let output = run(dir.path(), &["man", "ckpt", "verfy"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        err(&output).contains("did you mean `verify`?"),
        "{}",
        err(&output)
    );
}

#[test]
fn bench_becomes_the_program_beside_it_or_on_the_path_or_says_how_to_get_it() {
    let robustctl = Path::new(env!("CARGO_BIN_EXE_robustctl"))
        .canonicalize()
        .unwrap();
    // On the same disk: a link to it is a program of that folder.
    let folder = tempfile::tempdir_in(robustctl.parent().unwrap()).unwrap();
    let [own, path] = ["own", "path"].map(|name| folder.path().join(name));
    for folder in [&own, &path] {
        std::fs::create_dir(folder).unwrap();
    }
    std::fs::hard_link(&robustctl, own.join("robustctl")).unwrap();
    let bench = |script: &str| {
        let words = ["bench", "-c", script, "sh", "--rounds", "1"];
        Command::new(own.join("robustctl"))
            .args(words)
            .env("PATH", &path)
            .env_remove("ROBUST_PROGRAMS")
            .output()
            .unwrap()
    };
    let missing = bench("exit 0");
    assert_eq!(missing.status.code(), Some(2));
    let said = err(&missing);
    assert!(
        said.contains("robust-bench") && said.contains("make build"),
        "{said}"
    );
    // A shell plays it, and does what it is told.
    for (folder, code) in [(&path, 7), (&own, 8)] {
        std::os::unix::fs::symlink("/bin/sh", folder.join("robust-bench")).unwrap();
        let became = bench(&format!("echo $ROBUST_PROGRAMS $1 $2; exit {code}"));
        let expected = format!("{} --rounds 1\n", own.display());
        assert_eq!((became.status.code(), out(&became)), (Some(code), expected));
    }
}

#[test]
fn a_trace_of_faults_is_run_under_both_policies_and_a_bad_line_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (csv, map, kept) = (path("faults.csv"), path("map.toml"), path("kept.jsonl"));
    let text = "start;host;kind;end\n\
                2026-01-01T00:00:00Z;a;GPU lost;2026-01-01T06:00:00Z\n\
                2026-01-01T10:00:00Z;b;assertion;\n";
    std::fs::write(&csv, text).unwrap();
    let mapping = "delimiter = \";\"\ntime = \"start\"\nnode = \"host\"\nclass = \"kind\"\ncause = \"kind\"\n\
                   repaired = \"end\"\ntime_unit = \"rfc3339\"\nfrom = \"2025-12-31T12:00:00Z\"\n\
                   [classes]\n\"GPU lost\" = \"node\"\nassertion = \"process\"\n";
    std::fs::write(&map, mapping).unwrap();
    let args = |more: &[&str]| {
        let all = ["sim", "trace", "--nodes", "10", "--spares", "1", "--json"];
        let all = all.iter().chain(more).copied().collect::<Vec<_>>();
        run(dir.path(), &all)
    };
    let json = |output: std::process::Output| -> serde_json::Value {
        assert!(output.status.success(), "{}", err(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let found = json(args(&[&csv, "--map", &map, "--keep", &kept]));
    let [role, task] = &found["policies"].as_array().unwrap()[..] else {
        panic!("{found}");
    };
    let restarts = |run: &serde_json::Value| run["restarts"]["task"].as_u64();
    assert_eq!(
        (restarts(role), restarts(task)),
        (Some(0), Some(2)),
        "{found}"
    );
    assert_eq!(role["spares_used"], 1, "{found}");
    assert!(
        role["goodput"].as_f64() > task["goodput"].as_f64(),
        "{found}"
    );
    // What was kept is read without the mapping, and is the same.
    let again = json(args(&[&kept, "--policies", "role"]));
    assert_eq!(again["policies"][0]["steps"], role["steps"]);
    let drawn = path("mix.toml");
    let mix = "nodes = 10\ndays = 2\n[[cause]]\nname = \"gpu\"\ncount = 6\nclass = \"node\"\nrepair_h = 2\n";
    std::fs::write(&drawn, mix).unwrap();
    let found = json(args(&["--mix", &drawn]));
    assert!(
        found["faults"].as_u64() > Some(0) && found["days"] == 2.0,
        "{found}"
    );
    std::fs::write(&csv, format!("{text}2026-01-02T10:00:00Z;c;fire;\n")).unwrap();
    let output = args(&[&csv, "--map", &map]);
    assert_eq!(output.status.code(), Some(2));
    let place = "faults.csv: line 4, column 24: `fire` is no class";
    assert!(err(&output).contains(place), "{}", err(&output));
    assert_eq!(args(&[]).status.code(), Some(2));
}
