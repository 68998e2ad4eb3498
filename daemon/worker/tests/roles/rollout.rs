//! Replicas that pull weights and generate.

use std::net::SocketAddr;
use std::sync::Arc;

use robust_proto::manifest::{self, to_proto};
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::pull_done::Result as Outcome;
use robust_proto::v1::{
    ByteRange, Manifest, PullSource, PullWeights, Region, ServedVersion, Shutdown,
};
use robust_role::LinkEnd;
use robust_shared::ids::WeightVersion;
use robust_shared::weights;
use robust_transport::{Buffer, Config, Exposed, Transport};
use robust_worker::manifest::tensor_specs;
use robust_worker::rollout;
use serde_json::{Value, json};

use super::fixture::{Running, args, client, engines, model, runtime, token};
use host_fake::FakeHost;

/// Somebody who serves a version, as a trainer rank does.
pub struct Source {
    transport: Transport,
    exposed: Exposed,
    pub manifest: Manifest,
}

const SOURCE: u64 = 99;
const CHUNK_BYTES: u64 = 4096;

pub fn source(seed: u64, version: u64) -> Source {
    let model = model(seed);
    let transport = Transport::start(Config::new(token())).unwrap();
    let buffer = Buffer::new(model.params().len_bytes()).unwrap();
    buffer.write_at(0, model.params().as_bytes()).unwrap();
    let tensors = tensor_specs(model.params().layout());
    let bytes = model.params().as_bytes();
    let manifest =
        weights::Manifest::build(WeightVersion(version), bytes, CHUNK_BYTES, tensors).unwrap();
    let manifest = manifest.named_by(bytes).unwrap();
    let exposed = transport.expose(buffer).unwrap();
    Source {
        transport,
        exposed,
        manifest: to_proto(&manifest),
    }
}

fn part(first_chunk: u64, chunk_count: u64) -> ByteRange {
    let src = first_chunk * CHUNK_BYTES;
    ByteRange {
        src,
        dst: src,
        bytes: chunk_count.saturating_mul(CHUNK_BYTES),
    }
}

impl Source {
    fn chunks(&self) -> u64 {
        self.manifest.chunk_xxh3.len() as u64
    }

    /// Of so many chunks from the first one on.
    fn serving(&self, first_chunk: u64, chunk_count: u64) -> PullSource {
        let bytes = self.exposed.buffer().len() as u64;
        let region = Region {
            key: self.exposed.key().to_bytes(),
            bytes,
            patches: Vec::new(),
        };
        let transport_addr = self.transport.addr().to_string();
        let region = Some(region);
        PullSource {
            incarnation: SOURCE,
            transport_addr,
            region,
            parts: vec![part(first_chunk, chunk_count)],
            starts: Vec::new(),
        }
    }

    pub fn pull(&self, sources: Vec<PullSource>) -> PullWeights {
        let manifest = Some(self.manifest.clone());
        PullWeights {
            version: self.manifest.version,
            manifest,
            sources,
            canary: None,
            order: 7,
        }
    }

    pub fn pull_all(&self) -> PullWeights {
        self.pull(vec![self.serving(0, self.chunks())])
    }
}

pub struct Replica {
    incarnation: u64,
    running: Running,
    http: SocketAddr,
    pub transport_addr: String,
}

pub fn replica(folder: &std::path::Path, host: &FakeHost, incarnation: u64) -> Replica {
    let running = Running::start(args(folder, host, 0, incarnation), rollout::run_rollout);
    let hello = host.hello(incarnation);
    assert_eq!(hello.version, None);
    let http = hello.http_addr.parse().unwrap();
    Replica {
        incarnation,
        running,
        http,
        transport_addr: hello.transport_addr,
    }
}

impl Replica {
    pub fn pull(&self, host: &FakeHost, pull: PullWeights) -> Outcome {
        let order = pull.order;
        host.send(self.incarnation, Down::Pull(pull));
        let done = host.pull_done(self.incarnation);
        assert_eq!(done.order, order, "it says which order it answers");
        done.result.unwrap()
    }

    pub fn pulled(&self, host: &FakeHost, pull: PullWeights) -> ServedVersion {
        match self.pull(host, pull) {
            Outcome::Ok(served) => served,
            Outcome::Error(error) => panic!("{error:?}"),
        }
    }

    fn post(&self, path: &str, body: &Value) -> Value {
        let request = client(&engines().of_engine(self.incarnation))
            .post(format!("http://{}{path}", self.http))
            .header("content-type", "application/json")
            .body(body.to_string());
        runtime().block_on(async {
            let response = request.send().await.unwrap();
            serde_json::from_str(&response.text().await.unwrap()).unwrap()
        })
    }

    /// A source that has what it serves of the trainer's version.
    pub fn relaying(&self, served: ServedVersion, of: &Source) -> PullSource {
        PullSource {
            incarnation: self.incarnation,
            transport_addr: self.transport_addr.clone(),
            region: served.region,
            parts: vec![part(0, of.chunks())],
            starts: Vec::new(),
        }
    }

    pub fn get(&self, path: &str) -> Value {
        let client = client(&engines().of_engine(self.incarnation));
        let request = client.get(format!("http://{}{path}", self.http));
        runtime().block_on(async {
            let response = request.send().await.unwrap();
            serde_json::from_str(&response.text().await.unwrap()).unwrap()
        })
    }

    pub fn end(self, host: &FakeHost) {
        host.send(self.incarnation, Down::Shutdown(Shutdown {}));
        assert_eq!(self.running.end(), LinkEnd::Shutdown);
    }
}

fn request(ids: &[u64], max_new_tokens: usize) -> Value {
    json!({
        "input_ids": ids, "trajectory": 77, "seed": 5, "return_logprob": true,
        "sampling_params": {"max_new_tokens": max_new_tokens, "temperature": 1.0,
            "ignore_eos": true},
    })
}

fn ids(reply: &Value) -> Vec<u64> {
    reply["output_ids"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_u64().unwrap())
        .collect()
}

#[test]
fn a_sequence_resumed_at_another_replica_continues_with_the_same_tokens() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let trainer = source(5, 1);
    let first = replica(folder.path(), &host, 1);
    let half = trainer.chunks() / 2;
    let halves = vec![
        trainer.serving(0, half),
        trainer.serving(half, trainer.chunks() - half),
    ];
    let served = first.pulled(&host, trainer.pull(halves));
    assert_eq!(served.manifest.as_ref(), Some(&trainer.manifest));
    let published = manifest::from_proto(&trainer.manifest).unwrap();
    let digest = first.get("/weights_digest");
    assert_eq!(digest["digest"], published.digest_hex());
    assert_eq!(digest["weight_version"], "1");
    // The second one pulls from the first: a relay.
    let second = replica(folder.path(), &host, 2);
    let relay = first.relaying(served, &trainer);
    second.pulled(&host, trainer.pull(vec![relay]));
    let prompt = [1, 8, 9, 17, 10, 11, 22];
    let whole = first.post("/generate", &request(&prompt, 30));
    let expected = ids(&whole);
    assert_eq!(expected.len(), 30);
    for cut in [1, 7, 29] {
        let so_far = [&prompt[..], &expected[..cut]].concat();
        let rest = second.post("/generate", &request(&so_far, 30 - cut));
        assert_eq!(ids(&rest), expected[cut..], "resumed after {cut}");
        let logprobs = |reply: &Value, skip: usize| {
            reply["meta_info"]["output_token_logprobs"]
                .as_array()
                .unwrap()[skip..]
                .to_vec()
        };
        assert_eq!(logprobs(&rest, 0), logprobs(&whole, cut));
    }
    first.end(&host);
    second.end(&host);
}

#[test]
fn a_bad_pull_leaves_what_is_served_and_the_rest_is_pulled_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let (old, new) = (source(5, 1), source(6, 2));
    let replica = replica(folder.path(), &host, 1);
    replica.pulled(&host, old.pull_all());
    let before = replica.post("/generate", &request(&[1, 2, 3], 8));
    // One byte of the last chunk differs from what was published.
    let last = new.exposed.buffer().len() - 1;
    let mut byte = [0];
    new.exposed.buffer().read_at(last, &mut byte).unwrap();
    new.exposed.buffer().write_at(last, &[byte[0] ^ 1]).unwrap();
    let Outcome::Error(error) = replica.pull(&host, new.pull_all()) else {
        panic!("served")
    };
    assert_eq!((error.kind.as_str(), error.source), ("corrupt", SOURCE));
    let last_chunk = new.chunks() - 1;
    assert!(
        error
            .reason
            .contains(&format!("chunk {last_chunk} is corrupt")),
        "{}",
        error.reason
    );
    assert_eq!(
        ids(&replica.post("/generate", &request(&[1, 2, 3], 8))),
        ids(&before)
    );
    // A dead source is named.
    let nobody = PullSource {
        transport_addr: "127.0.0.1:1".into(),
        ..new.serving(0, 1 << 40)
    };
    let Outcome::Error(error) = replica.pull(&host, new.pull(vec![nobody])) else {
        panic!("served")
    };
    assert_eq!(error.kind, "source");
    new.exposed.buffer().write_at(last, &byte).unwrap();
    // How much came before the first failure ended the pull is chance: all is offered again.
    replica.pulled(&host, new.pull_all());
    let after = replica.post("/generate", &request(&[1, 2, 3], 8));
    assert_eq!(after["meta_info"]["weight_version"], "2");
    assert_ne!(
        after["meta_info"]["output_token_logprobs"],
        before["meta_info"]["output_token_logprobs"]
    );
    // Versions never go back.
    let Outcome::Error(error) = replica.pull(&host, old.pull_all()) else {
        panic!("went back")
    };
    assert_eq!(error.kind, "superseded");
    replica.end(&host);
}

#[test]
fn requests_go_on_through_a_change_of_weights() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let (old, new) = (source(5, 1), source(6, 2));
    let replica = Arc::new(replica(folder.path(), &host, 1));
    replica.pulled(&host, old.pull_all());
    replica.post("/pause_generation", &json!({"mode": "in_place"}));
    let waiting = std::thread::spawn({
        let replica = Arc::clone(&replica);
        move || replica.post("/generate", &request(&[1, 2, 3], 8))
    });
    replica.pulled(&host, new.pull_all());
    replica.post("/continue_generation", &json!({}));
    let reply = waiting.join().unwrap();
    assert_eq!(ids(&reply).len(), 8);
    let expected = replica.post("/generate", &request(&[1, 2, 3], 8));
    assert_eq!(ids(&reply), ids(&expected));
    assert_eq!(reply["meta_info"]["weight_version"], "2");
    Arc::into_inner(replica).unwrap().end(&host);
}

#[test]
fn an_assignment_replaces_the_one_that_is_stuck() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let (old, new) = (source(5, 1), source(6, 2));
    let replica = replica(folder.path(), &host, 1);
    // Accepts connections and never says a word.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let transport_addr = silent.local_addr().unwrap().to_string();
    let stuck = PullSource {
        transport_addr,
        ..old.serving(0, old.chunks())
    };
    host.send(1, Down::Pull(old.pull(vec![stuck])));
    host.send(1, Down::Pull(new.pull_all()));
    let first = host.pull_done(1);
    assert!(matches!(first.result, Some(Outcome::Error(_))), "{first:?}");
    let second = host.pull_done(1);
    assert!(matches!(second.result, Some(Outcome::Ok(_))), "{second:?}");
    assert_eq!((first.version, second.version), (1, 2));
    replica.end(&host);
}
