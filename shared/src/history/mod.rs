//! What every instance did over the whole run, and what was moved: the memory of reports, in bounded
//! room however long the run is.
//!
//! ```text
//!  phases, pulls, checkpoints ──► Tape ──every 10 s──► Page (level 0) ──► store
//!                                                        │ more than 64 pages of a level:
//!                              the two oldest ──merge──► one page of the next level
//!  store ──► pages, oldest first ──► Overview ──► lanes, spent time, transfers
//! ```
//! A page of level n covers 10 s times 2^n, so a week is at most 64 pages of each of ten levels. When
//! pages are merged each lane keeps at most [`LANE_MARKS`] changes: where it had more, the page is cut
//! into as many cells of equal length and each is shown in the state that took most of it. Sums
//! ([`Lane::spent`], [`Tally`]) stay exact in every merge. What a console shows of the last minutes is
//! in [`Recent`], one by one.
mod marks;
mod overview;
mod page;
mod recent;
mod tape;
#[cfg(test)]
mod tests;
mod transfer;

pub use overview::{Overview, Row, Span};
pub use page::{Lane, Mark, Page, merge};
pub use recent::{PhaseSpan, RECENT, Recent};
pub use tape::Tape;
pub use transfer::{Road, Roads, Sent, Tally, Transfer, TransferKind, Transfers};

use std::time::Duration;

/// What a page of level 0 covers: what a daemon that is killed forgets at most.
pub const PAGE: Duration = Duration::from_secs(10);
/// Pages of one level that are kept.
pub const PAGES: usize = 64;
/// Changes that a lane of a page may have.
pub const LANE_MARKS: usize = 64;
/// Changes of all lanes of a page, which with many instances is what bounds it.
const PAGE_MARKS: usize = 16_384;

/// Changes that each of so many lanes may have.
fn marks_each(lanes: usize) -> usize {
    (PAGE_MARKS / lanes.max(1)).clamp(4, LANE_MARKS)
}
