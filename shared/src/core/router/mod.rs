//! What the router hands to a machine, and what it does with the facts that come back. A file a machine.
mod armed;
mod fault;
mod gang;
mod recover;
mod restart;
mod weights;
mod work;
