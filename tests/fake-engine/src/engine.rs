//! The process that makes tokens: requests, pauses and weights, without any input or output of its
//! own.
//!
//! ```text
//!              pause(wait)                     last request ends
//!   running ───────────────────► draining ───────────────────────► paused
//!      ▲  └──── pause(abort: requests end, freeze: they stay) ───────►│
//!      └───────────────────────────── resume ─────────────────────────┘
//! ```
//! `handle` takes a command, `step` gives every running request one token; both return what the
//! leader is to hear. Requests that come in a pause are taken and wait.

use crate::crash::Crash;
use crate::memory::Memory;
use crate::model::Model;
use crate::protocol::{Boot, Command, Dialect, Ending, Generate, Operation, PauseMode};
use crate::protocol::{Report, Span, Step};
use crate::sampler::{self, Context};
use crate::weights::{Weights, WeightsError};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::path::Path;

/// The state of the process that makes tokens.
pub struct Engine {
    boot: Boot,
    model: Model,
    weights: Weights,
    /// What tokens are made of: the weights' digest, unless a reload lied.
    serving: u64,
    version: String,
    pause: Pause,
    running: Vec<Running>,
    waiting: VecDeque<Running>,
    /// Which weights made the keys and values of a prompt.
    cached: HashMap<Context, u64>,
    made: u64,
    lies_left: u64,
    /// Loads so far.
    loads: u64,
    memory: Memory,
}

enum Pause {
    No,
    Draining(u64),
    Yes,
}

impl Pause {
    /// The call that is answered when the last request has ended.
    fn drains(&self) -> Option<u64> {
        if let Self::Draining(call) = self {
            Some(*call)
        } else {
            None
        }
    }
}

struct Running {
    asked: Generate,
    context: Context,
    weights: u64,
    made: u32,
    spans: Vec<Span>,
}

impl Engine {
    /// An engine with the first weights loaded.
    pub fn new(boot: Boot, weights: Weights) -> Self {
        Self {
            model: Model::read(&boot.model),
            serving: weights.digest,
            weights,
            version: "default".to_owned(),
            pause: Pause::No,
            running: Vec::new(),
            waiting: VecDeque::new(),
            cached: HashMap::new(),
            made: 0,
            lies_left: boot.quirks.lying_loads,
            loads: 0,
            memory: Memory::default(),
            boot,
        }
    }

    /// Whether `step` would do anything.
    pub fn is_busy(&self) -> bool {
        let hangs = self
            .boot
            .quirks
            .hang_after
            .is_some_and(|after| self.made >= after);
        let waits = matches!(self.pause, Pause::No) && !self.waiting.is_empty();
        !hangs && !matches!(self.pause, Pause::Yes) && (!self.running.is_empty() || waits)
    }

    /// Takes a command.
    pub fn handle(&mut self, command: Command) -> Result<Vec<Report>, Crash> {
        let reports = match command {
            Command::Generate(asked) => self.take(asked).map(|()| Vec::new()),
            Command::Abort { keys } => Ok(self.abort(keys.as_deref())),
            Command::Call { call, operation } => self.call(call, operation),
        }?;
        // It would compute with memory that is not there.
        match self.is_busy() && self.memory.is_asleep() {
            true => Err(Crash("an illegal memory access was encountered")),
            false => Ok(reports),
        }
    }

    /// Every running request gets a token.
    pub fn step(&mut self) -> Vec<Report> {
        if matches!(self.pause, Pause::No) {
            let room = self.boot.max_running.saturating_sub(self.running.len());
            for _ in 0..self.waiting.len().min(room) {
                if let Some(one) = self.waiting.pop_front() {
                    self.begin(one);
                }
            }
        }
        let mut reports = Vec::new();
        let mut still = Vec::new();
        for mut one in std::mem::take(&mut self.running) {
            let step = one.step(&self.model, &self.version, self.boot.quirks.logprob_offset);
            self.made += 1;
            if step.end.is_none() {
                still.push(one);
            }
            reports.push(Report::Step(step));
        }
        self.running = still;
        self.drained(&mut reports);
        reports
    }

    fn drained(&mut self, reports: &mut Vec<Report>) {
        if let (Pause::Draining(call), true) = (&self.pause, self.running.is_empty()) {
            reports.push(done(*call, Value::Null));
            self.pause = Pause::Yes;
        }
    }

    fn take(&mut self, asked: Generate) -> Result<(), Crash> {
        let poisoned = self.boot.quirks.is_poisoned(&asked.ids);
        // SGLang looks nobody's tokens up before its scheduler does, which dies of it.
        let outside = asked.ids.iter().any(|id| *id >= self.model.vocab);
        if poisoned || (outside && self.boot.dialect == Dialect::Sglang) {
            return Err(Crash("index out of range in self"));
        }
        self.waiting.push_back(Running {
            context: Context::of(&asked.ids),
            asked,
            weights: 0,
            made: 0,
            spans: Vec::new(),
        });
        Ok(())
    }

    /// A request that waited begins, with the weights of now.
    fn begin(&mut self, mut one: Running) {
        one.weights = self.serving;
        if self.boot.quirks.stale_kv {
            one.weights = *self.cached.entry(one.context).or_insert(self.serving);
        }
        self.running.push(one);
    }

    fn abort(&mut self, keys: Option<&[u64]>) -> Vec<Report> {
        let ended = |one: &Running| keys.is_none_or(|keys| keys.contains(&one.asked.key));
        let (gone, kept) = std::mem::take(&mut self.running)
            .into_iter()
            .partition(ended);
        self.running = kept;
        let (unborn, kept): (Vec<_>, Vec<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(ended);
        self.waiting = kept.into();
        let gone: Vec<_> = gone;
        let ends = gone.into_iter().chain(unborn);
        let mut reports: Vec<_> = ends.map(|one| one.aborted(&self.version)).collect();
        self.drained(&mut reports);
        reports
    }

    fn call(&mut self, call: u64, operation: Operation) -> Result<Vec<Report>, Crash> {
        match operation {
            Operation::Pause { mode } => return Ok(self.pause(call, mode)),
            Operation::Resume => {
                let waited = std::mem::replace(&mut self.pause, Pause::No).drains();
                return Ok(waited
                    .into_iter()
                    .chain([call])
                    .map(|c| done(c, Value::Null))
                    .collect());
            }
            Operation::Load { path } => return self.load(call, &path).map(|r| vec![r]),
            Operation::SetVersion { version } => self.version = version,
            Operation::Checksums => {
                self.memory.touch_weights()?;
                return Ok(vec![done(call, self.weights.told(self.boot.dialect))]);
            }
            Operation::Flush => self.cached.clear(),
            Operation::Ping => {}
            Operation::Raise => return Err(Crash("an exception in the scheduler")),
            Operation::Sleep { tags, keeps } => {
                let waits = matches!(self.pause, Pause::No) && !self.waiting.is_empty();
                if self.boot.dialect == Dialect::Sglang && (waits || !self.running.is_empty()) {
                    return Err(Crash("it should be called only when the server is idle"));
                }
                self.memory.give_back(&tags, keeps, &self.weights);
                self.cached.clear();
            }
            Operation::Wake { tags } => return self.wake(call, &tags),
        }
        Ok(vec![done(call, Value::Null)])
    }

    fn wake(&mut self, call: u64, tags: &[String]) -> Result<Vec<Report>, Crash> {
        let quirks = &self.boot.quirks;
        if quirks
            .hang_wake
            .is_some_and(|after| self.memory.wakes() >= after)
        {
            return Ok(Vec::new());
        }
        let (before, forgets) = (self.weights.digest, quirks.forgetful_wake);
        let dialect = self.boot.dialect;
        let all = self
            .memory
            .take(tags, dialect, forgets, &mut self.weights)?;
        if self.weights.digest != before {
            self.serving = self.weights.digest;
        }
        if all && dialect == Dialect::Vllm {
            self.pause = Pause::No;
        }
        Ok(vec![done(call, Value::Bool(all))])
    }

    fn pause(&mut self, call: u64, mode: PauseMode) -> Vec<Report> {
        // A pause that still waited is over with this one.
        let mut reports: Vec<_> = self
            .pause
            .drains()
            .map(|c| done(c, Value::Null))
            .into_iter()
            .collect();
        match mode {
            PauseMode::Wait => {
                self.pause = Pause::Draining(call);
                // What waited was asked before the pause, and is waited for too.
                while let Some(one) = self.waiting.pop_front() {
                    self.begin(one);
                }
                self.drained(&mut reports);
                return reports;
            }
            PauseMode::Abort => {
                self.pause = Pause::Yes;
                reports.extend(self.abort(None));
            }
            PauseMode::Freeze => {}
        }
        self.pause = Pause::Yes;
        reports.push(done(call, Value::Null));
        reports
    }

    fn load(&mut self, call: u64, folder: &Path) -> Result<Report, Crash> {
        self.memory.touch_weights()?;
        let loaded = Weights::load(folder, self.boot.dialect);
        if self.boot.quirks.die_in_load {
            return Err(Crash("killed in a load"));
        }
        self.loads += 1;
        let result = match loaded {
            Ok(weights) => {
                self.weights = weights;
                if self.boot.quirks.is_wrong(self.loads) {
                    self.weights.lose();
                }
                if self.lies_left > 0 {
                    self.lies_left -= 1;
                } else {
                    self.serving = self.weights.digest;
                }
                for one in &mut self.running {
                    one.weights = self.serving;
                }
                Ok(json!({}))
            }
            // A folder that is not there is looked up first; of what is read later SGLang's
            // scheduler dies.
            Err(WeightsError::Format { .. }) if self.boot.dialect == Dialect::Sglang => {
                return Err(Crash("weights that cannot be read"));
            }
            Err(error) => Err(error.to_string()),
        };
        Ok(Report::Done { call, result })
    }
}

fn done(call: u64, value: Value) -> Report {
    Report::Done {
        call,
        result: Ok(value),
    }
}

impl Running {
    fn step(&mut self, model: &Model, version: &str, offset: f64) -> Step {
        let sample = sampler::next(self.weights, self.context, self.asked.salt, model.vocab);
        self.context = self.context.with(sample.token);
        match self.spans.last_mut() {
            Some(span) if span.version == version => span.end += 1,
            _ => self.spans.push(Span {
                version: version.to_owned(),
                start: self.made,
                end: self.made + 1,
            }),
        }
        self.made += 1;
        let end = self
            .ending(sample.token)
            .map(|why| (why, std::mem::take(&mut self.spans)));
        Step {
            key: self.asked.key,
            token: Some((sample.token, sample.logprob + offset)),
            version: version.to_owned(),
            end,
        }
    }

    fn ending(&self, token: u32) -> Option<Ending> {
        if self.asked.stop.contains(&token) {
            Some(Ending::Stop(token))
        } else if self.asked.eos == Some(token) {
            Some(Ending::Eos(token))
        } else {
            (self.made >= self.asked.max_tokens).then_some(Ending::Length)
        }
    }

    fn aborted(self, version: &str) -> Report {
        Report::Step(Step {
            key: self.asked.key,
            token: None,
            version: version.to_owned(),
            end: Some((Ending::Abort, self.spans)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn engine() -> Engine {
        let boot = Boot {
            dialect: Dialect::Vllm,
            model: "none".into(),
            tokens_per_s: 1.0,
            max_running: 2,
            time_scale: 1.0,
            quirks: crate::quirks::Quirks::default(),
            shared: Vec::new(),
        };
        Engine::new(boot, Weights::dummy())
    }

    fn generate(key: u64, max_tokens: u32) -> Command {
        let (ids, stop) = (vec![1, 5], Vec::new());
        Command::Generate(Generate {
            key,
            ids,
            max_tokens,
            stop,
            eos: None,
            salt: 0,
        })
    }

    fn call(call: u64, operation: Operation) -> Command {
        Command::Call { call, operation }
    }

    fn calls(reports: &[Report]) -> Vec<u64> {
        let done = reports.iter().filter_map(|report| match report {
            Report::Done { call, .. } => Some(*call),
            _ => None,
        });
        done.collect()
    }

    fn handle(engine: &mut Engine, command: Command) -> Vec<Report> {
        engine.handle(command).unwrap_or_default()
    }

    #[test]
    fn a_pause_that_waits_is_answered_with_the_last_request_or_when_it_is_over() {
        let mut engine = engine();
        handle(&mut engine, generate(1, 2));
        let wait = || Operation::Pause {
            mode: PauseMode::Wait,
        };
        assert!(calls(&handle(&mut engine, call(7, wait()))).is_empty());
        assert!(calls(&engine.step()).is_empty());
        assert_eq!(calls(&engine.step()), [7]);
        assert!(!engine.is_busy());
        assert_eq!(calls(&handle(&mut engine, call(8, Operation::Resume))), [8]);
        handle(&mut engine, generate(2, 9));
        handle(&mut engine, call(9, wait()));
        assert_eq!(
            calls(&handle(&mut engine, call(10, Operation::Resume))),
            [9, 10]
        );
        handle(&mut engine, call(11, wait()));
        let abort = Operation::Pause {
            mode: PauseMode::Abort,
        };
        assert_eq!(calls(&handle(&mut engine, call(12, abort))), [11, 12]);
    }

    #[test]
    fn no_more_requests_run_than_there_is_room_for() {
        let mut engine = engine();
        for key in 1..=3 {
            handle(&mut engine, generate(key, 5));
        }
        assert_eq!(engine.step().len(), 2);
    }

    #[test]
    fn a_request_taken_in_a_pause_waits_for_its_end() {
        let mut engine = engine();
        handle(
            &mut engine,
            call(
                1,
                Operation::Pause {
                    mode: PauseMode::Freeze,
                },
            ),
        );
        handle(&mut engine, generate(2, 5));
        assert!(!engine.is_busy() && engine.step().is_empty());
        handle(&mut engine, call(3, Operation::Resume));
        assert!(engine.is_busy());
        assert_eq!(engine.step().len(), 1);
    }
}
