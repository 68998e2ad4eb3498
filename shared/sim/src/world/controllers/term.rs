//! A term: what `daemon/src/ha/lead.rs` and `keeper.rs` do, and the writing of the log (`daemon/src/grouplog/attached.rs`).
use super::super::agents::{AGAIN, Doing};
use super::super::daemon::Daemon;
use super::super::process::Work as Holding;
use super::super::{Happening, World, ms};
use super::log::{Group, Position, Replica, Turn};
use super::{Answer, Ask, Event, Flow, Work};
use robust_shared::core::{Input, Output, Record, STALL};
use robust_shared::ha::{self, Act, Bug};
use robust_shared::time::Time;
use std::sync::Arc;
use std::time::Duration;

/// Between two tries to read the head.
const RETRY: Duration = Duration::from_millis(100);
/// Between two tries to put or register a group.
const LOG_RETRY: Duration = Duration::from_millis(250);
/// An answer of etcd that takes longer is none.
const CALL: Duration = Duration::from_secs(1);
/// From the end of its catching up until it welcomes nodes.
const START: Duration = Duration::from_millis(120);
/// Groups between two bases; few, so that runs of a minute have several.
const BASE_EVERY: u32 = 25;

/// How far a term has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    ReadsHead,
    CatchesUp,
    Starts,
    /// It has a core, and nodes join it.
    Serves,
}

/// A group that does not count yet.
#[derive(Clone, Debug)]
struct Flight {
    group: Arc<Group>,
    since: Time,
    /// What follows from its records waits for it.
    awaited: bool,
    /// Its turns are acknowledged with it.
    told: bool,
}

/// A term in which a controller leads.
#[derive(Clone, Debug)]
pub(super) struct Term {
    /// Its number.
    pub epoch: u64,
    /// The change that made the place.
    pub created: u64,
    pub lease: u64,
    pub step: Step,
    /// When the lease was last lengthened for sure.
    pub held: Time,
    head: Option<(Position, u64)>,
    at: Position,
    flight: Option<Flight>,
    /// Records wait for the next group.
    records: bool,
    /// Turns that do.
    turns: Vec<Turn>,
    since_base: u32,
    makes_base: bool,
}

impl Term {
    /// Whether what was decided waits until it counts.
    pub fn is_writing(&self) -> bool {
        self.records || self.flight.as_ref().is_some_and(|flight| flight.awaited)
    }

    fn has(&self, turn: &Turn) -> bool {
        let same = |t: &Turn| (t.trajectory, t.turns) == (turn.trajectory, turn.turns);
        let mut flies = self.flight.iter().flat_map(|flight| &flight.group.turns);
        self.turns.iter().any(same) || flies.any(same)
    }
}

impl World {
    pub(super) fn term(&mut self, c: usize) -> Option<&mut Term> {
        self.ha.all[c].term.as_mut()
    }

    fn pause_term(&mut self, c: usize, for_: Duration, flow: Flow) {
        let life = self.ha.all[c].life;
        self.after(for_, Happening::Controller(c, life, Event::Again(flow)));
    }

    /// The place is its own.
    pub(super) fn wins(&mut self, c: usize, (created, lease): (u64, u64), asked: Time) {
        let epoch = self.number_of_term(c, created);
        self.check_number(created, epoch);
        self.ha.terms.insert(created, epoch);
        let k = &mut self.ha.all[c];
        (k.awaits, k.watch) = (false, None);
        k.term = Some(Term {
            epoch,
            created,
            lease,
            step: Step::ReadsHead,
            held: asked,
            head: None,
            at: Position::default(),
            flight: None,
            records: false,
            turns: Vec::new(),
            since_base: 0,
            makes_base: false,
        });
        let won = ha::Event::Won {
            epoch: created,
            asked,
        };
        match k.election.handle(self.now, won) {
            Some(Act::End { .. }) => self.begins_anew(c),
            _ => self.ask_etcd(c, Flow::ReadHead, Ask::Read),
        }
    }

    /// etcd answered a leader's sign.
    pub(super) fn kept_place(&mut self, c: usize, given: Time, lives: bool, ours: bool) {
        let now = self.now;
        if now.since(given) > CALL {
            return;
        }
        let Some(term) = self.term(c) else { return };
        match lives {
            true => {
                term.held = term.held.max(given);
                self.hears(c, ha::Event::Answered { given });
            }
            false => self.hears(c, ha::Event::LeaseOver),
        }
        if !ours && self.term(c).is_some() {
            self.hears(c, ha::Event::Seen(None));
        }
    }

    pub(super) fn got_in_term(&mut self, c: usize, flow: Flow, answer: Option<Answer>) {
        let Some(term) = self.term(c) else { return };
        match (flow, answer) {
            (Flow::ReadHead, Some(Answer::Keys(keys))) => {
                term.head = keys.head;
                self.knows_head(c);
            }
            (Flow::ReadHead, _) => self.pause_term(c, RETRY, Flow::ReadHead),
            (Flow::BeginBase, Some(Answer::Fine)) => self.again_in_term(c, Flow::Begin),
            (Flow::BeginBase, _) => self.pause_term(c, LOG_RETRY, Flow::BeginBase),
            (Flow::Put, Some(Answer::Fine)) => self.is_put(c),
            (Flow::Put, Some(Answer::Taken)) => self.begins_anew(c),
            (Flow::Put, _) => self.pause_term(c, LOG_RETRY, Flow::Put),
            (flow @ (Flow::Register | Flow::Begin), Some(Answer::Done(revision))) => {
                self.counts(c, &flow, revision);
            }
            (flow @ (Flow::Register | Flow::Begin), Some(Answer::Refused(keys))) => {
                // The very same was made before, and its answer was lost; or it never will be.
                let to = term
                    .flight
                    .as_ref()
                    .map_or(term.at, |flight| flight.group.at);
                let ours = keys
                    .leader
                    .is_some_and(|place| place.created == term.created);
                match keys.head.filter(|(at, _)| ours && *at == to) {
                    Some((_, revision)) => self.counts(c, &flow, revision),
                    None => self.begins_anew(c),
                }
            }
            (flow @ (Flow::Register | Flow::Begin), _) => self.pause_term(c, LOG_RETRY, flow),
            (Flow::BaseParts(replica), Some(Answer::Fine)) => {
                self.ask_store(c, Flow::BaseManifest, Work::Base(replica, true));
            }
            (Flow::BaseParts(_) | Flow::BaseManifest, _) => term.makes_base = false,
            _ => {}
        }
    }

    pub(super) fn again_in_term(&mut self, c: usize, flow: Flow) {
        let Some(term) = &self.ha.all[c].term else {
            return;
        };
        let (created, at) = (term.created, term.at);
        let last = term.head.map(|(_, revision)| revision);
        match (flow, term.flight.as_ref().map(|f| Arc::clone(&f.group))) {
            (Flow::ReadHead, _) => self.ask_etcd(c, Flow::ReadHead, Ask::Read),
            (Flow::BeginBase, _) => {
                let work = Work::Base(Replica::begin(at), true);
                self.ask_store(c, Flow::BeginBase, work);
            }
            (Flow::Begin, _) => {
                let head = Ask::Head {
                    created,
                    last,
                    to: at,
                    group: None,
                };
                self.ask_etcd(c, Flow::Begin, head);
            }
            (Flow::Put, Some(group)) => self.ask_store(c, Flow::Put, Work::Put(group)),
            (Flow::Register, Some(group)) => {
                let head = Ask::Head {
                    created,
                    last,
                    to: group.at,
                    group: Some(group),
                };
                self.ask_etcd(c, Flow::Register, head);
            }
            _ => {}
        }
    }

    /// Only what is read now has all of the leader before: it can register nothing more.
    fn knows_head(&mut self, c: usize) {
        let stale = self.ha.has(Bug::LeadStale);
        let k = &mut self.ha.all[c];
        let Some(term) = &mut k.term else { return };
        let Some((to, _)) = term.head else {
            // The job begins.
            term.at = Position::of_base(term.epoch);
            k.disk = Replica::begin(term.at);
            return self.again_in_term(c, Flow::BeginBase);
        };
        term.step = Step::CatchesUp;
        if stale && k.disk.at().is_some() {
            return self.starts(c);
        }
        self.follows(c, to);
        self.may_lead(c);
    }

    /// Once its disk has all that counts.
    pub(super) fn may_lead(&mut self, c: usize) {
        let k = &self.ha.all[c];
        let Some(term) = &k.term else { return };
        let head = term.head.map(|(at, _)| at);
        if term.step == Step::CatchesUp && head.is_some() && k.disk.at() == head {
            self.starts(c);
        }
    }

    fn starts(&mut self, c: usize) {
        let k = &mut self.ha.all[c];
        let at = k.disk.at().unwrap_or_default();
        let Some(term) = &mut k.term else { return };
        (term.step, term.at) = (Step::Starts, at);
        let life = k.life;
        let takes = ms(20) + self.dice.up_to(START);
        self.after(takes, Happening::Controller(c, life, Event::Serve));
    }

    /// Records wait to be written by the one that is seated.
    pub(in super::super) fn write_to_log(&mut self) {
        let c = self.ha.seat;
        // Whoever stores takes the leases of what is thrown away before it is written.
        let gone: Vec<_> = self
            .daemon
            .records()
            .flat_map(|record| match record {
                Record::Discarded { trajectories } => trajectories.clone(),
                Record::SetAside { trajectory, .. } => vec![*trajectory],
                _ => Vec::new(),
            })
            .collect();
        self.daemon.leases.retain(|t, _| !gone.contains(t));
        if let Some(term) = self.term(c) {
            term.turns.retain(|turn| !gone.contains(&turn.trajectory));
            term.records = true;
        }
        self.cut_group(c);
    }

    /// The next group of the one that is seated, if there is none on its way and anything to be written.
    fn cut_group(&mut self, c: usize) {
        let now = self.now;
        let k = &mut self.ha.all[c];
        let Some(term) = &mut k.term else { return };
        let nothing = !term.records && term.turns.is_empty();
        if term.flight.is_some() || nothing || now < k.frozen_until {
            return;
        }
        let awaited = std::mem::take(&mut term.records);
        let (changes, records) = match awaited {
            true => (
                self.core.take_changes(),
                self.daemon.records().cloned().collect(),
            ),
            false => Default::default(),
        };
        self.serial += 1;
        let group = Arc::new(Group {
            at: term.at.next(term.epoch, self.serial),
            after: term.at,
            changes,
            records,
            turns: std::mem::take(&mut term.turns),
        });
        k.disk.push(Arc::clone(&group));
        term.flight = Some(Flight {
            group,
            since: now,
            awaited,
            told: false,
        });
        self.again_in_term(c, Flow::Put);
    }

    /// Its group is in the store.
    fn is_put(&mut self, c: usize) {
        self.again_in_term(c, Flow::Register);
        if self.ha.has(Bug::AcknowledgeEarly) {
            self.sit(c);
            self.acknowledge(c);
            self.sit_back();
        }
        if self.ha.has(Bug::ActEarly) {
            self.sit(c);
            self.acts_early(c);
            self.sit_back();
        }
    }

    /// What follows from the group's records leaves.
    fn acts_early(&mut self, c: usize) {
        let flight = self.ha.all[c].term.as_mut().and_then(|t| t.flight.as_mut());
        let Some(flight) = flight.filter(|flight| flight.awaited) else {
            return;
        };
        flight.awaited = false;
        let at = flight.group.at;
        let held = self.daemon.follow_ups();
        self.check_counts(at, held, "what follows from its records leaves");
        self.release_held();
    }

    /// Agent workers hear that their turns are stored.
    fn acknowledge(&mut self, c: usize) {
        let flight = self.ha.all[c].term.as_mut().and_then(|t| t.flight.as_mut());
        let Some(flight) = flight.filter(|flight| !flight.told) else {
            return;
        };
        flight.told = true;
        let (at, turns) = (flight.group.at, flight.group.turns.clone());
        self.check_counts(at, !turns.is_empty(), "its turns are acknowledged");
        for turn in turns {
            self.acknowledged(&turn);
        }
    }

    fn acknowledged(&mut self, turn: &Turn) {
        let d = Doing {
            agent: turn.agent,
            trajectory: turn.trajectory,
            serial: turn.serial,
        };
        let next = self.work(d).is_some_and(|w| w.stored + 1 == turn.turns);
        if next && self.is_heard(turn.agent) {
            self.note_acknowledged(turn.trajectory, turn.turns);
            self.turn_is_stored(d, turn.turns, turn.over);
        }
        if turn.over {
            self.end_is_stored(turn.agent, turn.trajectory);
        }
    }

    /// etcd said that what it put counts.
    fn counts(&mut self, c: usize, flow: &Flow, revision: u64) {
        let Some(term) = self.term(c) else { return };
        let Some(at) = term.flight.as_ref().map(|flight| flight.group.at) else {
            if matches!(flow, Flow::Begin) && term.step == Step::ReadsHead {
                term.head = Some((term.at, revision));
                self.starts(c);
            }
            return;
        };
        (term.head, term.at) = (Some((at, revision)), at);
        self.sit(c);
        self.acknowledge(c);
        // What follows may lead to the next group, after this one.
        let flight = self.ha.all[c].term.as_mut().and_then(|t| t.flight.take());
        if let Some(flight) = flight.filter(|flight| flight.awaited) {
            // Nothing was handled meanwhile, here, as if it had stood still.
            if self.now.since(flight.since) > STALL {
                self.daemon.halt((flight.since, self.now));
                self.daemon.hear_first(Input::StoodStill);
            }
            let held = self.daemon.follow_ups();
            self.check_counts(at, held, "what follows from its records leaves");
            self.release_held();
        }
        if self.is_serving(c) && self.ha.seat == c {
            self.cut_group(c);
            self.may_make_base(c);
        }
        self.sit_back();
    }

    fn may_make_base(&mut self, c: usize) {
        let Some(term) = self.term(c) else { return };
        term.since_base += 1;
        // Of groups that count: there is none on its way.
        if term.since_base < BASE_EVERY || term.makes_base || term.flight.is_some() {
            return;
        }
        (term.since_base, term.makes_base) = (0, true);
        let replica = self.ha.all[c].disk.clone();
        let parts = Flow::BaseParts(replica.clone());
        self.ask_store(c, parts, Work::Base(replica, false));
    }

    /// A turn reaches the store of the one that is seated; its agent worker brings it again until it is answered.
    pub(in super::super) fn append_to_log(&mut self, d: Doing, work: Holding) {
        let c = self.ha.seat;
        let turns = work.stored + 1;
        let known = self.turns.get(&d.trajectory).copied().unwrap_or(0);
        let over = self.stored.contains(&d.trajectory);
        if known == turns && !over {
            // It is stored, and the answer was lost.
            if self.ha.on_stage() {
                self.note_acknowledged(d.trajectory, turns);
            }
            return self.turn_is_stored(d, turns, false);
        }
        let oldest = self.oldest.get(&d.trajectory).copied();
        let oldest = oldest.into_iter().chain(work.oldest).min();
        let turn = Turn {
            trajectory: d.trajectory,
            agent: d.agent,
            serial: d.serial,
            turns,
            oldest: oldest.unwrap_or_default(),
            over: turns >= self.turns_of(d.trajectory),
        };
        self.after(AGAIN, Happening::AppendAgain(d, work.stored));
        let now = self.now;
        match self.ha.all[c].term.as_mut() {
            Some(term) if term.step == Step::Serves && !term.has(&turn) => term.turns.push(turn),
            _ => return,
        }
        self.checker
            .appended(now, d.trajectory, work.stored, known, over);
        self.cut_group(c);
    }

    /// etcd moved the head: from this moment on the group counts, whoever hears of it.
    pub(super) fn registered(
        &mut self,
        c: usize,
        created: u64,
        to: Position,
        group: Option<Arc<Group>>,
    ) {
        self.check_writer(c, created, group.as_deref());
        let Some(group) = group else {
            self.ha.registered = Replica::begin(to);
            return;
        };
        self.ha.registered.push(Arc::clone(&group));
        let term = self.ha.all[c].term.as_ref();
        let of_stage = term.is_none_or(|term| term.created == created);
        if c != self.ha.stage || !of_stage {
            return;
        }
        for record in &group.records {
            // Nobody was promised that these stay.
            match record {
                Record::Discarded { trajectories } => {
                    self.ha
                        .acknowledged
                        .retain(|t, _| !trajectories.contains(t));
                }
                Record::SetAside { trajectory, .. } => {
                    self.ha.acknowledged.remove(trajectory);
                }
                _ => {}
            }
        }
        for turn in &group.turns {
            self.turns.insert(turn.trajectory, turn.turns);
            self.oldest.insert(turn.trajectory, turn.oldest);
            if turn.over {
                self.stored.insert(turn.trajectory);
            }
        }
        if !group.records.is_empty() {
            self.written(group.changes.clone(), &group.records);
        }
    }

    /// It leads no more: the program begins anew, and follows.
    pub(super) fn begins_anew(&mut self, c: usize) {
        let back = ms(60) + self.dice.up_to(ms(200));
        self.controller_ends(c, false);
        let life = self.ha.all[c].life;
        self.after(back, Happening::Controller(c, life, Event::Up));
    }

    /// Its process ends; silently, when its machine does.
    pub(super) fn controller_ends(&mut self, c: usize, silent: bool) {
        let flies = self.term(c).is_some_and(|term| term.flight.is_some());
        let loses = silent && flies && self.dice.chance(500);
        let k = &mut self.ha.all[c];
        if loses {
            k.disk.lose_last();
        }
        (k.up, k.life, k.term) = (false, k.life + 1, None);
        (k.awaits, k.watch, k.news) = (false, None, (false, false));
        (k.fetches, k.frozen_until, k.target) = (false, Time(0), None);
        k.calls.clear();
        k.waits.clear();
        // One that ends while it is seated leaves that first.
        self.sit(self.ha.stage);
        match c == self.ha.stage {
            true => self.daemon_ends(),
            false => {
                let parts = self.ha.parked.remove(&c);
                self.ask_again(parts.map(|parts| parts.asked).unwrap_or_default());
            }
        }
        self.leader_is_gone(c, silent);
    }
}

impl Daemon {
    /// Records that wait to be written.
    pub(in super::super) fn records(&self) -> impl Iterator<Item = &Record> {
        self.held().filter_map(|output| match output {
            Output::Record(record) => Some(record),
            _ => None,
        })
    }

    /// Whether anything waits for them.
    pub(in super::super) fn follow_ups(&self) -> bool {
        let quiet = |o: &Output| matches!(o, Output::Record(_) | Output::Event(_));
        self.held().any(|output| !quiet(output))
    }
}
