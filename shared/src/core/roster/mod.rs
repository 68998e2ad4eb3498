//! Who is where: instances with their present incarnation, slots, nodes, and what is derived from them.
pub(in crate::core) mod index;
pub(in crate::core) mod instance;
pub(in crate::core) mod instances;
mod link;
pub(in crate::core) mod measured;
pub(in crate::core) mod nodes;
mod turns;
