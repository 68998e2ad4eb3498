//! What lies over a screen and takes the keys: the help, a list of faults, a line to type, a question.
//! Each leads to the next at most, and nothing is done before the question's yes.
//!
//! ```text
//!   I ──► Menu ──Enter──► Prompt ──Enter──► Ask ──yes──► Action::Do
//!   S, U, N ─────────────────┘               │
//!   K, H, L, Q, R, P, ... ───────────────────┘
//!   : ──► Palette ──Enter──► the same as by the key
//!   i, p ──► Inside, which only looks
//!   several acts, some refused ──► Told
//! ```
pub mod ask;
pub mod help;
pub mod inside;
pub mod menu;
pub mod palette;
pub mod prompt;
mod replaced;
mod sheet;
pub mod told;
