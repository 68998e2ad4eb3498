//! One trajectory from its dispatch to its reward.

use robust_proto::v1::{AppendTurnRequest, Dispatch, FinishTrajectoryRequest, Span, Turn};
use robust_role::turns::{Generated, Refusal, TurnError, TurnRequest};

use super::Worker;
use super::tools::Unable;
use crate::model::reward;

/// How far a trajectory is.
pub(super) struct Conversation<'a> {
    worker: &'a Worker,
    dispatch: Dispatch,
    prompt_ids: Vec<u32>,
    /// Everything after the prompt: turns and results.
    response: Vec<u32>,
    turns: u32,
    /// What is stored of the next turn.
    running: Vec<Span>,
    /// Whether the model is to say more.
    open: bool,
}

/// Why a conversation stops before its end.
enum Stop {
    /// The lease is void: nothing is to be said of it.
    Void,
    /// The daemon is to know.
    Failed(String),
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Void => Stop::Void,
            Refusal::Other(reason) => Stop::Failed(reason),
        }
    }
}

impl From<TurnError> for Stop {
    fn from(error: TurnError) -> Self {
        match error {
            TurnError::Void => Stop::Void,
            TurnError::Failed(reason) => Stop::Failed(reason),
        }
    }
}

impl From<Unable> for Stop {
    fn from(unable: Unable) -> Self {
        Stop::Failed(unable.to_string())
    }
}

impl<'a> Conversation<'a> {
    /// Holds the conversation; the error is why the trajectory is given back unfinished.
    pub async fn run(worker: &'a Worker, dispatch: Dispatch) -> Result<(), String> {
        // Never closed; waiting here is what bounds the conversations at once.
        let Ok(_slot) = worker.slots.acquire().await else {
            return Ok(());
        };
        let trajectory = dispatch.trajectory;
        match Self::resume(worker, dispatch)?.hold().await {
            Ok(()) => Ok(()),
            Err(Stop::Failed(reason)) => Err(reason),
            Err(Stop::Void) => {
                tracing::info!(trajectory, "dropped: the lease is void");
                Ok(())
            }
        }
    }

    /// Continues after the stored turns, and in the middle of the one that is stored in part.
    fn resume(worker: &'a Worker, mut dispatch: Dispatch) -> Result<Self, String> {
        let prompt = worker.tokenizer.encode_prompt(&dispatch.prompt);
        let prompt_ids = to_u32(&prompt.map_err(|error| error.to_string())?);
        if prompt_ids.len() >= worker.turns.max_len {
            let (length, most) = (prompt_ids.len(), worker.turns.max_len - 1);
            return Err(format!(
                "the prompt has {length} tokens, at most {most} fit"
            ));
        }
        let mut conversation = Self {
            worker,
            running: std::mem::take(&mut dispatch.running),
            dispatch,
            prompt_ids,
            response: Vec::new(),
            turns: 0,
            open: true,
        };
        for turn in std::mem::take(&mut conversation.dispatch.turns) {
            conversation.absorb(&turn);
        }
        Ok(conversation)
    }

    async fn hold(mut self) -> Result<(), Stop> {
        while self.open {
            let turn = self.next_turn().await?;
            let request = AppendTurnRequest {
                incarnation: self.worker.turns.host.incarnation,
                trajectory: self.dispatch.trajectory,
                prompt_ids: self.prompt_to_store(),
                turn: Some(turn.clone()),
            };
            self.worker.turns.host.append(request).await?;
            self.absorb(&turn);
        }
        self.finish().await
    }

    /// Adds a stored turn. It is the last one unless a tool's result follows and there may be
    /// another.
    fn absorb(&mut self, turn: &Turn) {
        self.response
            .extend(turn.spans.iter().flat_map(|span| &span.ids));
        self.response.extend(&turn.tool_ids);
        self.turns += 1;
        let room = self.prompt_ids.len() + self.response.len() < self.worker.turns.max_len;
        self.open = !turn.tool_ids.is_empty() && self.turns < self.worker.max_turns && room;
    }

    /// The prompt goes along with the first turn.
    fn prompt_to_store(&self) -> Vec<u32> {
        match self.turns {
            0 => self.prompt_ids.clone(),
            _ => Vec::new(),
        }
    }

    async fn next_turn(&mut self) -> Result<Turn, Stop> {
        let context = [self.prompt_ids.as_slice(), &self.response].concat();
        let request = TurnRequest {
            trajectory: self.dispatch.trajectory,
            seed: self.dispatch.seed,
            turn: self.turns,
            context: &context,
            stop: self.worker.tokenizer.specials().stops(),
            sampling: self.worker.sampling,
        };
        let begun = Generated::begun(std::mem::take(&mut self.running));
        let turns = &self.worker.turns;
        let trajectory = self.dispatch.trajectory;
        let mut kept = turns.keeper(trajectory, self.turns, &self.prompt_ids, &begun);
        let generated = turns.generate(&request, begun, &mut kept).await?;
        let ids: Vec<i64> = generated.ids().map(i64::from).collect();
        let call = self.worker.tokenizer.parse_call(&ids);
        let last = self.turns + 1 >= self.worker.max_turns;
        let mut turn = Turn {
            index: self.turns,
            ..Default::default()
        };
        if let Some(call) = call.filter(|_| !last) {
            let room = self
                .worker
                .turns
                .max_len
                .saturating_sub(context.len() + ids.len());
            (turn.tool_result, turn.tool_ids) = match self.call_tool(&call, room).await {
                Ok(answer) => answer,
                Err(unable) => {
                    // Whoever goes on makes the same call: to generate the turn again until one
                    // comes that needs no tool would choose the samples by what the machine can.
                    kept.settle(&generated).await?;
                    return Err(unable.into());
                }
            };
            turn.tool_call = call;
        }
        turn.spans = generated.spans;
        Ok(turn)
    }

    /// The tool's answer as text and as tokens. What is wrong with the call is an empty result, for
    /// the model to make of it what it can; an answer that does not fit ends the conversation. That
    /// the tool is unable to answer is no result at all.
    async fn call_tool(&self, call: &str, room: usize) -> Result<(String, Vec<u32>), Unable> {
        let (text, shown) = match self.worker.ask_tool(call).await? {
            Ok(value) => (value.clone(), value),
            Err(error) => (format!("error: {error}"), String::new()),
        };
        let tokenizer = &self.worker.tokenizer;
        let ids = tokenizer
            .encode_result(&shown)
            .or_else(|_| tokenizer.encode_result(""));
        let ids = to_u32(&ids.unwrap_or_default());
        // One more token must fit, or there would be nothing to generate.
        Ok(if ids.len() < room {
            (text, ids)
        } else {
            (text, Vec::new())
        })
    }

    async fn finish(self) -> Result<(), Stop> {
        let tokenizer = &self.worker.tokenizer;
        let response: Vec<i64> = self.response.iter().map(|&id| i64::from(id)).collect();
        let request = FinishTrajectoryRequest {
            incarnation: self.worker.turns.host.incarnation,
            trajectory: self.dispatch.trajectory,
            reward: reward::reward(tokenizer, &response, &self.dispatch.answer),
            turns: self.turns,
            answer: reward::final_answer(tokenizer, &response).unwrap_or_default(),
        };
        Ok(self.worker.turns.host.finish(request).await?)
    }
}

fn to_u32(ids: &[i64]) -> Vec<u32> {
    // Vocabularies have fewer than 2^31 tokens, all of them positive.
    ids.iter()
        .map(|&id| u32::try_from(id).unwrap_or(0))
        .collect()
}
