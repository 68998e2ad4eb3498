//! Recorded exchanges: played against the fake engine, and their replies' shapes held against its
//! own.

use super::Fake;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Keys whose value may be missing or of any shape: the fake has no cache of prompts, and tokens'
/// texts are keys.
const FREE: [&str; 2] = ["cached_tokens_details", "top_logprobs"];
/// How long a request must hang to count as one that does.
const HANGS: Duration = Duration::from_millis(400);

/// What a client saw: status, type, body or chunks; or that nothing came, or that it broke.
#[derive(Debug, Default)]
pub struct Seen {
    pub status: Option<u16>,
    pub kind: Option<String>,
    pub body: String,
    pub chunks: Vec<String>,
    pub broken: bool,
}

/// The recordings of one engine, and a fake to play them to.
pub struct Session<'a> {
    folder: PathBuf,
    fake: &'a Fake,
    running: BTreeMap<String, tokio::task::JoinHandle<Seen>>,
}

impl<'a> Session<'a> {
    pub fn new(engine: &str, fake: &'a Fake) -> Self {
        Self {
            folder: folder(engine),
            fake,
            running: BTreeMap::new(),
        }
    }

    /// Plays steps: `NAME` asks and compares, `+NAME` begins a request that goes on, `-NAME`
    /// compares its end, `!POST /path {json}` only asks.
    pub async fn play(&mut self, steps: &[&str]) {
        for step in steps {
            if let Some(name) = step.strip_prefix('+') {
                self.begin(name).await;
            } else if let Some(name) = step.strip_prefix('-') {
                let seen = self.running.remove(name).unwrap().await.unwrap();
                compare(name, &self.read(name)["reply"], &seen);
            } else if let Some(quiet) = step.strip_prefix("!POST ") {
                let (path, body) = quiet
                    .split_once(char::is_whitespace)
                    .unwrap_or((quiet, "{}"));
                let body = body.replace("{models}", &self.fake.folder.path().display().to_string());
                let body: Value = serde_json::from_str(&body).unwrap();
                assert_eq!(self.fake.post(path, &body).await.status(), 200, "{step}");
            } else {
                self.one(step, &json!({})).await;
            }
        }
    }

    /// Plays one exchange, some keys of its body replaced.
    pub async fn one(&self, name: &str, instead: &Value) -> Seen {
        let recorded = self.read(name);
        let request = self.request(&recorded["request"], instead);
        let hangs = !recorded["reply"]["timeout_s"].is_null();
        let seen = if hangs {
            let in_time = tokio::time::timeout(HANGS, exchange(request)).await;
            assert!(
                in_time.is_err(),
                "{name}: a reply that must not come: {in_time:?}"
            );
            return Seen::default();
        } else {
            tokio::time::timeout(super::DEADLINE, exchange(request))
                .await
                .expect(name)
        };
        compare(name, &recorded["reply"], &seen);
        seen
    }

    async fn begin(&mut self, name: &str) {
        let before = self.fake_tokens().await;
        let request = self.request(&self.read(name)["request"], &json!({}));
        self.running
            .insert(name.to_owned(), tokio::spawn(exchange(request)));
        super::until("ten tokens", async || {
            self.fake_tokens().await >= before + 10.0
        })
        .await;
    }

    async fn fake_tokens(&self) -> f64 {
        let page = self.fake.get("/metrics").await.text().await.unwrap();
        let line = page
            .lines()
            .find(|l| l.contains("generation_tokens_total{"))
            .unwrap();
        line.rsplit(' ').next().unwrap().parse().unwrap()
    }

    fn read(&self, name: &str) -> Value {
        let path = self.folder.join(format!("{name}.json"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        serde_json::from_str(
            &text.replace("{models}", &self.fake.folder.path().display().to_string()),
        )
        .unwrap()
    }

    fn request(&self, recorded: &Value, instead: &Value) -> reqwest::RequestBuilder {
        let method = recorded["method"].as_str().unwrap().parse().unwrap();
        let url = format!("{}{}", self.fake.url, recorded["path"].as_str().unwrap());
        let mut request = reqwest::Client::new().request(method, url);
        for (name, value) in recorded["headers"].as_object().unwrap() {
            request = request.header(name, value.as_str().unwrap());
        }
        match &recorded["body"] {
            Value::Null => request,
            Value::String(text) => request.body(text.clone()),
            body => {
                let mut body = body.clone();
                merge(&mut body, instead);
                request.body(body.to_string())
            }
        }
    }
}

/// Where an engine's recordings are.
pub fn folder(engine: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../../fixtures/engines")
        .join(engine)
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().into_iter().flatten() {
        match (into.get_mut(key), value) {
            (Some(old @ Value::Object(_)), Value::Object(_)) => merge(old, value),
            _ => into[key] = value.clone(),
        }
    }
}

async fn exchange(request: reqwest::RequestBuilder) -> Seen {
    let mut seen = Seen::default();
    let Ok(mut reply) = request.send().await else {
        seen.broken = true;
        return seen;
    };
    seen.status = Some(reply.status().as_u16());
    let kind = reply
        .headers()
        .get("content-type")
        .map(|kind| kind.to_str().unwrap().to_owned());
    seen.kind = kind;
    let mut text = Vec::new();
    loop {
        match reply.chunk().await {
            Ok(Some(bytes)) => text.extend_from_slice(&bytes),
            Ok(None) => break,
            Err(_) => {
                seen.broken = true;
                break;
            }
        }
    }
    seen.body = String::from_utf8(text).unwrap();
    if seen
        .kind
        .as_deref()
        .is_some_and(|kind| kind.starts_with("text/event-stream"))
    {
        let lines = seen.body.lines().filter(|line| !line.is_empty());
        seen.chunks = lines.map(str::to_owned).collect();
    }
    seen
}

/// Holds what was seen against a recorded reply.
fn compare(name: &str, recorded: &Value, seen: &Seen) {
    assert_eq!(
        recorded["status"].as_u64(),
        seen.status.map(u64::from),
        "{name}: {seen:?}"
    );
    assert_eq!(
        recorded["headers"]["content-type"].as_str(),
        seen.kind.as_deref(),
        "{name}: {seen:?}"
    );
    assert_eq!(
        recorded["broken"].is_string(),
        seen.broken,
        "{name}: whether it breaks: {seen:?}"
    );
    if seen.status.is_none() {
        return;
    }
    let Some(chunks) = recorded["chunks"].as_array() else {
        if recorded["body"].is_string() && name == "metrics" {
            return names(recorded["body"].as_str().unwrap(), &seen.body);
        }
        let body = serde_json::from_str(&seen.body).unwrap_or_else(|_| json!(seen.body));
        return same(name, &recorded["body"], &body);
    };
    let old: Vec<_> = chunks
        .iter()
        .map(|chunk| data(chunk.as_str().unwrap()))
        .collect();
    let new: Vec<_> = seen.chunks.iter().map(|chunk| data(chunk)).collect();
    assert_eq!(
        old.last() == Some(&json!("[DONE]")),
        new.last() == Some(&json!("[DONE]")),
        "{name}: {seen:?}"
    );
    let (old, new): (Vec<_>, Vec<_>) = (data_only(&old), data_only(&new));
    same(
        &format!("{name}, first chunk"),
        old.first().unwrap(),
        new.first().unwrap(),
    );
    same(
        &format!("{name}, last chunk"),
        old.last().unwrap(),
        new.last().unwrap(),
    );
    if let ([_, old, _, ..], [_, new, _, ..]) = (&old[..], &new[..]) {
        same(&format!("{name}, second chunk"), old, new);
    }
}

fn data(line: &str) -> Value {
    let data = line.strip_prefix("data: ").unwrap();
    serde_json::from_str(data).unwrap_or_else(|_| json!(data))
}

fn data_only(chunks: &[Value]) -> Vec<Value> {
    chunks
        .iter()
        .filter(|chunk| chunk.is_object())
        .cloned()
        .collect()
}

fn names(recorded: &str, seen: &str) {
    let series = seen.lines().filter(|line| !line.starts_with('#'));
    for name in series.map(|line| line.split('{').next().unwrap()) {
        assert!(
            recorded.lines().any(|line| line == name),
            "the real engine has no series {name}"
        );
    }
}

fn same(name: &str, recorded: &Value, seen: &Value) {
    let (old, new) = (shape(recorded), shape(seen));
    assert!(fits(&old, &new), "{name}\nrecorded {old}\nseen     {new}");
}

/// Types in the place of values; a list is as its first item.
fn shape(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(key, _)| !FREE.contains(&key.as_str()));
            Value::Object(
                kept.map(|(k, v)| (k.clone(), shape(v)))
                    .collect::<Map<_, _>>(),
            )
        }
        Value::Array(all) => json!(all.iter().take(1).map(shape).collect::<Vec<_>>()),
        Value::Null => Value::Null,
        Value::Bool(_) => json!("bool"),
        Value::Number(_) => json!("number"),
        Value::String(_) => json!("string"),
    }
}

/// Whether shapes are the same; an empty list is like any.
fn fits(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(k, v)| b.get(k).is_some_and(|w| fits(v, w)))
        }
        (Value::Array(a), Value::Array(b)) => a.iter().zip(b).all(|(v, w)| fits(v, w)),
        _ => old == new,
    }
}
