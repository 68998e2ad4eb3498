//! A candidate that does not lead: it follows the log, and the leader's signs.
use super::keeper::Keeper;
use super::lead::Lead;
use super::setting::{HaError, Setting, Since};
use super::signs::Signs;
use super::site::{Advert, Head, Keys, Sign, kept, read};
use super::standby::{Candidacy, Standby};
use super::tail::Tail;
use super::takeover::{Stage, Takeover};
use crate::files::{Following as FollowingFiles, Manifest};
use crate::grouplog::{UnderWay, write_files};
use crate::store::Replica;
use futures::StreamExt;
use robust_arbiter::{
    Arbiter, Change, Changed, Compare, Entry, Etcd, Lease, LeaseId, Revision, Transacted, Write,
};
use robust_grouplog::Seal;
use robust_shared::ha::{Act, Election, Event, Leader};
use robust_shared::time::Time;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Between two tries to reach etcd.
const RETRY: Duration = Duration::from_millis(100);
/// One whose store is behind the log lets the others ask for the leader's place first: it would have to read the rest before
/// it leads. So long at most, for they may all be gone.
const BEHIND: Duration = Duration::from_secs(2);
/// An error of etcd that lasts is said so often.
const SAID_EVERY: u32 = 50;

/// How following ended.
#[derive(Debug)]
pub enum Followed {
    /// This candidate leads, and its state directory has all that counts.
    Leads(Arc<Lead>),
    /// The job is over, in this way.
    Over(String),
}

/// A candidate.
#[derive(Debug)]
pub struct Candidate {
    setting: Setting,
    seal: Arc<Seal>,
    under_way: UnderWay,
    stands: watch::Sender<Candidacy>,
}

impl Candidate {
    /// With these settings; `seal` opens the log's files, and `under_way` tells a leader's watchdog how long it has been
    /// writing.
    pub fn new(setting: Setting, seal: Seal, under_way: UnderWay) -> Self {
        let first = Candidacy {
            name: setting.advert.name.clone(),
            job: setting.job.clone(),
            ..Candidacy::default()
        };
        Self {
            setting,
            seal: Arc::new(seal),
            under_way,
            stands: watch::channel(first).0,
        }
    }

    /// How it stands, for as long as it follows.
    pub fn stands(&self) -> watch::Receiver<Candidacy> {
        self.stands.subscribe()
    }

    /// Until it leads, or the job is over.
    ///
    /// # Errors
    /// When the log is damaged, or the store cannot be written.
    pub async fn follow(&self) -> Result<Followed, HaError> {
        let setting = &self.setting;
        let arbiter = setting.arbiter()?;
        let replica = Replica::open(setting.state.root())?;
        let standby = Standby::start(setting, self.stands.clone())?;
        let tail = Tail::start(setting, Arc::clone(&self.seal), replica);
        let files = FollowingFiles::start(setting.holder.clone());
        let (told, mut heard) = unbounded_channel();
        let clock = Since::begin();
        let mut following = Following {
            setting,
            keys: setting.keys(),
            election: Election::new(&setting.advert.name, setting.timing),
            clock,
            arbiter,
            tail,
            files,
            standby,
            signs: Signs::new(setting)?,
            takeover: Takeover::new(clock),
            told,
            sign: None,
            run: None,
            failures: 0,
            over: None,
        };
        loop {
            let (entries, revision) = following.read().await;
            let ready = following.ready();
            let mut next = ready.or(following.begin_with(entries));
            let mut watch = following
                .arbiter
                .watch(&following.keys.prefix, revision.next());
            let mut ticks = interval(setting.timing.sign);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                if let Some(over) = following.over.take() {
                    return Ok(Followed::Over(over));
                }
                while let Some(act) = next.take() {
                    match following.act(act).await? {
                        Acted::Leads {
                            lease,
                            epoch,
                            asked,
                        } => {
                            return self.lead(following, (epoch, lease), asked).await;
                        }
                        Acted::Heard(event) => next = following.hear(event),
                        Acted::Nothing => {}
                    }
                }
                next = tokio::select! {
                    changed = watch.next() => match changed {
                        Some(Ok(changed)) => following.changed(changed),
                        // What was missed is read.
                        _ => break,
                    },
                    Some(event) = heard.recv() => following.hear(event),
                    () = following.files.changed() => following.ready(),
                    _ = ticks.tick() => {
                        let (applied, now) = (following.tail.applied(), clock.now());
                        following.standby.reads(applied, following.tail.told());
                        let has = (applied, following.files.standing());
                        following.signs.give(has, following.told.clone(), now);
                        following.hear(Event::Tick)
                    }
                };
                if following.tail.has_failed() {
                    return Err(following.tail.caught_up().await.err().unwrap_or_else(gone));
                }
            }
            sleep(RETRY).await;
        }
    }

    /// The place is this candidate's: its state directory gets all that counts, and then it leads.
    async fn lead(
        &self,
        following: Following<'_>,
        (epoch, lease): (Revision, LeaseId),
        asked: Time,
    ) -> Result<Followed, HaError> {
        let setting = &self.setting;
        let Following {
            mut election,
            clock,
            arbiter,
            tail,
            files,
            keys,
            standby,
            takeover,
            ..
        } = following;
        takeover.ends(Stage::Election);
        let number = epoch.0.unsigned_abs();
        let won = Event::Won {
            epoch: number,
            asked,
        };
        if let Some(Act::End { why }) = election.handle(clock.now(), won) {
            super::lead::begin_anew(&why);
        }
        // What the store lacks is waited for as a write is: somebody else may have it.
        let catching_up = self.under_way.begin();
        let watched = self.under_way.clone();
        let keeper = Keeper::start(setting, (election, clock), (epoch, lease), watched)?;
        tracing::info!("{} leads, in epoch {number}", setting.advert.name);
        // Only what is read now has all of the leader before: it can register nothing more.
        let head = loop {
            match arbiter.read(&keys.head()).await {
                Ok(entry) => break entry,
                Err(error) => {
                    tracing::warn!("the log's head cannot be read: {error}");
                    sleep(RETRY).await;
                }
            }
        };
        let head = head.and_then(|entry| Some((read::<Head>(&entry.value)?, entry.modified)));
        if let Some((head, _)) = &head {
            if let Some(over) = &head.over {
                drop(keeper);
                let _ = arbiter.revoke(lease).await;
                return Ok(Followed::Over(over.clone()));
            }
            tail.follow(head.clone());
        }
        let replica = tail.caught_up().await?;
        if head.is_some() {
            replica.forget_processes()?;
            write_files(&replica, &setting.state, Some(&self.seal))?;
        }
        drop(files);
        if let Some(why) = self.lacks().await? {
            // It was elected by an earlier record, or by none.
            drop(keeper);
            drop(arbiter.revoke(lease).await);
            super::lead::begin_anew(&why);
        }
        drop(replica);
        drop(catching_up);
        takeover.ends(Stage::Log);
        standby.end().await;
        let lead = Lead::new(setting, (epoch, lease), head, (keeper, takeover))?;
        Ok(Followed::Leads(Arc::new(lead)))
    }

    /// What it lacks of the files that the log, as it is now, says the job is made of; none: it has all.
    async fn lacks(&self) -> Result<Option<String>, HaError> {
        let holder = &self.setting.holder;
        let Some(manifest) = Manifest::read(&holder.state)? else {
            return Ok(None);
        };
        let look = holder.look(&manifest).await?;
        let differs = look.differs.first().map(ToString::to_string);
        let lacking = look.lacking();
        let lacks = lacking.first().map(|file| {
            format!(
                "it lacks {} of the job's files, {} among them",
                lacking.len(),
                file.name
            )
        });
        Ok(differs.or(lacks))
    }
}

fn gone() -> HaError {
    HaError::Start {
        what: "the replica of the log",
        source: std::io::ErrorKind::BrokenPipe.into(),
    }
}

/// What came of something that was done.
enum Acted {
    Nothing,
    Heard(Event),
    Leads {
        lease: LeaseId,
        epoch: Revision,
        asked: Time,
    },
}

struct Following<'a> {
    setting: &'a Setting,
    keys: Keys,
    election: Election,
    clock: Since,
    arbiter: Etcd,
    tail: Tail,
    files: FollowingFiles,
    standby: Standby,
    signs: Signs,
    takeover: Takeover,
    told: UnboundedSender<Event>,
    /// The change of the leader's last sign that was seen.
    sign: Option<Revision>,
    /// The life of the job whose log is followed.
    run: Option<String>,
    failures: u32,
    over: Option<String>,
}

impl Following<'_> {
    fn hear(&mut self, event: Event) -> Option<Act> {
        self.election.handle(self.clock.now(), event)
    }

    /// Whether it has what it needs to lead, by now.
    fn ready(&mut self) -> Option<Act> {
        let standing = self.files.standing();
        self.standby.has(&standing);
        self.hear(Event::Ready(standing.has_all()))
    }

    /// All that there is now, however long that takes.
    async fn read(&mut self) -> (Vec<Entry>, Revision) {
        loop {
            match self.arbiter.read_prefix(&self.keys.prefix).await {
                Ok(read) => {
                    self.failures = 0;
                    return read;
                }
                Err(error) => {
                    if self.failures.is_multiple_of(SAID_EVERY) {
                        tracing::warn!("this controller cannot follow: {error}");
                    }
                    self.failures += 1;
                    sleep(RETRY).await;
                }
            }
        }
    }

    fn begin_with(&mut self, entries: Vec<Entry>) -> Option<Act> {
        let leader = entries.iter().find(|entry| entry.key == self.keys.leader());
        let leader = leader.map(leader_of);
        let mut act = self.see(leader);
        for entry in entries {
            act = act.or(self.put(entry));
        }
        act
    }

    fn changed(&mut self, changed: Changed) -> Option<Act> {
        let mut act = None;
        for change in changed.changes {
            let next = match change {
                Change::Put(entry) if entry.key == self.keys.leader() => {
                    self.see(Some(leader_of(&entry)))
                }
                Change::Put(entry) => self.put(entry),
                Change::Deleted { key } if key == self.keys.leader() => self.see(None),
                Change::Deleted { .. } => None,
            };
            act = act.or(next);
        }
        act
    }

    fn see(&mut self, leader: Option<(Leader, Advert)>) -> Option<Act> {
        self.standby.follows(leader.as_ref());
        match &leader {
            Some((leader, _)) => self.takeover.lives(&leader.name),
            None => self.takeover.is_free("nobody led any more"),
        }
        self.hear(Event::Seen(leader.map(|(leader, _)| leader)))
    }

    fn put(&mut self, entry: Entry) -> Option<Act> {
        let is_sign = entry.key == self.keys.sign();
        if entry.key == self.keys.head() {
            match read::<Head>(&entry.value) {
                Some(Head {
                    over: Some(how), ..
                }) => self.over = Some(how),
                Some(head) => {
                    self.run = Some(head.run.clone());
                    self.tail.follow(head);
                }
                None => tracing::error!(
                    "the log's head is of a later build: this controller cannot follow it"
                ),
            }
        } else if !is_sign || self.sign.is_some_and(|seen| seen >= entry.modified) {
            return None;
        }
        if is_sign {
            self.sign = Some(entry.modified);
            let sign = read::<Sign>(&entry.value).unwrap_or_default();
            if let (true, Some(run)) = (sign.waits, &self.run) {
                self.signs.prove(run, &sign);
            }
        }
        if let Some(leader) = self.election.leader() {
            self.takeover.lives(&leader.name);
        }
        self.standby.lives();
        self.hear(Event::Sign)
    }

    async fn act(&mut self, act: Act) -> Result<Acted, HaError> {
        match act {
            Act::Ask => Ok(self.ask().await),
            Act::Revoke { lease, why } => Ok(self.revoke(LeaseId(lease), &why).await),
            // It does not lead.
            Act::End { .. } => Ok(Acted::Nothing),
        }
    }

    /// Asks for the leader's place.
    async fn ask(&mut self) -> Acted {
        self.tail.catch_up(BEHIND).await;
        let asked = self.clock.now();
        let ttl = self.setting.timing.lease;
        let lease = match self.arbiter.grant(ttl).await {
            Ok(Lease { id, .. }) => id,
            Err(_) => return self.not_elected().await,
        };
        let key = self.keys.leader();
        let free = Compare::Absent { key: key.clone() };
        let place = Write::Put {
            key: key.clone(),
            value: kept(&self.setting.advert),
            lease: Some(lease),
        };
        match self.arbiter.transact(vec![free], vec![place]).await {
            Ok(Transacted::Done(epoch)) => Acted::Leads {
                lease,
                epoch,
                asked,
            },
            // Should it be made after all, it is made with a lease that is over, which etcd refuses.
            _ => {
                drop(self.arbiter.revoke(lease).await);
                self.not_elected().await
            }
        }
    }

    /// Somebody else was first, or nobody knows: what there is now is read.
    async fn not_elected(&mut self) -> Acted {
        self.hear(Event::Lost);
        match self.arbiter.read(&self.keys.leader()).await {
            Ok(entry) => {
                let leader = entry.as_ref().map(leader_of);
                self.standby.follows(leader.as_ref());
                if leader.is_none() {
                    sleep(RETRY).await;
                }
                Acted::Heard(Event::Seen(leader.map(|(leader, _)| leader)))
            }
            Err(_) => {
                sleep(RETRY).await;
                // Asked again: nobody is known to lead.
                Acted::Heard(Event::Seen(None))
            }
        }
    }

    /// Takes the leader's lease away, unless etcd has a later sign of it than was seen here.
    async fn revoke(&mut self, lease: LeaseId, why: &str) -> Acted {
        let sign = self.arbiter.read(&self.keys.sign()).await;
        match sign {
            Ok(Some(entry)) if self.sign.is_none_or(|seen| entry.modified > seen) => {
                self.sign = Some(entry.modified);
                self.election.not_revoked();
                return Acted::Heard(Event::Sign);
            }
            Err(_) => {
                self.election.not_revoked();
                return Acted::Nothing;
            }
            Ok(_) => {}
        }
        tracing::warn!("the leader's place is taken away: {why}");
        self.takeover.is_free(why);
        if self.arbiter.revoke(lease).await.is_err() {
            self.election.not_revoked();
        }
        Acted::Nothing
    }
}

fn leader_of(entry: &Entry) -> (Leader, Advert) {
    let advert: Advert = read(&entry.value).unwrap_or_default();
    let leader = Leader {
        name: advert.name.clone(),
        epoch: entry.created.0.unsigned_abs(),
        lease: entry.lease.map_or(0, |lease| lease.0),
    };
    (leader, advert)
}
