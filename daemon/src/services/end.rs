//! The end of services: one after the other, those that need others before them, first gently and then
//! by force.
use super::edge::Services;
use super::shim;
use crate::launcher::{Running, SERVICE_VARIABLE, Signal, kill_and_wait, owned_by};
use crate::state::StateDir;
use robust_shared::ids::Incarnation;
use robust_tree::{ENGINE_VARIABLE, leftovers};
use std::io;
use std::path::Path;
use std::time::Duration;
use tokio::time::Instant;

/// What ending takes besides the program's own grace: its shim kills what is left of it.
const ENDING: Duration = Duration::from_secs(15);
/// How long the kernel may take to end a killed process.
const FORCED: Duration = Duration::from_secs(5);
/// Between two looks at whether processes are gone.
const LOOK: Duration = Duration::from_millis(20);

impl Services {
    /// Ends every service in the reverse of the order in which they start; with `hurry` those that are
    /// left are killed. The shims that do not even end then are returned.
    pub async fn end(&mut self, hurry: impl Future<Output = ()>) -> Vec<u32> {
        // Those that are being started are there then.
        self.book.settled().await;
        let mut names: Vec<String> = Vec::new();
        for view in self.machine.view() {
            if names.last() != Some(&view.id.name) {
                names.push(view.id.name);
            }
        }
        tokio::pin!(hurry);
        let mut hurried = false;
        for name in names.iter().rev() {
            let lives = self.lives_of(name);
            let grace = self.grace.get(name).copied().unwrap_or_default() + ENDING;
            if !hurried {
                for life in &lives {
                    self.launcher.ask(*life, Signal::TERM);
                }
                tokio::select! {
                    () = self.wait(&lives, grace) => {}
                    () = &mut hurry => hurried = true,
                }
            }
            for life in &lives {
                self.launcher.kill(*life);
            }
            self.wait(&lives, FORCED).await;
        }
        self.forget().await
    }

    fn lives_of(&self, name: &str) -> Vec<Incarnation> {
        let of = self.book.page.services.iter();
        let of = of.filter(|e| e.id.name == name && e.life != 0);
        of.map(|e| Incarnation(e.life)).collect()
    }

    async fn wait(&self, lives: &[Incarnation], patience: Duration) {
        let deadline = Instant::now() + patience;
        let there = |life: &Incarnation| self.launcher.process(*life).is_some();
        while lives.iter().any(there) && Instant::now() < deadline {
            tokio::time::sleep(LOOK).await;
        }
    }

    /// Nothing of them is left, or it is said which are.
    async fn forget(&mut self) -> Vec<u32> {
        let running = self.launcher.running();
        let mut homes = Vec::new();
        for entry in &mut self.book.page.services {
            if running.iter().all(|(life, _)| life.0 != entry.life) {
                (entry.life, entry.pid, entry.up) = (0, 0, false);
            }
            homes.push(shim::home(&self.plan, &entry.id));
        }
        let clearing = move || homes.iter().for_each(|home| clear(home));
        // A panic in it was said.
        let _ = tokio::task::spawn_blocking(clearing).await;
        let launcher = self.launcher.clone();
        let _ = tokio::task::spawn_blocking(move || launcher.forget_groups()).await;
        self.book.settled().await;
        running
            .into_iter()
            .map(|(_, running)| running.pid)
            .collect()
    }
}

/// Kills the processes of a service that left its shim's process group.
pub(super) fn clear(home: &Path) {
    let until = std::time::Instant::now() + FORCED;
    loop {
        let left = leftovers(&[(ENGINE_VARIABLE, home.as_os_str())]);
        if left.is_empty() || std::time::Instant::now() > until {
            return;
        }
        for process in left {
            tracing::warn!(
                pid = process.pid,
                name = process.name,
                "killing what a service left"
            );
            if let Err(error) = process.kill() {
                tracing::warn!(pid = process.pid, %error, "killing it");
            }
        }
        std::thread::sleep(LOOK);
    }
}

/// Kills shims that no record knows.
pub(super) async fn kill(strangers: Vec<(Incarnation, Running)>) -> io::Result<()> {
    if strangers.is_empty() {
        return Ok(());
    }
    tracing::warn!("killing {} services that nobody remembers", strangers.len());
    let left = kill_and_wait(strangers).await?;
    if !left.is_empty() {
        tracing::error!("services {left:?} do not end though killed");
    }
    Ok(())
}

/// Kills the services of a job that is over, or is being discarded.
pub async fn end_strangers(state: &StateDir) -> io::Result<()> {
    let owner = state.root().as_os_str();
    kill(owned_by((SERVICE_VARIABLE, owner), shim::LIFE_VARIABLE)).await
}
