//! Owns the terminal, collects the events, carries out the actions.
use super::event::{Action, Event, Quit};
use super::frame;
use super::inputs::{inputs, ticks, unix_ms};
use super::jobs::{self, Jobs, News, Wish};
use super::picture;
use super::record::{Recorder, Recording};
use super::replay::Player;
use super::session::Session;
use super::state::{Settings, State};
use super::terminal::Terminal;
use super::ui::look::Look;
use crate::cli::{Global, TuiArgs};
use crate::contexts::Contexts;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::locale_is_utf8;
use crate::paint::no_color;
use std::collections::HashMap;
use std::future::pending;
use std::io::IsTerminal as _;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Events handled before the screen is drawn again; a long journal arrives in bursts.
const BURST: usize = 256;
/// A token that is not read within this lies on a disk that hangs.
const OPENS_WITHIN: Duration = Duration::from_secs(2);

/// Opens the console and stays until it is left. The terminal is restored in every case: panics by a
/// hook, signals as events, and all else by the end of [`Terminal`].
pub async fn run(global: &Global, args: TuiArgs) -> Result<(), CliError> {
    if global.json {
        return Err(CliError::Usage(
            "the console has no JSON; use `robustctl watch --json`".into(),
        ));
    }
    if let Some(names) = &args.contexts {
        global.names_no_daemon()?;
        let contexts = Contexts::named(names)?;
        needs_terminal()?;
        let mut runner = Runner::new(&args, None)?;
        runner.show_jobs_of(contexts);
        return runner.stay(Vec::new()).await;
    }
    let endpoint = Endpoint::resolve(
        global.state_dir.as_deref(),
        global.connect.as_deref(),
        global.token_file.as_deref(),
    )?;
    if let Some(to) = &args.svg {
        return picture::write(&args, &args.picture, to);
    }
    needs_terminal()?;
    let recording = args.replay.as_deref().map(Recording::open);
    let recording = recording.transpose().map_err(CliError::Usage)?;
    if !args.wait_for_daemon && recording.is_none() {
        endpoint.connect().await?;
    }
    let place = recording
        .as_ref()
        .map_or(endpoint.place(), |r| r.place.clone());
    let context = context_of(global, &args);
    let state = State::new(Settings {
        context: context.clone(),
        fix: endpoint.fix(),
        records: args.record.is_some(),
        exit_when_done: args.exit_when_done,
        ..settings(&args, place)
    });
    let record = args.record.as_deref();
    let recorder = record.map(|path| Recorder::create(path, unix_ms(), endpoint.place()));
    let recorder = recorder.transpose().map_err(CliError::Failed)?;
    let mut session = Session::new(endpoint, state, args.drills.clone());
    session.record(recorder);
    session.play_back(recording.map(|r| Player::new(r, unix_ms())));
    let mut runner = Runner::new(&args, context)?;
    let actions = runner.open(session);
    runner.stay(actions).await
}

/// Whose console it begins with. A recording is of no context, whatever else is named.
fn context_of(global: &Global, args: &TuiArgs) -> Option<String> {
    let context = global.context.clone();
    context.filter(|_| args.replay.is_none())
}

fn needs_terminal() -> Result<(), CliError> {
    match std::io::stdout().is_terminal() && std::io::stdin().is_terminal() {
        true => Ok(()),
        false => Err(CliError::Usage(
            "the console needs a terminal; use `robustctl watch` without one".to_owned(),
        )),
    }
}

/// Those of every console that these options open.
fn settings(args: &TuiArgs, place: String) -> Settings {
    let look = Look::new(args.theme, !no_color(), args.ascii || !locale_is_utf8());
    Settings {
        zone: *chrono::Local::now().offset(),
        read_only: args.read_only,
        // What was an alarm in a recording is none now.
        bell: !args.no_bell && args.replay.is_none(),
        ..Settings::of(look, place)
    }
}

fn unusable(e: std::io::Error) -> CliError {
    CliError::Failed(format!("cannot use the terminal: {e}"))
}

/// What is on top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OnTop {
    /// The ordinary console of a daemon.
    Session,
    /// The jobs of several contexts.
    Jobs,
}

/// The jobs of several contexts, and those who watch them.
struct Beside {
    jobs: Jobs,
    contexts: Contexts,
    to: Sender<News>,
    news: Receiver<News>,
    watches: HashMap<String, JoinHandle<()>>,
}

/// Something that happened.
enum Next {
    /// A key, the mouse, a tick or a signal.
    Input(Event),
    /// Something came for the console of a daemon.
    Session(Event),
    /// One of the daemons that are watched said something.
    News(News),
}

struct Runner {
    args: TuiArgs,
    /// Of the console that it begins with, where that was named.
    context: Option<String>,
    /// To `inputs`.
    to: Sender<Event>,
    inputs: Receiver<Event>,
    session: Option<Session>,
    beside: Option<Beside>,
    on_top: OnTop,
    /// Second of the age that the last frame showed.
    second: u64,
}

impl Runner {
    fn new(args: &TuiArgs, context: Option<String>) -> Result<Runner, CliError> {
        let (to, events) = channel(1024);
        for kind in [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
        ] {
            let (mut signals, to) = (signal(kind).map_err(unusable)?, to.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    let _ = to.send(Event::Terminate).await;
                }
            });
        }
        Ok(Runner {
            args: args.clone(),
            context,
            to,
            inputs: events,
            session: None,
            beside: None,
            on_top: OnTop::Session,
            second: 0,
        })
    }

    /// Begins a console, in place of one that is there.
    fn open(&mut self, mut session: Session) -> Vec<Action> {
        let actions = session.start();
        (self.session, self.on_top) = (Some(session), OnTop::Session);
        actions
    }

    /// Has the terminal until the console is left.
    async fn stay(mut self, actions: Vec<Action>) -> Result<(), CliError> {
        let mut terminal = Terminal::take(!self.args.no_mouse).map_err(unusable)?;
        tokio::spawn(inputs(self.to.clone()));
        tokio::spawn(ticks(self.to.clone()));
        let quit = self.run(&mut terminal, actions).await;
        drop(terminal);
        if let Some(session) = &mut self.session {
            session.end().await?;
        }
        let quit = quit.map_err(unusable)?;
        match &self.session {
            Some(session) => session.last_words(quit),
            None => Ok(()),
        }
    }

    async fn run(
        &mut self,
        terminal: &mut Terminal,
        actions: Vec<Action>,
    ) -> std::io::Result<Quit> {
        if let Err(quit) = self.execute(actions, terminal) {
            return Ok(quit);
        }
        let mut changed = true;
        loop {
            if changed {
                self.draw(terminal)?;
            }
            changed = false;
            let mut next = self.next().await;
            for left in (0..BURST).rev() {
                changed |= self.is_visible(&next);
                match self.take(next, terminal).await {
                    Ok(acted) => changed |= acted,
                    Err(quit) => return Ok(quit),
                }
                // What is taken from its channel is handed on: the last one stays there.
                match (left > 0).then(|| self.next_at_once()).flatten() {
                    Some(more) => next = more,
                    None => break,
                }
            }
        }
    }

    fn draw(&mut self, terminal: &mut Terminal) -> std::io::Result<()> {
        let mut drawn = None;
        match (self.on_top, &mut self.session, &mut self.beside) {
            (OnTop::Session, Some(session), _) => {
                let state = session.state();
                let draw = |frame: &mut ratatui::Frame| drawn = Some(frame::draw(state, frame));
                terminal.screen.draw(draw)?;
                session.state_mut().set_drawn(drawn.unwrap_or_default());
            }
            (_, _, Some(beside)) => {
                let jobs = &beside.jobs;
                let draw = |frame: &mut ratatui::Frame| drawn = Some(jobs::draw(jobs, frame));
                terminal.screen.draw(draw)?;
                beside.jobs.set_drawn(drawn.unwrap_or_default());
            }
            (_, _, None) => {}
        }
        Ok(())
    }

    /// What happens next.
    async fn next(&mut self) -> Next {
        let events = self.session.as_mut().map(Session::events);
        let news = self.beside.as_mut().map(|beside| &mut beside.news);
        tokio::select! {
            event = self.inputs.recv() => Next::Input(event.unwrap_or(Event::Terminate)),
            event = received(events) => Next::Session(event),
            news = received(news) => Next::News(news),
        }
    }

    /// What has happened already.
    fn next_at_once(&mut self) -> Option<Next> {
        if let Ok(event) = self.inputs.try_recv() {
            return Some(Next::Input(event));
        }
        let session = self.session.as_mut();
        if let Some(event) = session.and_then(|s| s.events().try_recv().ok()) {
            return Some(Next::Session(event));
        }
        let beside = self.beside.as_mut();
        beside.and_then(|b| b.news.try_recv().ok()).map(Next::News)
    }

    /// Whether it can change the screen: a tick moves ages, which are shown in seconds, and the
    /// statuses that come as often are drawn anyway.
    fn is_visible(&mut self, next: &Next) -> bool {
        let plays = self.session.as_ref().is_some_and(Session::plays);
        match next {
            Next::Input(Event::Tick) if !plays => {
                let second = unix_ms() / 1000;
                std::mem::replace(&mut self.second, second) != second
            }
            Next::Input(_) => true,
            Next::Session(_) => self.on_top == OnTop::Session,
            Next::News(_) => self.on_top == OnTop::Jobs,
        }
    }

    /// Hands it to whom it is for, and does what follows; whether anything did. An input is for what is on top, and a tick
    /// for both.
    async fn take(&mut self, next: Next, terminal: &mut Terminal) -> Result<bool, Quit> {
        let now = unix_ms();
        let is_tick = matches!(next, Next::Input(Event::Tick));
        let (mut actions, mut wishes) = (Vec::new(), Vec::new());
        match (next, &mut self.session, &mut self.beside) {
            (Next::Input(event), session, beside) => {
                let of_jobs = is_tick || self.on_top == OnTop::Jobs;
                if let Some(beside) = beside.as_mut().filter(|_| of_jobs) {
                    wishes = beside.jobs.on(now, &event);
                }
                let of_session = is_tick || self.on_top == OnTop::Session;
                if let Some(session) = session.as_mut().filter(|_| of_session) {
                    actions = session.take(event);
                }
            }
            (Next::Session(event), Some(session), _) => actions = session.take(event),
            (Next::News(news), _, Some(beside)) => wishes = beside.jobs.hear(now, news),
            (Next::Session(_), None, _) | (Next::News(_), _, None) => {}
        }
        let acted = !(actions.is_empty() && wishes.is_empty());
        self.execute(actions, terminal)?;
        for wish in wishes {
            if wish == Wish::Quit || (wish == Wish::Leave && !self.is_held()) {
                return Err(Quit::Asked);
            }
            let actions = self.grant(wish, terminal).await;
            self.execute(actions, terminal)?;
        }
        Ok(acted)
    }

    /// Whether the jobs are not left yet, for the sake of the console below; they say why.
    fn is_held(&mut self) -> bool {
        let session = self.session.as_mut();
        let why = session.and_then(|s| s.state_mut().warn_of_answers());
        if let (Some(why), Some(beside)) = (why, &mut self.beside) {
            beside.jobs.refuse(why.to_owned());
        }
        why.is_some()
    }

    /// Does what the console of a daemon wants done, or says why it is left.
    fn execute(&mut self, actions: Vec<Action>, terminal: &mut Terminal) -> Result<(), Quit> {
        for action in actions {
            if action == Action::ShowJobs {
                self.show_jobs();
                continue;
            }
            let session = self.session.as_mut();
            if let Some(quit) = session.and_then(|s| s.execute(action, terminal)) {
                return Err(quit);
            }
        }
        Ok(())
    }

    /// Does what the jobs wish.
    async fn grant(&mut self, wish: Wish, terminal: &mut Terminal) -> Vec<Action> {
        match wish {
            Wish::Ring(text) => terminal.ring(&text),
            Wish::Back if self.session.is_some() => self.on_top = OnTop::Session,
            Wish::Watch { context, link } => {
                if let Some(beside) = &mut self.beside {
                    beside.watch(context, link);
                }
            }
            Wish::Open(context) => return self.open_context(context).await,
            Wish::Back | Wish::Leave | Wish::Quit => {}
        }
        Vec::new()
    }

    /// The jobs of all contexts over the console.
    fn show_jobs(&mut self) {
        if self.beside.is_some() {
            self.on_top = OnTop::Jobs;
            return;
        }
        match (Contexts::named(""), &mut self.session) {
            (Ok(contexts), _) => self.show_jobs_of(contexts),
            (Err(e), Some(session)) => session.state_mut().notify(e.to_string(), false),
            (Err(_), None) => {}
        }
    }

    fn show_jobs_of(&mut self, contexts: Contexts) {
        let mut beside = Beside::new(contexts, settings(&self.args, String::new()));
        if let Some(session) = &mut self.session {
            session.state_mut().lies_beside();
            beside.jobs.lies_over(self.context.clone());
        }
        (self.beside, self.on_top) = (Some(beside), OnTop::Jobs);
    }

    /// The ordinary console of a context: the one that is there, or another in its place.
    async fn open_context(&mut self, context: String) -> Vec<Action> {
        let Some(beside) = &mut self.beside else {
            return Vec::new();
        };
        if beside.jobs.open() == Some(context.as_str()) {
            self.on_top = OnTop::Session;
            return Vec::new();
        }
        if let Some(why) = self.session.as_ref().and_then(Session::holds) {
            beside.jobs.refuse(why.to_owned());
            return Vec::new();
        }
        let named = beside.contexts.all.iter().find(|n| n.name() == context);
        let Some(named) = named.cloned() else {
            return Vec::new();
        };
        let found = tokio::time::timeout(OPENS_WITHIN, named.endpoint()).await;
        let why = match found {
            Ok(Ok(endpoint)) => return self.open_at(context, endpoint),
            Ok(Err(e)) => e.to_string(),
            Err(_) => format!("the token of {context} cannot be read: its disk does not answer"),
        };
        beside.jobs.refuse(why);
        Vec::new()
    }

    fn open_at(&mut self, context: String, endpoint: Endpoint) -> Vec<Action> {
        if let Some(beside) = &mut self.beside {
            beside.jobs.lies_over(Some(context.clone()));
        }
        let mut state = State::new(Settings {
            context: Some(context),
            fix: endpoint.fix(),
            ..settings(&self.args, endpoint.place())
        });
        state.lies_beside();
        if let Some(before) = &mut self.session {
            before.leave();
        }
        let session = Session::new(endpoint, state, self.args.drills.clone());
        self.open(session)
    }
}

impl Beside {
    fn new(contexts: Contexts, settings: Settings) -> Beside {
        let (to, news) = channel(1024);
        let all = contexts.all.iter();
        let all = all.map(|named| (named.name().to_owned(), named.place()));
        let file = contexts.file.display().to_string();
        Beside {
            jobs: Jobs::new(settings, file, all.collect()),
            contexts,
            to,
            news,
            watches: HashMap::new(),
        }
    }

    /// Watches one, in place of the connection before.
    fn watch(&mut self, context: String, link: u64) {
        let named = self.contexts.all.iter().find(|n| n.name() == context);
        let Some(named) = named.cloned() else { return };
        let next = tokio::spawn(jobs::follow(named, link, self.to.clone()));
        if let Some(before) = self.watches.insert(context, next) {
            before.abort();
        }
    }
}

/// The next of what comes there; nothing ever where there is nobody for whom it could come.
async fn received<T>(from: Option<&mut Receiver<T>>) -> T {
    let next = match from {
        Some(from) => from.recv().await,
        None => None,
    };
    match next {
        Some(next) => next,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Args, Command};
    use clap::Parser as _;

    #[test]
    fn a_console_is_of_the_context_that_was_named_and_a_recording_of_none() {
        let of = |line: &str| {
            let Args { global, command } = Args::parse_from(line.split(' '));
            let Command::Tui(args) = command else {
                unreachable!("it opens the console")
            };
            context_of(&global, &args)
        };
        let prod = Some("prod".to_owned());
        assert_eq!(of("robustctl --context prod tui"), prod);
        assert_eq!(
            of("robustctl --context prod tui --replay session.jsonl"),
            None
        );
        assert_eq!(of("robustctl tui"), None);
    }
}
