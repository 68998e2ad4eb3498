//! Owns the terminal, collects the events, carries out the actions.
use super::event::{Action, Event, Quit};
use super::feed;
use super::state::State;
use super::ui;
use super::ui::look::Look;
use crate::cli::TuiArgs;
use crate::commands::job_result;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{clock, locale_is_utf8, ratio};
use crate::paint::no_color;
use crossterm::event::{Event as Input, EventStream, KeyEventKind};
use ratatui::DefaultTerminal;
use std::io::IsTerminal as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;
use tokio_stream::StreamExt as _;

const TICK: Duration = Duration::from_millis(250);
/// Events handled before the screen is drawn again; a long journal arrives in bursts.
const BURST: usize = 256;

/// Opens the console and stays until it is left. The terminal is restored in every case: ratatui's
/// panic hook, signals as events, and the last lines here.
pub async fn run(endpoint: Endpoint, args: TuiArgs) -> Result<(), CliError> {
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(CliError::Usage(
            "the console needs a terminal; use `robustctl watch` without one".to_owned(),
        ));
    }
    if !args.wait_for_daemon {
        endpoint.connect().await?;
    }
    let look = Look::new(args.theme, !no_color(), args.ascii || !locale_is_utf8());
    let mut state = State::new(look, endpoint.place(), endpoint.fix(), args.exit_when_done);
    state.zone = *chrono::Local::now().offset();
    let failed = |e: std::io::Error| CliError::Failed(format!("cannot use the terminal: {e}"));
    let terminal = ratatui::try_init().map_err(failed)?;
    let mut runner = Runner::new(endpoint, state).map_err(failed)?;
    let quit = runner.run(terminal).await;
    ratatui::restore();
    runner.last_words(quit.map_err(failed)?)
}

struct Runner {
    endpoint: Endpoint,
    state: State,
    to: Sender<Event>,
    events: Receiver<Event>,
    link: Option<JoinHandle<()>>,
}

impl Runner {
    fn new(endpoint: Endpoint, state: State) -> std::io::Result<Runner> {
        let (to, events) = channel(1024);
        tokio::spawn(keys(to.clone()));
        tokio::spawn(ticks(to.clone()));
        for kind in [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
        ] {
            let (mut signals, to) = (signal(kind)?, to.clone());
            tokio::spawn(async move {
                while signals.recv().await.is_some() {
                    let _ = to.send(Event::Terminate).await;
                }
            });
        }
        Ok(Runner {
            endpoint,
            state,
            to,
            events,
            link: None,
        })
    }

    async fn run(&mut self, mut terminal: DefaultTerminal) -> std::io::Result<Quit> {
        let mut actions = self.state.start(unix_ms());
        loop {
            for action in actions.drain(..) {
                if let Some(quit) = self.execute(action) {
                    return Ok(quit);
                }
            }
            terminal.draw(|frame| ui::draw(&self.state, frame))?;
            let Some(event) = self.events.recv().await else {
                return Ok(Quit::Asked);
            };
            actions.extend(self.state.handle(unix_ms(), event));
            for _ in 0..BURST {
                let Ok(event) = self.events.try_recv() else {
                    break;
                };
                actions.extend(self.state.handle(unix_ms(), event));
            }
        }
    }

    fn execute(&mut self, action: Action) -> Option<Quit> {
        match action {
            Action::Quit(quit) => return Some(quit),
            Action::Connect { link, since_seq } => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                let next = tokio::spawn(feed::follow(endpoint, link, since_seq, to));
                if let Some(old) = self.link.replace(next) {
                    old.abort();
                }
            }
            action @ (Action::Inject(_) | Action::Stop) => {
                tokio::spawn(feed::act(self.endpoint.clone(), action, self.to.clone()));
            }
        }
        None
    }

    /// What stays on the terminal, and the exit code.
    fn last_words(&self, quit: Quit) -> Result<(), CliError> {
        if let Quit::DaemonGone(reason) = quit {
            let (place, fix) = (self.endpoint.place(), self.endpoint.fix());
            return Err(CliError::NoDaemon { place, reason, fix });
        }
        let Some(s) = &self.state.status else {
            return Ok(());
        };
        println!(
            "{}: {} at step {}/{} after {}; reward {}, ETTR {}, goodput {}, incidents {}",
            s.job,
            s.state,
            s.step,
            s.steps_total,
            clock(self.state.elapsed_ms() as f64 / 1000.0),
            ratio(s.reward),
            ratio(s.ettr),
            ratio(s.goodput),
            s.incidents.len(),
        );
        match quit {
            Quit::JobOver => job_result(&s.state, &s.reason),
            Quit::Asked | Quit::DaemonGone(_) => Ok(()),
        }
    }
}

async fn keys(to: Sender<Event>) {
    let mut inputs = EventStream::new();
    while let Some(Ok(input)) = inputs.next().await {
        let event = match input {
            Input::Key(key) if key.kind != KeyEventKind::Release => Event::Key(key),
            Input::Resize(..) => Event::Resize,
            _ => continue,
        };
        if to.send(event).await.is_err() {
            return;
        }
    }
    // Nobody can type any more: the terminal is gone.
    let _ = to.send(Event::Terminate).await;
}

async fn ticks(to: Sender<Event>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        if to.send(Event::Tick).await.is_err() {
            return;
        }
    }
}

fn unix_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
