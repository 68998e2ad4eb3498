//! Who calls: a process of this machine, as the kernel says, or a node, by its session; and which
//! incarnations' calls those are.
//!
//! A role acts for itself only. What it says of itself is believed where its call comes from: the process
//! that was started for the incarnation, or one that it started, or the node on which it runs.
use crate::launcher::descends_from;
use crate::links::{LinkId, Via};
use robust_shared::ids::Incarnation;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Status};

/// Tickets beyond this are looked through for those of roles that are gone.
const MANY_TICKETS: usize = 1 << 16;

/// Where a call comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A process of this machine, of this id.
    Process(u32),
    /// A role of another node, whose daemon sees to it that it is the one it says.
    Node(Via),
}

impl Origin {
    /// Of a request.
    pub fn of<T>(request: &Request<T>) -> Result<Self, Status> {
        let extensions = request.extensions();
        if let Some(via) = extensions.get::<Via>() {
            return Ok(Self::Node(via.clone()));
        }
        let info = extensions.get::<UdsConnectInfo>();
        let pid = info.and_then(|info| info.peer_cred?.pid());
        // A process of another namespace has the number 0.
        let pid = pid
            .and_then(|pid| u32::try_from(pid).ok())
            .filter(|pid| *pid != 0);
        let unknown = || Status::permission_denied("the kernel does not say which process calls");
        pid.map(Self::Process).ok_or_else(unknown)
    }

    /// Whether what says that it is the process of this id may be it, or one that it started.
    pub fn is_of_process(&self, pid: u32) -> bool {
        match self {
            Self::Process(caller) => descends_from(*caller, pid),
            Self::Node(_) => false,
        }
    }
}

/// The incarnations that are linked, and the tickets that they were given. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Callers(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    linked: HashMap<Incarnation, (LinkId, Origin)>,
    tickets: HashMap<u64, Incarnation>,
}

impl Callers {
    /// An incarnation's link was admitted; it came from there.
    pub fn linked(&self, incarnation: Incarnation, link: LinkId, origin: Origin) {
        self.lock().linked.insert(incarnation, (link, origin));
    }

    /// A link closed.
    pub fn closed(&self, incarnation: Incarnation, link: LinkId) {
        let mut table = self.lock();
        if table
            .linked
            .get(&incarnation)
            .is_some_and(|(open, _)| *open == link)
        {
            table.linked.remove(&incarnation);
        }
    }

    /// Whether a call is of the incarnation that it names.
    pub fn check(&self, incarnation: Incarnation, caller: &Origin) -> Result<(), Status> {
        let known = {
            let table = self.lock();
            table
                .linked
                .get(&incarnation)
                .map(|(_, origin)| origin.clone())
        };
        let is_same = match known {
            // It links, or will again, and then asks again.
            None => return Err(Status::unavailable(format!("{incarnation} is not linked"))),
            Some(Origin::Process(pid)) => caller.is_of_process(pid),
            Some(node) => node == *caller,
        };
        let text = || format!("this call is not of {incarnation}: a role acts for itself only");
        is_same
            .then_some(())
            .ok_or_else(|| Status::permission_denied(text()))
    }

    /// A ticket is asked for, or given.
    pub fn gave(&self, ticket: u64, to: Incarnation) {
        let mut table = self.lock();
        table.tickets.insert(ticket, to);
        if table.tickets.len() > MANY_TICKETS {
            let Table { linked, tickets } = &mut *table;
            tickets.retain(|_, of| linked.contains_key(of));
        }
    }

    /// Takes a ticket back; whether it was this incarnation's.
    pub fn takes_back(&self, ticket: u64, from: Incarnation) -> bool {
        let mut table = self.lock();
        let is_its = table.tickets.get(&ticket) == Some(&from);
        if is_its {
            table.tickets.remove(&ticket);
        }
        is_its
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        // No code can panic while it holds the lock, so a poisoned table is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const A: Incarnation = Incarnation(1);
    const B: Incarnation = Incarnation(2);

    fn node(name: &str) -> Origin {
        Origin::Node(Via(name.into()))
    }

    fn code(callers: &Callers, of: Incarnation, from: &Origin) -> tonic::Code {
        callers
            .check(of, from)
            .map_or_else(|s| s.code(), |()| tonic::Code::Ok)
    }

    #[test]
    fn a_node_speaks_for_roles_that_run_there_and_a_process_for_its_own() {
        use tonic::Code::{Ok as Taken, PermissionDenied, Unavailable};
        let callers = Callers::default();
        let here = Origin::Process(std::process::id());
        callers.linked(A, LinkId(1), node("b"));
        callers.linked(B, LinkId(2), here.clone());
        assert_eq!(code(&callers, A, &node("b")), Taken);
        assert_eq!(code(&callers, A, &node("c")), PermissionDenied);
        assert_eq!(code(&callers, A, &here), PermissionDenied);
        assert_eq!(code(&callers, B, &here), Taken);
        assert_eq!(code(&callers, B, &node("b")), PermissionDenied);
        assert_eq!(code(&callers, B, &Origin::Process(1)), PermissionDenied);
        // An older link's end is not the newer one's.
        callers.closed(A, LinkId(0));
        assert_eq!(code(&callers, A, &node("b")), Taken);
        callers.closed(A, LinkId(1));
        assert_eq!(code(&callers, A, &node("b")), Unavailable);
    }

    #[test]
    fn a_ticket_is_given_back_once_and_by_whom_it_was_given_to() {
        let callers = Callers::default();
        callers.gave(7, A);
        assert!(!callers.takes_back(7, B));
        assert!(!callers.takes_back(8, A));
        assert!(callers.takes_back(7, A));
        assert!(!callers.takes_back(7, A));
    }

    #[test]
    fn tickets_of_roles_that_are_gone_are_not_kept_for_ever() {
        let callers = Callers::default();
        callers.linked(A, LinkId(1), node("b"));
        callers.gave(0, A);
        let many = 1..=MANY_TICKETS as u64;
        many.for_each(|ticket| callers.gave(ticket, B));
        assert_eq!(callers.lock().tickets.len(), 1);
        assert!(callers.takes_back(0, A));
    }
}
