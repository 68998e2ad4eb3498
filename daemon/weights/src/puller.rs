//! Takes orders; the newest one counts.
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use robust_shared::weights::TensorSpec;
use robust_transport::Transport;

use crate::pull::Pulls;
use crate::slots::Slots;
use crate::turns::Turns;
use crate::types::{Observer, Order};

/// Fetches versions into the spare one of its [`Slots`]. Dropped: gives up what it does; what is
/// served stays readable as long as the slots live.
pub struct Puller {
    turns: Arc<Turns>,
    /// None only while it is dropped.
    orders: Option<Sender<(u64, Order)>>,
    thread: Option<JoinHandle<()>>,
}

impl Puller {
    /// Starts the puller's thread. Only versions of exactly these tensors are taken.
    pub fn start(
        transport: Transport,
        slots: Arc<Slots>,
        layout: Vec<TensorSpec>,
        observer: Arc<dyn Observer>,
    ) -> std::io::Result<Self> {
        let turns = Arc::new(Turns::default());
        let (orders, queue) = channel();
        let pulls = Pulls::new(transport, slots, layout, observer, Arc::clone(&turns));
        let thread = std::thread::Builder::new()
            .name("puller".into())
            .spawn(move || run(pulls, &queue))?;
        Ok(Self {
            turns,
            orders: Some(orders),
            thread: Some(thread),
        })
    }

    /// Starts this pull; another one that runs is given up.
    pub fn assign(&self, order: Order) {
        let ticket = self.turns.next();
        // Fails only if the thread panicked, and then the process is of no use.
        let sent = self.orders.as_ref().map(|to| to.send((ticket, order)));
        if !matches!(sent, Some(Ok(()))) {
            tracing::error!("the puller is gone");
        }
    }
}

impl Drop for Puller {
    fn drop(&mut self) {
        self.turns.next();
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for Puller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Puller").finish_non_exhaustive()
    }
}

fn run(mut pulls: Pulls, queue: &Receiver<(u64, Order)>) {
    while let Ok((ticket, order)) = queue.recv() {
        pulls.run(ticket, &order);
    }
}
