//! Jobs with commands and services.
#![allow(clippy::unwrap_used)]
use super::tests::PAGE;
use super::*;
use crate::core::CoreConfig;

pub(super) const FAKE: &str = include_str!("../../../fixtures/jobs/engines-fake.toml");

/// A row of the page for each placeholder, with those that may use it.
#[test]
fn the_readme_has_every_placeholder_with_whose_it_is() {
    let rows = PAGE
        .lines()
        .skip_while(|line| !line.starts_with("| placeholder"));
    let rows = rows.skip(2).take_while(|line| line.starts_with("| `{"));
    let mut seen = 0;
    for row in rows {
        let cells: Vec<&str> = row.split(" | ").collect();
        let names = cells[0].split('`').skip(1).step_by(2);
        for name in names {
            let name = name.trim_matches(['{', '}']);
            let placeholder = Placeholder::named(name).unwrap();
            let of = |scope| placeholder.is_of(scope);
            let scopes = [Scope::Rollout, Scope::Trainer, Scope::Service, Scope::Agent];
            let names: Vec<&str> = scopes
                .into_iter()
                .filter(|s| of(*s))
                .map(Scope::name)
                .collect();
            let whose = match names.len() {
                0 => "none".to_owned(),
                4 => "all".to_owned(),
                _ => names.join(", "),
            };
            assert_eq!(cells[1], whose, "{name}");
            seen += 1;
        }
    }
    assert_eq!(
        seen, 24,
        "21 names, {{port1}}, {{service.NAME}} and {{env:NAME}}"
    );
}

#[test]
fn the_number_of_ranks_of_a_program_of_the_users_stays_unless_its_state_fits_any() {
    let text = "[data]\nprompts='p'\ntokenizer='t'\n[trainer]\nranks=2\nmin=1\nmax=4\n";
    let job = |more: &str| Job::parse(&format!("{text}{more}"), Path::new("job.toml")).unwrap();
    let bounds = |job: &Job| (job.bounds(Role::Trainer).min, job.bounds(Role::Trainer).max);
    assert_eq!(bounds(&job("")), (1, 4));
    assert_eq!(bounds(&job("[trainer.command]\nargv=['python']\n")), (2, 2));
    let any = job("[trainer.command]\nargv=['python']\nsnapshot='dcp'\n");
    assert_eq!(bounds(&any), (1, 4));
}

#[test]
fn the_job_with_played_engines_is_valid_and_says_how_they_are_started() {
    let mut job = Job::parse(FAKE, Path::new("engines-fake.toml")).unwrap();
    job.resolve(Path::new("/srv/jobs"));
    let command = job.rollout.command.clone().unwrap();
    assert_eq!((command.kind, job.rollout.replicas), (EngineKind::Vllm, 2));
    assert_eq!(command.cwd, Path::new("/srv/jobs"));
    assert_eq!(
        (command.pause_mode(), command.ready_path()),
        (PauseMode::Keep, "/health")
    );
    let value = |p: &Placeholder| match p {
        Placeholder::Env(name) if name == "FAKE_ENGINE" => Some("/bin/fake-engine".to_owned()),
        Placeholder::Model => Some("/m".to_owned()),
        Placeholder::Bind => Some("127.0.0.1".to_owned()),
        Placeholder::Port(0) => Some("4000".to_owned()),
        _ => None,
    };
    let argv = command
        .argv
        .iter()
        .map(|text| Template::parse(text).unwrap());
    let argv: Vec<String> = argv.map(|t| t.expand(&value).unwrap()).collect();
    let expected = "/bin/fake-engine --dialect vllm --model /m --host 127.0.0.1 --port 4000 \
                    --enable-scale-out";
    assert_eq!(argv.join(" "), expected);
    let config = CoreConfig::from(&job);
    assert_eq!((config.engine_requests, config.rollout_slots), (32, 1));
    let probe = &config.rules.health_probe;
    let times = [&probe.first_wait, &probe.interval, &probe.timeout];
    assert_eq!(times.map(|t| t.of(Role::Rollout).as_secs()), [2, 1, 2]);
    assert_eq!(probe.threshold.of(Role::Rollout), 3);
}

const ENGINES: &str = "[data]\nprompts='p'\ntokenizer='t'\n[rollout.command]\nkind='sglang'\n\
                       argv=['x','{port}']\napi_key_file='keys/engine'\ncwd='run'\nfixed=31000\n";

pub(super) fn engines(more: &str) -> Job {
    Job::parse(&format!("{ENGINES}{more}"), Path::new("job.toml")).unwrap()
}

#[test]
fn what_starts_the_ranks_of_its_node_has_all_its_slots_and_devices() {
    let own = |more: &str| {
        let text = format!("[trainer.command]\nargv=['torchrun','t.py']\nlevel='none'\n{more}");
        Job::parse(&text, Path::new("job.toml")).unwrap()
    };
    let job = own("launcher='node'\nslots=4\n[trainer]\nranks=2\n\
         [[node]]\nname='a'\npools={train=4}\n[[node]]\nname='b'\npools={train=4}\n");
    let places = job.placement().unwrap();
    let ranks: Vec<_> = places
        .iter()
        .map(|p| (p.node.as_str(), p.slot, p.slots))
        .collect();
    assert_eq!(ranks, [("a", 0, 4), ("b", 0, 4)]);
    let pools = &job.nodes[1].pools;
    let devices = job
        .slot_devices("b", pools, &SeenDevices::Counted(4))
        .unwrap();
    assert_eq!(devices.of_place("train", 0).as_deref(), Some("0,1,2,3"));
    // Without a node there is one, with what the program wants.
    let one = own("launcher='job'\nslots=8\n[trainer]\nranks=1\n");
    assert_eq!(one.nodes[0].pools["train"], 8);
    assert_eq!(one.bounds(Role::Trainer).max, 1);
}

#[test]
fn an_engine_of_several_slots_takes_as_many_of_one_node_and_services_take_the_last() {
    let job = engines(
        "slots=2\n[service.judge]\nargv=['j']\npool='rollout'\nreplicas=2\n\
         [[node]]\nname='a'\npools={train=2,rollout=4,agent=2}\n\
         [[node]]\nname='b'\npools={rollout=5}\n",
    );
    let places = job.placement().unwrap();
    let engines = places.iter().filter(|p| p.id.role == Role::Rollout);
    let engines: Vec<_> = engines
        .map(|p| (p.node.as_str(), p.slot, p.slots))
        .collect();
    assert_eq!(engines, [("a", 0, 2), ("b", 0, 2), ("b", 2, 2)]);
    let judges = job.service_places().unwrap();
    let judges: Vec<_> = judges.iter().map(|p| (p.node.as_str(), p.slot)).collect();
    assert_eq!(judges, [("a", 3), ("a", 2)]);
    // The core counts in places, whose slots the job knows.
    let nodes = CoreConfig::from(&job).nodes;
    let counted: Vec<u32> = nodes.iter().map(|n| n.pools["rollout"]).collect();
    assert_eq!((counted, nodes[0].pools["train"]), (vec![1, 2], 2));
    assert_eq!(job.slots_of_place("rollout", 1), 2..4);
    assert_eq!(job.slots_of_place("train", 1), 1..2);
}

#[test]
fn a_job_with_engines_and_no_nodes_gets_a_node_that_fits() {
    let job = engines("slots=2\n[service.judge]\nargv=['j']\npool='rollout'\n");
    assert_eq!(job.nodes[0].pools["rollout"], 3 * 2 + 1);
    assert_eq!(CoreConfig::from(&job).nodes[0].pools["rollout"], 3);
}

#[test]
fn paths_of_commands_become_absolute_and_must_be_there() {
    let mut job = engines(
        "[service.judge]\nargv=['j']\ncwd='../judge'\n[checkpoint]\nremote='s3://b'\n\
         remote_signing_key_file='keys/bucket'\n",
    );
    job.resolve(Path::new("/srv/jobs"));
    let files = job.required_files();
    let files = files.iter().map(|f| (f.key, f.path.to_str().unwrap()));
    let files: Vec<_> = files.skip(2).collect();
    assert_eq!(
        files,
        [
            ("rollout.command.cwd", "/srv/jobs/run"),
            ("rollout.command.api_key_file", "/srv/jobs/keys/engine"),
            ("service.cwd", "/srv/judge"),
            (
                "checkpoint.remote_signing_key_file",
                "/srv/jobs/keys/bucket"
            ),
        ]
    );
    let command = job.rollout.command.unwrap();
    assert_eq!(command.fixed_port(2), Some(31_002));
    assert_eq!(command.fixed_port(40_000), None);
}

/// Of the bad job files those with commands and services.
pub(super) const BAD_COMMANDS: &[(&str, &str)] = &[
    (
        "command_argv_empty",
        ":7:1: `rollout.command.argv` is empty; write the program and its arguments as a list of texts",
    ),
    (
        "command_argv_for_a_shell",
        ":7:1: `rollout.command.argv` is [\"vllm serve {model} --port {port}\"]; no shell reads it; write each argument as a text of its own: [\"vllm\", \"serve\"] and so on",
    ),
    (
        "command_brace",
        ":7:74: `rollout.command.argv.5` has a `{` without its other half; write `{{` for a brace as such",
    ),
    (
        "command_dtype",
        ":8:9: `rollout.command.dtype` is `float16`; it must be `float32` or `bfloat16`",
    ),
    (
        "command_env_of_ours",
        ":8:9: `rollout.command.env.ROBUST_INCARNATION` is \"7\"; remove it: such names are set for every process by its place in the job",
    ),
    (
        "command_fixed_beyond_ports",
        ":11:1: `rollout.command.fixed` is 65533; each of 4 replicas has a port of its own from there on, and 65535 is the last; it must be at most 65532",
    ),
    (
        "command_health_path",
        ":8:1: `rollout.command.health.path` is missing; add it",
    ),
    (
        "command_health_twice",
        ":8:12: `rollout.command.health.every_s` is 5; `detect.health_probe.interval_s` says it too; keep one of them",
    ),
    (
        "command_hybrid_asleep_without_flag",
        ":10:1: `rollout.command.argv` is without `--enable-sleep-mode`; hybrid engines give their memory back while the ranks train, and without it vllm keeps its own and does not say so: pass it `--enable-sleep-mode`, or write `hybrid = \"pause\"`",
    ),
    (
        "command_hybrid_of_no_job",
        ":8:1: `rollout.command.hybrid` is \"sleep\"; the job has no hybrid engines: remove it, or set `trainer.hybrid = true`",
    ),
    (
        "command_hybrid_of_ours",
        ":11:1: `rollout.command.hybrid` is \"sleep\"; a program of kind \"robust\" keeps its memory; write \"pause\", or remove it",
    ),
    (
        "command_hybrid_of_two_slots",
        ":11:1: `rollout.command.slots` is 2; it must be 1 with hybrid engines, which have their rank's one slot; or set `trainer.hybrid = false`",
    ),
    (
        "command_hybrid_unknown",
        ":11:10: `rollout.command.hybrid` is `doze`; it must be `sleep` or `pause`",
    ),
    (
        "command_hybrid_without_weights",
        ":12:1: `rollout.command.hybrid` is \"sleep\"; with `weights = \"theirs\"` nobody could give the engine its weights again when it wakes; write \"pause\", and it keeps its memory",
    ),
    (
        "command_inherit",
        ":8:20: `rollout.command.inherit.1` is \"HF-HOME\"; name a variable: letters, digits and `_`, no digit first",
    ),
    (
        "command_kind",
        ":6:8: `rollout.command.kind` is `tgi`; it must be `sglang`, `vllm` or `robust`",
    ),
    (
        "command_no_kind",
        ":5:1: `rollout.command.kind` is missing; add it",
    ),
    (
        "command_no_port",
        ":7:1: `rollout.command.argv` is without an address; the engine must be told where to listen: pass it `{port}`, or `{uds}` for a Unix socket",
    ),
    (
        "command_over_nodes",
        ":8:1: `rollout.command.slots` is 4; an engine over several nodes is not built yet: node `b` has the most slots of pool `rollout`, 3; use at most so many, or raise it in the node's `pools`",
    ),
    (
        "command_pause_of_another_kind",
        ":8:1: `rollout.command.pause` is \"in_place\"; vllm has `abort`, `wait` and `keep`",
    ),
    (
        "command_placeholder_of_a_trainer",
        ":7:56: `rollout.command.argv.5` has `{rank}`, which has no meaning for a rollout; those that have are `{index}`, `{incarnation}`, `{slots}`, `{devices}`, `{port}`, `{bind}`, `{advertise}`, `{model}`, `{job}`, `{state}`, `{shm}`, `{uds}`, `{service.NAME}` and `{env:NAME}`",
    ),
    (
        "command_placeholder_unknown",
        ":9:5: `rollout.command.argv.2` has `{prot}`, which is no placeholder; did you mean `{port}`?",
    ),
    (
        "command_plugin_not_loaded",
        ":7:1: `rollout.command.argv` is without `robustrl.sglang.load`; `weights = \"plugin\"` needs \"--custom-weight-loader\", \"robustrl.sglang.load\" in it",
    ),
    (
        "command_plugin_of_ours",
        ":8:1: `rollout.command.weights` is \"plugin\"; a program of kind \"robust\" has no plugin of ours; write \"disk\", \"theirs\" or \"none\"",
    ),
    (
        "command_port_beyond",
        ":8:9: `rollout.command.env.METRICS_PORT` has `{port2}`, but `rollout.command.ports` is 2; raise it to 3 or more",
    ),
    (
        "command_ready_path",
        ":8:11: `rollout.command.ready.path` is \"health\"; write a route, such as \"/health\"",
    ),
    (
        "command_service_unknown",
        ":7:57: `rollout.command.argv.5` has `{service.juge}`, but there is no such service; did you mean `judge`?",
    ),
    (
        "command_shared_pool",
        ":14:1: `rollout.command.slots` is 2; an engine of several slots needs a pool of its own, and agent shares `all`; give one of them another `pool`",
    ),
    (
        "command_stop_signal",
        ":8:19: `rollout.command.stop.signal` is `SIGTERM`; it must be `TERM`, `INT`, `QUIT`, `HUP`, `USR1`, `USR2` or `KILL`",
    ),
    (
        "command_too_few_slots",
        ":6:1: `rollout.replicas` asks for 4 slots of pool `rollout`, but node `a` has 3 and an instance takes 2 of one node: 2 missing; lower `rollout.replicas` to 1 or raise `rollout` in a node's `pools`",
    ),
    (
        "command_uds_not_told",
        ":8:1: `rollout.command.isolate` is \"uds\"; the engine must be told its socket: pass it `{uds}` (vLLM: `--uds`)",
    ),
    (
        "command_unknown_key",
        ":8:1: unknown key `rollout.command.api_key`; the keys here are `kind`, `argv`, `cwd`, `user`, `env`, `inherit`, `slots`, `ports`, `fixed`, `api_key_file`, `open`, `ready`, `health`, `pause`, `hybrid`, `requests`, `weights`, `dtype`, `verify`, `canary`, `flush`, `load_s`, `stop`, `poison` and `isolate`",
    ),
    (
        "command_user_is_root",
        ":8:1: `rollout.command.user` is \"root\"; nothing can be hidden from root; name another user, or none",
    ),
    (
        "command_verify_nothing",
        ":8:1: `rollout.command.verify` is empty; name at least one of `version`, `checksum` and `canary`: that an engine says it loaded weights is no proof",
    ),
    (
        "command_verify_unknown",
        ":8:22: `rollout.command.verify.1` is `digest`; it must be `version`, `checksum` or `canary`",
    ),
    (
        "service_before_unknown",
        ":7:11: `service.judge.before.0` is \"agnet\"; did you mean `agent`?",
    ),
    (
        "service_circle",
        ":8:10: `service.b` is in a circle: `b` before `rollout` before `c` before `b`; each would wait for the next one's start (a `{service.NAME}` or `{rollouts}` waits, too); take one out",
    ),
    (
        "service_health_without_port",
        ":7:1: `service.judge.ports` is 0; it must have a port to be asked at; set it to 1 or more",
    ),
    (
        "service_itself",
        ":6:18: `service.judge.argv.1` has `{service.judge}`, which is itself; its own address is `{bind}:{port}`",
    ),
    (
        "service_name",
        ":5:2: `service` is \"my judge\"; name it with 1 to 64 letters, digits, `_` or `-`",
    ),
    (
        "service_named_as_a_role",
        ":5:10: `service.agent` is \"agent\"; that name means something else; give the service another",
    ),
    (
        "service_needed",
        ":7:10: `service.judge.needed` is `maybe`; it must be `fail`, `wait` or `degrade`",
    ),
    (
        "service_placeholder_of_a_rollout",
        ":6:27: `service.judge.argv.2` has `{uds}`, which has no meaning for a service; those that have are `{index}`, `{incarnation}`, `{slots}`, `{devices}`, `{port}`, `{bind}`, `{advertise}`, `{model}`, `{job}`, `{state}`, `{shm}`, `{rollouts}`, `{service.NAME}` and `{env:NAME}`",
    ),
    (
        "service_slots_of_no_pool",
        ":7:1: `service.judge.slots` is 2; name the pool they are of with `pool`",
    ),
    (
        "service_too_few_slots",
        ":8:1: `service.judge.replicas` asks for 4 slots of pool `rollout`, but node `a` has 3 for all services: 2 missing; raise `rollout` in a node's `pools`",
    ),
    (
        "service_unknown_pool",
        ":7:1: `service.judge.pool` names pool `rolout`, which no node has; did you mean `rollout`?",
    ),
    (
        "service_user_empty",
        ":7:1: `service.judge.user` is \"\"; write the name or number of a user",
    ),
    (
        "trainer_command_dcp_of_nothing",
        ":4:1: `trainer.command.snapshot` is \"dcp\"; below level \"state\" nothing is kept for the program; leave it out",
    ),
    (
        "trainer_command_errors",
        ":6:25: `trainer.command.errors.1` is \"NCCL (\"; it is no regular expression: unclosed group",
    ),
    (
        "trainer_command_hybrid",
        ":6:2: `trainer.hybrid` is true; a program of the user's keeps its device's memory while it waits, so no engine \
         can share its slot; set `trainer.hybrid = false`",
    ),
    (
        "trainer_command_key",
        ":6:1: unknown key `trainer.command.nproc`; the keys here are `argv`, `launcher`, `slots`, `cwd`, `user`, \
         `env`, `inherit`, `ports`, `ready`, `errors`, `stop`, `level`, `snapshot`, `restore_args`, `phases` and `watch`",
    ),
    (
        "trainer_command_launcher_of_a_job_twice",
        ":2:1: `trainer.ranks` is 2; one program is all of it; write 1, or `trainer.command.launcher = \"node\"` for \
         one a node",
    ),
    (
        "trainer_command_launcher_twice_on_a_node",
        ":5:1: `trainer.command.launcher` is \"node\"; there is one program a node, and pool `train` of node `a` has \
         room for 2; raise `trainer.command.slots` to all that it has, or lower `trainer.ranks` to the number of nodes",
    ),
    (
        "trainer_command_level_that_publishes_nothing",
        ":5:1: `trainer.command.level` is \"phases\"; the rollouts would wait for weights for ever, for below \
         \"weights\" nothing is published; raise it, or start the engines as a [service.NAME]",
    ),
    (
        "trainer_command_level_unknown",
        ":7:9: `trainer.command.level` is `full`; it must be `none`, `phases`, `weights`, `state` or `data`",
    ),
    (
        "trainer_command_level_with_agents",
        ":5:2: `agent` is set; remove it: with `trainer.command.level = \"none\"` the trainer's loop is its own, and no \
         conversation is the job's",
    ),
    (
        "trainer_command_level_with_data",
        ":1:2: `data` is set; remove it: with `trainer.command.level = \"state\"` the trainer's loop is its own, and its \
         data is its own",
    ),
    (
        "trainer_command_level_without_model",
        ":1:1: `model.path` is missing; add it",
    ),
    (
        "trainer_command_own_snapshot_of_batches",
        ":7:1: `trainer.command.snapshot` is \"own\"; batches are consumed once only by a state that is kept with them; \
         write \"slot\", or `level = \"state\"` for a loop of its own",
    ),
    (
        "trainer_command_phase_of_the_rules",
        ":6:27: `trainer.command.phases.1` is \"update\"; the rules know that phase by themselves; remove it",
    ),
    (
        "trainer_command_placeholder_of_an_engine",
        ":5:43: `trainer.command.argv.3` has `{uds}`, which has no meaning for a trainer; those that have are \
         `{index}`, `{incarnation}`, `{generation}`, `{rank}`, `{world_size}`, `{local_rank}`, `{master_addr}`, \
         `{master_port}`, `{slots}`, `{devices}`, `{port}`, `{bind}`, `{advertise}`, `{model}`, `{job}`, `{state}`, `{shm}`, \
         `{rollouts}`, `{service.NAME}` and `{env:NAME}`",
    ),
    (
        "trainer_command_ready_of_one_that_attaches",
        ":6:11: `trainer.command.ready.log` is set; remove it: a program of level \"data\" is up when it attached",
    ),
    (
        "trainer_command_ready_twice",
        ":4:27: `trainer.command.ready.after_s` is set; one thing says that it is up; remove it or \
         `trainer.command.ready.log`",
    ),
    (
        "trainer_command_slots_over_nodes",
        ":6:1: `trainer.command.slots` is 8; a rank over several nodes is several ranks: node `a` has the most slots of \
         pool `train`, 4; use at most so many, or raise it in the node's `pools`",
    ),
    (
        "trainer_command_user_is_root",
        ":7:1: `trainer.command.user` is \"root\"; nothing can be hidden from root; name another user, or none",
    ),
];
