//! Ending a fetch from outside, and seeing how far it is.
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::command::{Command, CommandPort};
use crate::error::TransportError;

/// Ends the fetches it was given to, from any thread; clones are the same handle.
///
/// One handle may serve several fetches; after [`Cancel::cancel`] it ends every later one at once.
#[derive(Clone, Default)]
pub struct Cancel(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    bytes: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    cancelled: bool,
    /// Fetches under way: where to say it, and their tickets.
    running: Vec<(Arc<CommandPort>, u64)>,
}

/// A fetch under way; ends it when dropped early, as by a panic of its caller's callback.
pub(crate) struct Running<'a> {
    cancel: &'a Cancel,
    port: &'a Arc<CommandPort>,
    ticket: u64,
}

impl Cancel {
    /// A handle that has not been used.
    pub fn new() -> Cancel {
        Cancel::default()
    }

    /// Ends the fetches with [`crate::FetchError::Cancelled`]. Their link stays open.
    pub fn cancel(&self) {
        let mut state = self.state();
        state.cancelled = true;
        for (port, ticket) in &state.running {
            // If the thread is gone, so is the fetch.
            let _ = port.send(Command::Cancel { ticket: *ticket });
        }
    }

    /// Whether [`Cancel::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.state().cancelled
    }

    /// Bytes that arrived so far by the fetches with this handle, parts not yet whole included.
    pub fn fetched(&self) -> u64 {
        self.0.bytes.load(Ordering::Relaxed)
    }

    /// Where the progress thread counts.
    pub(crate) fn counter(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.0.bytes)
    }

    /// Sends `command`, the fetch `ticket`, unless this was cancelled already (then `None`). In
    /// one step, so that a cancel reaches the progress thread after the fetch.
    pub(crate) fn start<'a>(
        &'a self,
        port: &'a Arc<CommandPort>,
        ticket: u64,
        command: Command,
    ) -> Option<Result<Running<'a>, TransportError>> {
        let mut state = self.state();
        if state.cancelled {
            return None;
        }
        if let Err(error) = port.send(command) {
            return Some(Err(error));
        }
        state.running.push((Arc::clone(port), ticket));
        Some(Ok(Running {
            cancel: self,
            port,
            ticket,
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let ticket = self.ticket;
        self.cancel
            .state()
            .running
            .retain(|(port, other)| *other != ticket || !Arc::ptr_eq(port, self.port));
        if std::thread::panicking() {
            let _ = self.port.send(Command::Cancel { ticket });
        }
    }
}

impl std::fmt::Debug for Cancel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cancel")
            .field("cancelled", &self.is_cancelled())
            .field("fetched", &self.fetched())
            .finish()
    }
}
