//! `sampling_params` as SGLang 0.5.23 reads them.

use serde_json::{Map, Value};

use super::refusal::Refusal;

/// SGLang's default for `top_k`, which is the whole vocabulary.
const TOP_K_ALL: i64 = 1 << 30;
/// SGLang's default when nothing is said.
const MAX_NEW_TOKENS: usize = 128;

/// What of the sampling parameters the built-in sampler serves.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// The most tokens that may follow; none for as many as fit.
    pub max_new_tokens: Option<usize>,
    /// Zero takes the most likely token each time.
    pub temperature: f64,
    /// The tokens that end the reply.
    pub stop_token_ids: Vec<i64>,
    /// Whether the model's own end of sequence does not.
    pub ignore_eos: bool,
    /// What the random numbers begin with.
    pub sampling_seed: Option<u64>,
}

impl Default for Sampling {
    fn default() -> Self {
        Self {
            max_new_tokens: Some(MAX_NEW_TOKENS),
            temperature: 1.0,
            stop_token_ids: Vec::new(),
            ignore_eos: false,
            sampling_seed: None,
        }
    }
}

/// What becomes of a key.
enum Rule {
    /// It is read.
    Served,
    /// It is about text or pace: no token depends on it.
    Harmless,
    /// Only the value that changes nothing is served.
    Only(fn(&Value) -> bool),
}

const RULES: [(&str, Rule); 29] = [
    ("max_new_tokens", Rule::Served),
    ("temperature", Rule::Served),
    ("stop_token_ids", Rule::Served),
    ("ignore_eos", Rule::Served),
    ("sampling_seed", Rule::Served),
    ("skip_special_tokens", Rule::Harmless),
    ("spaces_between_special_tokens", Rule::Harmless),
    ("no_stop_trim", Rule::Harmless),
    ("stream_interval", Rule::Harmless),
    ("top_k", Rule::Only(whole_vocabulary)),
    ("top_p", Rule::Only(one)),
    ("min_p", Rule::Only(zero)),
    ("n", Rule::Only(one)),
    ("beam_width", Rule::Only(one)),
    ("frequency_penalty", Rule::Only(zero)),
    ("presence_penalty", Rule::Only(zero)),
    ("repetition_penalty", Rule::Only(one)),
    ("min_new_tokens", Rule::Only(zero)),
    ("stop", Rule::Only(nothing)),
    ("stop_regex", Rule::Only(nothing)),
    ("json_schema", Rule::Only(nothing)),
    ("regex", Rule::Only(nothing)),
    ("ebnf", Rule::Only(nothing)),
    ("structural_tag", Rule::Only(nothing)),
    ("logit_bias", Rule::Only(nothing)),
    ("custom_params", Rule::Only(nothing)),
    ("watermark", Rule::Only(nothing)),
    ("stop_strs", Rule::Only(nothing)),
    ("stop_regex_strs", Rule::Only(nothing)),
];

fn one(value: &Value) -> bool {
    value.as_f64() == Some(1.0)
}

fn zero(value: &Value) -> bool {
    value.as_f64() == Some(0.0)
}

fn whole_vocabulary(value: &Value) -> bool {
    value.as_i64().is_some_and(|k| k == -1 || k >= TOP_K_ALL)
}

/// What a client writes that wants none of it.
pub(super) fn nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

impl Sampling {
    /// Reads the object; what is null is as if it were not there.
    pub fn read(given: &Map<String, Value>) -> Result<Self, Refusal> {
        for (key, value) in given {
            let rule = RULES.iter().find(|(known, _)| known == key);
            let (_, rule) = rule.ok_or_else(|| unknown(key))?;
            match rule {
                Rule::Only(fits) if !value.is_null() && !fits(value) => {
                    return Err(Refusal::Unsupported {
                        key: key.clone(),
                        instead: "leave it out".into(),
                    });
                }
                _ => {}
            }
        }
        let read = Reader(given);
        let default = Self::default();
        let max_new_tokens = match given.get("max_new_tokens") {
            None => default.max_new_tokens,
            Some(Value::Null) => None,
            Some(_) => read.one("max_new_tokens", "a count", |value| {
                value.as_u64().and_then(|count| usize::try_from(count).ok())
            })?,
        };
        let temperature = read.one("temperature", "a number", Value::as_f64)?;
        let stop_token_ids = read.one("stop_token_ids", "a list of tokens", |value| {
            let list = value.as_array()?;
            let list = list.iter().filter(|id| !id.is_null());
            list.map(Value::as_i64).collect::<Option<Vec<_>>>()
        })?;
        Ok(Self {
            max_new_tokens,
            temperature: temperature.unwrap_or(default.temperature),
            stop_token_ids: stop_token_ids.unwrap_or_default(),
            ignore_eos: read
                .one("ignore_eos", "true or false", Value::as_bool)?
                .unwrap_or_default(),
            sampling_seed: read.one("sampling_seed", "an integer", |value| {
                let unsigned = value.as_u64();
                unsigned.or_else(|| value.as_i64().map(i64::cast_unsigned))
            })?,
        })
    }
}

fn unknown(key: &str) -> Refusal {
    let known = RULES.iter().map(|(known, _)| format!("`{known}`"));
    Refusal::UnknownKey {
        key: key.to_owned(),
        known: known.collect::<Vec<_>>().join(", "),
    }
}

/// Takes values out of an object, by key.
pub(super) struct Reader<'a>(pub &'a Map<String, Value>);

impl Reader<'_> {
    /// The value of a key that is there and not null; refused where it is none of its type.
    pub fn one<T>(
        &self,
        key: &str,
        expected: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Result<Option<T>, Refusal> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => read(value).map(Some).ok_or_else(|| Refusal::Schema {
                key: key.to_owned(),
                what: format!("invalid type: {}, expected {expected}", kind_of(value)),
            }),
        }
    }
}

/// A value in an error, as serde calls it.
pub(super) fn kind_of(value: &Value) -> String {
    match value {
        Value::Null => "null".into(),
        Value::Bool(value) => format!("boolean `{value}`"),
        Value::Number(number) => format!("number `{number}`"),
        Value::String(_) => "a string".into(),
        Value::Array(_) => "sequence".into(),
        Value::Object(_) => "map".into(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn read(value: Value) -> Result<Sampling, Refusal> {
        Sampling::read(value.as_object().unwrap())
    }

    #[test]
    fn what_changes_nothing_is_served() {
        let defaults = json!({"top_k": 1 << 30, "top_p": 1.0, "min_p": 0.0, "n": 1,
            "frequency_penalty": 0, "repetition_penalty": 1, "stop": null, "stop_regex": [],
            "json_schema": "", "logit_bias": {}, "custom_params": null, "min_new_tokens": 0,
            "skip_special_tokens": false, "no_stop_trim": true,
            "spaces_between_special_tokens": false, "watermark": null, "temperature": null});
        assert_eq!(read(defaults), Ok(Sampling::default()));
        assert!(read(json!({"top_k": -1})).is_ok());
        let all = read(json!({"max_new_tokens": null, "sampling_seed": -1})).unwrap();
        assert_eq!(all.max_new_tokens, None);
        assert_eq!(all.sampling_seed, Some(u64::MAX));
    }

    #[test]
    fn what_the_sampler_cannot_do_is_refused_by_its_name() {
        for (key, value) in [
            ("top_p", json!(0.9)),
            ("top_k", json!(20)),
            ("min_p", json!(0.1)),
            ("n", json!(2)),
            ("stop", json!(["</s>"])),
            ("json_schema", json!("{}")),
            ("logit_bias", json!({"1": 2.0})),
            ("min_new_tokens", json!(3)),
            ("custom_params", json!({"a": 1})),
        ] {
            let refusal = read(json!({key: value})).unwrap_err();
            assert_eq!(
                refusal.to_string(),
                format!("{key} is not supported by the built-in rollout: leave it out")
            );
        }
    }

    #[test]
    fn an_unknown_key_and_a_wrong_type_are_refused_as_sglang_does() {
        let refusal = read(json!({"seed": 3})).unwrap_err();
        let text = refusal.body()["error"].as_str().unwrap().to_owned();
        assert!(text.starts_with("unknown field `seed`, expected one of `max_new_tokens`"));
        let refusal = read(json!({"temperature": "hot"})).unwrap_err();
        assert_eq!(
            refusal.body(),
            json!({"error": "temperature: invalid type: a string, expected a number"})
        );
        assert!(read(json!({"max_new_tokens": -1})).is_err());
        assert!(read(json!({"stop_token_ids": 3})).is_err());
        let with_null = read(json!({"stop_token_ids": [3, null]})).unwrap();
        assert_eq!(with_null.stop_token_ids, [3]);
    }
}
