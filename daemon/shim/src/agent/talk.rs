//! The socket on which an environment's program speaks and is told.
//!
//! One program at a time, as [`crate::trainer`]'s: a second connection is told so and closed. Lines come out
//! of one channel in their order; what is told goes in by another.

use std::io;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};

use super::words::{Said, Told};

/// No conversation makes a longer line.
const LONGEST_LINE: u64 = 64 << 20;

/// Listens at `path`: what is said goes to `said`, what comes out of `told` is told.
pub fn listen(
    path: &Path,
    said: UnboundedSender<Said>,
    mut told: UnboundedReceiver<Told>,
) -> io::Result<()> {
    let listener = UnixListener::bind(path)?;
    tokio::spawn(async move {
        let Ok((stream, _)) = listener.accept().await else {
            return;
        };
        let (reading, mut writing) = stream.into_split();
        let hears = tokio::spawn(hear(reading, said));
        loop {
            tokio::select! {
                next = told.recv() => match next {
                    Some(told) if say(&mut writing, &told).await.is_ok() => {}
                    _ => break,
                },
                Ok((second, _)) = listener.accept() => turn_away(second).await,
            }
        }
        hears.abort();
    });
    Ok(())
}

async fn turn_away(mut second: UnixStream) {
    let reason = "another process of this worker is attached; one speaks for all conversations";
    let reason = reason.to_owned();
    // It may be gone already.
    let _ = say(&mut second, &Told::Error { reason }).await;
}

async fn hear(reading: impl tokio::io::AsyncRead + Unpin, said: UnboundedSender<Said>) {
    let mut reading = BufReader::new(reading);
    let mut line = String::new();
    loop {
        line.clear();
        let mut limited = (&mut reading).take(LONGEST_LINE);
        match limited.read_line(&mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match serde_json::from_str(&line) {
            Ok(word) => {
                if said.send(word).is_err() {
                    return;
                }
            }
            Err(error) => tracing::error!(%error, "the program's line is none of the protocol's"),
        }
    }
}

async fn say(writing: &mut (impl AsyncWriteExt + Unpin), told: &Told) -> io::Result<()> {
    let mut text = serde_json::to_vec(told)?;
    text.push(b'\n');
    writing.write_all(&text).await
}
