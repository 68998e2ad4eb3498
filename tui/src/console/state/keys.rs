//! The keys that every screen has; all others are the screen's.
use super::{Link, State};
use crate::console::act::{Act, Whole};
use crate::console::dialogs::palette::Palette;
use crate::console::dialogs::{ask, help};
use crate::console::event::{Action, Play, Quit};
use crate::console::names::ScreenId;
use crate::console::screen::{Effect, Input};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

impl State {
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Vec<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => vec![Action::Quit(Quit::Asked)],
                _ => Vec::new(),
            };
        }
        match self.dialog.is_some() {
            true => self.tell_dialog(Input::Key(key.code)),
            false => self.press(key.code),
        }
    }

    /// A key for the console itself, or for the screen.
    pub(super) fn press(&mut self, code: KeyCode) -> Vec<Action> {
        let input = Input::Key(code);
        if self.screen().hints(&self.common).typing.is_some() {
            return self.tell(input);
        }
        match self.on_common_key(code) {
            Some(actions) => actions,
            None => self.tell(input),
        }
    }

    /// What a key that changes the whole job does to it, on every screen.
    pub(super) fn act_of(&self, code: KeyCode) -> Option<Act> {
        match code {
            KeyCode::Char('s') => Some(Act::Stop),
            KeyCode::Char('P') if self.common.job.is_paused() => Some(Act::Resume),
            KeyCode::Char('P') => Some(Act::Pause),
            KeyCode::Char('T') => Some(Act::Restart(Whole::Task)),
            _ => None,
        }
    }

    /// A key that means the same on every screen; none: it is another one.
    fn on_common_key(&mut self, code: KeyCode) -> Option<Vec<Action>> {
        if let Some(act) = self.act_of(code) {
            let asked = ask::open(act, &self.common);
            return Some(self.apply(vec![asked]));
        }
        match code {
            KeyCode::Char('q') => Some(self.leave()),
            KeyCode::Char('?') => {
                let help = help::KeyHelp::of(self.shown, self.screen().hints(&self.common).own);
                self.dialog = Some(Box::new(help));
                Some(Vec::new())
            }
            KeyCode::Char(':') => {
                let palette = Box::new(Palette::default());
                Some(self.apply(vec![Effect::Open(palette), Effect::Offer]))
            }
            KeyCode::Tab => Some(self.show(self.shown.next(1))),
            KeyCode::BackTab => Some(self.show(self.shown.next(-1))),
            KeyCode::Char('J') => Some(vec![Action::ShowJobs]),
            KeyCode::Char('r') if self.is_reached_for().is_ok() => Some(vec![self.reconnect()]),
            KeyCode::Char(c) => {
                if let Some(screen) = ScreenId::of_key(c) {
                    return Some(self.show(screen));
                }
                let play = self.common.playback.and_then(|_| play_key(c))?;
                Some(vec![Action::Play(play)])
            }
            KeyCode::Esc if self.beside && !self.ends_with_esc() => Some(vec![Action::ShowJobs]),
            KeyCode::Esc if self.shown != ScreenId::Roles => {
                let roles = self.screens.get_mut(ScreenId::Roles);
                let effects = roles.on(Input::SearchEnded, &mut self.common);
                let mut actions = self.apply(effects);
                actions.extend(self.tell(Input::Key(code)));
                Some(actions)
            }
            _ => None,
        }
    }

    /// Leaves, or says once what would be lost by it.
    fn leave(&mut self) -> Vec<Action> {
        match self.warn_of_answers() {
            Some(why) => {
                self.notify(why.to_owned(), false);
                Vec::new()
            }
            None => vec![Action::Quit(Quit::Asked)],
        }
    }

    /// Whether Esc ends something: marks, a filter, a search in the log, which it ends from every screen, or what the screen
    /// says of itself.
    fn ends_with_esc(&self) -> bool {
        let screen = self.screen();
        screen.marked(&self.common) > 0
            || !screen.hints(&self.common).filter.is_empty()
            || screen.ends_with_esc()
            || self.screens.get(ScreenId::Roles).ends_with_esc()
    }

    /// Whether there is a lost daemon to be reached for, or why not.
    pub(super) fn is_reached_for(&self) -> Result<(), &'static str> {
        match self.common.link {
            _ if self.common.playback.is_some() => Err("this is a recording"),
            Link::Live => Err("the daemon is reached"),
            Link::Waiting | Link::Lost { .. } => Ok(()),
        }
    }
}

fn play_key(key: char) -> Option<Play> {
    match key {
        ' ' => Some(Play::Pause),
        '{' => Some(Play::Seek(-10_000)),
        '}' => Some(Play::Seek(10_000)),
        '(' => Some(Play::Slower),
        ')' => Some(Play::Faster),
        _ => None,
    }
}
