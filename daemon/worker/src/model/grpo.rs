//! GRPO: the clipped policy gradient on group-relative advantages.
//!
//! Per response token: `-min(r A, clip(r) A) + kl_coef * KL(ref)`, with `r` the ratio of the
//! current to the old policy. Sums are divided by the *whole* batch's number of response tokens,
//! which the caller gives: gradients and statistics of ranks that hold parts of a batch then
//! simply add up.

use std::collections::BTreeMap;

use tch::{IndexOp, Kind, Tensor};

use super::qwen3::Qwen3;

/// Sequences are padded to a multiple of this, so that few shapes occur.
const BUCKET: usize = 8;

/// With fewer rows libtorch's kernels give other last bits.
const LEAST_ROWS: usize = 4;

/// Settings of the loss.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GrpoConfig {
    /// The ratio counts up to `1 +- clip_eps`.
    pub clip_eps: f64,
    /// Another upper bound than `clip_eps` (clip-higher of DAPO).
    pub clip_eps_high: Option<f64>,
    /// Bound on the loss of a token with negative advantage, as a multiple of it (dual clip).
    /// Stale samples can have huge ratios there, which the plain minimum does not bound.
    pub dual_clip: Option<f64>,
    /// Weight of the divergence from the reference policy; needs `ref_logprobs`.
    pub kl_coef: f64,
    /// The temperature of sampling: the policy is the one that was sampled from.
    pub temperature: f64,
    /// Sequences per forward and backward; bounds memory.
    pub micro_batch: usize,
}

impl Default for GrpoConfig {
    fn default() -> Self {
        Self {
            clip_eps: 0.2,
            clip_eps_high: None,
            dual_clip: Some(3.0),
            kl_coef: 0.0,
            temperature: 1.0,
            micro_batch: 64,
        }
    }
}

/// One trajectory as the trainer sees it; all columns have one element per token.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainSample {
    /// Prompt, generated tokens and tool results in order.
    pub ids: Vec<i64>,
    /// 1 for tokens that the model generated, 0 for prompt and tool results.
    pub response_mask: Vec<u8>,
    /// Logprob of each token under the policy that generated it; unused where the mask is 0.
    pub old_logprobs: Vec<f32>,
    /// Logprob of each token under the reference policy.
    pub ref_logprobs: Option<Vec<f32>>,
}

/// Trajectories to learn from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TrainBatch {
    /// The trajectories; order matters to the last bits of the gradient.
    pub samples: Vec<TrainSample>,
}

impl TrainBatch {
    /// Number of tokens that the model generated.
    pub fn response_tokens(&self) -> usize {
        let ones = |sample: &TrainSample| sample.response_mask.iter().filter(|&&m| m != 0).count();
        self.samples.iter().map(ones).sum()
    }
}

/// Why a gradient could not be computed.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum GrpoError {
    /// A column has another length than the tokens.
    #[error("sample {sample}: column {column} has {got} elements for {expected} tokens")]
    ColumnLength {
        /// Index in the batch.
        sample: usize,
        /// The column.
        column: &'static str,
        /// Number of tokens.
        expected: usize,
        /// Elements found.
        got: usize,
    },
    /// A token id outside the vocabulary, or a sequence too short or too long for the model.
    #[error("sample {sample}: {why}")]
    BadSample {
        /// Index in the batch.
        sample: usize,
        /// What is wrong with it.
        why: String,
    },
    /// There must be one advantage per sample.
    #[error("{got} advantages for {expected} samples")]
    Advantages {
        /// Samples in the batch.
        expected: usize,
        /// Advantages given.
        got: usize,
    },
    /// A KL term was asked for without logprobs of the reference.
    #[error("sample {sample} has no ref_logprobs, but kl_coef is not 0")]
    NoReference {
        /// Index in the batch.
        sample: usize,
    },
    /// NaN or infinity where a number was due: the numeric fault of the trainer.
    #[error("numeric fault: {what} is {value}")]
    NonFinite {
        /// Loss or gradient norm.
        what: &'static str,
        /// Its value.
        value: f64,
    },
}

/// Gradient and statistics; all are shares of the whole batch's means and add up over ranks.
#[derive(Debug)]
pub struct GradOut {
    /// Flat gradient in the parameters' order.
    pub grad: Tensor,
    /// The loss.
    pub loss: f64,
    /// Share of tokens whose ratio was clipped.
    pub clip_frac: f64,
    /// Divergence from the old policy (k3 estimate).
    pub kl: f64,
    /// Divergence from the reference policy (k3 estimate), 0 without one.
    pub ref_kl: f64,
    /// Entropy of the policy.
    pub entropy: f64,
}

/// The gradient of one rank's part of a batch. `total_tokens` counts the response tokens of the
/// whole batch over all ranks.
pub fn grpo_gradient(
    model: &Qwen3,
    batch: &TrainBatch,
    advantages: &[f32],
    total_tokens: usize,
    config: &GrpoConfig,
) -> Result<GradOut, GrpoError> {
    check(model, batch)?;
    if advantages.len() != batch.samples.len() {
        let (expected, got) = (batch.samples.len(), advantages.len());
        return Err(GrpoError::Advantages { expected, got });
    }
    let without = batch
        .samples
        .iter()
        .position(|sample| sample.ref_logprobs.is_none());
    if let Some(sample) = without.filter(|_| config.kl_coef != 0.0) {
        return Err(GrpoError::NoReference { sample });
    }
    let scale = 1.0 / total_tokens.max(1) as f64;
    // Each tensor's gradient is added to its place as soon as it is there: a gradient of a large model
    // is never in memory twice.
    let (model, grad) = model.with_gradient();
    let mut sums = [0.0; 5];
    for indices in micro_batches(batch, config.micro_batch) {
        let part = Columns::gather(batch, &indices, advantages);
        let (loss, stats) = part.loss(&model, config, scale);
        loss.backward();
        let stats = Vec::<f64>::try_from(stats.to_kind(Kind::Double)).unwrap_or_default();
        sums.iter_mut()
            .zip(stats)
            .for_each(|(sum, value)| *sum += value);
    }
    let [loss, clip_frac, kl, ref_kl, entropy] = sums;
    let norm = grad.norm().double_value(&[]);
    for (what, value) in [("loss", loss), ("gradient norm", norm)] {
        if !value.is_finite() {
            return Err(GrpoError::NonFinite { what, value });
        }
    }
    Ok(GradOut {
        grad,
        loss,
        clip_frac,
        kl,
        ref_kl,
        entropy,
    })
}

/// Logprob of every token under this model with the training forward, aligned with the ids (the
/// first token's is 0): the old or reference policy's column.
///
/// A sample's column is the same to the bit whichever samples come with it: half of a batch may be
/// asked for now and the rest later. So it is padded by its own length alone, and computed together
/// with others of that padded length in at least [`LEAST_ROWS`] rows.
pub fn logprobs(
    model: &Qwen3,
    batch: &TrainBatch,
    temperature: f64,
    micro_batch: usize,
) -> Result<Vec<Vec<f32>>, GrpoError> {
    check(model, batch)?;
    let mut columns = vec![Vec::new(); batch.samples.len()];
    for indices in alike(batch, micro_batch) {
        let fill = LEAST_ROWS.saturating_sub(indices.len());
        let rows: Vec<usize> = indices
            .iter()
            .copied()
            .chain(indices.iter().copied().cycle().take(fill))
            .collect();
        let ids = pad_ids(batch, &rows);
        let values = tch::no_grad(|| model.token_logprobs(&ids, temperature));
        let width = ids.size()[1] as usize - 1;
        let values = Vec::<f32>::try_from(values.reshape([-1])).unwrap_or_default();
        for (row, &index) in indices.iter().enumerate() {
            let length = batch.samples[index].ids.len();
            let mut column = vec![0.0];
            column.extend_from_slice(&values[row * width..row * width + length - 1]);
            columns[index] = column;
        }
    }
    Ok(columns)
}

fn check(model: &Qwen3, batch: &TrainBatch) -> Result<(), GrpoError> {
    let config = model.config();
    for (index, sample) in batch.samples.iter().enumerate() {
        let length = sample.ids.len();
        let columns = [
            ("response_mask", sample.response_mask.len()),
            ("old_logprobs", sample.old_logprobs.len()),
            (
                "ref_logprobs",
                sample.ref_logprobs.as_ref().map_or(length, Vec::len),
            ),
        ];
        if let Some(&(column, got)) = columns.iter().find(|(_, len)| *len != length) {
            return Err(GrpoError::ColumnLength {
                sample: index,
                column,
                expected: length,
                got,
            });
        }
        let bad = |why: String| Err(GrpoError::BadSample { sample: index, why });
        if length < 2 || length as i64 > config.max_position_embeddings {
            let longest = config.max_position_embeddings;
            return bad(format!("{length} tokens, expected 2 to {longest}"));
        }
        if let Some(id) = sample
            .ids
            .iter()
            .find(|id| !(0..config.vocab_size).contains(*id))
        {
            return bad(format!("token {id} is outside the vocabulary"));
        }
    }
    Ok(())
}

/// Indices sorted by length (stable, so the order is a function of the batch) in parts.
fn micro_batches(batch: &TrainBatch, size: usize) -> Vec<Vec<usize>> {
    let mut indices: Vec<usize> = (0..batch.samples.len()).collect();
    indices.sort_by_key(|&index| batch.samples[index].ids.len());
    indices.chunks(size.max(1)).map(<[usize]>::to_vec).collect()
}

/// Indices in parts of the same padded length, each part in the order of the batch.
fn alike(batch: &TrainBatch, size: usize) -> Vec<Vec<usize>> {
    let mut by_length: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for index in 0..batch.samples.len() {
        let length = padded_length(batch, &[index]);
        by_length.entry(length).or_default().push(index);
    }
    let parts = by_length.values().flat_map(|of| of.chunks(size.max(1)));
    parts.map(<[usize]>::to_vec).collect()
}

fn padded_length(batch: &TrainBatch, indices: &[usize]) -> usize {
    let longest = indices
        .iter()
        .map(|&index| batch.samples[index].ids.len())
        .max();
    longest.unwrap_or(0).next_multiple_of(BUCKET)
}

fn pad_ids(batch: &TrainBatch, indices: &[usize]) -> Tensor {
    pad(indices, padded_length(batch, indices), |index| {
        batch.samples[index].ids.as_slice()
    })
}

/// Right-pads a column with zeros to [B, T].
fn pad<'a, T: tch::kind::Element + Copy + Default + 'a>(
    indices: &[usize],
    length: usize,
    column: impl Fn(usize) -> &'a [T],
) -> Tensor {
    let mut padded = vec![T::default(); indices.len() * length];
    for (row, &index) in indices.iter().enumerate() {
        let values = column(index);
        padded[row * length..row * length + values.len()].copy_from_slice(values);
    }
    Tensor::from_slice(&padded).view([indices.len() as i64, length as i64])
}

/// A micro batch as tensors; all but `ids` are aligned with the predicted tokens, [B, T-1].
struct Columns {
    ids: Tensor,
    mask: Tensor,
    old: Tensor,
    reference: Option<Tensor>,
    advantages: Tensor,
}

impl Columns {
    fn gather(batch: &TrainBatch, indices: &[usize], advantages: &[f32]) -> Self {
        let length = padded_length(batch, indices);
        let sample = |index: usize| &batch.samples[index];
        let mask = pad(indices, length, |index| {
            sample(index).response_mask.as_slice()
        });
        let old = pad(indices, length, |index| {
            sample(index).old_logprobs.as_slice()
        });
        let has_reference = indices
            .iter()
            .all(|&index| sample(index).ref_logprobs.is_some());
        let reference = has_reference.then(|| {
            pad(indices, length, |index| {
                sample(index).ref_logprobs.as_deref().unwrap_or(&[])
            })
        });
        let advantages: Vec<f32> = indices.iter().map(|&index| advantages[index]).collect();
        Self {
            ids: pad_ids(batch, indices),
            mask: mask.i((.., 1..)).to_kind(Kind::Float),
            old: old.i((.., 1..)),
            reference: reference.map(|reference| reference.i((.., 1..))),
            advantages: Tensor::from_slice(&advantages).unsqueeze(1),
        }
    }

    /// The loss to differentiate, and loss, clipped share, both divergences and entropy.
    fn loss(&self, model: &Qwen3, config: &GrpoConfig, scale: f64) -> (Tensor, Tensor) {
        let all = model.next_logprobs(&self.ids, config.temperature);
        let targets = self.ids.i((.., 1..)).unsqueeze(2);
        let new = all.gather(2, &targets, false).squeeze_dim(2);
        // Masked positions compare with themselves: no ratio of theirs can overflow.
        let old = self.old.where_self(&self.mask.gt(0.0), &new.detach());
        let ratio = (&new - &old).exp();
        let high = 1.0 + config.clip_eps_high.unwrap_or(config.clip_eps);
        let bounded = ratio.clamp(1.0 - config.clip_eps, high);
        let (plain, clipped) = (&ratio * &self.advantages, bounded * &self.advantages);
        let mut gain = plain.minimum(&clipped);
        if let Some(limit) = config.dual_clip {
            let floor = (&self.advantages * limit).clamp_max(0.0);
            // For a positive advantage the gain is never below the floor of 0.
            gain = gain.maximum(&floor);
        }
        let mut per_token = gain.neg();
        let ref_kl = self.reference.as_ref().map(|reference| {
            let reference = reference.where_self(&self.mask.gt(0.0), &new.detach());
            k3(&(reference - &new))
        });
        if let Some(ref_kl) = ref_kl.as_ref().filter(|_| config.kl_coef != 0.0) {
            per_token += ref_kl * config.kl_coef;
        }
        let total = |x: &Tensor| (x * &self.mask).sum(Kind::Float) * scale;
        let loss = total(&per_token);
        let stats = tch::no_grad(|| {
            let entropy = (all.exp() * &all)
                .sum_dim_intlist(-1, false, Kind::Float)
                .neg();
            let was_clipped = clipped.lt_tensor(&plain).to_kind(Kind::Float);
            let ref_kl = ref_kl.as_ref().map_or_else(|| loss.zeros_like(), &total);
            let kl = total(&k3(&(&old - &new)));
            Tensor::stack(
                &[
                    loss.detach(),
                    total(&was_clipped),
                    kl,
                    ref_kl,
                    total(&entropy),
                ],
                0,
            )
        });
        (loss, stats)
    }
}

/// Schulman's low-variance estimate of KL(new || other) from `other - new`.
fn k3(difference: &Tensor) -> Tensor {
    difference.exp() - difference - 1.0
}
