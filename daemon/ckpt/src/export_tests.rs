#![allow(clippy::unwrap_used)]
use super::*;
use crate::{Shard, manifest};
use robust_shared::ids::{Generation, Step};
use robust_shared::weights::TensorSpec;
use safetensors::SafeTensors;
use serde_json::json;
use tempfile::TempDir;
use xxhash_rust::xxh3::xxh3_64;

const ELEMENTS: usize = 300_007;

fn weights() -> Vec<u8> {
    (0..ELEMENTS)
        .flat_map(|i| (i as f32 * 0.5 - 7.0).to_le_bytes())
        .collect()
}

/// A rank's image as the trainer writes it: header of a page, then three tensors.
fn image(range: Range<usize>) -> Vec<u8> {
    let bytes = range.len() * 4;
    let tensor = |n: usize| json!({"dtype": "F32", "shape": [range.len()], "data_offsets": [n * bytes, (n + 1) * bytes]});
    let text = json!({
        "__metadata__": {"first": format!("{:020}", range.start)},
        "params": tensor(0), "adam_m": tensor(1), "adam_v": tensor(2),
    });
    let mut text = text.to_string().into_bytes();
    text.resize(4088, b' ');
    let mut image = (text.len() as u64).to_le_bytes().to_vec();
    image.append(&mut text);
    image.extend(&weights()[range.start * 4..range.end * 4]);
    image.extend(vec![7; bytes * 2]);
    image
}

fn checkpoint(dir: &TempDir) -> Checkpoint {
    let (folder, cut) = (dir.path().join("step-5"), 100_001);
    std::fs::create_dir(&folder).unwrap();
    let shard = |(rank, range)| {
        let (path, bytes) = (folder.join(manifest::shard_file(rank)), image(range));
        std::fs::write(&path, &bytes).unwrap();
        Shard {
            rank,
            path,
            bytes: bytes.len() as u64,
            xxh3: xxh3_64(&bytes),
        }
    };
    let tensor = |name: &str, shape: Vec<u64>, offset: u64| TensorSpec {
        name: name.to_owned(),
        dtype: "F32".to_owned(),
        bytes: shape.iter().product::<u64>() * 4,
        shape,
        offset,
    };
    let made = Checkpoint {
        step: Step(5),
        generation: Generation(1),
        shards: [(0, 0..cut), (1, cut..ELEMENTS)].map(shard).into(),
        consumed: Vec::new(),
        reward: Some(0.5),
        at: None,
        adam_step: Some(9),
        tensors: vec![
            tensor("embed", vec![100_000, 3], 0),
            tensor("norm", vec![7], 1_200_000),
        ],
        dir: folder,
    };
    manifest::store(&RealDisk, &made).unwrap();
    made
}

/// Where config and tokenizer come from.
fn model(dir: &TempDir) -> (PathBuf, PathBuf) {
    let model = dir.path().join("model");
    std::fs::create_dir(&model).unwrap();
    std::fs::write(model.join(CONFIG), r#"{"model_type": "qwen3"}"#).unwrap();
    let tokenizer = dir.path().join("tokenizer.json");
    std::fs::write(&tokenizer, "{}").unwrap();
    (model, tokenizer)
}

#[test]
fn the_weights_of_all_ranks_come_out_as_the_models_tensors() {
    let dir = tempfile::tempdir().unwrap();
    let (ckpt, (model, tokenizer)) = (checkpoint(&dir), model(&dir));
    let (to, mut seen) = (dir.path().join("out"), 0);
    let exported = export(&ckpt, &model, &tokenizer, &to, &mut |n| seen += n).unwrap();
    assert_eq!(
        (exported.bytes, seen),
        (ELEMENTS as u64 * 4, ELEMENTS as u64 * 4)
    );
    let bytes = std::fs::read(to.join(WEIGHTS)).unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let both = [file.tensor("embed").unwrap(), file.tensor("norm").unwrap()];
    assert_eq!(
        [both[0].shape(), both[1].shape()],
        [&[100_000, 3][..], &[7]]
    );
    assert!(both[0].data().iter().chain(both[1].data()).eq(&weights()));
    for name in exported.files {
        assert!(to.join(&name).exists(), "{name}");
    }
    let again = export(&ckpt, &model, &tokenizer, &to, &mut |_| ()).unwrap_err();
    assert!(again.to_string().contains("it exists"), "{again}");
}

#[test]
fn a_flipped_bit_is_named_and_leaves_no_folder() {
    let dir = tempfile::tempdir().unwrap();
    let (ckpt, (model, tokenizer)) = (checkpoint(&dir), model(&dir));
    let path = &ckpt.shards[1].path;
    let mut bytes = std::fs::read(path).unwrap();
    *bytes.last_mut().unwrap() ^= 1; // the optimiser's, which are not even exported
    std::fs::write(path, bytes).unwrap();
    let to = dir.path().join("out");
    let error = export(&ckpt, &model, &tokenizer, &to, &mut |_| ()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rank-1.safetensors: it does not match"),
        "{error}"
    );
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().contains("out")),
        "{left:?}"
    );
}

#[test]
fn a_manifest_of_an_earlier_build_is_read_and_says_why_it_cannot_be_exported() {
    let dir = tempfile::tempdir().unwrap();
    let (mut ckpt, (model, tokenizer)) = (checkpoint(&dir), model(&dir));
    (ckpt.tensors, ckpt.reward, ckpt.at) = (Vec::new(), None, None);
    manifest::store(&RealDisk, &ckpt).unwrap();
    let text = std::fs::read_to_string(ckpt.dir.join(manifest::FILE)).unwrap();
    assert!(
        !text.contains("\"reward\"") && !text.contains("\"tensors\""),
        "as earlier builds wrote it"
    );
    let old = manifest::load(&ckpt.dir).unwrap().unwrap();
    assert_eq!(old, ckpt);
    let to = dir.path().join("out");
    let error = export(&old, &model, &tokenizer, &to, &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("names no tensors"), "{error}");
}
