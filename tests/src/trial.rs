//! A job under several controllers that is observed from its beginning to its end, and struck meanwhile.
use crate::{Controllers, Disagreement, JobFile, Observer, Shown};
use robustd::store::Store;
use serde_json::Value;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longer than any test lasts.
const STEPS: i64 = 10_000_000;
/// Trajectories that a step consumes.
const PER_STEP: usize = 16;
/// The longest that anything is waited for.
const PATIENCE: Duration = Duration::from_secs(90);

const SMALL: &[(&str, i64)] = &[("train", 1), ("rollout", 1), ("agent", 1)];
const MORE: &[(&str, i64)] = &[("train", 1), ("rollout", 2), ("agent", 1)];

/// See the module's doc.
pub struct Trial {
    /// What is struck.
    pub all: Controllers,
    observer: Observer,
}

/// What is left of a trial.
pub struct Left {
    /// What was answered and is not there.
    pub disagreement: Disagreement,
    /// When each step was committed, in microseconds since 1970.
    pub commits_us: Vec<u64>,
    /// How many statuses, trajectories and requests were compared.
    pub compared: (usize, usize, usize),
}

impl Trial {
    /// Three controllers on this machine, and two nodes; none, which is said, where there is no etcd.
    pub fn start() -> Option<Self> {
        let job = JobFile::small().set("job", "steps", STEPS);
        let mut all = Controllers::start(&job.nodes(&[("a", SMALL), ("b", MORE)]), 3)?;
        ["a", "b"].iter().for_each(|node| all.join(node));
        Some(Self::of(all))
    }

    /// Three machines, each with a controller, a member of etcd, and a node that has room for what runs on another one:
    /// one trainer, so that none is restarted for another's sake. None, which is said, where that cannot be had.
    pub fn on_machines() -> Option<Self> {
        let job = JobFile::small()
            .set("job", "steps", STEPS)
            .set("trainer", "ranks", 1)
            .set("rollout", "replicas", 2)
            .nodes(&[("a", SMALL), ("b", SMALL), ("c", SMALL)]);
        // Longer than any machine is cut off.
        let windows = [
            "node_lost",
            "rollout_silent",
            "trainer_idle",
            "agent_silent",
        ];
        let patient = windows.into_iter().fold(job, |job, rule| {
            job.set(&format!("detect.{rule}"), "window_s", 40.0)
        });
        let mut all = Controllers::on_machines(&patient, 3)?;
        all.join_all();
        Some(Self::of(all))
    }

    fn of(mut all: Controllers) -> Self {
        all.until("the job to be at work", is_at_work);
        let observer = all.observe();
        Self { all, observer }
    }

    /// Waits until the job is whole under a leader, and all other controllers that run follow it; the leader, the number
    /// of its term, and the step.
    pub fn leader(&mut self) -> (usize, u64, u64) {
        let (leader, status) = self.all.until("the job to be whole", is_at_work);
        let name = format!("c{leader} leads it");
        for which in (0..self.all.count()).filter(|which| *which != leader) {
            let runs = self.all.runs(which);
            let follows = |all: &Controllers| !runs || all.said(which, &["status"]).contains(&name);
            self.all.wait_for("all others to follow", follows);
        }
        let asker = self.all.asker(leader);
        asker.look_at_turns(self.observer.history(), step(&status));
        (leader, asker.epoch(), step(&status))
    }

    /// Waits until a leader of a later term answers; its first answer since then.
    pub fn another_leads(&self, epoch: u64, since_us: u64) -> Shown {
        let history = self.observer.history();
        self.wait("another controller to lead", || {
            history.first_of_later(epoch, since_us)
        })
    }

    /// Waits until the job is so many steps further than this one.
    pub fn goes_on_from(&self, step: u64, by: u64) {
        let history = self.observer.history();
        self.wait("the job to go on", || {
            history.last().filter(|shown| shown.step >= step + by)
        });
    }

    fn wait<T>(&self, what: &str, mut found: impl FnMut() -> Option<T>) -> T {
        let begun = Instant::now();
        loop {
            if let Some(found) = found() {
                return found;
            }
            let logs = || self.all.logs();
            assert!(
                begun.elapsed() < PATIENCE,
                "waited {PATIENCE:?} for {what}\n{}",
                logs()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Stops the job, and compares what is left of it with all that was answered.
    pub fn end(mut self) -> (Left, Controllers) {
        let (leader, _, _) = self.leader();
        let history = Arc::clone(self.observer.history());
        drop(self.observer);
        self.all.stop(leader);
        let (store, _) = Store::open(&self.all.state_dir(leader)).expect("its daemon has ended");
        let steps = store.steps().expect("its steps");
        let left = Left {
            disagreement: history.check(&store, PER_STEP),
            commits_us: steps.iter().map(|step| step.at.0).collect(),
            compared: history.extent(),
        };
        (left, self.all)
    }

    /// The same, where nothing may disagree.
    pub fn agrees(self) {
        let (left, all) = self.end();
        let found = left.disagreement;
        assert_eq!(found, Disagreement::default(), "{}", all.logs());
        let (statuses, trajectories, requests) = left.compared;
        assert!(statuses > 0 && trajectories > 0 && requests > 0);
    }
}

fn step(status: &Value) -> u64 {
    status["step"].as_u64().unwrap_or(0)
}

/// Every role has a slot and serves, and every node is here.
fn is_at_work(status: &Value) -> bool {
    let all = |key: &str| status[key].as_array().cloned().unwrap_or_default();
    let (roles, nodes) = (all("roles"), all("nodes"));
    step(status) > 0
        && roles.iter().all(|role| role["state"] == "running")
        && nodes.iter().all(|node| node["state"] == "here")
}
