//! The state of a candidate.
use super::Bug;
use crate::time::Time;
use std::time::Duration;

/// Who leads, as the arbiter has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its name.
    pub name: String,
    /// The number of its term.
    pub epoch: u64,
    /// What its place is bound to, by the arbiter's number.
    pub lease: i64,
}

/// How long what is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// How long a lease lives that is not lengthened.
    pub lease: Duration,
    /// Between two signs of life, of a leader and of a follower.
    pub sign: Duration,
    /// A leader of which nothing was seen for so long has lost its place, if the arbiter answers this candidate.
    pub silence: Duration,
}

/// The part of a lease after which a leader that could not lengthen it says nothing more. The rest is for clocks that run
/// at different speeds, and for what is on its way.
const FENCE: f64 = 0.6;
/// A follower whose own signs were not answered for so many times their distance was itself cut off, or the arbiter was
/// busy choosing its own leader: the silence counts from its next answer.
const GAP: u32 = 3;

impl Timing {
    /// With this lease and silence; signs are given often enough to tell.
    #[must_use]
    pub fn new(lease: Duration, silence: Duration) -> Self {
        let sign = (silence / 5).min(lease / 8);
        Self {
            lease,
            sign,
            silence,
        }
    }

    /// How long after it asked for a lease, or lengthened it, a leader leads at most.
    #[must_use]
    pub fn fence(&self) -> Duration {
        self.lease.mul_f64(FENCE)
    }
}

/// What a candidate hears.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// Who leads now.
    Seen(Option<Leader>),
    /// The leader gave a sign of life.
    Sign,
    /// The arbiter answered a sign of this candidate's own, which it gave at that time.
    Answered {
        /// When.
        given: Time,
    },
    /// This candidate's request to lead was granted; it was made at that time.
    Won {
        /// The number of the term.
        epoch: u64,
        /// When it was asked for.
        asked: Time,
    },
    /// Somebody was first, or nobody knows.
    Lost,
    /// This candidate's lease is over.
    LeaseOver,
    /// Whether this candidate has what it needs to lead; until it is said, it has.
    Ready(bool),
    /// Time passed.
    Tick,
}

/// What it is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Ask for the leader's place.
    Ask,
    /// Take the leader's lease away.
    Revoke {
        /// Which.
        lease: i64,
        /// Why, in words.
        why: String,
    },
    /// End: it leads no more.
    End {
        /// Why, in words.
        why: String,
    },
}

/// See the module's doc.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Nothing was heard of the arbiter yet.
    Waiting,
    /// Nobody leads, and this candidate cannot.
    Free,
    Following {
        leader: Leader,
        /// When the leader was last seen to live.
        sign: Time,
        /// The answers to own signs since then that came one after the other without a gap: the first and the last.
        answered: Option<(Time, Time)>,
        revoked: bool,
    },
    Asking,
    Leading {
        epoch: u64,
        /// When the lease was last lengthened for sure.
        held: Time,
    },
    Ended,
}

/// A candidate.
#[derive(Clone, Debug)]
pub struct Election {
    name: String,
    timing: Timing,
    part: Part,
    ready: bool,
    #[cfg(feature = "mutations")]
    bug: Option<Bug>,
}

impl Election {
    /// A candidate of this name that knows nothing yet.
    #[must_use]
    pub fn new(name: &str, timing: Timing) -> Self {
        Self {
            name: name.to_owned(),
            timing,
            part: Part::Waiting,
            ready: true,
            #[cfg(feature = "mutations")]
            bug: None,
        }
    }

    /// The same with a seeded bug.
    #[cfg(feature = "mutations")]
    #[must_use]
    pub fn with_bug(self, bug: Option<Bug>) -> Self {
        Self { bug, ..self }
    }

    /// Whether this guard is left out; a constant `false` without the feature.
    #[cfg(feature = "mutations")]
    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this guard is left out; a constant `false` without the feature.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    const fn has(&self, _: Bug) -> bool {
        false
    }

    /// The number of its term, if it leads.
    #[must_use]
    pub fn epoch(&self) -> Option<u64> {
        match self.part {
            Part::Leading { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    /// Whom it follows.
    #[must_use]
    pub fn leader(&self) -> Option<&Leader> {
        match &self.part {
            Part::Following { leader, .. } => Some(leader),
            _ => None,
        }
    }

    /// Until when it leads if it hears nothing more.
    #[must_use]
    pub fn leads_until(&self) -> Option<Time> {
        match self.part {
            Part::Leading { held, .. } => Some(held + self.timing.fence()),
            _ => None,
        }
    }

    /// What it does about something that it heard.
    pub fn handle(&mut self, now: Time, event: Event) -> Option<Act> {
        let act = self.hear(now, event);
        // Whatever was heard, time passed before it was.
        act.or_else(|| self.tick(now))
    }

    fn hear(&mut self, now: Time, event: Event) -> Option<Act> {
        match event {
            Event::Seen(leader) => self.seen(now, leader),
            Event::Sign => {
                if let Part::Following { sign, answered, .. } = &mut self.part {
                    (*sign, *answered) = (now, None);
                }
                None
            }
            Event::Answered { given } => {
                let gap = self.timing.sign * GAP;
                match &mut self.part {
                    Part::Following { sign, answered, .. } if given > *sign => {
                        let without_gap = answered.filter(|(_, last)| now.since(*last) <= gap);
                        let since = without_gap.map_or(now, |(since, _)| since);
                        *answered = Some((since, now));
                    }
                    Part::Leading { held, .. } => *held = (*held).max(given),
                    _ => {}
                }
                None
            }
            // Only who asked, and has not ended since, can have won.
            Event::Won { .. } if self.part != Part::Asking => None,
            Event::Won { epoch, asked } => {
                self.part = Part::Leading { epoch, held: asked };
                None
            }
            Event::Lost => {
                if self.part == Part::Asking {
                    self.part = Part::Waiting;
                }
                None
            }
            Event::LeaseOver if self.has(Bug::ReviveLease) => {
                if let Part::Leading { held, .. } = &mut self.part {
                    *held = now;
                }
                None
            }
            Event::LeaseOver => self.end("its lease is over"),
            Event::Ready(ready) => {
                self.ready = ready;
                match self.part {
                    Part::Free if ready => self.ask(),
                    _ => None,
                }
            }
            Event::Tick => None,
        }
    }

    fn seen(&mut self, now: Time, seen: Option<Leader>) -> Option<Act> {
        if self.has(Bug::ReviveLease) && self.epoch().is_some() {
            return None;
        }
        match (&mut self.part, seen) {
            (Part::Ended, _) => None,
            (Part::Leading { epoch, .. }, Some(leader)) if leader.epoch == *epoch => None,
            (Part::Leading { .. }, Some(leader)) => {
                let why = format!("{} leads, in epoch {}", leader.name, leader.epoch);
                self.end(&why)
            }
            (Part::Leading { .. }, None) => self.end("its place was taken away"),
            (Part::Asking, None) => None,
            (Part::Following { leader, .. }, Some(seen)) if *leader == seen => None,
            (_, Some(leader)) => {
                self.part = Part::Following {
                    leader,
                    sign: now,
                    answered: None,
                    revoked: false,
                };
                None
            }
            (_, None) if !self.ready => {
                self.part = Part::Free;
                None
            }
            (_, None) => self.ask(),
        }
    }

    fn ask(&mut self) -> Option<Act> {
        self.part = Part::Asking;
        Some(Act::Ask)
    }

    fn tick(&mut self, now: Time) -> Option<Act> {
        let until = self.leads_until();
        let asks_nobody = self.has(Bug::NoSecondOpinion);
        if until.is_some_and(|until| now > until) && !self.has(Bug::NoSelfFence) {
            return self.end("the arbiter did not lengthen its lease in time");
        }
        let Part::Following {
            leader,
            sign,
            answered,
            revoked,
        } = &mut self.part
        else {
            return None;
        };
        // Of the leader's silence only that counts in which the arbiter answered this one.
        let heard = answered.map_or(Duration::ZERO, |(since, last)| last.since(since));
        let silent = now.since(*sign);
        let least = self.timing.silence.saturating_sub(self.timing.sign * GAP);
        // Whoever could not go on leaves that to others: the leader may only have been slow.
        if !self.ready {
            return None;
        }
        if *revoked || silent < self.timing.silence || heard < least && !asks_nobody {
            return None;
        }
        *revoked = true;
        let why = format!(
            "{} gave no sign for {} ms, and the arbiter answers {}",
            leader.name,
            silent.as_millis(),
            self.name
        );
        let lease = leader.lease;
        Some(Act::Revoke { lease, why })
    }

    /// The leader's lease was not taken away after all, as the arbiter was not reached, or had a later sign of it: that
    /// may be wanted again.
    pub fn not_revoked(&mut self) {
        if let Part::Following { revoked, .. } = &mut self.part {
            *revoked = false;
        }
    }

    fn end(&mut self, why: &str) -> Option<Act> {
        let ended = std::mem::replace(&mut self.part, Part::Ended);
        (ended != Part::Ended).then(|| Act::End {
            why: why.to_owned(),
        })
    }
}
