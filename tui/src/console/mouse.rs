//! What the mouse does: what lay under it in the last frame decides.
use super::event::Action;
use super::state::State;
use super::ui::Spot;
use crossterm::event::{MouseButton, MouseEvent, MouseEventKind};

/// Rows that one notch of the wheel moves.
const NOTCH: isize = 3;

impl State {
    pub(super) fn on_mouse(&mut self, mouse: MouseEvent) -> Vec<Action> {
        // A dialog wants keys: a slip of the hand shall confirm nothing.
        if self.overlay.is_some() {
            return Vec::new();
        }
        let spot = self.drawn.at(mouse.column, mouse.row);
        match (mouse.kind, spot) {
            (MouseEventKind::Down(MouseButton::Left), Some(Spot::Tab(screen))) => {
                return self.show(screen);
            }
            (MouseEventKind::Down(MouseButton::Left), Some(Spot::Row(id, at))) => {
                self.focus_on(id);
                self.select(id, |view, names| view.choose(names, at));
            }
            (MouseEventKind::Down(MouseButton::Left), Some(Spot::Head(id, column))) => {
                self.focus_on(id);
                self.view_mut(id).sort_by(column);
            }
            (MouseEventKind::ScrollUp, Some(spot)) => self.wheel(spot, -NOTCH),
            (MouseEventKind::ScrollDown, Some(spot)) => self.wheel(spot, NOTCH),
            _ => {}
        }
        Vec::new()
    }

    fn wheel(&mut self, spot: Spot, by: isize) {
        match spot {
            Spot::Row(id, _) | Spot::Head(id, _) | Spot::Body(id) => {
                self.focus_on(id);
                self.select(id, |view, names| view.step(names, by));
            }
            Spot::Text => self.scrolled = self.scrolled.saturating_add_signed(by),
            Spot::Tab(_) => {}
        }
    }

    fn focus_on(&mut self, id: super::screen::TableId) {
        use super::screen::TableId;
        if matches!(id, TableId::Checkpoints | TableId::Trajectories) {
            self.store_pane = id;
        }
    }
}
