//! The connection to the daemon: turns its two streams into events until one ends.
use super::event::{Action, Event, Strike};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::who;
use robust_proto::v1;
use tokio::sync::mpsc::Sender;
use tokio_stream::StreamExt as _;

const STATUS_EVERY_MS: u32 = 250;

/// Delivers statuses and events under this link number, then why it ended.
pub async fn follow(endpoint: Endpoint, link: u64, since_seq: u64, to: Sender<Event>) {
    let reason = match deliver(&endpoint, link, since_seq, &to).await {
        Ok(()) => "the daemon ended the stream".to_owned(),
        Err(CliError::NoDaemon { reason, .. }) => reason,
        Err(e) => e.to_string(),
    };
    // Nobody listens any more when the console is being left.
    let _ = to.send(Event::Lost { link, reason }).await;
}

async fn deliver(
    endpoint: &Endpoint,
    link: u64,
    since_seq: u64,
    to: &Sender<Event>,
) -> Result<(), CliError> {
    let mut client = endpoint.connect().await?;
    let request = v1::WatchRequest {
        interval_ms: STATUS_EVERY_MS,
    };
    let mut statuses = endpoint.ask(client.watch(request)).await?;
    let request = v1::EventsRequest {
        follow: true,
        since_seq,
    };
    let mut events = endpoint.ask(client.events(request)).await?;
    let failed = |status: tonic::Status| CliError::from_status(&status, &endpoint.place());
    loop {
        let event = tokio::select! {
            next = statuses.next() => match next {
                Some(status) => Event::Status { link, status: Box::new(status.map_err(failed)?) },
                None => return Ok(()),
            },
            next = events.next() => match next {
                Some(event) => Event::Logged { link, event: Box::new(event.map_err(failed)?) },
                None => return Ok(()),
            },
        };
        if to.send(event).await.is_err() {
            return Ok(());
        }
    }
}

/// Has the daemon do what the operator confirmed; the answer is a sentence.
pub async fn act(endpoint: Endpoint, action: Action, to: Sender<Event>) {
    let answer = match action {
        Action::Inject(strike) => inject(&endpoint, strike).await,
        Action::Stop => stop(&endpoint).await,
        Action::Connect { .. } | Action::Quit(_) => return,
    };
    let _ = to
        .send(Event::Answered(answer.map_err(|e| e.to_string())))
        .await;
}

async fn inject(endpoint: &Endpoint, strike: Strike) -> Result<String, CliError> {
    let mut client = endpoint.connect().await?;
    let request = v1::InjectRequest {
        fault: strike.fault.name().to_owned(),
        role: strike.role,
        index: Some(strike.index),
        wait: false,
        wait_timeout_ms: 0,
        incarnation: Some(strike.incarnation),
    };
    let done = endpoint.ask(client.inject(request)).await?;
    let name = who(&done.role, done.index);
    Ok(format!(
        "{} {name} (incarnation {}, pid {})",
        strike.fault.done(),
        done.incarnation,
        done.pid
    ))
}

async fn stop(endpoint: &Endpoint) -> Result<String, CliError> {
    let mut client = endpoint.connect().await?;
    endpoint.ask(client.stop(v1::StopRequest {})).await?;
    Ok("the job is ending in order".to_owned())
}
