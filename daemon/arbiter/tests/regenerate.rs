//! The checked-in code is what the .proto files say. `UPDATE_PROTO=1 cargo test -p robust-arbiter`
//! writes it anew.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
use std::path::Path;

#[test]
fn checked_in_code_is_what_the_proto_files_generate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let protos = root.join("proto");
    let files = ["kv", "rpc"].map(|f| protos.join(format!("{f}.proto")));
    let descriptors = protox::compile(&files, [&protos]).expect("the .proto files compile");
    let out = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .out_dir(out.path())
        .build_server(false)
        .emit_rerun_if_changed(false)
        .compile_fds(descriptors)
        .expect("code is generated");
    for package in ["mvccpb.rs", "etcdserverpb.rs"] {
        let made = std::fs::read_to_string(out.path().join(package)).unwrap();
        let kept = root.join("src/generated").join(package);
        if std::env::var_os("UPDATE_PROTO").is_some() {
            std::fs::write(&kept, &made).unwrap();
        }
        let checked_in = std::fs::read_to_string(&kept).unwrap_or_default();
        assert!(
            made == checked_in,
            "run UPDATE_PROTO=1 cargo test -p robust-arbiter"
        );
    }
}
