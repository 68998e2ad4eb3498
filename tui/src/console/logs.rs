//! The end of an instance's log: from the state directory where it runs on the leader's machine and so
//! does this console, else through the daemon.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_proto::v1;
use robust_shared::ids::InstanceId;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use tokio_stream::StreamExt as _;

/// Bytes read from the end; what is older is for a pager.
const TAIL: u64 = 256 << 10;
/// Lines that a daemon is asked for.
const TAIL_LINES: u32 = 2_000;

/// The log that is shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Tail {
    /// Whose.
    pub who: String,
    /// Its last lines, or why there are none.
    pub lines: Result<Vec<String>, String>,
}

impl Tail {
    /// The lines that hold these words, in any case; all for none.
    pub fn found(&self, words: &str) -> Vec<&str> {
        let words = words.to_lowercase();
        let lines = self.lines.as_deref().unwrap_or_default();
        lines
            .iter()
            .map(String::as_str)
            .filter(|l| words.is_empty() || l.to_lowercase().contains(&words))
            .collect()
    }
}

/// Reads it; a file of that name here is another life's where the instance runs on another machine.
pub async fn read(endpoint: Endpoint, who: String, on_leader: bool) -> Result<Vec<String>, String> {
    let own = endpoint.state_dir().filter(|_| on_leader);
    let own = own.map(|dir| dir.join("logs").join(format!("{who}.log")));
    let Some(path) = own.filter(|path| path.exists()) else {
        // It runs on another machine, or this console does.
        return ask(&endpoint, &who).await.map_err(|e| e.to_string());
    };
    tokio::task::spawn_blocking(move || tail(&path))
        .await
        .unwrap_or_else(|e| Err(e.to_string()))
}

/// What the daemon has of it.
async fn ask(endpoint: &Endpoint, who: &str) -> Result<Vec<String>, CliError> {
    let id: InstanceId = who
        .parse()
        .map_err(|_| CliError::Failed(format!("{who} is no instance")))?;
    let request = v1::LogsRequest {
        role: id.role.name().to_owned(),
        index: id.index,
        tail_lines: Some(TAIL_LINES),
        ..Default::default()
    };
    let mut client = endpoint.connect().await?;
    let mut parts = endpoint.ask(client.logs(request)).await?;
    let mut bytes = Vec::new();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|s| CliError::from_status(&s, &endpoint.place()))?;
        bytes.extend(part.data);
    }
    let text = String::from_utf8_lossy(&bytes);
    Ok(text.lines().map(str::to_owned).collect())
}

fn tail(path: &Path) -> Result<Vec<String>, String> {
    let unreadable = |e: std::io::Error| match e.kind() {
        std::io::ErrorKind::NotFound => format!(
            "{} is not there: it has no log yet, or runs on another machine",
            path.display()
        ),
        _ => format!("{} cannot be read: {e}", path.display()),
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let length = file.metadata().map_err(unreadable)?.len();
    let from = length.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from)).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(TAIL)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    let text = String::from_utf8_lossy(&bytes);
    // The first line of a long log is cut somewhere.
    let whole = usize::from(from > 0);
    Ok(text.lines().skip(whole).map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_long_log_is_read_from_its_end_in_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("rollout-0.log");
        let lines: Vec<String> = (0..40_000).map(|n| format!("line {n}")).collect();
        std::fs::write(&path, lines.join("\n")).unwrap();
        let read = tail(&path).unwrap();
        assert_eq!(read.last().unwrap(), "line 39999");
        assert!(read.len() > 10_000 && read.len() < 40_000, "{}", read.len());
        assert!(lines.contains(&read[0]), "{}", read[0]);
    }

    #[test]
    fn a_log_that_is_not_there_is_a_sentence() {
        let dir = tempfile::tempdir().unwrap();
        let said = tail(&dir.path().join("agent-3.log")).unwrap_err();
        assert!(said.contains("agent-3.log is not there"), "{said}");
    }

    #[test]
    fn a_search_finds_in_any_case() {
        let tail = Tail {
            who: "trainer-0".into(),
            lines: Ok(["loss 0.4", "NaN in loss", "saved"]
                .map(str::to_owned)
                .into()),
        };
        assert_eq!(tail.found("LOSS"), ["loss 0.4", "NaN in loss"]);
        assert_eq!(tail.found("").len(), 3);
    }
}
