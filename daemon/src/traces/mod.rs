//! A trace of each incident, sent to an OpenTelemetry collector once the incident is over.
//!
//! ```text
//!  Feeds ── status ──► Traces ── queue of 64, never waited for ──► thread: spans ──► POST /v1/traces
//!
//!  incident ────────────────────────────────────────────── fault to useful work
//!    detect ─────────┐ restart ────────────────┐ reconnect ──┘
//!      exited  seen  │   spawned   attached    │   restored
//! ```
//! Identifiers follow from the job's life and the incident's number, so a trace has the same ones
//! wherever it is sent from. A daemon that goes on with a job sends what ends from then on: an
//! incident that ended in the instant before a crash may be missing, none is sent twice. A collector
//! that is away costs its traces and nothing else; `robust_traces_total` counts them.
mod send;
mod spans;
#[cfg(test)]
mod tests;

use crate::incidents::{IncidentBook, News};
use crate::metrics::{Metrics, Traced};
use axum::http::Uri;
use opentelemetry_otlp::ExporterBuildError;
use robust_proto::v1;
pub use spans::Identity;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// Incidents that wait for their traces to be sent.
const QUEUED: usize = 64;

/// Where the specification puts traces below a collector's address.
const PATH: &str = "/v1/traces";

/// Why traces cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum TracesError {
    /// The URL is none.
    #[error("--otlp {url}: {why}; give a collector's address, such as http://127.0.0.1:4318")]
    Url {
        /// What was given.
        url: String,
        /// What is wrong.
        why: String,
    },
    /// The collector would be trusted otherwise than was asked for.
    #[error(
        "--otlp {url}: {variable} is set, and nothing here reads it; name the file with the \
         collector's CA in SSL_CERT_FILE (client certificates are not supported)"
    )]
    Tls {
        /// What was given.
        url: String,
        /// A variable of OpenTelemetry's specification.
        variable: String,
    },
    /// The file that is named is not there.
    #[error("--otlp: {CA_FILE} names {path}: {source}")]
    Ca {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The exporter refuses its settings.
    #[error("--otlp: {0}")]
    Exporter(#[from] ExporterBuildError),
    /// The thread could not be started.
    #[error("--otlp: cannot start the sender: {0}")]
    Thread(#[from] io::Error),
}

/// Names a file with CAs, in PEM, that are trusted instead of the system's.
const CA_FILE: &str = "SSL_CERT_FILE";

/// Variables about TLS that the specification has and the exporter over HTTP does not read.
const NOT_READ: [&str; 3] = ["CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY"];

/// A collector's address; [`PATH`] is added where the URL has no path. Over TLS its certificate is held
/// against the system's CAs, or those of `SSL_CERT_FILE`.
pub fn endpoint(url: &str) -> Result<String, TracesError> {
    checked(url, |variable| std::env::var_os(variable))
}

fn checked(url: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<String, TracesError> {
    let wrong = |why: &str| TracesError::Url {
        url: url.to_owned(),
        why: why.to_owned(),
    };
    let uri: Uri = url.parse().map_err(|_| wrong("not a URL"))?;
    if !matches!(uri.scheme_str(), Some("http" | "https")) || uri.host().is_none() {
        return Err(wrong("not an http:// or https:// URL"));
    }
    if uri.scheme_str() == Some("https") {
        check_tls(url, variable)?;
    }
    match uri.path() {
        "" | "/" if uri.query().is_none() => Ok(format!("{}{PATH}", url.trim_end_matches('/'))),
        _ => Ok(url.to_owned()),
    }
}

/// The exporter would leave out what it does not read, and a file that is not there, without a word.
fn check_tls(url: &str, variable: impl Fn(&str) -> Option<OsString>) -> Result<(), TracesError> {
    let of_tls = ["OTEL_EXPORTER_OTLP_", "OTEL_EXPORTER_OTLP_TRACES_"]
        .into_iter()
        .flat_map(|prefix| NOT_READ.map(|name| format!("{prefix}{name}")));
    let mut set = of_tls.filter(|name| variable(name).is_some());
    if let Some(variable) = set.next() {
        let url = url.to_owned();
        return Err(TracesError::Tls { url, variable });
    }
    let Some(path) = variable(CA_FILE).map(PathBuf::from) else {
        return Ok(());
    };
    match File::open(&path) {
        Ok(_) => Ok(()),
        Err(source) => Err(TracesError::Ca { path, source }),
    }
}

enum Message {
    Incident(Box<v1::Incident>),
    /// Answered once everything before it was tried.
    Flush(oneshot::Sender<()>),
}

/// Sends traces in the background. Cheap to clone; the thread ends with the last clone.
#[derive(Clone)]
pub struct Traces {
    queue: mpsc::Sender<Message>,
    /// None until the first status: what was over by then was over before this life of the daemon.
    book: Arc<Mutex<Option<IncidentBook>>>,
    metrics: Arc<Metrics>,
}

impl Traces {
    /// Starts the thread. `endpoint` is what [`endpoint`] made of a URL.
    pub fn start(
        endpoint: &str,
        identity: Identity,
        metrics: Arc<Metrics>,
    ) -> Result<Self, TracesError> {
        let (queue, messages) = mpsc::channel(QUEUED);
        send::start(endpoint, identity, Arc::clone(&metrics), messages)?;
        metrics.traces();
        let book = Arc::default();
        Ok(Self {
            queue,
            book,
            metrics,
        })
    }

    /// Takes the status. Never waits.
    pub fn status(&self, status: &v1::Status) {
        let mut book = self.book.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(book) = &mut *book else {
            let mut first = IncidentBook::default();
            first.read(&status.incidents, |_, _| ());
            *book = Some(first);
            return;
        };
        book.read(&status.incidents, |news, incident| {
            if news == News::Over {
                self.offer(incident);
            }
        });
    }

    fn offer(&self, incident: &v1::Incident) {
        let message = Message::Incident(Box::new(incident.clone()));
        if self.queue.try_send(message).is_err() {
            self.metrics.traced(Traced::Dropped, 1);
        }
    }

    /// Waits until what is queued was sent or refused, at most for so long.
    pub async fn flush(&self, limit: Duration) {
        let (done, flushed) = oneshot::channel();
        let asking = async {
            // A thread that is gone has nothing left to send.
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                let _ = flushed.await;
            }
        };
        if tokio::time::timeout(limit, asking).await.is_err() {
            tracing::warn!("the collector does not take the last traces; not waiting any longer");
        }
    }
}
