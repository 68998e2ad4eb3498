//! A trajectory that is read: what is known of it, those of the same prompt beside each other, and its text, of which the end is
//! shown while it grows, until the operator scrolls.
//!
//! ```text
//!  Look ──► ReadTrajectory, after the text that is known ──► TrajectoryRead ──► Text ──► Page ──► the lines in sight
//!      └──► ReadGroup ─────────────────────────────────────► GroupRead ─────► the table
//! ```
mod asks;
mod draw;
mod group;
mod page;

use crate::console::event::Action;
use crate::console::key::{self, Key};
use crate::console::names::TableId;
use crate::console::reading::{GroupRead, TrajectoryRead};
use crate::console::screen::{Effect, Hints, Input};
use crate::console::state::Sight;
use crate::console::table::{Table, Turned};
use crate::console::ui::Spot;
use crate::trajectories::{self, Text};
use asks::Asks;
use crossterm::event::KeyCode;
use page::Page;
use robust_proto::v1;
use robust_shared::ids::TrajectoryId;
use robust_shared::wire::{WitnessState, Word as _};

/// One that is generated is asked for again after so long, in ms.
const GROWS_MS: u64 = 1_000;
/// One that may change still, those of the same prompt, and what could not be read.
const RESTS_MS: u64 = 5_000;

/// Its keys.
const KEYS: [Key; 4] = [READ, MEMBER, COLOUR, BACK];
const READ: Key = Key::hand(
    "j k g G PgUp PgDn",
    "j/k",
    "read",
    "scroll the text; at its end it is followed",
);
const MEMBER: Key = Key::hand(
    "h l, Left Right",
    "h/l",
    "member",
    "another trajectory of the same prompt",
);
const COLOUR: Key = Key::act(
    "c",
    KeyCode::Char('c'),
    "colour",
    "colour by weights, or by how likely each token was",
);
const BACK: Key = Key::act("Esc", KeyCode::Esc, "back", "back to the lists");

/// What the colours and the margin say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// Which weights generated a token.
    Version,
    /// How likely it was.
    Logprob,
}

/// A trajectory that is read.
#[derive(Debug)]
pub struct Reader {
    id: TrajectoryId,
    asks: Asks,
    /// As it was told last, without its content.
    told: Option<v1::Trajectory>,
    /// Why it was not told.
    trouble: Option<String>,
    text: Text,
    /// The text in lines, for the width of the last frame.
    page: Option<Page>,
    /// The first line that is wanted; none: the last ones.
    top: Option<usize>,
    by: By,
    group_asks: Asks,
    members: Vec<v1::Trajectory>,
    /// They were told once, so that none means that there are none.
    group_told: bool,
    /// Why those are not known.
    group_trouble: Option<String>,
    table: Table<v1::Trajectory>,
}

/// What came of an input.
#[derive(Debug)]
pub enum Read {
    /// It is read on.
    On(Vec<Effect>),
    /// It is not read any more.
    Left,
}

impl Reader {
    /// Begins to read one.
    pub fn open(id: TrajectoryId) -> Reader {
        Reader {
            id,
            asks: Asks::default(),
            told: None,
            trouble: None,
            text: Text::default(),
            page: None,
            top: None,
            by: By::Version,
            group_asks: Asks::default(),
            members: Vec::new(),
            group_told: false,
            group_trouble: None,
            table: Table::new(TableId("members"), &group::SPEC),
        }
    }

    /// Takes an input.
    pub fn on(&mut self, input: &Input, sight: &Sight) -> Read {
        self.set_for(sight);
        match input {
            Input::Look => return Read::On(self.wanted(sight.now)),
            Input::Key(code) => return self.on_key(*code, input, sight),
            Input::Wheel(Spot::Text, by) => self.scroll(*by, sight),
            Input::Click(_) | Input::Wheel(..) => self.turn(input, sight),
            Input::Shown => {
                // Nothing is typed into a filter any more.
                let _ = self.table.on(input, &self.members, sight);
            }
            _ => {}
        }
        Read::On(Vec::new())
    }

    fn on_key(&mut self, code: KeyCode, input: &Input, sight: &Sight) -> Read {
        if self.table.typing().is_some() {
            // What is read stays, also where the filter leaves it out.
            let _ = self.table.on(input, &self.members, sight);
            return Read::On(Vec::new());
        }
        let page = sight.drawn.page().map_or(1, |(_, lines)| lines.max(2) - 1);
        let page = isize::try_from(page).unwrap_or(1);
        match code {
            KeyCode::Esc if self.table.filter().is_empty() => return Read::Left,
            KeyCode::Down | KeyCode::Char('j' | ']') => self.scroll(1, sight),
            KeyCode::Up | KeyCode::Char('k' | '[') => self.scroll(-1, sight),
            KeyCode::PageDown => self.scroll(page, sight),
            KeyCode::PageUp => self.scroll(-page, sight),
            KeyCode::Home | KeyCode::Char('g') => self.top = Some(0),
            KeyCode::End | KeyCode::Char('G') => self.top = None,
            KeyCode::Left | KeyCode::Char('h') => self.turn(&Input::Key(KeyCode::Up), sight),
            KeyCode::Right | KeyCode::Char('l') => self.turn(&Input::Key(KeyCode::Down), sight),
            KeyCode::Char('c') => match self.recolour() {
                Ok(by) => self.by = by,
                Err(why) => return Read::On(vec![Effect::refuse(why)]),
            },
            KeyCode::Esc | KeyCode::Char('/' | '<' | '>' | '=') => self.turn(input, sight),
            _ => {}
        }
        Read::On(Vec::new())
    }

    /// By what the key colours, or why it does nothing.
    fn recolour(&self) -> Result<By, &'static str> {
        match self.by {
            By::Logprob => Ok(By::Version),
            By::Version if self.text.has_logprobs() => Ok(By::Logprob),
            By::Version => Err("it is not kept how likely its tokens were"),
        }
    }

    /// Why one of its keys would do nothing now.
    pub fn refuses(&self, key: KeyCode) -> Option<String> {
        match key {
            KeyCode::Char('c') => self.recolour().err().map(str::to_owned),
            _ => None,
        }
    }

    /// What the last line and the help say of it.
    pub fn hints(&self) -> Hints<'_> {
        Hints {
            own: &[&KEYS],
            most: &[
                READ,
                MEMBER,
                COLOUR,
                BACK,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            typing: self.table.typing(),
            filter: self.table.filter(),
        }
    }

    /// What is to be asked for now.
    fn wanted(&mut self, now: u64) -> Vec<Effect> {
        let mut wanted = Vec::new();
        if self.asks.due(now) {
            self.asks.taken(now);
            wanted.push(Effect::Do(Action::ReadTrajectory {
                id: self.id,
                known: self.text.known(),
            }));
        }
        if self.group_asks.due(now) {
            self.group_asks.taken(now);
            wanted.push(Effect::Do(Action::ReadGroup {
                batch: self.id.batch,
                group: self.id.group,
            }));
        }
        wanted
    }

    /// It was read.
    pub fn read(&mut self, read: TrajectoryRead, sight: &Sight) {
        if read.id != self.id {
            return;
        }
        let mut told = match read.told {
            Ok(Some(told)) => told,
            Ok(None) => {
                let why = format!("the job has no trajectory {}", self.id);
                return self.not_told(why, sight.now);
            }
            Err(why) => return self.not_told(why, sight.now),
        };
        let known = usize::try_from(read.known).unwrap_or(usize::MAX);
        if !self.text.begins_as(&told, known) {
            // It was generated again from its prompt since: the text that is known is of other tokens.
            (self.text, self.page) = (Text::default(), None);
            return self.asks.anew();
        }
        let again = match WitnessState::known(group::state(&told)) {
            _ if group::grows(&told) => Some(GROWS_MS),
            Some(WitnessState::Finished | WitnessState::Committing) => Some(RESTS_MS),
            _ => None,
        };
        self.asks.answered(sight.now, again);
        if self.told.is_none() {
            // What is written still is read at its end, what is written from its beginning.
            self.top = (again != Some(GROWS_MS)).then_some(0);
        }
        let mut pieces = std::mem::take(&mut self.text).into_pieces();
        pieces.truncate(known);
        pieces.append(&mut told.pieces);
        self.text = Text::of(&told, pieces);
        // The text has them now.
        (told.prompt_ids, told.turns, told.running) = (Vec::new(), Vec::new(), Vec::new());
        (self.told, self.trouble) = (Some(told), None);
        if !self.text.tokens().is_empty() && !self.text.has_logprobs() {
            self.by = By::Version;
        }
        let width = self.page.take().map(|page| page.width());
        self.page = width.map(|width| Page::of(&self.text, width, sight.look));
    }

    fn not_told(&mut self, why: String, now: u64) {
        self.asks.answered(now, Some(RESTS_MS));
        self.trouble = Some(why);
    }

    /// Those of a prompt were looked at.
    pub fn told_group(&mut self, read: GroupRead, sight: &Sight) {
        if (read.batch, read.group) != (self.id.batch, self.id.group) {
            return;
        }
        match read.members {
            Ok(members) => {
                (self.members, self.group_trouble) = (members, None);
                self.group_told = true;
                let name = self.id.to_string();
                self.table.choose(&self.members, sight.look, &name);
            }
            Err(why) => self.group_trouble = Some(why),
        }
        let is_over = |t: &v1::Trajectory| t.consumed_by.is_some();
        let all_over = !self.members.is_empty() && self.members.iter().all(is_over);
        let again = (!all_over || self.group_trouble.is_some()).then_some(RESTS_MS);
        self.group_asks.answered(sight.now, again);
    }

    /// Gives the table an input, and reads the one that is selected by it.
    fn turn(&mut self, input: &Input, sight: &Sight) {
        if self.table.on(input, &self.members, sight) != Some(Turned::Anew) {
            return;
        }
        let chosen = self.table.chosen(&self.members, sight.look);
        let Some(id) = chosen.map(trajectories::id).filter(|id| *id != self.id) else {
            return;
        };
        self.id = id;
        self.asks.anew();
        (self.told, self.trouble) = (None, None);
        (self.text, self.page, self.top) = (Text::default(), None, None);
    }

    /// Goes so many lines down, or up. At the end the end is followed.
    fn scroll(&mut self, by: isize, sight: &Sight) {
        let Some(page) = &self.page else { return };
        let room = sight
            .drawn
            .page()
            .map_or(1, |(_, lines)| usize::from(lines));
        let last = page.rows().len().saturating_sub(room);
        let at = self.top.map_or(last, |top| top.min(last));
        let to = at.saturating_add_signed(by).min(last);
        self.top = (to < last).then_some(to);
    }

    /// Sets the text for the width that the last frame had room for; the line on top stays there.
    fn set_for(&mut self, sight: &Sight) {
        let Some((width, _)) = sight.drawn.page() else {
            return;
        };
        let before = self.page.take();
        let page = match before {
            Some(page) if page.width() == width => page,
            other => {
                let page = Page::of(&self.text, width, sight.look);
                let token = other.zip(self.top).map(|(other, top)| other.token_at(top));
                if let Some(token) = token.flatten().filter(|token| *token > 0) {
                    self.top = Some(page.row_of(token));
                }
                page
            }
        };
        self.page = Some(page);
    }
}
