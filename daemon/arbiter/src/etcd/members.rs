//! Whom a request is put to, and whom next.
//!
//! ```text
//!  repeatable   the first one ── no answer for a share of the time ──► the next one as well: the first answer counts
//!  once         the first one ── certainly not done ──► the next one
//!                             └─ no answer ──► unknown
//! ```
//! The first one is whoever answered last: it is changed only where somebody failed.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use super::failure::Failure;
use super::member::{Member, Numbered};
use super::{Options, SettingError};
use crate::ArbiterError;

/// Between two rounds in which all members failed at once, as they do while they elect a leader.
const PAUSE: Duration = Duration::from_millis(25);

/// All members.
#[derive(Debug)]
pub(super) struct Members {
    all: Vec<Member>,
    first: AtomicUsize,
    connections: AtomicU64,
    timeout: Duration,
}

/// What one member is asked over, and until when.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    channel: Channel,
    member: usize,
    until: Instant,
}

impl Asked {
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Which member it is.
    pub fn member(&self) -> usize {
        self.member
    }

    /// A request that ends in time, and that a member without a leader refuses at once.
    pub fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = self.lasting(message);
        request.set_timeout(self.until.saturating_duration_since(Instant::now()));
        request
    }

    /// The same, for a stream that lasts: it ends where the member loses its leader.
    pub fn lasting<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let led = MetadataValue::from_static("true");
        request.metadata_mut().insert("hasleader", led);
        request
    }
}

/// Takes the connection away from a member that did not answer, also where nobody waits for it any more.
struct Suspect<'a> {
    member: &'a Member,
    connection: Option<Numbered>,
}

impl Drop for Suspect<'_> {
    fn drop(&mut self) {
        if let Some(lost) = &self.connection {
            self.member.forget(lost);
        }
    }
}

impl Members {
    pub fn new(options: Options) -> Result<Self, SettingError> {
        let Options {
            endpoints,
            tls,
            timeout,
        } = options;
        if let Some(tls) = &tls {
            tls.config()?;
        }
        let all = endpoints.iter().map(|uri| Member::new(uri, tls.as_ref()));
        let all = all.collect::<Result<Vec<_>, _>>()?;
        if all.is_empty() {
            return Err(SettingError::NoEndpoint);
        }
        Ok(Self {
            all,
            first: AtomicUsize::new(0),
            connections: AtomicU64::new(0),
            timeout,
        })
    }

    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    pub fn name(&self, member: usize) -> &str {
        self.all.get(member).map_or("etcd", Member::name)
    }

    /// Asks another one first from now on.
    pub fn pass_by(&self, member: usize) {
        let next = (member + 1) % self.all.len();
        let first = &self.first;
        let changed = first.compare_exchange(member, next, Ordering::Relaxed, Ordering::Relaxed);
        if changed.is_ok() {
            tracing::warn!(
                "etcd at {} fails, {} is asked next",
                self.name(member),
                self.name(next)
            );
        }
    }

    fn prefer(&self, member: usize) {
        let before = self.first.swap(member, Ordering::Relaxed);
        if before != member {
            tracing::warn!(
                "etcd at {} fails, {} answers",
                self.name(before),
                self.name(member)
            );
        }
    }

    /// Asks what may be done twice: the first answer counts.
    pub async fn repeatable<T, F>(&self, ask: impl Fn(Asked) -> F) -> Result<T, ArbiterError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let until = Instant::now() + self.timeout;
        let share = self.timeout / u32::try_from(self.all.len()).unwrap_or(u32::MAX);
        let mut turns = Turns::new(self);
        let mut in_flight = FuturesUnordered::new();
        let mut next_at = Instant::now();
        loop {
            let another = turns.next_idle();
            tokio::select! {
                biased;
                Some((member, answer)) = in_flight.next(), if !in_flight.is_empty() => {
                    let failure = match answer {
                        Ok(answer) => {
                            self.prefer(member);
                            return Ok(answer);
                        }
                        Err(failure) => failure,
                    };
                    match Failure::verdict(failure, self.name(member)) {
                        Ok(error) => return Err(error),
                        Err(failure) => turns.failed(member, &failure),
                    }
                    let pause = if turns.round_is_over() { PAUSE } else { Duration::ZERO };
                    next_at = Instant::now() + pause;
                }
                () = sleep_until(until) => return Err(turns.unavailable()),
                () = sleep_until(next_at), if another.is_some() => {
                    let Some(member) = another else { continue };
                    turns.begun(member);
                    let ask = &ask;
                    in_flight.push(async move { (member, self.attempt(member, until, ask).await) });
                    next_at = Instant::now() + share;
                }
            }
        }
    }

    async fn attempt<T, F>(
        &self,
        member: usize,
        until: Instant,
        ask: &impl Fn(Asked) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let (asked, mut suspect) = self.reach(member, until).await?;
        let answer = ask(asked).await;
        if !answer.as_ref().is_err_and(Failure::is_of_connection) {
            suspect.connection = None;
        }
        answer
    }

    async fn reach(&self, index: usize, until: Instant) -> Result<(Asked, Suspect<'_>), Failure> {
        let Some(member) = self.all.get(index) else {
            return Err(Failure::NotDone("there is no such member".to_owned()));
        };
        let number = self.connections.fetch_add(1, Ordering::Relaxed);
        let left = until.saturating_duration_since(Instant::now());
        let connection = member.channel(number, left).await?;
        let asked = Asked {
            channel: connection.channel.clone(),
            member: index,
            until,
        };
        let connection = Some(connection);
        Ok((asked, Suspect { member, connection }))
    }

    /// Asks what may be done once only: another member is asked where the one before certainly did nothing.
    pub async fn once<T, F>(&self, ask: impl Fn(Asked) -> F) -> Result<T, ArbiterError>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let until = Instant::now() + self.timeout;
        // What is sent with less time left than this would more often be lost than refused.
        let last = until - self.timeout / 4;
        let mut turns = Turns::new(self);
        while Instant::now() < last {
            let Some(member) = turns.next_idle() else {
                break;
            };
            turns.begun(member);
            let failure = match self
                .ask_once(member, (last, until), turns.left(), &ask)
                .await
            {
                Ok(answer) => {
                    self.prefer(member);
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            let at = self.name(member).to_owned();
            match failure.verdict(&at) {
                Ok(error) => return Err(error),
                Err(Failure::Lost(why)) => {
                    self.pass_by(member);
                    return Err(ArbiterError::Unknown { at, why });
                }
                Err(failure) => turns.failed(member, &failure),
            }
            if turns.round_is_over() {
                sleep(PAUSE).await;
            }
        }
        Err(turns.unavailable())
    }

    async fn ask_once<T, F>(
        &self,
        member: usize,
        (last, until): (Instant, Instant),
        left: u32,
        ask: &impl Fn(Asked) -> F,
    ) -> Result<T, Failure>
    where
        F: Future<Output = Result<T, Failure>>,
    {
        let share = last.saturating_duration_since(Instant::now()) / left.max(1);
        let reached = timeout(share, self.reach(member, until)).await;
        let reached = reached.map_err(|_| Failure::Silent(share))?;
        let (asked, mut suspect) = reached?;
        let answer = timeout_at(until, ask(asked)).await;
        let answer = answer
            .unwrap_or_else(|_| Err(Failure::Lost(Failure::Silent(self.timeout).to_string())));
        if !answer.as_ref().is_err_and(Failure::is_of_connection) {
            suspect.connection = None;
        }
        answer
    }
}

/// Which members were asked, and what they said.
struct Turns<'a> {
    members: &'a Members,
    next: usize,
    failures: usize,
    in_flight: BTreeSet<usize>,
    said: BTreeMap<usize, String>,
}

impl<'a> Turns<'a> {
    fn new(members: &'a Members) -> Self {
        Self {
            members,
            next: members.first.load(Ordering::Relaxed),
            failures: 0,
            in_flight: BTreeSet::new(),
            said: BTreeMap::new(),
        }
    }

    /// The next in turn that is not being asked.
    fn next_idle(&self) -> Option<usize> {
        let count = self.members.all.len();
        let mut turn = (0..count).map(|step| (self.next + step) % count);
        turn.find(|member| !self.in_flight.contains(member))
    }

    fn begun(&mut self, member: usize) {
        self.in_flight.insert(member);
        self.next = (member + 1) % self.members.all.len();
    }

    fn failed(&mut self, member: usize, failure: &Failure) {
        self.failures += 1;
        self.in_flight.remove(&member);
        match failure {
            // What it said before says more, and this may be for want of time only.
            Failure::Silent(_) => self
                .said
                .entry(member)
                .or_insert_with(|| failure.to_string()),
            _ => self
                .said
                .entry(member)
                .insert_entry(failure.to_string())
                .into_mut(),
        };
    }

    fn round_is_over(&self) -> bool {
        self.failures.is_multiple_of(self.members.all.len())
    }

    /// How many are still to be asked in this round, with the one that is being asked.
    fn left(&self) -> u32 {
        let count = self.members.all.len();
        u32::try_from(count - self.failures % count).unwrap_or(1)
    }

    fn unavailable(self) -> ArbiterError {
        let Self {
            members,
            in_flight,
            mut said,
            ..
        } = self;
        for member in in_flight {
            let silent = || Failure::Silent(members.timeout).to_string();
            said.entry(member).or_insert_with(silent);
        }
        let each = said.into_iter();
        let each = each.map(|(member, said)| format!("{}: {said}", members.name(member)));
        let tried = each.collect::<Vec<_>>().join("; ");
        ArbiterError::Unavailable { tried }
    }
}
