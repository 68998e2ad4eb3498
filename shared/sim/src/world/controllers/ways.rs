//! The ways to etcd and to the object store: late, lost, and done though nobody waits any more.
use super::super::{Happening, World, ms};
use super::{Answer, Apart, Ask, Event, Flow, Work};
use std::time::Duration;

/// How long a call to etcd is waited for.
const CALL: Duration = Duration::from_secs(1);
/// The same: to the object store.
const STORE_CALL: Duration = Duration::from_secs(10);
/// A request to etcd that is late, as the member that got it stood still, is so by up to so much.
const LATE: Duration = Duration::from_secs(4);

impl World {
    pub(super) fn apart(&self, c: usize, from: Apart) -> bool {
        self.ha.all[c].apart.contains(&from)
    }

    /// A moment on the network.
    fn moment(&mut self) -> Duration {
        let most = 200 + self.timing.message.spread.as_micros() as u64 / 8;
        ms(1) + Duration::from_micros(self.dice.below(most * 5))
    }

    fn new_call(&mut self, c: usize, flow: Flow, patience: Duration) -> u64 {
        let call = self.number();
        let k = &mut self.ha.all[c];
        k.calls.insert(call, flow);
        let over = Happening::Controller(c, k.life, Event::CallOver(call));
        self.after(patience, over);
        call
    }

    /// Asks etcd, and waits for the answer.
    pub(super) fn ask_etcd(&mut self, c: usize, flow: Flow, ask: Ask) {
        let call = self.new_call(c, flow, CALL);
        self.send_to_etcd(c, call, ask);
    }

    /// Asks etcd.
    pub(super) fn send_to_etcd(&mut self, c: usize, call: u64, ask: Ask) {
        if self.apart(c, Apart::Requests) {
            return;
        }
        let mut takes = self.moment();
        if self.ha.late_per_mille > 0 && self.dice.chance(self.ha.late_per_mille) {
            takes += self.dice.up_to(LATE);
        }
        self.after(takes, Happening::AtEtcd(c, call, ask));
    }

    /// Asks the store, and waits for the answer.
    pub(super) fn ask_store(&mut self, c: usize, flow: Flow, work: Work) {
        let call = self.new_call(c, flow, STORE_CALL);
        if self.apart(c, Apart::Store) {
            return;
        }
        let takes = self.moment() * 2 + self.timing.store.draw(&mut self.dice);
        self.after(takes, Happening::AtStore(c, call, work));
    }

    fn answer(&mut self, c: usize, call: u64, answer: Answer) {
        let takes = self.moment();
        let life = self.ha.all[c].life;
        self.after(
            takes,
            Happening::Controller(c, life, Event::Back(call, answer)),
        );
    }

    /// A request is at etcd.
    pub(in super::super) fn at_etcd(&mut self, c: usize, call: u64, ask: Ask) {
        if self.now < self.ha.quorum_at {
            // Kept by a member until there is a majority again, or dropped by it.
            if self.dice.chance(500) {
                let waits = self.ha.quorum_at.since(self.now) + self.moment();
                self.after(waits, Happening::AtEtcd(c, call, ask));
            }
            return;
        }
        let (now, before) = (self.now, self.ha.etcd.read().revision);
        let etcd = &mut self.ha.etcd;
        let answer = match ask {
            Ask::Read => Answer::Keys(etcd.read()),
            Ask::Grant => {
                let (lease, end) = etcd.grant(now);
                self.after(end.since(now), Happening::LeaseEnds(lease));
                Answer::Granted(lease)
            }
            Ask::Place { lease } => match etcd.take_place(c, lease) {
                Some(created) => Answer::Done(created),
                None => Answer::Refused(etcd.read()),
            },
            Ask::Revoke { lease } => {
                etcd.revoke(lease);
                Answer::Fine
            }
            Ask::Keep {
                lease,
                created,
                given,
                life,
            } => {
                let (lives, ours) = (etcd.keep_alive(lease, now), etcd.sign(created));
                self.tell_watchers(before);
                if !self.apart(c, Apart::Answers) {
                    let takes = self.moment();
                    let kept = Event::Kept { given, lives, ours };
                    self.after(takes, Happening::Controller(c, life, kept));
                }
                return;
            }
            Ask::Head {
                created,
                last,
                to,
                group,
            } => {
                let ours =
                    etcd.is_place(created) || self.ha.has(robust_shared::ha::Bug::SkipCompare);
                let etcd = &mut self.ha.etcd;
                let known = etcd.read().head.map(|(_, revision)| revision);
                let last = match self.ha.has(robust_shared::ha::Bug::SkipHead) {
                    true => known,
                    false => last,
                };
                match self.ha.etcd.put_head(ours, last, to) {
                    Some(revision) => {
                        self.registered(c, created, to, group);
                        Answer::Done(revision)
                    }
                    None => Answer::Refused(self.ha.etcd.read()),
                }
            }
        };
        self.tell_watchers(before);
        if !self.apart(c, Apart::Answers) {
            self.answer(c, call, answer);
        }
    }

    /// A lease may be over.
    pub(in super::super) fn lease_ends(&mut self, lease: u64) {
        let (now, before) = (self.now, self.ha.etcd.read().revision);
        if now < self.ha.quorum_at {
            let waits = self.ha.quorum_at.since(now) + ms(1);
            return self.after(waits, Happening::LeaseEnds(lease));
        }
        if let Some(end) = self.ha.etcd.expire(lease, now) {
            self.after(end.since(now), Happening::LeaseEnds(lease));
        }
        self.tell_watchers(before);
    }

    /// Those who watch have news.
    fn tell_watchers(&mut self, before: u64) {
        if self.ha.etcd.read().revision == before {
            return;
        }
        for c in 0..self.ha.all.len() {
            let k = &mut self.ha.all[c];
            if k.watch.is_some() && !std::mem::replace(&mut k.news.0, true) {
                let life = k.life;
                let takes = self.moment();
                self.after(takes, Happening::Controller(c, life, Event::Watched));
            }
        }
    }

    /// A request is at the store.
    pub(in super::super) fn at_store(&mut self, c: usize, call: u64, work: Work) {
        if self.now < self.ha.store_at {
            return self.answer(c, call, Answer::Away);
        }
        let lost = self.timing.duplicate_per_mille / 10;
        let lost = lost > 0 && self.dice.chance(lost);
        let misread = self.ha.misread;
        let answer = match work {
            Work::Put(group) => match self.ha.objects.put(&group) {
                true => Answer::Fine,
                false => Answer::Taken,
            },
            Work::Base(replica, complete) => {
                self.ha.objects.put_base(&replica, complete);
                Answer::Fine
            }
            Work::Fetch { at, to } => Answer::Way(self.ha.objects.way(at, &to, misread)),
        };
        if lost {
            self.answer(c, call, Answer::Away);
        } else if !self.apart(c, Apart::Store) {
            self.answer(c, call, answer);
        }
    }
}
