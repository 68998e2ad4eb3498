//! The list of the faults that can befall what is selected.
use super::prompt::{Prompt, Wanted};
use super::replaced::unless_replaced;
use super::sheet::{Sheet, WIDE};
use crate::console::act::Life;
use crate::console::job::Job;
use crate::console::screen::{Effect, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::ui::Drawn;
use crate::console::ui::look::Tone;
use crate::format::{is_engine, who};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use robust_proto::v1;
use robust_shared::fault::Kind;
use robust_shared::ids::Role;

/// The faults that can befall an instance, or else a node and the leader.
#[derive(Debug)]
struct Menu {
    /// In the order they are shown.
    kinds: Vec<Kind>,
    /// Which of them is selected.
    at: usize,
    /// Whom it would strike; nobody: a node or the leader.
    whom: Vec<Life>,
    /// The node that is selected.
    node: String,
}

/// Lists the faults that can befall each of these instances, or else a node and the leader.
pub fn open(whom: Vec<Life>, node: String, sight: &Sight) -> Effect {
    match sight.cannot_act() {
        Some(refusal) => Effect::refuse(refusal),
        None => Effect::Open(Box::new(Menu::new(whom, node))),
    }
}

impl Menu {
    fn new(whom: Vec<Life>, node: String) -> Menu {
        let mut roles: Vec<Role> = whom.iter().filter_map(|l| l.role.parse().ok()).collect();
        roles.dedup();
        let befalls = |kind: &Kind| match roles.is_empty() {
            true => kind.roles().is_empty(),
            false => roles.iter().all(|role| kind.roles().contains(role)),
        };
        Menu {
            kinds: Kind::ALL.into_iter().filter(befalls).collect(),
            at: 0,
            whom,
            node,
        }
    }

    fn on_key(&mut self, code: KeyCode, job: &Job) -> Vec<Effect> {
        let last = self.kinds.len().saturating_sub(1);
        match code {
            KeyCode::Esc => return vec![Effect::Close],
            KeyCode::Up | KeyCode::Char('k') => self.at = self.at.saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.at = (self.at + 1).min(last),
            KeyCode::Enter => return vec![self.chosen(job)],
            _ => {}
        }
        Vec::new()
    }

    /// The fault that is selected, with what it takes, to be changed.
    fn chosen(&self, job: &Job) -> Effect {
        let Some(&kind) = self.kinds.get(self.at) else {
            return Effect::Close;
        };
        let text = template(kind, &self.node, &some_peer(&self.whom, job));
        let whom = self.whom.clone();
        Effect::Open(Box::new(Prompt::new(Wanted::Fault { kind, whom }, text)))
    }
}

/// An engine that is none of these.
fn some_peer(whom: &[Life], job: &Job) -> String {
    let is_one = |r: &v1::RoleStatus| {
        whom.iter()
            .any(|l| (&l.role, l.index) == (&r.role, r.index))
    };
    let mut engines = job.roles().iter().filter(|r| is_engine(&r.role));
    let found = engines.find(|r| !is_one(r));
    found.map_or_else(|| "PEER".to_owned(), |r| who(&r.role, r.index))
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

impl Screen for Menu {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        match input {
            Input::Key(code) => self.on_key(code, &common.job),
            Input::Heard => unless_replaced(&self.whom, &common.job),
            _ => Vec::new(),
        }
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, _: &mut Drawn) {
        let look = common.look;
        let whom = match &self.whom[..] {
            [] => format!("node {} and the leader", self.node),
            [life] => who(&life.role, life.index),
            several => format!("{} instances", several.len()),
        };
        let room = usize::from(WIDE.min(area.width)).saturating_sub(4);
        let line = |(i, kind): (usize, &Kind)| {
            let mark = match i == self.at {
                true => look.glyph("▶", ">"),
                false => look.glyph("·", "-"),
            };
            let text = format!("{mark} {:<18} {}", kind.name(), kind.help());
            look.fit(&text, room)
        };
        let mut lines: Vec<String> = self.kinds.iter().enumerate().map(line).collect();
        lines.push(String::new());
        lines.push("j k: select     Enter: go on     Esc: do nothing".to_owned());
        let title = format!(" A fault for {whom} ");
        let sheet = Sheet {
            title: &title,
            foot: "",
            width: WIDE,
            style: look.tone(Tone::Bad),
        };
        sheet.draw(look, &lines, area, buf);
    }
}
