//! What a screen is told.
use super::dialogs::palette::Offer;
use super::event::Event;
use super::ui::Spot;
use crossterm::event::KeyCode;

/// What a screen is told.
#[derive(Clone, Debug)]
pub enum Input {
    /// It is on top now. What it showed last is shown from its beginning.
    Shown,
    /// A key that is not one of the console's own, or any while something is typed.
    Key(KeyCode),
    /// The left button, on something that the screen drew.
    Click(Spot),
    /// The wheel over something that the screen drew: so many rows down, or up.
    Wheel(Spot, isize),
    /// It is on top of a daemon that can be asked: now is the time for what it shows beside the status.
    Look,
    /// A status came.
    Heard,
    /// It asked for what there is to do ([`Effect::Offer`](super::screen::Effect::Offer)).
    Offered(Vec<Offer>),
    /// The daemon runs another job than before: what was marked was of that one.
    OtherJob,
    /// What it asked for has come; also while it is not on top.
    News(Event),
    /// Esc was pressed on another screen, which ends a search here too.
    SearchEnded,
}
