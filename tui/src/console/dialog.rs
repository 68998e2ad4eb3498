//! What lies over the screen and takes the keys: the help, a list of faults, a line to type, a
//! question. Each leads to the next at most, and nothing is done before the question's yes.
//!
//! ```text
//!   I ──► Menu ──Enter──► Prompt ──Enter──► Ask ──yes──► Action::Do
//!   S, U ────────────────────┘               │
//!   K, H, L, Q, R, P, ... ───────────────────┘
//! ```
use super::act::{Act, Life, Strike};
use super::event::Action;
use super::state::{Link, State};
use crossterm::event::KeyCode;
use robust_shared::fault::{At, Fault, Kind};
use robust_shared::ids::Role;

/// What lies over the screen and takes the keys.
#[derive(Clone, Debug, PartialEq)]
pub enum Overlay {
    /// The keys.
    Help {
        /// The first line that is wanted; at the end the last ones stay.
        first: usize,
    },
    /// Which fault?
    Menu(Menu),
    /// Shall it be done?
    Ask(Ask),
    /// A line is being typed.
    Prompt(Prompt),
}

/// The faults that can befall what is selected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Menu {
    /// In the order they are shown.
    pub kinds: Vec<Kind>,
    /// Which of them is selected.
    pub at: usize,
    /// Whom it would strike; none: a node or the leader.
    pub life: Option<Life>,
    /// The node that is selected.
    pub node: String,
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
    /// A fault with all that it takes, and when it strikes.
    Fault {
        /// Which.
        kind: Kind,
        /// Whom; none: a node or the leader.
        life: Option<Life>,
    },
}

impl PromptKind {
    /// The words before the line.
    pub fn label(&self) -> String {
        match self {
            PromptKind::Scale { role, from } => format!("How many {role} instances? (now {from})"),
            PromptKind::Update { role } => format!("New value for {role}, as KEY=VALUE:"),
            PromptKind::Fault { kind, .. } => format!("{kind}: {}", kind.help()),
        }
    }

    /// What else can be typed.
    pub fn hint(&self) -> String {
        let PromptKind::Fault {
            life: Some(life), ..
        } = self
        else {
            return String::new();
        };
        let Ok(role) = life.role.parse::<Role>() else {
            return String::new();
        };
        let ats = At::phases(role)
            .iter()
            .map(|&phase| At { phase, percent: 0 });
        let (later, now): (Vec<At>, Vec<At>) = ats.partition(|at| at.is_start_up());
        let names = |ats: &[At]| ats.iter().map(At::to_string).collect::<Vec<_>>();
        let pull = if role.is_engine() {
            ", or pull:50%"
        } else {
            ""
        };
        format!(
            "With `at PHASE` it waits for one of {}{pull}; at {} for its next life.",
            names(&now).join(", "),
            names(&later).join(" or ")
        )
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
            PromptKind::Fault { life, .. } => strike(text, life.clone()).map(Act::Strike),
        }
    }
}

/// A fault as it was typed: `slow 20% 10s at update`.
fn strike(text: &str, life: Option<Life>) -> Result<Strike, String> {
    let (fault, at) = match text.split_once(" at ") {
        Some((fault, at)) => (fault, Some(at.trim())),
        None => (text, None),
    };
    let fault: Fault = fault.parse().map_err(said)?;
    let at: Option<At> = at.map(str::parse).transpose().map_err(said)?;
    let role = life.as_ref().map(|l| l.role.parse::<Role>());
    let role = role.transpose().map_err(said)?;
    let roles = fault.kind().roles();
    match role {
        Some(role) if !roles.contains(&role) => {
            return Err(format!("`{}` does not befall {role}", fault.kind()));
        }
        None if !roles.is_empty() => return Err("it befalls an instance: select one".to_owned()),
        Some(role) => at.map_or(Ok(()), |at| at.check(role)).map_err(said)?,
        None if at.is_some() => return Err("it strikes at once; leave `at` out".to_owned()),
        None => {}
    }
    Ok(Strike {
        fault,
        at,
        life,
        i_know: false,
    })
}

fn said(problem: impl std::fmt::Display) -> String {
    problem.to_string()
}

/// A fault with what it takes, to be changed.
fn template(kind: Kind, node: &str, peer: &str) -> String {
    match kind {
        Kind::Exit => "exit 1".to_owned(),
        Kind::Slow => "slow 50% 10s".to_owned(),
        Kind::StallNetwork => format!("stall-network {peer} 10s"),
        Kind::CutNetwork => format!("cut-network {peer}"),
        Kind::HangTool
        | Kind::KillTool
        | Kind::PauseEngine
        | Kind::DiskFull
        | Kind::NoProcesses => format!("{kind} 10s"),
        Kind::LoseNode => format!("lose-node {node}"),
        Kind::Hardware => "hardware xid-48".to_owned(),
        _ => kind.name().to_owned(),
    }
}

impl State {
    /// Asks before it is done.
    pub(super) fn ask(&mut self, mut act: Act) {
        if let Some(refusal) = self.cannot_act() {
            return self.tell(refusal.to_owned(), false);
        }
        let needs = act.needs(self);
        if let Act::Strike(strike) = &mut act {
            // Of a protected job its name is typed first.
            strike.i_know = self.job.status().is_some_and(|s| s.protected);
        }
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
        self.prompt_with(kind, String::new());
    }

    fn prompt_with(&mut self, kind: PromptKind, text: String) {
        self.overlay = Some(Overlay::Prompt(Prompt {
            kind,
            text,
            problem: String::new(),
        }));
    }

    /// Lists the faults that can befall an instance, or else a node and the leader.
    pub(super) fn list_faults(&mut self, life: Option<Life>, node: String) {
        if let Some(refusal) = self.cannot_act() {
            return self.tell(refusal.to_owned(), false);
        }
        let role = life.as_ref().and_then(|l| l.role.parse::<Role>().ok());
        let befalls = |kind: &Kind| match role {
            Some(role) => kind.roles().contains(&role),
            None => kind.roles().is_empty(),
        };
        self.overlay = Some(Overlay::Menu(Menu {
            kinds: Kind::ALL.into_iter().filter(befalls).collect(),
            at: 0,
            life,
            node,
        }));
    }

    fn on_menu(&mut self, mut menu: Menu, code: KeyCode) {
        let last = menu.kinds.len().saturating_sub(1);
        match code {
            KeyCode::Esc => return,
            KeyCode::Up | KeyCode::Char('k') => menu.at = menu.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => menu.at = (menu.at + 1).min(last),
            KeyCode::Enter => {
                let Some(&kind) = menu.kinds.get(menu.at) else {
                    return;
                };
                let text = template(kind, &menu.node, &self.some_peer(menu.life.as_ref()));
                let life = menu.life;
                return self.prompt_with(PromptKind::Fault { kind, life }, text);
            }
            _ => {}
        }
        self.overlay = Some(Overlay::Menu(menu));
    }

    /// An engine that is not this one.
    fn some_peer(&self, life: Option<&Life>) -> String {
        let same = |r: &&robust_proto::v1::RoleStatus| {
            life.is_some_and(|l| (&l.role, l.index) == (&r.role, r.index))
        };
        let engines = self
            .job
            .roles()
            .iter()
            .filter(|r| crate::format::is_engine(&r.role));
        let found = engines.into_iter().find(|r| !same(r));
        found.map_or_else(
            || "PEER".to_owned(),
            |r| crate::format::who(&r.role, r.index),
        )
    }

    pub(super) fn on_overlay_key(&mut self, overlay: Overlay, code: KeyCode) -> Vec<Action> {
        match overlay {
            Overlay::Help { first } => {
                self.on_help(first, code);
                Vec::new()
            }
            Overlay::Menu(menu) => {
                self.on_menu(menu, code);
                Vec::new()
            }
            Overlay::Ask(ask) => self.on_answer(ask, code),
            Overlay::Prompt(prompt) => {
                self.on_line(prompt, code);
                Vec::new()
            }
        }
    }

    fn on_help(&mut self, first: usize, code: KeyCode) {
        let first = match code {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('?' | 'q' | 'y' | 'n') => return,
            KeyCode::Up | KeyCode::Char('k') => first.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') if self.drawn.left() > 0 => first + 1,
            _ => first,
        };
        self.overlay = Some(Overlay::Help { first });
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
        let chosen = match &self.overlay {
            Some(Overlay::Ask(Ask {
                act: Act::Strike(strike),
                ..
            })) => &strike.life,
            Some(Overlay::Menu(menu)) => &menu.life,
            Some(Overlay::Prompt(Prompt {
                kind: PromptKind::Fault { life, .. },
                ..
            })) => life,
            _ => return,
        };
        let Some(life) = chosen.clone() else { return };
        let same = self.job.roles().iter().any(|r| {
            (&r.role, r.index, r.incarnation) == (&life.role, life.index, life.incarnation)
        });
        if !same {
            let name = crate::format::who(&life.role, life.index);
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
            Link::Live if self.job.is_over() => Some("the job is over"),
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
