//! A program of the user's while it runs: its processes, and what they hold in shared memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use robust_tree::{Died, EndPlan, Ended, How, Ledger, LedgerError, Policy, Tree, mapped};
use tokio::sync::mpsc::UnboundedSender;

use crate::connect::Address;
use crate::error::ShimError;
use crate::home::Home;
use crate::process::Command;

/// How often what a program holds in shared memory is written down.
pub(crate) const LEDGER_EVERY: Duration = Duration::from_secs(1);

/// A program whose every process is watched.
pub struct Hosted {
    /// Its processes.
    pub tree: Arc<Tree>,
    ledger: Result<Ledger, LedgerError>,
}

impl Hosted {
    /// Starts the program; the deaths that are the program's by this policy are told. Also where it listens, if the
    /// shim is to know.
    pub fn start(
        command: Command,
        home: &Home,
        policy: Policy,
        deaths: UnboundedSender<Died>,
    ) -> Result<(Self, Option<Address>), ShimError> {
        // What is in shared memory by now is not the program's.
        let ledger = Ledger::begin(home.root());
        let (child, address) = command.start()?;
        // Nobody listens only when this process is ending.
        let tree = Tree::watch(child, policy, move |death| drop(deaths.send(death)))?;
        let tree = Arc::new(tree);
        Ok((Self { tree, ledger }, address))
    }

    /// A program that waited until now to become this instance's. What it put into shared memory meanwhile is not known
    /// to be its own.
    pub fn of(tree: Arc<Tree>, home: &Home) -> Self {
        let ledger = Ledger::begin(home.root());
        Self { tree, ledger }
    }

    /// The program is up: who lives now is needed, and what they hold is written down before anything is
    /// asked of them, for one that is killed right then is swept after like any other.
    pub fn ready(&mut self) {
        self.tree.ready();
        self.note();
    }

    /// Writes down what the program holds in shared memory, for whoever comes after.
    pub fn note(&mut self) {
        let Ok(ledger) = &mut self.ledger else {
            return;
        };
        if !ledger.is_due(Instant::now()) {
            return;
        }
        let members = self.tree.members();
        let pids: Vec<u32> = members.iter().map(|member| member.pid).collect();
        if let Err(error) = ledger.note(mapped(pids)) {
            tracing::debug!(%error, "what the program holds is not written down");
        }
    }

    /// Ends every process, and gives back what they held; what that took.
    pub fn end(self, plan: &EndPlan) -> Ended {
        let ended = self.tree.end(plan);
        if !ended.left.is_empty() {
            tracing::error!(left = ?ended.left, "processes do not end");
        }
        match self.ledger.and_then(Ledger::sweep) {
            Ok(swept) => tracing::info!(bytes = swept.bytes(), "shared memory is given back"),
            Err(error) => tracing::warn!(%error, "shared memory stays"),
        }
        ended
    }
}

/// Whether a death says what is wrong with the program, so that it would say so again.
pub fn says_why(death: &Died) -> bool {
    death.leader && matches!(death.how, How::Exit(code) if code != 0)
}

/// What it means that a program (`what`) ended. One that says at its start what is wrong with it will say so
/// again; one that was killed, or was slow, may come up the next time.
pub fn failure(what: &str, was_up: bool, says_why: bool, reason: String) -> ShimError {
    match (was_up, says_why) {
        (true, _) => ShimError::Engine(reason),
        (false, false) => ShimError::Engine(format!("the {what} never came up: {reason}")),
        (false, true) => ShimError::NeverUp(format!("the {what} never came up: {reason}")),
    }
}
