//! Weights, optimiser and the mathematics of a step: all of it in float32, whatever the numbers of the
//! initial weights and of published versions are.

use std::path::Path;

use robust_proto::v1::{Floats, Sample};
use robust_shared::job::Job;
use tch::Tensor;

use crate::StartError;
use crate::model::adam::{Adam, AdamConfig, AdamError, AdamStats};
use crate::model::config::Qwen3Config;
use crate::model::grpo::{self, GradOut, GrpoConfig, GrpoError, TrainBatch, TrainSample};
use crate::model::hf;
use crate::model::qwen3::Qwen3;

/// What a rank trains.
pub(super) struct TrainState {
    pub model: Qwen3,
    pub adam: Adam,
    /// The step these weights are the result of.
    pub step: u64,
    adam_config: AdamConfig,
    loss: GrpoConfig,
    /// The policy that the KL term pulls to: the initial weights.
    reference: Option<Qwen3>,
}

impl TrainState {
    /// Zero weights, to be restored.
    pub fn new(config: Qwen3Config, job: &Job, folder: &Path) -> Result<Self, StartError> {
        let model = Qwen3::zeroed(config)?;
        let adam_config = adam_config(job);
        let adam = Adam::new(model.params(), adam_config);
        let loss = loss_config(job);
        let reference = if loss.kl_coef == 0.0 {
            None
        } else {
            Some(hf::load(folder)?)
        };
        Ok(Self {
            model,
            adam,
            step: 0,
            adam_config,
            loss,
            reference,
        })
    }

    /// Runs a small gradient through zero weights: libtorch sets its kernels up while the daemon
    /// is still preparing the restore, and not in the first real step.
    pub fn warm_kernels(&mut self) {
        let length = 8.min(self.model.config().max_position_embeddings as usize);
        let sample = TrainSample {
            ids: vec![0; length],
            response_mask: vec![1; length],
            old_logprobs: vec![0.0; length],
            ref_logprobs: self.reference.as_ref().map(|_| vec![0.0; length]),
        };
        let batch = TrainBatch {
            samples: vec![sample.clone(), sample],
        };
        let gradient = grpo::grpo_gradient(&self.model, &batch, &[1.0, -1.0], 1, &self.loss);
        if let Err(error) = gradient {
            // The first step will say so too, with real weights.
            tracing::debug!(%error, "warming up libtorch");
        }
    }

    /// The weights, first and second moments, to be restored in place.
    pub fn memory_mut(&mut self) -> [&mut [u8]; 3] {
        let [m, v] = self.adam.moments_mut();
        [self.model.params_mut().as_bytes_mut(), m, v]
    }

    /// Forgets everything but the settings.
    pub fn reset_optimiser(&mut self) {
        self.adam = Adam::new(self.model.params(), self.adam_config);
    }

    /// Logprobs of every token after the first under the current weights.
    pub fn old_logprobs(&self, samples: &[Sample]) -> Result<Vec<Floats>, GrpoError> {
        let batch = TrainBatch {
            samples: samples.iter().map(without_old).collect(),
        };
        let columns = self.logprobs(&self.model, &batch)?;
        Ok(columns
            .into_iter()
            .map(|column| Floats {
                values: column[1..].to_vec(),
            })
            .collect())
    }

    /// This rank's share of a step, with what the reference policy says of it where there is one: that is
    /// what the phase `ref_logprob` takes its time for.
    pub fn batch(&self, samples: &[Sample]) -> Result<TrainBatch, GrpoError> {
        let mut batch = TrainBatch {
            samples: samples.iter().map(with_old).collect(),
        };
        if let Some(reference) = &self.reference {
            let columns = self.logprobs(reference, &batch)?;
            for (sample, column) in batch.samples.iter_mut().zip(columns) {
                sample.ref_logprobs = Some(column);
            }
        }
        Ok(batch)
    }

    /// This rank's share of the gradient, of the batch of these samples.
    pub fn gradient(
        &self,
        batch: &TrainBatch,
        samples: &[Sample],
        tokens: u64,
    ) -> Result<GradOut, GrpoError> {
        let advantages: Vec<f32> = samples
            .iter()
            .map(|sample| sample.advantage as f32)
            .collect();
        grpo::grpo_gradient(&self.model, batch, &advantages, tokens as usize, &self.loss)
    }

    /// One step of the optimiser with the whole batch's gradient.
    pub fn apply(&mut self, step: u64, gradient: &Tensor) -> Result<AdamStats, AdamError> {
        let stats = self.adam.step(self.model.params_mut(), gradient)?;
        self.step = step;
        Ok(stats)
    }

    /// Whether there is a KL term.
    pub fn has_reference(&self) -> bool {
        self.reference.is_some()
    }

    fn logprobs(&self, model: &Qwen3, batch: &TrainBatch) -> Result<Vec<Vec<f32>>, GrpoError> {
        grpo::logprobs(model, batch, self.loss.temperature, self.loss.micro_batch)
    }
}

fn adam_config(job: &Job) -> AdamConfig {
    let train = &job.train;
    AdamConfig {
        lr: train.lr,
        beta1: train.betas[0],
        beta2: train.betas[1],
        eps: train.eps,
        weight_decay: train.weight_decay,
        grad_clip: train.max_grad_norm,
    }
}

fn loss_config(job: &Job) -> GrpoConfig {
    let train = &job.train;
    // At temperature 0 nothing is sampled; the policy itself is then what is compared.
    let sampled = job.rollout.temperature;
    GrpoConfig {
        clip_eps: train.clip_eps,
        clip_eps_high: train.clip_eps_high,
        dual_clip: Some(train.dual_clip).filter(|limit| *limit > 0.0),
        kl_coef: train.kl_coef,
        temperature: if sampled > 0.0 { sampled } else { 1.0 },
        micro_batch: train.micro_batch.max(1) as usize,
    }
}

fn without_old(sample: &Sample) -> TrainSample {
    TrainSample {
        ids: sample.ids.iter().map(|&id| i64::from(id)).collect(),
        response_mask: sample
            .trainable
            .iter()
            .map(|&trainable| u8::from(trainable))
            .collect(),
        old_logprobs: vec![0.0; sample.ids.len()],
        ref_logprobs: None,
    }
}

/// The protocol's old logprobs begin with the second token; the model's column with the first.
fn with_old(sample: &Sample) -> TrainSample {
    let mut old_logprobs = vec![0.0];
    old_logprobs.extend_from_slice(&sample.old_logprobs);
    TrainSample {
        old_logprobs,
        ..without_old(sample)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_logprobs_are_aligned_with_the_tokens() {
        let sample = Sample {
            ids: vec![1, 2, 3],
            trainable: vec![false, true, true],
            old_logprobs: vec![-0.5, -0.25],
            ..Default::default()
        };
        let train = with_old(&sample);
        assert_eq!(train.ids, [1, 2, 3]);
        assert_eq!(train.response_mask, [0, 1, 1]);
        assert_eq!(train.old_logprobs, [0.0, -0.5, -0.25]);
    }
}
