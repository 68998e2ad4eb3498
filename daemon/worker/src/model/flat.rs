//! All parameters in one contiguous buffer of float32; a rollout's may be bfloat16.
//!
//! Order: by Hugging Face name, sorted as bytes (so `model.layers.10.` comes before
//! `model.layers.2.`), each tensor row-major, without gaps. With tied embeddings there is no
//! `lm_head.weight`. The byte form is the machine's, little-endian on all supported ones.

use std::sync::Arc;

use robust_shared::job::Dtype;
use robust_transport::{Buffer, BufferError, Lent};
use tch::{Device, Kind, Tensor};

use super::config::Qwen3Config;

/// Where one parameter lies in the buffer; `offset` and `len` count elements.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TensorSpec {
    /// Hugging Face name.
    pub name: String,
    /// Row-major shape.
    pub shape: Vec<i64>,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

/// Why bytes do not fit a flat buffer.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("a flat buffer of {expected} bytes was given {got} bytes")]
pub struct WrongLength {
    /// Bytes of the buffer.
    pub expected: usize,
    /// Bytes given.
    pub got: usize,
}

/// Why parameters cannot lie in a buffer.
#[derive(Debug, thiserror::Error)]
pub enum LyingIn {
    /// It is of another size.
    #[error(transparent)]
    Length(#[from] WrongLength),
    /// It is in use, or in a device's memory: this model computes on the CPU.
    #[error(transparent)]
    Buffer(#[from] BufferError),
}

/// The layout of a model of this shape.
pub fn layout_of(config: &Qwen3Config) -> Vec<TensorSpec> {
    let c = config;
    let (width, head) = (c.hidden_size, c.head_dim);
    let (queries, keys) = (c.num_attention_heads * head, c.num_key_value_heads * head);
    let mut shapes: Vec<(String, Vec<i64>)> = vec![
        (
            "model.embed_tokens.weight".into(),
            vec![c.vocab_size, width],
        ),
        ("model.norm.weight".into(), vec![width]),
    ];
    if !c.tie_word_embeddings {
        shapes.push(("lm_head.weight".into(), vec![c.vocab_size, width]));
    }
    for layer in 0..c.num_hidden_layers {
        let mut add = |name: &str, shape: Vec<i64>| {
            shapes.push((format!("model.layers.{layer}.{name}.weight"), shape));
        };
        add("input_layernorm", vec![width]);
        add("post_attention_layernorm", vec![width]);
        add("self_attn.q_proj", vec![queries, width]);
        add("self_attn.k_proj", vec![keys, width]);
        add("self_attn.v_proj", vec![keys, width]);
        add("self_attn.o_proj", vec![width, queries]);
        add("self_attn.q_norm", vec![head]);
        add("self_attn.k_norm", vec![head]);
        add("mlp.gate_proj", vec![c.intermediate_size, width]);
        add("mlp.up_proj", vec![c.intermediate_size, width]);
        add("mlp.down_proj", vec![width, c.intermediate_size]);
    }
    shapes.sort();
    let mut offset = 0;
    let place = |(name, shape): (String, Vec<i64>)| {
        let len = shape.iter().product::<i64>() as usize;
        let spec = TensorSpec {
            name,
            shape,
            offset,
            len,
        };
        offset += len;
        spec
    };
    shapes.into_iter().map(place).collect()
}

/// The parameters of a model: one buffer and a view of it for each tensor.
#[derive(Debug)]
pub struct FlatParams {
    flat: Tensor,
    views: Vec<Tensor>,
    layout: Vec<TensorSpec>,
    /// Where the tensors lie, if they do not own their memory. Dropped after them.
    _memory: Option<Lent>,
}

impl FlatParams {
    /// A zeroed buffer of the layout; the allocation is touched, so later copies are fast.
    pub fn zeros(layout: Vec<TensorSpec>) -> Self {
        let total = elements(&layout);
        let flat = Tensor::zeros([total as i64], (Kind::Float, Device::Cpu));
        Self::of(flat, layout, None)
    }

    /// The float32 parameters that lie in a buffer; see [`Self::lying_as`].
    pub fn lying_in(layout: Vec<TensorSpec>, memory: &Arc<Buffer>) -> Result<Self, LyingIn> {
        Self::lying_as(Dtype::Float32, layout, memory)
    }

    /// The parameters that lie in a buffer as such numbers, without a copy. It is lent to them for as
    /// long as they live: refused while somebody writes into it or fetches.
    pub fn lying_as(
        dtype: Dtype,
        layout: Vec<TensorSpec>,
        memory: &Arc<Buffer>,
    ) -> Result<Self, LyingIn> {
        let total = elements(&layout);
        let (expected, got) = (total * size_of_element(dtype), memory.len());
        if expected != got {
            return Err(WrongLength { expected, got }.into());
        }
        let lent = memory.lend()?;
        let (start, kind) = (memory.as_ptr()?, (kind_of(dtype), Device::Cpu));
        // SAFETY: `total` elements of that type, page-aligned, initialised and of any bits. The loan keeps
        // them there and unchanged as long as `Self` lives, and no clone of a tensor of such
        // parameters outlives that: the engine makes none, and changes none.
        #[allow(unsafe_code)]
        let flat = unsafe { Tensor::from_blob(start, &[total as i64], &[1], kind.0, kind.1) };
        Ok(Self::of(flat, layout, Some(lent)))
    }

    fn of(flat: Tensor, layout: Vec<TensorSpec>, memory: Option<Lent>) -> Self {
        // A detached view shares the memory but is a leaf of its own: its gradient has the tensor's
        // size instead of the whole buffer's.
        let trained = flat.kind() == Kind::Float;
        let view = |spec| view(&flat, spec).detach().set_requires_grad(trained);
        let views = layout.iter().map(view).collect();
        Self {
            flat,
            views,
            layout,
            _memory: memory,
        }
    }

    /// The same parameters in the same memory, whose gradients a backward pass adds to the flat tensor
    /// that comes with them, zero now: no tensor has a gradient of its own beside it.
    pub fn with_gradient(&self) -> (Self, Tensor) {
        let gradient = self.flat.zeros_like();
        let leaf = |spec: &TensorSpec| leaf(&view(&self.flat, spec), &view(&gradient, spec));
        let views = self.layout.iter().map(leaf).collect();
        let with = Self {
            flat: self.flat.shallow_clone(),
            views,
            layout: self.layout.clone(),
            _memory: None,
        };
        (with, gradient)
    }

    /// Where each tensor lies.
    pub fn layout(&self) -> &[TensorSpec] {
        &self.layout
    }

    /// The whole buffer as one tensor.
    pub fn tensor(&self) -> &Tensor {
        &self.flat
    }

    /// The views in layout order; leaves that require gradients.
    pub fn views(&self) -> &[Tensor] {
        &self.views
    }

    /// The view of a name, if the layout has it.
    pub fn view(&self, name: &str) -> Option<&Tensor> {
        let at = self
            .layout
            .binary_search_by(|spec| spec.name.as_str().cmp(name))
            .ok()?;
        Some(&self.views[at])
    }

    /// Number of parameters.
    pub fn len(&self) -> usize {
        self.flat.numel()
    }

    /// Whether there is no parameter.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Size of the buffer in bytes.
    pub fn len_bytes(&self) -> usize {
        tensor_bytes(&self.flat).len()
    }

    /// The buffer's memory.
    pub fn as_bytes(&self) -> &[u8] {
        tensor_bytes(&self.flat)
    }

    /// The buffer's memory to write to.
    pub fn as_bytes_mut(&mut self) -> &mut [u8] {
        tensor_bytes_mut(&mut self.flat)
    }

    /// Replaces all weights.
    pub fn copy_from_bytes(&mut self, bytes: &[u8]) -> Result<(), WrongLength> {
        copy_into_tensor(&mut self.flat, bytes)
    }

    /// Replaces all weights by those of a tensor with as many elements.
    pub fn copy_from(&mut self, other: &Tensor) -> Result<(), WrongLength> {
        if other.numel() != self.len() {
            let (expected, got) = (self.len_bytes(), other.numel() * size_of::<f32>());
            return Err(WrongLength { expected, got });
        }
        tch::no_grad(|| self.flat.copy_(&other.view([-1])));
        Ok(())
    }
}

/// A tensor's part of a flat one.
fn view(flat: &Tensor, spec: &TensorSpec) -> Tensor {
    let part = flat.narrow(0, spec.offset as i64, spec.len as i64);
    part.view(spec.shape.as_slice())
}

/// A leaf with this memory, whose gradient is added to that one. Only a backward pass gives a leaf a
/// gradient at all; so a small one has it made, and then both take their real places.
fn leaf(weights: &Tensor, gradient: &Tensor) -> Tensor {
    let options = (weights.kind(), weights.device());
    let mut leaf = Tensor::zeros([1], options).set_requires_grad(true);
    leaf.sum(weights.kind()).backward();
    leaf.grad().set_data(gradient);
    leaf.set_data(weights);
    leaf
}

/// The type of a tensor of such numbers.
pub(crate) fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::Float32 => Kind::Float,
        Dtype::Bfloat16 => Kind::BFloat16,
    }
}

/// Bytes of one such number.
pub(crate) fn size_of_element(dtype: Dtype) -> usize {
    kind_of(dtype).elt_size_in_bytes()
}

fn elements(layout: &[TensorSpec]) -> usize {
    layout.iter().map(|spec| spec.len).sum()
}

/// The memory of a contiguous tensor on the CPU.
pub(crate) fn tensor_bytes(tensor: &Tensor) -> &[u8] {
    // In release builds too: of another tensor the memory read would be no part.
    assert!(tensor.is_contiguous());
    let len = tensor.numel() * tensor.kind().elt_size_in_bytes();
    // SAFETY: the buffers of this module are contiguous tensors on the CPU that own
    // `numel` elements at `data_ptr`, and the borrow of the tensor keeps them allocated.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts(tensor.data_ptr() as *const u8, len)
    }
}

/// The same to write to; any bytes are valid float32.
pub(crate) fn tensor_bytes_mut(tensor: &mut Tensor) -> &mut [u8] {
    assert!(tensor.is_contiguous() && tensor.kind() == Kind::Float);
    let len = tensor.numel() * size_of::<f32>();
    // SAFETY: as in `tensor_bytes`; the tensor is borrowed mutably.
    #[allow(unsafe_code)]
    unsafe {
        std::slice::from_raw_parts_mut(tensor.data_ptr() as *mut u8, len)
    }
}

/// Overwrites a contiguous float32 tensor on the CPU.
pub(crate) fn copy_into_tensor(tensor: &mut Tensor, bytes: &[u8]) -> Result<(), WrongLength> {
    let memory = tensor_bytes_mut(tensor);
    if bytes.len() != memory.len() {
        return Err(WrongLength {
            expected: memory.len(),
            got: bytes.len(),
        });
    }
    memory.copy_from_slice(bytes);
    Ok(())
}
