//! The jobs of several contexts side by side: a line each, the worst first, and all that there is to say of the selected one
//! below. Enter opens the ordinary console of a job over it, which Esc or `J` leaves again.
//!
//! ```text
//!  keys, mouse ─┐                           ┌─► Vec<Wish> ─► runner (watch, open, back, ring, quit)
//!  ticks ───────┼─► Jobs::on, Jobs::hear ───┤
//!  News ────────┘   a daemon's each          └─► draw(&Jobs)
//! ```
//! Each daemon has a connection of its own ([`link`]), with its own limit and its own pause between attempts: one that
//! hangs or refuses delays no other.
mod columns;
mod draw;
mod link;
mod watch;

pub use draw::draw;
pub use watch::follow;

use super::event::Event;
use super::input::Input;
use super::names::TableId;
use super::state::{Bell, Settings, Sight};
use super::table::Table;
use super::ui::{Drawn, Spot};
use crate::glance::{Away, Glance, worst_first};
use crate::pace::Pace;
use columns::{Row, SPEC};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind};
use link::Link;
use robust_proto::v1;

/// How far a notch of the wheel moves.
const NOTCH: isize = 3;
/// How long a sentence in the last line is shown.
const NOTICE_MS: u64 = 8_000;

/// What one of the daemons said.
#[derive(Debug)]
pub struct News {
    /// Whose.
    pub context: String,
    /// Over which connection.
    pub link: u64,
    /// A status, or why no more come.
    pub told: Result<Box<v1::Status>, String>,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Watch the daemon of this context over a connection of this number, in place of the one before.
    Watch {
        /// Whose.
        context: String,
        /// Its number.
        link: u64,
    },
    /// Open the ordinary console of this one.
    Open(String),
    /// Go back to the console that lies below.
    Back,
    /// Ring the terminal's bell, and have it notify with these words.
    Ring(String),
    /// Leave the console, where nothing is lost by it.
    Leave,
    /// Leave it in every case.
    Quit,
}

/// One of the contexts.
#[derive(Debug)]
struct Watched {
    row: crate::glance::Row,
    link: Link,
    bell: Bell,
    pace: Pace,
    /// Name and start of the job whose steps are counted.
    job: Option<(String, u64)>,
}

/// All of them.
#[derive(Debug)]
pub struct Jobs {
    /// The time, and how to draw; nothing of a job.
    sight: Sight,
    watched: Vec<Watched>,
    /// As they are shown.
    rows: Vec<Row>,
    table: Table<Row>,
    /// In the order of their names, not the worst first.
    by_name: bool,
    /// Where contexts are written down.
    file: String,
    /// Whose ordinary console lies below, in which its alarms ring; none: there is none, or its daemon is no context.
    open: Option<String>,
    /// There is a console below, to which Esc goes back.
    below: bool,
    /// A sentence, and until when it is shown.
    notice: Option<(String, u64)>,
}

impl Jobs {
    /// These contexts, each with the place of its daemon; nobody was asked yet.
    pub fn new(settings: Settings, file: String, contexts: Vec<(String, String)>) -> Jobs {
        let bell = settings.bell;
        let watched = |(context, place): (String, String)| Watched {
            row: crate::glance::Row {
                context,
                place,
                away: None,
                job: None,
            },
            link: Link::default(),
            bell: Bell::new(bell),
            pace: Pace::default(),
            job: None,
        };
        let mut jobs = Jobs {
            sight: Sight::new(settings),
            watched: contexts.into_iter().map(watched).collect(),
            rows: Vec::new(),
            table: Table::new(TableId("contexts"), &SPEC),
            by_name: false,
            file,
            open: None,
            below: false,
            notice: None,
        };
        jobs.refresh();
        jobs
    }

    /// An ordinary console lies below now: of this context, or of a daemon that is none.
    pub fn lies_over(&mut self, context: Option<String>) {
        (self.open, self.below) = (context, true);
    }

    /// Whose that is.
    pub fn open(&self) -> Option<&str> {
        self.open.as_deref()
    }

    /// What the last frame showed where. The row that it showed as the selected one is selected from now on, also where
    /// nobody has chosen one yet: rows change places with what is heard, and Enter opens what was seen.
    pub fn set_drawn(&mut self, drawn: Drawn) {
        self.sight.drawn = drawn;
        if let Some(shown) = self.chosen() {
            self.table.choose(&self.rows, self.sight.look, &shown);
        }
    }

    /// Shows a sentence on why something is not done, for a while.
    pub fn refuse(&mut self, text: String) {
        self.notice = Some((text, self.sight.now + NOTICE_MS));
    }

    /// Takes a key, the mouse or a tick.
    #[must_use]
    pub fn on(&mut self, now: u64, event: &Event) -> Vec<Wish> {
        self.sight.now = now;
        let wishes = match event {
            Event::Terminate => vec![Wish::Quit],
            Event::Key(key) => self.on_key(*key),
            Event::Mouse(mouse) => {
                self.on_mouse(*mouse);
                Vec::new()
            }
            Event::Tick => self.on_tick(),
            _ => Vec::new(),
        };
        self.refresh();
        wishes
    }

    /// Takes what a daemon said.
    #[must_use]
    pub fn hear(&mut self, now: u64, news: News) -> Vec<Wish> {
        self.sight.now = now;
        let News {
            context,
            link,
            told,
        } = news;
        let mut all = self.watched.iter_mut();
        let Some(one) = all.find(|one| one.row.context == context && one.link.is(link)) else {
            return Vec::new();
        };
        let rung = match told {
            Ok(status) => one.heard(now, &status),
            Err(why) => {
                one.lost(now, why);
                None
            }
        };
        let rung = rung.filter(|_| self.open.as_ref() != Some(&context));
        let wishes = rung.map(|text| Wish::Ring(format!("{context}: {text}")));
        self.refresh();
        wishes.into_iter().collect()
    }

    fn on_tick(&mut self) -> Vec<Wish> {
        let now = self.sight.now;
        if self.notice.as_ref().is_some_and(|(_, until)| *until <= now) {
            self.notice = None;
        }
        let mut wishes = Vec::new();
        for one in &mut self.watched {
            if let Some(seconds) = one.link.silent_s(now) {
                one.lost(now, format!("it said nothing for {seconds} s"));
            }
            wishes.extend(one.link.begin(now).map(|link| Wish::Watch {
                context: one.row.context.clone(),
                link,
            }));
        }
        wishes
    }

    fn on_key(&mut self, key: KeyEvent) -> Vec<Wish> {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return match key.code {
                KeyCode::Char('c') => vec![Wish::Quit],
                _ => Vec::new(),
            };
        }
        let is_typed = self.table.typing().is_some();
        match key.code {
            _ if is_typed => self.turn(&Input::Key(key.code)),
            KeyCode::Char('q') => return vec![Wish::Leave],
            KeyCode::Enter => return self.chosen().map(Wish::Open).into_iter().collect(),
            KeyCode::Char('J') if self.below => return vec![Wish::Back],
            KeyCode::Esc if self.below && self.table.filter().is_empty() => {
                return vec![Wish::Back];
            }
            KeyCode::Char('w') => self.by_name = !self.by_name,
            KeyCode::Char('r') => {
                for one in &mut self.watched {
                    one.link.hurry();
                }
                return self.on_tick();
            }
            code => self.turn(&Input::Key(code)),
        }
        Vec::new()
    }

    fn on_mouse(&mut self, mouse: MouseEvent) {
        let Some(spot) = self.sight.drawn.at(mouse.column, mouse.row) else {
            return;
        };
        match (mouse.kind, spot) {
            (MouseEventKind::Down(MouseButton::Left), Spot::Row(..) | Spot::Head(..)) => {
                self.turn(&Input::Click(spot));
            }
            (MouseEventKind::ScrollUp, spot) => self.turn(&Input::Wheel(spot, -NOTCH)),
            (MouseEventKind::ScrollDown, spot) => self.turn(&Input::Wheel(spot, NOTCH)),
            _ => {}
        }
    }

    fn turn(&mut self, input: &Input) {
        let Jobs {
            table, rows, sight, ..
        } = self;
        let _ = table.on(input, rows, sight);
    }

    /// Name of the selected context.
    fn chosen(&self) -> Option<String> {
        let row = self.table.chosen(&self.rows, self.sight.look)?;
        Some(row.of.context.clone())
    }

    /// The rows, as they are by now.
    fn refresh(&mut self) {
        let mut rows: Vec<crate::glance::Row> =
            self.watched.iter().map(|one| one.row.clone()).collect();
        if !self.by_name {
            worst_first(&mut rows);
        }
        let zone = self.sight.zone;
        let row = |of: crate::glance::Row| Row {
            trouble: of.trouble(zone),
            of,
        };
        self.rows = rows.into_iter().map(row).collect();
    }
}

impl Watched {
    /// A status came; what to ring for, if there is anything.
    fn heard(&mut self, now: u64, status: &v1::Status) -> Option<String> {
        self.link.heard(now);
        let job = (status.job.clone(), status.started_ms);
        // A daemon that has just started says no more than that, with a start time of its own.
        if !status.roles.is_empty() && self.job.replace(job.clone()).is_some_and(|was| was != job) {
            self.pace = Pace::default();
            self.bell.forget();
        }
        self.pace.observe(status);
        self.row.away = None;
        self.row.job = Some(Glance::of(status, self.pace.eta_s(status)));
        self.bell.heard(status)
    }

    /// Its daemon is gone, or was not reached. The first reason stays until another one is told: the time is that of the
    /// loss.
    fn lost(&mut self, now: u64, why: String) {
        self.link.lost(now);
        let since = self.row.away.as_ref().and_then(|away| away.since_ms);
        self.row.away = Some(Away {
            since_ms: Some(since.unwrap_or(now)),
            why,
        });
    }
}
