//! What every screen sees: how the console was started, the time, and what is known of the job.
use crate::console::advice::Advice;
use crate::console::event::Playback;
use crate::console::job::Job;
use crate::console::ui::Drawn;
use crate::console::ui::look::Look;
use chrono::{FixedOffset, Offset as _, Utc};

/// Cells of a context's name at most.
const CONTEXT: usize = 24;

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

/// How a console is started.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Glyphs and colours.
    pub look: Look,
    /// Where the daemon is looked for, in words.
    pub place: String,
    /// The context by which the daemon was named, where it was; a recording has none.
    pub context: Option<String>,
    /// What to do when it is not there.
    pub fix: String,
    /// Offset of the operator's clock from UTC.
    pub zone: FixedOffset,
    /// Nothing can be done from here.
    pub read_only: bool,
    /// What the daemon says is recorded, all of it.
    pub records: bool,
    /// It is left when the job is over, or its daemon stays away.
    pub exit_when_done: bool,
    /// The terminal rings for an alarm.
    pub bell: bool,
}

impl Settings {
    /// One that may do everything, leaves when it is told to and rings for nothing.
    pub fn of(look: Look, place: String) -> Settings {
        Settings {
            look,
            place,
            context: None,
            fix: String::new(),
            zone: Utc.fix(),
            read_only: false,
            records: false,
            exit_when_done: false,
            bell: false,
        }
    }
}

/// What is known, and how it is to be shown.
#[derive(Debug)]
pub struct Sight {
    /// Glyphs and colours.
    pub look: Look,
    /// Where the daemon is looked for, in words.
    pub place: String,
    /// The context by which the daemon was named, where it was.
    pub context: Option<String>,
    /// What to do when it is not there.
    pub fix: String,
    /// Offset of the operator's clock from UTC.
    pub zone: FixedOffset,
    /// Nothing can be done from here.
    pub read_only: bool,
    /// Unix ms of the last event handled.
    pub now: u64,
    /// The connection.
    pub link: Link,
    /// Why the first connection does not come about.
    pub trouble: String,
    /// Where the recording is that is played; none: this is a daemon.
    pub playback: Option<Playback>,
    /// What is known of the job.
    pub job: Job,
    /// What an operator could do now, where there is anything to say.
    pub advice: Option<Advice>,
    /// What the last frame showed where.
    pub drawn: Drawn,
}

impl Sight {
    /// Nothing is known yet.
    pub(in crate::console) fn new(settings: Settings) -> Sight {
        Sight {
            look: settings.look,
            place: settings.place,
            context: settings.context,
            fix: settings.fix,
            zone: settings.zone,
            read_only: settings.read_only,
            now: 0,
            link: Link::Waiting,
            trouble: String::new(),
            playback: None,
            job: Job::default(),
            advice: None,
            drawn: Drawn::default(),
        }
    }

    /// Words about its job, after the context where there is one: jobs of several contexts often have the same name.
    pub fn in_context(&self, words: &str) -> String {
        match &self.context {
            Some(context) => format!("{}: {words}", self.look.fit(context, CONTEXT)),
            None => words.to_owned(),
        }
    }

    /// Age of what is shown, in ms.
    pub fn data_age_ms(&self) -> u64 {
        self.job.age_ms(self.now)
    }

    /// Why nothing can be done now.
    pub fn cannot_act(&self) -> Option<&'static str> {
        let is_over = self.job.is_over();
        self.cannot_write()
            .or_else(|| is_over.then_some("the job is over"))
    }

    /// Why nothing can be written either, which is done after the job's end, too.
    pub fn cannot_write(&self) -> Option<&'static str> {
        match self.link {
            _ if self.playback.is_some() => Some("this is a recording"),
            _ if self.read_only => Some("this console only reads (--read-only)"),
            Link::Waiting => Some("no daemon reached yet"),
            Link::Lost { .. } => Some("the daemon is not reachable"),
            Link::Live => None,
        }
    }
}
