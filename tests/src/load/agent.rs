//! A conversation of a fake agent: for each turn a rollout is asked for, the turn is stored, the rollout given back.
use super::ledger::{Ledger, one_more};
use super::session::Session;
use super::shape::Shape;
use robust_proto::v1;
use robust_proto::v1::role_host_client::RoleHostClient;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use tonic::Status;
use tonic::transport::Channel;

/// Tokens of a turn.
const TOKENS: u32 = 8;
/// Between two attempts of what the store cannot take now.
const AGAIN_AFTER: Duration = Duration::from_millis(20);

#[derive(Clone)]
pub(super) struct Agent {
    pub incarnation: u64,
    pub session: Session,
    pub ledger: Arc<Ledger>,
    pub shape: Shape,
}

impl Agent {
    /// Goes on after the turns that are stored already, until its end is stored or its lease is void.
    pub async fn converse(self, dispatch: v1::Dispatch) {
        if let Err(status) = self.go_on(&dispatch).await {
            self.ledger.refused("a conversation", &status);
        }
    }

    async fn go_on(&self, dispatch: &v1::Dispatch) -> Result<(), Status> {
        let (trajectory, pace) = (dispatch.trajectory, self.shape.pace());
        let stored = u32::try_from(dispatch.turns.len()).unwrap_or(u32::MAX);
        // Conversations are told apart by their numbers, so that not all have their turns at once.
        let first = tokio::time::Instant::now() + pace.mul_f64((trajectory % 97) as f64 / 97.0);
        let mut turns = tokio::time::interval_at(first, pace);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for index in stored..self.shape.turns {
            turns.tick().await;
            self.take_turn(trajectory, index).await?;
        }
        let incarnation = self.incarnation;
        let end = v1::FinishTrajectoryRequest {
            incarnation,
            trajectory,
            reward: (trajectory % 2) as f64,
            turns: self.shape.turns,
            answer: String::new(),
        };
        let mut client = self.client();
        while let Err(status) = client
            .finish_trajectory(self.session.shown(end.clone()))
            .await
        {
            again(status).await?;
        }
        one_more(&self.ledger.finished);
        Ok(())
    }

    async fn take_turn(&self, trajectory: u64, index: u32) -> Result<(), Status> {
        let (incarnation, mut client) = (self.incarnation, self.client());
        let asked = Instant::now();
        let request = v1::RouteRequest {
            incarnation,
            trajectory,
        };
        let ticket = client.route(self.session.shown(request)).await?;
        let ticket = ticket.into_inner().ticket;
        self.ledger.note(&self.ledger.routes, asked);
        let began = Instant::now();
        let request = v1::AppendTurnRequest {
            incarnation,
            trajectory,
            prompt_ids: vec![1, 2, 3],
            turn: Some(turn(trajectory, index)),
        };
        while let Err(status) = client
            .append_turn(self.session.shown(request.clone()))
            .await
        {
            again(status).await?;
        }
        self.ledger.note(&self.ledger.turns, began);
        one_more(&self.ledger.appends);
        let broken = false;
        let request = v1::ReleaseRouteRequest {
            ticket,
            broken,
            incarnation,
        };
        client.release_route(self.session.shown(request)).await?;
        Ok(())
    }

    fn client(&self) -> RoleHostClient<Channel> {
        RoleHostClient::new(self.session.channel.clone())
    }
}

/// What the store cannot take now is offered again, as every agent must.
async fn again(status: Status) -> Result<(), Status> {
    if !status.message().starts_with("not stored") {
        return Err(status);
    }
    tokio::time::sleep(AGAIN_AFTER).await;
    Ok(())
}

fn turn(trajectory: u64, index: u32) -> v1::Turn {
    let first = u32::try_from(trajectory % 97).unwrap_or(0) + index;
    let span = v1::Span {
        ids: (first..first + TOKENS).collect(),
        logprobs: vec![-0.5; TOKENS as usize],
        version: 0,
    };
    v1::Turn {
        index,
        spans: vec![span],
        tool_ids: vec![7],
        ..Default::default()
    }
}
