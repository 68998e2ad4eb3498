//! What becomes of an order of a fault: refused, armed, forgotten, done once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use robust_proto::v1::{Hello, RoleFault};
use robust_role::{Busy, Deed, Link, LinkConfig, WELCOME_WITHIN};
use robust_shared::ids::Role;
use robust_shared::phase::Phase;
use tokio::runtime::Runtime;

use super::fixture::runtime;
use host_fake::FakeHost;
use host_fake::faults::{arm, disarm, fault, struck, told};

const LIFE: u64 = 7;

/// A role whose hands only note what they are asked for.
struct Scene {
    host: FakeHost,
    link: Link,
    done: Arc<Mutex<Vec<Deed>>>,
    _runtime: Runtime,
    _folder: tempfile::TempDir,
}

fn scene(role: Role) -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let (runtime, done) = (runtime(), Arc::<Mutex<Vec<Deed>>>::default());
    let config = LinkConfig {
        socket: host.socket.clone(),
        role,
        index: 0,
        incarnation: LIFE,
        generation: 0,
        sample_interval: Duration::from_millis(20),
        busy: Busy::default(),
        daemon_grace: Duration::from_secs(600),
        welcome_within: WELCOME_WITHIN,
        end_within: None,
    };
    let noted = Arc::clone(&done);
    let hands = move |deed, _| {
        noted.lock().unwrap().push(deed);
        Ok(())
    };
    let (link, inbox) = robust_role::start(runtime.handle(), config, Hello::default, hands);
    // Nobody looks into the inbox: as with a role that computes.
    std::mem::forget(inbox);
    host.hello(LIFE);
    Scene {
        host,
        link,
        done,
        _runtime: runtime,
        _folder: folder,
    }
}

impl Scene {
    fn done(&self) -> Vec<Deed> {
        self.done.lock().unwrap().clone()
    }

    fn refused(&self, fault: &RoleFault) -> String {
        arm(&self.host, LIFE, fault);
        told(&self.host, LIFE).refused
    }
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let trainer = scene(Role::Trainer);
    let mut no_peer = fault(6, "cut-network", "");
    no_peer.peer = "rollout-1".into();
    let mut endless = fault(7, "stall-network", "");
    endless.seconds = f64::NAN;
    for (fault, reason) in [
        (fault(1, "naan", ""), "did you mean `nan`?"),
        (fault(2, "kill", ""), "is done from outside"),
        (
            fault(3, "hang-tool", ""),
            "nothing that can befall a trainer",
        ),
        (fault(4, "exit", "generating"), "no trainer comes into"),
        (fault(5, "exit", "reshard"), "does not come into that phase"),
        (no_peer, "rollout-1 has no address"),
        (endless, "cannot convert"),
        (fault(8, "nan", "snapshot"), "a loss is made in `update`"),
        (
            fault(9, "corrupt-weights", "update"),
            "served from `publish` on",
        ),
        (fault(10, "exit", "update:50%"), "only `pull` does"),
    ] {
        let refused = trainer.refused(&fault);
        assert!(refused.contains(reason), "{fault:?}: {refused}");
    }
    assert_eq!(trainer.done(), []);
}

#[test]
fn a_fault_waits_for_its_moment_and_strikes_once_however_often_it_is_asked_for() {
    let mut rollout = scene(Role::Rollout);
    let corrupt = fault(1, "corrupt-weights", "pull:50%");
    rollout.link.phase(Phase::Generating, 1);
    rollout.link.pulled(Some((49, 100)));
    arm(&rollout.host, LIFE, &corrupt);
    // A moment that is there already counts; what was asked for later is done before.
    arm(
        &rollout.host,
        LIFE,
        &fault(2, "corrupt-weights", "generating"),
    );
    struck(&rollout.host, LIFE, 2);
    assert_eq!(rollout.done().len(), 1);
    // The daemon dies, and asks again when it is back.
    rollout.host.die();
    rollout.host.live();
    rollout.host.hello(LIFE);
    arm(&rollout.host, LIFE, &corrupt);
    rollout.link.pulled(None);
    rollout.link.pulled(Some((0, 100)));
    arm(&rollout.host, LIFE, &fault(3, "corrupt-weights", ""));
    struck(&rollout.host, LIFE, 3);
    assert_eq!(rollout.done().len(), 2);
    rollout.link.pulled(Some((50, 100)));
    struck(&rollout.host, LIFE, 1);
    rollout.link.pulled(Some((60, 100)));
    // Whoever asks once more did not hear of it.
    arm(&rollout.host, LIFE, &corrupt);
    struck(&rollout.host, LIFE, 1);
    arm(&rollout.host, LIFE, &fault(4, "nan", ""));
    assert!(told(&rollout.host, LIFE).refused.contains("can befall"));
    assert_eq!(rollout.done(), [Deed::CorruptWeights; 3]);
}

#[test]
fn a_fault_that_is_taken_back_does_not_strike() {
    let trainer = scene(Role::Trainer);
    arm(&trainer.host, LIFE, &fault(1, "exception", "update"));
    arm(&trainer.host, LIFE, &fault(2, "exception", "snapshot"));
    disarm(&trainer.host, LIFE, 1);
    disarm(&trainer.host, LIFE, 99);
    // Later orders are answered after earlier ones were taken.
    assert!(trainer.refused(&fault(3, "kill", "")).contains("outside"));
    assert_eq!(trainer.link.raise(Phase::Update), Ok(()));
    let error = trainer.link.raise(Phase::Snapshot).unwrap_err();
    assert_eq!(error.to_string(), "exception on request in snapshot");
    assert_eq!(trainer.link.raise(Phase::Snapshot), Ok(()));
    struck(&trainer.host, LIFE, 2);
}
