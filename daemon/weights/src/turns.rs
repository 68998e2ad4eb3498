//! Whose turn it is: of several orders, the newest one's.
use std::sync::{Mutex, MutexGuard, PoisonError};

use robust_transport::Cancel;

use crate::types::PullError;

/// Which order counts.
#[derive(Default)]
pub(crate) struct Turns(Mutex<Turn>);

#[derive(Default)]
struct Turn {
    newest: u64,
    /// The fetches of the order being worked on.
    running: Vec<Cancel>,
}

impl Turns {
    /// A new order: the running one's fetches end. Answers its number.
    pub fn next(&self) -> u64 {
        let mut turn = self.turn();
        turn.newest += 1;
        turn.running.iter().for_each(Cancel::cancel);
        turn.newest
    }

    /// Whether this order is still the newest.
    pub fn check(&self, ticket: u64) -> Result<(), PullError> {
        if self.turn().newest == ticket {
            return Ok(());
        }
        Err(PullError::superseded("a newer order came"))
    }

    /// These are the order's fetches: to be cancelled when it is superseded.
    pub fn begin(&self, ticket: u64, fetches: &[Cancel]) -> Result<(), PullError> {
        let mut turn = self.turn();
        if turn.newest != ticket {
            return Err(PullError::superseded("a newer order came"));
        }
        turn.running = fetches.to_vec();
        Ok(())
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
