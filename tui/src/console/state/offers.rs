//! What the palette offers: the screens, the keys that mean something where the console is, and those of other screens.
use super::State;
use crate::console::dialogs::ask;
use crate::console::dialogs::palette::Offer;
use crate::console::key::{EVERYWHERE, Key, PLAYING};
use crate::console::names::ScreenId;
use crossterm::event::KeyCode;

impl State {
    /// All that there is to do. Read from what the help and the last line are read from.
    pub(super) fn offers(&self) -> Vec<Offer> {
        let own = self.screen().hints(&self.common).own;
        let own: Vec<Key> = own.concat();
        let playing = match self.common.playback {
            Some(_) => &PLAYING[..],
            None => &[],
        };
        let here = own.iter().chain(&EVERYWHERE).chain(playing);
        let mut offers: Vec<Offer> = here
            .filter_map(|key| Offer::here(key, self.refuses(key.press()?)))
            .collect();
        offers.extend(ScreenId::ALL.map(Offer::screen));
        offers.extend(self.elsewhere(own));
        offers
    }

    /// Keys of other screens; what several have is of the first.
    fn elsewhere(&self, mut known: Vec<Key>) -> Vec<Offer> {
        let mut offers = Vec::new();
        for screen in ScreenId::ALL {
            let keys = self.screens.get(screen).hints(&self.common).own.concat();
            for key in keys {
                if !known.contains(&key) {
                    known.push(key);
                    offers.extend(Offer::elsewhere(&key, screen));
                }
            }
        }
        offers
    }

    /// Why a key does nothing now.
    fn refuses(&self, code: KeyCode) -> Option<String> {
        if let Some(act) = self.act_of(code) {
            return ask::open(act, &self.common).refusal();
        }
        match code {
            KeyCode::Char('r') => self.is_reached_for().err().map(str::to_owned),
            code => self.screen().refuses(code, &self.common),
        }
    }
}
