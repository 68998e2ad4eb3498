//! `robustctl logs`: what the processes of a place wrote, read through the daemon.
//!
//! ```text
//!  daemon ── parts ──► Lines (one log, whole lines) ──► grep ──► stdout
//!                        one task a log while following; one after the other else
//! ```
use super::watch::reconnect;
use crate::cli::{LogsArgs, Who};
use crate::endpoint::{Client, Endpoint};
use crate::error::CliError;
use crate::format::who;
use crate::output::{put, put_json};
use regex::Regex;
use robust_proto::v1;
use tokio::sync::mpsc::{Sender, channel};

/// Lines that may wait for a slow terminal.
const LINES_AHEAD: usize = 256;

/// A line of a log.
#[derive(serde::Serialize)]
struct Line {
    who: String,
    node: String,
    line: String,
}

/// Prints the logs.
pub async fn run(endpoint: &Endpoint, args: LogsArgs, json: bool) -> Result<(), CliError> {
    let places = places(endpoint, args.who).await?;
    let show = Show {
        names: places.len() > 1,
        grep: args.grep,
        json,
    };
    let (to, mut lines) = channel(LINES_AHEAD);
    let (follow, tail) = (args.follow, args.tail);
    let readers = places.into_iter().map(|place| Reader {
        endpoint: endpoint.clone(),
        place,
        follow,
        json,
        tail,
        next: None,
        lines: Lines::default(),
    });
    if follow {
        for reader in readers {
            tokio::spawn(reader.run(to.clone()));
        }
        drop(to);
    } else {
        let readers: Vec<Reader> = readers.collect();
        tokio::spawn(async move {
            for reader in readers {
                reader.run(to.clone()).await;
            }
        });
    }
    while let Some(line) = lines.recv().await {
        show.line(&line?)?;
    }
    Ok(())
}

/// The instances that are meant, as the job has them.
async fn places(endpoint: &Endpoint, wanted: Who) -> Result<Vec<(String, u32)>, CliError> {
    if let Some(index) = wanted.index {
        return Ok(vec![(wanted.role.name().to_owned(), index)]);
    }
    let mut client = endpoint.connect().await?;
    let asked = client.get_status(v1::GetStatusRequest {});
    let roles = endpoint.ask(asked).await?.roles.into_iter();
    let meant = roles.filter(|r| wanted.is(&r.role, r.index));
    let places: Vec<_> = meant.map(|r| (r.role, r.index)).collect();
    match places.is_empty() {
        false => Ok(places),
        true => Err(CliError::Refused(format!("the job has no {wanted}"))),
    }
}

/// What is printed, and how.
struct Show {
    names: bool,
    grep: Option<Regex>,
    json: bool,
}

impl Show {
    fn line(&self, line: &Line) -> Result<(), CliError> {
        if self
            .grep
            .as_ref()
            .is_some_and(|re| !re.is_match(&line.line))
        {
            return Ok(());
        }
        match (self.json, self.names) {
            (true, _) => put_json(line),
            (false, true) => put(&format!("{:<12} {}\n", line.who, line.line)),
            (false, false) => put(&format!("{}\n", line.line)),
        }
    }
}

/// Reads one log.
struct Reader {
    endpoint: Endpoint,
    place: (String, u32),
    follow: bool,
    json: bool,
    tail: Option<u32>,
    /// How far it is, once anything came.
    next: Option<u64>,
    lines: Lines,
}

type Out = Sender<Result<Line, CliError>>;

impl Reader {
    async fn run(mut self, to: Out) {
        if let Err(error) = self.read(&to).await {
            // Whoever prints may have ended.
            let _ = to.send(Err(error)).await;
        }
    }

    async fn read(&mut self, to: &Out) -> Result<(), CliError> {
        let mut client = match self.follow {
            true => self.endpoint.reach().await?,
            false => self.endpoint.connect().await?,
        };
        loop {
            match self.stream(&mut client, to).await {
                Err(e) if self.follow && e.is_lost() => {
                    client = reconnect(&self.endpoint, self.json).await?;
                }
                ended => return ended,
            }
        }
    }

    /// Until the log's end, as long as one connection holds.
    async fn stream(&mut self, client: &mut Client, to: &Out) -> Result<(), CliError> {
        let (role, index) = self.place.clone();
        let request = v1::LogsRequest {
            role,
            index,
            follow: self.follow,
            tail_lines: self.tail,
            from: self.next,
        };
        let mut parts = self.endpoint.ask(client.logs(request)).await?;
        loop {
            // Without a time limit of its own: the last lines of another node's log may take the
            // daemon longer, and whether it is there at all the connection finds out.
            match parts.message().await {
                Ok(Some(part)) => self.take(part, to).await?,
                Ok(None) if self.follow => return Err(self.endpoint.ended()),
                Ok(None) => {
                    let rest = self.lines.rest();
                    return self.say(rest, "", to).await;
                }
                Err(status) => {
                    let place = self.endpoint.place();
                    return Err(CliError::from_status(&status, &place));
                }
            }
        }
    }

    async fn take(&mut self, part: v1::LogPart, to: &Out) -> Result<(), CliError> {
        let v1::LogPart { offset, data, node } = part;
        if self.next.is_some_and(|next| next != offset) {
            // Another log by now.
            let rest = self.lines.rest();
            self.say(rest, &node, to).await?;
        }
        self.next = Some(offset + data.len() as u64);
        let whole = self.lines.take(&data);
        self.say(whole, &node, to).await
    }

    async fn say(&self, lines: Vec<String>, node: &str, to: &Out) -> Result<(), CliError> {
        for line in lines {
            let line = Line {
                who: who(&self.place.0, self.place.1),
                node: node.to_owned(),
                line,
            };
            let gone = |_| CliError::OutputClosed;
            to.send(Ok(line)).await.map_err(gone)?;
        }
        Ok(())
    }
}

/// Whole lines out of parts that are cut anywhere.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    fn take(&mut self, data: &[u8]) -> Vec<String> {
        self.0.extend(data);
        let Some(end) = self.0.iter().rposition(|b| *b == b'\n') else {
            return Vec::new();
        };
        let rest = self.0.split_off(end + 1);
        let whole = std::mem::replace(&mut self.0, rest);
        let text = String::from_utf8_lossy(&whole);
        text.lines().map(str::to_owned).collect()
    }

    /// What no newline has ended.
    fn rest(&mut self) -> Vec<String> {
        let rest = std::mem::take(&mut self.0);
        let text = String::from_utf8_lossy(&rest);
        text.lines().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_wherever_their_parts_are_cut() {
        let text = "eins\nzwei ä\n\nvier".as_bytes();
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut all = lines.take(&text[..cut]);
            all.extend(lines.take(&text[cut..]));
            assert_eq!(all, ["eins", "zwei ä", ""], "cut at {cut}");
            assert_eq!(lines.rest(), ["vier"]);
            assert_eq!(lines.rest(), Vec::<String>::new());
        }
    }
}
