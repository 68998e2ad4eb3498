//! SIGINT and SIGTERM: the first asks for an end in order.
use super::args::ExitCode;
use super::failure::Failure;
use crate::driver::{Happening, Happenings};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The signal that asked for the end, as the exit code it leads to.
pub(super) type Asked = watch::Receiver<Option<ExitCode>>;

/// Starts listening; the driver is told to stop, and `Asked` says why.
pub(super) fn listen(happenings: Happenings) -> Result<Asked, Failure> {
    let start = |source| Failure::Start {
        what: "signal handling",
        source,
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(start)?;
    let (asked, answer) = watch::channel(None);
    tokio::spawn(async move {
        loop {
            let code = tokio::select! {
                Some(()) = interrupt.recv() => ExitCode::Interrupted,
                Some(()) = terminate.recv() => ExitCode::Terminated,
                else => return,
            };
            tracing::info!("asked to end: roles are ended in order");
            asked.send_replace(Some(code));
            if happenings.send(Happening::Stop).is_err() {
                return;
            }
        }
    });
    Ok(answer)
}
