//! What every node needs of the job before it can start a role.
use super::digests::Digests;
use robust_proto::v1;
use robust_shared::job::Job;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::{OnceCell, mpsc};
use tonic::Status;

/// Bytes of one message of a file's stream.
pub const PART_BYTES: usize = 1 << 20;
/// Parts read ahead of the network.
const AHEAD: usize = 4;

/// The model folder and the tokenizer, by the name they have on every node.
#[derive(Clone, Debug)]
pub struct JobFiles {
    paths: Arc<[(&'static str, PathBuf)]>,
    digests: Digests,
    listed: Arc<OnceCell<Vec<v1::JobFile>>>,
}

impl JobFiles {
    /// Of this job, whose model is resolved.
    pub fn new(job: &Job, digests: Digests) -> Self {
        let model = job.model.path.clone().unwrap_or_default();
        let paths = [
            ("config.json", model.join("config.json")),
            ("model.safetensors", model.join("model.safetensors")),
            ("tokenizer.json", job.data.tokenizer.clone()),
        ];
        Self {
            paths: paths.into(),
            digests,
            listed: Arc::default(),
        }
    }

    /// Their sizes and digests; read when the first node joins.
    pub async fn list(&self) -> io::Result<Vec<v1::JobFile>> {
        let (paths, digests) = (self.paths.clone(), self.digests.clone());
        let listed = self.listed.get_or_try_init(|| async {
            let entry = move |(name, path): &(&str, PathBuf)| entry(&digests, name, path);
            let all = move || paths.iter().map(entry).collect();
            tokio::task::spawn_blocking(all)
                .await
                .map_err(io::Error::other)?
        });
        listed.await.cloned()
    }

    /// The file of that name.
    pub fn path(&self, name: &str) -> Option<&Path> {
        let found = self.paths.iter().find(|(known, _)| *known == name);
        found.map(|(_, path)| path.as_path())
    }
}

fn entry(digests: &Digests, name: &str, path: &Path) -> io::Result<v1::JobFile> {
    let named = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let (digest, bytes) = digests.of(path).map_err(named)?;
    Ok(v1::JobFile {
        name: name.to_owned(),
        bytes,
        blake3: digest.as_bytes().to_vec(),
    })
}

/// A file in parts; an error is the stream's last item.
pub(super) fn parts(path: PathBuf) -> mpsc::Receiver<Result<v1::Part, Status>> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    tokio::task::spawn_blocking(move || {
        let failed = |e: io::Error| Status::not_found(format!("{}: {e}", path.display()));
        let mut file = match File::open(&path) {
            Ok(file) => file,
            Err(error) => return drop(sender.blocking_send(Err(failed(error)))),
        };
        loop {
            let mut data = Vec::with_capacity(PART_BYTES);
            let mut next = file.by_ref().take(PART_BYTES as u64);
            let part = match next.read_to_end(&mut data) {
                Ok(0) => return,
                Ok(_) => Ok(v1::Part { data }),
                Err(error) => Err(failed(error)),
            };
            let is_last = part.is_err();
            // The reader may have left.
            if sender.blocking_send(part).is_err() || is_last {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[tokio::test]
    async fn a_file_comes_in_parts_and_a_missing_one_as_an_error() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("f");
        let bytes: Vec<u8> = (0..PART_BYTES + 5).map(|i| i as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        let mut stream = parts(path);
        let mut got = Vec::new();
        while let Some(part) = stream.recv().await {
            got.extend(part.unwrap().data);
        }
        assert_eq!(got, bytes);
        let mut missing = parts(temp.path().join("g"));
        assert!(missing.recv().await.unwrap().is_err());
        assert!(missing.recv().await.is_none());
    }
}
