//! A conversation of two turns whose tokens follow from the trajectory's number.
use prost::Message;
use robust_proto::v1::{self, role_host_client::RoleHostClient};
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Response, Status};
use xxhash_rust::xxh3::xxh3_64;

/// Between two attempts of what the store cannot take now.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

fn turn(trajectory: u64, index: u32) -> v1::Turn {
    let id = u32::try_from(trajectory % 97).unwrap() + index;
    let span = v1::Span {
        ids: vec![id, id + 1],
        logprobs: vec![-0.5, -0.25],
        version: 0,
    };
    v1::Turn {
        index,
        spans: vec![span],
        tool_ids: vec![7; 1 - index as usize],
        ..v1::Turn::default()
    }
}

/// Names what a turn says.
pub fn content(turn: &v1::Turn) -> u64 {
    xxh3_64(&turn.encode_to_vec())
}

/// Asks again for as long as the store takes no writes, as every agent must. A daemon that is gone is
/// another matter: it dispatches anew.
async fn stored<T, F>(ask: impl Fn() -> F) -> Option<T>
where
    F: Future<Output = Result<Response<T>, Status>>,
{
    loop {
        match ask().await {
            Ok(answer) => return Some(answer.into_inner()),
            Err(status) if status.message().starts_with("not stored") => {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
            Err(_) => return None,
        }
    }
}

/// Goes on after the turns stored already; gives up when the daemon says that the lease is void.
pub async fn converse(
    mut client: RoleHostClient<Channel>,
    incarnation: u64,
    dispatch: v1::Dispatch,
) -> Option<()> {
    let trajectory = dispatch.trajectory;
    for index in u32::try_from(dispatch.turns.len()).unwrap()..2 {
        super::faults::tool_answers().await;
        let request = v1::RouteRequest {
            incarnation,
            trajectory,
        };
        let ticket = client.route(request).await.ok()?.into_inner().ticket;
        let turn = turn(trajectory, index);
        let line = format!("turn {trajectory} {index} {:016x}", content(&turn));
        let turn = Some(turn);
        let prompt_ids = vec![1, 2, 3];
        let request = v1::AppendTurnRequest {
            incarnation,
            trajectory,
            prompt_ids,
            turn,
        };
        stored(|| {
            let (mut client, request) = (client.clone(), request.clone());
            async move { client.append_turn(request).await }
        })
        .await?;
        super::note(&line);
        client
            .release_route(v1::ReleaseRouteRequest {
                ticket,
                broken: false,
                incarnation,
            })
            .await
            .ok()?;
    }
    let reward = (trajectory % 2) as f64;
    let answer = String::new();
    let end = v1::FinishTrajectoryRequest {
        incarnation,
        trajectory,
        reward,
        turns: 2,
        answer,
    };
    stored(|| {
        let (mut client, end) = (client.clone(), end.clone());
        async move { client.finish_trajectory(end).await }
    })
    .await?;
    super::note(&format!("end {trajectory}"));
    Some(())
}
