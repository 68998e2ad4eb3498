//! A request of `/generate` as a server reads it.

use serde_json::{Map, Value};

use super::refusal::Refusal;
use super::sampling::{Reader, Sampling, nothing};

/// The key with which our own agents ask for deltas; SGLang's operator decides that for everybody.
pub const DELTAS: &str = "stream_deltas";

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// The client's name for the request.
    pub rid: Option<String>,
    /// The tokens to continue; whether the model has them is for the sampler to say.
    pub ids: Vec<i64>,
    /// How the next ones are chosen.
    pub sampling: Sampling,
    /// Whether each token comes with its logprob.
    pub logprobs: bool,
    /// Whether tokens are sent as they are made.
    pub stream: bool,
    /// Whether a chunk has the new tokens only; everything so far otherwise.
    pub deltas: bool,
    /// Whether the reply repeats the prompt.
    pub prompt_ids: bool,
    /// Our own: keys the random numbers, together with seed and position.
    pub trajectory: Option<u64>,
    /// Our own: the trajectory's seed.
    pub seed: Option<u64>,
    /// Our own: the position of the first input token in its trajectory.
    pub position: u64,
}

/// Keys of SGLang's that mean something else when they are there; what is next to each is the
/// value besides nothing that changes nothing.
const UNSERVED: [(&str, Option<i64>); 21] = [
    ("text", None),
    ("input_embeds", None),
    ("image_data", None),
    ("video_data", None),
    ("audio_data", None),
    ("logprob_start_len", Some(-1)),
    ("top_logprobs_num", Some(0)),
    ("token_ids_logprob", None),
    ("return_text_in_logprobs", None),
    ("return_flat_raw_top_logprobs", None),
    ("return_flat_raw_output_top_logprobs", None),
    ("return_sampling_mask", None),
    ("return_hidden_states", None),
    ("return_routed_experts", None),
    ("return_indexer_topk", None),
    ("session_params", None),
    ("lora_path", None),
    ("custom_logit_processor", None),
    ("positional_embed_overrides", None),
    ("watermark", None),
    ("require_reasoning", None),
];

impl Asked {
    /// Reads a body.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        // A body that is not there has no keys.
        let body = if body.is_empty() { b"{}" } else { body };
        let body = serde_json::from_slice(body)
            .map_err(|error| Refusal::NotAnObject(error.to_string()))?;
        let Value::Object(body) = body else {
            let what = "Input should be a dictionary or an instance of GenerateReqInput";
            return Err(Refusal::NotAnObject(what.into()));
        };
        unserved(&body)?;
        let read = Reader(&body);
        let flag = |key| read.one(key, "true or false", Value::as_bool);
        let number = |key| read.one(key, "a number that is not negative", Value::as_u64);
        let sampling = match body.get("sampling_params") {
            None | Some(Value::Null) => Sampling::default(),
            Some(Value::Object(given)) => Sampling::read(given)?,
            Some(_) => return Err(batch("sampling_params")),
        };
        Ok(Self {
            rid: rid(&body)?,
            ids: ids(&body)?,
            sampling,
            logprobs: flag("return_logprob")?.unwrap_or_default(),
            stream: flag("stream")?.unwrap_or_default(),
            deltas: flag(DELTAS)?.unwrap_or_default(),
            prompt_ids: flag("return_prompt_token_ids")?.unwrap_or_default(),
            trajectory: number("trajectory")?,
            seed: number("seed")?,
            position: number("position")?.unwrap_or_default(),
        })
    }
}

fn unserved(body: &Map<String, Value>) -> Result<(), Refusal> {
    for (key, neutral) in UNSERVED {
        let Some(value) = body.get(key) else { continue };
        let neutral = neutral.is_some() && value.as_i64() == neutral;
        if !nothing(value) && !neutral {
            let instead = match key {
                "text" => "send the tokens as input_ids",
                _ => "leave it out",
            };
            return Err(Refusal::Unsupported {
                key: key.into(),
                instead: instead.into(),
            });
        }
    }
    Ok(())
}

fn batch(key: &str) -> Refusal {
    Refusal::Unsupported {
        key: format!("a batch in {key}"),
        instead: "send one request for each prompt".into(),
    }
}

fn rid(body: &Map<String, Value>) -> Result<Option<String>, Refusal> {
    if body.get("rid").is_some_and(Value::is_array) {
        return Err(batch("rid"));
    }
    let name = |value: &Value| value.as_str().map(str::to_owned);
    Reader(body).one("rid", "a string", name)
}

fn ids(body: &Map<String, Value>) -> Result<Vec<i64>, Refusal> {
    let list = body.get("input_ids").and_then(Value::as_array);
    if list.is_some_and(|list| list.first().is_some_and(Value::is_array)) {
        return Err(batch("input_ids"));
    }
    let tokens = |value: &Value| {
        let list = value.as_array()?;
        list.iter().map(Value::as_i64).collect::<Option<Vec<_>>>()
    };
    let ids = Reader(body).one("input_ids", "a list of tokens", tokens)?;
    ids.ok_or_else(|| Refusal::bad("missing field `input_ids`: the tokens to continue"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::dialect::{Dialect, Kind};
    use crate::generate::tests::wanted;
    use serde_json::json;

    fn read(value: &Value) -> Result<Asked, Refusal> {
        Asked::read(value.to_string().as_bytes())
    }

    #[test]
    fn what_our_own_client_asks_is_read_as_it_was_meant() {
        let wanted = wanted();
        let request = Dialect::newest(Kind::Robust).generate(&wanted);
        let asked = Asked::read(&request.body).unwrap();
        assert_eq!(asked.ids, [1, 5, 9]);
        assert_eq!((asked.trajectory, asked.seed), (Some(7), Some(3)));
        assert!(asked.deltas && asked.stream && asked.logprobs && asked.sampling.ignore_eos);
        assert_eq!(asked.sampling.stop_token_ids, [2]);
        assert_eq!(asked.sampling.max_new_tokens, Some(4));
    }

    #[test]
    fn keys_unknown_at_the_top_level_are_ignored() {
        let asked = read(
            &json!({"input_ids": [1], "whatever": {"x": 1}, "top_logprobs_num": 0,
            "logprob_start_len": -1, "image_data": null, "return_routed_experts": false}),
        );
        assert_eq!(asked.unwrap().ids, [1]);
    }

    #[test]
    fn what_is_not_served_is_refused_by_its_name() {
        for (body, name) in [
            (json!({"text": "a"}), "text"),
            (json!({"input_ids": [[1], [2]]}), "a batch in input_ids"),
            (
                json!({"input_ids": [1], "sampling_params": [{}]}),
                "a batch in sampling_params",
            ),
            (json!({"input_ids": [1], "rid": ["a"]}), "a batch in rid"),
            (
                json!({"input_ids": [1], "top_logprobs_num": 2}),
                "top_logprobs_num",
            ),
            (
                json!({"input_ids": [1], "return_hidden_states": true}),
                "return_hidden_states",
            ),
            (
                json!({"input_ids": [1], "logprob_start_len": 0}),
                "logprob_start_len",
            ),
        ] {
            let refusal = read(&body).unwrap_err();
            let message = refusal.body()["error"]["message"].to_string();
            let says = format!("\"{name} is not supported");
            assert!(message.starts_with(&says), "{message}");
            assert_eq!(refusal.status(), 400);
        }
    }

    #[test]
    fn each_kind_of_nonsense_has_sglangs_shape() {
        for (body, key) in [
            ("{", "object"),
            ("[]", "object"),
            (r#"{"input_ids": "a"}"#, "error"),
            (r#"{"input_ids": [1.5]}"#, "error"),
            ("", "error"),
        ] {
            let refusal = Asked::read(body.as_bytes()).unwrap_err();
            assert!(!refusal.body()[key].is_null(), "{body}: {refusal}");
        }
    }
}
