//! The keys that every screen has; all others are the screen's.
use super::{Link, State};
use crate::console::act::{Act, Whole};
use crate::console::dialogs::{ask, help};
use crate::console::event::{Action, Play, Quit};
use crate::console::names::ScreenId;
use crate::console::screen::Input;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

impl State {
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Vec<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => vec![Action::Quit(Quit::Asked)],
                _ => Vec::new(),
            };
        }
        let input = Input::Key(key.code);
        if self.dialog.is_some() {
            return self.tell_dialog(input);
        }
        if self.screen().hints(&self.common).typing.is_some() {
            return self.tell(input);
        }
        match self.on_common_key(key.code) {
            Some(actions) => actions,
            None => self.tell(input),
        }
    }

    /// A key that means the same on every screen; none: it is another one.
    fn on_common_key(&mut self, code: KeyCode) -> Option<Vec<Action>> {
        let act = match code {
            KeyCode::Char('q') => return Some(vec![Action::Quit(Quit::Asked)]),
            KeyCode::Char('?') => {
                let help = help::KeyHelp::of(self.shown, self.screen().hints(&self.common).own);
                self.dialog = Some(Box::new(help));
                return Some(Vec::new());
            }
            KeyCode::Tab => return Some(self.show(self.shown.next(1))),
            KeyCode::BackTab => return Some(self.show(self.shown.next(-1))),
            KeyCode::Char('s') => Act::Stop,
            KeyCode::Char('P') => match self.common.job.is_paused() {
                true => Act::Resume,
                false => Act::Pause,
            },
            KeyCode::Char('T') => Act::Restart(Whole::Task),
            KeyCode::Char('r')
                if self.common.link != Link::Live && self.common.playback.is_none() =>
            {
                return Some(vec![self.reconnect()]);
            }
            KeyCode::Char(c) => {
                if let Some(screen) = ScreenId::of_key(c) {
                    return Some(self.show(screen));
                }
                let play = self.common.playback.and_then(|_| play_key(c))?;
                return Some(vec![Action::Play(play)]);
            }
            KeyCode::Esc if self.shown != ScreenId::Roles => {
                let roles = self.screens.get_mut(ScreenId::Roles);
                let effects = roles.on(Input::SearchEnded, &mut self.common);
                let mut actions = self.apply(effects);
                actions.extend(self.tell(Input::Key(code)));
                return Some(actions);
            }
            _ => return None,
        };
        let asked = ask::open(act, &self.common);
        Some(self.apply(vec![asked]))
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
