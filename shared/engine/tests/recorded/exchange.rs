//! One of the recordings.

use std::path::PathBuf;

use robust_engine::{Dialect, Event, Finish, Kind, Label, Span, Stream};
use serde_json::{Value, json};

pub fn folder(kind: Kind) -> PathBuf {
    let version = kind.tested()[0];
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/engines");
    PathBuf::from(folder).join(format!("{kind}-{version}"))
}

/// One exchange: request and reply.
pub struct Exchange {
    pub kind: Kind,
    pub name: String,
    pub all: Value,
}

impl Exchange {
    pub fn named(kind: Kind, name: &str) -> Self {
        let path = folder(kind).join(format!("{name}.json"));
        let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
        let all = serde_json::from_str(&text).unwrap();
        let name = name.to_owned();
        Self { kind, name, all }
    }

    pub fn all(kind: Kind) -> Vec<Self> {
        let files = std::fs::read_dir(folder(kind)).unwrap();
        let names = files.map(|file| file.unwrap().path());
        let names = names.filter(|path| path.extension().is_some_and(|e| e == "json"));
        names
            .map(|path| Self::named(kind, path.file_stem().unwrap().to_str().unwrap()))
            .collect()
    }

    pub fn asked(&self, key: &str) -> &Value {
        &self.all["request"]["body"][key]
    }

    /// None where the engine did not answer.
    pub fn status(&self) -> Option<u16> {
        self.all["reply"]["status"]
            .as_u64()
            .map(|status| status as u16)
    }

    pub fn body(&self) -> String {
        match &self.all["reply"]["body"] {
            Value::String(text) => text.clone(),
            body => body.to_string(),
        }
    }

    pub fn chunks(&self) -> Option<String> {
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

    pub fn generates(&self) -> bool {
        let path = self.all["request"]["path"].as_str().unwrap();
        path.ends_with("/generate") && self.status() == Some(200)
    }

    pub fn logprobs(&self) -> bool {
        match self.kind {
            Kind::Vllm => !self.asked("sampling_params")["logprobs"].is_null(),
            _ => self.asked("return_logprob") == true,
        }
    }

    /// What the reply says, read in pieces of so many bytes.
    pub fn read(&self, piece: usize) -> Vec<Event> {
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

pub fn tokens(events: &[Event]) -> Vec<u32> {
    let ids = events.iter().filter_map(|event| match event {
        Event::Tokens { ids, .. } => Some(ids.clone()),
        _ => None,
    });
    ids.flatten().collect()
}

pub fn end(events: &[Event]) -> (&Finish, Option<&[Span]>) {
    match events.last() {
        Some(Event::End { finish, spans }) => (finish, spans.as_deref()),
        other => panic!("{other:?}"),
    }
}

pub fn span(version: Label, start: usize, end: usize) -> Span {
    Span {
        version,
        start,
        end,
    }
}
