//! What the router hands to a machine, and what it does with the facts that come back. A file a machine.
mod armed;
pub(in crate::core) mod check;
mod derive;
mod fault;
mod gang;
mod lemon;
mod link;
mod nodes;
mod recover;
mod restart;
mod slots;
mod weights;
mod work;
