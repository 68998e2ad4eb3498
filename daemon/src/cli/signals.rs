//! SIGINT and SIGTERM: the first asks for an end in order, a second one for haste.
use super::args::ExitCode;
use super::failure::Failure;
use crate::driver::OperatorEvent;
use crate::ha::Lead;
use crate::tell::Tell;
use std::sync::Arc;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// What signals asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wish {
    /// The end: the last signal, as the exit code it leads to.
    pub code: Option<ExitCode>,
    /// Not to wait for roles to end by themselves.
    pub hurry: bool,
}

/// The wish, as it changes.
pub(super) type Asked = watch::Receiver<Wish>;

/// Comes with a second signal.
pub(super) async fn hurried(mut asked: Asked) {
    if asked.wait_for(|wish| wish.hurry).await.is_err() {
        // Nobody listens for signals any more.
        std::future::pending().await
    }
}

/// Starts listening; the driver is told to stop, and `Asked` says why.
pub(super) fn listen(driver: Tell<OperatorEvent>) -> Result<Asked, Failure> {
    let start = |source| Failure::Start {
        what: "signal handling",
        source,
    };
    let mut interrupt = signal(SignalKind::interrupt()).map_err(start)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(start)?;
    let (asked, answer) = watch::channel(Wish::default());
    tokio::spawn(async move {
        loop {
            let code = tokio::select! {
                Some(()) = interrupt.recv() => ExitCode::Interrupted,
                Some(()) = terminate.recv() => ExitCode::Terminated,
                else => return,
            };
            let hurry = asked.borrow().code.is_some();
            let how = if hurry { "at once" } else { "in order" };
            tracing::info!("asked to end: roles are ended {how}");
            let code = Some(code);
            asked.send_replace(Wish { code, hurry });
            if driver.tell(OperatorEvent::Stop).is_err() {
                return;
            }
        }
    });
    Ok(answer)
}

/// The first signal that wants the end of a program of which nothing runs yet, or whose job goes on without it.
pub(super) struct First {
    interrupt: Signal,
    terminate: Signal,
}

impl First {
    /// Waits for it: the exit code that it leads to.
    pub async fn recv(&mut self) -> ExitCode {
        tokio::select! {
            Some(()) = self.interrupt.recv() => ExitCode::Interrupted,
            Some(()) = self.terminate.recv() => ExitCode::Terminated,
            // Signals end with the runtime.
            else => std::future::pending().await,
        }
    }
}

/// Starts listening for it.
pub(super) fn first() -> Result<First, Failure> {
    let start = |source| Failure::Start {
        what: "signal handling",
        source,
    };
    Ok(First {
        interrupt: signal(SignalKind::interrupt()).map_err(start)?,
        terminate: signal(SignalKind::terminate()).map_err(start)?,
    })
}

/// A controller of several that is asked to end gives its place up: the job and its roles go on under another one.
pub(super) fn give_up(lead: Arc<Lead>) -> Result<Asked, Failure> {
    let mut ends = first()?;
    let (asked, answer) = watch::channel(Wish::default());
    tokio::spawn(async move {
        let code = ends.recv().await;
        tracing::info!(
            "asked to end: another controller goes on with the job; `robustctl stop` ends that"
        );
        lead.resign().await;
        drop(asked);
        std::process::exit(code as i32)
    });
    Ok(answer)
}
