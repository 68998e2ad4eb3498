//! Received messages on their way from the progress thread to whoever asks for them.
use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Longest message of [`crate::Transport::notify`].
pub const MAX_MESSAGE_BYTES: usize = 4096;
/// Messages kept for a caller that does not take them; at 4 KiB each this is 64 MiB.
const CAPACITY: usize = 16 * 1024;

#[derive(Default)]
pub(crate) struct Inbox {
    queue: Mutex<VecDeque<Vec<u8>>>,
    arrived: Condvar,
}

impl Inbox {
    /// False if the inbox is full and the message was dropped.
    #[must_use]
    pub fn push(&self, message: Vec<u8>) -> bool {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= CAPACITY {
            return false;
        }
        queue.push_back(message);
        self.arrived.notify_one();
        true
    }

    pub fn try_pop(&self) -> Option<Vec<u8>> {
        self.queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop_front()
    }

    pub fn pop_timeout(&self, limit: Duration) -> Option<Vec<u8>> {
        let deadline = Instant::now() + limit;
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(message) = queue.pop_front() {
                return Some(message);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            (queue, _) = self
                .arrived
                .wait_timeout(queue, left)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }
}
