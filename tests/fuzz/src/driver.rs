//! Plays the daemon around a controller: what the controller wants done is done, or left, or something else
//! happens, as the bytes say. What holds for every driver and every role is checked after each input.

use std::collections::BTreeSet;
use std::time::Duration;

use robust_shared::core::{
    Core, CoreConfig, Entries, Entry, EntryKey, GangEvent, Input, Output, Record, StepMetrics,
};
use robust_shared::ids::{Generation, Incarnation, Role, Step, TrajectoryId, WeightVersion};
use robust_shared::time::Time;
use robust_sim::faults::Schedule;

use crate::Bytes;
use crate::answers::answers;
use crate::known::Known;

/// When jobs begin.
const BEGIN: Time = Time(1_000_000_000);
/// What is wanted done and was not, beyond which the oldest is forgotten, as by a process that is stuck.
const MOST_WANTED: usize = 256;

/// A check costs as much as some inputs: after every fourth it was nearly a third of the time. The last one is always checked.
const CHECKED: u64 = 16;

/// A controller, and what was seen of it.
pub struct Driver {
    config: CoreConfig,
    /// The controller.
    pub core: Core,
    now: Time,
    /// What others say may name.
    pub known: Known,
    /// What is to be done and was not, the oldest first.
    wanted: Vec<Output>,
    disk: Entries,
    seen: Seen,
    inputs: u64,
    /// Its past is what it was.
    sound: bool,
    /// The job is over.
    pub over: bool,
}

/// What was promised and may not be taken back.
#[derive(Default)]
struct Seen {
    lives: BTreeSet<Incarnation>,
    generation: Generation,
    committed: Step,
    published: Option<WeightVersion>,
    consumed: BTreeSet<TrajectoryId>,
}

impl Driver {
    /// A job that starts, of one of the shapes that the fault search draws.
    pub fn new(bytes: &mut Bytes<'_>) -> Driver {
        let config = Schedule::of(bytes.byte().into()).config();
        let core = Core::new(config.clone());
        let mut driver = Driver::with(config, core, Entries::default());
        driver.handle(Input::Start);
        driver
    }

    /// The same job with another controller, of whose past nothing is known: what it promised, and what its index
    /// rests on, may be lost.
    pub fn damaged(self, core: Core, disk: Entries) -> Driver {
        let mut driver = Driver {
            known: self.known,
            now: self.now,
            sound: false,
            ..Driver::with(self.config, core, disk)
        };
        driver.handle(Input::Start);
        driver
    }

    fn with(config: CoreConfig, core: Core, disk: Entries) -> Driver {
        Driver {
            known: Known::new(&config),
            config,
            core,
            now: BEGIN,
            wanted: Vec::new(),
            disk,
            seen: Seen::default(),
            inputs: 0,
            sound: true,
            over: false,
        }
    }

    /// What it knows of the job.
    pub fn config(&self) -> &CoreConfig {
        &self.config
    }

    /// What is stored of the job.
    pub fn disk(&self) -> &Entries {
        &self.disk
    }

    /// Does the next thing that the bytes say.
    pub fn step(&mut self, bytes: &mut Bytes<'_>) {
        match bytes.byte() {
            0..=79 => self.answer(0),
            80..=99 => {
                for _ in 0..self.wanted.len() {
                    self.answer(0);
                }
            }
            100..=109 => self.answer(bytes.below(16)),
            110..=114 => drop(self.take_wanted(bytes.below(16))),
            115..=129 => self.wait(bytes),
            130..=139 => self.wake(),
            140..=142 => self.restart(),
            143..=146 => self.handle(Input::StoodStill),
            _ => {
                let input = self.known.input(bytes, &self.core, self.now);
                self.handle(input);
            }
        }
    }

    fn take_wanted(&mut self, at: usize) -> Option<Output> {
        (at < self.wanted.len()).then(|| self.wanted.remove(at))
    }

    /// Does what is wanted, as sound processes do.
    fn answer(&mut self, at: usize) {
        let Some(output) = self.take_wanted(at) else {
            return self.wake();
        };
        for input in answers(&output, &mut self.known) {
            self.now = self.now + Duration::from_millis(1);
            self.handle(input);
        }
    }

    fn wait(&mut self, bytes: &mut Bytes<'_>) {
        let span = u64::from(bytes.byte());
        let time = match bytes.below(4) {
            0 => Duration::from_millis(span),
            1 => Duration::from_millis(span * 20),
            2 => Duration::from_secs(span),
            _ => Duration::from_secs(span * 600),
        };
        self.now = self.now + time;
        self.handle(Input::Timeout);
    }

    /// The time has come for which the controller wanted to be woken.
    fn wake(&mut self) {
        if let Some(due) = self.core.next_timeout() {
            self.now = self.now.max(due);
            self.handle(Input::Timeout);
        }
    }

    /// Stores what changed since the last record.
    pub fn store(&mut self) {
        self.disk.apply(self.core.take_changes());
    }

    /// The daemon dies and comes back with what is stored.
    fn restart(&mut self) {
        self.store();
        let stored: Vec<(EntryKey, Entry)> = self.disk.iter().map(again).collect();
        let mut read = Entries::default();
        for (key, entry) in stored {
            read.put(key, entry);
        }
        assert!(
            !self.sound || read == self.disk,
            "what was stored is read otherwise"
        );
        let state = match read.state() {
            Ok(state) => state,
            Err(refused) if self.sound => {
                panic!("what a sound daemon stored is no state: {refused}")
            }
            Err(_) => None,
        };
        let Some(state) = state else {
            return;
        };
        self.core = Core::restore(self.config.clone(), state);
        self.wanted.clear();
        self.handle(Input::Start);
    }

    /// Gives the controller one input, does what it must, and checks what must hold.
    pub fn handle(&mut self, input: Input) {
        self.core.handle(self.now, input);
        while let Some(output) = self.core.poll_output() {
            self.note(output);
        }
        self.inputs += 1;
        if self.sound && self.inputs.is_multiple_of(CHECKED) {
            self.check();
        }
    }

    /// Compares what it derived with a full scan, and looks whether anybody waits for nothing.
    pub fn check(&self) {
        if let Err(difference) = self.core.check() {
            panic!("the index is not what a scan says: {difference}");
        }
        if let Some(waits) = self.core.left_waiting() {
            panic!("somebody waits for nothing: {waits}");
        }
    }

    fn note(&mut self, output: Output) {
        self.known.note(&output);
        match output {
            Output::Record(record) => {
                self.disk.apply(self.core.take_changes());
                if self.sound {
                    self.seen.note(&record);
                }
            }
            Output::Event(_) => {}
            Output::Finish { .. } => self.over = true,
            output => {
                if let Output::Spawn {
                    incarnation,
                    generation,
                    id,
                    ..
                } = &output
                    && self.sound
                {
                    self.seen
                        .spawned(*incarnation, (id.role == Role::Trainer, *generation));
                }
                self.wanted.push(output);
                if self.wanted.len() > MOST_WANTED {
                    self.wanted.remove(0);
                }
            }
        }
    }
}

/// An entry as it is read back.
fn again((key, entry): (&EntryKey, &Entry)) -> (EntryKey, Entry) {
    let named = EntryKey::decode(&key.encode()).expect("a key names its entry");
    let bytes = entry.encode(*key).expect("an entry can be written");
    let entry = Entry::decode(named, &bytes).expect("what was written can be read");
    (named, entry)
}

impl Seen {
    /// A number of a life is never used again, and no gang comes before one that was (I-1).
    fn spawned(&mut self, incarnation: Incarnation, (rank, generation): (bool, Generation)) {
        assert!(self.lives.insert(incarnation), "{incarnation} lives twice");
        if rank {
            assert!(
                generation >= self.generation,
                "{generation} after {}",
                self.generation
            );
            self.generation = generation;
        }
    }

    fn note(&mut self, record: &Record) {
        match record {
            Record::Committed {
                step, trajectories, ..
            } => {
                assert!(*step > self.committed, "step {step} is committed again");
                self.committed = *step;
                for trajectory in trajectories {
                    // I-3
                    assert!(
                        self.consumed.insert(*trajectory),
                        "{trajectory} is consumed twice"
                    );
                }
            }
            Record::Published { version } => {
                // I-4
                assert!(
                    Some(*version) > self.published,
                    "{version} is published again"
                );
                self.published = Some(*version);
            }
            _ => {}
        }
    }
}

/// What a gang says when it has done a step.
pub fn step_done(step: Step) -> GangEvent {
    let metrics = StepMetrics::default();
    GangEvent::StepDone { step, metrics }
}
