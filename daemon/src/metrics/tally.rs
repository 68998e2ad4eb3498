//! What the status forgets or never held.
use super::labels;
use super::sheet::Labels;
use crate::telemetry::DeviceFinding;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use robust_proto::v1;
use robust_shared::hardware::FindingKind;
use robust_shared::ids::InstanceId;
use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

/// From a crash seen at once to a silence of five minutes and a restart of as long.
const BUCKETS: [f64; 14] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
];

#[derive(Clone)]
struct Stages;

impl MetricConstructor<Histogram> for Stages {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// Counters that live as long as the daemon.
pub(super) struct Tally {
    incidents: Family<Labels, Counter>,
    stages: Family<Labels, Histogram, Stages>,
    pulled: Family<Labels, Counter>,
    findings: Family<Labels, Counter>,
    book: Mutex<Book>,
}

/// Which incidents were counted.
#[derive(Default)]
struct Book {
    last: u64,
    open: BTreeSet<u64>,
}

impl Tally {
    /// All of them, at zero.
    pub fn register(registry: &mut Registry) -> Self {
        let tally = Self {
            incidents: Family::default(),
            stages: Family::new_with_constructor(Stages),
            pulled: Family::default(),
            findings: Family::default(),
            book: Mutex::default(),
        };
        registry.register(
            "incidents",
            "Faults found, by the rule that found them and by what was restarted",
            tally.incidents.clone(),
        );
        registry.register(
            "incident_seconds",
            "How long each stage of a recovery took: detect, restart, reconnect",
            tally.stages.clone(),
        );
        registry.register(
            "pull_bytes",
            "Bytes of weights pulled and verified",
            tally.pulled.clone(),
        );
        registry.register(
            "hardware_findings",
            "What devices showed, by kind and by what it advises",
            tally.findings.clone(),
        );
        tally
    }

    /// Counts what is new among the incidents: one when it opens, its stages when they are known.
    pub fn incidents(&self, incidents: &[v1::Incident]) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        for incident in incidents {
            let Book { last, open } = &mut *book;
            if incident.id > *last {
                *last = incident.id;
                open.insert(incident.id);
                let pairs = [("rule", &*incident.rule), ("plan", scope(&incident.plan))];
                self.incidents.get_or_create(&labels(pairs)).inc();
                self.stage("detect", incident.detect_ms);
            }
            if incident.outcome != "recovering" && open.remove(&incident.id) {
                // One that led to the job's end never came so far.
                let stages = [
                    ("restart", incident.restart_ms),
                    ("reconnect", incident.reconnect_ms),
                ];
                for (name, ms) in stages.into_iter().filter(|_| incident.total_ms > 0.0) {
                    self.stage(name, ms);
                }
            }
        }
    }

    fn stage(&self, name: &str, ms: f64) {
        let labels = labels([("stage", name)]);
        self.stages.get_or_create(&labels).observe(ms / 1e3);
    }

    pub fn pulled(&self, who: InstanceId, bytes: u64) {
        let index = who.index.to_string();
        let labels = labels([("role", who.role.name()), ("index", &index)]);
        self.pulled.get_or_create(&labels).inc_by(bytes);
    }

    pub fn findings(&self, findings: &[DeviceFinding]) {
        for DeviceFinding {
            device, finding, ..
        } in findings
        {
            let labels = labels([
                ("device", &device.to_string()),
                ("kind", &kind(finding.kind)),
                ("advice", &finding.advice().to_string()),
            ]);
            self.findings.get_or_create(&labels).inc();
        }
    }
}

fn kind(kind: FindingKind) -> String {
    kind.to_string().to_lowercase().replace(' ', "_")
}

/// What a plan restarts; its sentence names instances and steps, which are no labels.
fn scope(plan: &str) -> &'static str {
    let scopes = [
        ("restart the whole task", "task"),
        ("restart the trainer gang", "gang"),
        ("restart ", "instance"),
        ("fail the job", "fail"),
    ];
    let of = |(begin, _): &&(&str, &'static str)| plan.starts_with(*begin);
    scopes.iter().find(of).map_or("other", |(_, scope)| scope)
}
