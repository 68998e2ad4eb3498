//! Built-in role processes: the parts that the binary `robust-worker` and its tests share.

pub mod model;
