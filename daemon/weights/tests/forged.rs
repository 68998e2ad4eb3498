//! Somebody who is a member of the job, and serves other weights than those that were published.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "../../../shared/src/forge.rs"]
mod forge;

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use robust_identity::{Authority, Term};
use robust_shared::ids::{Incarnation, WeightVersion};
use robust_shared::weights::{Manifest, TensorSpec};
use robust_transport::{Buffer, Config, Exposed, Identity, JobToken, Net, RegionKey, Transport};
use robust_weights::{
    Layout, Link, Observer, Order, Progress, Publisher, PullError, Puller, Served, Slots, Source,
    SwapError,
};

const CHUNK: usize = 64 * 1024;
const BYTES: usize = 4 * CHUNK;
/// Nothing here takes so long; a test that waits for it has failed.
const LIMIT: Duration = Duration::from_secs(30);

fn tensors() -> Vec<TensorSpec> {
    vec![TensorSpec {
        name: "w".into(),
        dtype: "BF16".into(),
        shape: vec![BYTES as u64 / 2],
        offset: 0,
        bytes: BYTES as u64,
    }]
}

/// A member of the job between machines, which also meets those of this one in the folder.
fn between_machines(local: Option<&Path>) -> Transport {
    let authority = Authority::of(&[7; 32], "forged").unwrap();
    let pem = authority.issue("process/1", Term::unbounded()).unwrap();
    let identity = Identity::from_pem(&pem).unwrap();
    start(local, Some(Net::Tls(identity)))
}

fn start(local: Option<&Path>, net: Option<Net>) -> Transport {
    Transport::start(Config {
        local: local.map(Path::to_owned),
        net,
        ..Config::new(JobToken::new(b"job"))
    })
    .unwrap()
}

/// How an order ended, and patches that were wrong by then.
type Ended = (Result<Served, PullError>, u64);

/// Tells how orders ended.
struct Told(Mutex<(Sender<Ended>, u64)>);

impl Observer for Told {
    fn started(&self, _: &Order, _: &RegionKey, _: &[Link]) {}
    fn progress(&self, progress: Progress) {
        self.0.lock().unwrap().1 = progress.wrong_patches;
    }
    fn swap(&self, _: WeightVersion, _: &Arc<Buffer>) -> Result<(), SwapError> {
        Ok(())
    }
    fn done(&self, _: &Order, result: Result<Served, PullError>) {
        let (sender, wrong) = &*self.0.lock().unwrap();
        let _ = sender.send((result, *wrong));
    }
}

struct Rollout {
    slots: Arc<Slots>,
    puller: Puller,
    done: Receiver<Ended>,
}

impl Rollout {
    fn start(transport: &Transport) -> Self {
        let slots = Slots::new(transport, BYTES).unwrap();
        let (sender, done) = channel();
        let told = Arc::new(Told(Mutex::new((sender, 0))));
        let puller = Puller::start(transport.clone(), Arc::clone(&slots), tensors(), told);
        Self {
            slots,
            puller: puller.unwrap(),
            done,
        }
    }

    fn pull(&self, manifest: &Arc<Manifest>, source: Source) -> Result<Served, PullError> {
        self.pull_counting(manifest, source).0
    }

    fn pull_counting(&self, manifest: &Arc<Manifest>, source: Source) -> Ended {
        self.puller.assign(Order {
            number: 1,
            version: manifest.version,
            manifest: Arc::clone(manifest),
            sources: vec![source],
        });
        self.done.recv_timeout(LIMIT).expect("the order ends")
    }

    fn bytes(&self) -> Vec<u8> {
        self.slots.current().with_bytes(<[u8]>::to_vec).unwrap()
    }
}

fn weights() -> Vec<u8> {
    (0..BYTES).map(|at| (at * 31 + at / 253) as u8).collect()
}

/// A publisher's version of these bytes, and the publisher.
fn published(transport: &Transport, bytes: &[u8]) -> (Served, Publisher) {
    let layout = Layout {
        bytes: BYTES,
        tensors: tensors(),
        chunk_bytes: CHUNK as u64,
        ranks: 1,
        full_every: 50,
    };
    let mut publisher = Publisher::new(transport, layout).unwrap();
    let served = publisher.publish(1, |to| to.write_at(0, bytes)).unwrap();
    (served, publisher)
}

/// What a relay serves that was broken into: other weights, with the XXH3 of each published chunk.
fn relay(id: u64, transport: &Transport, bytes: &[u8]) -> (Source, Exposed) {
    let buffer = Buffer::new(BYTES).unwrap();
    buffer.write_at(0, bytes).unwrap();
    let exposed = transport.expose(buffer).unwrap();
    let source = Source::relay(Incarnation(id), transport.addr(), *exposed.key());
    (source, exposed)
}

fn forged(manifest: &Manifest, bytes: &[u8]) -> Vec<u8> {
    let forge = |chunk: &[u8]| forge::same_xxh3(chunk, &vec![0x3f; chunk.len()]);
    let forged: Vec<u8> = bytes.chunks(CHUNK).flat_map(forge).collect();
    for (chunk, bytes) in (0..).zip(forged.chunks(CHUNK)) {
        assert_eq!(manifest.verify_chunk(chunk, bytes), Ok(()), "XXH3 tells");
    }
    forged
}

#[test]
fn weights_made_to_have_the_published_xxh3_are_refused_and_their_sender_is_named() {
    let (trainer, evil, here) = (
        between_machines(None),
        between_machines(None),
        between_machines(None),
    );
    let bytes = weights();
    let (served, _publisher) = published(&trainer, &bytes);
    assert!(
        served.manifest.has_blake3(),
        "others of other machines come"
    );
    let (source, _exposed) = relay(66, &evil, &forged(&served.manifest, &bytes));
    let rollout = Rollout::start(&here);
    let refused = rollout.pull(&served.manifest, source).unwrap_err();
    assert_eq!(
        (refused.kind.word(), refused.source_id),
        ("corrupt", Some(Incarnation(66)))
    );
    assert!(
        refused.reason.contains("its BLAKE3 digest is another"),
        "{refused}"
    );
    // The trainer itself has what it published.
    let honest = Source::relay(Incarnation(1), trainer.addr(), served.key);
    rollout.pull(&served.manifest, honest).unwrap();
    assert!(rollout.bytes() == bytes);
}

#[test]
fn a_chunk_that_comes_in_parts_is_refused_as_one_that_comes_whole() {
    let (trainer, evil, here) = (
        between_machines(None),
        between_machines(None),
        between_machines(None),
    );
    let bytes = weights();
    let (served, _publisher) = published(&trainer, &bytes);
    let (mut source, _exposed) = relay(66, &evil, &forged(&served.manifest, &bytes));
    let half = CHUNK as u64 / 2;
    let part = |at: u64| robust_transport::Part {
        src: at * half,
        dst: at * half,
        len: half,
    };
    source.parts = (0..2 * BYTES as u64 / CHUNK as u64).map(part).collect();
    let rollout = Rollout::start(&here);
    let refused = rollout.pull(&served.manifest, source).unwrap_err();
    assert_eq!((refused.kind.word(), refused.source_id), ("corrupt", None));
}

#[test]
fn a_patch_that_makes_a_chunk_with_the_published_xxh3_makes_nothing() {
    let (trainer, evil, here) = (
        between_machines(None),
        between_machines(None),
        between_machines(None),
    );
    let first = weights();
    let mut second = first.clone();
    second.iter_mut().step_by(8192).for_each(|byte| *byte ^= 1);
    let (honest, mut publisher) = published(&trainer, &first);
    let (_, mut liar) = published(&evil, &first);
    let rollout = Rollout::start(&here);
    let from_trainer = |served: &Served| Source::relay(Incarnation(1), trainer.addr(), served.key);
    rollout
        .pull(&honest.manifest, from_trainer(&honest))
        .unwrap();
    let publish = |publisher: &mut Publisher, bytes: &[u8]| {
        publisher.publish(2, |to| to.write_at(0, bytes)).unwrap()
    };
    let honest = publish(&mut publisher, &second);
    // Most words are the published ones, or there would be no patch.
    let forge = |chunk: &[u8]| forge::same_xxh3(chunk, &flipped(chunk));
    let forged: Vec<u8> = second.chunks(CHUNK).flat_map(forge).collect();
    let lie = publish(&mut liar, &forged);
    assert_eq!(lie.manifest.chunk_xxh3, honest.manifest.chunk_xxh3);
    let mut source = Source::relay(Incarnation(66), evil.addr(), lie.key);
    source.patches = lie.patches.clone();
    let (refused, wrong_patches) = rollout.pull_counting(&honest.manifest, source);
    let refused = refused.unwrap_err();
    assert_eq!(
        (refused.kind.word(), refused.source_id),
        ("corrupt", Some(Incarnation(66)))
    );
    assert!(
        wrong_patches > 0,
        "the patches were applied, and found to be wrong"
    );
    rollout
        .pull(&honest.manifest, from_trainer(&honest))
        .unwrap();
    assert!(rollout.bytes() == second);
}

/// The same with another bit in each block.
fn flipped(chunk: &[u8]) -> Vec<u8> {
    let mut flipped = chunk.to_vec();
    flipped.iter_mut().step_by(1024).for_each(|byte| *byte ^= 2);
    flipped
}

#[test]
fn what_another_machine_sends_counts_by_blake3_or_not_at_all() {
    let (trainer, here) = (between_machines(None), between_machines(None));
    let bytes = weights();
    let (served, _publisher) = published(&trainer, &bytes);
    let mut nameless = Manifest::clone(&served.manifest);
    nameless.chunk_blake3.clear();
    let source = || Source::relay(Incarnation(1), trainer.addr(), served.key);
    let rollout = Rollout::start(&here);
    let refused = rollout.pull(&Arc::new(nameless), source()).unwrap_err();
    assert_eq!((refused.kind.word(), refused.source_id), ("corrupt", None));
    assert!(refused.reason.contains("no BLAKE3 digests"), "{refused}");
    rollout.pull(&served.manifest, source()).unwrap();
}

#[test]
fn on_one_machine_no_blake3_is_computed() {
    let folder = meeting_place();
    let (trainer, here) = (
        start(Some(folder.path()), None),
        start(Some(folder.path()), None),
    );
    let bytes = weights();
    let (served, _publisher) = published(&trainer, &bytes);
    assert!(!served.manifest.has_blake3());
    let rollout = Rollout::start(&here);
    let source = Source::relay(Incarnation(1), trainer.addr(), served.key);
    rollout.pull(&served.manifest, source).unwrap();
    assert!(rollout.bytes() == bytes);
}

/// A folder in shared memory that is this user's alone.
fn meeting_place() -> tempfile::TempDir {
    let alone = std::os::unix::fs::PermissionsExt::from_mode(0o700);
    let mut folder = tempfile::Builder::new();
    folder.permissions(alone).tempdir_in("/dev/shm").unwrap()
}
