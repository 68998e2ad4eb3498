//! What of the model's and the tokenizer's files matters to a conversation.

use std::path::Path;

use robust_shared::job::Job;
use serde_json::Value;

/// How long a conversation may be, and where an answer ends.
pub struct Model {
    /// Tokens of a whole conversation.
    pub longest: usize,
    /// Each of them ends an answer; empty where no file says so.
    pub stop: Vec<i64>,
}

impl Model {
    /// By the files of the model's folder, and those of the tokenizer where the model's say nothing.
    pub fn read(folder: &Path, job: &Job) -> Self {
        let of_model = |name: &str| json(&folder.join(name));
        let config = of_model("config.json");
        let positions = config["max_position_embeddings"].as_u64();
        let positions = positions.map_or(usize::MAX, |n| n as usize);
        let longest = job.rollout.max_context.map_or(positions, |n| n as usize);
        let generation = of_model("generation_config.json");
        let ends = [&generation, &config].map(|file| ids(&file["eos_token_id"]));
        let stop = ends.into_iter().find(|ids| !ids.is_empty());
        let of_tokenizer = || end_of(&job.data.tokenizer).into_iter().collect();
        Self {
            longest: longest.min(positions),
            stop: stop.unwrap_or_else(of_tokenizer),
        }
    }
}

/// `eos_token` of `tokenizer_config.json`, else `<eos>`.
fn end_of(tokenizer: &Path) -> Option<i64> {
    let config = json(&tokenizer.with_file_name("tokenizer_config.json"));
    let named = &config["eos_token"];
    let named = named.as_str().or_else(|| named["content"].as_str());
    let (file, token) = (json(tokenizer), named.unwrap_or("<eos>"));
    let added = file["added_tokens"].as_array().into_iter().flatten();
    let mut added = added.filter(|of| of["content"] == token);
    let added = added.find_map(|of| of["id"].as_i64());
    added.or_else(|| file["model"]["vocab"][token].as_i64())
}

/// One id, or a list of them.
fn ids(value: &Value) -> Vec<i64> {
    match value {
        Value::Array(all) => all.iter().filter_map(Value::as_i64).collect(),
        one => one.as_i64().into_iter().collect(),
    }
}

fn json(path: &Path) -> Value {
    let text = std::fs::read(path).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn write(dir: &Path, name: &str, text: &str) {
        std::fs::write(dir.join(name), text).unwrap();
    }

    #[test]
    fn an_answer_ends_where_the_model_says_else_where_the_tokenizer_does() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let vocabulary = r#"{"model": {"vocab": {"a": 1, "<eos>": 2}}, "added_tokens": [{"id": 7, "content": "</s>"}]}"#;
        write(dir, "tokenizer.json", vocabulary);
        let text = format!(
            "[data]\nprompts='p'\ntokenizer='{}/tokenizer.json'\n",
            dir.display()
        );
        let job = Job::parse(&text, Path::new("job.toml")).unwrap();
        let stop = || Model::read(dir, &job).stop;
        assert_eq!(stop(), [2]);
        write(
            dir,
            "tokenizer_config.json",
            r#"{"eos_token": {"content": "</s>"}}"#,
        );
        assert_eq!(stop(), [7]);
        write(
            dir,
            "config.json",
            r#"{"eos_token_id": 4, "max_position_embeddings": 64}"#,
        );
        assert_eq!(stop(), [4]);
        write(dir, "generation_config.json", r#"{"eos_token_id": [5, 6]}"#);
        assert_eq!(stop(), [5, 6]);
        assert_eq!(Model::read(dir, &job).longest, 64);
    }
}
