//! What robustd and a spare say to each other: a process that has done all of a start that needs no identity, and waits
//! until it is made a life.
//!
//! ```text
//!  robustd                         spare
//!     │ socket pair, its standard input │   starts: program, job file, model; no token, no rank
//!     │ ◄──────────────────────── READY │   and waits, without any right
//!     │ Handed, and the life's log ───► │   it is that life from here on
//!     │ ◄──────────────────────── TAKEN │   attaches as any other
//! ```
//! One message is one packet (`SOCK_SEQPACKET`). Where robustd ends, so does the socket, and the spare with it.
//!
//! Where the life is a program of the user's the spare is a `robust-shim`, and says the same again to the program that it
//! hosts, which waits in `robustrl.attach()` (`python/src/robustrl/_spare.py`): as soon as the place of its rank in the
//! gang is known. That program goes on with one more word, GO.
use serde::{Deserialize, Serialize};

/// Says a spare that has done all that it can.
pub const READY: &[u8] = b"ready";
/// Says one that is a life now.
pub const TAKEN: &[u8] = b"taken";
/// Says a `robust-shim` to a program of the user's that said so in time. One that was too late hears the end of its
/// socket: another one was started, and it is to touch nothing of the rank's.
pub const GO: &[u8] = b"go";
/// The largest message, in bytes: a command line and an environment with certificates.
pub const MOST_BYTES: usize = 128 << 10;
/// The exit code of a spare that says that no other like it will be ready either: its program does not wait.
pub const NEVER_READY: u8 = 8;

/// What makes a spare a life. The log of that life comes with it, as a descriptor.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handed {
    /// The command line that the life would have been started with, the program first.
    pub argv: Vec<String>,
    /// What its environment has that the spare's has not, or has otherwise. Some of it is secret.
    pub env: Vec<(String, String)>,
}

impl std::fmt::Debug for Handed {
    /// Of the environment the names only: a value may be a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.env.iter().map(|(name, _)| name).collect();
        let mut shown = f.debug_struct("Handed");
        shown.field("argv", &self.argv).field("env", &names);
        shown.finish()
    }
}
