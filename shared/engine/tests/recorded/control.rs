//! What they said to orders and questions, and what others asked of them.

use robust_engine::{
    Dialect, Gauges, Generate, Judge, Kind, Label, Load, MemoryPart, PauseMode, Refused, Seen,
};
use serde_json::{Value, json};

use super::exchange::{Exchange, folder};

#[test]
fn refusals_are_understood_in_every_shape() {
    for (kind, name, client, what) in [
        (Kind::Sglang, "no_content_type", true, "GenerateReqInput"),
        (Kind::Sglang, "bad_body", true, "JSON decode error"),
        (
            Kind::Sglang,
            "bad_sampling_value",
            true,
            "temperature must be",
        ),
        (
            Kind::Sglang,
            "unknown_sampling_key",
            true,
            "unknown field `nonsense`",
        ),
        (
            Kind::Sglang,
            "too_long",
            true,
            "longer than the model's context",
        ),
        (Kind::Sglang, "no_input", true, "should be provided"),
        (Kind::Sglang, "get_weight_version", true, "Not Found"),
        (
            Kind::Vllm,
            "no_content_type",
            true,
            "Unsupported Media Type",
        ),
        (Kind::Vllm, "out_of_vocabulary", true, "Token id 5000"),
        (Kind::Vllm, "too_long", true, "maximum model length"),
        (Kind::Vllm, "worker_killed_generate", false, "EngineCore"),
        (Kind::Vllm, "worker_killed_health", false, ""),
        (Kind::Vllm, "unknown_route", true, "Not Found"),
    ] {
        let exchange = Exchange::named(kind, name);
        let refused = Refused::of(exchange.status().unwrap(), &exchange.body());
        assert_eq!(refused.client, client, "{name}: {refused}");
        assert!(refused.message.contains(what), "{name}: {refused}");
    }
}

#[test]
fn the_engines_are_known_by_their_own_answers() {
    let said = |kind, name| Exchange::named(kind, name).body();
    let sglang = Dialect::detect("/server_info", &said(Kind::Sglang, "server_info")).unwrap();
    assert_eq!(sglang, Dialect::newest(Kind::Sglang));
    assert_eq!(
        Dialect::detect("/server_info", &said(Kind::Vllm, "server_info")),
        None
    );
    let vllm = Dialect::detect("/version", &said(Kind::Vllm, "version")).unwrap();
    assert_eq!(vllm, Dialect::newest(Kind::Vllm));
    assert!(vllm.caution().is_none() && sglang.caution().is_none());
}

#[test]
fn control_replies_are_judged() {
    let [sglang, vllm] = [Kind::Sglang, Kind::Vllm].map(Dialect::newest);
    let load = Load {
        folder: "x".into(),
        format: None,
        version: Label::Number(2),
        keep_pause: false,
        flush: true,
    };
    let [from_disk] = &sglang.load_from_folder(&load)[..] else {
        panic!()
    };
    let [reload, reset, rename] = &vllm.load_from_folder(&load)[..] else {
        panic!()
    };
    let health = vllm.health_while_paused(3).unwrap();
    for (call, name, done) in [
        (from_disk, "update", true),
        (from_disk, "update_missing", false),
        (from_disk, "update_no_path", false),
        (&sglang.checksums(), "checksum", true),
        (&sglang.flush(), "flush", true),
        (&sglang.abort("a"), "abort", true),
        (&sglang.ready(), "ready", true),
        (&sglang.ready(), "pause_abort_ready", false),
        (&sglang.resume(), "pause_abort_continue", true),
        (&sglang.health_by_generation("a", 0), "generate", true),
        (
            &sglang.set_version(&Label::Number(2)),
            "update_weight_version",
            true,
        ),
        (&sglang.wake(&[]), "resume_memory", true),
        (reload, "reload", true),
        (reload, "reload_missing", false),
        (reset, "reset_prefix_cache", true),
        (rename, "update_weight_version", true),
        (&vllm.pause(PauseMode::Keep).unwrap(), "pause_keep", true),
        (&vllm.resume(), "pause_keep_resume", true),
        (&health, "pause_keep_check_health", true),
        (&vllm.checksums(), "checksum", true),
        (&vllm.health_by_generation("a", 0), "generate", true),
        (
            &vllm.health_by_generation("a", 0),
            "worker_killed_generate",
            false,
        ),
        (&vllm.sleep(false), "sleep", true),
        (&vllm.wake(&[]), "wake_up", true),
    ] {
        // An order of either engine is known by its route.
        let names = [Kind::Sglang, Kind::Vllm];
        let exchange = names.into_iter().find_map(|kind| {
            let path = folder(kind).join(format!("{name}.json"));
            let exchange = path.exists().then(|| Exchange::named(kind, name))?;
            let recorded = exchange.all["request"]["path"].as_str()?;
            let recorded = recorded.split('?').next()?;
            (recorded == call.request.path).then_some(exchange)
        });
        let exchange = exchange.unwrap_or_else(|| panic!("no {} in {name}", call.request));
        let judged = call.judge(exchange.status().unwrap(), &exchange.body());
        assert_eq!(judged.is_ok(), done, "{name}: {judged:?}");
    }
    assert_eq!(from_disk.judge, Judge::Success);
}

#[test]
fn versions_and_checksums_are_read() {
    let [sglang, vllm] = [Kind::Sglang, Kind::Vllm].map(Dialect::newest);
    let said = |kind, name| Exchange::named(kind, name).body();
    for (dialect, name, version) in [
        (&sglang, "model_info", Label::Unset),
        (&sglang, "update_model_info", Label::Number(2)),
        (&vllm, "weight_info", Label::Unset),
        (&vllm, "reload_weight_info", Label::Number(2)),
    ] {
        assert_eq!(
            dialect.read_version(&said(dialect.kind(), name)),
            Ok(version)
        );
    }
    for (dialect, digits) in [(&sglang, 16), (&vllm, 64)] {
        let sums = dialect
            .read_checksums(&said(dialect.kind(), "checksum"))
            .unwrap();
        let (rank, tensors) = sums.ranks.first_key_value().unwrap();
        assert_eq!(sums.ranks.len(), 1, "{rank}");
        assert_eq!(tensors["model.embed_tokens.weight"].len(), digits);
        assert!(tensors.len() > 10);
    }
}

#[test]
fn the_metrics_that_are_read_are_there() {
    for kind in [Kind::Sglang, Kind::Vllm] {
        // Names were recorded, for the values change.
        let names = Exchange::named(kind, "metrics").body();
        let sampled: String = names.lines().map(|name| format!("{name} 1\n")).collect();
        let gauges = Gauges::read(kind, &sampled);
        assert_eq!(gauges.running, Some(1), "{kind}");
        assert_eq!(gauges.waiting, Some(1), "{kind}");
        assert_eq!(gauges.generated_tokens, Some(1), "{kind}");
        assert_eq!(gauges.kv_usage, Some(1.0), "{kind}");
    }
}

#[test]
fn what_others_asked_is_seen() {
    let seen = |kind, name: &str| {
        let exchange = Exchange::named(kind, name);
        let request = &exchange.all["request"];
        let target = request["path"].as_str().unwrap();
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let body = request["body"].to_string();
        let method = request["method"].as_str().unwrap();
        Seen::of(kind, method, path, query, body.as_bytes())
    };
    let two = || Some(Label::Number(2));
    for (kind, name, expected) in [
        (
            Kind::Sglang,
            "pause_abort",
            Some(Seen::Pause(Some(PauseMode::Abort))),
        ),
        (
            Kind::Sglang,
            "pause_in_place",
            Some(Seen::Pause(Some(PauseMode::Keep))),
        ),
        (
            Kind::Sglang,
            "pause_retract",
            Some(Seen::Pause(Some(PauseMode::Retract))),
        ),
        (Kind::Sglang, "pause_abort_continue", Some(Seen::Continue)),
        (
            Kind::Sglang,
            "begin_weight_update",
            Some(Seen::UpdateBegins),
        ),
        (Kind::Sglang, "update", Some(Seen::Load { version: two() })),
        (Kind::Sglang, "abort_all", Some(Seen::Abort { rids: None })),
        (Kind::Sglang, "abort_nothing", None),
        (
            Kind::Sglang,
            "release_memory",
            Some(Seen::Sleep(MemoryPart::ALL.to_vec())),
        ),
        (Kind::Sglang, "generate", Some(Seen::Generate)),
        (Kind::Sglang, "completions", Some(Seen::Generate)),
        (Kind::Sglang, "model_info", None),
        (
            Kind::Vllm,
            "pause_keep",
            Some(Seen::Pause(Some(PauseMode::Keep))),
        ),
        (
            Kind::Vllm,
            "pause_wait",
            Some(Seen::Pause(Some(PauseMode::Wait))),
        ),
        (Kind::Vllm, "pause_wait_resume", Some(Seen::Continue)),
        (Kind::Vllm, "reload", Some(Seen::Load { version: None })),
        (Kind::Vllm, "rpc_check_health", None),
        (
            Kind::Vllm,
            "update_weight_version",
            Some(Seen::Renamed {
                version: Label::Number(2),
            }),
        ),
        (
            Kind::Vllm,
            "weight_transfer_start",
            Some(Seen::UpdateBegins),
        ),
        (
            Kind::Vllm,
            "sleep",
            Some(Seen::Sleep(MemoryPart::ALL.to_vec())),
        ),
        (
            Kind::Vllm,
            "wake_up",
            Some(Seen::Wake(MemoryPart::ALL.to_vec())),
        ),
        (Kind::Vllm, "generate", Some(Seen::Generate)),
    ] {
        assert_eq!(seen(kind, name), expected, "{kind} {name}");
    }
}

/// What was recorded was asked in keys that we use too.
#[test]
fn our_requests_have_the_keys_that_the_engines_took() {
    let wanted = Generate {
        rid: "a".into(),
        ids: vec![1, 5, 9, 3, 7, 11, 2],
        max_new_tokens: 80,
        temperature: 0.0,
        stop_token_ids: vec![7],
        ignore_eos: true,
        sampling_seed: Some(1),
        own: None,
        logprobs: true,
        stream: true,
    };
    for kind in [Kind::Sglang, Kind::Vllm] {
        let request = Dialect::newest(kind).generate(&wanted);
        let ours: Value = serde_json::from_slice(&request.body).unwrap();
        let mut taken = json!({});
        for exchange in Exchange::all(kind).iter().filter(|e| e.generates()) {
            assert_eq!(exchange.all["request"]["path"], request.path);
            for body in [
                &exchange.all["request"]["body"],
                exchange.asked("sampling_params"),
            ] {
                let keys = body.as_object().into_iter().flatten();
                keys.for_each(|(key, _)| taken[key] = true.into());
            }
        }
        for part in [&ours, &ours["sampling_params"]] {
            for key in part.as_object().unwrap().keys() {
                assert_eq!(taken[key], true, "{key} was never sent to {kind}");
            }
        }
    }
}
