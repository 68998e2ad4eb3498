//! From an incident to its spans.
use crate::incidents::scope;
use opentelemetry::trace::{
    SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue, StringValue};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanLinks};
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Stacks are kept up to this length: collectors refuse long attributes, and the incident in the
/// status has all of them.
const EVIDENCE_BYTES: usize = 4096;

/// Whose incidents they are.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The job's name.
    pub job: String,
    /// Names this life of the job.
    pub run: String,
    /// This machine's name.
    pub node: String,
}

/// Who sends. `OTEL_SERVICE_NAME` and `OTEL_RESOURCE_ATTRIBUTES` count too.
pub(super) fn resource(identity: &Identity) -> Resource {
    let named = std::env::var_os("OTEL_SERVICE_NAME").is_some();
    let builder = Resource::builder().with_attributes([
        KeyValue::new("service.version", env!("CARGO_PKG_VERSION")),
        KeyValue::new("service.instance.id", identity.node.clone()),
        KeyValue::new("robust.job", identity.job.clone()),
        KeyValue::new("robust.run", identity.run.clone()),
    ]);
    match named {
        true => builder.build(),
        false => builder.with_service_name("robustd").build(),
    }
}

/// The incident, its stages, and the finer ones within them.
pub(super) fn spans(incident: &v1::Incident, identity: &Identity) -> Vec<SpanData> {
    let trace = Trace::of(incident, identity);
    let verdict = UNIX_EPOCH + Duration::from_millis(incident.at_ms);
    let detect = millis(incident.detect_ms);
    let struck = verdict.checked_sub(detect).unwrap_or(verdict);
    let attached = verdict + millis(incident.restart_ms);
    let resumed = attached + millis(incident.reconnect_ms);
    // One that led to the job's end never came so far.
    let stages: &[_] = match incident.total_ms > 0.0 {
        true => &[
            ("detect", struck, verdict),
            ("restart", verdict, attached),
            ("reconnect", attached, resumed),
        ],
        false => &[("detect", struck, verdict)],
    };
    let marks = marks(incident, struck);
    let last = marks.iter().map(|&(_, _, end)| end).max();
    let (_, _, over) = stages[stages.len() - 1];
    let mut root = trace.span("incident", None, struck, over.max(last.unwrap_or(over)));
    root.attributes = attributes(incident, identity);
    root.status = match incident.outcome() {
        Some(IncidentOutcome::Recovered) => Status::Ok,
        _ => Status::error(incident.reason.clone()),
    };
    let top = root.span_context.span_id();
    let mut all = vec![root];
    for &(name, from, to) in stages {
        all.push(trace.span(name, Some(top), from, to));
    }
    for (number, (name, from, to)) in marks.into_iter().enumerate() {
        let within = stages.iter().position(|&(_, _, end)| to <= end + SLACK);
        let parent = within.map_or(top, |at| all[at + 1].span_context.span_id());
        let mut span = trace.span(name.to_owned(), Some(parent), from, to);
        span.span_context = trace.context(&format!("mark {number}"));
        all.push(span);
    }
    all
}

/// Milliseconds of a status are rounded.
const SLACK: Duration = Duration::from_micros(2);

/// The finer stages one after the other: name, begin, end.
fn marks(incident: &v1::Incident, struck: SystemTime) -> Vec<(&str, SystemTime, SystemTime)> {
    let mut at = struck;
    let mut all = Vec::new();
    for stage in &incident.stages {
        let end = at + millis(stage.ms);
        all.push((stage.name.as_str(), at, end));
        at = end;
    }
    all
}

fn attributes(i: &v1::Incident, identity: &Identity) -> Vec<KeyValue> {
    let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut all = vec![
        KeyValue::new("robust.job", identity.job.clone()),
        KeyValue::new("robust.incident.id", number(i.id)),
        KeyValue::new("robust.incident.rule", i.rule.clone()),
        KeyValue::new("robust.incident.reason", i.reason.clone()),
        KeyValue::new("robust.incident.plan", i.plan.clone()),
        KeyValue::new("robust.incident.scope", scope(&i.plan)),
        KeyValue::new("robust.incident.outcome", i.outcome.clone()),
        KeyValue::new("robust.incident.swept", number(i.swept.len() as u64)),
        KeyValue::new("robust.incident.root", i.root.clone()),
        KeyValue::new("robust.incident.under", number(i.under)),
        KeyValue::new("robust.role", i.role.clone()),
        KeyValue::new("robust.index", i64::from(i.index)),
        KeyValue::new("robust.incarnation", number(i.incarnation)),
        KeyValue::new("robust.step", number(i.step)),
    ];
    if let Some(cause) = &i.cause {
        let fingerprint = cause.fingerprint.clone();
        all.push(KeyValue::new("robust.incident.cause", fingerprint));
        let words = StringValue::from(cut(&cause.words).to_owned());
        all.push(KeyValue::new("robust.incident.cause_words", words));
        let count = i64::from(cause.count);
        all.push(KeyValue::new("robust.incident.cause_count", count));
    }
    if !i.evidence.is_empty() {
        let evidence = StringValue::from(cut(&i.evidence).to_owned());
        all.push(KeyValue::new("robust.incident.evidence", evidence));
    }
    all
}

fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(EVIDENCE_BYTES)]
}

fn millis(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or_default()
}

/// What the spans of an incident have in common.
struct Trace {
    seed: String,
    id: TraceId,
    scope: InstrumentationScope,
}

impl Trace {
    fn of(incident: &v1::Incident, identity: &Identity) -> Self {
        let seed = format!("robust incident {} {}", identity.run, incident.id);
        let scope = InstrumentationScope::builder("robustd.incidents")
            .with_version(env!("CARGO_PKG_VERSION"))
            .build();
        Self {
            id: TraceId::from_bytes(hashed(&seed)),
            seed,
            scope,
        }
    }

    fn context(&self, span: &str) -> SpanContext {
        let id = SpanId::from_bytes(hashed(&format!("{} {span}", self.seed)));
        let (flags, state) = (TraceFlags::SAMPLED, TraceState::default());
        SpanContext::new(self.id, id, flags, false, state)
    }

    fn span(
        &self,
        name: impl Into<Cow<'static, str>>,
        parent: Option<SpanId>,
        start_time: SystemTime,
        end_time: SystemTime,
    ) -> SpanData {
        let name = name.into();
        SpanData {
            span_context: self.context(&name),
            parent_span_id: parent.unwrap_or(SpanId::INVALID),
            parent_span_is_remote: false,
            span_kind: SpanKind::Internal,
            name,
            start_time,
            end_time,
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }
}

/// The first bytes of a hash: as good as random, and the same each time.
fn hashed<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [0; N];
    blake3::Hasher::new()
        .update(text.as_bytes())
        .finalize_xof()
        .fill(&mut out);
    out
}
