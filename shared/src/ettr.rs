//! placeholder
use serde::{Deserialize, Serialize};
/// placeholder
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval;
