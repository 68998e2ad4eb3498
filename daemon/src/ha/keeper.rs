//! Keeps a leader's place, in a thread of its own: whatever the rest of the program waits for.
use super::lead::begin_anew;
use super::setting::{HaError, Setting, Since};
use super::site::Keys;
use robust_arbiter::{Arbiter, ArbiterError, Compare, LeaseId, Revision, Transacted, Write};
use robust_shared::ha::{Act, Election, Event};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use tokio::time::{MissedTickBehavior, interval};

/// A place that is kept until this is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    ended: Arc<AtomicBool>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl Keeper {
    /// Keeps the place that `election` has by this lease.
    pub fn start(
        setting: &Setting,
        (election, clock): (Election, Since),
        (epoch, lease): (Revision, LeaseId),
    ) -> Result<Self, HaError> {
        let start = |source| HaError::Start {
            what: "the thread that keeps the leader's place",
            source,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(start)?;
        // A connection of its own, too.
        let arbiter = setting.arbiter()?;
        let place = Place {
            arbiter: Arc::new(arbiter),
            keys: setting.keys(),
            epoch,
            lease,
        };
        let sign = setting.timing.sign;
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let run = move || {
            runtime.block_on(async move {
                let mut election = election;
                let mut ticks = interval(sign);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let (heard, mut events) = tokio::sync::mpsc::unbounded_channel();
                while !stop.load(Ordering::Acquire) {
                    let event = tokio::select! {
                        Some(event) = events.recv() => event,
                        _ = ticks.tick() => {
                            // Not waited for: one that hangs must not hide that time passes.
                            place.give_sign(clock, heard.clone());
                            Event::Tick
                        }
                    };
                    if let Some(Act::End { why }) = election.handle(clock.now(), event)
                        && !stop.load(Ordering::Acquire)
                    {
                        begin_anew(&why);
                    }
                }
            });
        };
        let builder = thread::Builder::new().name("leads".to_owned());
        builder.spawn(run).map_err(start)?;
        Ok(Self { ended })
    }
}

#[derive(Clone)]
struct Place {
    arbiter: Arc<dyn Arbiter>,
    keys: Keys,
    epoch: Revision,
    lease: LeaseId,
}

impl Place {
    fn give_sign(&self, clock: Since, heard: tokio::sync::mpsc::UnboundedSender<Event>) {
        let place = self.clone();
        tokio::spawn(async move {
            let given = clock.now();
            let (kept, signed) =
                tokio::join!(place.arbiter.keep_alive(place.lease), place.sign(given.0));
            // Nobody hears any more: the place was given up.
            let tell = |event| drop(heard.send(event));
            match kept {
                Ok(_) => tell(Event::Answered { given }),
                Err(ArbiterError::LeaseOver { .. }) => tell(Event::LeaseOver),
                // The next one is asked soon; that too few are answered is seen by the time.
                Err(_) => {}
            }
            if let Ok(Transacted::Refused { .. }) = signed {
                tell(Event::Seen(None));
            }
        });
    }

    async fn sign(&self, number: u64) -> Result<Transacted, ArbiterError> {
        let ours = Compare::Created {
            key: self.keys.leader(),
            revision: self.epoch,
        };
        let sign = Write::Put {
            key: self.keys.sign(),
            value: number.to_string().into_bytes(),
            lease: None,
        };
        self.arbiter.transact(vec![ours], vec![sign]).await
    }
}
