//! From a verdict to what is done about it: the decision, the restarts, and the incident that tells of them.
pub(in crate::core) mod budget;
pub(in crate::core) mod cause;
pub(in crate::core) mod deaths;
mod evidence;
pub(in crate::core) mod incident;
mod incidents;
pub(in crate::core) mod recoveries;
pub(in crate::core) mod restart;
pub(in crate::core) mod root;
pub(in crate::core) mod testimony;
