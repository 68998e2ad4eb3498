//! A trajectory and those of the same prompt, as the daemon gives them to whoever reads one.
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_proto::v1;
use robust_shared::ids::TrajectoryId;

/// A trajectory, as it is now.
#[derive(Clone, Debug)]
pub struct TrajectoryRead {
    /// Which was asked for.
    pub id: TrajectoryId,
    /// Its pieces of text begin after so many of its tokens.
    pub known: u64,
    /// With its content; none: the job has no such trajectory. Or why it cannot be read.
    pub told: Result<Option<v1::Trajectory>, String>,
}

/// The trajectories of a prompt.
#[derive(Clone, Debug)]
pub struct GroupRead {
    /// Of this batch.
    pub batch: u64,
    /// Its number there.
    pub group: u32,
    /// In their order, without content; or why they are not known.
    pub members: Result<Vec<v1::Trajectory>, String>,
}

/// Reads one, with the text of the tokens after the first `known` ones.
pub async fn trajectory(endpoint: Endpoint, id: TrajectoryId, known: u64) -> TrajectoryRead {
    let request = v1::TrajectoriesRequest {
        trajectory: Some(id.key()),
        content: true,
        text: true,
        text_from: known,
        ..Default::default()
    };
    let told = all(&endpoint, request).await;
    TrajectoryRead {
        id,
        known,
        told: told.map(|mut all| all.pop()).map_err(|e| e.to_string()),
    }
}

/// Looks at those of a prompt.
pub async fn group(endpoint: Endpoint, batch: u64, group: u32) -> GroupRead {
    let request = v1::TrajectoriesRequest {
        from_batch: batch,
        to_batch: batch,
        group: Some(group),
        ..Default::default()
    };
    let told = all(&endpoint, request).await;
    // A daemon of an earlier build sends the whole batch.
    let of_group = |all: Vec<v1::Trajectory>| {
        let ours = all.into_iter().filter(|t| t.group == group);
        ours.collect::<Vec<_>>()
    };
    GroupRead {
        batch,
        group,
        members: told.map(of_group).map_err(|e| e.to_string()),
    }
}

async fn all(
    endpoint: &Endpoint,
    request: v1::TrajectoriesRequest,
) -> Result<Vec<v1::Trajectory>, CliError> {
    let mut client = endpoint.connect().await?;
    let mut stream = endpoint.ask(client.trajectories(request)).await?;
    let mut all = Vec::new();
    while let Some(next) = endpoint.next(&mut stream).await? {
        all.push(next);
    }
    Ok(all)
}
