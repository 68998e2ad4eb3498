//! The console's state: `handle` takes one event and says what is to be done.
//!
//! ```text
//!              Connect            Status            10 s without one, or Lost
//!   Waiting ───────────► Waiting ────────► Live ────────────────────────────► Lost
//!      ▲                                    ▲                                  │
//!      │                                    └──────────── Status ──────────────┤
//!      └── (first Lost keeps the screen empty)         Connect, twice a second ┘
//! ```
//! Every connection has a number; what an older one still delivers is dropped. No clock in here:
//! `now` is Unix time in milliseconds, given by the runner.
use super::dialog::Overlay;
use super::drills::{DrillFile, DrillRun};
use super::event::{Action, Event, Playback, Quit};
use super::job::Job;
use super::logs::Tail;
use super::screen::{Screen, TableId};
use super::stored::Stored;
use super::table::View;
use super::ui::Drawn;
use super::ui::look::Look;
use crate::format::who;
use chrono::{FixedOffset, Offset as _, Utc};

/// How long an action's answer is shown.
const NOTICE_MS: u64 = 8_000;
/// Log and store are looked at so often while they are shown.
const LOOK_MS: u64 = 1_000;

/// The connection as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Link {
    /// Not reached yet.
    Waiting,
    /// Statuses come in.
    Live,
    /// It was reached and is gone, since then and for this reason.
    Lost {
        /// Unix ms.
        since: u64,
        /// The transport's words.
        reason: String,
    },
}

/// The answer to the last action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// A sentence.
    pub text: String,
    /// Whether it was done.
    pub good: bool,
    pub(super) until: u64,
}

/// Everything that is drawn.
#[derive(Debug)]
pub struct State {
    /// Glyphs and colours.
    pub look: Look,
    /// Where the daemon is looked for, in words.
    pub place: String,
    /// What to do when it is not there.
    pub fix: String,
    /// Offset of the operator's clock from UTC.
    pub zone: FixedOffset,
    /// Unix ms of the last event handled.
    pub now: u64,
    /// What is known of the job.
    pub job: Job,
    /// The connection.
    pub link: Link,
    /// Why the first connection does not come about.
    pub trouble: String,
    /// What is shown.
    pub screen: Screen,
    /// Order, filter and selection of each table.
    views: [View; TableId::COUNT],
    /// What the store screen's keys act on.
    pub store_pane: TableId,
    /// A filter, or the words looked for in a log, is being typed.
    pub typing: Option<Typing>,
    /// Time on the timeline.
    pub window: Window,
    /// How many lines the lower half of a screen is scrolled.
    pub scrolled: usize,
    /// Words looked for in the log.
    pub log_words: String,
    /// The log that is shown.
    pub log: Option<Tail>,
    /// The last look at the store.
    pub stored: Option<Stored>,
    /// The drill files that there are.
    pub drills: Result<Vec<DrillFile>, String>,
    /// The drill that was started here last.
    pub drill: Option<DrillRun>,
    /// Where the recording is that is played; none: this is a daemon.
    pub playback: Option<Playback>,
    /// Nothing can be done from here.
    pub read_only: bool,
    /// What the daemon says is recorded, all of it.
    pub records: bool,
    /// What the last frame showed where.
    pub drawn: Drawn,
    /// What lies over the screen.
    pub overlay: Option<Overlay>,
    /// The answer to the last action.
    pub notice: Option<Notice>,
    pub(super) exit_when_done: bool,
    pub(super) link_no: u64,
    pub(super) retry_at: Option<u64>,
    pub(super) unreached_since: u64,
    /// When log or store was last asked for.
    asked_at: u64,
    /// The connection over which phases are told.
    phases_over: Option<u64>,
    /// Unix ms; not asked for before.
    phases_from: u64,
}

/// What is being typed outside of a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typing {
    /// The filter of a table.
    Filter(TableId),
    /// What is looked for in the log.
    Search,
}

/// The time that the timeline shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// From the left edge to the right.
    pub span_ms: u64,
    /// From the right edge to now; 0 follows it.
    pub back_ms: u64,
}

impl Default for Window {
    fn default() -> Self {
        Self {
            span_ms: 120_000,
            back_ms: 0,
        }
    }
}

impl State {
    /// A console that knows nothing yet.
    pub fn new(look: Look, place: String, fix: String, exit_when_done: bool) -> State {
        let mut views: [View; TableId::COUNT] = std::array::from_fn(|_| View::default());
        // The newest incident is what one looks for.
        views[TableId::Incidents as usize] = View::sorted(1, true);
        State {
            look,
            place,
            fix,
            zone: Utc.fix(),
            exit_when_done,
            now: 0,
            job: Job::default(),
            link: Link::Waiting,
            trouble: String::new(),
            screen: Screen::Overview,
            views,
            store_pane: TableId::Checkpoints,
            typing: None,
            window: Window::default(),
            scrolled: 0,
            log_words: String::new(),
            log: None,
            stored: None,
            drills: Ok(Vec::new()),
            drill: None,
            playback: None,
            read_only: false,
            records: false,
            drawn: Drawn::default(),
            overlay: None,
            notice: None,
            link_no: 0,
            retry_at: None,
            unreached_since: 0,
            asked_at: 0,
            phases_over: None,
            phases_from: 0,
        }
    }

    /// The first connection.
    pub fn start(&mut self, now: u64) -> Vec<Action> {
        self.now = now;
        self.unreached_since = now;
        vec![self.reconnect()]
    }

    /// Takes one event.
    #[must_use]
    pub fn handle(&mut self, now: u64, event: Event) -> Vec<Action> {
        self.now = now;
        match event {
            Event::Resize => Vec::new(),
            Event::Terminate => vec![Action::Quit(Quit::Asked)],
            Event::Key(key) => self.on_key(key),
            Event::Mouse(mouse) => self.on_mouse(mouse),
            Event::Tick => self.on_tick(),
            Event::Status { link, status } if link == self.link_no => self.on_status(*status),
            Event::Logged { link, event } if link == self.link_no => {
                self.job.logged(*event);
                Vec::new()
            }
            Event::Phases { link, spans } if link == self.link_no => {
                self.job.phases_ended(&spans);
                Vec::new()
            }
            Event::PhasesEnded { link, never } if link == self.link_no => {
                // Asked for again by and by, where there is any hope.
                if !never {
                    self.phases_over = None;
                    self.phases_from = self.now + LOOK_MS;
                }
                Vec::new()
            }
            Event::Lost { link, reason } if link == self.link_no => self.on_lost(reason),
            Event::Status { .. }
            | Event::Logged { .. }
            | Event::Phases { .. }
            | Event::PhasesEnded { .. }
            | Event::Lost { .. } => Vec::new(),
            other => self.on_news(other),
        }
    }

    /// What was asked for has come.
    fn on_news(&mut self, event: Event) -> Vec<Action> {
        match event {
            Event::Answered(answer) => {
                let good = answer.is_ok();
                self.tell(answer.unwrap_or_else(|e| e), good);
            }
            Event::LogRead { who, lines } => self.log = Some(Tail { who, lines }),
            Event::StoreRead(stored) => self.stored = Some(*stored),
            Event::DrillsRead(files) => self.drills = files,
            Event::DrillSaid(line) => {
                if let Some(run) = &mut self.drill {
                    run.say(line);
                }
            }
            Event::DrillEnded(end) => {
                let now = self.now;
                if let Some(run) = &mut self.drill {
                    run.end = Some((now, end));
                    let text = format!("drill {} {}", run.name, run.state());
                    let good = run.state() == "passed";
                    self.tell(text, good);
                }
            }
            Event::Played(playback) => self.playback = Some(playback),
            _ => {}
        }
        Vec::new()
    }

    /// Age of what is shown, in ms.
    pub fn data_age_ms(&self) -> u64 {
        self.job.age_ms(self.now)
    }

    /// Shows a sentence for a while.
    pub fn tell(&mut self, text: String, good: bool) {
        self.notice = Some(Notice {
            text,
            good,
            until: self.now + NOTICE_MS,
        });
    }

    /// What the screen shows beside the status.
    pub(super) fn wanted(&mut self) -> Vec<Action> {
        if self.link != Link::Live || self.playback.is_some() {
            return Vec::new();
        }
        let phases = self.phases_wanted();
        phases.into_iter().chain(self.look_wanted()).collect()
    }

    /// With many instances phases are most of what there is to tell: they come while they are shown
    /// or recorded. What ended meanwhile comes first then, as far back as the daemon has it.
    fn phases_wanted(&mut self) -> Option<Action> {
        let shown = matches!(self.screen, Screen::Roles | Screen::Timeline);
        let due = self.now >= self.phases_from;
        let over = (due && (shown || self.records)).then_some(self.link_no);
        if std::mem::replace(&mut self.phases_over, over) == over {
            return None;
        }
        Some(match over {
            Some(link) => Action::FollowPhases {
                link,
                after_ms: self.job.history().told_until(),
            },
            None => Action::LeavePhases,
        })
    }

    /// Asked for anew now and then.
    fn look_wanted(&mut self) -> Option<Action> {
        let due = self.now.saturating_sub(self.asked_at) >= LOOK_MS;
        if !due {
            return None;
        }
        let action = match self.screen {
            Screen::Roles => self.log_wanted()?,
            Screen::Store => Action::ReadStore,
            _ => return None,
        };
        self.asked_at = self.now;
        Some(action)
    }

    /// The log of the selected instance. Which machine has it is known from where it runs now: one
    /// that moved left a log of an earlier life behind.
    fn log_wanted(&self) -> Option<Action> {
        let role = self.chosen_role()?;
        let leader = self.job.status().map(|s| &s.node);
        Some(Action::ReadLog {
            who: who(&role.role, role.index),
            on_leader: role.node.is_empty() || Some(&role.node) == leader,
        })
    }

    /// Shows another screen, and asks for what it needs at once.
    pub(super) fn show(&mut self, screen: Screen) -> Vec<Action> {
        self.screen = screen;
        self.typing = None;
        self.look_now();
        let mut actions = self.wanted();
        if screen == Screen::Drills {
            actions.push(Action::ReadDrills);
        }
        actions
    }

    /// Another row's details are wanted.
    pub(super) fn look_now(&mut self) {
        self.scrolled = 0;
        self.asked_at = 0;
    }

    /// What an operator did to a table.
    pub fn view(&self, id: TableId) -> &View {
        &self.views[id as usize]
    }

    pub(super) fn view_mut(&mut self, id: TableId) -> &mut View {
        &mut self.views[id as usize]
    }
}
