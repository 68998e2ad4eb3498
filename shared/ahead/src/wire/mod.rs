//! A network in virtual time: a version's bytes cut into chunks, the links that carry them, and who reads them from whom.
pub mod cut;
pub mod fabric;
pub mod net;
