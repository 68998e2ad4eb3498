//! What the mouse does: what lay under it in the last frame decides.
use super::State;
use crate::console::event::Action;
use crate::console::screen::Input;
use crate::console::ui::Spot;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

/// Rows that one notch of the wheel moves.
const NOTCH: isize = 3;

impl State {
    pub(super) fn on_mouse(&mut self, mouse: MouseEvent) -> Vec<Action> {
        // A dialog wants keys: a slip of the hand shall confirm nothing.
        if self.dialog.is_some() {
            return Vec::new();
        }
        let Some(spot) = self.common.drawn.at(mouse.column, mouse.row) else {
            return Vec::new();
        };
        match (mouse.kind, spot) {
            (MouseEventKind::Down(MouseButton::Left), Spot::Tab(screen)) => self.show(screen),
            (MouseEventKind::Down(MouseButton::Left), spot) => self.tell(Input::Click(spot)),
            (MouseEventKind::ScrollUp, spot) => self.tell(Input::Wheel(spot, -NOTCH)),
            (MouseEventKind::ScrollDown, spot) => self.tell(Input::Wheel(spot, NOTCH)),
            _ => Vec::new(),
        }
    }
}
