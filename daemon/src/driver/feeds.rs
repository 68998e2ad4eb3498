//! What operators see of the driver: status and events.
use super::alarms::{Alarm, Alarms};
use super::gauges::Gauges;
use super::pulled::Pulls;
use super::recent::RecentPhases;
use super::served::Served;
use super::status::{Frame, step_line};
use crate::metrics::Metrics;
use crate::store::Store;
use crate::traces::Traces;
use crate::webhook::Webhook;
use robust_proto::v1;
use robust_shared::core::{Event, Severity, View};
use robust_shared::ids::Step;
use robust_shared::time::Time;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::{broadcast, watch};

/// Events a slow reader may be behind before it is sent back to the store.
const EVENTS_BUFFERED: usize = 256;

/// Where status and events go.
pub struct Feeds {
    frame: Frame,
    status: watch::Sender<Arc<v1::Status>>,
    events: broadcast::Sender<(u64, Event)>,
    rules: watch::Sender<Arc<v1::Rules>>,
    phases: RecentPhases,
    metrics: Arc<Metrics>,
    traces: Option<Traces>,
    webhook: Option<Webhook>,
    alarms: Mutex<Alarms>,
    store: Store,
    durable: (Option<v1::ReplicaStatus>, Option<v1::RemoteStatus>),
    services: Vec<v1::ServiceStatus>,
    spares: Vec<v1::SpareStatus>,
    last_step: Option<v1::StepLine>,
    controllers: Option<watch::Receiver<v1::Controllers>>,
}

/// The last committed step as it is stored, of a job that began then (Unix ms): the first step took since that. What
/// cannot be read is not shown; whoever needs it meets the error.
fn last_step(store: &Store, started_ms: u64) -> Option<v1::StepLine> {
    let (_, last) = store.extent().ok()??;
    let step = store.step(last).ok()??;
    let before = store.step(Step(last.0.saturating_sub(1))).ok().flatten();
    let before_ms = before.map_or(started_ms, |before| before.at.millis());
    let seconds = step.at.millis().saturating_sub(before_ms) as f64 / 1e3;
    Some(step_line(last, step.at, &step.metrics, seconds))
}

impl Feeds {
    /// Feeds of a job that is starting, with the progress it had made before.
    pub fn new(
        frame: Frame,
        rules: v1::Rules,
        store: Store,
        now: Time,
        before: Option<v1::Status>,
    ) -> Self {
        let mut first = before.unwrap_or_else(|| frame.starting(now, ""));
        first.last_step = last_step(&store, first.started_ms);
        // The one before may have been served elsewhere.
        frame.router().clone_into(&mut first.router);
        let (status, _) = watch::channel(Arc::new(first));
        let (events, _) = broadcast::channel(EVENTS_BUFFERED);
        let (rules, _) = watch::channel(Arc::new(rules));
        let metrics = Arc::new(Metrics::new(frame.node()));
        metrics.status(&status.borrow());
        let last_step = status.borrow().last_step;
        Self {
            frame,
            status,
            events,
            rules,
            phases: RecentPhases::default(),
            metrics,
            traces: None,
            webhook: None,
            alarms: Mutex::default(),
            store,
            durable: (None, None),
            services: Vec::new(),
            spares: Vec::new(),
            last_step,
            controllers: None,
        }
    }

    /// Sends a trace of every incident that ends from now on.
    pub fn traced_by(&mut self, traces: Traces) {
        traces.status(&self.status.borrow());
        self.traces = Some(traces);
    }

    /// Tells a receiver of alarms and incidents from now on.
    pub fn told_by(&mut self, webhook: Webhook) {
        webhook.status(&self.status.borrow());
        self.webhook = Some(webhook);
    }

    /// The job has several controllers, which are shown from now on.
    pub fn led_by(&mut self, controllers: watch::Receiver<v1::Controllers>) {
        self.controllers = Some(controllers);
        // Also before the job is at work.
        self.show_alarms();
    }

    /// The controllers as they are now, where the job has several.
    pub(super) fn controllers(&self) -> Option<v1::Controllers> {
        let controllers = self.controllers.as_ref()?;
        Some(controllers.borrow().clone())
    }

    /// What is shown from now on of copies elsewhere.
    pub(super) fn durable(
        &mut self,
        replicas: v1::ReplicaStatus,
        remote: Option<v1::RemoteStatus>,
    ) {
        self.durable = (Some(replicas), remote);
    }

    /// What is shown from now on of the last committed step.
    pub(super) fn stepped(&mut self, step: v1::StepLine) {
        self.last_step = Some(step);
    }

    /// What is shown from now on of the job's services.
    pub(super) fn services(&mut self, services: Vec<v1::ServiceStatus>) {
        self.services = services;
    }

    /// What is shown from now on of processes that wait for a restart.
    pub(super) fn spares(&mut self, spares: Vec<v1::SpareStatus>) {
        self.spares = spares;
    }

    /// This machine's name.
    pub fn node(&self) -> &str {
        self.frame.node()
    }

    /// The status, as it changes.
    pub fn status(&self) -> watch::Receiver<Arc<v1::Status>> {
        self.status.subscribe()
    }

    /// The same for Prometheus.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// The events, as they happen.
    pub fn events(&self) -> broadcast::Sender<(u64, Event)> {
        self.events.clone()
    }

    /// The detection rules in force.
    pub fn rules(&self) -> watch::Receiver<Arc<v1::Rules>> {
        self.rules.subscribe()
    }

    /// What every instance did of late.
    pub fn phases(&self) -> &RecentPhases {
        &self.phases
    }

    /// Shows what happens before the core runs.
    pub fn starting(&self, now: Time, reason: &str) {
        self.show(self.frame.starting(now, reason));
    }

    /// Shows the core's view, and how pulls go.
    pub(super) fn publish(
        &self,
        view: &View,
        now: Time,
        (pulls, gauges): (&Pulls, &Gauges),
        served: &Served,
        checkpoints_skipped: u64,
    ) {
        let mut status = self.frame.status(view, now);
        status.checkpoints_skipped = checkpoints_skipped;
        status.services.clone_from(&self.services);
        status.spares.clone_from(&self.spares);
        status.last_step = self.last_step;
        let digest = view.version.and_then(|version| served.digest(version));
        (status.replicas, status.remote) = self.durable.clone();
        status.weight_digest = digest.unwrap_or_default();
        status.roles.iter_mut().for_each(|role| pulls.show(role));
        gauges.show(&mut status);
        self.phases.show(&mut status);
        self.show(status);
    }

    fn show(&self, mut status: v1::Status) {
        status.alarms = self.with_alarms(|alarms| alarms.shown());
        status.controllers = self.controllers();
        let status = Arc::new(status);
        self.metrics.status(&status);
        if let Some(traces) = &self.traces {
            traces.status(&status);
        }
        if let Some(webhook) = &self.webhook {
            webhook.status(&status);
        }
        self.status.send_replace(status);
    }

    fn with_alarms<T>(&self, with: impl FnOnce(&mut Alarms) -> T) -> T {
        with(&mut self.alarms.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Shows an alarm from now on; the rest of the status stays as it is, which may be all that can be
    /// shown while nothing becomes durable. An event tells if it is news.
    pub(super) fn raise(
        &self,
        now: Time,
        alarm: Alarm,
        severity: Severity,
        kind: &str,
        text: String,
    ) {
        if self.with_alarms(|alarms| alarms.raise(alarm, text.clone(), now.millis())) {
            self.note(now, severity, kind, text);
        }
        self.show_alarms();
    }

    /// Whether an alarm holds.
    pub(super) fn has(&self, alarm: Alarm) -> bool {
        self.with_alarms(|alarms| alarms.holds(alarm))
    }

    /// Whether an alarm holds with these words.
    pub(super) fn says(&self, alarm: Alarm, text: &str) -> bool {
        self.with_alarms(|alarms| alarms.says(alarm, text))
    }

    /// Shows it no more, and tells why in an event.
    pub(super) fn lower(&self, now: Time, alarm: Alarm, kind: &str, text: String) {
        if self.with_alarms(|alarms| alarms.lower(alarm)) {
            self.note(now, Severity::Info, kind, text);
            self.show_alarms();
        }
    }

    fn show_alarms(&self) {
        let status = v1::Status::clone(&self.status.borrow());
        self.show(status);
    }

    /// Stores, logs and shows an event.
    pub fn event(&self, event: Event) {
        let who = event.id.map_or_else(String::new, |id| id.to_string());
        match event.severity {
            Severity::Info => tracing::info!(kind = event.kind, who, "{}", event.text),
            Severity::Warn => tracing::warn!(kind = event.kind, who, "{}", event.text),
            Severity::Fault => tracing::error!(kind = event.kind, who, "{}", event.text),
        }
        // An event is worth showing, not worth waiting for: durability follows by itself.
        let (seq, _) = self.store.append_event(&event);
        // Nobody may be listening.
        let _ = self.events.send((seq, event));
    }

    /// An event of the daemon's own.
    pub fn note(&self, at: Time, severity: Severity, kind: &str, text: String) {
        self.event(Event {
            at,
            severity,
            kind: kind.to_owned(),
            id: None,
            text,
        });
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::report::some_lines;
    use crate::store::Remembered;
    use robust_shared::core::{Record, StepMetrics};
    use robust_shared::ids::Generation;

    #[test]
    fn the_last_step_after_a_restart_is_the_one_that_the_store_tells() {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = Store::open(dir.path()).unwrap();
        assert_eq!(last_step(&store, 1_000), None);
        for number in 1..=2 {
            let committed = Record::Committed {
                step: Step(number),
                generation: Generation(1),
                trajectories: Vec::new(),
                metrics: StepMetrics::default(),
                provenance: None,
            };
            let stored = store.record(vec![committed], Remembered::default());
            stored.wait().unwrap();
            // Long before: what the first step took is what lies between.
            let lines = some_lines(&store, 1_000, None).unwrap();
            assert_eq!(last_step(&store, 1_000), lines.last().copied());
            assert!(number > 1 || lines[0].seconds > 0.0, "{lines:?}");
        }
    }
}
