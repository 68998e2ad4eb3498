#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use super::tests_commands::{BAD_COMMANDS, FAKE, engines};
use super::tests_devices::BAD_DEVICES;
use super::*;
use crate::core::RuleSet;
use crate::phase::Phase;
use proptest::prelude::*;

const DEMO: &str = include_str!("../../../fixtures/jobs/demo.toml");
const TEST: &str = include_str!("../../../fixtures/jobs/test.toml");
pub(super) const PAGE: &str = include_str!("../../../docs/reference/job-file.md");

/// A valid job with nothing but what has no default.
pub(crate) fn minimal() -> Job {
    let text = "[data]\nprompts = \"p.jsonl\"\ntokenizer = \"t.json\"\n";
    Job::parse(text, Path::new("job.toml")).unwrap()
}

fn demo() -> Job {
    Job::parse(DEMO, Path::new("fixtures/jobs/demo.toml")).unwrap()
}

/// The keys of an object and of those in it, with dots between.
fn keys(value: &serde_json::Value, within: &str, all: &mut Vec<String>) {
    for (key, value) in value.as_object().into_iter().flatten() {
        let key = match within {
            "" => key.clone(),
            within => format!("{within}.{key}"),
        };
        match value.as_object() {
            Some(table) if !table.is_empty() => keys(value, &key, all),
            _ => all.push(key),
        }
    }
}

/// Daemons of one job may be of two builds while they are exchanged, and refuse keys that they do not know. So a key that is
/// new is left out where it has its default (`skip_serializing_if`), until there are no builds without it.
#[test]
fn a_job_of_defaults_has_no_key_that_the_build_before_does_not_know() {
    let mut all = Vec::new();
    let value = serde_json::to_value(minimal()).unwrap();
    keys(&value, "", &mut all);
    all.sort();
    let known: Vec<&str> = include_str!("keys_of_the_build_before.txt")
        .lines()
        .collect();
    let mut of_nodes = Vec::new();
    let mut written = minimal();
    written.checkpoint.written_by = WrittenBy::Nodes;
    written.alarms.webhook = Some("https://example.org/hook".to_owned());
    keys(
        &serde_json::to_value(written.for_nodes()).unwrap(),
        "",
        &mut of_nodes,
    );
    of_nodes.sort();
    assert_eq!(of_nodes, all, "what the leader alone needs to know");
    let new: Vec<_> = all
        .iter()
        .filter(|key| !known.contains(&key.as_str()))
        .collect();
    assert!(new.is_empty(), "{new:?}");
}

#[test]
fn the_demo_and_the_test_job_are_valid_and_have_the_demos_shape() {
    let job = demo();
    assert_eq!(
        (job.trainer.ranks, job.rollout.replicas, job.agent.workers),
        (2, 3, 2)
    );
    assert_eq!(
        (job.job.mode, job.job.policy, job.job.steps),
        (Mode::Async, Policy::Role, Some(400))
    );
    assert_eq!(job.samples_per_step(), 64);
    let small = Job::parse(TEST, Path::new("test.toml")).unwrap();
    assert_eq!((small.job.steps, small.samples_per_step()), (Some(6), 16));
}

#[test]
fn a_job_of_only_data_gets_working_defaults_and_a_node_that_fits() {
    let job = minimal();
    assert_eq!(job.nodes.len(), 1);
    assert_eq!(job.placement().unwrap().len(), 2 + 3 + 2);
    let rules = RuleSet::from_job(&job.detect).unwrap();
    let window = rules.trainer_idle.window.at(Role::Trainer, Phase::Update);
    assert_eq!(window.as_secs(), 300);
    assert_eq!(job.weights.chunk_bytes(), 1023 << 10);
}

#[test]
fn a_job_survives_json_and_is_the_same() {
    let with_engines = engines("env={A='{index}'}\nslots=2\n[service.s]\nargv=['j']\n");
    for mut job in [demo(), minimal(), with_engines] {
        job.train.clip_eps_high = Some(0.28);
        job.resolve(Path::new("/jobs"));
        let json = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Job>(&json).unwrap(), job);
    }
}

#[test]
fn paths_become_absolute_against_the_job_files_folder() {
    let mut job = demo();
    job.model.path = Some("model".into());
    job.resolve(Path::new("/srv/fixtures/jobs"));
    let files: Vec<_> = job
        .required_files()
        .into_iter()
        .map(|f| (f.key, f.path))
        .collect();
    assert_eq!(
        files,
        [
            ("data.prompts", "/srv/fixtures/datasets/arith.jsonl".into()),
            (
                "data.tokenizer",
                "/srv/fixtures/tokenizers/arith/tokenizer.json".into()
            ),
            ("model.path", "/srv/fixtures/jobs/model/config.json".into()),
        ]
    );
    assert_eq!(fold_dots(Path::new("/../../a/./b/..")), Path::new("/a"));
}

#[test]
fn roles_of_one_pool_share_its_slots() {
    let mut job = minimal();
    job.rollout.pool = "train".into();
    job.rollout.replicas = 2;
    job.nodes[0].pools = [("train".to_owned(), 2), ("agent".to_owned(), 2)].into();
    let at = |role| {
        let places = job.placement().unwrap();
        let slots = places.iter().filter(|p| p.id.role == role).map(|p| p.slot);
        slots.collect::<Vec<_>>()
    };
    assert_eq!(at(Role::Trainer), at(Role::Rollout));
}

#[test]
fn hybrids_are_the_default_in_semi_sync_only_and_sit_on_their_ranks_slots() {
    let with = |text: &str| {
        let text = format!("[data]\nprompts='p'\ntokenizer='t'\n{text}");
        Job::parse(&text, Path::new("job.toml")).unwrap()
    };
    let count = |text: &str| with(text).count(Role::Hybrid);
    assert_eq!(count("[job]\nmode='semi-sync'\n"), 2);
    assert_eq!(
        count("[job]\nmode='semi-sync'\n[trainer]\nhybrid=false\n"),
        0
    );
    assert_eq!(count("[job]\nmode='sync'\n"), 0);
    assert_eq!(count("[job]\nmode='async'\n[trainer]\nhybrid=false\n"), 0);
    let job = with("[job]\nmode='sync'\n[trainer]\nhybrid=true\nranks=4\n");
    let places = job.placement().unwrap();
    let at = |role| {
        let of_role = places.iter().filter(move |p| p.id.role == role);
        of_role
            .map(|p| (&p.node, &p.pool, p.slot))
            .collect::<Vec<_>>()
    };
    assert_eq!(at(Role::Hybrid).len(), 4);
    assert_eq!(at(Role::Hybrid), at(Role::Trainer));
}

#[test]
fn a_pool_is_filled_node_by_node_in_the_files_order() {
    let text = "[data]\nprompts='p'\ntokenizer='t'\n[[node]]\nname='b'\n\
                pools={train=1,rollout=3,agent=2}\n[[node]]\nname='a'\npools={train=1}\n";
    let job = Job::parse(text, Path::new("job.toml")).unwrap();
    let places = job.placement().unwrap();
    let nodes: Vec<_> = places
        .iter()
        .take(2)
        .map(|p| (p.node.as_str(), p.slot))
        .collect();
    assert_eq!(nodes, [("b", 0), ("a", 0)]);
}

/// Each fixture has one error; the whole sentence is what an operator reads.
const BAD: &[(&str, &str)] = &[
    (
        "bad_name",
        ":6:1: `job.name` is \"../demo\"; use 1 to 64 letters, digits, `.`, `_` or `-`",
    ),
    (
        "budget_window",
        ":7:1: `restart.hang.window_s` is -1; it must be above 0 and at most 30 days, in seconds",
    ),
    (
        "max_context_beyond_positions",
        ":6:1: `rollout.max_context` is 65; it must be at most `model.config.max_position_embeddings` (64)",
    ),
    (
        "max_context_for_no_answer",
        ":5:2: `rollout.max_new_tokens` is 32; it must be below `rollout.max_context` (32)",
    ),
    (
        "rollout_dtype_of_an_engine",
        ":6:1: `rollout.dtype` is \"bfloat16\"; it is the built-in rollout's; say with `rollout.command.dtype` what numbers your engine holds",
    ),
    (
        "webhook_of_a_person",
        ":6:1: `alarms.webhook` is no address to post to; leave name and password out of it: a receiver knows the job by `webhook_secret_file`",
    ),
    (
        "webhook_secret_for_nobody",
        ":6:1: `alarms.webhook_secret_file` is hook.secret; name the receiver that knows the secret as `alarms.webhook`",
    ),
    (
        "webhook_without_scheme",
        ":6:1: `alarms.webhook` is no address to post to; write https://HOST/PATH, or http://HOST/PATH",
    ),
    (
        "weights_dtype_and_checksums",
        ":2:1: `weights.dtype` is \"bfloat16\"; an engine of float32 has other bytes then than were published; leave it out, or `checksum` out of `rollout.command.verify`",
    ),
    (
        "duplicate_node",
        ":10:1: `node.1.name` is \"a\"; another node has that name; give every node its own",
    ),
    (
        "endless_batch",
        ":7:1: `batch.responses` is 65536; a batch has at most 4194304 trajectories (`batch.prompts` x `batch.responses`)",
    ),
    (
        "endless_pool",
        ":7:11: `node.0.pools.train` is 4000000000; it must be 0 to 65536",
    ),
    (
        "hybrid_in_async",
        ":6:1: `trainer.hybrid` is true; in mode async the ranks train all the time, so nothing can share their slots; leave it out, or set `job.mode` to \"semi-sync\" or \"sync\"",
    ),
    (
        "key_value_heads",
        ":6:1: `model.config.num_key_value_heads` is 3; it must divide `model.config.num_attention_heads` (4)",
    ),
    ("missing_key", ":1:1: `data.tokenizer` is missing; add it"),
    ("missing_section", ":1:1: `data` is missing; add it"),
    (
        "negative_count",
        ":6:11: `agent.workers` has a bad value (integer `-1`); write a whole number of 0 or more",
    ),
    ("not_a_number", ":6:1: `train.lr` is NaN; it must be 0 to 1"),
    (
        "overcommitted_node",
        ":7:1: node `a` has 4 slots, but its pools take 5 (rollout 3, train 2): 1 missing; make pools smaller or share one between roles",
    ),
    (
        "publish_after_what",
        ":6:17: `checkpoint.publish_after` is `raid`; it must be `snapshot`, `replica` or `disk`",
    ),
    (
        "ranks_do_not_divide",
        ":6:1: `trainer.ranks` is 3; it must divide the samples of a step: `batch.prompts` x `batch.responses` = 16",
    ),
    (
        "remote_without_scheme",
        ":6:1: `checkpoint.remote` is \"bucket/prefix\"; write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX, az://CONTAINER/PREFIX or file:///FOLDER",
    ),
    (
        "rule_same_for_all_roles",
        ":7:13: `detect.node_lost.trainer.window_s` is set; remove it: it is the same for all roles; \
         `detect.node_lost.window_s` says it",
    ),
    (
        "rule_silent_in_phase",
        ":6:12: `detect.trainer_idle.phases.generating` is set; remove it: the rule is silent in `generating`; it speaks in init, load_checkpoint, \
         await_batch, context_switch, reshard, ref_logprob, old_logprob, advantage, update, snapshot, publish, loop",
    ),
    (
        "rule_without_role",
        ":5:22: unknown key `detect.trainer_idle.rollout`; the keys here are `window_s` and `phases`",
    ),
    (
        "single_response",
        ":6:1: `batch.responses` is 1; it must be 2 to 65536",
    ),
    (
        "switch_at_zero",
        ":7:1: `job.switch_at` is 0; it must be above 0 and at most 1, the share of a batch's finished prompts",
    ),
    (
        "syntax",
        ":5:9: this is not TOML: unclosed table, expected `]`",
    ),
    (
        "too_few_slots",
        ":6:1: `rollout.replicas` asks for 4 slots of pool `rollout`, but node `local` has 3: 1 missing; lower `rollout.replicas` to 3 or raise `rollout` in a node's `pools`",
    ),
    (
        "too_few_slots_on_bound_node",
        ":5:2: `trainer.ranks` asks for 2 slots of pool `train`, but node `a` has 1 and the role is bound to it: 1 missing; lower `trainer.ranks` to 1 or raise `train` in a node's `pools`",
    ),
    (
        "too_few_slots_on_two_nodes",
        ":6:1: `rollout.replicas` asks for 6 slots of pool `rollout`, but node `a` has 3, node `b` has 2: 1 missing; lower `rollout.replicas` to 5 or raise `rollout` in a node's `pools`",
    ),
    (
        "transport_over_nodes",
        ":6:1: `weights.transport` is \"shm\" with 2 nodes; use \"auto\": shared memory on a node, the network between nodes",
    ),
    (
        "unknown_fault_kind",
        ":5:10: unknown key `restart.hangs`; did you mean `hang`?",
    ),
    (
        "unknown_key",
        ":6:1: unknown key `rollout.replica`; did you mean `replicas`?",
    ),
    (
        "unknown_key_far",
        ":6:1: unknown key `weights.colour`; the keys here are `chunk_kib`, `stall_timeout_s`, `pullers_per_source`, `full_every`, `dtype`, `beside_generation`, `buffer_mib`, `transport` and `net_devices`",
    ),
    (
        "unknown_mode",
        ":6:8: `job.mode` is `asynchronous`; it must be `sync`, `semi-sync` or `async`",
    ),
    (
        "unknown_node",
        ":6:1: `agent.node` names node `c`, which the file does not have; its nodes are `a`",
    ),
    (
        "unknown_pool",
        ":6:1: `trainer.pool` names pool `trian`, which no node has; did you mean `train`?",
    ),
    (
        "unknown_rule",
        ":5:9: unknown key `detect.trainer_idel`; did you mean `trainer_idle`?",
    ),
    (
        "unknown_rule_key",
        ":6:1: unknown key `detect.attach_overdue.window`; did you mean `window_s`?",
    ),
    (
        "unknown_section",
        ":5:2: unknown key `trianer`; did you mean `trainer`?",
    ),
    (
        "unknown_swap",
        ":6:8: `rollout.swap` is `never`; it must be `step` or `turn`",
    ),
    (
        "window_as_text",
        ":6:12: `detect.trainer_idle.window_s` has the wrong type (string \"long\"); write a number or a table",
    ),
    (
        "window_below_samples",
        ":6:1: `detect.rollout_silent.window_s` is 0.5; it must span 4 activity samples: at least 1 with `detect.sample_interval_ms = 250`",
    ),
    (
        "window_not_a_number",
        ":6:12: `detect.trainer_idle.phases.update` is NaN; it must be above 0 and at most 30 days, in seconds",
    ),
    (
        "window_of_years",
        ":6:14: `detect.agent_silent.window_s` is 1000000000000; it must be above 0 and at most 30 days, in seconds",
    ),
    (
        "written_by_nodes_after_disk",
        ":6:1: `checkpoint.written_by` is nodes; with `checkpoint.publish_after = \"disk\"` every step waits for the leader's disk, which such checkpoints are not on: set that to \"replica\", or leave this out",
    ),
    (
        "written_by_nodes_nowhere",
        ":6:1: `checkpoint.written_by` is nodes; name the object store that nodes put checkpoints into as `checkpoint.remote`",
    ),
    (
        "wrong_type",
        ":6:9: `trainer.ranks` has the wrong type (string \"two\"); write a whole number of 0 or more",
    ),
    (
        "zero_replicas",
        ":6:1: `rollout.replicas` is 0; it must be 1 to 10000",
    ),
    (
        "zero_steps",
        ":6:1: `job.steps` is 0; it must be 1 to 4294967295",
    ),
    (
        "zero_window",
        ":6:1: `detect.trainer_idle.window_s` is 0; it must be above 0 and at most 30 days, in seconds",
    ),
];

#[test]
#[allow(clippy::disallowed_methods, reason = "reads fixtures")]
fn each_bad_job_file_gets_one_sentence_with_place_problem_and_fix() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/bad_jobs");
    let mut seen = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let text = std::fs::read_to_string(&path).unwrap();
        let error = Job::parse(&text, Path::new(&name)).expect_err(&name);
        seen.push(error.to_string());
    }
    seen.sort();
    let mut expected: Vec<String> = BAD
        .iter()
        .chain(BAD_COMMANDS)
        .chain(BAD_DEVICES)
        .map(|(file, rest)| format!("{file}.toml{rest}"))
        .collect();
    expected.sort();
    assert_eq!(seen, expected);
}

proptest! {
    #[test]
    fn random_text_never_panics_the_parser(text in any::<String>()) {
        let _ = Job::parse(&text, Path::new("x"));
    }

    #[test]
    fn random_toml_like_text_never_panics_the_parser(
        text in r#"([\[\]{}=.,"'#\n \-+0-9a-zé]|node|pools|train|nan|1e400|"""){0,80}"#
    ) {
        let _ = Job::parse(&text, Path::new("x"));
    }

    #[test]
    fn a_mutated_job_file_never_panics_and_what_it_reads_can_be_placed(
        cut in any::<prop::sample::Index>(),
        len in 0_usize..40,
        with in prop_oneof![
            Just("-1".to_owned()), Just("99999999999999999999".to_owned()), Just("nan".to_owned()),
            Just("[[".to_owned()), Just("é".to_owned()), Just("1e308".to_owned()),
            Just("\"".to_owned()), Just("0".to_owned()), any::<String>(),
        ],
        which in 0_usize..3,
    ) {
        let valid = [TEST, DEMO, FAKE][which];
        let mut bytes = valid.as_bytes().to_vec();
        let at = cut.index(bytes.len());
        bytes.splice(at..(at + len).min(valid.len()), with.bytes());
        match Job::parse(&String::from_utf8_lossy(&bytes), Path::new("x")) {
            Ok(job) => prop_assert!(job.placement().is_ok()),
            Err(error) => prop_assert!(error.to_string().starts_with('x')),
        }
    }
}

#[test]
fn weights_are_swapped_between_steps_unless_the_job_wants_turns() {
    assert_eq!(minimal().rollout.swap, Swap::Step);
    let text = "[data]\nprompts='p'\ntokenizer='t'\n[rollout]\nswap='turn'\n";
    let job = Job::parse(text, Path::new("job.toml")).unwrap();
    assert_eq!(job.rollout.swap, Swap::Turn);
}
