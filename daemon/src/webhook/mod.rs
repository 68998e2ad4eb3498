//! Alarms and incidents, posted to an address of the operators' (`[alarms] webhook`).
//!
//! ```text
//!  Feeds ── status ──► Book: what is news? ── Queue of 256, never waited for ──► task: POST, again and again ──► receiver
//!                       ▲                                                         │
//!                       └──── when this life began ── store (`w`): what it knows ◄┘
//! ```
//! What the receiver has is in the store, and so in the job's log: a daemon that starts again, or another controller that
//! leads, tells what it has not heard. A document may come twice and has the same `id` then. While the receiver takes nothing
//! the newest of each incident and alarm waits (`backlog.rs`). `robust_webhook_total` counts what is sent, tried again and
//! dropped. Nobody waits for any of it.
//!
//! The address of some receivers is all that one needs to post to them, so neither the log nor a report has more of it than the
//! host.
mod backlog;
mod book;
mod document;
mod receiver;
mod send;
#[cfg(test)]
mod tests;

pub use document::Identity;
pub use receiver::{Receiver, WebhookError};

use crate::metrics::{Hooked, Metrics};
use crate::store::{Store, StoreError};
use backlog::{QUEUED, Queue, Waiting};
use book::{Book, News};
use document::Document;
use robust_proto::v1;
use send::Sender;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio::task::JoinHandle;

/// Posts in the background. Cheap to clone; the task ends with the last clone.
#[derive(Clone)]
pub struct Webhook(Arc<Inner>);

struct Inner {
    queue: Arc<Queue>,
    book: Mutex<Book>,
    about: Identity,
    began: Instant,
    metrics: Arc<Metrics>,
    /// Whether the last document took the place of another one, which is said once.
    overflows: AtomicBool,
    /// It has the store, too; none once it was ended.
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Webhook {
    /// Starts the task, which goes on from what the receiver was told before; to one that never was, these incidents are no
    /// news. Needs a runtime around it.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub fn start(
        receiver: Receiver,
        about: Identity,
        store: &Store,
        (incidents, metrics): (&[v1::Incident], Arc<Metrics>),
    ) -> Result<Self, StoreError> {
        let book = match store.told()? {
            Some(told) => Book::going_on(told),
            None => {
                let book = Book::beginning_with(incidents);
                store.put_told(book.told().clone());
                book
            }
        };
        metrics.webhook();
        let queue = Arc::new(Queue::default());
        let keeping = (store.clone(), book.told().clone());
        let sender = Sender::new(receiver, keeping, Arc::clone(&metrics));
        let task = tokio::spawn(sender.run(Arc::clone(&queue)));
        Ok(Self(Arc::new(Inner {
            queue,
            book: Mutex::new(book),
            about,
            began: Instant::now(),
            metrics,
            overflows: AtomicBool::new(false),
            task: Mutex::new(Some(task)),
        })))
    }

    /// Takes the status. Never waits.
    pub fn status(&self, status: &v1::Status) {
        let inner = &self.0;
        let mut book = inner.book.lock().unwrap_or_else(PoisonError::into_inner);
        let controllers = status.controllers.as_ref();
        let leader = controllers.map(|of| of.leader.as_str());
        // Of several controllers it is not the machine that has a name in the job file.
        let leader = leader.filter(|name| !name.is_empty());
        let age = inner.began.elapsed();
        book.read(status, age, |news| inner.offer(&news, leader));
    }

    /// Waits until what is queued was sent or dropped, at most for so long, and what failed is tried again at once. What is left is told by whoever goes on with the job.
    pub async fn flush(&self, limit: Duration) {
        let idle = self.0.queue.idle();
        self.0.queue.hurry();
        if tokio::time::timeout(limit, idle).await.is_err() {
            tracing::warn!(
                "the webhook's receiver does not take the last documents; not waiting any longer"
            );
        }
    }

    /// Ends the task after the last words, for which it has so long: the store is let go when this returns.
    pub async fn end(&self, limit: Duration) {
        self.flush(limit).await;
        let task = self.0.task.lock();
        let task = task.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
            // That it was ended is what it says.
            let _ = task.await;
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let task = self.task.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl Inner {
    fn offer(&self, news: &News<'_>, leader: Option<&str>) {
        let mut about = self.about.clone();
        if let Some(leader) = leader {
            leader.clone_into(&mut about.leader);
        }
        // Where the task was ended, whoever goes on with the job tells it.
        let waiting = Waiting::new(Document::of(news, &about, now_ms()));
        if !self.queue.push(waiting) {
            return self.overflows.store(false, Ordering::Relaxed);
        }
        self.metrics.hooked(Hooked::Dropped, 1);
        if !self.overflows.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "{QUEUED} documents wait for the webhook's receiver: the oldest are dropped"
            );
        }
    }
}

/// Milliseconds since 1970, for people and for other machines' logs.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |d| u64::try_from(d.as_millis()).unwrap_or(u64::MAX))
}
