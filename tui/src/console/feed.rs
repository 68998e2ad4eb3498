//! The connection to the daemon: turns its two streams into events until one ends.
use super::act::{Act, Strike};
use super::event::Event;
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
pub async fn act(endpoint: Endpoint, act: Act, to: Sender<Event>) {
    let answer = carry_out(&endpoint, act).await;
    let _ = to
        .send(Event::Answered(answer.map_err(|e| e.to_string())))
        .await;
}

async fn carry_out(endpoint: &Endpoint, act: Act) -> Result<String, CliError> {
    let mut client = endpoint.connect().await?;
    match act {
        Act::Strike(strike) => {
            let (fault, request) = (strike.fault, injection(strike));
            let done = endpoint.ask(client.inject(request)).await?;
            let name = who(&done.role, done.index);
            let (what, life, pid) = (fault.done(), done.incarnation, done.pid);
            Ok(format!("{what} {name} (incarnation {life}, pid {pid})"))
        }
        Act::Traffic { role, index, out } => {
            let request = v1::QuarantineRequest { role, index };
            let reply = match out {
                true => endpoint.ask(client.quarantine(request)).await?,
                false => endpoint.ask(client.readmit(request)).await?,
            };
            let name = who(&reply.role, reply.index);
            Ok(match reply.quarantined {
                true => format!("{name} gets no new requests"),
                false => format!("{name} may have traffic again"),
            })
        }
        Act::Cordon { node, out } => {
            let request = v1::CordonRequest { node, out };
            let node = endpoint.ask(client.cordon(request)).await?.node;
            Ok(match out {
                true => format!("nothing new is started on {node}"),
                false => format!("{node} may be used again"),
            })
        }
        Act::Restore(v1::Slot { node, pool, index }) => {
            let words = format!("slot {index} of pool {pool} on {node} is there again");
            let request = v1::RestoreSlotRequest { node, pool, index };
            endpoint.ask(client.restore_slot(request)).await?;
            Ok(words)
        }
        Act::Scale { role, to, .. } => {
            let request = v1::ScaleRequest { role, count: to };
            let r = endpoint.ask(client.scale(request)).await?;
            Ok(format!(
                "{} goes from {} to {}: {}",
                r.role, r.from, r.to, r.when
            ))
        }
        Act::Update { role, change } => {
            let changes = vec![change];
            let request = v1::UpdateRequest { role, changes };
            let r = endpoint.ask(client.update(request)).await?;
            let (role, revision, when) = (r.role, r.revision, r.when);
            Ok(format!(
                "{role} is restarted (revision {revision} of the job): {when}"
            ))
        }
        Act::Stop => {
            endpoint.ask(client.stop(v1::StopRequest {})).await?;
            Ok("the job is ending in order".to_owned())
        }
    }
}

fn injection(strike: Strike) -> v1::InjectRequest {
    v1::InjectRequest {
        fault: strike.fault.name().to_owned(),
        role: strike.role,
        index: Some(strike.index),
        wait: false,
        wait_timeout_ms: 0,
        incarnation: Some(strike.incarnation),
        ..Default::default()
    }
}
