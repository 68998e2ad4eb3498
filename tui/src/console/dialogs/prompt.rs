//! A line that is typed: how many, a new value, a fault with what it takes.
use super::ask;
use super::replaced::unless_replaced;
use super::sheet::{Sheet, WIDTH};
use crate::console::act::{Act, Life, Strike};
use crate::console::line::{LONGEST, edit_within};
use crate::console::screen::{Effect, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::ui::Drawn;
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use robust_shared::fault::{At, Fault, Kind};
use robust_shared::ids::Role;
use robust_shared::note;

/// Bytes of a note that is typed here, as all of it is seen; `robustctl note` takes longer ones.
const LONGEST_NOTE: usize = 400;

/// A line that is being typed.
#[derive(Debug)]
pub struct Prompt {
    /// What for.
    wanted: Wanted,
    /// So far.
    text: String,
    /// Why the last try was no good.
    problem: String,
}

/// What a line is typed for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
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
        /// Whom; nobody: a node or the leader.
        whom: Vec<Life>,
    },
    /// What there is to say of an incident.
    Note {
        /// Its number.
        incident: u64,
    },
}

impl Wanted {
    /// On the edge of the dialog.
    fn title(&self) -> &'static str {
        match self {
            Wanted::Note { .. } => " Note ",
            Wanted::Scale { .. } | Wanted::Update { .. } | Wanted::Fault { .. } => " Change ",
        }
    }

    /// Bytes of the line at most.
    fn longest(&self) -> usize {
        match self {
            Wanted::Note { .. } => LONGEST_NOTE,
            Wanted::Scale { .. } | Wanted::Update { .. } | Wanted::Fault { .. } => LONGEST,
        }
    }

    /// The words before the line.
    pub fn label(&self) -> String {
        match self {
            Wanted::Scale { role, from } => format!("How many {role} instances? (now {from})"),
            Wanted::Update { role } => format!("New value for {role}, as KEY=VALUE:"),
            Wanted::Fault { kind, .. } => format!("{kind}: {}", kind.help()),
            Wanted::Note { incident } => format!("Note on incident {incident}:"),
        }
    }

    /// What else can be typed.
    pub fn hint(&self) -> String {
        let Wanted::Fault { whom, .. } = self else {
            return String::new();
        };
        let Some(Ok(role)) = whom.first().map(|life| life.role.parse::<Role>()) else {
            return String::new();
        };
        if whom.iter().any(|life| life.role != role.name()) {
            // Each role has moments of its own; one that not all of them have is refused.
            return String::new();
        }
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
            Wanted::Scale { role, from } => match text.trim().parse() {
                Ok(to) if to == *from => Err(format!("there are {from} already")),
                Ok(to) => Ok(Act::Scale {
                    role: role.clone(),
                    from: *from,
                    to,
                }),
                Err(_) => Err("a number is wanted".to_owned()),
            },
            Wanted::Update { role } => match text.split_once('=') {
                Some((key, value)) if !key.trim().is_empty() && !value.trim().is_empty() => {
                    Ok(Act::Update {
                        role: role.clone(),
                        change: text.trim().to_owned(),
                    })
                }
                _ => Err("KEY=VALUE is wanted, as in the job file".to_owned()),
            },
            Wanted::Fault { whom, .. } if whom.is_empty() => strike(text, None).map(Act::Strike),
            Wanted::Fault { whom, .. } => {
                let one = |life: &Life| strike(text, Some(life.clone())).map(Act::Strike);
                let all: Vec<Act> = whom.iter().map(one).collect::<Result<_, _>>()?;
                Act::all(all).ok_or_else(|| "there is no instance selected".to_owned())
            }
            Wanted::Note { incident } => {
                let text = note::checked(text).map_err(said)?;
                let incident = *incident;
                Ok(Act::Note { incident, text })
            }
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

/// Has a line typed.
pub fn open(wanted: Wanted, sight: &Sight) -> Effect {
    let refusal = match wanted {
        Wanted::Note { .. } => sight.cannot_write(),
        Wanted::Scale { .. } | Wanted::Update { .. } | Wanted::Fault { .. } => sight.cannot_act(),
    };
    match refusal {
        Some(refusal) => Effect::refuse(refusal),
        None => Effect::Open(Box::new(Prompt::new(wanted, String::new()))),
    }
}

impl Prompt {
    /// With this in the line, to be changed.
    pub fn new(wanted: Wanted, text: String) -> Prompt {
        Prompt {
            wanted,
            text,
            problem: String::new(),
        }
    }

    fn on_key(&mut self, code: KeyCode, sight: &Sight) -> Vec<Effect> {
        match code {
            KeyCode::Esc => return vec![Effect::Close],
            KeyCode::Enter => match self.wanted.act(&self.text) {
                Ok(act) => return vec![Effect::Close, ask::open(act, sight)],
                Err(problem) => self.problem = problem,
            },
            code => edit_within(&mut self.text, code, self.wanted.longest()),
        }
        Vec::new()
    }
}

impl Screen for Prompt {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        match (input, &self.wanted) {
            (Input::Key(code), _) => self.on_key(code, common),
            (Input::Heard, Wanted::Fault { whom, .. }) => unless_replaced(whom, &common.job),
            _ => Vec::new(),
        }
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, _: &mut Drawn) {
        let cursor = common.look.glyph("▏", "_");
        let mut lines = vec![
            self.wanted.label(),
            format!("> {}{cursor}", self.text),
            self.problem.clone(),
        ];
        let hint = self.wanted.hint();
        if !hint.is_empty() {
            lines.push(hint);
        }
        lines.push("Enter: go on     Esc: do nothing".to_owned());
        let sheet = Sheet {
            title: self.wanted.title(),
            foot: "",
            width: WIDTH,
            style: common.look.accent(),
        };
        sheet.draw(common.look, &lines, area, buf);
    }
}
