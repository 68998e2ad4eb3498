//! How much memory weights take: two versions, and nothing that grows with them beside that.

use std::process::Stdio;
use std::sync::Arc;

use robust_proto::manifest::to_proto;
use robust_proto::v1::host_message::Body as Down;
use robust_proto::v1::pull_done::Result as Outcome;
use robust_proto::v1::{ByteRange, PullSource, PullWeights, Region, Shutdown};
use robust_shared::ids::WeightVersion;
use robust_shared::weights::Manifest;
use robust_transport::{Buffer, Config, Transport};
use robust_worker::manifest::tensor_specs;
use robust_worker::model::config::Qwen3Config;
use robust_worker::model::flat::layout_of;

use super::fixture::token;
use super::process::{command, start};
use host_fake::FakeHost;

const MIB: u64 = 1 << 20;
/// Beyond two versions: link, kernels, and pieces on their way.
const SLACK: u64 = 48 * MIB;

/// A model of 96 MiB or so, nearly all of it one table: quick to compute with.
fn large() -> Qwen3Config {
    Qwen3Config {
        hidden_size: 64,
        num_hidden_layers: 1,
        num_attention_heads: 1,
        num_key_value_heads: 1,
        head_dim: 64,
        intermediate_size: 64,
        max_position_embeddings: 32,
        ..Qwen3Config::demo(393_216)
    }
}

/// Resident memory of a process now and at its worst, in bytes.
fn resident(pid: u32) -> (u64, u64) {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

#[test]
fn a_rollout_holds_two_versions_of_the_weights_and_no_third() {
    let folder = tempfile::tempdir().unwrap();
    let host = FakeHost::start(folder.path());
    let shape = large();
    let model = folder.path().join("model");
    std::fs::create_dir_all(&model).unwrap();
    std::fs::write(
        model.join("config.json"),
        serde_json::to_vec(&shape).unwrap(),
    )
    .unwrap();
    let mut command = command(folder.path(), &host, "rollout", 0, 0);
    let mut process = start(command.stderr(Stdio::null()));
    let pid = process.0.id();
    host.hello(0);
    let layout = layout_of(&shape);
    let bytes: usize = layout.iter().map(|spec| spec.len * 4).sum();
    assert!(bytes as u64 > 90 * MIB);
    // What the process takes without the weights: its two slots are there from the start.
    let base = resident(pid).0 - 2 * bytes as u64;
    let transport = Transport::start(Config::new(token())).unwrap();
    for version in 1..=3 {
        let buffer = Buffer::new(bytes).unwrap();
        let fill = |all: &mut [u8]| all.iter_mut().step_by(61).for_each(|b| *b = version as u8);
        buffer.with_bytes_mut(fill).unwrap();
        let of = |all: &[u8]| {
            let built = Manifest::build(WeightVersion(version), all, MIB, tensor_specs(&layout));
            built.unwrap().named_by(all).unwrap()
        };
        let manifest = to_proto(&buffer.with_bytes(of).unwrap());
        let exposed = transport.expose(Arc::clone(&buffer)).unwrap();
        let (src, dst, bytes) = (0, 0, bytes as u64);
        let source = PullSource {
            incarnation: 99,
            transport_addr: transport.addr().to_string(),
            region: Some(Region {
                key: exposed.key().to_bytes(),
                bytes,
                patches: Vec::new(),
            }),
            parts: vec![ByteRange { src, dst, bytes }],
            starts: Vec::new(),
        };
        let pull = PullWeights {
            version,
            manifest: Some(manifest),
            sources: vec![source],
            canary: None,
            order: 1,
        };
        host.send(0, Down::Pull(pull));
        let done = host.pull_done(0).result.unwrap();
        assert!(matches!(done, Outcome::Ok(_)), "{done:?}");
    }
    let (_, most) = resident(pid);
    println!(
        "{} MiB of weights: at most {} MiB, without weights {} MiB",
        bytes as u64 / MIB,
        most / MIB,
        base / MIB
    );
    assert!(most < base + 2 * bytes as u64 + SLACK);
    host.send(0, Down::Shutdown(Shutdown {}));
    assert_eq!(process.wait(), 0);
}
