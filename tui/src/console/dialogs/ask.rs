//! A question before something is done: what it means, and a yes or a word that must be typed.
use super::replaced::unless_replaced;
use super::sheet::{self, Sheet, WIDTH};
use crate::console::act::{Act, Life};
use crate::console::event::{Action, Event};
use crate::console::job::Job;
use crate::console::line::edit;
use crate::console::screen::{Effect, Input, Screen};
use crate::console::state::{Common, Link, Sight};
use crate::console::ui::look::Tone;
use crate::console::ui::{Drawn, wrapped};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;

/// A question.
#[derive(Debug)]
struct Ask {
    /// What would be done.
    act: Act,
    /// The word that must be typed for it.
    needs: Option<String>,
    /// What was typed so far.
    typed: String,
    /// It was asked what it would bring.
    asked: bool,
    /// What it would bring, a sentence each, once that is known.
    foreseen: Vec<String>,
}

/// Asks before it is done.
pub fn open(act: Act, sight: &Sight) -> Effect {
    let refusal = match act {
        Act::Note { .. } => sight.cannot_write(),
        _ => sight.cannot_act(),
    };
    match refusal {
        Some(refusal) => Effect::refuse(refusal),
        None => Effect::Open(Box::new(Ask::new(act, &sight.job))),
    }
}

/// Asks before all of them are done; where there is none, this is said.
pub fn open_all(acts: Vec<Act>, none: impl Into<String>, sight: &Sight) -> Effect {
    match Act::all(acts) {
        Some(act) => open(act, sight),
        None => Effect::refuse(none),
    }
}

impl Ask {
    fn new(mut act: Act, job: &Job) -> Ask {
        let needs = act.needs(job);
        // Of a protected job its name is typed first.
        let i_know = job.status().is_some_and(|s| s.protected);
        match &mut act {
            Act::Strike(strike) => strike.i_know = i_know,
            Act::Several(several) => several.know(i_know),
            _ => {}
        }
        Ask {
            act,
            needs,
            typed: String::new(),
            asked: false,
            foreseen: Vec::new(),
        }
    }

    /// A status came: the daemon is there, and can be asked once. Nobody waits for its answer.
    fn on_status(&mut self, job: &Job) -> Vec<Effect> {
        let gone = unless_replaced(self.life(), job);
        let asks = gone.is_empty() && !self.asked && self.act.ahead().is_some();
        self.asked |= asks;
        match asks {
            true => vec![Effect::Do(Action::Foresee(self.act.clone()))],
            false => gone,
        }
    }

    /// What it means, and what it would bring.
    fn means(&self, job: &Job) -> Vec<String> {
        let mut means = self.act.consequences(job);
        if !self.foreseen.is_empty() {
            means.push(String::new());
            means.push("Forecast:".to_owned());
            means.extend(self.foreseen.iter().cloned());
        }
        means
    }

    fn life(&self) -> &[Life] {
        match &self.act {
            Act::Strike(strike) => strike.life.as_slice(),
            _ => &[],
        }
    }

    fn on_key(&mut self, code: KeyCode, link: &Link) -> Vec<Effect> {
        let said = match (&self.needs, code) {
            (_, KeyCode::Esc) => Some(false),
            (None, KeyCode::Enter) => Some(true),
            (None, KeyCode::Char('y' | 'Y')) => Some(true),
            (None, KeyCode::Char('n' | 'N')) => Some(false),
            (Some(word), KeyCode::Enter) if self.typed == *word => Some(true),
            (Some(_), _) => {
                edit(&mut self.typed, code);
                None
            }
            // Any other key belongs to the dialog and means nothing there.
            _ => None,
        };
        match said {
            None => Vec::new(),
            Some(false) => vec![Effect::Close],
            Some(true) if *link != Link::Live => {
                let text = "the daemon is not reachable; nothing done";
                vec![Effect::Close, Effect::refuse(text)]
            }
            Some(true) => vec![Effect::Close, Effect::Do(Action::Do(self.act.clone()))],
        }
    }
}

impl Screen for Ask {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        match input {
            Input::Key(code) => self.on_key(code, &common.link),
            Input::Heard => self.on_status(&common.job),
            Input::News(Event::Foreseen { act, lines }) if *act == self.act => {
                self.foreseen = lines;
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, _: &mut Drawn) {
        let title = format!(" {} ", common.in_context(&self.act.question()));
        let mut asked = vec![String::new()];
        let verb = self.act.verb();
        match &self.needs {
            None => asked.push(format!("y Enter: {verb}     n Esc: do nothing")),
            Some(word) => {
                let cursor = common.look.glyph("▏", "_");
                asked.push(format!(
                    "Type `{word}` and Enter to {verb}; Esc: do nothing"
                ));
                asked.push(format!("> {}{cursor}", self.typed));
            }
        }
        let mut lines = above(self.means(&common.job), &asked, area);
        lines.extend(asked);
        let sheet = Sheet {
            title: &title,
            foot: "",
            width: WIDTH,
            style: common.look.tone(Tone::Bad),
        };
        sheet.draw(common.look, &lines, area, buf);
    }
}

/// What it means, cut where what is asked for would not be seen below it: a drain can name hundreds.
fn above(means: Vec<String>, asked: &[String], area: Rect) -> Vec<String> {
    let (room, height) = sheet::inside(WIDTH, area);
    let left = height.saturating_sub(sheet::rows(asked, room));
    if sheet::rows(&means, room) <= left {
        return means;
    }
    let mut lines: Vec<String> = means.iter().flat_map(|m| wrapped(m, room)).collect();
    if lines.len() > left {
        let kept = left.saturating_sub(1);
        let more = lines.len() - kept;
        lines.truncate(kept);
        lines.push(format!("and {more} more lines"));
    }
    lines
}
