//! The end of processes that this daemon did not start.
use super::{LaunchEvent, Launcher, Running};
use robust_shared::ids::Incarnation;
use std::time::Duration;
use tokio::sync::mpsc::unbounded_channel;
use tokio::time::{Instant, timeout_at};

/// How long the kernel may take to end a killed process.
const FORCED: Duration = Duration::from_secs(5);

/// Kills processes that no life of this daemon started; those that do not end are returned.
pub async fn kill_and_wait(processes: Vec<(Incarnation, Running)>) -> std::io::Result<Vec<u32>> {
    let (events, mut exits) = unbounded_channel();
    let launcher = Launcher::new(events)?;
    let mut left = processes;
    left.retain(|(incarnation, running)| {
        launcher.adopt(*incarnation, *running, None, None) && launcher.kill(*incarnation)
    });
    let deadline = Instant::now() + FORCED;
    while !left.is_empty() {
        match timeout_at(deadline, exits.recv()).await {
            Ok(Some(LaunchEvent::Exited { incarnation, .. })) => {
                left.retain(|(known, _)| *known != incarnation);
            }
            Ok(None) | Err(_) => break,
        }
    }
    Ok(left.iter().map(|(_, running)| running.pid).collect())
}
