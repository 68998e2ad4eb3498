//! The screens, each a module with its own state.
mod drills;
mod incidents;
pub mod instances;
mod looks;
mod nodes;
mod overview;
mod roles;
mod store;
mod time;
mod timeline;
mod training;
mod trajectory;
mod weights;

use super::names::ScreenId;
use super::screen::Screen;

/// All of them; those that are not on top keep what they were left with.
#[derive(Debug)]
pub struct Screens([Box<dyn Screen>; ScreenId::ALL.len()]);

impl Default for Screens {
    fn default() -> Self {
        Screens(ScreenId::ALL.map(make))
    }
}

impl Screens {
    /// The one of this name.
    pub fn get(&self, id: ScreenId) -> &dyn Screen {
        &*self.0[id as usize]
    }

    /// The same, to tell it something.
    pub fn get_mut(&mut self, id: ScreenId) -> &mut dyn Screen {
        &mut *self.0[id as usize]
    }
}

fn make(id: ScreenId) -> Box<dyn Screen> {
    match id {
        ScreenId::Overview => Box::new(overview::Overview),
        ScreenId::Roles => Box::new(roles::Roles::default()),
        ScreenId::Timeline => Box::new(timeline::Timeline::default()),
        ScreenId::Weights => Box::new(weights::Weights::default()),
        ScreenId::Store => Box::new(store::Store::default()),
        ScreenId::Incidents => Box::new(incidents::Incidents::default()),
        ScreenId::Nodes => Box::new(nodes::Nodes::default()),
        ScreenId::Drills => Box::new(drills::Drills::default()),
        ScreenId::Training => Box::new(training::Training::default()),
        ScreenId::Time => Box::new(time::Spent::default()),
    }
}
