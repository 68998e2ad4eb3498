//! What lies over the screen and takes the keys: the help, a question, a line to type.
use super::act::Act;
use super::event::Action;
use super::state::{Link, State};
use crossterm::event::KeyCode;

/// What lies over the screen and takes the keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Overlay {
    /// The keys.
    Help,
    /// Shall it be done?
    Ask(Ask),
    /// A line is being typed.
    Prompt(Prompt),
}

/// A question.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// What would be done.
    pub act: Act,
    /// The word that must be typed for it.
    pub needs: Option<String>,
    /// What was typed so far.
    pub typed: String,
}

/// A line that is being typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// What for.
    pub kind: PromptKind,
    /// So far.
    pub text: String,
    /// Why the last try was no good.
    pub problem: String,
}

/// What a line is typed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PromptKind {
    /// How many instances of a role.
    Scale {
        /// The role.
        role: String,
        /// As many as there are.
        from: u32,
    },
    /// A new value for a role.
    Update {
        /// The role.
        role: String,
    },
}

impl PromptKind {
    /// The words before the line.
    pub fn label(&self) -> String {
        match self {
            PromptKind::Scale { role, from } => format!("How many {role} instances? (now {from})"),
            PromptKind::Update { role } => format!("New value for {role}, as KEY=VALUE:"),
        }
    }

    fn act(&self, text: &str) -> Result<Act, String> {
        match self {
            PromptKind::Scale { role, from } => match text.trim().parse() {
                Ok(to) if to == *from => Err(format!("there are {from} already")),
                Ok(to) => Ok(Act::Scale {
                    role: role.clone(),
                    from: *from,
                    to,
                }),
                Err(_) => Err("a number is wanted".to_owned()),
            },
            PromptKind::Update { role } => match text.split_once('=') {
                Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
                    Ok(Act::Update {
                        role: role.clone(),
                        change: text.trim().to_owned(),
                    })
                }
                _ => Err("KEY=VALUE is wanted, as in the job file".to_owned()),
            },
        }
    }
}

impl State {
    /// Asks before it is done.
    pub(super) fn ask(&mut self, act: Act) {
        if let Some(refusal) = self.cannot_act() {
            return self.tell(refusal.to_owned(), false);
        }
        let needs = act.needs(self);
        self.overlay = Some(Overlay::Ask(Ask {
            act,
            needs,
            typed: String::new(),
        }));
    }

    /// Has a line typed.
    pub(super) fn prompt(&mut self, kind: PromptKind) {
        if let Some(refusal) = self.cannot_act() {
            return self.tell(refusal.to_owned(), false);
        }
        self.overlay = Some(Overlay::Prompt(Prompt {
            kind,
            text: String::new(),
            problem: String::new(),
        }));
    }

    pub(super) fn on_overlay_key(&mut self, overlay: Overlay, code: KeyCode) -> Vec<Action> {
        match overlay {
            Overlay::Help => {
                let leaves = ['?', 'q', 'y', 'n'].map(KeyCode::Char).contains(&code);
                if !leaves && !matches!(code, KeyCode::Esc | KeyCode::Enter) {
                    self.overlay = Some(Overlay::Help);
                }
                Vec::new()
            }
            Overlay::Ask(ask) => self.on_answer(ask, code),
            Overlay::Prompt(prompt) => {
                self.on_line(prompt, code);
                Vec::new()
            }
        }
    }

    fn on_answer(&mut self, mut ask: Ask, code: KeyCode) -> Vec<Action> {
        let said = match (&ask.needs, code) {
            (_, KeyCode::Esc) => Some(false),
            (None, KeyCode::Enter) => Some(true),
            (None, KeyCode::Char('y' | 'Y')) => Some(true),
            (None, KeyCode::Char('n' | 'N')) => Some(false),
            (Some(word), KeyCode::Enter) if ask.typed == *word => Some(true),
            (Some(_), _) => {
                edit(&mut ask.typed, code);
                None
            }
            // Any other key belongs to the dialog and means nothing there.
            _ => None,
        };
        match said {
            None => self.overlay = Some(Overlay::Ask(ask)),
            Some(false) => {}
            Some(true) if self.link != Link::Live => {
                let text = "the daemon is not reachable; nothing done".to_owned();
                self.tell(text, false);
            }
            Some(true) => return vec![Action::Do(ask.act)],
        }
        Vec::new()
    }

    fn on_line(&mut self, mut prompt: Prompt, code: KeyCode) {
        match code {
            KeyCode::Esc => return,
            KeyCode::Enter => match prompt.kind.act(&prompt.text) {
                Ok(act) => return self.ask(act),
                Err(problem) => prompt.problem = problem,
            },
            code => edit(&mut prompt.text, code),
        }
        self.overlay = Some(Overlay::Prompt(prompt));
    }

    /// The operator chose a process; its successor is not what they wanted to strike.
    pub(super) fn drop_outdated_dialog(&mut self) {
        let Some(Overlay::Ask(Ask {
            act: Act::Strike(strike),
            ..
        })) = &self.overlay
        else {
            return;
        };
        let same = self.roles().iter().any(|r| {
            (&r.role, r.index, r.incarnation) == (&strike.role, strike.index, strike.incarnation)
        });
        if !same {
            let name = crate::format::who(&strike.role, strike.index);
            let text = format!("{name} was replaced meanwhile; nothing done");
            self.overlay = None;
            self.tell(text, false);
        }
    }

    /// Why nothing can be done now.
    pub(super) fn cannot_act(&self) -> Option<&'static str> {
        match self.link {
            _ if self.playback.is_some() => Some("this is a recording"),
            _ if self.read_only => Some("this console only reads (--read-only)"),
            Link::Waiting => Some("no daemon reached yet"),
            Link::Lost { .. } => Some("the daemon is not reachable"),
            Link::Live if self.is_over() => Some("the job is over"),
            Link::Live => None,
        }
    }
}

/// A key's effect on a line.
pub fn edit(line: &mut String, code: KeyCode) {
    /// Longer is no name, number or value.
    const LONGEST: usize = 120;
    match code {
        KeyCode::Backspace => {
            line.pop();
        }
        KeyCode::Char(c) if line.len() < LONGEST => line.push(c),
        _ => {}
    }
}
