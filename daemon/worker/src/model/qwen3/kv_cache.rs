//! Keys and values of what was computed, by slot.

use tch::{Device, Kind, Tensor};

use super::Qwen3Config;

/// Keys and values of all slots, one pair of [slots * kv heads * capacity, head_dim] a layer, in float32.
#[derive(Debug)]
pub struct KvCache {
    pub(super) layers: Vec<(Tensor, Tensor)>,
    pub(super) slots: i64,
    pub(super) capacity: i64,
    /// Rows of a slot.
    slot_rows: i64,
    head_dim: i64,
}

impl KvCache {
    /// An empty cache for `slots` sequences of up to `capacity` tokens.
    pub fn new(config: &Qwen3Config, slots: usize, capacity: usize) -> Self {
        let (slots, capacity) = (slots as i64, capacity as i64);
        let mut cache = Self {
            layers: Vec::new(),
            slots,
            capacity,
            slot_rows: config.num_key_value_heads * capacity,
            head_dim: config.head_dim,
        };
        let layers = 0..config.num_hidden_layers;
        cache.layers = layers
            .map(|_| (cache.zeros(slots), cache.zeros(slots)))
            .collect();
        cache
    }

    /// Sequences that there is room for.
    pub fn slots(&self) -> usize {
        self.slots as usize
    }

    /// Makes room for more sequences; what is cached stays. A slot's number decides about no bit of a
    /// result, so neither does when there is room for it.
    pub fn grow(&mut self, slots: usize) {
        let more = slots as i64 - self.slots;
        if more <= 0 {
            return;
        }
        // A layer at a time, so that there is never a second cache.
        for at in 0..self.layers.len() {
            let room = self.zeros(more);
            let (keys, values) = &mut self.layers[at];
            *keys = Tensor::cat(&[&*keys, &room], 0);
            *values = Tensor::cat(&[&*values, &room], 0);
        }
        self.slots += more;
    }

    fn zeros(&self, slots: i64) -> Tensor {
        let shape = [slots * self.slot_rows, self.head_dim];
        Tensor::zeros(shape, (Kind::Float, Device::Cpu))
    }

    /// Zeroes everything, so that not even a NaN of earlier weights remains.
    pub fn clear(&mut self) {
        for (keys, values) in &mut self.layers {
            let _ = keys.zero_();
            let _ = values.zero_();
        }
    }
}
