//! The end of the process that makes tokens.

/// Why the process must die now; it does so by SIGKILL, as one that crashes.
#[derive(Debug, PartialEq, Eq)]
pub struct Crash(pub &'static str);
