//! One process of a service: its state, and what changes it.
use super::plan::{Asked, Spec};
use super::{Effect, ServiceId};
use crate::core::{Budgets, FaultKind, Severity, Strikes};
use crate::ids::Incarnation;
use crate::job::Needed;
use crate::time::Time;
use crate::wire::ServiceState;
use std::collections::VecDeque;
use std::time::Duration;

/// The first wait beyond the budget; doubles with each further one.
const BEYOND_FIRST: Duration = Duration::from_secs(10);
/// The longest.
const BEYOND_MOST: Duration = Duration::from_secs(300);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Those before it are not up.
    Waiting,
    /// It was started and has not answered yet.
    Starting { by: Time, next: Next },
    /// It answers.
    Up { next: Next },
    /// It did not answer the last times.
    Suspect { bad: u32, next: Next },
    /// It is being killed.
    Ending { kind: FaultKind, reason: String },
    /// It is started again then.
    Restarting { at: Time },
    /// It was given up.
    Down,
}

/// When it is asked again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    At(Time),
    /// It is being asked.
    UnderWay,
    Never,
}

#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub id: ServiceId,
    pub state: State,
    pub since: Time,
    /// The present life, or the last one; 0: none yet.
    pub life: Incarnation,
    pub restarts: u32,
    /// Why the last life ended, or empty.
    pub reason: String,
    /// Whether any life of it was up.
    pub was_up: bool,
    strikes: Strikes,
}

/// What a transition works with.
pub(super) struct With<'a> {
    pub now: Time,
    pub spec: &'a Spec,
    pub budgets: &'a Budgets,
    pub out: &'a mut VecDeque<Effect>,
}

impl With<'_> {
    fn say(&mut self, severity: Severity, kind: &'static str, text: String) {
        self.out.push_back(Effect::Say {
            severity,
            kind,
            text,
        });
    }
}

impl Next {
    fn of(asked: Option<&Asked>, at: Time) -> Self {
        asked.map_or(Self::Never, |_| Self::At(at))
    }
}

impl Instance {
    pub fn new(name: &str, index: u32) -> Self {
        Self {
            id: ServiceId {
                name: name.to_owned(),
                index,
            },
            state: State::Waiting,
            since: Time::default(),
            life: Incarnation(0),
            restarts: 0,
            reason: String::new(),
            was_up: false,
            strikes: Strikes::default(),
        }
    }

    pub fn is_up(&self) -> bool {
        matches!(self.state, State::Up { .. } | State::Suspect { .. })
    }

    pub fn lives(&self) -> bool {
        let ends = matches!(self.state, State::Starting { .. } | State::Ending { .. });
        ends || self.is_up()
    }

    /// Whether a first attempt came to something, be it good or bad.
    pub fn was_tried(&self) -> bool {
        self.was_up || !self.reason.is_empty()
    }

    /// How it is, as operators see it.
    pub fn shown(&self) -> ServiceState {
        match self.state {
            State::Waiting => ServiceState::Waiting,
            State::Starting { .. } => ServiceState::Starting,
            State::Up { .. } => ServiceState::Up,
            State::Suspect { .. } => ServiceState::Suspect,
            State::Ending { .. } => ServiceState::Ending,
            State::Restarting { .. } => ServiceState::Restarting,
            State::Down => ServiceState::Down,
        }
    }

    pub fn start(&mut self, life: Incarnation, with: &mut With<'_>) {
        self.life = life;
        let id = self.id.clone();
        with.out.push_back(Effect::Start { id, life });
        self.goes_on(with);
    }

    /// A life that runs and did not answer yet.
    fn goes_on(&mut self, with: &mut With<'_>) {
        let by = with.now + with.spec.ready_within;
        let next = Next::of(with.spec.ready.as_ref(), with.now);
        self.enter(State::Starting { by, next }, with.now);
        if next == Next::Never {
            self.is_there(with);
        }
    }

    pub fn adopt(&mut self, life: Incarnation, up: bool, with: &mut With<'_>) {
        self.life = life;
        match up {
            true => {
                self.was_up = true;
                let next = Next::of(with.spec.health.as_ref(), with.now);
                self.enter(State::Up { next }, with.now);
            }
            false => self.goes_on(with),
        }
    }

    fn enter(&mut self, state: State, now: Time) {
        self.state = state;
        self.since = now;
    }

    fn is_there(&mut self, with: &mut With<'_>) {
        let took = with.now.since(self.since).as_secs_f64();
        self.was_up = true;
        let every = with.spec.health.as_ref().map(|h| h.every);
        let at = with.now + every.unwrap_or_default();
        let next = Next::of(with.spec.health.as_ref(), at);
        self.enter(State::Up { next }, with.now);
        let text = format!("{} is up after {took:.1} s", self.id);
        with.say(Severity::Info, "service", text);
    }

    pub fn on_probed(&mut self, ok: bool, with: &mut With<'_>) {
        let (now, spec) = (with.now, with.spec);
        match (&mut self.state, ok) {
            (State::Starting { .. }, true) => self.is_there(with),
            (State::Starting { next, .. }, false) => *next = later(spec.ready.as_ref(), now),
            (State::Up { next }, true) => *next = later(spec.health.as_ref(), now),
            (State::Suspect { .. }, true) => {
                let next = later(spec.health.as_ref(), now);
                self.enter(State::Up { next }, now);
                let text = format!("{} answers again", self.id);
                with.say(Severity::Info, "service", text);
            }
            (State::Up { .. }, false) => self.on_bad(1, with),
            (State::Suspect { bad, .. }, false) => {
                let bad = bad.saturating_add(1);
                self.on_bad(bad, with);
            }
            _ => {}
        }
    }

    fn on_bad(&mut self, bad: u32, with: &mut With<'_>) {
        let Some(health) = &with.spec.health else {
            return;
        };
        let path = health.path.as_deref().unwrap_or_default();
        if bad >= health.threshold {
            let reason = format!("no good answer at {path}, {bad} times in a row");
            return self.kill(FaultKind::Health, reason, with);
        }
        let next = later(Some(health), with.now);
        if bad == 1 {
            let text = format!("{} does not answer well at {path}", self.id);
            with.say(Severity::Warn, "service", text);
            self.since = with.now;
        }
        self.state = State::Suspect { bad, next };
    }

    fn kill(&mut self, kind: FaultKind, reason: String, with: &mut With<'_>) {
        with.out.push_back(Effect::Kill {
            life: self.life,
            reason: reason.clone(),
        });
        self.enter(State::Ending { kind, reason }, with.now);
    }

    pub fn on_exited(&mut self, how: String, with: &mut With<'_>) {
        let state = std::mem::replace(&mut self.state, State::Waiting);
        match state {
            State::Ending { kind, reason } => self.fault(kind, reason, with),
            State::Starting { .. } => self.fault(FaultKind::Start, how, with),
            State::Up { .. } | State::Suspect { .. } => self.fault(FaultKind::Exit, how, with),
            other => self.state = other,
        }
    }

    /// A life ended that was not to end.
    fn fault(&mut self, kind: FaultKind, reason: String, with: &mut With<'_>) {
        let budget = with.budgets.of(kind);
        let failures = self.strikes.strike(kind, budget.window, with.now);
        self.reason.clone_from(&reason);
        let wait = match failures
            .checked_sub(budget.max)
            .filter(|beyond| *beyond > 0)
        {
            None => budget.wait_after(failures),
            Some(beyond) => match with.spec.needed {
                Needed::Wait => beyond_budget(beyond),
                needed => return self.give_up(needed, budget.max, with),
            },
        };
        self.restarts += 1;
        self.enter(
            State::Restarting {
                at: with.now + wait,
            },
            with.now,
        );
        let when = match wait.is_zero() {
            true => "it is started again".to_owned(),
            false => format!("it is started again in {:.1} s", wait.as_secs_f64()),
        };
        let text = format!("{}: {reason}; {when}", self.id);
        with.say(Severity::Warn, "service-restart", text);
    }

    fn give_up(&mut self, needed: Needed, max: u32, with: &mut With<'_>) {
        self.enter(State::Down, with.now);
        let text = format!(
            "{} is given up after {max} restarts in a row: {}",
            self.id, self.reason
        );
        match needed {
            Needed::Fail => {
                with.say(Severity::Fault, "service", text.clone());
                with.out.push_back(Effect::Fail { reason: text });
            }
            _ => {
                let text = format!("{text}; the job goes on without it");
                with.say(Severity::Fault, "service", text);
            }
        }
    }

    /// What its time has come for.
    pub fn on_time(&mut self, with: &mut With<'_>) {
        let now = with.now;
        if let State::Starting { by, .. } = self.state
            && by <= now
        {
            let limit = with.spec.ready_within.as_secs_f64();
            let reason = format!("not up after {limit:.0} s (`ready.timeout_s`)");
            return self.kill(FaultKind::Start, reason, with);
        }
        let (asked, next) = match &mut self.state {
            State::Starting { next, .. } => (&with.spec.ready, next),
            State::Up { next } | State::Suspect { next, .. } => (&with.spec.health, next),
            _ => return,
        };
        if let (Some(asked), Next::At(at)) = (asked, *next)
            && at <= now
        {
            *next = Next::UnderWay;
            with.out.push_back(Effect::Probe {
                id: self.id.clone(),
                life: self.life,
                path: asked.path.clone(),
                timeout: asked.timeout,
            });
        }
    }

    pub fn next_timeout(&self) -> Option<Time> {
        let at = |next: &Next| match next {
            Next::At(at) => Some(*at),
            _ => None,
        };
        match &self.state {
            State::Starting { by, next } => Some(at(next).map_or(*by, |next| next.min(*by))),
            State::Up { next } | State::Suspect { next, .. } => at(next),
            State::Restarting { at } => Some(*at),
            State::Waiting | State::Ending { .. } | State::Down => None,
        }
    }
}

fn later(asked: Option<&Asked>, now: Time) -> Next {
    asked.map_or(Next::Never, |asked| Next::At(now + asked.every))
}

fn beyond_budget(restarts: u32) -> Duration {
    let doubled = 1 << (restarts - 1).min(8);
    BEYOND_FIRST.saturating_mul(doubled).min(BEYOND_MOST)
}
