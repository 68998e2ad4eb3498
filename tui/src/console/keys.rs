//! What the keys do.
use super::act::{Act, Life, Strike, Whole};
use super::dialog::{Overlay, PromptKind, edit};
use super::event::{Action, Play, Quit};
use super::screen::{Screen, TableId};
use super::state::{Link, State, Typing};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use robust_shared::fault::Fault;

/// Time on the timeline, from the shortest window to the longest.
const WINDOWS_MS: [u64; 7] = [10_000, 30_000, 60_000, 120_000, 300_000, 600_000, 900_000];

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
        if let Some(overlay) = self.overlay.take() {
            return self.on_overlay_key(overlay, key.code);
        }
        if let Some(typing) = self.typing {
            self.on_typed(typing, key.code);
            return Vec::new();
        }
        self.on_plain_key(key.code)
    }

    fn on_plain_key(&mut self, code: KeyCode) -> Vec<Action> {
        match code {
            KeyCode::Char('q') => return vec![Action::Quit(Quit::Asked)],
            KeyCode::Char('?') => self.overlay = Some(Overlay::Help { first: 0 }),
            KeyCode::Tab => return self.show(self.screen.next(1)),
            KeyCode::BackTab => return self.show(self.screen.next(-1)),
            KeyCode::Char('s') => self.ask(Act::Stop),
            KeyCode::Char('P') => self.ask(match self.job.is_paused() {
                true => Act::Resume,
                false => Act::Pause,
            }),
            KeyCode::Char('T') => self.ask(Act::Restart(Whole::Task)),
            KeyCode::Char('r') if self.link != Link::Live && self.playback.is_none() => {
                return vec![self.reconnect()];
            }
            KeyCode::Char(c) => {
                // On the timeline 0 is the present.
                if let Some(screen) = Screen::of_key(c) {
                    return self.show(screen);
                }
                if let Some(play) = self.playback.and_then(|_| play_key(c)) {
                    return vec![Action::Play(play)];
                }
                if !self.on_table_key(code) {
                    return self.on_screen_key(code);
                }
            }
            _ if self.on_table_key(code) => {}
            _ => return self.on_screen_key(code),
        }
        Vec::new()
    }

    /// Keys of the table that has them; whether it was one.
    fn on_table_key(&mut self, code: KeyCode) -> bool {
        let id = self.focus();
        let page = self.drawn.room(id).saturating_sub(1).max(1) as isize;
        let columns = self.columns(id);
        let by = match code {
            KeyCode::Up | KeyCode::Char('k') => -1,
            KeyCode::Down | KeyCode::Char('j') => 1,
            KeyCode::PageUp => -page,
            KeyCode::PageDown => page,
            KeyCode::Home | KeyCode::Char('g') => isize::MIN,
            KeyCode::End | KeyCode::Char('G') => isize::MAX,
            KeyCode::Char('/') => {
                self.typing = Some(Typing::Filter(id));
                return true;
            }
            KeyCode::Esc => {
                self.view_mut(id).filter.clear();
                self.log_words.clear();
                return true;
            }
            KeyCode::Char('>') => {
                self.view_mut(id).sort_next(columns, 1);
                return true;
            }
            KeyCode::Char('<') => {
                self.view_mut(id).sort_next(columns, -1);
                return true;
            }
            KeyCode::Char('=') => {
                self.view_mut(id).turn();
                return true;
            }
            KeyCode::Char(']') => {
                self.scrolled += 1;
                return true;
            }
            KeyCode::Char('[') => {
                self.scrolled = self.scrolled.saturating_sub(1);
                return true;
            }
            _ => return false,
        };
        self.select(id, |view, names| view.step(names, by));
        true
    }

    fn on_screen_key(&mut self, code: KeyCode) -> Vec<Action> {
        match (self.screen, code) {
            (Screen::Store, KeyCode::Left | KeyCode::Char('h')) => {
                self.store_pane = TableId::Checkpoints;
            }
            (Screen::Store, KeyCode::Right | KeyCode::Char('l')) => {
                self.store_pane = TableId::Trajectories;
            }
            (Screen::Timeline, code) if self.on_timeline_key(code) => {}
            (Screen::Roles, KeyCode::Char('f')) => self.typing = Some(Typing::Search),
            (Screen::Overview | Screen::Roles | Screen::Timeline, KeyCode::Char(c)) => {
                self.on_instance_key(c);
            }
            (Screen::Nodes, KeyCode::Char(c)) => self.on_node_key(c),
            (Screen::Drills, KeyCode::Enter) => return self.start_drill(),
            (Screen::Drills, KeyCode::Char('X')) => return vec![Action::EndDrill],
            _ => {}
        }
        Vec::new()
    }

    fn on_timeline_key(&mut self, code: KeyCode) -> bool {
        let window = &mut self.window;
        let zoom = |by: isize| {
            let now = WINDOWS_MS.iter().position(|&w| w >= window.span_ms);
            let next = now.unwrap_or(0).saturating_add_signed(by);
            WINDOWS_MS[next.min(WINDOWS_MS.len() - 1)]
        };
        let quarter = window.span_ms / 4;
        match code {
            KeyCode::Char('+') => window.span_ms = zoom(-1),
            KeyCode::Char('-') => window.span_ms = zoom(1),
            KeyCode::Left | KeyCode::Char('h') => {
                let most = super::history::KEPT_MS;
                window.back_ms = (window.back_ms + quarter).min(most);
            }
            KeyCode::Right | KeyCode::Char('l') => {
                window.back_ms = window.back_ms.saturating_sub(quarter);
            }
            KeyCode::Char('0') => window.back_ms = 0,
            _ => return false,
        }
        true
    }

    fn on_typed(&mut self, typing: Typing, code: KeyCode) {
        let line = match typing {
            Typing::Filter(id) => &mut self.view_mut(id).filter,
            Typing::Search => &mut self.log_words,
        };
        match code {
            KeyCode::Enter => self.typing = None,
            KeyCode::Esc => {
                line.clear();
                self.typing = None;
            }
            code => edit(line, code),
        }
        self.scrolled = 0;
    }

    fn on_instance_key(&mut self, key: char) {
        let Some(role) = self.chosen_role().cloned() else {
            if "KHLIDRQSU".contains(key) {
                self.tell("there is no instance selected".to_owned(), false);
            }
            return;
        };
        let strike = |fault| {
            Act::Strike(Strike {
                fault,
                at: None,
                life: Some(Life::from(&role)),
                i_know: false,
            })
        };
        match key {
            'K' => self.ask(strike(Fault::Kill)),
            'H' => self.ask(strike(Fault::Hang)),
            'L' => self.ask(strike(Fault::LoseSlot)),
            'I' => self.list_faults(Some(Life::from(&role)), role.node),
            'D' => {
                let armed = self.job.armed_for(&role).next().cloned();
                match armed {
                    Some(armed) => self.ask(Act::Disarm(armed)),
                    None => {
                        let name = crate::format::who(&role.role, role.index);
                        self.tell(format!("no fault waits for {name}"), false);
                    }
                }
            }
            'R' => self.ask(Act::Restart(Whole::from(&role))),
            'Q' => self.ask(Act::Traffic {
                role: role.role,
                index: role.index,
                out: !role.quarantined,
            }),
            'S' => {
                let from = self
                    .job
                    .roles()
                    .iter()
                    .filter(|r| r.role == role.role)
                    .count();
                let from = u32::try_from(from).unwrap_or(u32::MAX);
                self.prompt(PromptKind::Scale {
                    role: role.role,
                    from,
                });
            }
            'U' => self.prompt(PromptKind::Update { role: role.role }),
            _ => {}
        }
    }

    fn on_node_key(&mut self, key: char) {
        let Some(node) = self.chosen_node().cloned() else {
            return;
        };
        match key {
            'C' => self.ask(Act::Cordon {
                out: !node.cordoned,
                node: node.name,
            }),
            'D' => self.ask(Act::Drain {
                whom: self.movable(&node.name),
                node: node.name,
            }),
            'I' => self.list_faults(None, node.name),
            'R' => match node.lost.into_iter().next() {
                Some(slot) => self.ask(Act::Restore(slot)),
                None => self.tell(format!("no slot of {} is lost", node.name), false),
            },
            _ => {}
        }
    }

    /// What has to be restarted so that nothing is left on a node; a gang once.
    fn movable(&self, node: &str) -> Vec<Whole> {
        let here = self.job.roles().iter().filter(|r| r.node == node);
        let mut gang = false;
        here.filter(|r| r.role != "trainer" || !std::mem::replace(&mut gang, true))
            .map(Whole::from)
            .collect()
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
