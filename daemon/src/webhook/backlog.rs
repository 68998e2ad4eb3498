//! What waits to be posted: everything, while the receiver takes it; the newest of each incident and alarm, while it does not.
//!
//! ```text
//!  push ──► ┌ begin 5 │ raised a │ end 5 │ cleared a ┐ ──► take ──► taken: the next one at once
//!           └────────────────────────────────────────┘        └───► failed: to the end, and folded
//!                                                        ┌ end 5 │ cleared a ┐
//! ```
//! There is room for so many. Where that is full the oldest is dropped, never the newest.
use super::document::{Document, Learnt};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Documents that wait to be sent.
pub(super) const QUEUED: usize = 256;

/// A document on its way.
#[derive(Debug)]
pub(super) struct Waiting {
    /// It.
    pub document: Document,
    /// What the receiver knows with it.
    pub learnt: Learnt,
    /// The incident whose begin the receiver hears of with this or not at all.
    begins: Option<u64>,
    /// When it was last not taken.
    failed: Option<Instant>,
    /// When the receiver took another one for the first time after it had not taken this one.
    passed: Option<Instant>,
}

impl Waiting {
    /// One that is new.
    pub fn new((document, learnt): (Document, Learnt)) -> Self {
        let begins = match learnt {
            Learnt::Begin(id) => Some(id),
            Learnt::End(_) | Learnt::Raised(..) | Learnt::Cleared(_) => None,
        };
        Self {
            document,
            learnt,
            begins,
            failed: None,
            passed: None,
        }
    }

    fn is_of_the_same(&self, other: &Self) -> bool {
        match (&self.learnt, &other.learnt) {
            (Learnt::Begin(a) | Learnt::End(a), Learnt::Begin(b) | Learnt::End(b)) => a == b,
            (
                Learnt::Raised(a, _) | Learnt::Cleared(a),
                Learnt::Raised(b, _) | Learnt::Cleared(b),
            ) => a == b,
            _ => false,
        }
    }
}

/// See the module's doc.
#[derive(Debug, Default)]
struct Backlog {
    waiting: VecDeque<Waiting>,
    /// One is being posted.
    posting: bool,
    /// The last post failed.
    failing: bool,
    /// When the receiver took one last.
    taken: Option<Instant>,
}

impl Backlog {
    /// One more; the one that is dropped for it.
    fn push(&mut self, waiting: Waiting) -> Option<Waiting> {
        self.waiting.push_back(waiting);
        if self.failing {
            self.fold();
        }
        match self.waiting.len() > QUEUED {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// Keeps the newest of each incident and alarm.
    fn fold(&mut self) {
        let mut kept: VecDeque<Waiting> = VecDeque::new();
        for mut next in self.waiting.drain(..) {
            match kept.iter_mut().find(|one| one.is_of_the_same(&next)) {
                Some(place) => {
                    next.begins = next.begins.or(place.begins);
                    *place = next;
                }
                None => kept.push_back(next),
            }
        }
        self.waiting = kept;
    }

    fn take(&mut self) -> Option<Waiting> {
        let waiting = self.waiting.pop_front()?;
        self.posting = true;
        Some(waiting)
    }

    /// The one that was posted is done with: the receiver has it, or will never take it.
    fn done(&mut self, now: Instant) {
        self.posting = false;
        self.failing = false;
        self.taken = Some(now);
        for other in self.waiting.iter_mut().filter(|w| w.failed.is_some()) {
            other.passed.get_or_insert(now);
        }
    }

    /// The one that was posted was not taken, and waits behind the others. True: it is dropped, as another one was taken
    /// since it failed last, and the first that was taken in its stead is so long ago. An outage, in which none is taken,
    /// drops none; one that came after another was taken counts as time.
    fn failed(&mut self, mut waiting: Waiting, in_all: Duration, now: Instant) -> bool {
        self.posting = false;
        self.failing = true;
        let last = waiting.failed.replace(now).zip(self.taken);
        let others_pass = last.is_some_and(|(failed, taken)| taken > failed);
        let is_long = waiting
            .passed
            .is_some_and(|passed| now.duration_since(passed) >= in_all);
        let is_dropped = others_pass && is_long;
        if !is_dropped {
            // What came of the same since then is newer.
            self.waiting.push_front(waiting);
        }
        self.fold();
        if !is_dropped {
            self.waiting.rotate_left(1);
        }
        is_dropped
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.posting
    }
}

/// The backlog, between who tells and the task that posts.
#[derive(Debug, Default)]
pub(super) struct Queue {
    backlog: Mutex<Backlog>,
    news: Notify,
    idle: Notify,
    hurry: Notify,
}

impl Queue {
    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, never waited for. Whether another one is dropped for it.
    pub fn push(&self, waiting: Waiting) -> bool {
        let dropped = self.backlog().push(waiting);
        self.news.notify_one();
        dropped.is_some()
    }

    /// The next one, when there is one. It is done with, or failed, before another one is asked for.
    pub async fn next(&self) -> Waiting {
        loop {
            if let Some(next) = self.backlog().take() {
                return next;
            }
            self.news.notified().await;
        }
    }

    /// The one that was posted is done with: the receiver has it, or will never take it.
    pub fn done(&self) {
        self.backlog().done(Instant::now());
        self.say_idle();
    }

    /// The one that was posted was not taken. True: it is dropped, as others are taken in its stead for so long.
    pub fn failed(&self, waiting: Waiting, in_all: Duration) -> bool {
        let is_dropped = self.backlog().failed(waiting, in_all, Instant::now());
        self.say_idle();
        is_dropped
    }

    /// The first incident of which the receiver knows nothing, and that waits.
    pub fn first_unheard(&self) -> Option<u64> {
        let backlog = self.backlog();
        backlog.waiting.iter().filter_map(|one| one.begins).min()
    }

    /// Somebody waits for the end: what failed is tried again now. Where it is being posted, that is so after its next failure.
    pub fn hurry(&self) {
        self.hurry.notify_one();
    }

    /// Returns once somebody is in a hurry.
    pub async fn hurried(&self) {
        self.hurry.notified().await;
    }

    /// Returns once nothing waits and nothing is being posted.
    pub async fn idle(&self) {
        loop {
            // From here on no word of it is missed.
            let idle = self.idle.notified();
            if self.backlog().is_idle() {
                return;
            }
            idle.await;
        }
    }

    fn say_idle(&self) {
        if self.backlog().is_idle() {
            self.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::book::News;
    use super::super::document::Identity;
    use super::*;
    use robust_proto::v1;

    const MINUTE: Duration = Duration::from_secs(60);

    fn waiting(news: &News<'_>) -> Waiting {
        let about = Identity {
            job: "j".to_owned(),
            run: "r".to_owned(),
            leader: "n".to_owned(),
        };
        Waiting::new(Document::of(news, &about, 0))
    }

    fn begin(id: u64) -> Waiting {
        let incident = v1::Incident {
            id,
            ..Default::default()
        };
        waiting(&News::Begins(&incident))
    }

    fn end(id: u64) -> Waiting {
        let incident = v1::Incident {
            id,
            ..Default::default()
        };
        waiting(&News::Ends(&incident))
    }

    fn raised(kind: &str, since_ms: u64) -> Waiting {
        let alarm = v1::Alarm {
            kind: kind.to_owned(),
            since_ms,
            ..Default::default()
        };
        waiting(&News::Raised(&alarm))
    }

    fn learnt(backlog: &Backlog) -> Vec<Learnt> {
        backlog.waiting.iter().map(|w| w.learnt.clone()).collect()
    }

    fn all(of: impl IntoIterator<Item = Waiting>) -> Backlog {
        let mut backlog = Backlog::default();
        for one in of {
            assert!(backlog.push(one).is_none());
        }
        backlog
    }

    #[test]
    fn while_the_receiver_takes_them_each_document_is_kept() {
        let backlog = all([begin(1), end(1), raised("a", 3)]);
        let wanted = [
            Learnt::Begin(1),
            Learnt::End(1),
            Learnt::Raised("a".to_owned(), 3),
        ];
        assert_eq!(learnt(&backlog), wanted);
    }

    #[test]
    fn while_it_takes_none_the_newest_of_each_incident_and_alarm_is_kept() {
        let now = Instant::now();
        let mut backlog = all([begin(1), raised("a", 3), begin(2)]);
        let first = backlog.take().unwrap();
        backlog.push(end(1));
        assert!(!backlog.failed(first, MINUTE, now));
        backlog.push(waiting(&News::Cleared("a", 3)));
        backlog.push(raised("b", 5));
        backlog.push(waiting(&News::Cleared("b", 5)));
        backlog.push(raised("b", 7));
        let wanted = [
            Learnt::Cleared("a".to_owned()),
            Learnt::Begin(2),
            Learnt::End(1),
            Learnt::Raised("b".to_owned(), 7),
        ];
        assert_eq!(learnt(&backlog), wanted);
        let unheard: Vec<_> = backlog.waiting.iter().map(|w| w.begins).collect();
        assert_eq!(unheard, [None, Some(2), Some(1), None]);
        // It takes them again: nothing is left out any more.
        drop(backlog.take());
        backlog.done(now);
        backlog.push(end(2));
        assert_eq!(learnt(&backlog)[0..2], [Learnt::Begin(2), Learnt::End(1)]);
        assert_eq!(learnt(&backlog)[3], Learnt::End(2));
    }

    #[test]
    fn where_there_is_no_room_the_oldest_goes() {
        let mut backlog = Backlog::default();
        for id in 1..=QUEUED as u64 {
            assert!(backlog.push(begin(id)).is_none());
        }
        let dropped = backlog.push(begin(1000)).unwrap();
        assert_eq!(dropped.learnt, Learnt::Begin(1));
        assert_eq!(learnt(&backlog).last(), Some(&Learnt::Begin(1000)));
        assert_eq!(backlog.waiting.len(), QUEUED);
    }

    /// The next one, which has to be this, is not taken. Whether it is dropped.
    fn fails(backlog: &mut Backlog, wanted: &Learnt, now: Instant) -> bool {
        let next = backlog.take().unwrap();
        assert_eq!(next.learnt, *wanted);
        backlog.failed(next, 10 * MINUTE, now)
    }

    /// The next one, which has to be this, is taken.
    fn passes(backlog: &mut Backlog, wanted: &Learnt, now: Instant) {
        assert_eq!(backlog.take().unwrap().learnt, *wanted);
        backlog.done(now);
    }

    #[test]
    fn one_that_is_never_taken_while_others_are_is_dropped_after_a_while() {
        let start = Instant::now();
        let later = |minutes: u32| start + MINUTE * minutes;
        let mut backlog = all([begin(1), begin(2)]);
        assert!(!fails(&mut backlog, &Learnt::Begin(1), start));
        passes(&mut backlog, &Learnt::Begin(2), later(1));
        assert!(!fails(&mut backlog, &Learnt::Begin(1), later(2)));
        backlog.push(begin(3));
        assert!(!fails(&mut backlog, &Learnt::Begin(1), later(3)));
        passes(&mut backlog, &Learnt::Begin(3), later(10));
        // Ten minutes after the first other one that was taken.
        assert!(fails(&mut backlog, &Learnt::Begin(1), later(11)));
        assert!(backlog.is_idle());
    }

    #[test]
    fn an_outage_is_not_counted_against_a_document_that_fails_once_more_after_it() {
        let start = Instant::now();
        let later = |minutes: u32| start + MINUTE * minutes;
        let mut backlog = all([begin(1), begin(2)]);
        assert!(!fails(&mut backlog, &Learnt::Begin(1), start));
        // None is taken for an hour.
        for which in [2, 1] {
            assert!(!fails(&mut backlog, &Learnt::Begin(which), later(60)));
        }
        passes(&mut backlog, &Learnt::Begin(2), later(61));
        assert!(!fails(&mut backlog, &Learnt::Begin(1), later(62)));
        // Nobody else has passed since then, however long that is.
        assert!(!fails(&mut backlog, &Learnt::Begin(1), later(80)));
        passes(&mut backlog, &Learnt::Begin(1), later(81));
        assert!(backlog.is_idle());
    }

    #[tokio::test]
    async fn it_is_idle_once_the_last_one_is_done_with() {
        let queue = Queue::default();
        queue.idle().await;
        assert!(!queue.push(begin(1)));
        let next = queue.next().await;
        assert!(!queue.backlog().is_idle(), "it is on its way");
        assert!(!queue.failed(next, MINUTE));
        assert_eq!(queue.first_unheard(), Some(1));
        drop(queue.next().await);
        queue.done();
        queue.idle().await;
        assert_eq!(queue.first_unheard(), None);
    }
}
