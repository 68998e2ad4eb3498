//! The connections that are made one after the other: their numbers, and when the next is made.
use super::sight::Link;

/// Between two attempts to reach a lost daemon.
const RETRY_MS: u64 = 500;
/// With `--exit-when-done`: how long a lost daemon is waited for.
const PATIENCE_MS: u64 = 15_000;

/// The connections that are made one after the other.
#[derive(Debug)]
pub struct Connection {
    /// Number of the present one; what an older one still delivers is dropped.
    number: u64,
    /// Unix ms.
    retry_at: Option<u64>,
    /// Unix ms.
    begun_at: u64,
    exit_when_done: bool,
}

impl Connection {
    /// None yet.
    pub fn new(exit_when_done: bool) -> Connection {
        Connection {
            number: 0,
            retry_at: None,
            begun_at: 0,
            exit_when_done,
        }
    }

    /// The console is there: from now on a daemon is waited for.
    pub fn begin(&mut self, now: u64) {
        self.begun_at = now;
    }

    /// Number of the present one.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// A new one is made; its number.
    pub fn made(&mut self) -> u64 {
        self.number += 1;
        self.retry_at = None;
        self.number
    }

    /// It is lost, or could not be made. What it may still deliver is fenced off.
    pub fn lost(&mut self, now: u64) {
        self.number += 1;
        self.retry_at = Some(now + RETRY_MS);
    }

    /// Whether it is time to make another one.
    pub fn is_tried_again(&self, now: u64) -> bool {
        self.retry_at.is_some_and(|at| at <= now)
    }

    /// Whether the console is left when the job is over.
    pub fn ends_with_job(&self) -> bool {
        self.exit_when_done
    }

    /// Whether the console is left because the daemon stays away.
    pub fn is_given_up(&self, now: u64, link: &Link) -> bool {
        let away = match link {
            Link::Live => 0,
            Link::Waiting => now.saturating_sub(self.begun_at),
            Link::Lost { since, .. } => now.saturating_sub(*since),
        };
        self.exit_when_done && away > PATIENCE_MS
    }
}
