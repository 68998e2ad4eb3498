//! Looking at a Hugging Face folder before a job begins from it.
use crate::{CkptError, WeightFiles};
use std::path::{Path, PathBuf};

/// A model folder that a job can begin from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The folder, absolute.
    pub folder: PathBuf,
    /// Number of tensors.
    pub tensors: usize,
    /// Bytes of all tensors.
    pub bytes: u64,
    /// Its tokenizer, if it has one.
    pub tokenizer: Option<PathBuf>,
}

/// Checks architecture, the weights' headers and files' lengths. That every tensor has the architecture's
/// shape is checked by the roles when they load it.
pub fn look_at(folder: &Path) -> Result<Imported, CkptError> {
    let folder = folder
        .canonicalize()
        .map_err(CkptError::io("read", folder))?;
    let config = folder.join("config.json");
    let text = std::fs::read(&config).map_err(CkptError::io("read", &config))?;
    let json: serde_json::Value =
        serde_json::from_slice(&text).map_err(|e| CkptError::bad(&config, e.to_string()))?;
    match json.get("model_type").and_then(serde_json::Value::as_str) {
        Some("qwen3") => {}
        other => {
            let reason = format!("its model_type is {other:?}; roles can load `qwen3`");
            return Err(CkptError::bad(&config, reason));
        }
    }
    let tensors = WeightFiles::find(&folder)?.tensors()?;
    let bytes = tensors.values().map(|tensor| tensor.bytes).sum();
    let tensors = tensors.len();
    let tokenizer = Some(folder.join("tokenizer.json")).filter(|t| t.exists());
    Ok(Imported {
        folder,
        tensors,
        bytes,
        tokenizer,
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn folder(model_type: &str, cut: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let config = format!("{{\"model_type\": \"{model_type}\"}}");
        std::fs::write(dir.path().join("config.json"), config).unwrap();
        let data = [0; 24];
        let view = safetensors::tensor::TensorView::new(safetensors::Dtype::F32, vec![2, 3], &data);
        let bytes = safetensors::serialize([("w", view.unwrap())], None).unwrap();
        let path = dir.path().join("model.safetensors");
        std::fs::write(path, &bytes[..bytes.len() - cut]).unwrap();
        dir
    }

    #[test]
    fn a_whole_folder_of_the_architecture_is_taken() {
        let dir = folder("qwen3", 0);
        let found = look_at(dir.path()).unwrap();
        assert_eq!((found.tensors, found.bytes, found.tokenizer), (1, 24, None));
        assert!(found.folder.is_absolute());
    }

    #[test]
    fn another_architecture_and_a_file_cut_short_are_named() {
        let error = look_at(folder("llama", 0).path()).unwrap_err().to_string();
        assert!(
            error.contains("llama") && error.contains("qwen3"),
            "{error}"
        );
        let error = look_at(folder("qwen3", 5).path()).unwrap_err().to_string();
        assert!(error.contains("its header says"), "{error}");
        let error = look_at(Path::new("/nowhere")).unwrap_err().to_string();
        assert!(error.contains("cannot read /nowhere"), "{error}");
    }
}
