//! Keeps a leader's place, in a thread of its own: whatever the rest of the program waits for.
use super::lead::begin_anew;
use super::setting::{HaError, Setting, Since};
use super::site::{Head, Keys, Member, Sign, kept, read};
use crate::grouplog::UnderWay;
use robust_arbiter::{Arbiter, ArbiterError, Compare, LeaseId, Revision, Transacted, Write};
use robust_shared::ha::{self, Act, Election, Event};
use robust_shared::time::Time;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

/// A follower's proof that it can write the log is worth something for so long.
const PROOF: Duration = Duration::from_secs(3);

/// A place that is kept until this is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    ended: Arc<AtomicBool>,
    clock: Since,
    /// Until when the place is kept if the arbiter answers nothing more.
    until: Arc<AtomicU64>,
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
    }
}

impl Keeper {
    /// Begins anew where the place may be somebody else's by now, by this machine's clock: this program stood still, and
    /// its other threads run before the one that keeps the place.
    pub fn check(&self) {
        if self.clock.now().0 > self.until.load(Ordering::Acquire) {
            begin_anew("it stood still for longer than its lease lasts for sure");
        }
    }

    /// Keeps the place that `election` has by this lease, but for a leader that has been writing for too long where another
    /// candidate could.
    pub fn start(
        setting: &Setting,
        (election, clock): (Election, Since),
        (epoch, lease): (Revision, LeaseId),
        under_way: UnderWay,
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
            name: setting.advert.name.clone(),
            proved: Arc::default(),
        };
        let sign = setting.timing.sign;
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let leads_until = |election: &Election| election.leads_until().map_or(0, |until| until.0);
        let until = Arc::new(AtomicU64::new(leads_until(&election)));
        let kept_until = Arc::clone(&until);
        let run = move || {
            runtime.block_on(async move {
                let mut election = election;
                let mut ticks = interval(sign);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
                let (heard, mut events) = tokio::sync::mpsc::unbounded_channel();
                // Since when followers have proved that they can write.
                let mut others: Option<Time> = None;
                while !stop.load(Ordering::Acquire) {
                    let event = tokio::select! {
                        Some(event) = events.recv() => event,
                        _ = ticks.tick() => {
                            let now = clock.now();
                            let lasts = under_way.lasts();
                            others = match place.somebody_can_write(now) {
                                true => others.or(Some(now)),
                                false => None,
                            };
                            let wanted = ha::place(lasts, others.map(|since| now.since(since)));
                            if wanted == ha::Place::GivenUp && !stop.load(Ordering::Acquire) {
                                let lasts = lasts.unwrap_or_default().as_secs();
                                place.give_up(lasts).await;
                            }
                            // Not waited for: one that hangs must not hide that time passes.
                            let waits = wanted != ha::Place::Kept;
                            place.give_sign((clock, waits), heard.clone());
                            Event::Tick
                        }
                    };
                    let act = election.handle(clock.now(), event);
                    if let Some(Act::End { why }) = act
                        && !stop.load(Ordering::Acquire)
                    {
                        begin_anew(&why);
                    }
                    kept_until.store(leads_until(&election), Ordering::Release);
                }
            });
        };
        let builder = thread::Builder::new().name("leads".to_owned());
        builder.spawn(run).map_err(start)?;
        Ok(Self {
            ended,
            clock,
            until,
        })
    }
}

#[derive(Clone)]
struct Place {
    arbiter: Arc<dyn Arbiter>,
    keys: Keys,
    epoch: Revision,
    lease: LeaseId,
    name: String,
    /// The last of this leader's signs since which a follower wrote to the log.
    proved: Arc<AtomicU64>,
}

impl Place {
    fn give_sign(
        &self,
        (clock, waits): (Since, bool),
        heard: tokio::sync::mpsc::UnboundedSender<Event>,
    ) {
        let place = self.clone();
        tokio::spawn(async move {
            let given = clock.now();
            let sign = Sign {
                epoch: place.epoch.0.unsigned_abs(),
                number: given.0,
                waits,
            };
            let (kept, signed) =
                tokio::join!(place.arbiter.keep_alive(place.lease), place.sign(sign));
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
            if waits {
                place.read_proofs(given).await;
            }
        });
    }

    /// What followers have proved to this leader by now, of those that have all of the log and of the job's files: no other could go
    /// on sooner.
    async fn read_proofs(&self, now: Time) {
        let Ok((entries, _)) = self.arbiter.read_prefix(&self.keys.prefix).await else {
            return;
        };
        let head = entries.iter().find(|entry| entry.key == self.keys.head());
        let Some(head) = head.and_then(|entry| read::<Head>(&entry.value)) else {
            return;
        };
        let (ours, members) = (self.keys.member(&self.name), self.keys.members());
        let others = entries
            .iter()
            .filter(|e| e.key.starts_with(&members) && e.key != ours);
        let members = others.filter_map(|entry| read::<Member>(&entry.value));
        let could = |member: &Member| member.applied >= head.at.number && member.lacks.is_none();
        let proofs = members.filter(could);
        let proofs = proofs.filter_map(|member| member.proved);
        let epoch = self.epoch.0.unsigned_abs();
        let proved = proofs.filter(|proof| proof.epoch == epoch && proof.number <= now.0);
        if let Some(last) = proved.map(|proof| proof.number).max() {
            self.proved.fetch_max(last, Ordering::AcqRel);
        }
    }

    fn somebody_can_write(&self, now: Time) -> bool {
        match self.proved.load(Ordering::Acquire) {
            0 => false,
            sign => now.since(Time(sign)) < PROOF,
        }
    }

    /// Another candidate is to lead, as this one has been writing for so long.
    async fn give_up(&self, seconds: u64) -> ! {
        // etcd's own time limit ends this; if it is not reached, the lease is over soon.
        drop(self.arbiter.revoke(self.lease).await);
        begin_anew(&format!(
            "it has been writing for {seconds} s, which another controller could"
        ))
    }

    async fn sign(&self, sign: Sign) -> Result<Transacted, ArbiterError> {
        let ours = Compare::Created {
            key: self.keys.leader(),
            revision: self.epoch,
        };
        let put = Write::Put {
            key: self.keys.sign(),
            value: kept(&sign),
            lease: None,
        };
        self.arbiter.transact(vec![ours], vec![put]).await
    }
}
