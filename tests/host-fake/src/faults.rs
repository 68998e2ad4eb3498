//! Faults on purpose, as the daemon asks for them.

use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{DisarmFault, FaultStruck, RoleFault};

use super::FakeHost;

/// A fault of this kind, at this moment; now, if that is empty.
pub fn fault(id: u64, kind: &str, at: &str) -> RoleFault {
    RoleFault {
        id,
        kind: kind.to_owned(),
        at: at.to_owned(),
        seconds: 600.0,
        ..Default::default()
    }
}

/// Asks a role for a fault.
pub fn arm(host: &FakeHost, incarnation: u64, fault: &RoleFault) {
    host.send(incarnation, Down::Fault(fault.clone()));
}

/// Takes a fault back.
pub fn disarm(host: &FakeHost, incarnation: u64, id: u64) {
    host.send(incarnation, Down::Disarm(DisarmFault { id }));
}

/// What is said of a fault: it strikes, or why it cannot.
pub fn told(host: &FakeHost, incarnation: u64) -> FaultStruck {
    host.wait("word of a fault", |from, up| match up {
        Up::Struck(struck) if from == incarnation => Some(struck),
        _ => None,
    })
}

/// Waits until a fault is said to strike.
pub fn struck(host: &FakeHost, incarnation: u64, id: u64) {
    let refused = String::new();
    assert_eq!(told(host, incarnation), FaultStruck { id, refused });
}
