//! The connection to the daemon: turns its streams into events until one ends.
use super::act::{Act, Strike};
use super::event::{Asked, Event};
use super::several::{self, Answers};
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::who;
use crate::inside;
use crate::paint::Paint;
use robust_proto::v1;
use robust_shared::wire::InspectWay;
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

/// Delivers the phases that ended after this time, as they end, then that there are no more. Why says
/// the connection itself.
pub async fn phases(endpoint: Endpoint, link: u64, after_ms: u64, to: Sender<Event>) {
    let ended = deliver_phases(&endpoint, link, after_ms, &to).await;
    let never = matches!(ended, Err(status) if status.code() == tonic::Code::Unimplemented);
    let _ = to.send(Event::PhasesEnded { link, never }).await;
}

async fn deliver_phases(
    endpoint: &Endpoint,
    link: u64,
    after_ms: u64,
    to: &Sender<Event>,
) -> Result<(), tonic::Status> {
    let request = v1::PhasesRequest {
        after_ms,
        follow: true,
        interval_ms: STATUS_EVERY_MS,
        ..Default::default()
    };
    let unreached = |e: CliError| tonic::Status::unavailable(e.to_string());
    let mut client = endpoint.connect().await.map_err(unreached)?;
    let mut parts = client.phases(request).await?.into_inner();
    while let Some(v1::PhasesPart { spans }) = parts.message().await? {
        if to.send(Event::Phases { link, spans }).await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Delivers the figures of the steps after this one, once. One that cannot be reached is asked again.
pub async fn steps(endpoint: Endpoint, started_ms: u64, after: u64, to: Sender<Event>) {
    let Ok(mut client) = endpoint.connect().await else {
        return;
    };
    // From the beginning the newest ones are wanted.
    let after = (after > 0).then_some(after);
    let request = v1::GetStepsRequest { after };
    let lines = match client.get_steps(request).await {
        Ok(reply) => Some(reply.into_inner().lines),
        Err(status) if status.code() == tonic::Code::Unimplemented => None,
        Err(_) => return,
    };
    let _ = to.send(Event::StepsRead { started_ms, lines }).await;
}

/// Has processes looked at, or asked; what is found comes once all of it is there.
pub async fn look_inside(endpoint: Endpoint, asked: Asked, to: Sender<Event>) {
    let found = found_inside(&endpoint, &asked).await;
    let found = found.map_err(|e| e.to_string());
    let _ = to.send(Event::LookedInside { asked, found }).await;
}

async fn found_inside(endpoint: &Endpoint, asked: &Asked) -> Result<Vec<String>, CliError> {
    let stacks = |role: &String, index: u32| v1::InspectRequest {
        role: role.clone(),
        index: Some(index),
        what: "stacks".to_owned(),
    };
    match asked {
        Asked::Inside { role, index } => {
            let parts = inspected(endpoint, stacks(role, *index)).await?;
            Ok(parts.iter().flat_map(inside::lines).collect())
        }
        Asked::InsideOf(whom) => {
            let mut lines = Vec::new();
            for (role, index) in whom {
                // What one does not show, the others do.
                match inspected(endpoint, stacks(role, *index)).await {
                    Ok(parts) => lines.extend(parts.iter().flat_map(inside::lines)),
                    Err(e) if e.is_lost() => return Err(e),
                    Err(e) => lines.push(format!("{}: {e}", who(role, *index))),
                }
            }
            Ok(lines)
        }
        Asked::Answers => {
            let request = v1::InspectRequest {
                what: InspectWay::Probe.word().to_owned(),
                ..Default::default()
            };
            let parts = inspected(endpoint, request).await?;
            let text = inside::answered(&parts).render(Paint::plain());
            Ok(text.lines().map(str::to_owned).collect())
        }
    }
}

async fn inspected(
    endpoint: &Endpoint,
    request: v1::InspectRequest,
) -> Result<Vec<v1::InspectPart>, CliError> {
    let mut parts = Vec::new();
    inside::look(endpoint, request, |part| {
        parts.push(part);
        Ok(())
    })
    .await?;
    Ok(parts)
}

/// Has the daemon do what the operator confirmed; the answer is a sentence, and of several acts what came of each.
pub async fn act(endpoint: Endpoint, act: Act, to: Sender<Event>) {
    let told = match &act {
        Act::Several(several) => {
            let answers = several::ask(&endpoint, several.verb(), several.acts()).await;
            Event::AnsweredAll(Box::new(answers))
        }
        Act::Drain { node, whom, .. } => {
            let verb = format!("drain of {node}");
            let answers = several::ask(&endpoint, &verb, &act.parts()).await;
            of_drain(node, whom.len(), answers)
        }
        _ => {
            let answer = carry_out(&endpoint, act).await;
            Event::Answered(answer.map_err(|e| e.to_string()))
        }
    };
    let _ = to.send(told).await;
}

/// A drain in which nobody was refused is a sentence.
fn of_drain(node: &str, all: usize, answers: Answers) -> Event {
    match answers.is_good() {
        true => {
            let text = format!("{node} is cordoned; {all} of its instances get new places");
            Event::Answered(Ok(text))
        }
        false => Event::AnsweredAll(Box::new(answers)),
    }
}

/// Asks what an act would bring. Nothing comes where nobody can say it, as of a daemon of an earlier build: the
/// question is as it was.
pub async fn foresee(endpoint: Endpoint, act: Act, to: Sender<Event>) {
    let (Some(request), Ok(mut client)) = (act.ahead(), endpoint.connect().await) else {
        return;
    };
    let Ok(reply) = client.forecast(request).await else {
        return;
    };
    let v1::ForecastReply { lines, unknown, .. } = reply.into_inner();
    if unknown.is_empty() {
        let act = Box::new(act);
        let _ = to.send(Event::Foreseen { act, lines }).await;
    }
}

/// Asks for one act; what came of it, as a sentence. Those of several parts are asked for in [`several`].
pub(super) async fn carry_out(endpoint: &Endpoint, act: Act) -> Result<String, CliError> {
    match act {
        Act::Strike(strike) => {
            let mut client = endpoint.connect().await?;
            let done = endpoint.ask(client.inject(strike.request())).await?;
            Ok(struck(&strike, &done))
        }
        Act::Disarm(armed) => {
            let mut client = endpoint.connect().await?;
            let request = v1::DisarmRequest { id: Some(armed.id) };
            let gone = endpoint.ask(client.disarm(request)).await?.disarmed;
            Ok(match gone.is_empty() {
                true => format!("`{}` has struck already", armed.fault),
                false => format!("`{}` is taken back", armed.fault),
            })
        }
        Act::Stop => {
            let mut client = endpoint.connect().await?;
            endpoint.ask(client.stop(v1::StopRequest {})).await?;
            Ok("the job is ending in order".to_owned())
        }
        act => {
            let steers = act.steers();
            if steers.is_empty() {
                let text = format!("there is no request to {}; nothing is done", act.verb());
                return Err(CliError::Failed(text));
            }
            let mut words = String::new();
            for steer in steers {
                words = steer.ask(endpoint).await?.words;
            }
            Ok(words)
        }
    }
}

/// What came of a fault, as a sentence.
fn struck(strike: &Strike, done: &v1::InjectReply) -> String {
    let whom = strike.whom();
    let life = match &strike.life {
        Some(_) if done.incarnation == 0 => "'s next life".to_owned(),
        Some(_) => format!(" (incarnation {}, pid {})", done.incarnation, done.pid),
        None => String::new(),
    };
    match done.armed {
        Some(id) => format!(
            "`{}` waits for {} of {whom}{life}, number {id}",
            done.fault, done.at
        ),
        None => format!("{whom} is {}{life}", strike.fault.done()),
    }
}
