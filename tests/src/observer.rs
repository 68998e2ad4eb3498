//! Asks the controllers of a job all the time, and writes down what they answer.
use crate::history::{Answered, History, now_us};
use crate::programs::bin;
use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// A controller that is frozen answers nothing, and others are to be asked meanwhile.
const ANSWER_WITHIN_S: &str = "1";
/// Between two questions to one that follows.
const FOLLOWER: Duration = Duration::from_millis(30);
/// Between two questions to one that leads.
const LEADER: Duration = Duration::from_millis(100);
/// Between two requests that change something.
const REQUESTS: Duration = Duration::from_millis(500);
/// Every so many statuses of a leader its trajectories are looked at.
const TURNS_EVERY: usize = 5;

/// How a controller is asked.
#[derive(Clone, Debug)]
pub struct Asked {
    which: usize,
    state_dir: PathBuf,
    log: PathBuf,
}

impl Asked {
    /// A controller with this state directory and this log.
    pub(crate) fn new(which: usize, state_dir: PathBuf, log: PathBuf) -> Self {
        Self {
            which,
            state_dir,
            log,
        }
    }

    /// What `robustctl` prints, if the controller leads and does what it is asked.
    pub fn text(&self, args: &[&str]) -> Option<String> {
        let out = Command::new("timeout")
            .args([ANSWER_WITHIN_S.as_ref(), bin("robustctl").as_os_str()])
            .arg("--state-dir")
            .arg(&self.state_dir)
            .args(args)
            .arg("--json")
            .stdin(Stdio::null())
            .output()
            .expect("robustctl runs");
        let done = out.status.success();
        done.then(|| String::from_utf8_lossy(&out.stdout).into_owned())
    }

    /// The number of the last term in which it led; 0: it never did.
    pub fn epoch(&self) -> u64 {
        const SAID: &str = " leads, in epoch ";
        let text = std::fs::read(&self.log).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let last = text.rfind(SAID).map(|at| &text[at + SAID.len()..]);
        let digits = last.map(|rest| rest.split(|c: char| !c.is_ascii_digit()).next());
        digits.flatten().and_then(|n| n.parse().ok()).unwrap_or(0)
    }

    /// Asks, and says when.
    fn timed(&self, args: &[&str]) -> (Answered, Option<String>) {
        let asked_us = now_us();
        let text = self.text(args);
        let answer = Answered {
            by: self.which,
            answered_us: now_us(),
            epoch: self.epoch(),
            asked_us,
        };
        (answer, text)
    }

    /// Asks for the status and notes it.
    pub fn look(&self, history: &History) -> Option<Value> {
        let (answer, text) = self.timed(&["status"]);
        let status: Value = serde_json::from_str(&text?).ok()?;
        history.note_status(answer, &status);
        Some(status)
    }

    /// Asks for the trajectories of batches that are not old, and notes them.
    pub fn look_at_turns(&self, history: &History, step: u64) {
        let from = step.saturating_sub(3).to_string();
        if let Some(text) = self.text(&["traj", "ls", "--from", &from]) {
            history.note_turns(&text);
        }
    }

    fn request(&self, history: &History, value: bool) {
        let verb = if value { "quarantine" } else { "readmit" };
        let (answer, text) = self.timed(&[verb, "rollout", "0"]);
        history.note_request(answer, value, text.is_some());
    }
}

/// Threads that ask, until this is dropped.
pub struct Observer {
    history: Arc<History>,
    ended: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Observer {
    /// Asks each of these controllers, and requests something of whichever leads.
    pub fn start(all: Vec<Asked>) -> Self {
        let mut observer = Self {
            history: Arc::default(),
            ended: Arc::default(),
            threads: Vec::new(),
        };
        for one in all.clone() {
            observer.run(move |history, ended| watch(&one, history, ended));
        }
        observer.run(move |history, ended| change(&all, history, ended));
        observer
    }

    fn run(&mut self, work: impl FnOnce(&History, &AtomicBool) + Send + 'static) {
        let (history, ended) = (Arc::clone(&self.history), Arc::clone(&self.ended));
        let run = move || work(&history, &ended);
        self.threads.push(std::thread::spawn(run));
    }

    /// What was answered.
    pub fn history(&self) -> &Arc<History> {
        &self.history
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let failed = thread.join().is_err();
            assert!(!failed || std::thread::panicking(), "an observer failed");
        }
    }
}

fn watch(one: &Asked, history: &History, ended: &AtomicBool) {
    let mut looks = 0_usize;
    while !ended.load(Ordering::Acquire) {
        let Some(status) = one.look(history) else {
            std::thread::sleep(FOLLOWER);
            continue;
        };
        looks += 1;
        if looks.is_multiple_of(TURNS_EVERY) {
            one.look_at_turns(history, status["step"].as_u64().unwrap_or(0));
        }
        std::thread::sleep(LEADER);
    }
}

/// Whichever led last is asked, also when it was killed since, or leads no more without knowing it.
fn change(all: &[Asked], history: &History, ended: &AtomicBool) {
    let mut value = true;
    while !ended.load(Ordering::Acquire) {
        if let Some(last) = history.last() {
            all[last.answer.by].request(history, value);
            value = !value;
        }
        std::thread::sleep(REQUESTS);
    }
}
