//! The console without a terminal: whole screens and the reducer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
mod acts;
mod advice;
mod bell;
mod fixtures;
mod jobs;
mod marks;
mod recorded;
mod reducer;
mod screens;
