//! Exchanges recorded from the real engines, read as they were said.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::PathBuf;

use robust_engine::{
    Dialect, Event, Finish, Gauges, Generate, Judge, Kind, Label, Load, PauseMode, Refused, Seen,
    Span, Stream,
};
use serde_json::{Value, json};

fn folder(kind: Kind) -> PathBuf {
    let version = kind.tested()[0];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/engines");
    PathBuf::from(folder).join(format!("{kind}-{version}"))
}

/// One exchange: request and reply.
struct Exchange {
    kind: Kind,
    name: String,
    all: Value,
}

impl Exchange {
    fn named(kind: Kind, name: &str) -> Self {
        let path = folder(kind).join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let all = serde_json::from_str(&text).unwrap();
        let name = name.to_owned();
        Self { kind, name, all }
    }

    fn all(kind: Kind) -> Vec<Self> {
        let files = std::fs::read_dir(folder(kind)).unwrap();
        let names = files.map(|file| file.unwrap().path());
        let names = names.filter(|path| path.extension().is_some_and(|e| e == "json"));
        names
            .map(|path| Self::named(kind, path.file_stem().unwrap().to_str().unwrap()))
            .collect()
    }

    fn asked(&self, key: &str) -> &Value {
        &self.all["request"]["body"][key]
    }

    /// None where the engine did not answer.
    fn status(&self) -> Option<u16> {
        self.all["reply"]["status"]
            .as_u64()
            .map(|status| status as u16)
    }

    fn body(&self) -> String {
        match &self.all["reply"]["body"] {
            Value::String(text) => text.clone(),
            body => body.to_string(),
        }
    }

    fn chunks(&self) -> Option<String> {
        let chunks = self.all["reply"]["chunks"].as_array()?;
        let mut chunks: Vec<String> = chunks
            .iter()
            .map(|chunk| chunk.as_str().unwrap().to_owned())
            .collect();
        if let Some(after) = self.all["reply"]["left_out"]["after"].as_u64() {
            let after = after as usize;
            let stand_in = self.stand_in(&chunks, after);
            chunks.splice(after..after, stand_in);
        }
        // Each was recorded without the empty line after it.
        let chunks = chunks.iter().map(|chunk| format!("{chunk}\n\n"));
        Some(chunks.collect())
    }

    /// One chunk for those that were left out of a long stream of deltas, as many tokens long as
    /// the rest of the stream says; what repeats everything needs none.
    fn stand_in(&self, chunks: &[String], after: usize) -> Option<String> {
        let parse = |chunk: &String| {
            let data = chunk.strip_prefix("data: ").unwrap();
            serde_json::from_str(data).unwrap_or(Value::Null)
        };
        let said: Vec<Value> = chunks.iter().map(parse).collect();
        let spans = said.iter().find_map(|chunk| {
            let versions = [
                &chunk["meta_info"]["weight_versions"],
                &chunk["choices"][0]["weight_versions"],
            ];
            versions
                .into_iter()
                .find_map(|v| v.as_array()?.last().cloned())
        });
        let count = |list: &Value| list.as_array().map_or(0, Vec::len);
        let ids = |chunk: &Value| match self.kind {
            Kind::Vllm => count(&chunk["choices"][0]["token_ids"]),
            _ => count(&chunk["output_ids"]),
        };
        let had: usize = said[..after].iter().map(ids).sum();
        let later: usize = said[after..].iter().map(ids).sum();
        let deltas = self.kind == Kind::Vllm || self.name.starts_with("incremental_");
        let total = spans.filter(|_| deltas)?["end"].as_u64()? as usize;
        let missing = total - had - later;
        let zeros = vec![0; missing];
        Some(match self.kind {
            Kind::Vllm => {
                let entry = json!({"token_id": 0, "logprob": -1.0});
                let content = vec![entry; missing];
                let choice = json!({"token_ids": zeros, "logprobs": {"content": content}});
                format!("data: {}", json!({"choices": [choice]}))
            }
            _ => {
                let logprobs = vec![json!([-1.0, 0, null]); missing];
                let meta = json!({"completion_tokens": had + missing, "weight_version": "1",
                    "output_token_logprobs": logprobs});
                format!("data: {}", json!({"output_ids": zeros, "meta_info": meta}))
            }
        })
    }

    fn generates(&self) -> bool {
        let path = self.all["request"]["path"].as_str().unwrap();
        path.ends_with("/generate") && self.status() == Some(200)
    }

    fn logprobs(&self) -> bool {
        match self.kind {
            Kind::Vllm => !self.asked("sampling_params")["logprobs"].is_null(),
            _ => self.asked("return_logprob") == true,
        }
    }

    /// What the reply says, read in pieces of so many bytes.
    fn read(&self, piece: usize) -> Vec<Event> {
        let dialect = Dialect::newest(self.kind);
        let Some(chunks) = self.chunks() else {
            return Stream::whole(&dialect, self.logprobs(), &self.body());
        };
        let mut stream = Stream::new(&dialect, self.logprobs());
        let parts = chunks.as_bytes().chunks(piece);
        let mut events: Vec<Event> = parts.flat_map(|part| stream.feed(part)).collect();
        events.extend(stream.closed());
        events
    }
}

fn tokens(events: &[Event]) -> Vec<u32> {
    let ids = events.iter().filter_map(|event| match event {
        Event::Tokens { ids, .. } => Some(ids.clone()),
        _ => None,
    });
    ids.flatten().collect()
}

fn end(events: &[Event]) -> (&Finish, Option<&[Span]>) {
    match events.last() {
        Some(Event::End { finish, spans }) => (finish, spans.as_deref()),
        other => panic!("{other:?}"),
    }
}

fn span(version: Label, start: usize, end: usize) -> Span {
    Span {
        version,
        start,
        end,
    }
}

#[test]
fn every_recorded_reply_to_generate_ends_once_and_says_the_same_however_it_is_cut() {
    let mut read = 0;
    for kind in [Kind::Sglang, Kind::Vllm] {
        for exchange in Exchange::all(kind).into_iter().filter(Exchange::generates) {
            if exchange.name == "generate_batch" {
                // Prompts go one by one.
                continue;
            }
            let events = exchange.read(usize::MAX);
            for piece in [1, 7, 100] {
                assert_eq!(exchange.read(piece), events, "{} by {piece}", exchange.name);
            }
            let last = events.last().unwrap();
            let finals = |event: &&Event| !matches!(event, Event::Tokens { .. });
            assert_eq!(events.iter().filter(finals).count(), 1, "{}", exchange.name);
            assert!(finals(&last), "{}", exchange.name);
            // Others ended because a process of the engine was killed, or were refused.
            let broken = [
                "killed",
                "out_of_vocabulary",
                "too_long_stream",
                "bad_sampling",
            ];
            let broken = broken.iter().any(|part| exchange.name.contains(part));
            let ended = matches!(last, Event::End { .. });
            assert!(ended || broken, "{}: {last:?}", exchange.name);
            if let Event::End { spans, .. } = last {
                let spans = spans
                    .as_ref()
                    .unwrap_or_else(|| panic!("{}", exchange.name));
                let total = spans.last().unwrap().end;
                assert_eq!(tokens(&events).len(), total, "{}", exchange.name);
            }
            read += 1;
        }
    }
    assert!(read > 40, "only {read} replies were found");
}

#[test]
fn whole_cumulative_and_incremental_replies_have_the_same_tokens() {
    let ids = |kind, name| tokens(&Exchange::named(kind, name).read(64));
    let whole = ids(Kind::Sglang, "generate");
    assert_eq!(whole, [55, 73, 3, 66, 90, 66]);
    for name in ["generate_stream", "generate_no_logprobs_stream"] {
        assert_eq!(ids(Kind::Sglang, name), whole, "{name}");
    }
    let stopped = ids(Kind::Sglang, "generate_stop_token_stream");
    assert!(whole.starts_with(&stopped));
    for name in ["generate", "generate_stream", "generate_stream_usage"] {
        assert_eq!(ids(Kind::Vllm, name), whole, "{name}");
    }
    let incremental = Exchange::named(Kind::Sglang, "incremental_generate_stream");
    let incremental = tokens(&incremental.read(64));
    assert_eq!(incremental.len(), whole.len());
}

#[test]
fn an_update_under_way_is_told_exactly_by_the_last_chunk() {
    for (kind, name) in [
        (Kind::Sglang, "update_running"),
        (Kind::Sglang, "incremental_update_running"),
        (Kind::Vllm, "reload_running"),
    ] {
        let exchange = Exchange::named(kind, name);
        let events = exchange.read(1000);
        let (finish, spans) = end(&events);
        assert_eq!(finish, &Finish::Length);
        let [before, after] = spans.unwrap() else {
            panic!("{name}: {spans:?}")
        };
        assert_eq!((&before.version, before.start), (&Label::Unset, 0));
        assert_eq!(
            (&after.version, after.start),
            (&Label::Number(2), before.end)
        );
        assert_eq!(after.end, tokens(&events).len(), "{name}");
        assert!(before.end > 0 && after.end > after.start, "{name}");
    }
}

#[test]
fn an_abort_ends_a_reply_with_the_tokens_so_far() {
    for (kind, name) in [
        (Kind::Vllm, "abort_running"),
        (Kind::Vllm, "abort_all_running"),
        (Kind::Vllm, "pause_abort_running"),
        (Kind::Sglang, "pause_abort_running"),
        (Kind::Sglang, "abort_running"),
    ] {
        let events = Exchange::named(kind, name).read(1000);
        let (finish, spans) = end(&events);
        let Finish::Abort(why) = finish else {
            panic!("{name}: {finish:?}")
        };
        assert!(!why.client, "{name}: {why}");
        let count = tokens(&events).len();
        assert!(count > 0, "{name}");
        assert_eq!(spans.unwrap(), [span(Label::Unset, 0, count)], "{name}");
    }
}

#[test]
fn our_own_abort_names_a_request_as_vllm_does() {
    let running = Exchange::named(Kind::Vllm, "abort_running");
    let rid = running.asked("request_id").as_str().unwrap();
    let ours = Dialect::newest(Kind::Vllm).abort(rid).request;
    let ours: Value = serde_json::from_slice(&ours.body).unwrap();
    let effective = Exchange::named(Kind::Vllm, "abort");
    assert_eq!(&ours["request_ids"], effective.asked("request_ids"));
}

#[test]
fn errors_within_a_stream_are_the_requests_fault_or_the_engines() {
    for (kind, name, client, what) in [
        (
            Kind::Sglang,
            "bad_sampling_value_stream",
            true,
            "temperature",
        ),
        (Kind::Sglang, "too_long_stream", true, "context length"),
        (Kind::Vllm, "too_long_stream", true, "maximum model length"),
        (Kind::Vllm, "out_of_vocabulary_stream", true, "5000"),
        (Kind::Vllm, "worker_killed_running", false, "EngineCore"),
    ] {
        let events = Exchange::named(kind, name).read(50);
        let Some(Event::Failed {
            message, retryable, ..
        }) = events.last()
        else {
            panic!("{name}: {events:?}")
        };
        assert!(message.contains(what), "{name}: {message}");
        assert_eq!(*retryable, !client, "{name}");
    }
    // Killed beside it, and nothing was said.
    let cut = Exchange::named(Kind::Sglang, "out_of_vocabulary_running").read(999);
    assert!(!tokens(&cut).is_empty());
    assert!(matches!(
        cut.last(),
        Some(Event::Failed {
            retryable: true,
            ..
        })
    ));
}

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
        (Kind::Sglang, "release_memory", Some(Seen::Sleep)),
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
        (Kind::Vllm, "sleep", Some(Seen::Sleep)),
        (Kind::Vllm, "wake_up", Some(Seen::Wake)),
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
