//! The incremental forward: rows of sequences whose earlier keys and values are cached.

use tch::{Device, Kind, Tensor};

use super::{KvCache, Layer, Qwen3, rotate};

/// Rows to compute at once; the three lists have one element a row.
#[derive(Debug, Clone, Default)]
pub struct Rows {
    /// Tokens to feed.
    pub tokens: Vec<i64>,
    /// Their positions in their sequences.
    pub positions: Vec<i64>,
    /// Their sequences' slots in the cache.
    pub slots: Vec<i64>,
}

/// What the layers of one incremental forward share.
struct RowContext {
    cos: Tensor,
    sin: Tensor,
    mask: Tensor,
    slots: Tensor,
    write_at: Tensor,
}

impl Qwen3 {
    /// Logits [R, V] of rows; writes their keys and values into the cache first, so rows of one
    /// sequence may come together. Slots and positions must lie inside the cache.
    pub fn forward_rows(&self, cache: &mut KvCache, rows: &Rows) -> Tensor {
        let context = self.row_context(cache, rows);
        let ids = Tensor::from_slice(&rows.tokens);
        let mut hidden = self.embedded(&ids);
        for (layer, (keys, values)) in self.layers.iter().zip(&mut cache.layers) {
            let normed = self.norm(&hidden, layer.input_norm);
            hidden = &hidden + self.attention_rows(layer, &normed, &context, keys, values);
            hidden = &hidden + self.feed_forward(layer, &self.norm(&hidden, layer.post_norm));
        }
        self.logits(&self.norm(&hidden, self.final_norm))
    }

    fn row_context(&self, cache: &KvCache, rows: &Rows) -> RowContext {
        let (capacity, kv_heads) = (cache.capacity, self.config.num_key_value_heads);
        debug_assert!(rows.slots.iter().all(|&slot| slot < cache.slots));
        let positions = Tensor::from_slice(&rows.positions);
        let future =
            Tensor::arange(capacity, (Kind::Int64, Device::Cpu)).gt_tensor(&positions.unsqueeze(1));
        let mask = future.zeros_like().to_kind(Kind::Float);
        let mask = mask.masked_fill(&future, f64::NEG_INFINITY);
        let write_at: Vec<i64> = rows
            .slots
            .iter()
            .zip(&rows.positions)
            .flat_map(|(slot, position)| {
                (0..kv_heads).map(move |head| (slot * kv_heads + head) * capacity + position)
            })
            .collect();
        RowContext {
            cos: self.cos.index_select(0, &positions).unsqueeze(1),
            sin: self.sin.index_select(0, &positions).unsqueeze(1),
            mask: mask.view([-1, 1, 1, capacity]),
            slots: Tensor::from_slice(&rows.slots),
            write_at: Tensor::from_slice(&write_at),
        }
    }

    fn attention_rows(
        &self,
        layer: &Layer,
        x: &Tensor,
        context: &RowContext,
        keys: &mut Tensor,
        values: &mut Tensor,
    ) -> Tensor {
        let (head_dim, kv_heads) = (self.config.head_dim, self.config.num_key_value_heads);
        let (rows, capacity) = (x.size()[0], context.mask.size()[3]);
        let (q, k, v) = self.heads(layer, x);
        let q = rotate(&q, &context.cos, &context.sin);
        let k = rotate(&k, &context.cos, &context.sin);
        let _ = keys.index_copy_(0, &context.write_at, &k.reshape([-1, head_dim]));
        let _ = values.index_copy_(0, &context.write_at, &v.reshape([-1, head_dim]));
        let gather = |cache: &Tensor| {
            cache
                .view([-1, kv_heads * capacity * head_dim])
                .index_select(0, &context.slots)
                .view([rows * kv_heads, capacity, head_dim])
        };
        let q = q.reshape([rows * kv_heads, self.groups(), head_dim]) / (head_dim as f64).sqrt();
        let scores = q.bmm(&gather(keys).transpose(1, 2));
        let scores = scores.view([rows, kv_heads, self.groups(), capacity]) + &context.mask;
        let weights = scores.softmax(-1, Kind::Float);
        let weights = weights.view([rows * kv_heads, self.groups(), capacity]);
        let mixed = weights.bmm(&gather(values)).reshape([rows, -1]);
        self.linear(&mixed, layer.o)
    }
}
