//! What engines said when they were asked for tokens.

use robust_engine::{Dialect, Event, Finish, Kind, Label};
use serde_json::Value;

use super::exchange::{Exchange, end, span, tokens};

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
