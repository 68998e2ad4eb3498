//! `robustctl events`.
use super::watch::reconnect;
use crate::cli::EventsArgs;
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use crate::format::{time_of_day, who};
use crate::output::{put, put_json};
use crate::paint::Paint;
use robust_proto::v1;

/// Prints stored events and, with --follow, those to come.
pub async fn run(endpoint: &Endpoint, args: &EventsArgs, json: bool) -> Result<(), CliError> {
    let mut client = match args.follow {
        true => endpoint.reach().await?,
        false => endpoint.connect().await?,
    };
    let mut seen = Seen {
        since: args.since,
        last: None,
    };
    loop {
        match stream(endpoint, &mut client, args.follow, &mut seen, json).await {
            Err(e) if args.follow && e.is_lost() => {
                client = resume(endpoint, &mut seen, json).await?;
            }
            ended => return ended,
        }
    }
}

/// The same, as long as one connection holds.
async fn stream(
    endpoint: &Endpoint,
    client: &mut Client,
    follow: bool,
    seen: &mut Seen,
    json: bool,
) -> Result<(), CliError> {
    let paint = Paint::stdout();
    let request = v1::EventsRequest {
        follow,
        since_seq: seen.ask_from(),
    };
    let mut events = endpoint.ask(client.events(request)).await?;
    loop {
        let next = match follow {
            true => Some(endpoint.follow(&mut events).await?),
            false => endpoint.next(&mut events).await?,
        };
        match next {
            Some(event) if !seen.is_new(&event) => {}
            Some(event) if json => put_json(&event)?,
            Some(event) => put(&line(&event, paint))?,
            None => return Ok(()),
        }
    }
}

/// Reaches the daemon again. A new job on the same socket counts its events from the start, which
/// shows in that the last event printed is not among its own.
async fn resume(endpoint: &Endpoint, seen: &mut Seen, json: bool) -> Result<Client, CliError> {
    loop {
        let mut client = reconnect(endpoint, json).await?;
        let Some(last) = &seen.last else {
            return Ok(client);
        };
        match first_from(endpoint, &mut client, last.seq).await {
            Ok(first) => {
                if first.as_ref() != Some(last) {
                    *seen = Seen {
                        since: 0,
                        last: None,
                    };
                }
                return Ok(client);
            }
            // It went away again between the two calls.
            Err(e) if e.is_lost() => {}
            Err(e) => return Err(e),
        }
    }
}

async fn first_from(
    endpoint: &Endpoint,
    client: &mut Client,
    since_seq: u64,
) -> Result<Option<v1::Event>, CliError> {
    let request = v1::EventsRequest {
        follow: false,
        since_seq,
    };
    let mut stored = endpoint.ask(client.events(request)).await?;
    endpoint.next(&mut stored).await
}

/// Which events were printed, so that none comes twice after a reconnect.
struct Seen {
    since: u64,
    last: Option<v1::Event>,
}

impl Seen {
    /// The last one is asked for again: an answer that starts after it or at it is right alike.
    fn ask_from(&self) -> u64 {
        self.last.as_ref().map_or(self.since, |last| last.seq)
    }

    fn is_new(&mut self, event: &v1::Event) -> bool {
        let new = self
            .last
            .as_ref()
            .map_or(event.seq >= self.since, |last| event.seq > last.seq);
        if new {
            self.last = Some(event.clone());
        }
        new
    }
}

fn line(e: &v1::Event, paint: Paint) -> String {
    let severity = paint.word(&format!("{:<5}", e.severity));
    let who = who(&e.role, e.index);
    format!(
        "{:>5}  {}  {severity}  {who:<10}  {:<12}  {}\n",
        e.seq,
        time_of_day(e.at_ms),
        e.kind,
        e.text
    )
}
