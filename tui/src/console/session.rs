//! The ordinary console of one daemon: its state, its connection, and what it began. What comes for it has a channel of its
//! own, so that nothing that was asked of one daemon is told to the console of the next.
use super::drilling;
use super::drills;
use super::event::{Action, Event, Play, Quit};
use super::feed;
use super::inputs::unix_ms;
use super::logs;
use super::reading;
use super::record::Recorder;
use super::replay::{Due, Player};
use super::state::State;
use super::stored;
use super::terminal::Terminal;
use crate::ending::job_result;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::format::{clock, of_total, ratio};
use std::path::PathBuf;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinHandle;

/// The console of one daemon.
pub struct Session {
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
}

impl Session {
    /// One that was not begun.
    pub fn new(endpoint: Endpoint, state: State, folder: Option<PathBuf>) -> Session {
        let (to, events) = channel(1024);
        Session {
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
        }
    }

    /// Records what its daemon says.
    pub fn record(&mut self, recorder: Option<Recorder>) {
        self.recorder = recorder;
    }

    /// Plays a recording in its daemon's place.
    pub fn play_back(&mut self, player: Option<Player>) {
        self.player = player;
    }

    /// What it begins with.
    pub fn start(&mut self) -> Vec<Action> {
        let player = self.player.as_ref();
        let now = player.map_or_else(unix_ms, |p| p.playback().at);
        self.state.start(now)
    }

    /// Its state, to be drawn.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The same, to be told of a frame or of something that was not done.
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// What comes for it.
    pub fn events(&mut self) -> &mut Receiver<Event> {
        &mut self.events
    }

    /// Whether it plays a recording, which moves with every tick.
    pub fn plays(&self) -> bool {
        self.player.is_some()
    }

    /// Why another console cannot take its place: something would end with it.
    pub fn holds(&self) -> Option<&'static str> {
        let drill = self.drill.as_ref();
        let runs = drill.is_some_and(|drill| !drill.is_over());
        let reasons = [
            (
                self.state.awaits_answers(),
                "the console below waits for answers: Esc goes back to it",
            ),
            (runs, "the console below runs a drill: Esc goes back to it"),
            (
                self.recorder.is_some(),
                "the console below records: Esc goes back to it",
            ),
            (
                self.plays(),
                "the console below plays a recording: Esc goes back to it",
            ),
            (
                self.state.ends_with_job(),
                "the console below waits for its job's end (--exit-when-done): Esc goes back to it",
            ),
        ];
        reasons
            .into_iter()
            .find_map(|(is_so, why)| is_so.then_some(why))
    }

    /// Takes an event.
    pub fn take(&mut self, event: Event) -> Vec<Action> {
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

    /// Carries out an action; why the console is left, if it is.
    pub fn execute(&mut self, action: Action, terminal: &mut Terminal) -> Option<Quit> {
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
            // The runner's, below whose jobs this console lies.
            Action::ShowJobs => {}
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

    /// Nothing is heard of its daemon any more.
    pub fn leave(&mut self) {
        replace(&mut self.link, None);
        replace(&mut self.phases, None);
    }

    /// What was begun ends with the console.
    pub async fn end(&mut self) -> Result<(), CliError> {
        self.leave();
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
    pub fn last_words(&self, quit: Quit) -> Result<(), CliError> {
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
