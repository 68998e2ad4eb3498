//! What is said over HTTP: requests to the built-in engine, and what engines of others answer, as streams and whole. A
//! stream is the same however the network cuts it.
#![no_main]
#![allow(missing_docs)]

use libfuzzer_sys::fuzz_target;
use robust_engine::serve::Asked;
use robust_engine::{
    Dialect, Event, Gauges, Kind, Lines, Refused, Seen, Stream, Version, check_body,
};

fuzz_target!(|bytes: &[u8]| {
    let [how, cut, rest @ ..] = bytes else {
        return;
    };
    let kind = if how & 1 == 0 {
        Kind::Sglang
    } else {
        Kind::Vllm
    };
    let text = String::from_utf8_lossy(rest);
    match (how >> 1) % 6 {
        0 => drop(Asked::read(rest)),
        1 => lines(rest, usize::from(*cut).max(1)),
        2 | 3 => stream(&Dialect::newest(kind), rest, usize::from(*cut).max(1)),
        4 => answers(kind, &text),
        _ => {
            let (path, body) = text.split_once('\n').unwrap_or((&text, ""));
            let _ = Seen::of(kind, "POST", path, "", body.as_bytes());
            if let Ok(body) = serde_json::from_str(body) {
                let _ = check_body(&body, u32::from(*cut));
            }
        }
    }
});

fn lines(bytes: &[u8], cut: usize) {
    let all = |cut: usize| {
        let mut lines = Lines::default();
        let fed = bytes.chunks(cut).filter_map(|some| lines.feed(some).ok());
        fed.flatten().collect::<Vec<_>>()
    };
    assert_eq!(all(cut), all(bytes.len().max(1)));
}

fn stream(dialect: &Dialect, bytes: &[u8], cut: usize) {
    let all = |cut: usize| {
        let mut stream = Stream::new(dialect, true);
        let mut events: Vec<Event> = Vec::new();
        for some in bytes.chunks(cut) {
            events.extend(stream.feed(some));
        }
        events.extend(stream.closed());
        format!("{events:?}")
    };
    assert_eq!(all(cut), all(bytes.len().max(1)));
    let _ = Stream::whole(dialect, true, &String::from_utf8_lossy(bytes));
}

fn answers(kind: Kind, text: &str) {
    let dialect = Dialect::newest(kind);
    let _ = Gauges::read(kind, text);
    drop(Refused::of(500, text));
    drop(dialect.read_version(text));
    drop(dialect.read_checksums(text));
    drop(Dialect::detect("/server_info", text));
    drop(Dialect::detect("/version", text));
    let _ = Version::parse(text);
}
