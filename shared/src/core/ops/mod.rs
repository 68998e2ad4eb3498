//! What operators ask for, a file for each verb or family of verbs.
pub(in crate::core) mod armed;
mod ask;
mod inject;
mod nodes;
pub(in crate::core) mod orders;
pub(in crate::core) mod pause;
pub(in crate::core) mod planned;
mod quarantine;
pub(in crate::core) mod refusal;
mod replace;
mod requests;
mod scale;
