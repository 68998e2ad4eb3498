//! The model against the `transformers` library, and its files.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use robust_worker::model::config::Qwen3Config;
use robust_worker::model::flat::layout_of;
use robust_worker::model::qwen3::{KvCache, Qwen3, Rows};
use robust_worker::model::{hf, single_thread};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use tch::{IndexOp, Kind, Tensor};

fn tiny() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/qwen3_tiny")
}

/// Input ids and the logits that `transformers` computed for them.
fn expected() -> (Tensor, Tensor) {
    let data = std::fs::read(tiny().join("expected.safetensors")).unwrap();
    let file = SafeTensors::deserialize(&data).unwrap();
    let tensor = |name: &str, kind: Kind| {
        let view = file.tensor(name).unwrap();
        let shape: Vec<i64> = view.shape().iter().map(|&size| size as i64).collect();
        Tensor::from_data_size(view.data(), &shape, kind)
    };
    (tensor("ids", Kind::Int64), tensor("logits", Kind::Float))
}

fn distance(a: &Tensor, b: &Tensor) -> f64 {
    (a - b).abs().max().double_value(&[])
}

#[test]
fn the_training_forward_agrees_with_transformers_to_1e_4() {
    single_thread();
    let model = hf::load(&tiny()).unwrap();
    let (ids, logits) = expected();
    let ours = tch::no_grad(|| model.forward(&ids));
    let error = distance(&ours, &logits);
    assert!(error < 1e-4, "largest difference {error}");
}

#[test]
fn the_incremental_forward_agrees_with_transformers_to_1e_4() {
    single_thread();
    let model = hf::load(&tiny()).unwrap();
    let (ids, logits) = expected();
    let (sequences, length) = ids.size2().unwrap();
    let mut cache = KvCache::new(model.config(), sequences as usize, 64);
    let mut worst: f64 = 0.0;
    // Seven positions of each sequence at a time: prompts and single tokens in one form.
    for start in (0..length).step_by(7) {
        let mut rows = Rows::default();
        let end = (start + 7).min(length);
        for (slot, position) in
            (0..sequences).flat_map(|slot| (start..end).map(move |at| (slot, at)))
        {
            rows.tokens.push(ids.int64_value(&[slot, position]));
            rows.positions.push(position);
            rows.slots.push(slot);
        }
        let ours = tch::no_grad(|| model.forward_rows(&mut cache, &rows));
        let ours = ours.view([sequences, end - start, -1]);
        worst = worst.max(distance(&ours, &logits.i((.., start..end))));
    }
    assert!(worst < 1e-4, "largest difference {worst}");
}

#[test]
fn padding_on_the_right_changes_no_real_position() {
    single_thread();
    let model = hf::load(&tiny()).unwrap();
    let (ids, logits) = expected();
    let padded = Tensor::cat(
        &[ids.i((.., ..20)), Tensor::zeros_like(&ids.i((.., ..12)))],
        1,
    );
    let ours = tch::no_grad(|| model.forward(&padded));
    assert!(distance(&ours.i((.., ..20)), &logits.i((.., ..20))) < 1e-4);
}

#[test]
fn a_saved_model_loads_with_the_same_bytes() {
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("model");
    let model = Qwen3::random(Qwen3Config::demo(24), 3).unwrap();
    hf::save(&model, &target).unwrap();
    // The second save replaces the first.
    hf::save(&model, &target).unwrap();
    let loaded = hf::load(&target).unwrap();
    assert_eq!(loaded.config(), model.config());
    assert_eq!(loaded.params().as_bytes(), model.params().as_bytes());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "no partial folder stays: {left:?}");
}

#[test]
fn an_untied_model_has_an_output_layer_of_its_own() {
    let config = Qwen3Config {
        tie_word_embeddings: false,
        ..Qwen3Config::demo(24)
    };
    let folder = tempfile::tempdir().unwrap();
    let target = folder.path().join("model");
    let model = Qwen3::random(config, 3).unwrap();
    hf::save(&model, &target).unwrap();
    let loaded = hf::load(&target).unwrap();
    assert!(loaded.params().view("lm_head.weight").is_some());
    assert_eq!(loaded.params().as_bytes(), model.params().as_bytes());
}

#[test]
fn bfloat16_and_float16_weights_load_as_their_exact_values() {
    let config = Qwen3Config {
        num_hidden_layers: 1,
        ..Qwen3Config::demo(24)
    };
    for (dtype, one_and_a_half) in [(Dtype::BF16, 0x3fc0u16), (Dtype::F16, 0x3e00)] {
        let folder = tempfile::tempdir().unwrap();
        let text = serde_json::to_string(&config).unwrap();
        std::fs::write(folder.path().join("config.json"), text).unwrap();
        let layout = layout_of(&config);
        let data: Vec<Vec<u8>> = layout
            .iter()
            .map(|spec| one_and_a_half.to_le_bytes().repeat(spec.len))
            .collect();
        let views = layout.iter().zip(&data).map(|(spec, data)| {
            let shape = spec.shape.iter().map(|&size| size as usize).collect();
            (
                spec.name.clone(),
                TensorView::new(dtype, shape, data).unwrap(),
            )
        });
        let bytes = safetensors::serialize(views, None).unwrap();
        std::fs::write(folder.path().join("model.safetensors"), bytes).unwrap();
        let model = hf::load(folder.path()).unwrap();
        let flat = model.params().tensor();
        assert_eq!(flat.min().double_value(&[]), 1.5);
        assert_eq!(flat.max().double_value(&[]), 1.5);
    }
}

/// Writes a model's tensors to files of a folder, the first `of_first` of them to the first, with an
/// index.
fn save_sharded(model: &Qwen3, folder: &Path, of_first: usize) {
    hf::save(model, folder).unwrap();
    let whole = folder.join("model.safetensors");
    let data = std::fs::read(&whole).unwrap();
    std::fs::remove_file(&whole).unwrap();
    let file = SafeTensors::deserialize(&data).unwrap();
    let mut map = serde_json::Map::new();
    let tensors: Vec<_> = file.iter().collect();
    for (n, part) in [&tensors[..of_first], &tensors[of_first..]]
        .iter()
        .enumerate()
    {
        let name = format!("model-{:05}-of-00002.safetensors", n + 1);
        for (tensor, _) in *part {
            map.insert((*tensor).to_owned(), name.clone().into());
        }
        let bytes = safetensors::serialize(part.iter().cloned(), None).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    }
    let index = serde_json::json!({"metadata": {}, "weight_map": map}).to_string();
    std::fs::write(folder.join("model.safetensors.index.json"), index).unwrap();
}

#[test]
fn a_sharded_model_loads_with_the_same_bytes_and_a_lost_shard_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = Qwen3::random(Qwen3Config::demo(24), 3).unwrap();
    save_sharded(&model, folder.path(), 11);
    let loaded = hf::load(folder.path()).unwrap();
    assert_eq!(loaded.params().as_bytes(), model.params().as_bytes());
    std::fs::remove_file(folder.path().join("model-00002-of-00002.safetensors")).unwrap();
    let error = hf::load(folder.path()).unwrap_err().to_string();
    assert!(
        error.starts_with("model weights: cannot read") && error.contains("model-00002-of-00002"),
        "{error}"
    );
}

#[test]
fn a_type_that_is_no_weights_is_refused_before_anything_changes() {
    let folder = tempfile::tempdir().unwrap();
    let mut model = Qwen3::random(Qwen3Config::demo(24), 3).unwrap();
    hf::save(&model, folder.path()).unwrap();
    let path = folder.path().join("model.safetensors");
    let data = std::fs::read(&path).unwrap();
    let file = SafeTensors::deserialize(&data).unwrap();
    let last = model.params().layout().last().unwrap().name.clone();
    let views = file.iter().map(|(name, view)| {
        let dtype = if name == last {
            Dtype::I32
        } else {
            view.dtype()
        };
        let shape = view.shape().to_vec();
        (name, TensorView::new(dtype, shape, view.data()).unwrap())
    });
    let bytes = safetensors::serialize(views, None).unwrap();
    std::fs::write(&path, bytes).unwrap();
    let before = model.params().as_bytes().to_vec();
    let error = hf::load_into(&mut model, folder.path()).unwrap_err();
    let why = format!("tensor {last}: has type I32, expected F32, BF16 or F16");
    assert!(error.to_string().ends_with(&why), "{error}");
    assert_eq!(model.params().as_bytes(), before);
}

#[test]
fn refused_models_say_what_is_wrong_with_which_file() {
    let folder = tempfile::tempdir().unwrap();
    let message = |config: &Qwen3Config| {
        let text = serde_json::to_string(config).unwrap();
        std::fs::write(folder.path().join("config.json"), text).unwrap();
        hf::load(folder.path()).unwrap_err().to_string()
    };
    let demo = Qwen3Config::demo(24);
    let bad = Qwen3Config {
        num_key_value_heads: 3,
        ..demo.clone()
    };
    assert!(message(&bad).contains("num_key_value_heads must divide"));
    let bad = Qwen3Config {
        model_type: "llama".into(),
        ..demo.clone()
    };
    assert!(message(&bad).contains("model_type is \"llama\""));
    assert!(message(&demo).contains("it has neither model.safetensors nor"));
    hf::save(&Qwen3::random(demo.clone(), 1).unwrap(), folder.path()).unwrap();
    let bad = Qwen3Config {
        intermediate_size: 256,
        ..demo.clone()
    };
    assert!(message(&bad).contains("tensor model.layers.0.mlp.down_proj.weight: has shape"));
    let bad = Qwen3Config {
        num_hidden_layers: 3,
        ..demo.clone()
    };
    assert!(message(&bad).contains("not part of this architecture"));
    let bad = Qwen3Config {
        num_hidden_layers: 5,
        ..demo
    };
    assert!(message(&bad).contains("tensor model.layers.4.input_layernorm.weight: missing"));
}

#[test]
fn the_flat_buffer_is_in_order_without_gaps_and_its_views_share_it() {
    let mut model = Qwen3::random(Qwen3Config::demo(24), 9).unwrap();
    let mut end = 0;
    for pair in model.params().layout().windows(2) {
        assert!(pair[0].name < pair[1].name);
    }
    for spec in model.params().layout() {
        assert_eq!(spec.offset, end);
        end += spec.len;
    }
    assert_eq!(end, model.params().len());
    let bytes: Vec<u8> = 2.5f32.to_le_bytes().repeat(end);
    model.params_mut().copy_from_bytes(&bytes).unwrap();
    let view = model.params().view("model.norm.weight").unwrap();
    assert_eq!(view.double_value(&[5]), 2.5);
    let short = model.params_mut().copy_from_bytes(&bytes[4..]).unwrap_err();
    assert_eq!((short.expected, short.got), (bytes.len(), bytes.len() - 4));
}
