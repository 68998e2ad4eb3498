//! The program: command line, checks before anything starts, order of beginning and end.
mod args;
mod assemble;
mod checks;
mod clients;
mod data;
mod failure;
mod following;
mod inspect;
mod join;
mod kept;
mod listeners;
mod main;
mod manual;
mod run;
mod sampled;
mod signals;
mod told;
mod warmup;

pub use args::{Args, ExitCode};
pub use failure::Failure;
pub use main::main;
