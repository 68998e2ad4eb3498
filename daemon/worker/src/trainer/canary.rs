//! What a published version must answer in an engine of somebody else's.

use robust_shared::weights::Canary;
use tch::{Kind, Tensor};

use crate::model::qwen3::Qwen3;

/// Tokens of the prompt.
const PROMPT: usize = 8;
/// Tokens that are generated: enough for keys and values to matter, few enough to cost nothing.
const ANSWER: usize = 8;
/// Spreads the prompt over the vocabulary; odd, so that its tokens differ.
const STRIDE: u32 = 37;

/// Greedy tokens after a fixed prompt, by the training forward. A model whose sequences are shorter than
/// prompt and answer gets what fits.
pub(super) fn of(model: &Qwen3) -> Canary {
    let config = model.config();
    let longest = config.max_position_embeddings as usize;
    let prompt = PROMPT.min(longest / 2).max(1);
    let answer = ANSWER.min(longest.saturating_sub(prompt)).max(1);
    let vocabulary = config.vocab_size as u32;
    let prompt_ids: Vec<u32> = (1..=prompt as u32)
        .map(|at| at * STRIDE % vocabulary)
        .collect();
    let mut canary = Canary {
        prompt_ids,
        ..Canary::default()
    };
    let _no_gradient = tch::no_grad_guard();
    for _ in 0..answer {
        let ids: Vec<i64> = canary
            .prompt_ids
            .iter()
            .chain(&canary.ids)
            .map(|id| i64::from(*id))
            .collect();
        let logits = model.forward(&Tensor::from_slice(&ids).unsqueeze(0));
        let last = logits.select(1, -1).squeeze_dim(0);
        let (values, indices) = last.log_softmax(-1, Kind::Float).topk(2, -1, true, true);
        let [first, second] = [0, 1].map(|at| values.double_value(&[at]) as f32);
        canary.ids.push(indices.int64_value(&[0]) as u32);
        canary.logprobs.push(first);
        canary.margins.push(first - second);
    }
    canary
}
