//! Telling a hybrid engine to pause or to go on, over the part of SGLang's HTTP API for it. A header says
//! that it is the controller's word and not some client's: of an engine that sleeps while its rank trains
//! it means to give the memory back, or to take it again.
//!
//! One command after the other: a later one waits for the answer to the one before, so that a pause
//! can never arrive after the command to go on. There is no deadline here: the core has one, and ends
//! the wait by killing the engine.
use super::{Driver, ProcessEvent};
use crate::engines::status_of;
use robust_engine::SWITCH_HEADER;
use robust_identity::{EngineClient, EngineKey};
use robust_shared::ids::Incarnation;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Pause before a command is tried again whose connection failed.
const AGAIN: Duration = Duration::from_millis(50);

/// A command under way; dropping it ends it and those it waits for.
#[derive(Debug)]
pub(super) struct Switching(JoinHandle<()>);

impl Drop for Switching {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Driver {
    /// Sends the command when the one before it is answered.
    pub(super) fn switch(&mut self, engine: Incarnation, paused: bool) {
        let hello = self.links.hello(engine).unwrap_or_default();
        let key = self.parts.worker.token.engines().of_engine(engine.0);
        let client = self.parts.worker.engine_client();
        let before = self.switches.remove(&engine);
        let events = self.parts.events.clone();
        let task = tokio::spawn(async move {
            if let Some(mut before) = before {
                // Ended or failed: its turn is over.
                let _ = (&mut before.0).await;
            }
            let ok = command(&hello.http_addr, client.as_ref(), &key, paused).await;
            let switched = ProcessEvent::Switched {
                incarnation: engine,
                paused,
                ok,
            };
            // When the driver is gone nobody wants to know.
            let _ = events.send(switched.into());
        });
        self.switches.insert(engine, Switching(task));
    }
}

/// Whether the engine did as told. Without an answer it is asked again: both commands may come twice.
async fn command(addr: &str, client: Option<&EngineClient>, key: &EngineKey, paused: bool) -> bool {
    let (path, body) = match paused {
        true => ("/pause_generation", r#"{"mode": "abort"}"#),
        false => ("/continue_generation", "{}"),
    };
    let (length, shown) = (body.len(), key.bearer());
    let head = format!(
        "POST {path} HTTP/1.1\r\nAuthorization: {shown}\r\nContent-Type: application/json\r\n\
         {SWITCH_HEADER}: 1\r\nContent-Length: {length}"
    );
    loop {
        match status_of(addr, client, &head, body).await {
            Ok(status) => return status == 200,
            Err(error) => tracing::debug!("{addr}{path}: {error}; tried again"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// Answers one request after the other; each is returned as it was read.
    async fn serve(listener: &TcpListener, answer: &str) -> String {
        let (mut peer, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 1024];
        let read = peer.read(&mut request).await.unwrap();
        peer.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8_lossy(&request[..read]).into_owned()
    }

    #[tokio::test]
    async fn a_pause_aborts_what_runs_and_a_refusal_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap().to_string();
        let asked = tokio::spawn({
            let addr = addr.clone();
            async move {
                let key = EngineKey::known("k");
                let paused = command(&addr, None, &key, true).await;
                (paused, command(&addr, None, &key, false).await)
            }
        });
        // The first connection breaks without an answer: the command comes again.
        drop(listener.accept().await.unwrap());
        let pause = serve(&listener, "HTTP/1.1 200 OK\r\n\r\n").await;
        assert!(
            pause.starts_with("POST /pause_generation HTTP/1.1\r\n"),
            "{pause}"
        );
        assert!(pause.contains("\r\nx-robust-switch: 1\r\n"), "{pause}");
        assert!(pause.contains("\r\nAuthorization: Bearer k\r\n"), "{pause}");
        assert!(pause.ends_with("\r\n\r\n{\"mode\": \"abort\"}"), "{pause}");
        let resume = serve(&listener, "HTTP/1.1 500 Oh\r\n\r\n").await;
        assert!(resume.starts_with("POST /continue_generation"), "{resume}");
        assert_eq!(asked.await.unwrap(), (true, false));
    }
}
