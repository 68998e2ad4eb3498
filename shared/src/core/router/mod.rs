//! What the router hands to a machine, and what it does with the facts that come back. A file a machine.
mod gang;
mod recover;
mod weights;
mod work;
