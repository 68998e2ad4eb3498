//! The prompt by which engines are verified: what published weights answer to it goes with them.
use robust_shared::job::{EngineWeights, Job, Verification};

use super::words::CanaryPrompt;

/// Tokens of the prompt that engines are verified by, and of the answer.
const CANARY_TOKENS: u32 = 8;
/// Spreads the prompt over the vocabulary; odd, so that its tokens differ.
const CANARY_STRIDE: u32 = 37;

/// What published weights are asked, where the job's engines are verified by it.
pub fn prompt(job: &Job) -> Option<CanaryPrompt> {
    let command = job.rollout.command.as_ref()?;
    let asked = command.verify.contains(&Verification::Canary);
    let loaded = !matches!(command.weights, EngineWeights::Theirs | EngineWeights::None);
    if !(asked && loaded) {
        return None;
    }
    let config = std::fs::read(job.model.path.as_ref()?.join("config.json")).ok()?;
    let config: serde_json::Value = serde_json::from_slice(&config).ok()?;
    let vocabulary = u32::try_from(config["vocab_size"].as_u64()?).ok()?;
    let longest = config["max_position_embeddings"].as_u64();
    let longest = longest.map_or(u32::MAX, |n| u32::try_from(n).unwrap_or(u32::MAX));
    // A model whose sequences are shorter than prompt and answer gets what fits.
    let prompt = CANARY_TOKENS.min(longest / 2).max(1);
    Some(CanaryPrompt {
        prompt_ids: (1..=prompt)
            .map(|at| at * CANARY_STRIDE % vocabulary)
            .collect(),
        tokens: CANARY_TOKENS.min(longest.saturating_sub(prompt)).max(1),
    })
}
