//! How a role process ends.

use std::time::Duration;

/// Exit codes of every role program.
pub mod code {
    /// Told to end.
    pub const ENDED: u8 = 0;
    /// An exception that nobody handled; the last line on stderr says which.
    pub const EXCEPTION: u8 = 1;
    /// Wrong usage.
    pub const USAGE: u8 = 2;
    /// The daemon knows a newer incarnation.
    pub const FENCED: u8 = 3;
    /// The role could not start; the last line on stderr says why.
    pub const START: u8 = 4;
    /// No daemon for longer than the job's `daemon_grace_s`.
    pub const NO_DAEMON: u8 = 5;
}

/// Ends the process without running exit handlers: those of libtorch and UCX free what their
/// threads may still be using.
pub fn now(code: u8) -> ! {
    // SAFETY: `_exit` takes any number, does not return and touches none of this process's memory.
    #[allow(unsafe_code)]
    unsafe {
        nix::libc::_exit(i32::from(code))
    }
}

/// So long the thread that talks has to say that a fault strikes, before it does.
const LAST_WORDS: Duration = Duration::from_millis(20);

/// Ends the process because a fault on request says so. A thread that computes gets no further than
/// this; the one that talks goes on until the end, or nothing would be said.
pub(crate) fn struck(code: u8) {
    let end = move || {
        std::thread::sleep(LAST_WORDS);
        now(code)
    };
    if tokio::runtime::Handle::try_current().is_err() {
        end();
    }
    if std::thread::Builder::new().spawn(end).is_err() {
        now(code);
    }
}

/// Ends the process in a while, in case a compute thread is stuck and the role cannot.
pub(crate) fn at_latest_in(grace: Duration, code: u8) {
    let spawned = std::thread::Builder::new()
        .name("exit".into())
        .spawn(move || {
            std::thread::sleep(grace);
            tracing::warn!("a thread is stuck: ending without it");
            now(code)
        });
    if spawned.is_err() {
        now(code);
    }
}
