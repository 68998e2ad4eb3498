//! The work: trajectories in batches, who generates which of them, and which engine serves their requests.
mod discard;
pub(in crate::core) mod rewards;
pub(in crate::core) mod routes;
pub(in crate::core) mod trajectories;
