//! What the keys do.
use super::event::{Action, Fault, Quit, Strike};
use super::state::{Link, Overlay, State};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The keys and what they do, for the help overlay.
pub const HELP: [(&str, &str); 10] = [
    ("Up k, Down j", "select an instance"),
    ("Home g, End G", "first, last instance"),
    ("K", "kill the selected instance (asks first)"),
    ("H", "hang the selected instance (asks first)"),
    ("s", "end the job and its daemon (asks first)"),
    ("r", "try to reach a lost daemon now"),
    ("y Enter", "yes, in a dialog"),
    ("n Esc", "no, in a dialog"),
    ("?", "this help"),
    ("q Ctrl-C", "leave the console; the job goes on"),
];

impl State {
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Vec<Action> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            let leave = key.code == KeyCode::Char('c');
            return if leave {
                vec![Action::Quit(Quit::Asked)]
            } else {
                Vec::new()
            };
        }
        match self.overlay.take() {
            None => self.on_plain_key(key.code),
            Some(overlay) => self.on_overlay_key(overlay, key.code),
        }
    }

    fn on_plain_key(&mut self, code: KeyCode) -> Vec<Action> {
        let last = self.roles().len().saturating_sub(1);
        match code {
            KeyCode::Char('q') => return vec![Action::Quit(Quit::Asked)],
            KeyCode::Char('?') => self.overlay = Some(Overlay::Help),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.selected = last,
            KeyCode::Char('K') => self.ask_inject(Fault::Kill),
            KeyCode::Char('H') => self.ask_inject(Fault::Hang),
            KeyCode::Char('s') => self.ask_stop(),
            KeyCode::Char('r') if self.link != Link::Live => return vec![self.reconnect()],
            _ => {}
        }
        Vec::new()
    }

    fn on_overlay_key(&mut self, overlay: Overlay, code: KeyCode) -> Vec<Action> {
        let yes = matches!(code, KeyCode::Char('y' | 'Y') | KeyCode::Enter);
        let no = matches!(code, KeyCode::Char('n' | 'N') | KeyCode::Esc);
        match overlay {
            Overlay::Help if no || yes || matches!(code, KeyCode::Char('?' | 'q')) => Vec::new(),
            Overlay::Inject(_) | Overlay::Stop if no => Vec::new(),
            Overlay::Inject(_) | Overlay::Stop if yes && self.link != Link::Live => {
                self.tell(
                    "the daemon is not reachable; nothing done".to_owned(),
                    false,
                );
                Vec::new()
            }
            Overlay::Inject(strike) if yes => vec![Action::Inject(strike)],
            Overlay::Stop if yes => vec![Action::Stop],
            // Any other key belongs to the overlay and means nothing there.
            overlay => {
                self.overlay = Some(overlay);
                Vec::new()
            }
        }
    }

    fn ask_inject(&mut self, fault: Fault) {
        if let Some(refusal) = self.cannot_act() {
            return self.tell(refusal.to_owned(), false);
        }
        let strike = self.roles().get(self.selected).map(|r| Strike {
            fault,
            role: r.role.clone(),
            index: r.index,
            incarnation: r.incarnation,
            pid: r.pid,
        });
        match strike {
            Some(strike) => self.overlay = Some(Overlay::Inject(strike)),
            None => self.tell("there is no instance to strike yet".to_owned(), false),
        }
    }

    fn ask_stop(&mut self) {
        match self.cannot_act() {
            Some(refusal) => self.tell(refusal.to_owned(), false),
            None => self.overlay = Some(Overlay::Stop),
        }
    }

    fn cannot_act(&self) -> Option<&'static str> {
        match self.link {
            Link::Waiting => Some("no daemon reached yet"),
            Link::Lost { .. } => Some("the daemon is not reachable"),
            Link::Live if self.is_over() => Some("the job is over"),
            Link::Live => None,
        }
    }
}
