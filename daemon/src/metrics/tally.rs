//! What the status forgets or never held.
use super::labels;
use super::sheet::Labels;
use crate::incidents::{IncidentBook, News, scope};
use crate::telemetry::DeviceFinding;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::{Family, MetricConstructor};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use robust_proto::v1;
use robust_shared::core::IncidentOutcome;
use robust_shared::hardware::FindingKind;
use robust_shared::ids::InstanceId;
use std::sync::{Mutex, PoisonError};

/// From a crash seen at once to a silence of five minutes and a restart of as long.
const BUCKETS: [f64; 14] = [
    0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0,
];

/// Those of a recovery; like what a plan restarts and how it ends they are there from the begin, so
/// that the first one is an increase.
const STAGES: [&str; 3] = ["detect", "restart", "reconnect"];
const PLANS: [&str; 5] = ["instance", "gang", "task", "fail", "other"];
const OUTCOMES: [IncidentOutcome; 2] = [IncidentOutcome::Recovered, IncidentOutcome::Failed];

#[derive(Clone)]
struct Stages;

impl MetricConstructor<Histogram> for Stages {
    fn new_metric(&self) -> Histogram {
        Histogram::new(BUCKETS)
    }
}

/// What became of an incident's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traced {
    /// The collector has it.
    Sent,
    /// The collector did not take it.
    Failed,
    /// Too many were waiting.
    Dropped,
}

impl Traced {
    const ALL: [Self; 3] = [Self::Sent, Self::Failed, Self::Dropped];

    fn word(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Dropped => "dropped",
        }
    }
}

/// What became of a document for the webhook.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hooked {
    /// The receiver has it.
    Sent,
    /// The receiver did not take it, and is sent it again.
    Retried,
    /// It is not sent any more, or never was.
    Dropped,
}

impl Hooked {
    const ALL: [Self; 3] = [Self::Sent, Self::Retried, Self::Dropped];

    fn word(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Retried => "retried",
            Self::Dropped => "dropped",
        }
    }
}

/// Counters that live as long as the daemon.
#[derive(Default)]
pub(super) struct Tally {
    incidents: Family<Labels, Counter>,
    recoveries: Family<Labels, Counter>,
    stages: Stage,
    pulled: Family<Labels, Counter>,
    findings: Family<Labels, Counter>,
    traces: Family<Labels, Counter>,
    webhook: Family<Labels, Counter>,
    book: Mutex<IncidentBook>,
}

struct Stage(Family<Labels, Histogram, Stages>);

impl Default for Stage {
    fn default() -> Self {
        Self(Family::new_with_constructor(Stages))
    }
}

impl Tally {
    /// All of them, at zero.
    pub fn register(registry: &mut Registry) -> Self {
        let tally = Self::default();
        registry.register(
            "incidents",
            "Faults found, by the role that failed, the rule that found it and what was restarted",
            tally.incidents.clone(),
        );
        registry.register(
            "recoveries",
            "Incidents that are over, by what was restarted and how it ended",
            tally.recoveries.clone(),
        );
        for plan in PLANS {
            for outcome in OUTCOMES {
                tally.recovery(plan, outcome.word());
            }
        }
        for name in STAGES {
            drop(tally.stages.0.get_or_create(&labels([("stage", name)])));
        }
        registry.register(
            "incident_seconds",
            "How long each stage of a recovery took: detect, restart, reconnect",
            tally.stages.0.clone(),
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
        registry.register(
            "traces",
            "Incidents whose trace the collector took, did not take, or was never offered. Normal: only sent",
            tally.traces.clone(),
        );
        registry.register(
            "webhook",
            "Documents that the webhook's receiver took, posts that were tried again, and documents that were dropped. Normal: only sent",
            tally.webhook.clone(),
        );
        tally
    }

    /// Counts what is new among the incidents: one when it opens, its stages when they are known.
    pub fn incidents(&self, incidents: &[v1::Incident]) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        book.read(incidents, |news, incident| match news {
            News::Opened => self.opened(incident),
            News::Over => self.over(incident),
        });
    }

    fn opened(&self, incident: &v1::Incident) {
        let pairs = [
            ("role", &*incident.role),
            ("rule", &*incident.rule),
            ("plan", scope(&incident.plan)),
        ];
        self.incidents.get_or_create(&labels(pairs)).inc();
        self.stage("detect", incident.detect_ms);
    }

    fn over(&self, incident: &v1::Incident) {
        self.recovery(scope(&incident.plan), &incident.outcome)
            .inc();
        // One that led to the job's end never came so far.
        let stages = [
            ("restart", incident.restart_ms),
            ("reconnect", incident.reconnect_ms),
        ];
        for (name, ms) in stages.into_iter().filter(|_| incident.total_ms > 0.0) {
            self.stage(name, ms);
        }
    }

    fn recovery(&self, plan: &str, outcome: &str) -> Counter {
        let labels = labels([("plan", plan), ("outcome", outcome)]);
        self.recoveries.get_or_create(&labels).clone()
    }

    fn stage(&self, name: &str, ms: f64) {
        let labels = labels([("stage", name)]);
        self.stages.0.get_or_create(&labels).observe(ms / 1e3);
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

    /// Shows the counters of traces, which only a daemon with a collector has.
    pub fn traces(&self) {
        for what in Traced::ALL {
            self.traced(what, 0);
        }
    }

    pub fn traced(&self, what: Traced, count: u64) {
        let labels = labels([("result", what.word())]);
        self.traces.get_or_create(&labels).inc_by(count);
    }

    /// Shows the counters of the webhook, which only a daemon with a receiver has.
    pub fn webhook(&self) {
        for what in Hooked::ALL {
            self.hooked(what, 0);
        }
    }

    pub fn hooked(&self, what: Hooked, count: u64) {
        let labels = labels([("result", what.word())]);
        self.webhook.get_or_create(&labels).inc_by(count);
    }
}

fn kind(kind: FindingKind) -> String {
    kind.to_string().to_lowercase().replace(' ', "_")
}
