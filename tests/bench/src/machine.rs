//! The machine's load, which stands beside every figure.

/// Processes that want a core: over the last minute, five and fifteen; zeros where that cannot be read.
pub fn loads() -> [f64; 3] {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let mut words = text.split(' ').map(|word| word.parse().unwrap_or(0.0));
    std::array::from_fn(|_| words.next().unwrap_or(0.0))
}

/// Processes that want a core, over the last minute.
pub fn load() -> f64 {
    loads()[0]
}
