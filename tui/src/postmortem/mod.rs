//! An incident as Markdown, to be put into a ticket or a mail: the console copies it, `robustctl report --incident`
//! prints it. Of the same status both give the same text, so times are those of UTC and nothing depends on a terminal.
mod kin;
mod markdown;
mod words;

pub use kin::{Fingerprint, seen_before};
pub use markdown::markdown;
pub use words::{before, cause, led_to, lost, moment, root, under, with_it};
