//! The console's state: `handle` takes one event and says what is to be done. What a screen shows besides
//! is the screen's own ([`Screen`]).
//!
//! ```text
//!              Connect            Status            10 s without one, or Lost
//!   Waiting ───────────► Waiting ────────► Live ────────────────────────────► Lost
//!      ▲                                    ▲                                  │
//!      │                                    └──────────── Status ──────────────┤
//!      └── (first Lost keeps the screen empty)         Connect, twice a second ┘
//! ```
//! Every connection has a number; what an older one still delivers is dropped. No clock in here:
//! `now` is Unix time in milliseconds, given by the runner.
mod answers;
mod bell;
mod common;
mod connection;
mod keys;
mod link;
mod mouse;
mod offers;
mod phases;
mod sight;

pub use bell::Bell;
pub use common::Common;
pub use sight::{Link, Settings, Sight};

use super::dialogs::told::Told;
use super::event::{Action, Event, Quit};
use super::names::ScreenId;
use super::screen::{Effect, Input, Screen};
use super::screens::{Screens, instances};
use super::ui::Drawn;
use answers::Awaited;
use connection::Connection;
use phases::Phases;

/// How long an action's answer is shown.
const NOTICE_MS: u64 = 8_000;

/// The answer to the last action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A sentence.
    pub text: String,
    /// Whether it was done.
    pub good: bool,
    until: u64,
}

/// The console.
#[derive(Debug)]
pub struct State {
    /// What every screen sees.
    common: Common,
    connection: Connection,
    phases: Phases,
    bell: Bell,
    /// The screen that is on top.
    shown: ScreenId,
    screens: Screens,
    /// What lies over it and takes the keys.
    dialog: Option<Box<dyn Screen>>,
    /// The answer to the last action.
    notice: Option<Notice>,
    /// Esc, where it ends nothing, goes to the jobs of all contexts.
    beside: bool,
    /// What came of several acts and is to be told, once no dialog is in its way.
    told: Option<Told>,
    /// Acts of which nobody knows yet what came of them.
    awaited: Awaited,
}

impl State {
    /// A console that knows nothing yet.
    pub fn new(settings: Settings) -> State {
        State {
            connection: Connection::new(settings.exit_when_done),
            phases: Phases::new(settings.records),
            bell: Bell::new(settings.bell),
            common: Common::new(settings, instances::table()),
            shown: ScreenId::Overview,
            screens: Screens::default(),
            dialog: None,
            notice: None,
            beside: false,
            told: None,
            awaited: Awaited::default(),
        }
    }

    /// The first connection.
    pub fn start(&mut self, now: u64) -> Vec<Action> {
        self.common.sight.now = now;
        self.connection.begin(now);
        vec![self.reconnect()]
    }

    /// Takes one event.
    #[must_use]
    pub fn handle(&mut self, now: u64, event: Event) -> Vec<Action> {
        self.common.sight.now = now;
        let present = self.connection.number();
        match event {
            Event::Resize => Vec::new(),
            Event::Terminate => vec![Action::Quit(Quit::Asked)],
            Event::Key(key) => self.on_key(key),
            Event::Mouse(mouse) => self.on_mouse(mouse),
            Event::Tick => self.on_tick(),
            Event::Status { link, .. }
            | Event::Logged { link, .. }
            | Event::Phases { link, .. }
            | Event::PhasesEnded { link, .. }
            | Event::Lost { link, .. }
                if link != present =>
            {
                Vec::new()
            }
            Event::Status { status, .. } => self.on_status(*status),
            Event::Lost { reason, .. } => self.on_lost(reason),
            other => self.on_news(other),
        }
    }

    /// Something is known that was not.
    fn on_news(&mut self, event: Event) -> Vec<Action> {
        let now = self.common.now;
        let sight = &mut self.common.sight;
        match event {
            Event::Logged { event, .. } => sight.job.logged(*event),
            Event::Phases { spans, .. } => sight.job.phases_ended(&spans),
            Event::StepsRead { started_ms, lines } => sight.job.steps_told(started_ms, lines),
            Event::PhasesEnded { never, .. } => self.phases.ended(now, never),
            Event::Played(playback) => sight.playback = Some(playback),
            Event::Answered(answer) => {
                self.awaited.answered();
                let good = answer.is_ok();
                self.notify(answer.unwrap_or_else(|e| e), good);
            }
            Event::AnsweredAll(answers) => {
                self.awaited.answered();
                self.notify(answers.summary(), answers.is_good());
                if !answers.is_good() {
                    self.told = Some(Told::of(&answers));
                    self.tell_what_came();
                }
            }
            // Of a dialog, whichever screen lies under it.
            news @ (Event::LookedInside { .. } | Event::Foreseen { .. }) => {
                return self.tell_dialog(Input::News(news));
            }
            news => {
                let Some(screen) = news.belongs_to() else {
                    return Vec::new();
                };
                let screen = self.screens.get_mut(screen);
                let effects = screen.on(Input::News(news), &mut self.common);
                return self.apply(effects);
            }
        }
        Vec::new()
    }

    /// Shows a sentence for a while.
    pub fn notify(&mut self, text: String, good: bool) {
        self.notice = Some(Notice {
            text,
            good,
            until: self.common.now + NOTICE_MS,
        });
    }

    /// What the last frame showed where.
    pub fn set_drawn(&mut self, drawn: Drawn) {
        self.common.sight.drawn = drawn;
    }

    /// What every screen sees.
    pub fn common(&self) -> &Common {
        &self.common
    }

    /// The name of the screen that is on top.
    pub fn shown(&self) -> ScreenId {
        self.shown
    }

    /// The screen that is on top.
    pub fn screen(&self) -> &dyn Screen {
        self.screens.get(self.shown)
    }

    /// Whether the console is left when the job is over.
    pub fn ends_with_job(&self) -> bool {
        self.connection.ends_with_job()
    }

    /// Whether something was asked of the daemon that it has not answered yet.
    pub fn awaits_answers(&self) -> bool {
        self.awaited.is_any()
    }

    /// Why it is not left yet, which is said once for what is awaited.
    pub fn warn_of_answers(&mut self) -> Option<&'static str> {
        self.awaited.warn()
    }

    /// From now on Esc goes to the jobs of all contexts, where it ends nothing.
    pub fn lies_beside(&mut self) {
        self.beside = true;
    }

    /// What lies over it.
    pub fn dialog(&self) -> Option<&dyn Screen> {
        self.dialog.as_deref()
    }

    /// The answer to the last action.
    pub fn notice(&self) -> Option<&Notice> {
        self.notice.as_ref()
    }

    /// Shows another screen, and asks for what it needs at once.
    fn show(&mut self, screen: ScreenId) -> Vec<Action> {
        self.shown = screen;
        let opened = self.tell(Input::Shown);
        let mut actions = self.wanted();
        actions.extend(opened);
        actions
    }

    /// What is to be asked for beside the status.
    fn wanted(&mut self) -> Vec<Action> {
        let sight = &self.common.sight;
        if sight.link != Link::Live || sight.playback.is_some() {
            return Vec::new();
        }
        let shown = self.screen().shows_phases(&self.common);
        let link = self.connection.number();
        let told = sight.job.history().told_until();
        let phases = self.phases.wanted(sight.now, shown, link, told);
        let mut actions: Vec<Action> = phases.into_iter().collect();
        actions.extend(self.tell(Input::Look));
        actions
    }

    /// Tells the screen that is on top.
    fn tell(&mut self, input: Input) -> Vec<Action> {
        let screen = self.screens.get_mut(self.shown);
        let effects = screen.on(input, &mut self.common);
        self.apply(effects)
    }

    /// Tells the dialog, if there is one.
    fn tell_dialog(&mut self, input: Input) -> Vec<Action> {
        let Some(dialog) = &mut self.dialog else {
            return Vec::new();
        };
        let effects = dialog.on(input, &mut self.common);
        self.apply(effects)
    }

    fn apply(&mut self, effects: Vec<Effect>) -> Vec<Action> {
        let mut actions = Vec::new();
        for effect in effects {
            match effect {
                Effect::Do(action) => {
                    if matches!(action, Action::Do(_)) {
                        self.awaited.asked();
                    }
                    actions.push(action);
                }
                Effect::Tell { text, good } => self.notify(text, good),
                Effect::Open(dialog) => self.dialog = Some(dialog),
                Effect::Close => self.dialog = None,
                Effect::Show(screen) => actions.extend(self.show(screen)),
                Effect::Press(code) => actions.extend(self.press(code)),
                Effect::Offer => {
                    let offers = self.offers();
                    actions.extend(self.tell_dialog(Input::Offered(offers)));
                }
            }
        }
        self.tell_what_came();
        actions
    }

    /// A question that is open is answered first.
    fn tell_what_came(&mut self) {
        if self.dialog.is_none()
            && let Some(told) = self.told.take()
        {
            self.dialog = Some(Box::new(told));
        }
    }
}
