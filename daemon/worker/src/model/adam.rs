//! Adam on one flat buffer.
//!
//! Weights, first and second moments are three flat float32 tensors of one layout, and the step
//! count is the only other state: restoring them continues bit for bit.

use tch::{Kind, Tensor};

use super::flat::{self, FlatParams, WrongLength};

/// Elements that a step updates at once: what it computes on the way is then small beside the state.
const PIECE: usize = 1 << 20;

/// Adam's settings.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AdamConfig {
    /// Learning rate.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled weight decay (AdamW).
    pub weight_decay: f64,
    /// Bound on the gradient's global norm; 0 switches clipping off.
    pub grad_clip: f64,
}

impl Default for AdamConfig {
    fn default() -> Self {
        Self {
            lr: 3e-5,
            beta1: 0.9,
            beta2: 0.99,
            eps: 1e-8,
            weight_decay: 0.0,
            grad_clip: 1.0,
        }
    }
}

/// Why a step or a restore was refused; parameters and state are then unchanged.
#[derive(Debug, thiserror::Error, PartialEq)]
pub enum AdamError {
    /// The gradient has NaN or infinite elements.
    #[error("the gradient's norm is {0}")]
    NonFiniteGradient(f64),
    /// A buffer has another size than the parameters.
    #[error(transparent)]
    WrongLength(#[from] WrongLength),
}

/// What a step did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamStats {
    /// Global norm of the gradient before clipping.
    pub grad_norm: f64,
    /// Whether the gradient was scaled down.
    pub clipped: bool,
}

/// The optimiser's state.
#[derive(Debug)]
pub struct Adam {
    config: AdamConfig,
    step: u64,
    m: Tensor,
    v: Tensor,
}

impl Adam {
    /// Fresh state for these parameters.
    pub fn new(params: &FlatParams, config: AdamConfig) -> Self {
        let (m, v) = (params.tensor().zeros_like(), params.tensor().zeros_like());
        Self {
            config,
            step: 0,
            m,
            v,
        }
    }

    /// Steps taken since the beginning of training.
    pub fn step_count(&self) -> u64 {
        self.step
    }

    /// Changes the learning rate, for schedules.
    pub fn set_lr(&mut self, lr: f64) {
        self.config.lr = lr;
    }

    /// One update of the parameters in place, from a flat gradient.
    pub fn step(&mut self, params: &mut FlatParams, grad: &Tensor) -> Result<AdamStats, AdamError> {
        if grad.numel() != params.len() || self.m.numel() != params.len() {
            let (expected, got) = (params.len_bytes(), grad.numel() * size_of::<f32>());
            return Err(WrongLength { expected, got }.into());
        }
        tch::no_grad(|| self.step_no_grad(params, grad))
    }

    fn step_no_grad(
        &mut self,
        params: &mut FlatParams,
        grad: &Tensor,
    ) -> Result<AdamStats, AdamError> {
        let c = self.config;
        let grad_norm = grad.norm().to_kind(Kind::Double).double_value(&[]);
        if !grad_norm.is_finite() {
            return Err(AdamError::NonFiniteGradient(grad_norm));
        }
        let clipped = c.grad_clip > 0.0 && grad_norm > c.grad_clip;
        self.step += 1;
        let scale = clipped.then(|| c.grad_clip / grad_norm);
        let total = params.len();
        for first in (0..total).step_by(PIECE) {
            let count = PIECE.min(total - first) as i64;
            let part = |whole: &Tensor| whole.narrow(0, first as i64, count);
            let of = [params.tensor(), &self.m, &self.v, grad].map(part);
            self.update(of, scale);
        }
        Ok(AdamStats { grad_norm, clipped })
    }

    /// Updates a piece of parameters and moments by that of the gradient. Every element is computed by
    /// itself, so pieces change no bit.
    fn update(&self, [mut flat, mut m, mut v, grad]: [Tensor; 4], scale: Option<f64>) {
        let c = self.config;
        let grad = match scale {
            Some(scale) => grad * scale,
            None => grad,
        };
        let (unbias1, unbias2) = (
            1.0 - c.beta1.powi(self.step as i32),
            1.0 - c.beta2.powi(self.step as i32),
        );
        let _ = m.g_mul_scalar_(c.beta1).g_add_(&(&grad * (1.0 - c.beta1)));
        let _ = v
            .g_mul_scalar_(c.beta2)
            .g_add_(&(grad.square() * (1.0 - c.beta2)));
        let denominator = (v.sqrt() / unbias2.sqrt()).g_add_scalar_(c.eps);
        let update = (&m / denominator) * (c.lr / unbias1);
        if c.weight_decay != 0.0 {
            let _ = flat.g_mul_scalar_(1.0 - c.lr * c.weight_decay);
        }
        let _ = flat.g_sub_(&update);
    }

    /// First moments as bytes, in the parameters' order.
    pub fn m_bytes(&self) -> &[u8] {
        flat::tensor_bytes(&self.m)
    }

    /// Second moments as bytes, in the parameters' order.
    pub fn v_bytes(&self) -> &[u8] {
        flat::tensor_bytes(&self.v)
    }

    /// First and second moments to write to, with [`Self::set_step_count`]: puts saved state back in
    /// place.
    pub fn moments_mut(&mut self) -> [&mut [u8]; 2] {
        [&mut self.m, &mut self.v].map(flat::tensor_bytes_mut)
    }

    /// Steps done so far, of a state that was put back.
    pub fn set_step_count(&mut self, step: u64) {
        self.step = step;
    }

    /// Puts saved state back.
    pub fn restore(&mut self, step: u64, m: &[u8], v: &[u8]) -> Result<(), AdamError> {
        let expected = self.m.numel() * size_of::<f32>();
        if let Some(got) = [m.len(), v.len()].into_iter().find(|&got| got != expected) {
            return Err(WrongLength { expected, got }.into());
        }
        flat::copy_into_tensor(&mut self.m, m)?;
        flat::copy_into_tensor(&mut self.v, v)?;
        self.step = step;
        Ok(())
    }
}
