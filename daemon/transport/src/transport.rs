//! The handle that callers hold.
use std::net::SocketAddr;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::buffer::Buffer;
use crate::command::{Command, CommandPort, FetchCommand, FetchEvent, command_channel};
use crate::config::Config;
use crate::engine;
use crate::error::{FetchError, TransportError};
use crate::inbox::Inbox;
use crate::key::{Part, RegionKey};
use crate::stats::{Counters, Stats};

/// Longest message of [`Transport::notify`].
pub const MAX_MESSAGE_BYTES: usize = 4096;

/// A listening transport with its progress thread. Clones share it; the last one dropped closes
/// all connections and waits for the thread to end.
#[derive(Clone)]
pub struct Transport {
    inner: Arc<Inner>,
}

struct Inner {
    port: Arc<CommandPort>,
    shared: Arc<Shared>,
    addr: SocketAddr,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the progress thread hands to callers without being asked.
#[derive(Default)]
pub(crate) struct Shared {
    pub inbox: Inbox,
    pub counters: Counters,
}

/// A buffer that peers may read; dropping it withdraws the permission.
pub struct Exposed {
    port: Arc<CommandPort>,
    key: RegionKey,
    buffer: Arc<Buffer>,
}

impl Transport {
    /// Starts the progress thread and listens.
    pub fn start(config: Config) -> Result<Transport, TransportError> {
        let io = |doing| move |source| TransportError::Io { doing, source };
        let (port, queue) = command_channel().map_err(io("creating an eventfd"))?;
        let shared = Arc::new(Shared::default());
        let (ready, started) = channel();
        let thread = std::thread::Builder::new()
            .name("transport".into())
            .spawn({
                let shared = Arc::clone(&shared);
                move || engine::run(&config, queue, shared, ready)
            })
            .map_err(io("starting the progress thread"))?;
        let addr = match started.recv() {
            Ok(Ok(addr)) => addr,
            Ok(Err(error)) => {
                let _ = thread.join();
                return Err(error);
            }
            Err(_) => {
                let _ = thread.join();
                return Err(TransportError::Shutdown);
            }
        };
        let inner = Inner {
            port: Arc::new(port),
            shared,
            addr,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Transport {
            inner: Arc::new(inner),
        })
    }

    /// Where peers connect.
    pub fn addr(&self) -> SocketAddr {
        self.inner.addr
    }

    /// Lets peers read `buffer` until the returned value is dropped.
    pub fn expose(&self, buffer: Arc<Buffer>) -> Result<Exposed, TransportError> {
        let (reply, answer) = channel();
        self.inner.port.send(Command::Expose {
            buffer: Arc::clone(&buffer),
            reply,
        })?;
        let key = answer.recv().map_err(|_| TransportError::Shutdown)??;
        Ok(Exposed {
            port: Arc::clone(&self.inner.port),
            key,
            buffer,
        })
    }

    /// Reads `parts` of the region `key` of `peer` into `into`; blocks until all of it arrived or
    /// the fetch failed. `on_progress` is called on this thread with the bytes done so far.
    /// After a failure nothing is written into `into` any more.
    pub fn fetch(
        &self,
        peer: SocketAddr,
        key: &RegionKey,
        parts: &[Part],
        into: &Arc<Buffer>,
        mut on_progress: impl FnMut(u64) + Send,
    ) -> Result<u64, FetchError> {
        check_parts(key, parts, into)?;
        let (events, incoming) = channel();
        let command = FetchCommand {
            peer,
            key: *key,
            parts: parts.iter().copied().filter(|part| part.len > 0).collect(),
            into: into.begin_fetch()?,
            events,
        };
        self.inner
            .port
            .send(Command::Fetch(command))
            .map_err(|_| FetchError::Shutdown)?;
        loop {
            match incoming.recv() {
                Ok(FetchEvent::Progress(done)) => on_progress(done),
                Ok(FetchEvent::Ended(result)) => return result,
                Err(_) => return Err(FetchError::Shutdown),
            }
        }
    }

    /// Sends a small message and blocks until it was handed to the network. Messages to one peer
    /// arrive in the order sent, at most once; those under way when a connection fails are lost.
    pub fn notify(&self, peer: SocketAddr, message: &[u8]) -> Result<(), TransportError> {
        if message.len() > MAX_MESSAGE_BYTES {
            let (len, max) = (message.len(), MAX_MESSAGE_BYTES);
            return Err(TransportError::MessageTooLong { len, max });
        }
        let (reply, answer) = channel();
        self.inner.port.send(Command::Notify {
            peer,
            message: message.to_vec(),
            reply,
        })?;
        answer.recv().map_err(|_| TransportError::Shutdown)?
    }

    /// Takes the next received message, if there is one.
    pub fn try_recv(&self) -> Option<Vec<u8>> {
        self.inner.shared.inbox.try_pop()
    }

    /// Waits for the next message.
    pub fn recv_timeout(&self, limit: Duration) -> Option<Vec<u8>> {
        self.inner.shared.inbox.pop_timeout(limit)
    }

    /// Closes the connection to `peer` at once; what is under way on it fails. A later call to
    /// the same peer connects again.
    pub fn disconnect(&self, peer: SocketAddr) {
        // If the thread is gone, so are its connections.
        let _ = self.inner.port.send(Command::Disconnect { peer });
    }

    /// Counters up to now.
    pub fn stats(&self) -> Stats {
        self.inner.shared.counters.snapshot()
    }
}

impl std::fmt::Debug for Transport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transport")
            .field("addr", &self.addr())
            .finish_non_exhaustive()
    }
}

impl Exposed {
    /// What peers need to read the buffer.
    pub fn key(&self) -> &RegionKey {
        &self.key
    }

    /// The exposed buffer.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.buffer
    }
}

impl Drop for Exposed {
    fn drop(&mut self) {
        // If the thread is gone, the registration went with it.
        let _ = self.port.send(Command::Unexpose {
            region: self.key.region,
        });
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let _ = self.port.send(Command::Stop);
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the transport's progress thread had panicked");
        }
    }
}

fn check_parts(key: &RegionKey, parts: &[Part], into: &Buffer) -> Result<(), FetchError> {
    let (region, buffer) = (key.len, into.len() as u64);
    let fits = |at: u64, len: u64, bound| at.checked_add(len).is_some_and(|end| end <= bound);
    for (index, part) in parts.iter().enumerate() {
        let Part { src, dst, len } = *part;
        if !fits(src, len, region) || !fits(dst, len, buffer) {
            return Err(FetchError::Bounds {
                part: index,
                src,
                dst,
                len,
                region,
                buffer,
            });
        }
    }
    Ok(())
}
