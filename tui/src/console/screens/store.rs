//! What is stored: checkpoints on disk, and trajectories that no step has consumed yet.
use super::looks::Looks;
use super::trajectory::{Read, Reader};
use crate::console::event::{Action, Event};
use crate::console::key::{self, Key};
use crate::console::line::edit_until_done;
use crate::console::names::TableId;
use crate::console::screen::{Effect, Hints, Input, Screen};
use crate::console::state::{Common, Sight};
use crate::console::stored::{CheckpointRow, Stored};
use crate::console::table::{Cell, Column, Spec, Table, Turned, figures, words};
use crate::console::ui::{Drawn, put, section, split, wrapped};
use crate::format::{bar, bytes, clock, count, time_of_day};
use crate::trajectories::{id as id_of, name, parse};
use crossterm::event::KeyCode;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::Style;
use ratatui::text::Line;
use robust_proto::v1::{Status, Trajectory};
use robust_shared::ids::TrajectoryId;
use robust_shared::wire::{ReplicaState, TrajectoryState};

/// From this width on the two lists stand side by side.
const BESIDE: u16 = 140;

/// A disk that is fuller is worth a look.
const NEARLY_FULL: f64 = 0.9;

/// Its keys.
const KEYS: [Key; 3] = [LIST, OPEN, NAME];
const LIST: Key = Key::hand(
    "h l, Left Right",
    "h/l",
    "list",
    "checkpoints or trajectories",
);
const OPEN: Key = Key::act(
    "Enter",
    KeyCode::Enter,
    "read",
    "read the selected trajectory; Esc comes back",
);
const NAME: Key = Key::act(
    "o",
    KeyCode::Char('o'),
    "by name",
    "read the trajectory of a name, also a consumed one",
);

/// The screen.
#[derive(Debug)]
pub struct Store {
    /// The last look.
    stored: Option<Stored>,
    looks: Looks,
    checkpoints: Table<CheckpointRow>,
    trajectories: Table<Trajectory>,
    /// What the keys act on.
    pane: Pane,
    /// The name that is typed.
    naming: Option<String>,
    /// A trajectory that is read in place of the lists.
    reader: Option<Reader>,
}

/// One of the two lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pane {
    Checkpoints,
    Trajectories,
}

impl Default for Store {
    fn default() -> Self {
        Store {
            stored: None,
            looks: Looks::default(),
            checkpoints: Table::new(TableId("checkpoints"), &CHECKPOINTS),
            trajectories: Table::new(TableId("trajectories"), &TRAJECTORIES),
            pane: Pane::Checkpoints,
            naming: None,
            reader: None,
        }
    }
}

fn checkpoints(stored: Option<&Stored>) -> &[CheckpointRow] {
    let rows = stored.map(|s| s.checkpoints.as_deref());
    rows.and_then(Result::ok).unwrap_or_default()
}

fn trajectories(stored: Option<&Stored>) -> &[Trajectory] {
    let rows = stored.map(|s| s.trajectories.as_deref());
    rows.and_then(Result::ok).unwrap_or_default()
}

impl Store {
    /// The list that keys go to: a filter that is being typed keeps them when the mouse goes elsewhere.
    fn typed_into(&self) -> Pane {
        match (self.checkpoints.typing(), self.trajectories.typing()) {
            (Some(_), _) => Pane::Checkpoints,
            (None, Some(_)) => Pane::Trajectories,
            (None, None) => self.pane,
        }
    }

    /// Gives one of the lists an input.
    fn turn(&mut self, pane: Pane, input: &Input, sight: &Sight) -> Option<Turned> {
        let stored = self.stored.as_ref();
        let turned = match pane {
            Pane::Checkpoints => self.checkpoints.on(input, checkpoints(stored), sight),
            Pane::Trajectories => self.trajectories.on(input, trajectories(stored), sight),
        };
        if turned == Some(Turned::Anew) {
            self.looks.at_once();
        }
        turned
    }

    /// The trajectory that Enter reads, or why there is none.
    fn chosen(&self, sight: &Sight) -> Result<TrajectoryId, &'static str> {
        if self.pane == Pane::Checkpoints {
            return Err("trajectories are read; l goes to their list");
        }
        let rows = trajectories(self.stored.as_ref());
        let chosen = self.trajectories.chosen(rows, sight.look);
        chosen.map(id_of).ok_or("there is no trajectory selected")
    }

    /// Why a name is not asked for.
    fn unnamed(sight: &Sight) -> Option<&'static str> {
        let played = sight.playback.is_some();
        played.then_some("the store is not part of a recording")
    }

    /// Reads a trajectory in place of the lists; it is asked for with the next look.
    fn open(&mut self, id: TrajectoryId) {
        self.reader = Some(Reader::open(id));
    }

    /// A key while a name is typed.
    fn on_name(&mut self, mut name: String, code: KeyCode) -> Vec<Effect> {
        if edit_until_done(&mut name, code) {
            self.naming = Some(name);
            return Vec::new();
        }
        match parse(name.trim()) {
            Some(id) => self.open(id),
            None if name.is_empty() => {}
            None => {
                let why = format!("`{name}` names no trajectory; write BATCH.GROUP.MEMBER");
                return vec![Effect::refuse(why)];
            }
        }
        Vec::new()
    }

    /// Gives an input to the trajectory that is read, and says what came of it; none: none is read.
    fn read_on(&mut self, input: &Input, sight: &Sight) -> Option<Vec<Effect>> {
        let reader = self.reader.as_mut()?;
        match reader.on(input, sight) {
            Read::On(effects) => Some(effects),
            Read::Left => {
                self.reader = None;
                self.looks.at_once();
                Some(Vec::new())
            }
        }
    }

    /// What was asked for has come.
    fn on_news(&mut self, news: Event, sight: &Sight) {
        match (news, &mut self.reader) {
            (Event::StoreRead(stored), _) => self.stored = Some(*stored),
            (Event::TrajectoryRead(read), Some(reader)) => reader.read(*read, sight),
            (Event::GroupRead(read), Some(reader)) => reader.told_group(*read, sight),
            _ => {}
        }
    }

    fn mark(&self, sight: &Sight, pane: Pane) -> &'static str {
        match self.pane == pane {
            true => sight.look.glyph("▶ ", "> "),
            false => "  ",
        }
    }

    fn checkpoints_title(&self, sight: &Sight, stored: &Stored) -> String {
        let rows = checkpoints(Some(stored));
        let all: u64 = rows.iter().filter_map(|c| c.bytes).sum();
        let age = clock(sight.now.saturating_sub(stored.at) as f64 / 1000.0);
        let mark = self.mark(sight, Pane::Checkpoints);
        let (n, sum) = (rows.len(), bytes(all));
        format!("{mark}CHECKPOINTS {n}, {sum} (looked {age} ago)")
    }

    fn trajectories_title(&self, sight: &Sight, stored: &Stored) -> String {
        let rows = trajectories(Some(stored));
        let running = rows
            .iter()
            .filter(|t| t.state() == Some(TrajectoryState::Running))
            .count();
        let waiting = rows.len() - running;
        let more = if stored.cut { ", and more" } else { "" };
        let mark = self.mark(sight, Pane::Trajectories);
        format!("{mark}TRAJECTORIES {running} in flight, {waiting} waiting for a step{more}")
    }
}

impl Screen for Store {
    fn on(&mut self, input: Input, common: &mut Common) -> Vec<Effect> {
        if let Input::News(news) = input {
            self.on_news(news, common);
            return Vec::new();
        }
        if let Some(effects) = self.read_on(&input, common) {
            return effects;
        }
        if let Input::Key(code) = input
            && let Some(name) = self.naming.take()
        {
            return self.on_name(name, code);
        }
        match input {
            Input::Look if self.looks.due(common.now) => {
                self.looks.taken(common.now);
                return vec![Effect::Do(Action::ReadStore)];
            }
            Input::Key(code) => {
                let turned = self.turn(self.typed_into(), &input, common);
                match code {
                    _ if turned.is_some() => {}
                    KeyCode::Enter => match self.chosen(common) {
                        Ok(id) => self.open(id),
                        Err(why) => return vec![Effect::refuse(why)],
                    },
                    KeyCode::Char('o') => match Self::unnamed(common) {
                        None => self.naming = Some(String::new()),
                        Some(why) => return vec![Effect::refuse(why)],
                    },
                    KeyCode::Left | KeyCode::Char('h') => self.pane = Pane::Checkpoints,
                    KeyCode::Right | KeyCode::Char('l') => self.pane = Pane::Trajectories,
                    _ => {}
                }
            }
            Input::Shown => {
                self.naming = None;
                for pane in [Pane::Checkpoints, Pane::Trajectories] {
                    self.turn(pane, &input, common);
                }
            }
            Input::Click(_) | Input::Wheel(..) => {
                for pane in [Pane::Checkpoints, Pane::Trajectories] {
                    if self.turn(pane, &input, common).is_some() {
                        self.pane = pane;
                    }
                }
            }
            _ => {}
        }
        Vec::new()
    }

    fn draw(&self, common: &Common, area: Rect, buf: &mut Buffer, drawn: &mut Drawn) {
        if let Some(reader) = &self.reader {
            return reader.draw(common, area, buf, drawn);
        }
        let Some(s) = common.job.status() else { return };
        let lines = summary(common, s);
        let (above, area) = split(area, lines.len() as u16);
        for (row, line) in lines.into_iter().enumerate() {
            put(buf, above, row as u16, line);
        }
        let [left, right] = match area.width >= BESIDE {
            true => {
                let halves = [
                    Constraint::Fill(1),
                    Constraint::Length(2),
                    Constraint::Fill(1),
                ];
                let [left, _, right] = Layout::horizontal(halves).areas(area);
                [left, right]
            }
            false => Layout::vertical([Constraint::Fill(1), Constraint::Fill(1)]).areas(area),
        };
        let Some(stored) = &self.stored else {
            let text = match common.playback {
                Some(_) => "the store is not part of a recording",
                None => "looking ...",
            };
            let inner = section(common.look, area, "STORE", buf);
            return say(common, text, inner, buf);
        };
        let inner = section(
            common.look,
            left,
            &self.checkpoints_title(common, stored),
            buf,
        );
        match &stored.checkpoints {
            Ok(rows) => self.checkpoints.draw(rows, common, inner, buf, drawn),
            Err(problem) => say(common, problem, inner, buf),
        }
        let inner = section(
            common.look,
            right,
            &self.trajectories_title(common, stored),
            buf,
        );
        match &stored.trajectories {
            Ok(rows) => self.trajectories.draw(rows, common, inner, buf, drawn),
            Err(problem) => say(common, problem, inner, buf),
        }
    }

    fn ends_with_esc(&self) -> bool {
        self.reader.is_some()
    }

    fn refuses(&self, key: KeyCode, common: &Common) -> Option<String> {
        if let Some(reader) = &self.reader {
            return reader.refuses(key);
        }
        match key {
            KeyCode::Enter => self.chosen(common).err().map(str::to_owned),
            KeyCode::Char('o') => Self::unnamed(common).map(str::to_owned),
            _ => None,
        }
    }

    fn hints<'a>(&'a self, _: &'a Common) -> Hints<'a> {
        if let Some(reader) = &self.reader {
            return reader.hints();
        }
        let (typing, filter) = match self.typed_into() {
            Pane::Checkpoints => (self.checkpoints.typing(), self.checkpoints.filter()),
            Pane::Trajectories => (self.trajectories.typing(), self.trajectories.filter()),
        };
        let naming = self.naming.as_deref();
        let naming = naming.map(|name| ("trajectory, such as 119.0.3", name));
        Hints {
            own: &[&KEYS],
            most: &[
                LIST,
                key::SELECT,
                OPEN,
                NAME,
                key::FILTER,
                key::SORT,
                key::PALETTE,
                key::HELP,
                key::QUIT,
            ],
            typing: naming.or(typing),
            filter,
        }
    }
}

/// Checkpoints, newest first.
static CHECKPOINTS: Spec<CheckpointRow> = Spec {
    columns: &CKPT_COLUMNS,
    name: |c| c.step.to_string(),
    text: |c| {
        let pinned = if c.pinned { "pinned" } else { "" };
        format!("{} {} {pinned}", c.step, c.state)
    },
};

static CKPT_COLUMNS: [Column<CheckpointRow>; 7] = [
    figures(
        "STEP",
        8,
        0,
        |c, look| (c.step.to_string(), look.strong()),
        |c| c.step as f64,
    ),
    figures(
        "BYTES",
        9,
        1,
        |c, _| plain(c.bytes.map_or_else(dash, bytes)),
        |c| c.bytes.unwrap_or(0) as f64,
    ),
    figures(
        "RANKS",
        5,
        3,
        |c, _| plain(c.ranks.to_string()),
        |c| c.ranks as f64,
    ),
    figures(
        "REWARD",
        7,
        2,
        |c, _| plain(c.reward.map_or_else(dash, |r| format!("{r:.3}"))),
        |c| c.reward.unwrap_or(f64::NEG_INFINITY),
    ),
    words("WHEN", 12, 2, |c, _| {
        plain(c.at_ms.map_or_else(dash, time_of_day))
    }),
    words("PINNED", 6, 1, |c, _| {
        plain(if c.pinned {
            "pinned".to_owned()
        } else {
            dash()
        })
    }),
    words("STATE", 0, 0, |c, look| {
        let word = if c.bytes.is_some() {
            "complete"
        } else {
            "failed"
        };
        (
            format!("{} {}", look.sign(word), c.state),
            look.tone(look.tone_of(word)),
        )
    }),
];

/// Trajectories, oldest first.
static TRAJECTORIES: Spec<Trajectory> = Spec {
    columns: &TRAJ_COLUMNS,
    name,
    text: |t| format!("{} {} v{}", name(t), t.state, t.oldest_version),
};

static TRAJ_COLUMNS: [Column<Trajectory>; 6] = [
    words("TRAJECTORY", 14, 0, |t, look| (name(t), look.strong())),
    words("STATE", 10, 0, |t, look| {
        let word = if t.state() == Some(TrajectoryState::Finished) {
            "done"
        } else {
            &t.state
        };
        (
            format!("{} {}", look.sign(word), t.state),
            look.tone(look.tone_of(word)),
        )
    }),
    figures(
        "TURNS",
        5,
        1,
        |t, _| plain(t.turn_count.to_string()),
        |t| f64::from(t.turn_count),
    ),
    figures(
        "TOKENS",
        7,
        0,
        |t, _| plain(count(t.tokens as f64)),
        |t| t.tokens as f64,
    ),
    figures(
        "REWARD",
        7,
        1,
        |t, _| plain(t.reward.map_or_else(dash, |r| format!("{r:.2}"))),
        |t| t.reward.unwrap_or(f64::NEG_INFINITY),
    ),
    figures(
        "OLDEST",
        7,
        2,
        |t, _| plain(format!("v{}", t.oldest_version)),
        |t| t.oldest_version as f64,
    ),
];

fn plain(text: String) -> Cell {
    (text, Style::new())
}

fn dash() -> String {
    "-".to_owned()
}

/// Where else the last step is safe, and what was passed over; a line each where there is one.
fn summary(sight: &Sight, s: &Status) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut say = |word: &str, text: String| {
        let style = sight.look.tone(sight.look.tone_of(word));
        let text = format!(" {} {text}", sight.look.sign(word));
        lines.push(Line::styled(sight.look.fit(&text, 190), style));
    };
    if s.disk_total_bytes > 0 {
        let (free, total) = (s.disk_free_bytes, s.disk_total_bytes);
        let full = 1.0 - free as f64 / total as f64;
        let gauge = bar(full, 20, sight.look.ascii);
        let word = if full > NEARLY_FULL { "warn" } else { "done" };
        let (free, total) = (bytes(free), bytes(total));
        say(word, format!("disk {gauge} {free} of {total} free"));
    }
    if let Some(r) = &s.replicas {
        let spread = match r.spread.as_str() {
            "" => String::new(),
            spread => format!(", on other {spread}"),
        };
        let waits = match r.waiting.as_str() {
            "" => String::new(),
            what => format!("; a step waits for {what}"),
        };
        let word = match r.state() {
            Some(ReplicaState::Safe) => "done",
            _ => "waiting",
        };
        let (step, copies) = (r.step, &r.state);
        say(
            word,
            format!("copies of step {step} in memory: {copies}{spread}{waits}"),
        );
    }
    if let Some(r) = &s.remote {
        let step = r.step.map_or_else(dash, |step| format!("step {step}"));
        let (url, sent) = (&r.url, bytes(r.sent_bytes));
        match r.failing.as_str() {
            "" => say("done", format!("{url}: {step}, {sent} sent")),
            why => say(
                "failed",
                format!("{url}: {step}, {} failed: {why}", r.failed),
            ),
        }
    }
    let remote = s.remote.as_ref().map_or(0, |r| r.skipped);
    if s.checkpoints_skipped + remote + s.trajectories_stale > 0 {
        let (disk, stale) = (s.checkpoints_skipped, s.trajectories_stale);
        let text = format!(
            "passed over: {disk} checkpoints (disk busy), {remote} uploads; \
             {stale} trajectories were too stale"
        );
        say("warn", text);
    }
    let failures: u64 = s.roles.iter().map(|r| r.tool_failures).sum();
    if s.trajectories_given_back + failures > 0 {
        let back = s.trajectories_given_back;
        let text = format!(
            "no samples: {failures} tool calls that failed, {back} trajectories given back"
        );
        say("warn", text);
    }
    lines
}

fn say(sight: &Sight, text: &str, area: Rect, buf: &mut Buffer) {
    let lines = wrapped(text, usize::from(area.width.saturating_sub(4)));
    for (row, line) in lines.into_iter().take(usize::from(area.height)).enumerate() {
        buf.set_string(area.x + 2, area.y + row as u16, line, sight.look.faint());
    }
}
