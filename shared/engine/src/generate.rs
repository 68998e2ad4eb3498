//! Asking an engine for tokens.

use serde_json::{Map, Value, json};

use crate::dialect::{Dialect, Kind};
use crate::request::Request;

/// Where SGLang and the built-in rollout are asked.
pub(crate) const SGLANG_GENERATE: &str = "/generate";
/// Where vLLM is asked; it needs `--enable-scale-out`.
pub(crate) const VLLM_GENERATE: &str = "/inference/v1/generate";

/// A request for the tokens that follow some others.
#[derive(Debug, Clone, PartialEq)]
pub struct Generate {
    /// The caller's name for the request; an abort names it.
    pub rid: String,
    /// The tokens to continue.
    pub ids: Vec<u32>,
    /// The most tokens that may follow.
    pub max_new_tokens: usize,
    /// Zero takes the most likely token each time.
    pub temperature: f64,
    /// The tokens that end the reply.
    pub stop_token_ids: Vec<u32>,
    /// Whether nothing but those ends it: engines also stop at the model's own end of sequence
    /// otherwise (C-8).
    pub ignore_eos: bool,
    /// What the random numbers begin with. Only vLLM gives the same tokens for the same one, and
    /// only as long as nothing else runs.
    pub sampling_seed: Option<u64>,
    /// What only the built-in rollout is told (C-7).
    pub own: Option<Own>,
    /// Whether each token comes with its logprob. vLLM's is without the temperature unless it runs
    /// with `--logprobs-mode processed_logprobs`.
    pub logprobs: bool,
    /// Whether tokens are to come as they are made.
    pub stream: bool,
}

impl Generate {
    /// The most likely tokens, as many as are asked for, in one reply: for a look at the engine.
    pub fn greedy(rid: impl Into<String>, ids: Vec<u32>, max_new_tokens: usize) -> Self {
        Self {
            rid: rid.into(),
            ids,
            max_new_tokens,
            temperature: 0.0,
            stop_token_ids: Vec::new(),
            ignore_eos: true,
            sampling_seed: None,
            own: None,
            logprobs: true,
            stream: false,
        }
    }
}

/// Keys the built-in rollout's random numbers: the same three give the same tokens wherever a turn
/// goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Own {
    /// The trajectory's number.
    pub trajectory: u64,
    /// The trajectory's seed.
    pub seed: u64,
    /// The position of the first input token in its trajectory.
    pub position: u64,
}

/// A token that the model does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("token {id} at position {position} is outside the vocabulary of {vocabulary}")]
pub struct TokenOutside {
    /// The token.
    pub id: i64,
    /// Its place in the request.
    pub position: usize,
    /// How many tokens the model has.
    pub vocabulary: u32,
}

/// Refuses tokens that the model does not have: one of them ends a SGLang server (C-13).
pub fn check_ids(ids: &[u32], vocabulary: u32) -> Result<(), TokenOutside> {
    let outside = ids.iter().position(|id| *id >= vocabulary);
    outside.map_or(Ok(()), |position| {
        Err(TokenOutside {
            id: ids[position].into(),
            position,
            vocabulary,
        })
    })
}

/// The same for what a client of the engine's own routes asks, by whatever key it names tokens; text is
/// nobody's to check. A batch has lists of them.
pub fn check_body(body: &Value, vocabulary: u32) -> Result<(), TokenOutside> {
    let keys = ["input_ids", "token_ids", "prompt"];
    let mut lists: Vec<&Vec<Value>> = keys
        .iter()
        .filter_map(|key| body[*key].as_array())
        .collect();
    while let Some(list) = lists.pop() {
        lists.extend(list.iter().filter_map(Value::as_array));
        let outside = |id: &i64| !(0..i64::from(vocabulary)).contains(id);
        let ids = list.iter().map(|id| id.as_i64().unwrap_or_default());
        if let Some((position, id)) = ids.enumerate().find(|(_, id)| outside(id)) {
            return Err(TokenOutside {
                id,
                position,
                vocabulary,
            });
        }
    }
    Ok(())
}

impl Dialect {
    /// The request that asks this engine for tokens.
    pub fn generate(&self, wanted: &Generate) -> Request {
        match self.kind() {
            Kind::Vllm => Request::post(VLLM_GENERATE, &vllm(wanted)),
            Kind::Sglang => Request::post(SGLANG_GENERATE, &of_sglang(wanted)),
            Kind::Robust => Request::post(SGLANG_GENERATE, &robust(wanted)),
        }
    }
}

fn sglang(wanted: &Generate) -> Map<String, Value> {
    let mut sampling = json!({
        "max_new_tokens": wanted.max_new_tokens,
        "temperature": wanted.temperature,
        "stop_token_ids": wanted.stop_token_ids,
        "ignore_eos": wanted.ignore_eos,
    });
    if let Some(seed) = wanted.sampling_seed {
        sampling["sampling_seed"] = signed(seed).into();
    }
    let body = json!({
        "rid": wanted.rid,
        "input_ids": wanted.ids,
        "sampling_params": sampling,
        "return_logprob": wanted.logprobs,
        "stream": wanted.stream,
    });
    match body {
        Value::Object(body) => body,
        _ => Map::new(),
    }
}

/// Told to ignore the end of sequence, SGLang ignores the stop tokens of the request with it
/// (`Req._check_token_based_finish`, 0.5.23).
fn of_sglang(wanted: &Generate) -> Value {
    let mut body = sglang(wanted);
    let ignores = wanted.ignore_eos && wanted.stop_token_ids.is_empty();
    if let Some(sampling) = body.get_mut("sampling_params") {
        sampling["ignore_eos"] = ignores.into();
    }
    body.into()
}

fn robust(wanted: &Generate) -> Value {
    let mut body = sglang(wanted);
    if let Some(own) = wanted.own {
        body.insert("trajectory".into(), own.trajectory.into());
        body.insert("seed".into(), own.seed.into());
        body.insert("position".into(), own.position.into());
    }
    if wanted.stream {
        body.insert(crate::serve::DELTAS.into(), true.into());
    }
    body.into()
}

fn vllm(wanted: &Generate) -> Value {
    let mut sampling = json!({
        "max_tokens": wanted.max_new_tokens,
        "temperature": wanted.temperature,
        "stop_token_ids": wanted.stop_token_ids,
        "ignore_eos": wanted.ignore_eos,
    });
    if let Some(seed) = wanted.sampling_seed {
        sampling["seed"] = signed(seed).into();
    }
    if wanted.logprobs {
        // The sampled token's, and of no other.
        sampling["logprobs"] = 0.into();
    }
    json!({
        "request_id": wanted.rid,
        "token_ids": wanted.ids,
        "sampling_params": sampling,
        "stream": wanted.stream,
    })
}

/// Both engines take signed numbers of 64 bits.
fn signed(seed: u64) -> i64 {
    (seed & i64::MAX as u64) as i64
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    pub fn wanted() -> Generate {
        Generate {
            rid: "7-0".into(),
            ids: vec![1, 5, 9],
            max_new_tokens: 4,
            temperature: 1.0,
            stop_token_ids: vec![2],
            ignore_eos: true,
            sampling_seed: Some(u64::MAX),
            own: Some(Own {
                trajectory: 7,
                seed: 3,
                position: 0,
            }),
            logprobs: true,
            stream: true,
        }
    }

    fn body(kind: Kind) -> Value {
        let request = Dialect::newest(kind).generate(&wanted());
        assert_eq!(request.content_type, Some("application/json"));
        serde_json::from_slice(&request.body).unwrap()
    }

    #[test]
    fn each_engine_is_asked_in_its_own_words_and_seeds_fit_them() {
        assert_eq!(
            body(Kind::Vllm),
            json!({"request_id": "7-0", "token_ids": [1, 5, 9], "stream": true,
                "sampling_params": {"max_tokens": 4, "temperature": 1.0, "stop_token_ids": [2],
                    "ignore_eos": true, "seed": i64::MAX, "logprobs": 0}})
        );
        assert_eq!(
            body(Kind::Sglang),
            json!({"rid": "7-0", "input_ids": [1, 5, 9], "stream": true, "return_logprob": true,
                "sampling_params": {"max_new_tokens": 4, "temperature": 1.0, "stop_token_ids": [2],
                    "ignore_eos": false, "sampling_seed": i64::MAX}})
        );
    }

    #[test]
    fn sglang_ignores_the_end_of_sequence_only_where_no_stop_token_is_named() {
        let without = Generate {
            stop_token_ids: Vec::new(),
            ..wanted()
        };
        let request = Dialect::newest(Kind::Sglang).generate(&without);
        let body: Value = serde_json::from_slice(&request.body).unwrap();
        assert_eq!(body["sampling_params"]["ignore_eos"], true);
    }

    #[test]
    fn keys_of_our_own_go_to_the_built_in_rollout_only() {
        let ours = body(Kind::Robust);
        assert_eq!((&ours["trajectory"], &ours["seed"]), (&7.into(), &3.into()));
        assert_eq!(ours["stream_deltas"], true);
        for kind in [Kind::Sglang, Kind::Vllm] {
            for key in ["trajectory", "seed", "position", "stream_deltas"] {
                assert!(body(kind)[key].is_null(), "{key} to {kind}");
            }
        }
    }

    #[test]
    fn a_token_that_the_model_does_not_have_is_found_before_it_kills_an_engine() {
        assert_eq!(check_ids(&[0, 9], 10), Ok(()));
        let outside = check_ids(&[0, 9, 10], 10).unwrap_err();
        assert_eq!(
            outside.to_string(),
            "token 10 at position 2 is outside the vocabulary of 10"
        );
    }

    #[test]
    fn a_foreign_clients_tokens_are_looked_at_wherever_they_stand() {
        let outside = |body: Value| check_body(&body, 96).map_err(|o| (o.id, o.position));
        assert_eq!(outside(json!({"input_ids": [1, 95]})), Ok(()));
        assert_eq!(outside(json!({"input_ids": [1, 96]})), Err((96, 1)));
        assert_eq!(outside(json!({"input_ids": [[1], [-1]]})), Err((-1, 0)));
        assert_eq!(outside(json!({"token_ids": [5000]})), Err((5000, 0)));
        assert_eq!(outside(json!({"prompt": [2, 3, 200]})), Err((200, 2)));
        assert_eq!(outside(json!({"prompt": "2000", "text": "x"})), Ok(()));
        assert_eq!(outside(Value::Null), Ok(()));
    }
}
