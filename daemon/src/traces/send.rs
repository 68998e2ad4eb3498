//! The thread that sends.
use super::spans::{Identity, resource, spans};
use super::{Message, TracesError};
use crate::metrics::{Metrics, Traced};
use opentelemetry_otlp::{Protocol, SpanExporter, WithExportConfig};
use opentelemetry_sdk::error::OTelSdkError;
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::Receiver;

struct Sender {
    exporter: SpanExporter,
    identity: Identity,
    metrics: Arc<Metrics>,
    failing: bool,
    /// What may be wrong, where the exporter does not say it.
    hint: &'static str,
}

/// The exporter's error is a network's, whatever was wrong with a certificate.
const OVER_TLS: &str =
    " (over TLS: its certificate must come from a CA of the system or of SSL_CERT_FILE)";

/// Starts it; it ends when nobody can send it anything more. Headers, timeout and the like are taken
/// from the exporter's usual environment variables (`OTEL_EXPORTER_OTLP_HEADERS`, ...).
pub(super) fn start(
    endpoint: &str,
    identity: Identity,
    metrics: Arc<Metrics>,
    messages: Receiver<Message>,
) -> Result<(), TracesError> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let with_http = SpanExporter::builder().with_http();
    let mut exporter = with_http
        .with_protocol(Protocol::HttpBinary)
        .with_endpoint(endpoint)
        .build()?;
    exporter.set_resource(&resource(&identity));
    let mut sender = Sender {
        exporter,
        identity,
        metrics,
        failing: false,
        hint: match endpoint.starts_with("https:") {
            true => OVER_TLS,
            false => "",
        },
    };
    std::thread::Builder::new()
        .name("traces".to_owned())
        .spawn(move || sender.run(&runtime, messages))?;
    Ok(())
}

impl Sender {
    fn run(&mut self, runtime: &Runtime, mut messages: Receiver<Message>) {
        let mut batch = Vec::new();
        while runtime.block_on(messages.recv_many(&mut batch, super::QUEUED)) > 0 {
            let mut incidents = Vec::new();
            let mut flushes = Vec::new();
            for message in batch.drain(..) {
                match message {
                    Message::Incident(incident) => incidents.push(incident),
                    Message::Flush(done) => flushes.push(done),
                }
            }
            let of = |i: &Box<_>| spans(i, &self.identity);
            let data: Vec<SpanData> = incidents.iter().flat_map(of).collect();
            if !data.is_empty() {
                let sent = runtime.block_on(self.exporter.export(data));
                self.note(incidents.len() as u64, sent);
            }
            for done in flushes {
                // Whoever waited may have given up.
                let _ = done.send(());
            }
        }
    }

    /// Says when it begins to fail and when it works again, not each time.
    fn note(&mut self, count: u64, sent: Result<(), OTelSdkError>) {
        match sent {
            Ok(()) => {
                self.metrics.traced(Traced::Sent, count);
                if std::mem::take(&mut self.failing) {
                    tracing::info!("the collector takes traces again");
                }
            }
            Err(error) => {
                self.metrics.traced(Traced::Failed, count);
                if !std::mem::replace(&mut self.failing, true) {
                    let hint = self.hint;
                    tracing::warn!("the collector does not take traces: {error}{hint}");
                }
            }
        }
    }
}
