//! The weights of a model in Hugging Face's folder form: one file, or shards with an index.
//!
//! ```text
//! FOLDER/model.safetensors                        all tensors; looked for first, as other readers do
//!
//! FOLDER/model.safetensors.index.json             {"weight_map": {"TENSOR": "FILE", ..}}
//!        model-00001-of-00002.safetensors         and nothing in a shard that the index has elsewhere
//!        model-00002-of-00002.safetensors
//! ```
//! Only headers are read here: memory does not grow with the model.
use crate::{CkptError, image};
use safetensors::Dtype;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// All weights in one file.
pub const WHOLE: &str = "model.safetensors";
/// Which shard has which tensor.
pub const INDEX: &str = "model.safetensors.index.json";

/// The files of a model's weights.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightFiles {
    /// The index, where there are shards.
    pub index: Option<PathBuf>,
    /// The files with tensors, in the order of their names.
    pub files: Vec<PathBuf>,
    /// The index's file of each tensor; empty without one.
    placed: BTreeMap<String, PathBuf>,
}

/// Where a tensor lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    /// Type of its elements.
    pub dtype: Dtype,
    /// Row-major shape.
    pub shape: Vec<usize>,
    /// The file.
    pub file: PathBuf,
    /// Its first byte there.
    pub at: u64,
    /// Its length in bytes.
    pub bytes: u64,
}

#[derive(Deserialize)]
struct Index {
    weight_map: BTreeMap<String, String>,
}

impl WeightFiles {
    /// The files of this folder. Shards are named by the index; whether they are there is found when
    /// they are read.
    pub fn find(folder: &Path) -> Result<Self, CkptError> {
        let (whole, index) = (folder.join(WHOLE), folder.join(INDEX));
        if whole.exists() {
            return Ok(Self {
                index: None,
                files: vec![whole],
                placed: BTreeMap::new(),
            });
        }
        if !index.exists() {
            let reason = format!("it has neither {WHOLE} nor {INDEX}");
            return Err(CkptError::bad(folder, reason));
        }
        let text = std::fs::read(&index).map_err(CkptError::io("read", &index))?;
        let parsed: Index = serde_json::from_slice(&text)
            .map_err(|e| CkptError::bad(&index, format!("it is no index of shards: {e}")))?;
        let mut placed = BTreeMap::new();
        for (tensor, name) in parsed.weight_map {
            // A name is a file's beside the index, never a way out of the folder.
            if Path::new(&name).file_name() != Some(name.as_ref()) {
                let reason = format!("tensor {tensor}: {name:?} is no name of a file");
                return Err(CkptError::bad(&index, reason));
            }
            placed.insert(tensor, folder.join(name));
        }
        let files: BTreeSet<PathBuf> = placed.values().cloned().collect();
        if files.is_empty() {
            return Err(CkptError::bad(&index, "its weight_map names no tensor"));
        }
        Ok(Self {
            index: Some(index),
            files: files.into_iter().collect(),
            placed,
        })
    }

    /// That every file can be opened: what is looked at before a job begins, however large its model.
    pub fn open(&self) -> Result<(), CkptError> {
        for path in &self.files {
            std::fs::File::open(path).map_err(CkptError::io("read", path))?;
        }
        Ok(())
    }

    /// Every tensor by its name, from the files' headers. A file must have the length that its header
    /// says, and shards must have just the tensors that the index says.
    pub fn tensors(&self) -> Result<BTreeMap<String, StoredTensor>, CkptError> {
        let mut found = BTreeMap::new();
        for path in &self.files {
            for (name, tensor) in of_file(path)? {
                self.check_place(&name, path)?;
                found.insert(name, tensor);
            }
        }
        let lost = self.placed.iter().find(|(n, _)| !found.contains_key(*n));
        match lost {
            None => Ok(found),
            Some((name, file)) => {
                let index = self.index.as_deref().unwrap_or(file).display();
                let reason = format!("it has no tensor {name}, which {index} says it has");
                Err(CkptError::bad(file, reason))
            }
        }
    }

    /// That the index, if there is one, has this tensor in this file.
    fn check_place(&self, name: &str, path: &Path) -> Result<(), CkptError> {
        let Some(index) = self.index.as_deref().map(Path::display) else {
            return Ok(());
        };
        let reason = match self.placed.get(name) {
            Some(file) if file == path => return Ok(()),
            Some(file) => format!(
                "it has tensor {name}, which {index} says is in {}",
                file.display()
            ),
            None => format!("it has tensor {name}, which {index} does not know"),
        };
        Err(CkptError::bad(path, reason))
    }
}

fn of_file(path: &Path) -> Result<Vec<(String, StoredTensor)>, CkptError> {
    let header = image::header(path)?;
    let tensors = header.tensors.tensors();
    let end = tensors.values().map(|t| t.data_offsets.1 as u64).max();
    let expected = header.data + end.unwrap_or(0);
    if header.bytes != expected {
        let there = header.bytes;
        let reason = format!("it has {there} bytes, its header says {expected}");
        return Err(CkptError::bad(path, reason));
    }
    let place = |(name, info): (String, &safetensors::tensor::TensorInfo)| {
        let (first, end) = info.data_offsets;
        let tensor = StoredTensor {
            dtype: info.dtype,
            shape: info.shape.clone(),
            file: path.to_owned(),
            at: header.data + first as u64,
            bytes: (end - first) as u64,
        };
        (name, tensor)
    };
    Ok(tensors.into_iter().map(place).collect())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use safetensors::tensor::TensorView;

    /// A shard with these tensors, each of two float32.
    fn shard(folder: &Path, name: &str, tensors: &[&str]) {
        let data = [0; 8];
        let view = || TensorView::new(Dtype::F32, vec![2], &data).unwrap();
        let tensors = tensors.iter().map(|tensor| (*tensor, view()));
        let bytes = safetensors::serialize(tensors, None).unwrap();
        std::fs::write(folder.join(name), bytes).unwrap();
    }

    fn folder(map: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let text = format!("{{\"metadata\": {{\"total_size\": 24}}, \"weight_map\": {map}}}");
        std::fs::write(dir.path().join(INDEX), text).unwrap();
        shard(dir.path(), "a.safetensors", &["x", "y"]);
        shard(dir.path(), "b.safetensors", &["z"]);
        dir
    }

    const MAP: &str = r#"{"x": "a.safetensors", "y": "a.safetensors", "z": "b.safetensors"}"#;

    fn refused(dir: &Path) -> String {
        let found = WeightFiles::find(dir).and_then(|files| files.tensors());
        found.unwrap_err().to_string()
    }

    #[test]
    fn tensors_of_all_shards_are_found_where_they_lie() {
        let dir = folder(MAP);
        let files = WeightFiles::find(dir.path()).unwrap();
        assert_eq!(files.files.len(), 2);
        let tensors = files.tensors().unwrap();
        assert_eq!(tensors.keys().collect::<Vec<_>>(), ["x", "y", "z"]);
        assert_eq!(tensors["y"].at, tensors["x"].at + 8);
        assert_eq!(tensors["z"].file, dir.path().join("b.safetensors"));
    }

    #[test]
    fn a_file_with_everything_is_taken_before_an_index() {
        let dir = folder("{}");
        shard(dir.path(), WHOLE, &["x"]);
        let files = WeightFiles::find(dir.path()).unwrap();
        assert_eq!((files.index.as_ref(), files.files.len()), (None, 1));
        assert_eq!(files.tensors().unwrap().len(), 1);
    }

    #[test]
    fn shards_that_are_not_what_the_index_says_are_named() {
        let dir = folder(MAP);
        std::fs::remove_file(dir.path().join("b.safetensors")).unwrap();
        assert!(WeightFiles::find(dir.path()).unwrap().open().is_err());
        let error = refused(dir.path());
        assert!(error.contains("cannot read") && error.contains("b.safetensors"));
        shard(dir.path(), "b.safetensors", &[]);
        let error = refused(dir.path());
        assert!(
            error.contains("b.safetensors: it has no tensor z, which"),
            "{error}"
        );
        shard(dir.path(), "b.safetensors", &["y", "z"]);
        let error = refused(dir.path());
        assert!(
            error.contains("b.safetensors: it has tensor y, which"),
            "{error}"
        );
        assert!(error.ends_with("a.safetensors"), "{error}");
        shard(dir.path(), "b.safetensors", &["w", "z"]);
        assert!(refused(dir.path()).ends_with("does not know"));
        let path = dir.path().join("a.safetensors");
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 1]).unwrap();
        assert!(refused(dir.path()).contains("its header says"));
    }

    #[test]
    fn an_index_that_is_none_is_refused() {
        for (map, why) in [
            ("3", "it is no index of shards"),
            ("{}", "names no tensor"),
            (r#"{"x": "../a.safetensors"}"#, "is no name of a file"),
            (r#"{"x": ""}"#, "is no name of a file"),
        ] {
            let error = refused(folder(map).path());
            assert!(error.contains(why), "{map}: {error}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert!(refused(empty.path()).contains("it has neither model.safetensors nor"));
    }
}
