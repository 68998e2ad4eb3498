//! Made-up versions, for whoever tests or measures: bytes that differ by place and seed, and steps of training.
use robust_shared::weights::TensorSpec;

/// A version of such numbers (`F32`, `BF16`) as one tensor.
pub fn one_tensor(dtype: &str, bytes: u64) -> Vec<TensorSpec> {
    let mut whole = TensorSpec {
        name: "weights".into(),
        dtype: dtype.to_owned(),
        shape: Vec::new(),
        offset: 0,
        bytes,
    };
    // One that is not known is refused with the manifest.
    let element = whole.element_bytes().unwrap_or(1);
    whole.shape = vec![bytes / element];
    vec![whole]
}

/// Bytes that differ by place and seed, quickly.
pub fn fill(seed: u64, chunk: u64, bytes: &mut [u8]) {
    let mut state = (seed << 32 ^ chunk).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let len = word.len();
        word.copy_from_slice(&state.to_le_bytes()[..len]);
    }
}

/// Moves so many of a million words by one, as a step of an optimiser does whose updates are about as
/// large as what the last bit stands for.
pub fn step(seed: u64, changed_ppm: u32, bytes: &mut [u8]) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in bytes.as_chunks_mut::<2>().0 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if (state >> 33) % 1_000_000 < u64::from(changed_ppm) {
            let by = if state & 1 == 0 { 1 } else { u16::MAX };
            *word = u16::from_le_bytes(*word).wrapping_add(by).to_le_bytes();
        }
    }
}
