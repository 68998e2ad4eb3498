//! A conversation of two turns whose tokens follow from the trajectory's number.
use robust_proto::v1::{self, role_host_client::RoleHostClient};
use tonic::transport::Channel;

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

/// Goes on after the turns stored already; gives up when the daemon says that the lease is void.
pub async fn converse(
    mut client: RoleHostClient<Channel>,
    incarnation: u64,
    dispatch: v1::Dispatch,
) -> Option<()> {
    let trajectory = dispatch.trajectory;
    for index in u32::try_from(dispatch.turns.len()).unwrap()..2 {
        let request = v1::RouteRequest {
            incarnation,
            trajectory,
        };
        let ticket = client.route(request).await.ok()?.into_inner().ticket;
        let turn = Some(turn(trajectory, index));
        let prompt_ids = vec![1, 2, 3];
        let request = v1::AppendTurnRequest {
            incarnation,
            trajectory,
            prompt_ids,
            turn,
        };
        client.append_turn(request).await.ok()?;
        client
            .release_route(v1::ReleaseRouteRequest { ticket })
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
    client.finish_trajectory(end).await.ok().map(|_| ())
}
