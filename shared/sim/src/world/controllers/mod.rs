//! Several controllers, each with the real [`Election`], and with a real `Core` while it leads. All else of the world is as
//! with one: the controller that is [seated](Controllers::seat) is the one that the rest of the world talks to.
//!
//! ```text
//!  node ── stream ──► the controller that it joined: seated while it hears, its core among the world's
//!                        │ records, turns: one group at a time
//!                        ▼
//!        objects ◄── put ┤ then ├── head, if the place is its own and the head where it was ──► etcd
//!           │                                                       │ at this moment the group counts:
//!           └──► the disks of those that follow ◄── watch ──────────┘ the checker looks at it
//! ```
//! The one that counts, on whose outputs the whole shadow model looks, is on the *stage*: who leads, or led last. One that
//! does not know yet that it lost its place goes on beside it, parked with its core and a shadow model of its own that
//! nobody reads: what it does is real (nodes that are linked to it obey, its groups are put), and what is wrong about it is
//! what breaks the invariants of `check`.
//!
//! etcd and the object store do what they do at one moment; what is asked and answered is late or lost on its way, and what
//! was asked is done also where nobody waits for it any more.
mod arbiter;
mod check;
mod faults;
mod follow;
mod log;
mod nodes;
mod takeover;
mod term;
mod ways;

pub use faults::{Apart, Which};

use super::check::Checker;
use super::daemon::Daemon;
use super::trainer::Call;
use super::{Happening, World, agents, pulls};
use arbiter::{Arbiter, Keys};
use log::{Group, Misread, Objects, Position, Replica, Way};
use robust_shared::core::Core;
use robust_shared::ha::{Election, Timing};
use robust_shared::ids::{Generation, Incarnation, TrajectoryId, WeightVersion};
use robust_shared::time::Time;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use term::Term;

/// As in a job file that says nothing else.
const LEASE: Duration = Duration::from_secs(5);
const SILENCE: Duration = Duration::from_millis(700);

/// What a controller hears, or is to do.
#[derive(Clone, Debug)]
pub(super) enum Event {
    /// Its process is there.
    Up,
    /// It gives a sign of life.
    Tick,
    /// It runs again.
    Thaw,
    /// Its watch has news.
    Watched,
    /// etcd answered its sign.
    Answered {
        given: Time,
    },
    /// etcd answered a leader's sign.
    Kept {
        given: Time,
        lives: bool,
        ours: bool,
    },
    /// There was no answer in time.
    CallOver(u64),
    Back(u64, Answer),
    /// After a pause.
    Again(Flow),
    /// Its part of the job is to begin.
    Serve,
}

/// What it wants an answer for.
#[derive(Clone, Debug)]
pub(super) enum Flow {
    ReadAll,
    Grant { asked: Time },
    Place { lease: u64, asked: Time },
    GiveBack,
    ReadLeader,
    ReadSign { lease: u64 },
    Revoke,
    ReadHead,
    Tail(Position),
    Put,
    Register,
    BeginBase,
    Begin,
    BaseParts(Replica),
    BaseManifest,
}

/// What etcd is asked.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Read,
    Grant,
    Place {
        lease: u64,
    },
    Keep {
        lease: u64,
        created: u64,
        given: Time,
        life: u32,
    },
    Revoke {
        lease: u64,
    },
    Head {
        created: u64,
        last: Option<u64>,
        to: Position,
        group: Option<Arc<Group>>,
    },
}

/// What the object store is asked.
#[derive(Clone, Debug)]
pub(super) enum Work {
    Put(Arc<Group>),
    Base(Replica, bool),
    Fetch { at: Option<Position>, to: Position },
}

/// What they answer.
#[derive(Clone, Debug)]
pub(super) enum Answer {
    Keys(Keys),
    Granted(u64),
    Done(u64),
    Refused(Keys),
    Fine,
    Way(Way),
    /// Another one's group is there.
    Taken,
    Away,
}

/// One controller.
#[derive(Clone, Debug)]
struct Controller {
    up: bool,
    /// Counts its processes.
    life: u32,
    election: Election,
    /// Its state directory.
    disk: Replica,
    term: Option<Term>,
    calls: BTreeMap<u64, Flow>,
    /// It waits for one answer, and hears nothing else meanwhile.
    awaits: bool,
    /// From which revision on its watch goes on.
    watch: Option<u64>,
    /// News of the watch are on their way, or wait.
    news: (bool, bool),
    /// The change of the leader's last sign that it saw.
    sign: u64,
    /// Where the log stands as far as it knows.
    target: Option<Position>,
    fetches: bool,
    /// The number of the last term that it saw.
    seen: u64,
    /// It stands still until then, and what it would hear waits.
    frozen_until: Time,
    thawed_at: Time,
    waits: Vec<Event>,
    apart: BTreeSet<Apart>,
    apart_serial: u64,
    /// The last term in which it led.
    led: u64,
}

impl Controller {
    fn new(election: Election) -> Self {
        Self {
            up: false,
            life: 0,
            election,
            disk: Replica::default(),
            term: None,
            calls: BTreeMap::new(),
            awaits: false,
            watch: None,
            news: (false, false),
            sign: 0,
            target: None,
            fetches: false,
            seen: 0,
            frozen_until: Time(0),
            thawed_at: Time(0),
            waits: Vec::new(),
            apart: BTreeSet::new(),
            apart_serial: 0,
            led: 0,
        }
    }
}

/// What the world has of a controller that leads, while another one is seated.
#[derive(Clone, Debug)]
struct Parts {
    core: Core,
    daemon: Daemon,
    checker: Checker,
    turns: BTreeMap<TrajectoryId, u32>,
    oldest: BTreeMap<TrajectoryId, WeightVersion>,
    stored: BTreeSet<TrajectoryId>,
    asked: BTreeMap<u64, agents::Doing>,
    task: Option<(Generation, Call)>,
    pullers: BTreeMap<Incarnation, pulls::Ordered>,
}

/// All controllers, and what is between them.
#[derive(Clone, Debug)]
pub(super) struct Controllers {
    all: Vec<Controller>,
    timing: Timing,
    /// Whom the world talks to now.
    seat: usize,
    stage: usize,
    parked: BTreeMap<usize, Box<Parts>>,
    etcd: Arbiter,
    objects: Objects,
    /// What counts: all groups that were registered.
    registered: Replica,
    /// The number of each term, by the change that made its place.
    terms: BTreeMap<u64, u64>,
    /// Turns that agent workers were told to be stored.
    acknowledged: BTreeMap<TrajectoryId, u32>,
    /// Lives of controllers that led.
    lives: u32,
    /// etcd has no majority, the store cannot be reached, until then.
    quorum_at: Time,
    store_at: Time,
    /// Of a thousand requests to etcd so many are late.
    late_per_mille: u64,
    /// What broke while another one than the one on the stage was seated.
    broken: Option<(&'static str, String)>,
    /// Times that the place was taken.
    takeovers: u32,
    misread: Misread,
    #[cfg(feature = "mutations")]
    bug: Option<robust_shared::ha::Bug>,
}

impl Controllers {
    /// None: there is one, which decides by itself.
    pub fn none() -> Self {
        Self {
            all: Vec::new(),
            timing: Timing::new(LEASE, SILENCE),
            seat: 0,
            stage: 0,
            parked: BTreeMap::new(),
            etcd: Arbiter::new(LEASE),
            objects: Objects::default(),
            registered: Replica::default(),
            terms: BTreeMap::new(),
            acknowledged: BTreeMap::new(),
            lives: 0,
            quorum_at: Time(0),
            store_at: Time(0),
            late_per_mille: 0,
            broken: None,
            takeovers: 0,
            misread: Misread::default(),
            #[cfg(feature = "mutations")]
            bug: None,
        }
    }

    /// Whether there are several.
    pub fn are_there(&self) -> bool {
        !self.all.is_empty()
    }

    /// Whether the one that is seated is the one that counts.
    pub fn on_stage(&self) -> bool {
        self.seat == self.stage
    }

    /// Whether this guard is left out; a constant `false` without the feature.
    #[cfg(feature = "mutations")]
    fn has(&self, bug: robust_shared::ha::Bug) -> bool {
        self.bug == Some(bug)
    }

    /// Whether this guard is left out; a constant `false` without the feature.
    #[cfg(not(feature = "mutations"))]
    #[inline(always)]
    const fn has(&self, _: robust_shared::ha::Bug) -> bool {
        false
    }

    fn election(&self, c: usize) -> Election {
        let election = Election::new(&name(c), self.timing);
        #[cfg(feature = "mutations")]
        let election = election.with_bug(self.bug);
        election
    }
}

fn name(c: usize) -> String {
    format!("controller-{c}")
}

impl World {
    /// So many controllers start now; the job begins with the first that leads.
    pub(crate) fn run_controllers(&mut self, count: u32, late_per_mille: u64) {
        self.ha.late_per_mille = late_per_mille;
        #[cfg(feature = "mutations")]
        {
            let bug = self.config.bug;
            self.ha.bug = bug;
            self.ha.misread = Misread {
                keeps_unregistered: bug == Some(robust_shared::ha::Bug::KeepUnregistered),
                unordered: bug == Some(robust_shared::ha::Bug::Unordered),
                half_bases: bug == Some(robust_shared::ha::Bug::HalfBase),
            };
        }
        for c in 0..count as usize {
            let election = self.ha.election(c);
            self.ha.all.push(Controller::new(election));
            let starts = self.dice.up_to(Duration::from_millis(300));
            self.after(starts, Happening::Controller(c, 0, Event::Up));
        }
    }

    /// Whom a happening is to meet: the controller that its node is linked to.
    pub(super) fn meets(&self, what: &Happening) -> usize {
        let stage = self.ha.stage;
        if self.ha.parked.is_empty() {
            return stage;
        }
        let of_life = |life: &Incarnation| self.procs.get(life).map(|p| p.machine);
        if let Happening::LinkEnds(life) = what {
            let m = of_life(life).and_then(|at| self.machines.all.get(at));
            let had = m.map(|m| m.leader);
            return had
                .filter(|had| self.ha.parked.contains_key(had))
                .unwrap_or(stage);
        }
        let at = match what {
            Happening::Link(life)
            | Happening::Said(life, ..)
            | Happening::Told(life, ..)
            | Happening::Dies(life, _)
            | Happening::DiesOf(life, _)
            | Happening::Heals(life)
            | Happening::Pull(life, _)
            | Happening::Probed(life)
            | Happening::Switch(life, ..)
            | Happening::Retires(life) => of_life(life),
            Happening::Turn(d)
            | Happening::Generated(d, ..)
            | Happening::Answered(d, ..)
            | Happening::Append(d)
            | Happening::AppendAgain(d, _)
            | Happening::ToolTried(d) => of_life(&d.agent),
            Happening::Reported(at, _)
            | Happening::NodeSaid(at, ..)
            | Happening::Ordered(at, ..)
            | Happening::Beat(at) => Some(*at),
            _ => None,
        };
        let leader = at.and_then(|at| self.machines.leader_of(at));
        leader
            .filter(|leader| self.ha.parked.contains_key(leader))
            .unwrap_or(stage)
    }

    /// Seats a controller: the world talks to it from now on.
    pub(super) fn sit(&mut self, c: usize) {
        if self.ha.seat == c {
            return;
        }
        if let Some(mut parts) = self.ha.parked.remove(&c) {
            self.change_places(&mut parts);
            self.ha.parked.insert(self.ha.seat, parts);
            self.ha.seat = c;
            self.machines.seat = c;
        }
    }

    /// The one that counts is seated again.
    pub(super) fn sit_back(&mut self) {
        self.sit(self.ha.stage);
        if let Some((invariant, text)) = self.ha.broken.take() {
            self.checker.broken(self.now, invariant, &text);
        }
    }

    fn change_places(&mut self, parts: &mut Parts) {
        use std::mem::swap;
        swap(&mut self.core, &mut parts.core);
        swap(&mut self.daemon, &mut parts.daemon);
        swap(&mut self.checker, &mut parts.checker);
        swap(&mut self.turns, &mut parts.turns);
        swap(&mut self.oldest, &mut parts.oldest);
        swap(&mut self.stored, &mut parts.stored);
        swap(&mut self.asked, &mut parts.asked);
        swap(&mut self.gang.task, &mut parts.task);
        swap(&mut self.pullers, &mut parts.pullers);
    }

    /// The first of those parked that wants to be woken, and when.
    pub(super) fn parked_wakes_at(&self) -> Option<(Time, usize)> {
        let parked = self.ha.parked.iter();
        let wakes = parked.filter_map(|(c, parts)| {
            let idle = parts.daemon.idle();
            let at = idle.then(|| parts.core.next_timeout()).flatten();
            at.map(|at| (at, *c))
        });
        wakes.min()
    }

    /// It is woken.
    pub(super) fn wake_parked(&mut self, c: usize) {
        self.sit(c);
        self.feed(robust_shared::core::Input::Timeout);
        if self.core.next_timeout().is_some_and(|at| at <= self.now) && self.daemon.idle() {
            self.feed(robust_shared::core::Input::Timeout);
        }
        self.sit_back();
    }

    /// Something happens to a controller, to etcd or to the store.
    pub(super) fn controller(&mut self, c: usize, life: u32, event: Event) {
        let k = &mut self.ha.all[c];
        if k.life != life {
            return;
        }
        if self.now < k.frozen_until {
            return k.waits.push(event);
        }
        let dull = match &event {
            Event::Tick | Event::Watched | Event::Answered { .. } => true,
            Event::Kept { lives, ours, .. } => *lives && *ours,
            Event::CallOver(call) => !k.calls.contains_key(call),
            _ => false,
        };
        if !dull {
            self.journal.note(self.now, '*', &Told(c, &event));
        }
        match event {
            Event::Up => self.comes_up(c),
            Event::Tick => self.ticks(c),
            Event::Thaw => self.thaws(c),
            Event::Watched => self.watched(c),
            Event::Answered { given } => self.answered_sign(c, given),
            Event::Kept { given, lives, ours } => self.kept_place(c, given, lives, ours),
            Event::CallOver(call) => {
                if let Some(flow) = self.ha.all[c].calls.remove(&call) {
                    self.got(c, flow, None);
                }
            }
            Event::Back(call, answer) => {
                if let Some(flow) = self.ha.all[c].calls.remove(&call) {
                    self.got(c, flow, Some(answer));
                }
            }
            Event::Again(flow) => self.again(c, flow),
            Event::Serve => self.serve(c),
        }
    }

    /// How often a controller took the job over, the first one included.
    pub(crate) fn takeovers(&self) -> u32 {
        self.ha.takeovers
    }
}

/// For the journal.
struct Told<'a>(usize, &'a Event);

impl std::fmt::Debug for Told<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ", name(self.0))?;
        match self.1 {
            // Whole states would be megabytes.
            Event::Back(_, Answer::Way(Way::Groups(groups))) => {
                write!(f, "has {} groups fetched", groups.len())
            }
            Event::Back(_, Answer::Way(Way::Anew(_))) => write!(f, "has a base fetched"),
            Event::Again(flow) => write!(f, "tries again: {}", flow.word()),
            other => write!(f, "{other:?}"),
        }
    }
}

impl Flow {
    fn word(&self) -> &'static str {
        match self {
            Flow::ReadAll => "read all keys",
            Flow::Grant { .. } => "have a lease",
            Flow::Place { .. } => "take the place",
            Flow::GiveBack => "give the lease back",
            Flow::ReadLeader => "read who leads",
            Flow::ReadSign { .. } => "read the leader's sign",
            Flow::Revoke => "revoke",
            Flow::ReadHead => "read the head",
            Flow::Tail(_) => "fetch groups",
            Flow::Put => "put a group",
            Flow::Register => "register a group",
            Flow::BeginBase => "put the first base",
            Flow::Begin => "register the first base",
            Flow::BaseParts(_) => "put a base",
            Flow::BaseManifest => "end a base",
        }
    }
}
