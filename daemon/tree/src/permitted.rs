//! What this system lets a child have for itself, found by making it in a process that ends at once.
use crate::hidden::{self, Hidden, NotHidden};
use crate::netns::{Way, within_throw_away};
use crate::unshared::Plan;
use std::io;
use std::path::Path;

/// Why no network namespace can be made here.
#[derive(Debug, thiserror::Error)]
#[error("no network namespace ({privileged}), nor one within a user namespace ({user})")]
pub struct NotPermitted {
    /// What the system says to a plain one.
    pub privileged: io::Error,
    /// What it says to one within a new user namespace.
    pub user: io::Error,
}

/// Finds how a network namespace can be made, by making one in a process that ends at once.
pub fn permitted() -> Result<Way, NotPermitted> {
    let attempt = |way| {
        let mut plan = Plan::network(way);
        within_throw_away(move || plan.enter())
    };
    let Err(privileged) = attempt(Way::Privileged) else {
        return Ok(Way::Privileged);
    };
    match attempt(Way::UserNamespace) {
        Ok(()) => Ok(Way::UserNamespace),
        Err(user) => Err(NotPermitted { privileged, user }),
    }
}

impl Hidden {
    /// Whether it can be hidden here.
    pub fn permitted(&self) -> Result<(), NotHidden> {
        let way = self.way().ok_or(NotHidden::Root)?;
        let refused = |source| NotHidden::Refused { way, source };
        let plan = hidden::Plan::new(self, Path::new("/")).map_err(refused)?;
        let mut plan = Plan::new(way, false, Some(plan));
        within_throw_away(move || plan.enter()).map_err(refused)
    }
}
