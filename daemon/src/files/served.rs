//! What every node needs of the job before it can start a role.
use super::error::{Differs, FilesError};
use super::look::{Located, PROMPTS, TOKENIZER};
use super::manifest::{Kind, Manifest, Needed};
use crate::digests::Digests;
use crate::state::StateDir;
use crate::store::Store;
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

/// The model folder and the tokenizer, by the name they have on every node; the prompts, which only controllers need.
#[derive(Clone)]
pub struct JobFiles {
    files: Arc<[Known]>,
    digests: Digests,
    record: Option<(StateDir, Store)>,
    listed: Arc<OnceCell<Vec<Needed>>>,
}

/// A file of the job, here.
#[derive(Clone)]
struct Known {
    kind: Kind,
    name: String,
    path: PathBuf,
    /// What it is to be, where that is known.
    wanted: Option<blake3::Hash>,
}

impl JobFiles {
    /// Of this job, whose model is resolved.
    pub fn new(job: &Job, digests: Digests) -> Self {
        let model = job.model.path.clone().unwrap_or_default();
        let of_model = |path| Known::named(Kind::Model, path);
        let mut files = vec![of_model(model.join("config.json"))];
        match WeightFiles::find(&model) {
            Ok(weights) => {
                files.extend(weights.index.into_iter().chain(weights.files).map(of_model))
            }
            // The list then says what is not there.
            Err(_) => files.push(of_model(model.join(WHOLE))),
        }
        let tokenizer = job.data.tokenizer.clone();
        let beside = BESIDE_WEIGHTS
            .map(|name| of_model(model.join(name)))
            .into_iter();
        let beside = beside.chain(
            BESIDE_TOKENIZER
                .map(|name| Known::named(Kind::Tokenizer, tokenizer.with_file_name(name))),
        );
        files.extend(beside.filter(|file| file.path.is_file()));
        // Whatever its name is here, roles of other nodes find it under this one.
        files.push(Known {
            name: TOKENIZER.to_owned(),
            ..Known::named(Kind::Tokenizer, tokenizer)
        });
        Self::of(files, digests)
    }

    /// Those of a job whose files are known, where they are on this machine.
    pub fn located(located: &Located, digests: Digests) -> Self {
        let known = |(file, path): &(Needed, PathBuf)| Known {
            kind: file.kind,
            name: file.name.clone(),
            path: path.clone(),
            wanted: Some(file.blake3),
        };
        Self::of(located.files.iter().map(known).collect(), digests)
    }

    fn of(files: Vec<Known>, digests: Digests) -> Self {
        Self {
            files: files.into(),
            digests,
            record: None,
            listed: Arc::default(),
        }
    }

    /// The same with this job's prompts, and recorded in its log before anybody is told of them.
    pub fn recorded(self, job: &Job, state: &StateDir, store: &Store) -> Self {
        // A loop of the trainer's own has neither prompts nor tokenizer, and may have no model.
        let there = self.files.iter().filter(|file| match file.kind {
            Kind::Model => job.model.path.is_some(),
            _ => job.own_loop().is_none(),
        });
        let mut files: Vec<Known> = there.cloned().collect();
        if job.own_loop().is_none() {
            files.push(Known {
                name: PROMPTS.to_owned(),
                ..Known::named(Kind::Prompts, job.data.prompts.clone())
            });
        }
        Self {
            record: Some((state.clone(), store.clone())),
            ..Self::of(files, self.digests)
        }
    }

    /// Sizes and digests of what nodes need; read when the first node joins.
    pub async fn list(&self) -> Result<Vec<v1::JobFile>, FilesError> {
        let all = self.all().await?.iter();
        let of_nodes = all.filter(|file| file.kind != Kind::Prompts);
        let told = of_nodes.map(|file| v1::JobFile {
            name: file.name.clone(),
            bytes: file.bytes,
            blake3: file.blake3.as_bytes().to_vec(),
        });
        Ok(told.collect())
    }

    /// All of them, and where they are here.
    pub async fn needed(&self) -> Result<Vec<(Needed, PathBuf)>, FilesError> {
        let all = self.all().await?.iter().cloned();
        let paths = self.files.iter().map(|file| file.path.clone());
        Ok(all.zip(paths).collect())
    }

    /// In the order in which they are known.
    async fn all(&self) -> Result<&Vec<Needed>, FilesError> {
        let listing = self.listed.get_or_try_init(|| async {
            let (files, digests) = (Arc::clone(&self.files), self.digests.clone());
            let all = move || -> Result<Vec<Needed>, FilesError> {
                files.iter().map(|file| file.look(&digests)).collect()
            };
            let looking = tokio::task::spawn_blocking(all);
            let all = looking.await.unwrap_or_else(|e| {
                Err(FilesError::Local {
                    path: PathBuf::from("the job's files"),
                    source: io::Error::other(e),
                })
            })?;
            if let Some(record) = &self.record {
                keep(record, &all).await?;
            }
            Ok(all)
        });
        listing.await
    }

    /// The file of that name, of those that nodes need.
    pub fn path(&self, name: &str) -> Option<&Path> {
        let mut files = self.files.iter().filter(|file| file.kind != Kind::Prompts);
        Some(files.find(|file| file.name == name)?.path.as_path())
    }
}

/// The record is in the log when this returns.
async fn keep((state, store): &(StateDir, Store), all: &[Needed]) -> Result<(), FilesError> {
    let files = all.to_vec();
    let manifest = Manifest { files };
    if Manifest::read(state)?.as_ref() != Some(&manifest) {
        manifest.write(state)?;
    }
    let recorded = store.sync().await;
    recorded.map_err(|error| FilesError::Record {
        path: state.files_json(),
        why: format!("it is not in the job's log: {error}"),
    })
}

impl Known {
    /// A file with the name that it has on every node: its own.
    fn named(kind: Kind, path: PathBuf) -> Self {
        let name = path.file_name().unwrap_or_default();
        Self {
            kind,
            name: name.to_string_lossy().into_owned(),
            path,
            wanted: None,
        }
    }

    fn look(&self, digests: &Digests) -> Result<Needed, FilesError> {
        let found = digests.of(&self.path);
        let (blake3, bytes) = found.map_err(|source| FilesError::Local {
            path: self.path.clone(),
            source,
        })?;
        match self.wanted {
            Some(wanted) if wanted != blake3 => Err(FilesError::Differs(Box::new(Differs {
                key: self.kind.key(),
                path: self.path.clone(),
                has: blake3,
                wanted,
            }))),
            _ => Ok(Needed {
                kind: self.kind,
                name: self.name.clone(),
                bytes,
                blake3,
            }),
        }
    }
}

/// A file in parts; an error is the stream's last item.
pub(crate) fn parts(path: PathBuf) -> mpsc::Receiver<Result<v1::Part, Status>> {
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
