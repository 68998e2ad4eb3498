//! What the store holds: checkpoints from the state directory's own files, trajectories as the daemon
//! lists them.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_ckpt::Listed;
use robust_proto::v1;
use std::path::Path;
use tokio_stream::StreamExt as _;

/// Trajectories shown of each state; more would only be scrolled through.
const SHOWN: usize = 2_000;

/// A look at the store.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Unix ms of the look.
    pub at: u64,
    /// On disk, newest first; or why that is not known.
    pub checkpoints: Result<Vec<CheckpointRow>, String>,
    /// Running and finished ones; or why that is not known.
    pub trajectories: Result<Vec<v1::Trajectory>, String>,
    /// There are more.
    pub cut: bool,
}

/// A checkpoint on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointRow {
    /// Its step.
    pub step: u64,
    /// Bytes of all shards; none when its manifest is of no use.
    pub bytes: Option<u64>,
    /// How many shards.
    pub ranks: usize,
    /// Mean reward of its batch.
    pub reward: Option<f64>,
    /// Unix ms of its commit.
    pub at_ms: Option<u64>,
    /// An operator wants it to stay.
    pub pinned: bool,
    /// `complete`, or why it is of no use.
    pub state: String,
}

impl From<Listed> for CheckpointRow {
    fn from(l: Listed) -> Self {
        let row = Self {
            step: l.step.0,
            bytes: None,
            ranks: 0,
            reward: None,
            at_ms: None,
            pinned: l.pinned,
            state: String::new(),
        };
        match l.manifest {
            Ok(c) => Self {
                bytes: Some(c.bytes()),
                ranks: c.shards.len(),
                reward: c.reward,
                at_ms: c.at.map(robust_shared::time::Time::millis),
                state: "complete".to_owned(),
                ..row
            },
            Err(why) => Self {
                state: format!("unusable: {why}"),
                ..row
            },
        }
    }
}

/// Looks once.
pub async fn look(endpoint: Endpoint, at: u64) -> Stored {
    let folder = endpoint.state_dir().map(|dir| dir.join("ckpt"));
    let checkpoints = match folder {
        None => Err("they are files of the daemon's machine; look there".to_owned()),
        Some(folder) => tokio::task::spawn_blocking(move || on_disk(&folder))
            .await
            .unwrap_or_else(|e| Err(e.to_string())),
    };
    let mut cut = false;
    let trajectories = waiting(&endpoint, &mut cut).await;
    Stored {
        at,
        checkpoints,
        trajectories: trajectories.map_err(|e| e.to_string()),
        cut,
    }
}

fn on_disk(folder: &Path) -> Result<Vec<CheckpointRow>, String> {
    let listed = robust_ckpt::list(folder)
        .map_err(|e| format!("{} cannot be read: {e}", folder.display()))?;
    Ok(listed.into_iter().rev().map(CheckpointRow::from).collect())
}

async fn waiting(endpoint: &Endpoint, cut: &mut bool) -> Result<Vec<v1::Trajectory>, CliError> {
    let mut all = Vec::new();
    let mut client = endpoint.connect().await?;
    for state in ["running", "finished"] {
        let request = v1::TrajectoriesRequest {
            state: state.to_owned(),
            ..Default::default()
        };
        let mut stream = endpoint.ask(client.trajectories(request)).await?;
        let mut taken = 0;
        while let Some(next) = stream.next().await {
            let next = next.map_err(|s| CliError::from_status(&s, &endpoint.place()))?;
            if taken == SHOWN {
                *cut = true;
                break;
            }
            taken += 1;
            all.push(next);
        }
    }
    Ok(all)
}
