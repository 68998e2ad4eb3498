//! A controller that follows, and asks for the place: what `daemon/src/ha/candidate.rs` and `tail.rs` do.
use super::super::{Happening, World, ms};
use super::arbiter::{Change, Keys, Place};
use super::log::{Position, Way};
use super::term::Step;
use super::{Answer, Apart, Ask, Event, Flow, Work, name};
use robust_shared::ha::{self, Act, Bug, Leader};
use robust_shared::time::Time;
use std::time::Duration;

/// Between two tries to reach etcd.
const RETRY: Duration = Duration::from_millis(100);
/// Between two tries to read the log.
const TAIL_RETRY: Duration = Duration::from_millis(250);

impl World {
    /// Its process is there: it follows.
    pub(super) fn comes_up(&mut self, c: usize) {
        let election = self.ha.election(c);
        let k = &mut self.ha.all[c];
        if k.up {
            return;
        }
        (k.up, k.election, k.awaits) = (true, election, true);
        let (life, sign) = (k.life, self.ha.timing.sign);
        self.after(sign, Happening::Controller(c, life, Event::Tick));
        self.ask_etcd(c, Flow::ReadAll, Ask::Read);
    }

    fn tries_again(&mut self, c: usize, for_: Duration, flow: Flow) {
        let life = self.ha.all[c].life;
        self.after(for_, Happening::Controller(c, life, Event::Again(flow)));
    }

    /// It gives a sign of life.
    pub(super) fn ticks(&mut self, c: usize) {
        let (life, sign, given) = (self.ha.all[c].life, self.ha.timing.sign, self.now);
        self.after(sign, Happening::Controller(c, life, Event::Tick));
        let k = &self.ha.all[c];
        if let Some(term) = &k.term {
            let (lease, created) = (term.lease, term.created);
            let keep = Ask::Keep {
                lease,
                created,
                given,
                life,
            };
            self.send_to_etcd(c, 0, keep);
            return self.hears(c, ha::Event::Tick);
        }
        if k.awaits {
            return;
        }
        if k.watch.is_none() {
            self.ha.all[c].awaits = true;
            return self.ask_etcd(c, Flow::ReadAll, Ask::Read);
        }
        let cut = self.apart(c, Apart::Requests) || self.apart(c, Apart::Answers);
        if !cut && self.now >= self.ha.quorum_at {
            let takes = ms(1) + self.dice.up_to(ms(4));
            let answered = Event::Answered { given };
            self.after(takes, Happening::Controller(c, life, answered));
        }
        self.hears(c, ha::Event::Tick);
    }

    /// etcd answered its sign.
    pub(super) fn answered_sign(&mut self, c: usize, given: Time) {
        let k = &self.ha.all[c];
        if k.term.is_none() && !k.awaits {
            self.hears(c, ha::Event::Answered { given });
        }
    }

    pub(super) fn hears(&mut self, c: usize, event: ha::Event) {
        let act = self.ha.all[c].election.handle(self.now, event);
        self.does(c, act);
    }

    fn does(&mut self, c: usize, act: Option<Act>) {
        match act {
            None => {}
            Some(Act::Ask) => {
                self.ha.all[c].awaits = true;
                let asked = self.now;
                self.ask_etcd(c, Flow::Grant { asked }, Ask::Grant);
            }
            Some(Act::Revoke { lease, .. }) => {
                self.ha.all[c].awaits = true;
                let lease = lease.unsigned_abs();
                self.ask_etcd(c, Flow::ReadSign { lease }, Ask::Read);
            }
            Some(Act::End { .. }) if self.ha.all[c].term.is_some() => self.begins_anew(c),
            Some(Act::End { .. }) => {}
        }
    }

    /// It waits for nothing any more, and hears what came meanwhile.
    fn is_free(&mut self, c: usize) {
        let k = &mut self.ha.all[c];
        k.awaits = false;
        if std::mem::take(&mut k.news.1) {
            self.watched(c);
        }
    }

    /// Its watch has news.
    pub(super) fn watched(&mut self, c: usize) {
        let cut = self.apart(c, Apart::Requests) || self.apart(c, Apart::Answers);
        let k = &mut self.ha.all[c];
        k.news.0 = false;
        if cut {
            k.watch = None;
            return;
        }
        let Some(from) = k.watch else { return };
        if k.awaits || k.term.is_some() {
            k.news.1 = true;
            return;
        }
        let changes = self.ha.etcd.since(from).to_vec();
        let mut act = None;
        for (revision, change) in changes {
            let next = match change {
                Change::Leader(place) => self.sees(c, place),
                Change::Sign => self.sees_sign(c, revision),
                Change::Head(to) => {
                    self.follows(c, to);
                    self.ha.all[c].election.handle(self.now, ha::Event::Sign)
                }
            };
            act = act.or(next);
            self.ha.all[c].watch = Some(revision + 1);
        }
        self.does(c, act);
    }

    fn sees(&mut self, c: usize, place: Option<Place>) -> Option<Act> {
        let leader = place.map(|place| Leader {
            name: name(place.who),
            epoch: place.created,
            lease: i64::try_from(place.lease).unwrap_or(i64::MAX),
        });
        if let Some(place) = place {
            let epoch = self.ha.terms.get(&place.created).copied();
            let k = &mut self.ha.all[c];
            k.seen = k.seen.max(epoch.unwrap_or(0));
        }
        let k = &mut self.ha.all[c];
        k.election.handle(self.now, ha::Event::Seen(leader))
    }

    fn sees_sign(&mut self, c: usize, revision: u64) -> Option<Act> {
        let k = &mut self.ha.all[c];
        if k.sign >= revision {
            return None;
        }
        k.sign = revision;
        k.election.handle(self.now, ha::Event::Sign)
    }

    /// The log counts to there: its disk is brought to it.
    pub(super) fn follows(&mut self, c: usize, to: Position) {
        self.ha.all[c].target = Some(to);
        self.fetch(c);
    }

    /// It writes its disk itself from then on.
    fn has_caught_up(&self, c: usize) -> bool {
        let term = self.ha.all[c].term.as_ref();
        term.is_some_and(|term| matches!(term.step, Step::Starts | Step::Serves))
    }

    fn fetch(&mut self, c: usize) {
        if self.has_caught_up(c) {
            return;
        }
        let k = &mut self.ha.all[c];
        let Some(to) = k.target.filter(|to| k.disk.at() != Some(*to)) else {
            return;
        };
        if k.fetches {
            return;
        }
        k.fetches = true;
        let at = k.disk.at();
        self.ask_store(c, Flow::Tail(to), Work::Fetch { at, to });
    }

    fn begin_with(&mut self, c: usize, keys: Keys) {
        self.ha.all[c].watch = Some(keys.revision + 1);
        let mut act = self.sees(c, keys.leader);
        if let Some((to, _)) = keys.head {
            self.follows(c, to);
            let sign = self.ha.all[c].election.handle(self.now, ha::Event::Sign);
            act = act.or(sign);
        }
        if keys.sign > 0 {
            let sign = self.sees_sign(c, keys.sign);
            act = act.or(sign);
        }
        self.is_free(c);
        self.does(c, act);
    }

    /// What it asked is answered; none: not in time.
    pub(super) fn got(&mut self, c: usize, flow: Flow, answer: Option<Answer>) {
        match (flow, answer) {
            (Flow::ReadAll, Some(Answer::Keys(keys))) => self.begin_with(c, keys),
            (Flow::ReadAll, _) => self.tries_again(c, RETRY, Flow::ReadAll),
            (Flow::Grant { asked }, Some(Answer::Granted(lease))) => {
                self.ask_etcd(c, Flow::Place { lease, asked }, Ask::Place { lease });
            }
            (Flow::Grant { .. }, _) => self.not_elected(c),
            (Flow::Place { lease, asked }, Some(Answer::Done(created))) => {
                self.wins(c, (created, lease), asked);
            }
            // Should it be made after all, it is made with a lease that is over, which etcd refuses.
            (Flow::Place { lease, .. }, _) => {
                self.ask_etcd(c, Flow::GiveBack, Ask::Revoke { lease });
            }
            (Flow::GiveBack, _) => self.not_elected(c),
            (Flow::ReadLeader, Some(Answer::Keys(keys))) if keys.leader.is_some() => {
                let act = self.sees(c, keys.leader);
                self.is_free(c);
                self.does(c, act);
            }
            (Flow::ReadLeader, _) => self.tries_again(c, RETRY, Flow::ReadLeader),
            (Flow::ReadSign { lease }, Some(Answer::Keys(keys))) => {
                if keys.sign > self.ha.all[c].sign {
                    self.ha.all[c].sign = keys.sign;
                    self.ha.all[c].election.not_revoked();
                    self.is_free(c);
                    return self.hears(c, ha::Event::Sign);
                }
                self.ask_etcd(c, Flow::Revoke, Ask::Revoke { lease });
            }
            (Flow::Revoke, Some(_)) => self.is_free(c),
            (Flow::ReadSign { .. } | Flow::Revoke, _) => {
                self.ha.all[c].election.not_revoked();
                self.is_free(c);
            }
            (Flow::Tail(to), answer) => self.fetched(c, to, answer),
            (flow, answer) => self.got_in_term(c, flow, answer),
        }
    }

    /// Somebody else was first, or nobody knows.
    fn not_elected(&mut self, c: usize) {
        self.ha.all[c].election.handle(self.now, ha::Event::Lost);
        self.ask_etcd(c, Flow::ReadLeader, Ask::Read);
    }

    pub(super) fn again(&mut self, c: usize, flow: Flow) {
        match flow {
            Flow::ReadAll => self.ask_etcd(c, Flow::ReadAll, Ask::Read),
            // Nobody is known to lead.
            Flow::ReadLeader => {
                let act = self.sees(c, None);
                self.is_free(c);
                self.does(c, act);
            }
            Flow::Tail(_) => self.fetch(c),
            flow => self.again_in_term(c, flow),
        }
    }

    fn fetched(&mut self, c: usize, to: Position, answer: Option<Answer>) {
        if self.has_caught_up(c) {
            return;
        }
        let k = &mut self.ha.all[c];
        k.fetches = false;
        match answer {
            Some(Answer::Way(Way::Groups(groups))) => {
                groups.into_iter().for_each(|group| k.disk.push(group));
                k.disk.arrived(to);
            }
            Some(Answer::Way(Way::Anew(replica))) => k.disk = replica,
            Some(Answer::Way(Way::Missing)) => {
                // The head has moved on, and what led to this one is removed, or the log is damaged.
                if k.target == Some(to) && self.ha.etcd.read().head.is_some_and(|(at, _)| at == to)
                {
                    let text =
                        format!("no base and no groups lead to {to:?}, where the log stands");
                    self.wrong("log", text);
                }
                return self.tries_again(c, TAIL_RETRY, Flow::Tail(to));
            }
            _ => return self.tries_again(c, TAIL_RETRY, Flow::Tail(to)),
        }
        self.fetch(c);
        self.may_lead(c);
    }

    /// The number of a term whose place this change made.
    pub(super) fn number_of_term(&self, c: usize, created: u64) -> u64 {
        match self.ha.has(Bug::EpochTwice) {
            true => self.ha.all[c].seen + 1,
            false => created,
        }
    }
}
