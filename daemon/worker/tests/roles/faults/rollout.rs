//! Faults of a replica: what it serves changes, and its network.

use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::pull_done::Result as Outcome;
use robust_proto::v1::role_message::Body as Up;
use robust_proto::v1::{PullError, PullSource, RoleFault};

use super::super::rollout::{Replica, Source, replica, source};
use host_fake::FakeHost;
use host_fake::faults::{arm, fault, struck, told};

const FIRST: u64 = 1;
const SECOND: u64 = 2;

/// A trainer's version, one replica that serves it and one that does not yet.
struct Scene {
    trainer: Source,
    first: Replica,
    relay: PullSource,
    second: Replica,
    host: FakeHost,
    _folder: tempfile::TempDir,
}

fn scene() -> Scene {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let trainer = source(5, 1);
    let first = replica(folder.path(), &host, FIRST);
    let served = first.pulled(&host, trainer.pull_all());
    let relay = first.relaying(served, &trainer);
    let second = replica(folder.path(), &host, SECOND);
    Scene {
        trainer,
        first,
        relay,
        second,
        host,
        _folder: folder,
    }
}

impl Scene {
    fn network(&self, id: u64, kind: &str, at: &str, peer: &Replica) -> RoleFault {
        RoleFault {
            peer: "rollout-9".into(),
            peer_addr: peer.transport_addr.clone(),
            ..fault(id, kind, at)
        }
    }

    /// The second pulls from the first, in vain.
    fn fails(&self) -> PullError {
        let pull = self.trainer.pull(vec![self.relay.clone()]);
        match self.second.pull(&self.host, pull) {
            Outcome::Error(error) => error,
            Outcome::Ok(_) => panic!("it pulled"),
        }
    }

    /// From the trainer it gets all that it could not get.
    fn end(self) {
        self.second.pulled(&self.host, self.trainer.pull_all());
        let published = robust_proto::manifest::from_proto(&self.trainer.manifest).unwrap();
        let digest = self.second.get("/weights_digest");
        assert_eq!(digest["digest"], published.digest_hex());
        self.first.end(&self.host);
        self.second.end(&self.host);
    }
}

#[test]
fn corrupt_weights_are_found_by_whoever_pulls_them_and_pulled_elsewhere() {
    let scene = scene();
    let sound = scene.first.get("/weights_digest");
    arm(&scene.host, FIRST, &fault(1, "corrupt-weights", ""));
    struck(&scene.host, FIRST, 1);
    let rotten = scene.first.get("/weights_digest");
    let chunks = |digest: &serde_json::Value| digest["chunk_xxh3"].as_array().unwrap().clone();
    let pairs = chunks(&sound).into_iter().zip(chunks(&rotten));
    assert!(
        pairs.into_iter().all(|(a, b)| a != b),
        "every chunk changed"
    );
    let error = scene.fails();
    assert_eq!((error.kind.as_str(), error.source), ("corrupt", FIRST));
    scene.end();
}

#[test]
fn what_befalls_an_engine_of_the_users_is_refused_by_the_built_in_one() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let rollout = replica(folder.path(), &host, FIRST);
    for (id, kind) in [
        (1, "kill-engine-child"),
        (2, "kill-engine-leader"),
        (3, "hang-engine"),
    ] {
        arm(&host, FIRST, &fault(id, kind, ""));
        let refused = told(&host, FIRST).refused;
        assert!(refused.contains("no engine of its own"), "{refused}");
    }
    rollout.end(&host);
}

#[test]
fn weights_that_change_while_they_are_pulled_are_found_before_they_are_served() {
    let scene = scene();
    arm(&scene.host, SECOND, &fault(1, "corrupt-weights", "pull"));
    scene
        .host
        .send(SECOND, Down::Pull(scene.trainer.pull_all()));
    struck(&scene.host, SECOND, 1);
    let error = match scene.host.pull_done(SECOND).result.unwrap() {
        Outcome::Error(error) => error,
        Outcome::Ok(_) => panic!("it serves what nobody published"),
    };
    assert_eq!((error.kind.as_str(), error.source), ("damaged", 0));
    let all = scene.trainer.manifest.chunk_xxh3.len();
    let words = format!("{all} of {all} chunks of v1 that it pulled");
    assert_eq!(error.reason, words);
    // Nothing of it is kept: ordered again, all of it comes again, and is sound.
    scene.end();
}

#[test]
fn a_replica_that_is_left_paused_says_so_and_goes_on_when_its_time_is_over() {
    let scene = scene();
    let mut pause = fault(1, "pause-engine", "");
    pause.seconds = 0.3;
    arm(&scene.host, FIRST, &pause);
    // That it struck and that the engine is paused are told by two threads, in either order.
    let (mut struck, mut phases) = (false, ["paused", "idle"].into_iter().peekable());
    scene
        .host
        .wait("a strike, a pause and its end", |from, up| {
            match up {
                _ if from != FIRST => {}
                Up::Struck(told) => struck = told.refused.is_empty() && told.id == 1,
                Up::Phase(phase) => {
                    phases.next_if(|expected| phase.phase == *expected);
                }
                _ => {}
            }
            (struck && phases.peek().is_none()).then_some(())
        });
    scene.end();
}

#[test]
fn a_replica_whose_weights_change_says_so_though_nobody_pulls_from_it() {
    let scene = scene();
    arm(&scene.host, FIRST, &fault(1, "corrupt-weights", ""));
    struck(&scene.host, FIRST, 1);
    let damaged = scene
        .host
        .wait("what the scrub finds", |from, up| match up {
            Up::Damaged(damaged) if from == FIRST => Some(damaged),
            _ => None,
        });
    let all = scene.trainer.manifest.chunk_xxh3.len() as u64;
    assert_eq!(
        (damaged.version, damaged.chunks, damaged.chunks_total),
        (scene.trainer.manifest.version, all, all)
    );
    scene.end();
}

#[test]
fn a_source_that_is_cut_or_silent_fails_a_pull_and_another_one_serves() {
    for (kind, told, at) in [
        ("stall-network", FIRST, ""),
        ("stall-network", SECOND, "pull"),
        ("cut-network", FIRST, ""),
        ("cut-network", SECOND, ""),
    ] {
        let scene = scene();
        let peer = if told == FIRST {
            &scene.second
        } else {
            &scene.first
        };
        arm(&scene.host, told, &scene.network(1, kind, at, peer));
        if at.is_empty() {
            struck(&scene.host, told, 1);
        }
        let error = scene.fails();
        let got = (error.kind.as_str(), error.source);
        assert_eq!(got, ("source", FIRST), "{kind} at {told}: {error:?}");
        scene.end();
    }
}
