//! Orders to pull, by an engine that only notes what it is asked for.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use host_fake::FakeHost;
use host_fake::faults::{arm, fault, struck};
use robust_proto::v1::pull_done::Result as Outcome;
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{Hello, PullDone, PullWeights};
use robust_role::pull::{self, Engine, Puller, Pulling};
use robust_role::{Busy, Link, LinkConfig, WELCOME_WITHIN, scrub};
use robust_shared::ids::{Role, WeightVersion};
use robust_transport::Buffer;
use robust_weights::{Slots, SwapError};
use tokio::runtime::Runtime;

use super::fixture::{BYTES, PUBLISHER, Source, bytes_of, runtime, tensors, transport};

const LIFE: u64 = 7;

/// What an engine was asked for, in order.
#[derive(Debug, Clone, PartialEq)]
enum Asked {
    Supersede(u64),
    Swap(u64, Vec<u8>),
}

/// An engine that takes over what it is given, or refuses to.
#[derive(Default)]
struct Notes {
    asked: Mutex<Vec<Asked>>,
    refuses: Mutex<Option<SwapError>>,
}

impl Engine for Notes {
    fn supersede(&self, version: u64) {
        self.asked.lock().unwrap().push(Asked::Supersede(version));
    }

    fn swap(&self, version: WeightVersion, buffer: &Arc<Buffer>) -> Result<(), SwapError> {
        let bytes = buffer.with_bytes(<[u8]>::to_vec).unwrap();
        self.asked
            .lock()
            .unwrap()
            .push(Asked::Swap(version.0, bytes));
        self.refuses.lock().unwrap().take().map_or(Ok(()), Err)
    }
}

struct Scene {
    host: FakeHost,
    engine: Arc<Notes>,
    slots: Arc<Slots>,
    puller: Puller,
    link: Link,
    _runtime: Runtime,
    _folder: tempfile::TempDir,
}

fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let (host, runtime, transport) = (FakeHost::start(folder.path()), runtime(), transport());
    let slots = Slots::new(&transport, BYTES).unwrap();
    let (engine, pulling) = (Arc::<Notes>::default(), Pulling::default());
    let config = LinkConfig {
        socket: host.socket.clone(),
        role: Role::Rollout,
        index: 0,
        incarnation: LIFE,
        generation: 0,
        sample_interval: Duration::from_millis(20),
        busy: Busy::default(),
        daemon_grace: Duration::from_secs(600),
        welcome_within: WELCOME_WITHIN,
        end_within: None,
    };
    let told = (pulling.clone(), Arc::clone(&slots));
    let hello = move || told.0.hello(&told.1);
    let hands = pull::hands(Arc::clone(&slots), transport.clone());
    let (link, inbox) = robust_role::start(runtime.handle(), config, hello, hands);
    // The orders of these tests do not come by the link.
    std::mem::forget(inbox);
    assert_eq!(host.hello(LIFE).served, None);
    let asks: Arc<dyn Engine> = Arc::clone(&engine) as _;
    let filled = Arc::clone(&slots);
    let told = link.clone();
    let puller = Puller::start(transport, filled, tensors(), asks, told, pulling).unwrap();
    Scene {
        host,
        engine,
        slots,
        puller,
        link,
        _runtime: runtime,
        _folder: folder,
    }
}

impl Scene {
    fn pull(&self, order: &PullWeights) -> PullDone {
        self.puller.assign(order);
        let done = self.host.pull_done(LIFE);
        assert_eq!(done.order, order.order);
        done
    }

    fn asked(&self) -> Vec<Asked> {
        self.engine.asked.lock().unwrap().clone()
    }

    /// What a daemon hears that was not there before.
    fn hello_of_a_new_link(&mut self) -> Hello {
        self.host.die();
        self.host.live();
        self.host.hello(LIFE)
    }
}

/// The kind and the source of a failure.
fn failure(done: &PullDone) -> (&str, u64) {
    match done.result.as_ref().unwrap() {
        Outcome::Error(error) => (error.kind.as_str(), error.source),
        Outcome::Ok(_) => panic!("it pulled"),
    }
}

#[test]
fn the_engine_takes_a_version_over_before_it_is_said_to_be_served() {
    let (mut scene, mut source) = (scene(), Source::start());
    let served = source.publish(1);
    let order = source.order(&served);
    scene.puller.assign(&order);
    let started = scene.host.wait("the start of the pull", |_, up| match up {
        Up::PullStarted(started) => Some(started),
        _ => None,
    });
    assert_eq!((started.version, started.order), (1, order.order));
    let done = scene.host.pull_done(LIFE);
    let Some(Outcome::Ok(served)) = done.result else {
        panic!("{done:?}")
    };
    assert_eq!(served.manifest, order.manifest);
    let expected = [Asked::Supersede(1), Asked::Swap(1, bytes_of(1))];
    assert_eq!(scene.asked(), expected);
    let hello = scene.hello_of_a_new_link();
    assert_eq!((hello.version, hello.pulling), (Some(1), None));
    assert_eq!(hello.served, Some(served));
}

#[test]
fn a_version_that_the_engine_refuses_is_not_served_and_is_swapped_to_when_it_is_ordered_again() {
    let (mut scene, mut source) = (scene(), Source::start());
    let served = source.publish(1);
    let order = source.order(&served);
    let refusal = SwapError::Failed("the engine does not load it".to_owned());
    *scene.engine.refuses.lock().unwrap() = Some(refusal);
    let done = scene.pull(&order);
    assert!(matches!(done.result, Some(Outcome::Error(_))), "{done:?}");
    assert!(scene.slots.served().is_none());
    let hello = scene.hello_of_a_new_link();
    assert_eq!((hello.version, hello.served), (None, None));
    assert_eq!(hello.pulling.unwrap().version, 1, "others can read it here");
    // It may have been lost with the link, so it is said once more: of the order that it answers.
    assert_eq!(scene.host.pull_done(LIFE), done);
    let again = PullWeights {
        order: order.order + 1,
        ..order
    };
    let done = scene.pull(&again);
    assert!(matches!(done.result, Some(Outcome::Ok(_))), "{done:?}");
    assert_eq!(scene.slots.served().unwrap().version.0, 1);
    assert_eq!(scene.asked().len(), 4);
}

#[test]
fn an_impossible_order_is_answered_at_once_and_asks_nothing_of_the_engine() {
    let (scene, mut source) = (scene(), Source::start());
    let served = source.publish(1);
    let order = source.order(&served);
    let bare = PullWeights {
        manifest: None,
        ..order.clone()
    };
    assert_eq!(failure(&scene.pull(&bare)), ("corrupt", PUBLISHER));
    let other = PullWeights {
        version: 2,
        ..order.clone()
    };
    assert_eq!(failure(&scene.pull(&other)), ("corrupt", PUBLISHER));
    let mut nowhere = order.clone();
    nowhere.sources[0].transport_addr = "nowhere".to_owned();
    assert_eq!(failure(&scene.pull(&nowhere)), ("source", PUBLISHER));
    let mut regionless = order;
    regionless.sources[0].region = None;
    assert_eq!(failure(&scene.pull(&regionless)), ("source", PUBLISHER));
    assert_eq!(scene.asked(), []);
}

#[test]
fn bytes_that_are_not_the_published_ones_never_reach_the_engine() {
    let (scene, mut source) = (scene(), Source::start());
    let served = source.publish(1);
    source.publisher.damage(1);
    let done = scene.pull(&source.order(&served));
    assert_eq!(failure(&done), ("corrupt", PUBLISHER));
    assert_eq!(scene.asked(), [Asked::Supersede(1)]);
}

#[test]
fn a_fault_on_request_changes_what_is_served() {
    let (scene, mut source) = (scene(), Source::start());
    arm(&scene.host, LIFE, &fault(1, "corrupt-weights", ""));
    let told = host_fake::faults::told(&scene.host, LIFE);
    assert_eq!(told.refused, "it serves no weights yet");
    let served = source.publish(1);
    scene.pull(&source.order(&served));
    arm(&scene.host, LIFE, &fault(2, "corrupt-weights", ""));
    struck(&scene.host, LIFE, 2);
    let found = scene.slots.current().with_bytes(<[u8]>::to_vec).unwrap();
    assert_ne!(found, bytes_of(1));
}

#[test]
fn bytes_that_change_before_they_are_served_reach_no_engine_and_come_anew() {
    let (scene, mut source) = (scene(), Source::start());
    let served = source.publish(1);
    let order = source.order(&served);
    arm(&scene.host, LIFE, &fault(1, "corrupt-weights", "pull"));
    let done = scene.pull(&order);
    assert_eq!(failure(&done), ("damaged", 0));
    assert_eq!(scene.asked(), [Asked::Supersede(1)]);
    let done = scene.pull(&order);
    assert!(matches!(done.result, Some(Outcome::Ok(_))), "{done:?}");
    let whole = Asked::Swap(1, bytes_of(1));
    assert_eq!(scene.asked().last(), Some(&whole));
}

#[test]
fn what_is_served_is_read_again_and_said_to_be_damaged_until_another_version_is_served() {
    let (scene, mut source) = (scene(), Source::start());
    let served = source.publish(1);
    let order = source.order(&served);
    scene.pull(&order);
    scrub::start(&scene.slots, Duration::from_millis(20), scene.link.clone()).unwrap();
    arm(&scene.host, LIFE, &fault(1, "corrupt-weights", ""));
    let damaged = |up| match up {
        Up::Damaged(damaged) => Some(damaged),
        _ => None,
    };
    let first = scene.host.wait("a finding", |_, up| damaged(up));
    let all = order.manifest.as_ref().unwrap().chunk_xxh3.len() as u64;
    assert_eq!(
        (first.version, first.chunks, first.chunks_total),
        (1, all, all)
    );
    // It may be lost, so it is said with every pass.
    assert_eq!(scene.host.wait("it again", |_, up| damaged(up)), first);
    let served = source.publish(2);
    let next = source.order(&served);
    let done = scene.pull(&next);
    assert!(matches!(done.result, Some(Outcome::Ok(_))), "{done:?}");
    let mut duty = robust_transport::Share::default().duty();
    let found = scene.slots.scrub(&mut duty).unwrap();
    assert_eq!((found.version.0, found.wrong), (2, 0));
}
