//! The machines of a cluster: who is of the job, who is spare, who is being repaired.
//!
//! ```text
//!            a place is free                    a minute later
//!  spare ──────────────────────► comes ────────────────────────► of the job ──┬── dies ───────────► away
//!    ▲                             │ dies                                     └── will leave ──────► leaves
//!    │                             └───────────────────────────────► away ◄── its time is over ──────┘
//!    └────────────────────────────── it is repaired ──────────────────┘
//! ```
//! A place of the trainer's is filled before one of the rollouts', and the machine that was spare for
//! longest fills it.
use std::collections::VecDeque;
use std::time::Duration;

/// What a machine is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pool {
    Train,
    Rollout,
}

impl Pool {
    pub fn name(self) -> &'static str {
        match self {
            Self::Train => "train",
            Self::Rollout => "rollout",
        }
    }
}

/// Where a machine is. The times are when that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Job(Pool),
    Leaves(Pool, Duration),
    Comes(Pool, Duration),
    Spare,
    Away(Duration),
}

/// See the module's doc.
#[derive(Clone, Debug)]
pub(super) struct Fleet {
    places: Vec<Place>,
    spare: VecDeque<u32>,
    /// Places of the job that nobody fills or is on the way to.
    open: [u32; 2],
    joined: u64,
    /// Machines that the job is to have, and those that are there.
    wanted: u32,
    present: u32,
    /// How many it has too few, since when, and machine-seconds of that so far.
    short: u32,
    since: Duration,
    short_s: f64,
    most_short: u32,
}

impl Fleet {
    /// The first machines train, those after them generate, and the rest is spare.
    pub fn new(train: u32, rollout: u32, spares: u32) -> Self {
        let of_job = train + rollout;
        let place = |number: u32| match number {
            n if n < train => Place::Job(Pool::Train),
            n if n < of_job => Place::Job(Pool::Rollout),
            _ => Place::Spare,
        };
        Self {
            places: (0..of_job + spares).map(place).collect(),
            spare: (of_job..of_job + spares).collect(),
            open: [0, 0],
            joined: 0,
            wanted: of_job,
            present: of_job,
            short: 0,
            since: Duration::ZERO,
            short_s: 0.0,
            most_short: 0,
        }
    }

    pub fn place(&self, host: u32) -> Place {
        self.places[host as usize]
    }

    /// A machine is to be away until then. Returns whether it was of the job.
    pub fn goes(&mut self, host: u32, now: Duration, until: Duration) -> bool {
        let before = std::mem::replace(&mut self.places[host as usize], Place::Away(until));
        match before {
            Place::Job(pool) => self.open[pool as usize] += 1,
            // Its place is open since that was said.
            Place::Leaves(..) => {}
            Place::Comes(pool, _) => self.open[pool as usize] += 1,
            Place::Spare => self.spare.retain(|spare| *spare != host),
            Place::Away(earlier) => self.places[host as usize] = Place::Away(until.max(earlier)),
        }
        let of_job = matches!(before, Place::Job(_) | Place::Leaves(..));
        if of_job {
            self.has(self.present - 1, now);
        }
        of_job
    }

    /// A machine of the job will leave at that time: another one may come before.
    pub fn leaves(&mut self, host: u32, at: Duration) {
        if let Place::Job(pool) = self.place(host) {
            self.places[host as usize] = Place::Leaves(pool, at);
            self.open[pool as usize] += 1;
        }
    }

    /// A machine is repaired. Returns false if it is not so far.
    pub fn is_back(&mut self, host: u32, now: Duration) -> bool {
        let due = matches!(self.place(host), Place::Away(until) if until <= now);
        if due {
            self.places[host as usize] = Place::Spare;
            self.spare.push_back(host);
        }
        due
    }

    /// A spare machine that is to fill an open place, and will be there at that time.
    pub fn fill(&mut self, at: Duration) -> Option<u32> {
        let pool = match self.open {
            [0, 0] => return None,
            [0, _] => Pool::Rollout,
            _ => Pool::Train,
        };
        let host = self.spare.pop_front()?;
        self.open[pool as usize] -= 1;
        self.places[host as usize] = Place::Comes(pool, at);
        Some(host)
    }

    /// A machine is there for its place. None if it did not come so far.
    pub fn comes(&mut self, host: u32, now: Duration) -> Option<Pool> {
        match self.place(host) {
            Place::Comes(pool, at) if at == now => {
                self.places[host as usize] = Place::Job(pool);
                self.joined += 1;
                self.has(self.present + 1, now);
                Some(pool)
            }
            _ => None,
        }
    }

    fn has(&mut self, present: u32, now: Duration) {
        self.present = present;
        let machines = self.wanted.saturating_sub(present);
        self.short_s += f64::from(self.short) * now.saturating_sub(self.since).as_secs_f64();
        (self.short, self.since) = (machines, now);
        self.most_short = self.most_short.max(machines);
    }

    /// Times a machine took a place.
    pub fn joined(&self) -> u64 {
        self.joined
    }

    /// The most places that were empty at once, and machine-hours of all.
    pub fn shortage(&self, now: Duration) -> (u32, f64) {
        let open = f64::from(self.short) * now.saturating_sub(self.since).as_secs_f64();
        (self.most_short, (self.short_s + open) / 3600.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn a_place_of_the_trainers_is_filled_first_by_the_longest_spare() {
        let mut fleet = Fleet::new(1, 1, 2);
        assert!(fleet.goes(1, at(10), at(100)) && fleet.goes(0, at(10), at(200)));
        assert_eq!(
            (fleet.fill(at(70)), fleet.fill(at(70)), fleet.fill(at(70))),
            (Some(2), Some(3), None)
        );
        assert_eq!(fleet.comes(2, at(70)), Some(Pool::Train));
        assert_eq!(fleet.comes(3, at(70)), Some(Pool::Rollout));
        assert!(!fleet.is_back(1, at(99)) && fleet.is_back(1, at(100)));
        assert_eq!(
            (fleet.joined(), fleet.fill(at(160))),
            (2, None),
            "no place is open"
        );
        assert_eq!(fleet.shortage(at(1000)), (2, 120.0 / 3600.0));
    }

    #[test]
    fn without_spares_a_place_is_empty_until_its_machine_is_repaired() {
        let mut fleet = Fleet::new(1, 2, 0);
        assert!(fleet.goes(2, at(0), at(3600)));
        assert!(
            !fleet.goes(2, at(60), at(7200)),
            "it is away already, and now for longer"
        );
        assert_eq!(fleet.fill(at(60)), None);
        assert!(!fleet.is_back(2, at(3600)) && fleet.is_back(2, at(7200)));
        assert_eq!(fleet.fill(at(7260)), Some(2));
        assert_eq!(fleet.comes(2, at(7260)), Some(Pool::Rollout));
        assert_eq!(fleet.shortage(at(9000)), (1, 7260.0 / 3600.0));
    }

    #[test]
    fn where_it_is_said_beforehand_another_machine_comes_before_one_leaves() {
        let mut fleet = Fleet::new(1, 1, 1);
        fleet.leaves(0, at(3600));
        assert_eq!(fleet.fill(at(60)), Some(2));
        assert_eq!(fleet.comes(2, at(60)), Some(Pool::Train));
        assert!(fleet.goes(0, at(3600), at(7200)));
        assert_eq!(fleet.shortage(at(7200)).1, 0.0);
    }
}
