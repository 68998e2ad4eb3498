//! Is a program up, and does it answer.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use robust_engine::{Dialect, Event, Finish, Generate, Refused, Stream};
use robust_shared::job::{RolloutCommand, Service};
use robust_shared::trial::{Failure, Up, Version};
use tokio::net::TcpStream;

use super::cure::{LATE, cure, failure};
use crate::client::Client;
use crate::connect::Address;
use crate::ready;
use crate::run::key;
use crate::service::answers;

/// Tokens that an engine is asked for.
const TOKENS: usize = 8;
/// How long they may take: what an engine compiles for them it compiled for the first one.
const GENERATION: Duration = Duration::from_secs(300);
/// How long a service's answer may take that says nothing else of itself.
const ANSWER: Duration = Duration::from_secs(5);

/// Waits for an engine, and asks it for tokens.
pub(super) async fn engine(
    command: &RolloutCommand,
    address: Address,
    started: Instant,
) -> Result<Up, Failure> {
    const NO_TOKENS: &str = "see what it says of the request in its log";
    let key = key(command).map_err(|e| failure(e, "correct `rollout.command.api_key_file`"))?;
    let client = Client::new(address, key);
    let waited = ready::wait(&client, command).await;
    let dialect = waited.map_err(|error| {
        let cure = cure(&error);
        failure(error, &cure)
    })?;
    let after_s = started.elapsed().as_secs_f64();
    let began = Instant::now();
    let tokens = generation(&client, &dialect).await;
    let tokens = tokens.map_err(|why| failure(format!("no generation: {why}"), NO_TOKENS))?;
    Ok(Up {
        engine: Some(Version {
            kind: command.kind,
            version: dialect.version().to_owned(),
            caution: dialect.caution(),
        }),
        after_s,
        asked: format!("{tokens} tokens"),
        answered_s: began.elapsed().as_secs_f64(),
    })
}

/// The tokens that it gave, which are to be as many as were asked for.
async fn generation(client: &Client, dialect: &Dialect) -> Result<usize, String> {
    let request = dialect.generate(&Generate::greedy("check", vec![0], TOKENS));
    let reply = client.ask(&request, GENERATION).await;
    let reply = reply.map_err(|error| error.to_string())?;
    if !reply.is_success() {
        return Err(Refused::of(reply.status, &reply.body).to_string());
    }
    let mut tokens = 0;
    for event in Stream::whole(dialect, true, &reply.body) {
        match event {
            Event::Tokens { ids, .. } => tokens += ids.len(),
            Event::Failed { message, .. } => return Err(message),
            Event::End {
                finish: Finish::Abort(why),
                ..
            } => return Err(why.message),
            Event::End { .. } => {}
        }
    }
    match tokens {
        0 => Err("it answered without a token".to_owned()),
        tokens => Ok(tokens),
    }
}

/// Waits for a service, and asks it what its health is asked by.
pub(super) async fn of_service(
    service: &Service,
    ports: &[u16],
    started: Instant,
) -> Result<Up, Failure> {
    let here = Ipv4Addr::LOCALHOST.into();
    let limit = service.ready.timeout();
    let up = answers(here, ports, service);
    if tokio::time::timeout(limit, up).await.is_err() {
        let text = format!(
            "it is not up after {:.0} s (`ready.timeout_s`): {}",
            limit.as_secs_f64(),
            match (&service.ready.path, ports.first()) {
                (Some(path), _) => format!("{path} did not answer 200"),
                (None, _) => "its first port accepted no connection".to_owned(),
            }
        );
        return Err(failure(text, LATE));
    }
    let after_s = started.elapsed().as_secs_f64();
    let began = Instant::now();
    let health = service.health.as_ref();
    let limit = health.map_or(ANSWER, |health| health.timeout());
    let path = health.map(|health| &health.path);
    let path = path.or(service.ready.path.as_ref());
    let asked = match (path, ports.first()) {
        (Some(path), Some(port)) => {
            let client = Client::new(Address::Tcp(SocketAddr::new(here, *port)), None);
            let answer = tokio::time::timeout(limit, ready::answers(&client, path)).await;
            let wrong = match answer {
                Ok(Ok(200)) => None,
                Ok(Ok(status)) => Some(format!("{path} answers {status}")),
                Ok(Err(error)) => Some(error.to_string()),
                Err(_) => Some(format!(
                    "{path} did not answer within {:.1} s",
                    limit.as_secs_f64()
                )),
            };
            if let Some(wrong) = wrong {
                let cure = "name the route that answers 200 with `health.path`, or give it more \
                            time with `health.timeout_s`";
                return Err(failure(wrong, cure));
            }
            format!("GET {path}")
        }
        (_, Some(port)) => {
            let connection = TcpStream::connect(SocketAddr::new(here, *port)).await;
            connection.map_err(|error| failure(error, "see its log"))?;
            "a connection".to_owned()
        }
        (_, None) => "nothing: it has no port".to_owned(),
    };
    Ok(Up {
        engine: None,
        after_s,
        asked,
        answered_s: began.elapsed().as_secs_f64(),
    })
}
