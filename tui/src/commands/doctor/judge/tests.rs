//! Verdicts on recorded machines, and on one with a single thing changed.
#![allow(clippy::unwrap_used, clippy::panic)]
use super::super::check::Verdict;
use super::super::facts::{
    Address, Answer, CommandFacts, EngineFacts, Folder, Found, GroupFacts, HiddenFacts, JobFacts,
    Limit, Peer, Port, Process, RoleMemory, Ucx, Written,
};
use super::*;
use crate::commands::doctor::{Saved, text};
use crate::paint::Paint;
use robust_shared::job::{ControlGroups, EngineKind, HideState, Isolate, WeightTransport};
use std::path::Path;

fn fixture(name: &str) -> Facts {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/doctor");
    let text = std::fs::read(path.join(name)).unwrap();
    serde_json::from_slice::<Saved>(&text).unwrap().facts
}

/// The verdict on a healthy machine whose job has engines, with one thing of them changed.
fn with_engines(name: &str, change: impl FnOnce(&mut CommandFacts, &mut EngineFacts)) -> Verdict {
    let mut engine = EngineFacts {
        kind: EngineKind::Vllm,
        version: Some(Ok("0.32.0+cpu".to_owned())),
        fixed: Some((31_000, 31_003)),
        taken: Vec::new(),
        isolate: Isolate::Auto,
        socket: false,
        namespace: Ok(()),
        version_bytes: Some(16 << 30),
        replicas: 4,
    };
    let mut command = CommandFacts {
        tried: None,
        at: "rollout.command".to_owned(),
        program: Ok("/opt/vllm/bin/vllm".into()),
        unset: Vec::new(),
        hidden: None,
        engine: None,
    };
    change(&mut command, &mut engine);
    command.engine = Some(engine);
    with(name, |f| {
        if let Some(Ok(job)) = &mut f.job {
            job.commands.push(command);
        }
    })
}

#[test]
fn a_program_that_is_not_there_and_a_variable_that_is_not_set_fail() {
    for name in [
        "program",
        "variables",
        "engine version",
        "engine ports",
        "engine memory",
    ] {
        assert_eq!(with_engines(name, |_, _| {}), Verdict::Ok, "{name}");
    }
    let gone = |c: &mut CommandFacts, e: &mut EngineFacts| {
        (c.program, e.version) = (Err("vllm is in no folder of PATH".to_owned()), None);
    };
    assert_eq!(with_engines("program", gone), Verdict::Fail);
    assert_eq!(with_engines("engine version", gone), Verdict::Skipped);
    let unset = |c: &mut CommandFacts, _: &mut EngineFacts| c.unset.push("JUDGE".to_owned());
    assert_eq!(with_engines("variables", unset), Verdict::Fail);
}

#[test]
fn a_version_that_is_not_tested_is_warned_of() {
    let says =
        |version: Found<String>| with_engines("engine version", |_, e| e.version = Some(version));
    assert_eq!(says(Ok("0.32.0".to_owned())), Verdict::Ok);
    assert_eq!(says(Ok("0.32.01".to_owned())), Verdict::Warn);
    assert_eq!(says(Err("no answer within 20 s".to_owned())), Verdict::Warn);
}

#[test]
fn ports_for_clients_must_be_free_and_are_better_not_handed_out() {
    let at = |first: u16| with_engines("engine ports", |_, e| e.fixed = Some((first, first + 3)));
    assert_eq!(at(32_764), Verdict::Ok);
    assert_eq!(
        at(32_765),
        Verdict::Warn,
        "32768 is the first that is handed out"
    );
    let taken = |_: &mut CommandFacts, e: &mut EngineFacts| {
        e.taken.push(Port {
            at: "0.0.0.0:31001".parse().unwrap(),
            free: Err("Address already in use".to_owned()),
        });
    };
    assert_eq!(with_engines("engine ports", taken), Verdict::Fail);
}

#[test]
fn two_versions_an_engine_must_fit_beside_the_snapshots() {
    let of = |bytes: u64| with_engines("engine memory", |_, e| e.version_bytes = Some(bytes));
    // 1007 GiB less the snapshots' 184, for 4 engines.
    assert_eq!(of(102 << 30), Verdict::Ok);
    assert_eq!(of(103 << 30), Verdict::Fail);
}

#[test]
fn an_engines_own_port_is_nobodys_but_the_shims_or_the_risk_is_said() {
    let no = || Err("unshare failed: Operation not permitted".to_owned());
    let found = |isolate, socket, namespace| {
        with_engines("engine isolation", |_, e| {
            (e.isolate, e.socket, e.namespace) = (isolate, socket, namespace);
        })
    };
    assert_eq!(found(Isolate::Auto, true, no()), Verdict::Ok);
    assert_eq!(found(Isolate::Auto, false, Ok(())), Verdict::Ok);
    assert_eq!(found(Isolate::Auto, false, no()), Verdict::Warn);
    assert_eq!(found(Isolate::Netns, false, no()), Verdict::Fail);
    assert_eq!(found(Isolate::Loopback, false, Ok(())), Verdict::Warn);
}

#[test]
fn a_program_that_sees_the_jobs_secrets_is_said_with_the_way_out() {
    let found = |user: Option<Found<()>>, asked, root, namespace: bool| {
        with_engines("state hidden", |c, _| {
            c.hidden = Some(HiddenFacts {
                user: user.map(|known| ("rl".to_owned(), known)),
                root,
                asked,
                namespace: namespace.then_some(()).ok_or_else(|| "no".to_owned()),
                model: None,
            });
        })
    };
    let unknown = || Err("no such user".to_owned());
    assert_eq!(
        found(Some(Ok(())), HideState::Auto, true, true),
        Verdict::Ok
    );
    assert_eq!(
        found(Some(Ok(())), HideState::Auto, true, false),
        Verdict::Fail
    );
    assert_eq!(
        found(Some(Ok(())), HideState::Auto, false, true),
        Verdict::Fail
    );
    assert_eq!(
        found(Some(unknown()), HideState::Auto, true, true),
        Verdict::Fail
    );
    assert_eq!(found(None, HideState::Auto, true, true), Verdict::Warn);
    assert_eq!(found(None, HideState::Require, true, true), Verdict::Fail);
    assert_eq!(found(None, HideState::Off, true, false), Verdict::Ok);
    assert_eq!(found(None, HideState::Auto, false, true), Verdict::Ok);
    assert_eq!(found(None, HideState::Auto, false, false), Verdict::Warn);
    assert_eq!(found(None, HideState::Require, false, false), Verdict::Fail);
}

#[test]
fn a_model_that_a_programs_user_may_not_read_is_said_before_the_program_fails_for_it() {
    let found = |read: Found<()>| {
        with_engines("model readable", |c, _| {
            c.hidden = Some(HiddenFacts {
                user: Some(("rl".to_owned(), Ok(()))),
                root: true,
                asked: HideState::Auto,
                namespace: Ok(()),
                model: Some(("/root/.cache/robust/warmup/1".into(), read)),
            });
        })
    };
    assert_eq!(found(Ok(())), Verdict::Ok);
    assert_eq!(found(Err("Permission denied".to_owned())), Verdict::Fail);
}

#[test]
fn limits_that_nobody_would_hold_to_are_said_with_the_way_out() {
    let found = |asked, limits: &[&str], found: Found<&str>| {
        with("control groups", |facts| {
            let job = facts.job.as_mut().and_then(|job| job.as_mut().ok());
            job.unwrap().groups = Some(GroupFacts {
                asked,
                limits: limits.iter().map(|key| (*key).to_owned()).collect(),
                found: found.map(str::to_owned),
            });
        })
    };
    let no = || Err("no control group can be made here (read-only)".to_owned());
    let limits = ["rollout.limits.memory"];
    assert_eq!(
        found(ControlGroups::Auto, &limits, Ok("version 2")),
        Verdict::Ok
    );
    assert_eq!(found(ControlGroups::Auto, &[], no()), Verdict::Ok);
    assert_eq!(found(ControlGroups::Auto, &limits, no()), Verdict::Fail);
    assert_eq!(found(ControlGroups::Require, &[], no()), Verdict::Fail);
    assert_eq!(found(ControlGroups::Off, &[], no()), Verdict::Ok);
}

/// The verdict on a healthy machine with one thing changed.
fn with(name: &str, change: impl FnOnce(&mut Facts)) -> Verdict {
    let mut facts = fixture("h200_node.json");
    change(&mut facts);
    let found = all(&facts);
    let check = found.iter().find(|c| c.name == name);
    let check = check.unwrap_or_else(|| panic!("there is no check `{name}`"));
    let says_how = check.fix.is_some() || check.verdict <= Verdict::Skipped;
    assert!(says_how, "no fix: {check:?}");
    check.verdict
}

#[test]
fn a_node_that_is_fit_has_nothing_to_be_mended() {
    let checks = all(&fixture("h200_node.json"));
    assert!(
        checks.iter().all(|c| c.verdict == Verdict::Ok),
        "{checks:#?}"
    );
    insta::assert_snapshot!("h200_node", text(&checks, Paint::plain()));
}

#[test]
fn everything_that_is_wrong_is_said_with_its_fix() {
    let checks = all(&fixture("nothing_fits.json"));
    let bad = |c: &&Check| matches!(c.verdict, Verdict::Warn | Verdict::Fail);
    assert!(checks.iter().filter(bad).all(|c| c.fix.is_some()));
    insta::assert_snapshot!("nothing_fits", text(&checks, Paint::plain()));
}

#[test]
fn of_what_was_not_looked_at_nothing_is_claimed() {
    let checks = all(&Facts::default());
    let claimed: Vec<&Check> = checks
        .iter()
        .filter(|c| c.verdict != Verdict::Skipped)
        .collect();
    let names: Vec<&str> = claimed.iter().map(|c| c.name).collect();
    assert_eq!(names, ["versions", "leftover processes"]);
}

#[test]
fn descriptors_are_counted_against_the_jobs_instances() {
    // 1024 and 8 for each of 40.
    let limit = |soft, hard| {
        move |f: &mut Facts| {
            f.files = Some(Ok(Limit {
                soft: Some(soft),
                hard: Some(hard),
            }));
        }
    };
    assert_eq!(with("file descriptors", limit(1344, 1344)), Verdict::Ok);
    assert_eq!(with("file descriptors", limit(1343, 1344)), Verdict::Warn);
    assert_eq!(with("file descriptors", limit(1024, 1343)), Verdict::Fail);
}

#[test]
fn snapshots_must_fit_into_shared_memory_twice() {
    let free = |free| {
        move |f: &mut Facts| {
            if let Some(Ok(shm)) = &mut f.shm {
                shm.free = free;
            }
        }
    };
    let state = 98_784_247_808;
    assert_eq!(with("shared memory", free(2 * state)), Verdict::Ok);
    assert_eq!(with("shared memory", free(2 * state - 1)), Verdict::Fail);
    let unknown = |f: &mut Facts| {
        free(1 << 29)(f);
        f.job = None;
    };
    assert_eq!(with("shared memory", unknown), Verdict::Warn);
}

#[test]
fn roles_that_do_not_fit_beside_each_other_are_refused_with_the_keys_to_change() {
    let with_roles = |available: u64| {
        let mut facts = fixture("h200_node.json");
        facts.memory = Some(Ok(available << 30));
        let role = |role: &str, count, gib: u64| RoleMemory {
            role: role.to_owned(),
            count,
            bytes: gib << 30,
            parts: "keys and values 9 GiB".to_owned(),
        };
        if let Some(Ok(job)) = &mut facts.job {
            job.roles = vec![role("trainer", 1, 8), role("rollout", 2, 12)];
        }
        let checks = all(&facts);
        checks
            .into_iter()
            .find(|check| check.name == "memory")
            .unwrap()
    };
    assert_eq!(with_roles(32).verdict, Verdict::Ok);
    let refused = with_roles(31);
    assert_eq!(refused.verdict, Verdict::Fail);
    let (found, fix) = (&refused.found, refused.fix.as_deref().unwrap());
    assert!(
        found.contains("1 trainer") && found.contains("a rollout has keys and values"),
        "{found}"
    );
    assert!(fix.contains("rollout.max_context"), "{fix}");
}

#[test]
fn a_folder_on_another_machine_is_found_whatever_its_kind() {
    for fs in ["nfs", "nfs4", "cifs", "lustre", "fuse.sshfs", "ceph", "9p"] {
        let on = |fact: fn(&mut Facts) -> &mut Option<super::super::facts::Found<Folder>>| {
            move |f: &mut Facts| {
                if let Some(Ok(folder)) = fact(f) {
                    folder.fs = fs.to_owned();
                }
            }
        };
        assert_eq!(with("TMPDIR", on(|f| &mut f.tmp)), Verdict::Fail, "{fs}");
        assert_eq!(
            with("state directory", on(|f| &mut f.state)),
            Verdict::Fail,
            "{fs}"
        );
    }
}

#[test]
fn a_slow_disk_is_warned_of_and_a_crawling_one_refused() {
    let speed = |mb_per_s: f64| {
        move |f: &mut Facts| {
            f.disk = Some(Ok(Written {
                bytes: 100_000_000,
                seconds: 100.0 / mb_per_s,
                direct: true,
            }));
        }
    };
    assert_eq!(with("disk speed", speed(1_400.0)), Verdict::Ok);
    assert_eq!(with("disk speed", speed(150.0)), Verdict::Warn);
    assert_eq!(with("disk speed", speed(8.0)), Verdict::Fail);
}

#[test]
fn a_clock_is_not_blamed_for_the_way_to_it() {
    let clock = |ahead_ms, within_ms| {
        move |f: &mut Facts| {
            f.peers = vec![Peer {
                at: "10.0.0.2:7070".parse().unwrap(),
                answer: Ok(Answer {
                    version: "0.1.0".to_owned(),
                    ahead_ms,
                    within_ms,
                    seen_as: None,
                }),
            }];
        }
    };
    assert_eq!(with("clock", clock(-90.0, 1.0)), Verdict::Ok);
    assert_eq!(with("clock", clock(-400.0, 350.0)), Verdict::Ok);
    assert_eq!(with("clock", clock(-400.0, 1.0)), Verdict::Warn);
    assert_eq!(with("clock", clock(60_000.0, 1.0)), Verdict::Fail);
}

#[test]
fn an_address_that_leads_elsewhere_fails_only_where_others_need_it() {
    let away = |spread: bool| {
        move |f: &mut Facts| {
            f.addresses = vec![Address {
                ip: "10.9.9.9".parse().unwrap(),
                from: "the name gpu-17".to_owned(),
                to_itself: Err("timed out".to_owned()),
            }];
            if !spread {
                f.peers.clear();
                f.job = None;
            }
        }
    };
    assert_eq!(with("own address", away(true)), Verdict::Fail);
    assert_eq!(with("own address", away(false)), Verdict::Warn);
    let loopback = |f: &mut Facts| f.addresses[0].ip = "127.0.1.1".parse().unwrap();
    assert_eq!(with("own address", loopback), Verdict::Fail);
}

#[test]
fn transports_are_held_against_the_jobs_devices_and_the_machines() {
    let ucx = |transports: &'static [&str], unknown: &'static [&str]| {
        let owned = |names: &[&str]| names.iter().map(|t| (*t).to_owned()).collect();
        move |f: &mut Facts| {
            if let Some(Ok(worker)) = &mut f.worker {
                worker.ucx = Ok(Ucx {
                    version: "1.18.0".to_owned(),
                    transports: owned(transports),
                    unknown: owned(unknown),
                });
            }
        }
    };
    const NAME: &str = "UCX transports";
    assert_eq!(
        with(NAME, ucx(&["tcp/lo", "rc_verbs/mlx5_0:1"], &[])),
        Verdict::Ok
    );
    let unused = with(NAME, |f| {
        ucx(&["tcp/lo", "tcp/mlx5_0:1"], &[])(f);
    });
    assert_eq!(unused, Verdict::Warn, "a device for RDMA and only tcp");
    assert_eq!(
        with(NAME, ucx(&["tcp/lo"], &["mlx5_0:1"])),
        Verdict::Fail,
        "the job names mlx5_0:1"
    );
    assert_eq!(
        with(NAME, ucx(&["self/memory", "posix/memory"], &[])),
        Verdict::Fail
    );
}

#[test]
fn who_seals_what_goes_over_tls_is_said_and_nothing_where_it_was_not_looked_at() {
    let job = JobFacts {
        transport: WeightTransport::Tls,
        ..JobFacts::default()
    };
    let found = |kernel_tls| {
        let facts = Facts {
            job: Some(Ok(job.clone())),
            kernel_tls,
            ..Facts::default()
        };
        let checks = all(&facts);
        let road = checks.iter().find(|check| check.name == "weights' road");
        road.map(|check| check.found.clone()).unwrap()
    };
    assert!(found(Some(Ok(true))).ends_with("sealed by the kernel (its module tls is loaded)"));
    assert!(found(Some(Ok(false))).ends_with("unless they may load the kernel's module tls"));
    assert!(found(None).ends_with("on one machine too"));
}

#[test]
fn who_holds_a_device_without_a_daemon_is_found() {
    let only = |process: Process| move |f: &mut Facts| f.processes = vec![process];
    let orphan = Process {
        pid: 7,
        role_of: Some("/var/lib/robust".into()),
        ..Process::default()
    };
    assert_eq!(with("leftover processes", only(orphan)), Verdict::Fail);
    let stranger = Process {
        pid: 7,
        device: Some(1),
        ..Process::default()
    };
    assert_eq!(with("leftover processes", only(stranger)), Verdict::Warn);
    // Memory in use by a process of another container has no process here.
    let nobody = |f: &mut Facts| f.processes.clear();
    assert_eq!(with("device memory", nobody), Verdict::Warn);
}

#[test]
fn without_an_accelerator_its_checks_are_skipped_and_a_broken_driver_fails() {
    let gone = |nodes, module: Option<&str>| {
        let module = module.map(str::to_owned);
        move |f: &mut Facts| {
            (f.driver.nodes, f.driver.module) = (nodes, module);
            f.driver.nvml = Some(Err("NVML: the library could not be loaded".to_owned()));
        }
    };
    assert_eq!(with("driver and NVML", gone(0, None)), Verdict::Skipped);
    assert_eq!(with("driver and NVML", gone(8, None)), Verdict::Fail);
    assert_eq!(with("driver and NVML", gone(0, Some("580"))), Verdict::Fail);
    let lost = |f: &mut Facts| {
        if let Some(Ok(nvml)) = &mut f.driver.nvml {
            nvml.devices[1] = Err("device 1: the GPU is lost".to_owned());
        }
    };
    assert_eq!(with("driver and NVML", lost), Verdict::Fail);
}

#[test]
fn libtorch_must_not_be_newer_than_the_driver() {
    let torch = |version: &'static str| {
        move |f: &mut Facts| {
            if let Some(Ok(worker)) = &mut f.worker {
                worker.torch = Some(version.to_owned());
            }
        }
    };
    assert_eq!(with("libtorch", torch("2.11.0+cu139")), Verdict::Ok);
    assert_eq!(with("libtorch", torch("2.6.0+cu124")), Verdict::Ok);
    assert_eq!(with("libtorch", torch("3.0.0+cu140")), Verdict::Fail);
    let for_processors = |f: &mut Facts| {
        torch("2.11.0+cpu")(f);
        if let Some(Ok(worker)) = &mut f.worker {
            worker.torch_cuda = false;
        }
    };
    assert_eq!(with("libtorch", for_processors), Verdict::Ok);
}

#[test]
fn a_variable_that_no_role_gets_is_named() {
    let job = JobFacts {
        held_back: vec!["AWS_SECRET_ACCESS_KEY".to_owned(), "EDITOR".to_owned()],
        ..JobFacts::default()
    };
    let facts = Facts {
        job: Some(Ok(job)),
        ..Facts::default()
    };
    let checks = all(&facts);
    let check = checks.iter().find(|c| c.name == "environment").unwrap();
    assert!(
        check
            .found
            .contains("no role gets AWS_SECRET_ACCESS_KEY, EDITOR;")
    );
}
