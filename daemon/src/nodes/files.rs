//! What every node needs of the job before it can start a role.
use super::digests::Digests;
use robust_ckpt::WeightFiles;
use robust_ckpt::weight_files::WHOLE;
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

/// Small files that stand beside the weights or the tokenizer, where they are there.
const BESIDE_WEIGHTS: [&str; 1] = ["generation_config.json"];
const BESIDE_TOKENIZER: [&str; 2] = ["tokenizer_config.json", "chat_template.jinja"];

/// The model folder and the tokenizer, by the name they have on every node.
#[derive(Clone, Debug)]
pub struct JobFiles {
    paths: Arc<[(String, PathBuf)]>,
    digests: Digests,
    listed: Arc<OnceCell<Vec<v1::JobFile>>>,
}

impl JobFiles {
    /// Of this job, whose model is resolved.
    pub fn new(job: &Job, digests: Digests) -> Self {
        let model = job.model.path.clone().unwrap_or_default();
        let mut paths = vec![named(model.join("config.json"))];
        match WeightFiles::find(&model) {
            Ok(weights) => paths.extend(weights.index.into_iter().chain(weights.files).map(named)),
            // The list then says what is not there.
            Err(_) => paths.push(named(model.join(WHOLE))),
        }
        let tokenizer = job.data.tokenizer.clone();
        let beside = BESIDE_WEIGHTS.map(|name| model.join(name)).into_iter();
        let beside = beside.chain(BESIDE_TOKENIZER.map(|name| tokenizer.with_file_name(name)));
        paths.extend(beside.filter(|path| path.is_file()).map(named));
        // Whatever its name is here, roles of other nodes find it under this one.
        paths.push(("tokenizer.json".to_owned(), tokenizer));
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
            let entry = move |(name, path): &(String, PathBuf)| entry(&digests, name, path);
            let all = move || paths.iter().map(entry).collect();
            tokio::task::spawn_blocking(all)
                .await
                .map_err(io::Error::other)?
        });
        listed.await.cloned()
    }

    /// The file of that name.
    pub fn path(&self, name: &str) -> Option<&Path> {
        let found = self.paths.iter().find(|(known, _)| known == name);
        found.map(|(_, path)| path.as_path())
    }
}

/// A file and the name that it has on every node: its own.
fn named(path: PathBuf) -> (String, PathBuf) {
    let name = path.file_name().unwrap_or_default();
    (name.to_string_lossy().into_owned(), path)
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
    async fn shards_and_what_stands_beside_them_go_to_every_node() {
        let temp = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(temp.path().join(name), text).unwrap();
        let index = r#"{"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}}"#;
        write("model.safetensors.index.json", index);
        for name in [
            "config.json",
            "a.safetensors",
            "b.safetensors",
            "generation_config.json",
        ] {
            write(name, "{}");
        }
        write("arith.json", "{}");
        write("tokenizer_config.json", "{}");
        let text = "[data]\nprompts = \"p\"\ntokenizer = \"arith.json\"\n[model]\npath = \".\"\n";
        let mut job = Job::parse(text, Path::new("j.toml")).unwrap();
        job.resolve(temp.path());
        let files = JobFiles::new(&job, Digests::new(temp.path().join("digests")));
        let listed = files.list().await.unwrap();
        let names: Vec<&str> = listed.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "config.json",
                "model.safetensors.index.json",
                "a.safetensors",
                "b.safetensors",
                "generation_config.json",
                "tokenizer_config.json",
                "tokenizer.json"
            ]
        );
        assert!(
            files
                .path("tokenizer.json")
                .unwrap()
                .ends_with("arith.json")
        );
    }

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
