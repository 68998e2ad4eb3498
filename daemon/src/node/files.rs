//! What a role needs of the job: fetched once, and again only where it differs.
use super::Upstream;
use crate::digests::Digests;
use crate::state::{StateDir, StateDirError, make_private_dir, write_private};
use robust_proto::v1;
use robust_proto::v1::node_host_client::NodeHostClient;
use robust_shared::job::Job;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use tonic::Status;

/// Why a role cannot be started here yet.
#[derive(Debug, thiserror::Error)]
pub(super) enum FilesError {
    /// The leader did not give it.
    #[error("fetching {name}: {}", status.message())]
    Fetch {
        /// What.
        name: String,
        /// Its words.
        status: Status,
    },
    /// It came damaged.
    #[error("fetching {name}: its digest is not the leader's")]
    Digest {
        /// What.
        name: String,
    },
    /// It cannot be written.
    #[error("{path}: {source}")]
    Io {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It cannot be written.
    #[error(transparent)]
    State(#[from] StateDirError),
    /// The job is none that this robustd understands.
    #[error("the leader's job: {0}")]
    Job(#[from] serde_json::Error),
}

/// The folder of a job's files on a node.
fn folder(state: &StateDir) -> PathBuf {
    state.root().join("files")
}

/// Fetches what is missing and writes the job for the roles.
pub(super) async fn fetch(
    state: &StateDir,
    upstream: &Upstream,
    welcome: &v1::NodeWelcome,
) -> Result<Job, FilesError> {
    let folder = folder(state);
    make_private_dir(&folder)?;
    for file in &welcome.files {
        // A name is a file's, never a way out of the folder.
        let plain = Path::new(&file.name).file_name() == Some(file.name.as_ref());
        let digest = <[u8; 32]>::try_from(file.blake3.as_slice());
        let (true, Ok(digest)) = (plain, digest) else {
            let status = Status::invalid_argument("it has no plain name or no digest");
            let name = file.name.clone();
            return Err(FilesError::Fetch { name, status });
        };
        let digest = blake3::Hash::from(digest);
        let path = folder.join(&file.name);
        let (there, digests) = (path.clone(), Digests::new(state.digests()));
        let found = tokio::task::spawn_blocking(move || digests.of(&there)).await;
        if !matches!(found, Ok(Ok((found, _))) if found == digest) {
            one(upstream, &file.name, &path, digest).await?;
        }
    }
    remove_others(&folder, &welcome.files)?;
    write_job(state, &state.job_json(), &welcome.job)
}

/// Removes files of an earlier job: one with all weights would be read before this one's shards.
fn remove_others(folder: &Path, files: &[v1::JobFile]) -> Result<(), FilesError> {
    let at = |source| FilesError::Io {
        path: folder.to_owned(),
        source,
    };
    for entry in fs::read_dir(folder).map_err(at)? {
        let entry = entry.map_err(at)?;
        let name = entry.file_name();
        if !files.iter().any(|file| name == file.name.as_str()) {
            fs::remove_file(entry.path()).map_err(at)?;
        }
    }
    Ok(())
}

/// Writes a job with the paths that its files have here.
pub(super) fn write_job(state: &StateDir, path: &Path, text: &str) -> Result<Job, FilesError> {
    let mut job: Job = serde_json::from_str(text)?;
    let folder = folder(state);
    job.data.tokenizer = folder.join("tokenizer.json");
    job.model.path = Some(folder);
    write_private(path, serde_json::to_string_pretty(&job)?.as_bytes())?;
    Ok(job)
}

async fn one(
    upstream: &Upstream,
    name: &str,
    path: &Path,
    digest: blake3::Hash,
) -> Result<(), FilesError> {
    let failed = |status| FilesError::Fetch {
        name: name.to_owned(),
        status,
    };
    let at = |source| FilesError::Io {
        path: path.to_owned(),
        source,
    };
    let mut client = client(upstream);
    let request = upstream.request(v1::ReadFileRequest {
        name: name.to_owned(),
    });
    let mut parts = client
        .read_file(request)
        .await
        .map_err(failed)?
        .into_inner();
    let temporary = path.with_extension("part");
    let mut file = File::create(&temporary).map_err(at)?;
    let mut hasher = blake3::Hasher::new();
    while let Some(part) = parts.message().await.map_err(failed)? {
        hasher.update(&part.data);
        file.write_all(&part.data).map_err(at)?;
    }
    if hasher.finalize() != digest {
        let name = name.to_owned();
        return Err(FilesError::Digest { name });
    }
    fs::rename(&temporary, path).map_err(at)?;
    tracing::info!("fetched {name}");
    Ok(())
}

/// A client for files: parts are larger than the default.
pub(super) fn client(upstream: &Upstream) -> NodeHostClient<tonic::transport::Channel> {
    NodeHostClient::new(upstream.bulk.clone())
        .max_decoding_message_size(crate::grpc::MAX_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn weights_of_an_earlier_job_do_not_stay_beside_the_shards_of_this_one() {
        let temp = tempfile::tempdir().unwrap();
        for name in ["model.safetensors", "a.safetensors"] {
            fs::write(temp.path().join(name), "w").unwrap();
        }
        let shard = v1::JobFile {
            name: "a.safetensors".to_owned(),
            ..Default::default()
        };
        remove_others(temp.path(), &[shard]).unwrap();
        let left: Vec<_> = fs::read_dir(temp.path()).unwrap().flatten().collect();
        assert_eq!(left.len(), 1);
        assert_eq!(left[0].file_name(), "a.safetensors");
    }

    #[tokio::test]
    async fn a_name_that_leads_out_of_the_folder_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let state = StateDir::make(temp.path()).unwrap();
        let channel = tonic::transport::Endpoint::from_static("http://127.0.0.1:1").connect_lazy();
        let upstream = Upstream {
            at: String::new(),
            channel: channel.clone(),
            bulk: channel,
            gives: false,
            session: "s".parse().unwrap(),
        };
        for name in ["../x", "/etc/x", "", "..", "a/b"] {
            let file = v1::JobFile {
                name: name.to_owned(),
                bytes: 1,
                blake3: vec![0; 32],
            };
            let welcome = v1::NodeWelcome {
                job: "{}".to_owned(),
                files: vec![file],
                ..Default::default()
            };
            let error = fetch(&state, &upstream, &welcome).await.unwrap_err();
            assert!(error.to_string().contains("plain name"), "{name}: {error}");
        }
    }
}
