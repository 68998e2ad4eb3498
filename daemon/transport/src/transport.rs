//! The handle that callers hold.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use xxhash_rust::xxh3::xxh3_64;

use crate::address::Address;
use crate::buffer::{Buffer, FetchConflict, FetchGuard, PartBytes};
use crate::cancel::Cancel;
use crate::command::{Command, CommandPort, FetchCommand, FetchEvent, Trouble, command_channel};
use crate::config::{Config, Net};
use crate::engine;
use crate::error::{BufferError, FetchError, TransportError};
use crate::exposed::Exposed;
use crate::inbox::MAX_MESSAGE_BYTES;
use crate::key::{Part, RegionKey};
use crate::road::RoadKind;
use crate::share::Share;
use crate::shared::Shared;
use crate::stats::Stats;

/// A listening transport with its progress thread. Clones share it; the last one dropped closes
/// all connections and waits for the thread to end.
#[derive(Clone)]
pub struct Transport {
    inner: Arc<Inner>,
}

struct Inner {
    port: Arc<CommandPort>,
    tickets: AtomicU64,
    shared: Arc<Shared>,
    addr: Address,
    net: Option<RoadKind>,
    share: Share,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A part of a fetch that is there.
#[derive(Clone)]
pub struct Arrived<'a> {
    /// Its index among the parts asked for.
    pub part: usize,
    bytes: PartBytes<'a>,
    digest: Option<u64>,
    road: Option<RoadKind>,
}

impl Arrived<'_> {
    /// The road that it took; none for one without bytes.
    pub fn road(&self) -> Option<RoadKind> {
        self.road
    }

    /// Its bytes, in the target buffer; none if that is on a device.
    pub fn bytes(&self) -> Option<&[u8]> {
        match self.bytes {
            PartBytes::Here(bytes) => Some(bytes),
            PartBytes::On(..) => None,
        }
    }

    /// XXH3-64 (seed 0) of the bytes. As a rule it was computed while they were copied to their
    /// place, or to staging on the way there; otherwise (very short, or pieces that came out of
    /// order) it is computed now, for which a device has to be read again.
    pub fn digest(&self) -> Result<u64, BufferError> {
        match (self.digest, &self.bytes) {
            (Some(digest), _) => Ok(digest),
            (None, PartBytes::Here(bytes)) => Ok(xxh3_64(bytes)),
            (None, PartBytes::On(buffer, range)) => buffer.digest(range.clone()),
        }
    }

    /// BLAKE3 of the bytes, computed now; a device is read again for it.
    pub fn blake3(&self) -> Result<[u8; 32], BufferError> {
        match &self.bytes {
            PartBytes::Here(bytes) => Ok(*blake3::hash(bytes).as_bytes()),
            PartBytes::On(buffer, range) => buffer.blake3(range.clone()),
        }
    }
}

impl Transport {
    /// Starts the progress thread and listens.
    pub fn start(config: Config) -> Result<Transport, TransportError> {
        let io = |doing| move |source| TransportError::Io { doing, source };
        let (port, queue) = command_channel().map_err(io("creating an eventfd"))?;
        let shared = Arc::new(Shared::default());
        let port = Arc::new(port);
        let (ready, started) = channel();
        let (net, share) = (config.net.as_ref().map(Net::kind), config.share.clone());
        let thread = std::thread::Builder::new()
            .name("transport".into())
            .spawn({
                let (shared, port) = (Arc::clone(&shared), Arc::clone(&port));
                move || engine::run(&config, queue, (shared, port), ready)
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
            port,
            tickets: AtomicU64::new(1),
            shared,
            addr,
            net,
            share,
            thread: Mutex::new(Some(thread)),
        };
        Ok(Transport {
            inner: Arc::new(inner),
        })
    }

    /// What part of a core its thread may take, and others that move weights for it should.
    pub fn share(&self) -> &Share {
        &self.inner.share
    }

    /// Where peers connect.
    pub fn addr(&self) -> Address {
        self.inner.addr
    }

    /// The road by which all those of other machines come here, beside which RDMA may be; none: they do not.
    pub fn net(&self) -> Option<RoadKind> {
        self.inner.net
    }

    /// Lets peers read `buffer` until the returned value is dropped.
    pub fn expose(&self, buffer: Arc<Buffer>) -> Result<Exposed, TransportError> {
        self.register(buffer, false)
    }

    /// Like [`Transport::expose`], but nothing can be read before [`Exposed::ready`] says so:
    /// reads of other bytes wait here, and pullers are told that they wait for this transport's
    /// own bytes. Dropping the returned value refuses them.
    pub fn expose_growing(&self, buffer: Arc<Buffer>) -> Result<Exposed, TransportError> {
        self.register(buffer, true)
    }

    fn register(&self, buffer: Arc<Buffer>, growing: bool) -> Result<Exposed, TransportError> {
        let (reply, answer) = channel();
        self.inner.port.send(Command::Expose {
            buffer: Arc::clone(&buffer),
            growing,
            reply,
        })?;
        let key = answer.recv().map_err(|_| TransportError::Shutdown)??;
        Ok(Exposed::new(Arc::clone(&self.inner.port), key, buffer))
    }

    /// Reads `parts` of the region `key` of `peer` into `into`; blocks until all of it arrived or
    /// the fetch failed, and answers with the bytes. `arrived` is called on this thread once for
    /// each part, when all of it is there; the transfer of others goes on meanwhile. After a
    /// failure nothing is written into `into` any more.
    pub fn fetch(
        &self,
        peer: Address,
        key: &RegionKey,
        parts: &[Part],
        into: &Arc<Buffer>,
        cancel: &Cancel,
        mut arrived: impl FnMut(Arrived<'_>),
    ) -> Result<u64, FetchError> {
        let guard = Arc::new(guard_parts(key, parts, into)?);
        let (events, incoming) = channel();
        let ticket = self.inner.tickets.fetch_add(1, Ordering::Relaxed);
        let command = Command::Fetch(FetchCommand {
            ticket,
            peer,
            key: *key,
            parts: parts.to_vec(),
            into: Arc::clone(&guard),
            bytes: cancel.counter(),
            events,
        });
        let _running = match cancel.start(&self.inner.port, ticket, command) {
            None => return Err(FetchError::Cancelled),
            Some(started) => started.map_err(|_| FetchError::Shutdown)?,
        };
        loop {
            match incoming.recv() {
                Ok(FetchEvent::Arrived { part, digest, road }) => {
                    guard.arrived(part, |bytes| {
                        arrived(Arrived {
                            part,
                            bytes,
                            digest,
                            road,
                        });
                    });
                }
                Ok(FetchEvent::Ended(result)) => return result,
                Err(_) => return Err(FetchError::Shutdown),
            }
        }
    }

    /// Sends a small message and blocks until it was handed to the network. Messages to one peer
    /// arrive in the order sent, at most once; those under way when a connection fails are lost.
    pub fn notify(&self, peer: Address, message: &[u8]) -> Result<(), TransportError> {
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
    pub fn disconnect(&self, peer: Address) {
        // If the thread is gone, so are its connections.
        let _ = self.inner.port.send(Command::Disconnect { peer });
    }

    /// Asks how many callers were turned away so far, now and after the transport's end; see [`Stats`].
    pub fn refused(&self) -> impl Fn() -> u64 + Send + Sync + 'static {
        let shared = Arc::clone(&self.inner.shared);
        move || shared.counters.snapshot().refused
    }

    /// For drills: nothing works between this transport and that of `peer` for so long, in both
    /// directions; see [`Trouble`]. A cut of no duration closes connections and lets them be made
    /// again.
    pub fn impair(&self, peer: Address, trouble: Trouble, lasts: Duration) {
        // If the thread is gone, nothing works anyway.
        let _ = self.inner.port.send(Command::Impair {
            peer,
            trouble,
            lasts,
        });
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

/// Checks bounds and takes the parts' bytes.
pub(crate) fn guard_parts(
    key: &RegionKey,
    parts: &[Part],
    into: &Arc<Buffer>,
) -> Result<FetchGuard, FetchError> {
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
    // Within the buffer, so they fit a usize.
    let range = |part: &Part| part.dst as usize..(part.dst + part.len) as usize;
    FetchGuard::new(into, parts.iter().map(range).collect()).map_err(|conflict| match conflict {
        FetchConflict::Overlap(part) => FetchError::Overlap { part },
        FetchConflict::Busy(busy) => FetchError::Buffer(busy),
    })
}
