//! Two weight versions as folders that engines load models from, in shared memory.
//!
//! ```text
//!   FOLDER/v6/   config.json, tokenizer.json, ..   as in the job's model folder
//!                model.safetensors   |length|header, padded|tensors, in the manifest's order|
//!                                                          ▲ the transport fetches into here
//!   FOLDER/v7/   the other one
//! ```
//! The header depends on the layout alone and is written once; a version's bytes are fetched to where
//! the file has them, so nothing is copied. A folder takes the name of its version when that is whole:
//! an engine that remembers what it read from a path is never given the same path for other weights.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use robust_shared::weights::TensorSpec;
use robust_transport::{Buffer, BufferError};

use super::header;

/// The file that engines look for.
const WEIGHTS_FILE: &str = "model.safetensors";
/// Files of the model folder with these endings are weights, which these folders have their own of.
const WEIGHTS_ENDINGS: [&str; 6] = ["safetensors", "bin", "pt", "pth", "gguf", "msgpack"];
/// Nothing but small files stands beside the weights.
const MAX_SIDE_FILE_BYTES: u64 = 64 << 20;

/// A folder could not be made or named.
#[derive(Debug, thiserror::Error)]
pub enum FilesError {
    /// A file or folder could not be made, read or named.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// There is no memory for the weights.
    #[error("memory for the weights in {path}: {source}; see `df -h` of that folder")]
    Memory {
        /// The file.
        path: PathBuf,
        /// What the transport said.
        source: BufferError,
    },
    /// The buffer is none of these folders'.
    #[error("the version does not lie in {0}")]
    Unknown(PathBuf),
}

/// Two folders, each with room for a version.
pub struct Files {
    root: PathBuf,
    slots: Mutex<[Slot; 2]>,
}

struct Slot {
    folder: PathBuf,
    buffer: Arc<Buffer>,
}

/// Who reads the files, besides the user that makes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Nobody.
    Owner,
    /// An engine of another user, who alone gets into the folder around them.
    Engine,
}

impl Readers {
    /// Lets them read what was made for its owner alone, whatever this process's mask is.
    fn admit(self, path: &Path) -> Result<(), FilesError> {
        let mode = match (self, path.is_dir()) {
            (Self::Owner, _) => return Ok(()),
            (Self::Engine, true) => 0o755,
            (Self::Engine, false) => 0o644,
        };
        let opened = fs::set_permissions(path, fs::Permissions::from_mode(mode));
        opened.map_err(failed("opening to the engine", path))
    }
}

impl Files {
    /// Makes both folders below `root`, with what stands beside the weights in `model`. What an earlier
    /// incarnation left there is removed first.
    pub fn new(
        root: &Path,
        model: &Path,
        tensors: &[TensorSpec],
        readers: Readers,
    ) -> Result<Self, FilesError> {
        match fs::remove_dir_all(root) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("removing", root)(error));
            }
            _ => {}
        }
        let slot = |name: &str| -> Result<Slot, FilesError> {
            let folder = root.join(name);
            let mut private = fs::DirBuilder::new();
            private.recursive(true).mode(0o700);
            private.create(&folder).map_err(failed("making", &folder))?;
            readers.admit(root)?;
            readers.admit(&folder)?;
            copy_beside(model, &folder, readers)?;
            let buffer = room(&folder.join(WEIGHTS_FILE), tensors, readers)?;
            Ok(Slot { folder, buffer })
        };
        Ok(Self {
            root: root.to_owned(),
            slots: Mutex::new([slot("spare-0")?, slot("spare-1")?]),
        })
    }

    /// The memory of both, for the transport.
    pub fn buffers(&self) -> [Arc<Buffer>; 2] {
        let slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        [&slots[0], &slots[1]].map(|slot| Arc::clone(&slot.buffer))
    }

    /// Gives the folder of this memory the name of its version, and returns its path.
    pub fn name(&self, buffer: &Arc<Buffer>, version: u64) -> Result<PathBuf, FilesError> {
        let mut slots = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        let slot = slots
            .iter_mut()
            .find(|slot| Arc::ptr_eq(&slot.buffer, buffer));
        let slot = slot.ok_or_else(|| FilesError::Unknown(self.root.clone()))?;
        let named = self.root.join(format!("v{version}"));
        if slot.folder != named {
            fs::rename(&slot.folder, &named).map_err(failed("naming", &named))?;
            slot.folder = named.clone();
        }
        Ok(named)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        // Memory that nobody will read again. What cannot be removed the next incarnation removes.
        let _ = fs::remove_dir_all(&self.root);
    }
}

impl std::fmt::Debug for Files {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Files").field(&self.root).finish()
    }
}

/// The file with its header and room for the tensors.
fn room(path: &Path, tensors: &[TensorSpec], readers: Readers) -> Result<Arc<Buffer>, FilesError> {
    let head = header::of(tensors);
    let bytes: u64 = tensors.iter().map(|tensor| tensor.bytes).sum();
    let mut file: File = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .map_err(failed("making", path))?;
    readers.admit(path)?;
    file.write_all(&head).map_err(failed("writing", path))?;
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    Buffer::in_file(&file, head.len(), bytes).map_err(|source| FilesError::Memory {
        path: path.to_owned(),
        source,
    })
}

/// Configuration and tokenizer, whatever their names.
fn copy_beside(model: &Path, folder: &Path, readers: Readers) -> Result<(), FilesError> {
    let entries = fs::read_dir(model).map_err(failed("reading", model))?;
    for entry in entries.flatten() {
        let path = entry.path();
        let ending = path
            .extension()
            .and_then(|e| e.to_str())
            .unwrap_or_default();
        let is_index = path.to_string_lossy().ends_with(".index.json");
        let small = |m: &fs::Metadata| m.is_file() && m.len() <= MAX_SIDE_FILE_BYTES;
        let stands_beside = !WEIGHTS_ENDINGS.contains(&ending)
            && !is_index
            && fs::metadata(&path).is_ok_and(|m| small(&m));
        if stands_beside {
            let to = folder.join(entry.file_name());
            fs::copy(&path, &to).map_err(failed("copying", &to))?;
            readers.admit(&to)?;
        }
    }
    Ok(())
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> FilesError + 'a {
    move |source| FilesError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use safetensors::SafeTensors;

    fn tensors() -> Vec<TensorSpec> {
        let tensor = |name: &str, offset, values: u64| TensorSpec {
            name: name.to_owned(),
            dtype: "F32".to_owned(),
            shape: vec![values],
            offset,
            bytes: values * 4,
        };
        vec![tensor("a", 0, 3), tensor("b", 12, 2)]
    }

    fn model(dir: &Path) -> PathBuf {
        let model = dir.join("model");
        fs::create_dir(&model).unwrap();
        fs::write(model.join("config.json"), "{}").unwrap();
        fs::write(model.join("model.safetensors"), "not these").unwrap();
        fs::write(model.join("model.safetensors.index.json"), "nor these").unwrap();
        model
    }

    #[test]
    fn what_is_fetched_into_a_buffer_is_a_model_folder() {
        let dir = tempfile::tempdir().unwrap();
        let (root, model) = (dir.path().join("weights"), model(dir.path()));
        let files = Files::new(&root, &model, &tensors(), Readers::Owner).unwrap();
        let [first, second] = files.buffers();
        let values = [1.0f32, 2.0, 3.0, 4.0, 5.0];
        let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        first.write_at(0, &bytes).unwrap();
        let folder = files.name(&first, 7).unwrap();
        assert_eq!(folder, root.join("v7"));
        let mut beside: Vec<_> = fs::read_dir(&folder).unwrap().flatten().collect();
        beside.sort_by_key(fs::DirEntry::file_name);
        let names: Vec<_> = beside.iter().map(fs::DirEntry::file_name).collect();
        assert_eq!(names, ["config.json", "model.safetensors"]);
        let file = fs::read(folder.join(WEIGHTS_FILE)).unwrap();
        let read = SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.tensor("b").unwrap().data(), &bytes[12..]);
        assert_eq!(read.tensor("a").unwrap().shape(), [3]);
        // The other one has a name of its own, and the first can be another version later.
        assert_eq!(files.name(&second, 8).unwrap(), root.join("v8"));
        assert_eq!(files.name(&first, 9).unwrap(), root.join("v9"));
        assert!(!root.join("v7").exists());
    }

    #[test]
    fn what_an_earlier_incarnation_left_is_removed_and_so_is_ours_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let (root, model) = (dir.path().join("weights"), model(dir.path()));
        fs::create_dir_all(root.join("v3")).unwrap();
        fs::write(root.join("v3/model.safetensors"), "old").unwrap();
        let files = Files::new(&root, &model, &tensors(), Readers::Owner).unwrap();
        assert!(!root.join("v3").exists());
        let other = Buffer::new(20).unwrap();
        assert!(matches!(files.name(&other, 1), Err(FilesError::Unknown(_))));
        drop(files);
        assert!(!root.exists());
    }
}
