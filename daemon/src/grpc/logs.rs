//! Logs for operators: pages that the driver has read, one after the other.
//!
//! ```text
//!  tail wanted: where the last lines begin ◄── pages backwards from the end
//!                     │
//!                     ▼
//!  page ── sent ──► page ── .. ──► end ──┬─ follow: again after a while
//!                                        └─ else: done
//! ```
//! A log that is shorter than what was sent of it is another one by now (its instance moved to
//! another node): it is sent from its start.
use super::words::{ending, refused, role};
use crate::driver::{LogError, NodePage, OperatorEvent};
use crate::launcher::PAGE_BYTES;
use crate::tell::Tell;
use robust_proto::v1;
use robust_shared::ids::InstanceId;
use std::time::Duration;
use tokio::sync::mpsc::Sender;
use tokio::sync::oneshot;
use tonic::Status;

/// Parts that may wait for a slow reader.
pub const PARTS_AHEAD: usize = 4;
/// Between two looks at the end of a log that is followed.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a node may take for a page.
const PAGE_WITHIN: Duration = Duration::from_secs(10);
/// The last lines are looked for in so much of a log.
const TAIL_BYTES: u64 = 64 << 20;

/// Reads one log.
pub struct Reader {
    driver: Tell<OperatorEvent>,
    id: InstanceId,
}

impl Reader {
    /// Of the instance that is asked for.
    pub fn new(driver: Tell<OperatorEvent>, request: &v1::LogsRequest) -> Result<Self, Status> {
        let id = InstanceId {
            role: role(&request.role)?,
            index: request.index,
        };
        Ok(Self { driver, id })
    }

    /// Sends what is asked for, or why that is not possible.
    pub async fn send(self, request: v1::LogsRequest, to: Sender<Result<v1::LogPart, Status>>) {
        if let Err(status) = self.stream(&request, &to).await {
            // Whoever read may have left.
            let _ = to.send(Err(status)).await;
        }
    }

    async fn stream(
        &self,
        request: &v1::LogsRequest,
        to: &Sender<Result<v1::LogPart, Status>>,
    ) -> Result<(), Status> {
        let mut offset = match (request.from, request.tail_lines) {
            (Some(offset), _) => offset,
            (None, Some(lines)) => self.tail(u64::from(lines)).await?,
            (None, None) => 0,
        };
        loop {
            let NodePage { node, page } = self.page(offset, PAGE_BYTES).await?;
            if page.size < offset {
                offset = 0;
                continue;
            }
            let read = page.data.len() as u64;
            if read > 0 {
                let data = page.data;
                let part = v1::LogPart { offset, data, node };
                offset += read;
                if to.send(Ok(part)).await.is_err() {
                    return Ok(());
                }
            } else if !request.follow {
                return Ok(());
            } else {
                tokio::select! {
                    () = to.closed() => return Ok(()),
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
            }
        }
    }

    /// Where the last lines begin.
    async fn tail(&self, lines: u64) -> Result<u64, Status> {
        let size = self.page(0, 0).await?.page.size;
        if lines == 0 {
            return Ok(size);
        }
        let (mut end, mut left) = (size, lines);
        while end > size.saturating_sub(TAIL_BYTES) {
            let start = end.saturating_sub(PAGE_BYTES.into());
            let bytes = u32::try_from(end - start).unwrap_or(PAGE_BYTES);
            let page = self.page(start, bytes).await?.page;
            // The newline of the last line ends it and begins none.
            let breaks = page.data.iter().enumerate().rev();
            let breaks =
                breaks.filter(|(at, byte)| **byte == b'\n' && start + *at as u64 + 1 < size);
            for (at, _) in breaks {
                left = match left.checked_sub(1) {
                    Some(0) | None => return Ok(start + at as u64 + 1),
                    Some(left) => left,
                };
            }
            end = start;
        }
        Ok(end)
    }

    async fn page(&self, offset: u64, bytes: u32) -> Result<NodePage, Status> {
        let (answer, answered) = oneshot::channel();
        let id = self.id;
        let asked = self.driver.tell(OperatorEvent::ReadLog {
            id,
            offset,
            bytes,
            answer,
        });
        asked.map_err(|_| ending())?;
        let late = |_| Status::unavailable("the node that has the log does not answer");
        let answered = tokio::time::timeout(PAGE_WITHIN, answered)
            .await
            .map_err(late)?;
        answered
            .map_err(|_| ending())?
            .map_err(|error| match error {
                LogError::Unknown(refusal) => refused(&refusal),
                LogError::Away { .. } => Status::failed_precondition(error.to_string()),
                LogError::Unreadable { .. } => Status::internal(error.to_string()),
            })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::panic)]
    use super::*;
    use crate::launcher::page;
    use std::path::PathBuf;
    use tokio::sync::mpsc;

    /// Answers as the driver does for a log on its own machine.
    fn driver_of(path: PathBuf) -> Tell<OperatorEvent> {
        let (driver, mut asked) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(OperatorEvent::ReadLog {
                offset,
                bytes,
                answer,
                ..
            }) = asked.recv().await
            {
                let page = page(&path, offset, bytes).unwrap();
                let node = "a".to_owned();
                let _ = answer.send(Ok(NodePage { node, page }));
            }
        });
        Tell::into_channel(&driver)
    }

    fn request(tail_lines: Option<u32>, follow: bool) -> v1::LogsRequest {
        v1::LogsRequest {
            role: "rollout".to_owned(),
            index: 0,
            follow,
            tail_lines,
            from: None,
        }
    }

    fn read(
        path: &std::path::Path,
        request: v1::LogsRequest,
    ) -> mpsc::Receiver<Result<v1::LogPart, Status>> {
        let reader = Reader::new(driver_of(path.to_owned()), &request).unwrap();
        let (to, parts) = mpsc::channel(PARTS_AHEAD);
        tokio::spawn(reader.send(request, to));
        parts
    }

    async fn whole(mut parts: mpsc::Receiver<Result<v1::LogPart, Status>>) -> String {
        let mut all = Vec::new();
        while let Some(part) = parts.recv().await {
            all.extend(part.unwrap().data);
        }
        String::from_utf8(all).unwrap()
    }

    #[tokio::test]
    async fn a_log_is_sent_whole_or_its_last_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        assert_eq!(whole(read(&path, request(Some(3), false))).await, "");
        let lines: Vec<String> = (0..30_000).map(|n| format!("line {n}\n")).collect();
        std::fs::write(&path, lines.concat()).unwrap();
        assert_eq!(
            whole(read(&path, request(None, false))).await,
            lines.concat()
        );
        for last in [0, 1, 2, 20_000, 30_000, 40_000] {
            let from = lines.len().saturating_sub(last);
            let last = u32::try_from(last).unwrap();
            let sent = whole(read(&path, request(Some(last), false))).await;
            assert_eq!(sent, lines[from..].concat(), "the last {last}");
        }
        // One that is being written.
        std::fs::write(&path, "a\nb\nc").unwrap();
        assert_eq!(whole(read(&path, request(Some(2), false))).await, "b\nc");
    }

    #[tokio::test]
    async fn a_followed_log_goes_on_and_begins_anew_when_it_is_another() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        std::fs::write(&path, "first life\n").unwrap();
        let mut parts = read(&path, request(None, true));
        let next = async |parts: &mut mpsc::Receiver<Result<v1::LogPart, Status>>| {
            let part = parts.recv().await.unwrap().unwrap();
            (part.offset, String::from_utf8(part.data).unwrap())
        };
        assert_eq!(next(&mut parts).await, (0, "first life\n".to_owned()));
        std::fs::write(&path, "first life\nsecond\n").unwrap();
        assert_eq!(next(&mut parts).await, (11, "second\n".to_owned()));
        std::fs::write(&path, "elsewhere\n").unwrap();
        assert_eq!(next(&mut parts).await, (0, "elsewhere\n".to_owned()));
    }

    #[tokio::test]
    async fn a_driver_that_is_gone_is_said() {
        let (driver, asked) = mpsc::unbounded_channel::<OperatorEvent>();
        drop(asked);
        let request = request(None, false);
        let reader = Reader::new(Tell::into_channel(&driver), &request).unwrap();
        let (to, mut parts) = mpsc::channel(PARTS_AHEAD);
        reader.send(request, to).await;
        let Some(Err(status)) = parts.recv().await else {
            panic!("it went on");
        };
        assert_eq!(status.code(), tonic::Code::Unavailable);
    }
}
