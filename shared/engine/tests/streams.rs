//! Streams, cut anywhere and said in every way, give the same tokens.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use robust_engine::serve::{Asked, Ending, Replying, Run};
use robust_engine::{Dialect, Event, Finish, Kind, Label, Span, Stream};
use serde_json::{Value, json};

/// What a stream said, put together.
#[derive(Debug, Default, PartialEq)]
struct Said {
    ids: Vec<u32>,
    logprobs: Vec<f32>,
    end: Option<(Finish, Option<Vec<Span>>)>,
    failed: Vec<(Option<u16>, String, bool)>,
}

fn put_together(events: Vec<Event>) -> Said {
    let mut said = Said::default();
    for event in events {
        assert!(
            said.end.is_none() && said.failed.is_empty(),
            "after the end: {event:?}"
        );
        match event {
            Event::Tokens { ids, logprobs, .. } => {
                assert_eq!(ids.len(), logprobs.len());
                said.ids.extend(ids);
                said.logprobs.extend(logprobs);
            }
            Event::End { finish, spans } => said.end = Some((finish, spans)),
            Event::Failed {
                code,
                message,
                retryable,
            } => said.failed.push((code, message, retryable)),
        }
    }
    said
}

fn hear(kind: Kind, stream: &[u8], cuts: &[usize]) -> Said {
    let mut reader = Stream::new(&Dialect::newest(kind), true);
    let (mut events, mut begin) = (Vec::new(), 0);
    for cut in cuts
        .iter()
        .map(|cut| cut % (stream.len() + 1))
        .chain([stream.len()])
    {
        if cut > begin {
            events.extend(reader.feed(&stream[begin..cut]));
            begin = cut;
        }
    }
    events.extend(reader.closed());
    put_together(events)
}

fn sse(chunks: &[Value]) -> Vec<u8> {
    let events = chunks.iter().map(|chunk| format!("data: {chunk}\n\n"));
    let mut text: String = events.collect();
    text.push_str("data: [DONE]\n\n");
    text.into_bytes()
}

/// The chunks of a reply: how many tokens each adds. The first four tokens are of version 3.
fn sglang(ids: &[u32], steps: &[usize], deltas: bool) -> Vec<Value> {
    let (mut chunks, mut had) = (Vec::new(), 0);
    for (number, step) in steps.iter().enumerate() {
        let end = (had + step).min(ids.len());
        let from = if deltas { had } else { 0 };
        let logprobs: Vec<Value> = ids[from..end]
            .iter()
            .map(|id| json!([-f64::from(*id) / 8.0, id, null]))
            .collect();
        let mut meta = json!({"id": "r", "finish_reason": null, "weight_version": "3",
            "completion_tokens": end, "output_token_logprobs": logprobs});
        if number + 1 == steps.len() {
            meta["finish_reason"] = json!({"type": "stop", "matched": 2});
            meta["weight_versions"] = versions(ids.len());
        }
        chunks.push(json!({"text": "", "output_ids": &ids[from..end], "meta_info": meta}));
        had = end;
    }
    chunks
}

fn versions(count: usize) -> Value {
    let first = count.min(4);
    json!([{"version": "default", "start": 0, "end": first},
        {"version": "3", "start": first, "end": count}])
}

fn vllm(ids: &[u32], steps: &[usize]) -> Vec<Value> {
    let (mut chunks, mut had) = (Vec::new(), 0);
    for (number, step) in steps.iter().enumerate() {
        let end = (had + step).min(ids.len());
        let content: Vec<Value> = ids[had..end]
            .iter()
            .map(|id| json!({"token_id": id, "logprob": -f64::from(*id) / 8.0, "rank": 1}))
            .collect();
        let mut choice = json!({"index": 0, "token_ids": &ids[had..end], "finish_reason": null,
            "logprobs": {"content": content}, "weight_versions": null});
        if number + 1 == steps.len() {
            choice["finish_reason"] = "stop".into();
            choice["weight_versions"] = versions(ids.len());
        }
        chunks.push(json!({"request_id": "r", "choices": [choice]}));
        had = end;
    }
    chunks
}

/// As the built-in rollout says it, through the code that it says it with.
fn robust(ids: &[u32], steps: &[usize], deltas: bool) -> Vec<Value> {
    let body = json!({"input_ids": [1], "stream": true, "return_logprob": true,
        "stream_deltas": deltas});
    let asked = Asked::read(body.to_string().as_bytes()).unwrap();
    let mut replying = Replying::new("r".into(), &asked);
    let (mut chunks, mut had) = (Vec::new(), 0);
    for (number, step) in steps.iter().enumerate() {
        let end = (had + step).min(ids.len());
        replying.push(&Run {
            ids: ids[had..end].iter().map(|id| i64::from(*id)).collect(),
            logprobs: ids[had..end].iter().map(|id| -(*id as f32) / 8.0).collect(),
            version: Some(3),
        });
        chunks.push(if number + 1 == steps.len() {
            replying.last(None, &Ending::Stop, 0.0)
        } else {
            replying.chunk(None)
        });
        had = end;
    }
    chunks
}

/// Tokens, and steps that reach them all.
fn reply() -> impl Strategy<Value = (Vec<u32>, Vec<usize>)> {
    let ids = prop::collection::vec(0u32..200, 1..40);
    (ids, prop::collection::vec(0usize..7, 0..12)).prop_map(|(ids, mut steps)| {
        steps.push(ids.len());
        (ids, steps)
    })
}

proptest! {
    #[test]
    fn any_cut_of_any_engines_stream_gives_the_same_tokens(
        (ids, steps) in reply(),
        mut cuts in prop::collection::vec(0usize..10_000, 0..8),
    ) {
        cuts.sort_unstable();
        let first = ids.len().min(4);
        let span = |version, start, end| Span { version, start, end };
        let spans = vec![
            span(Label::Unset, 0, first),
            span(Label::Number(3), first, ids.len()),
        ];
        let whole = Said {
            logprobs: ids.iter().map(|id| -(*id as f32) / 8.0).collect(),
            ids: ids.clone(),
            end: Some((Finish::Stop, Some(spans))),
            failed: Vec::new(),
        };
        for deltas in [false, true] {
            let stream = sse(&sglang(&ids, &steps, deltas));
            let heard = hear(Kind::Sglang, &stream, &cuts);
            prop_assert_eq!(&heard, &whole);
        }
        let stream = sse(&vllm(&ids, &steps));
        prop_assert_eq!(&hear(Kind::Vllm, &stream, &cuts), &whole);
        for deltas in [false, true] {
            let stream = sse(&robust(&ids, &steps, deltas));
            // A client for SGLang hears the same of it.
            for kind in [Kind::Robust, Kind::Sglang] {
                let heard = hear(kind, &stream, &cuts);
                prop_assert_eq!(&heard.ids, &ids);
                let spans = heard.end.unwrap().1.unwrap();
                prop_assert_eq!(spans, vec![span(Label::Number(3), 0, ids.len())]);
            }
        }
    }

    #[test]
    fn a_stream_that_breaks_anywhere_keeps_what_came_and_fails_once(
        (ids, steps) in reply(),
        at in 0usize..10_000,
        deltas: bool,
    ) {
        let stream = sse(&sglang(&ids, &steps, deltas));
        let stream = &stream[..at % stream.len()];
        let heard = hear(Kind::Sglang, stream, &[]);
        prop_assert!(ids.starts_with(&heard.ids));
        prop_assert_eq!(heard.failed.len(), usize::from(heard.end.is_none()));
        prop_assert!(heard.failed.iter().all(|(_, _, retryable)| *retryable));
    }

    #[test]
    fn no_bytes_break_the_reader(
        bytes in prop::collection::vec(any::<u8>(), 0..200),
        json in "data: [\\[\\]{}\":,a-z0-9 ]{0,40}\n",
    ) {
        for kind in Kind::ALL {
            let dialect = Dialect::newest(kind);
            let mut stream = Stream::new(&dialect, true);
            stream.feed(&bytes);
            stream.feed(json.as_bytes());
            stream.closed();
            Stream::whole(&dialect, true, &json);
        }
    }
}

fn heard(kind: Kind, chunks: &[Value]) -> Said {
    hear(kind, &sse(chunks), &[])
}

#[test]
fn an_aborted_stream_of_deltas_that_repeats_its_last_token_gives_it_once() {
    // SGLang 0.5.23 ends one so: the last token alone, the logprobs of all.
    let mut chunks = sglang(&[5, 6, 7], &[2, 1, 0], true);
    let abort = json!({"output_ids": [7], "meta_info": {"completion_tokens": 3,
        "weight_version": "3", "output_token_logprobs": [[-0.1, 5, null], [-0.1, 6, null],
        [-0.1, 7, null]], "finish_reason": {"type": "abort", "message": "Aborted",
        "status_code": null}}});
    *chunks.last_mut().unwrap() = abort;
    let heard = heard(Kind::Sglang, &chunks);
    assert_eq!(heard.ids, [5, 6, 7]);
    let Some((Finish::Abort(why), None)) = heard.end else {
        panic!("{heard:?}")
    };
    assert_eq!((why.message.as_str(), why.client), ("Aborted", false));
}

#[test]
fn an_abort_says_whether_the_request_is_to_blame() {
    let end = |status| {
        let finish = json!({"type": "abort", "message": "m", "status_code": status});
        let meta = json!({"completion_tokens": 0, "finish_reason": finish});
        let heard = heard(
            Kind::Sglang,
            &[json!({"output_ids": [], "meta_info": meta})],
        );
        match heard.end {
            Some((Finish::Abort(why), _)) => why.client,
            other => panic!("{other:?}"),
        }
    };
    assert!(end(Some(400)));
    assert!(!end(Some(503)));
    assert!(!end(None));
    let aborted = json!({"choices": [{"token_ids": [], "finish_reason": "abort"}]});
    let heard = heard(Kind::Vllm, &[aborted]);
    assert!(matches!(heard.end, Some((Finish::Abort(_), None))));
}

#[test]
fn an_error_within_a_stream_is_judged_by_its_code() {
    for (error, expected) in [
        (
            json!({"message": "too long", "type": "invalid_request_error", "code": 400,
                "retryable": false}),
            (Some(400), "too long".to_owned(), false),
        ),
        (
            json!({"message": "gone", "type": "InternalServerError", "param": null, "code": 500}),
            (Some(500), "gone".to_owned(), true),
        ),
        (
            json!({"message": "later", "code": 429}),
            (Some(429), "later".to_owned(), true),
        ),
        (json!("what"), (None, "what".to_owned(), true)),
    ] {
        for kind in Kind::ALL {
            let heard = heard(kind, &[json!({"error": error})]);
            assert_eq!(heard.failed, std::slice::from_ref(&expected));
        }
    }
}

#[test]
fn chunks_that_contradict_themselves_end_the_stream() {
    let chunk = |ids: Value, total: u64, logprobs: Value| {
        json!({"output_ids": ids, "meta_info": {"completion_tokens": total,
            "output_token_logprobs": logprobs}})
    };
    let first = chunk(json!([5]), 1, json!([[-0.5, 5, null]]));
    for (second, why) in [
        (chunk(json!([6]), 2, json!([])), "0 logprobs for 1 tokens"),
        (
            chunk(json!([6]), 2, json!([[-0.5, 9, null]])),
            "of other tokens",
        ),
        (
            chunk(json!([6]), 7, json!([[-0.5, 6, null]])),
            "a chunk has 1 tokens and counts 7 where 1 had come",
        ),
        (
            chunk(json!([]), 0, json!([])),
            "that there are 0 tokens where 1",
        ),
        // What was said before is another token now.
        (
            chunk(json!([4, 6]), 2, json!([[-0.5, 4, null], [-0.5, 6, null]])),
            "a chunk has 2 tokens",
        ),
        (json!("?"), "unreadable"),
    ] {
        let heard = heard(Kind::Sglang, &[first.clone(), second]);
        assert_eq!(heard.ids, [5]);
        let (_, message, retryable) = &heard.failed[0];
        assert!(*retryable, "{message}");
        assert!(message.contains(why), "{message}, not {why}");
    }
}

#[test]
fn spans_that_leave_tokens_out_are_not_believed() {
    for spans in [
        json!([{"version": "1", "start": 0, "end": 1}]),
        json!([{"version": "1", "start": 1, "end": 2}]),
        json!([{"version": "1", "start": 0, "end": 1}, {"version": "2", "start": 0, "end": 2}]),
        json!([{"version": "1", "start": 0, "end": 3}]),
    ] {
        let choice = json!({"token_ids": [5, 6], "finish_reason": "stop", "weight_versions": spans,
            "logprobs": {"content": [{"token_id": 5, "logprob": -1.0},
                {"token_id": 6, "logprob": -1.0}]}});
        let heard = heard(Kind::Vllm, &[json!({"choices": [choice]})]);
        assert!(heard.failed[0].1.contains("spans"), "{heard:?}");
    }
}

#[test]
fn a_chunk_that_only_counts_says_nothing() {
    let mut chunks = vllm(&[5, 6], &[1, 1]);
    chunks.insert(1, json!({"choices": [], "usage": {"completion_tokens": 1}}));
    assert_eq!(heard(Kind::Vllm, &chunks).ids, [5, 6]);
}
