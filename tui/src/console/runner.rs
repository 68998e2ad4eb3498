//! Owns the terminal, collects the events, carries out the actions.
use super::drilling;
use super::drills;
use super::event::{Action, Event, Play, Quit};
use super::feed;
use super::frame;
use super::inputs::{inputs, ticks, unix_ms};
use super::logs;
use super::picture;
use super::reading;
use super::record::{Recorder, Recording};
use super::replay::{Due, Player};
use super::state::{Settings, State};
use super::stored;
use super::terminal::Terminal;
use super::ui::look::Look;
use crate::cli::{Global, TuiArgs};
use crate::ending::job_result;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{clock, locale_is_utf8, of_total, ratio};
use crate::paint::no_color;
use std::io::IsTerminal as _;
use std::path::PathBuf;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// Events handled before the screen is drawn again; a long journal arrives in bursts.
const BURST: usize = 256;

/// Opens the console and stays until it is left. The terminal is restored in every case: panics by a
/// hook, signals as events, and all else by the end of [`Terminal`].
pub async fn run(global: &Global, args: TuiArgs) -> Result<(), CliError> {
    let endpoint = Endpoint::resolve(
        global.state_dir.as_deref(),
        global.connect.as_deref(),
        global.token_file.as_deref(),
    )?;
    if global.json {
        return Err(CliError::Usage(
            "the console has no JSON; use `robustctl watch --json`".into(),
        ));
    }
    if let Some(to) = &args.svg {
        return picture::write(&args, &args.picture, to);
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err(CliError::Usage(
            "the console needs a terminal; use `robustctl watch` without one".to_owned(),
        ));
    }
    let recording = args.replay.as_deref().map(Recording::open);
    let recording = recording.transpose().map_err(CliError::Usage)?;
    if !args.wait_for_daemon && recording.is_none() {
        endpoint.connect().await?;
    }
    let look = Look::new(args.theme, !no_color(), args.ascii || !locale_is_utf8());
    let place = recording
        .as_ref()
        .map_or(endpoint.place(), |r| r.place.clone());
    let state = State::new(Settings {
        look,
        place,
        fix: endpoint.fix(),
        zone: *chrono::Local::now().offset(),
        read_only: args.read_only,
        records: args.record.is_some(),
        exit_when_done: args.exit_when_done,
        // What was an alarm then is none now.
        bell: !args.no_bell && args.replay.is_none(),
    });
    let record = args.record.as_deref();
    let recorder = record.map(|path| Recorder::create(path, unix_ms(), endpoint.place()));
    let recorder = recorder.transpose().map_err(CliError::Failed)?;
    let player = recording.map(|r| Player::new(r, unix_ms()));
    let failed = |e: std::io::Error| CliError::Failed(format!("cannot use the terminal: {e}"));
    let mut terminal = Terminal::take(!args.no_mouse).map_err(failed)?;
    let mut runner = Runner::new(endpoint, state, args.drills).map_err(failed)?;
    runner.recorder = recorder;
    runner.player = player;
    let quit = runner.run(&mut terminal).await;
    drop(terminal);
    runner.end().await?;
    runner.last_words(quit.map_err(failed)?)
}

struct Runner {
    endpoint: Endpoint,
    state: State,
    to: Sender<Event>,
    events: Receiver<Event>,
    link: Option<JoinHandle<()>>,
    phases: Option<JoinHandle<()>>,
    recorder: Option<Recorder>,
    player: Option<Player>,
    drill: Option<drilling::Running>,
    drills: PathBuf,
    /// Second of the age that the last frame showed.
    second: u64,
}

impl Runner {
    fn new(endpoint: Endpoint, state: State, folder: Option<PathBuf>) -> std::io::Result<Runner> {
        let (to, events) = channel(1024);
        tokio::spawn(inputs(to.clone()));
        tokio::spawn(ticks(to.clone()));
        for kind in [
            SignalKind::interrupt(),
            SignalKind::terminate(),
            SignalKind::hangup(),
            SignalKind::quit(),
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
            phases: None,
            recorder: None,
            player: None,
            drill: None,
            drills: folder.unwrap_or_else(crate::drills::default_folder),
            second: 0,
        })
    }

    async fn run(&mut self, terminal: &mut Terminal) -> std::io::Result<Quit> {
        let now = self
            .player
            .as_ref()
            .map_or_else(unix_ms, |p| p.playback().at);
        let mut actions = self.state.start(now);
        let mut changed = true;
        loop {
            for action in actions.drain(..) {
                if let Some(quit) = self.execute(action, terminal) {
                    return Ok(quit);
                }
            }
            if changed {
                let mut drawn = None;
                terminal
                    .screen
                    .draw(|frame| drawn = Some(frame::draw(&self.state, frame)))?;
                self.state.set_drawn(drawn.unwrap_or_default());
            }
            let Some(event) = self.events.recv().await else {
                return Ok(Quit::Asked);
            };
            changed = self.is_visible(&event);
            actions.extend(self.take(event));
            for _ in 0..BURST {
                let Ok(event) = self.events.try_recv() else {
                    break;
                };
                changed |= self.is_visible(&event);
                actions.extend(self.take(event));
            }
            changed |= !actions.is_empty();
        }
    }

    /// Whether it can change the screen: a tick moves ages, which are shown in seconds, and the
    /// statuses that come as often are drawn anyway.
    fn is_visible(&mut self, event: &Event) -> bool {
        if !matches!(event, Event::Tick) || self.player.is_some() {
            return true;
        }
        let second = unix_ms() / 1000;
        std::mem::replace(&mut self.second, second) != second
    }

    fn take(&mut self, event: Event) -> Vec<Action> {
        if let Some(recorder) = &mut self.recorder
            && let Err(e) = recorder.take(unix_ms(), &event)
        {
            self.recorder = None;
            let text = format!("the recording cannot be written any more: {e}");
            self.state.notify(text, false);
        }
        let Some(player) = &mut self.player else {
            return self.state.handle(unix_ms(), event);
        };
        if !matches!(event, Event::Tick) {
            let now = self.state.common().now;
            return self.state.handle(now, event);
        }
        let due = player.tick(unix_ms());
        self.play(due)
    }

    /// Hands a recording's events to the state, at their own times.
    fn play(&mut self, due: Due) -> Vec<Action> {
        let Some(player) = &self.player else {
            return Vec::new();
        };
        let playback = player.playback();
        if due.anew {
            self.state.forget();
        }
        let mut actions = Vec::new();
        for (at, said) in due.said {
            let link = self.state.link_no();
            actions.extend(self.state.handle(at, said.event(link)));
        }
        actions.extend(self.state.handle(playback.at, Event::Played(playback)));
        actions.extend(self.state.handle(playback.at, Event::Tick));
        actions
    }

    fn execute(&mut self, action: Action, terminal: &mut Terminal) -> Option<Quit> {
        match action {
            Action::Quit(quit) => return Some(quit),
            // What was said over the next connection is in the recording.
            Action::Connect { .. } if self.player.is_some() => {}
            Action::Connect { link, since_seq } => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                let next = tokio::spawn(feed::follow(endpoint, link, since_seq, to));
                replace(&mut self.link, Some(next));
            }
            Action::FollowPhases { link, after_ms } => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                let next = tokio::spawn(feed::phases(endpoint, link, after_ms, to));
                replace(&mut self.phases, Some(next));
            }
            Action::LeavePhases => replace(&mut self.phases, None),
            Action::Do(act) => {
                tokio::spawn(feed::act(self.endpoint.clone(), act, self.to.clone()));
            }
            Action::Foresee(act) => {
                tokio::spawn(feed::foresee(self.endpoint.clone(), act, self.to.clone()));
            }
            Action::ReadLog { who, on_leader } => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                tokio::spawn(async move {
                    let lines = logs::read(endpoint, who.clone(), on_leader).await;
                    let _ = to.send(Event::LogRead { who, lines }).await;
                });
            }
            Action::LookInside(asked) => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                tokio::spawn(feed::look_inside(endpoint, asked, to));
            }
            Action::ReadSteps { after, started_ms } => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                tokio::spawn(feed::steps(endpoint, started_ms, after, to));
            }
            Action::ReadStore => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                tokio::spawn(async move {
                    let stored = stored::look(endpoint, unix_ms()).await;
                    let _ = to.send(Event::StoreRead(Box::new(stored))).await;
                });
            }
            Action::ReadTrajectory { id, known } => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                tokio::spawn(async move {
                    let read = reading::trajectory(endpoint, id, known).await;
                    let _ = to.send(Event::TrajectoryRead(Box::new(read))).await;
                });
            }
            Action::ReadGroup { batch, group } => {
                let (endpoint, to) = (self.endpoint.clone(), self.to.clone());
                tokio::spawn(async move {
                    let read = reading::group(endpoint, batch, group).await;
                    let _ = to.send(Event::GroupRead(Box::new(read))).await;
                });
            }
            Action::ReadDrills => {
                let (folder, to) = (self.drills.clone(), self.to.clone());
                tokio::task::spawn_blocking(move || {
                    let _ = to.blocking_send(Event::DrillsRead(drills::catalogue(&folder)));
                });
            }
            Action::RunDrill(file) => self.run_drill(&file),
            Action::EndDrill => {
                if let Some(drill) = &self.drill {
                    drill.end();
                }
            }
            Action::Play(play) => self.steer(play),
            Action::Ring(text) => terminal.ring(&text),
            Action::Copy(text) => terminal.copy(&text),
        }
        None
    }

    fn run_drill(&mut self, file: &std::path::Path) {
        match drilling::start(file, self.to.clone()) {
            Ok(running) => self.drill = Some(running),
            Err(e) => {
                let end = drills::DrillEnd {
                    code: None,
                    result: None,
                };
                let text = format!("the drill cannot be started: {e}");
                let _ = self.state.handle(unix_ms(), Event::DrillEnded(end));
                self.state.notify(text, false);
            }
        }
    }

    fn steer(&mut self, play: Play) {
        if let Some(player) = &mut self.player {
            let due = player.steer(play, unix_ms());
            // A recording asks for nothing but connections, which it holds itself.
            let _ = self.play(due);
        }
    }

    /// What was begun ends with the console.
    async fn end(&mut self) -> Result<(), CliError> {
        if let Some(drill) = self.drill.take() {
            drill.end_and_wait().await;
        }
        match &mut self.recorder {
            Some(recorder) => recorder
                .flush()
                .map_err(|e| CliError::Failed(format!("the recording is not complete: {e}"))),
            None => Ok(()),
        }
    }

    /// What stays on the terminal, and the exit code.
    fn last_words(&self, quit: Quit) -> Result<(), CliError> {
        if let Quit::DaemonGone(reason) = quit {
            let (place, fix) = (self.endpoint.place(), self.endpoint.fix());
            return Err(CliError::NoDaemon { place, reason, fix });
        }
        let Some(s) = self.state.common().job.status() else {
            return Ok(());
        };
        println!(
            "{}: {} at step {}{} after {}; reward {}, ETTR {}, goodput {}, incidents {}",
            s.job,
            s.state,
            s.step,
            of_total(s.steps_total),
            clock(self.state.common().job.elapsed_ms() as f64 / 1000.0),
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

/// Ends what ran there; the next takes its place.
fn replace(place: &mut Option<JoinHandle<()>>, next: Option<JoinHandle<()>>) {
    if let Some(old) = std::mem::replace(place, next) {
        old.abort();
    }
}
