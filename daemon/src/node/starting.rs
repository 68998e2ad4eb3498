//! Lives that are being started beside the actor, which beats meanwhile: a start waits for a spare's answer.
//!
//! ```text
//!  Spawn ─► begin ──(a thread: launcher)──► started ─► what was held back, in the order in which it came
//!              │ Kill, Strike, Collect, Inspect of it, and its end: held back
//! ```
//! So no order overtakes the start that it is about, and no end is noted before its beginning.
use crate::launcher::Running;
use robust_proto::v1::leader_message::Body as Down;
use robust_shared::core::Exit;
use robust_shared::ids::{Incarnation, InstanceId};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

/// What became of a start.
#[derive(Debug)]
pub(super) struct Start {
    pub incarnation: Incarnation,
    /// Its place in the job.
    pub id: InstanceId,
    /// What runs as it, or why nothing does.
    pub running: Result<Running, String>,
}

/// What came for a life while it was being started.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HeldBack {
    pub orders: Vec<Down>,
    /// Its end, and the last lines that it wrote.
    pub end: Option<(Exit, String)>,
}

/// The lives that are being started.
#[derive(Debug, Default)]
pub(super) struct Starting(BTreeMap<u64, HeldBack>);

impl Starting {
    /// This one is started from now on.
    pub fn begin(&mut self, incarnation: Incarnation) {
        self.0.entry(incarnation.0).or_default();
    }

    /// Whether this one is.
    pub fn has(&self, incarnation: Incarnation) -> bool {
        self.0.contains_key(&incarnation.0)
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The numbers of those that are.
    pub fn numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.keys().copied()
    }

    /// Holds back an order that is about one of them; any other is given back.
    pub fn hold(&mut self, order: Down) -> Option<Down> {
        let about = match &order {
            Down::Kill(of) => of.incarnation,
            Down::Strike(of) => of.incarnation,
            Down::Collect(of) => of.incarnation,
            Down::Inspect(of) => of.incarnation,
            _ => return Some(order),
        };
        match self.0.get_mut(&about) {
            Some(held) => {
                held.orders.push(order);
                None
            }
            None => Some(order),
        }
    }

    /// Holds back the end of one of them; any other's is given back.
    pub fn hold_end(&mut self, of: Incarnation, end: (Exit, String)) -> Option<(Exit, String)> {
        match self.0.get_mut(&of.0) {
            Some(held) => {
                held.end = Some(end);
                None
            }
            None => Some(end),
        }
    }

    /// It is started, or is not: what came for it meanwhile.
    pub fn started(&mut self, incarnation: Incarnation) -> HeldBack {
        self.0.remove(&incarnation.0).unwrap_or_default()
    }
}

/// Whether anything is started any more: open until the node's end.
#[derive(Clone, Debug, Default)]
pub(super) struct Gate(Arc<RwLock<bool>>);

impl Gate {
    /// Starts this, where the gate is open.
    pub fn pass<T>(&self, start: impl FnOnce() -> T) -> Option<T> {
        let shut = self.0.read().unwrap_or_else(PoisonError::into_inner);
        (!*shut).then(start)
    }

    /// Nothing is started from now on, nor any more being started.
    pub fn shut(&self) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_proto::v1;
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::time::Duration;

    fn kill(incarnation: u64) -> Down {
        Down::Kill(v1::KillRole { incarnation })
    }

    fn strike(incarnation: u64) -> Down {
        Down::Strike(v1::StrikeRole {
            incarnation,
            ..Default::default()
        })
    }

    #[test]
    fn no_order_about_a_life_overtakes_its_start_and_their_order_is_kept() {
        let mut starting = Starting::default();
        assert_eq!(starting.hold(kill(7)), Some(kill(7)), "it is not begun");
        starting.begin(Incarnation(7));
        assert_eq!(starting.hold(strike(7)), None);
        // A leader asks again after a break.
        starting.begin(Incarnation(7));
        assert_eq!(starting.hold(kill(7)), None);
        assert_eq!(starting.hold(kill(8)), Some(kill(8)), "another life's");
        assert!(starting.has(Incarnation(7)) && starting.numbers().eq([7]));
        let held = starting.started(Incarnation(7));
        assert_eq!(held.orders, [strike(7), kill(7)]);
        assert!(starting.is_empty());
        assert_eq!(starting.hold(kill(7)), Some(kill(7)));
    }

    #[test]
    fn an_end_that_is_seen_before_its_start_is_told_after_it() {
        let mut starting = Starting::default();
        let end = || (Exit::Code(3), "no model".to_owned());
        assert_eq!(starting.hold_end(Incarnation(7), end()), Some(end()));
        starting.begin(Incarnation(7));
        assert_eq!(starting.hold_end(Incarnation(7), end()), None);
        assert_eq!(starting.started(Incarnation(7)).end, Some(end()));
        assert_eq!(
            starting.started(Incarnation(7)),
            HeldBack::default(),
            "once"
        );
    }

    #[test]
    fn a_gate_that_is_shut_has_waited_for_who_was_in_it_and_lets_nobody_pass() {
        let gate = Gate::default();
        let (inside, is_inside) = channel();
        let (go, may_go) = channel::<()>();
        let within = gate.clone();
        let starts = std::thread::spawn(move || {
            within.pass(|| {
                drop(inside);
                may_go.recv_timeout(Duration::from_secs(60)).is_ok()
            })
        });
        // Its end is dropped once the other is within.
        let within: Result<(), RecvTimeoutError> = is_inside.recv_timeout(Duration::from_secs(60));
        assert_eq!(within, Err(RecvTimeoutError::Disconnected));
        let (shut, is_shut) = channel();
        let closing = gate.clone();
        std::thread::spawn(move || {
            closing.shut();
            let _ = shut.send(());
        });
        // One that does not wait has shut it by then.
        let shut = is_shut.recv_timeout(Duration::from_millis(50));
        assert_eq!(shut, Err(RecvTimeoutError::Timeout), "one is within");
        assert!(go.send(()).is_ok());
        assert!(matches!(starts.join(), Ok(Some(true))));
        assert!(is_shut.recv_timeout(Duration::from_secs(60)).is_ok());
        assert_eq!(gate.pass(|| ()), None);
    }
}
