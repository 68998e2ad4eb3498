//! Who is told of incidents and alarms besides those who ask: a collector of traces, the receiver of the webhook.
use super::checks::Prepared;
use super::failure::Failure;
use crate::driver::Feeds;
use crate::store::Store;
use crate::traces::{self, Traces};
use crate::webhook::{self, Webhook};
use std::sync::Arc;
use std::time::Duration;

/// How long the end of the daemon waits for each of them.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Those that are told.
pub(super) struct Told {
    traces: Option<Traces>,
    webhook: Option<Webhook>,
}

impl Told {
    /// Begins to tell those that are named; `run` names this life of the job.
    pub fn begin(
        prepared: &Prepared,
        run: &str,
        store: &Store,
        feeds: &mut Feeds,
    ) -> Result<Self, Failure> {
        Ok(Self {
            traces: begin_traces(prepared, run, feeds)?,
            webhook: begin_webhook(prepared, run, store, feeds)?,
        })
    }

    /// Ends after they have what there was to tell, which is not waited for long.
    pub async fn end(&self) {
        let traces = async {
            if let Some(traces) = &self.traces {
                traces.flush(LAST_WORDS).await;
            }
        };
        let webhook = async {
            if let Some(webhook) = &self.webhook {
                webhook.end(LAST_WORDS).await;
            }
        };
        tokio::join!(traces, webhook);
    }
}

fn begin_traces(
    prepared: &Prepared,
    run: &str,
    feeds: &mut Feeds,
) -> Result<Option<Traces>, Failure> {
    let Some(endpoint) = &prepared.otlp else {
        return Ok(None);
    };
    let identity = traces::Identity {
        job: prepared.job.job.name.clone(),
        run: run.to_owned(),
        node: feeds.node().to_owned(),
    };
    let traces = Traces::start(endpoint, identity, Arc::clone(feeds.metrics()))?;
    feeds.traced_by(traces.clone());
    tracing::info!("traces of incidents go to {endpoint}");
    Ok(Some(traces))
}

fn begin_webhook(
    prepared: &Prepared,
    run: &str,
    store: &Store,
    feeds: &mut Feeds,
) -> Result<Option<Webhook>, Failure> {
    let Some(receiver) = prepared.webhook.clone() else {
        return Ok(None);
    };
    let host = receiver.host();
    let identity = webhook::Identity {
        job: prepared.job.job.name.clone(),
        run: run.to_owned(),
        leader: feeds.node().to_owned(),
    };
    let status = feeds.status().borrow().clone();
    let known = (&status.incidents[..], Arc::clone(feeds.metrics()));
    let webhook = Webhook::start(receiver, identity, store, known)?;
    feeds.told_by(webhook.clone());
    tracing::info!("alarms and incidents are posted to {host}");
    Ok(Some(webhook))
}
