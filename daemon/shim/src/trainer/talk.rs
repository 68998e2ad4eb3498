//! The socket on which a rank's program asks.
//!
//! One program speaks at a time: a second connection is told so and closed, unless the first has ended.
//! What is asked comes out of one channel, in its order; each question has its answer sent back where it
//! came from. A line that is none of the protocol's is answered with what is wrong with it.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::words::{Answer, Ask};

/// No layout of a model makes a longer line.
const LONGEST_LINE: u64 = 256 << 20;

/// A question, and where its answer goes.
pub type Asked = (Ask, oneshot::Sender<Answer>);

/// Listens at `path`; questions go to `asked` until nobody wants them.
pub fn listen(path: &Path, asked: UnboundedSender<Asked>) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    let taken = Arc::new(AtomicBool::new(false));
    tokio::spawn(async move {
        while !asked.is_closed() {
            match listener.accept().await {
                Ok((stream, _)) => {
                    let speaking = speak(stream, asked.clone(), Arc::clone(&taken));
                    tokio::spawn(async move {
                        if let Err(error) = speaking.await {
                            tracing::debug!(%error, "the program's connection ended");
                        }
                    });
                }
                Err(error) => {
                    tracing::error!(%error, "the program's socket does not listen any more");
                    return;
                }
            }
        }
    });
    Ok(())
}

/// Frees the place of the one who speaks.
struct Place(Arc<AtomicBool>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

async fn speak(
    stream: UnixStream,
    asked: UnboundedSender<Asked>,
    taken: Arc<AtomicBool>,
) -> io::Result<()> {
    let (reading, mut writing) = stream.into_split();
    if taken.swap(true, Ordering::SeqCst) {
        let reason =
            "another process of this rank is attached; only the one that called attach() may \
                      speak for it"
                .to_owned();
        return say(&mut writing, &Answer::Error { reason }).await;
    }
    let _place = Place(taken);
    let mut reading = BufReader::new(reading);
    let mut line = String::new();
    loop {
        line.clear();
        let mut limited = (&mut reading).take(LONGEST_LINE);
        if limited.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let answer = match serde_json::from_str(&line) {
            Ok(ask) => {
                let (to, answer) = oneshot::channel();
                if asked.send((ask, to)).is_err() {
                    return Ok(());
                }
                match answer.await {
                    Ok(answer) => answer,
                    Err(_) => return Ok(()),
                }
            }
            Err(error) => Answer::Error {
                reason: format!("the line is none of the protocol's: {error}"),
            },
        };
        say(&mut writing, &answer).await?;
    }
}

async fn say(writing: &mut (impl AsyncWriteExt + Unpin), answer: &Answer) -> io::Result<()> {
    let mut text = serde_json::to_vec(answer)?;
    text.push(b'\n');
    writing.write_all(&text).await
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::sync::mpsc;

    async fn line(reading: &mut (impl AsyncBufReadExt + Unpin)) -> String {
        let mut line = String::new();
        reading.read_line(&mut line).await.unwrap();
        line.trim_end().to_owned()
    }

    #[tokio::test]
    async fn questions_are_answered_one_by_one_and_a_second_program_is_told_to_go() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let (asked, mut questions) = mpsc::unbounded_channel();
        listen(&path, asked).unwrap();
        let (reading, mut writing) = UnixStream::connect(&path).await.unwrap().into_split();
        let mut reading = BufReader::new(reading);
        writing.write_all(b"{\"ask\":\"restore\"}\n").await.unwrap();
        let (ask, to) = questions.recv().await.unwrap();
        assert_eq!(ask, Ask::Restore);
        to.send(Answer::State {
            step: 3,
            places: Vec::new(),
        })
        .unwrap();
        let said = line(&mut reading).await;
        assert_eq!(said, r#"{"answer":"state","step":3,"places":[]}"#);
        writing.write_all(b"{\"ask\":\"restor\"}\n").await.unwrap();
        assert!(line(&mut reading).await.contains("none of the protocol's"));
        let second = UnixStream::connect(&path).await.unwrap();
        let said = line(&mut BufReader::new(second)).await;
        assert!(said.contains("another process of this rank"), "{said}");
        // Once the first is gone there is a place again.
        drop((reading, writing));
        loop {
            let (reading, mut writing) = UnixStream::connect(&path).await.unwrap().into_split();
            writing.write_all(b"{\"ask\":\"batch\"}\n").await.unwrap();
            let mut reading = BufReader::new(reading);
            tokio::select! {
                Some((ask, _)) = questions.recv() => {
                    assert_eq!(ask, Ask::Batch);
                    break;
                }
                said = line(&mut reading) => assert!(said.contains("another process"), "{said}"),
            }
        }
    }
}
