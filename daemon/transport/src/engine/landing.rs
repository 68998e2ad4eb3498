//! Fetches into a device's memory: each piece lands in a pinned block, and is copied up from there.
//!
//! ```text
//!  piece due ──a block is free──► asked ──Data──► in the block, digested ──► copied up ──► arrived
//!     └─ none ──► starving ──► (as above, in turns)
//!                                   └─ its source waits itself, and others starve: given up, and
//!                                      asked for again when its turn comes
//!  fetch ends meanwhile ──► leaving ──last copy ended──► answered (T-1)
//! ```
//! A piece holds its block from when it is asked for, so that what arrives always has a place. Were
//! it kept while the source itself waits for bytes, two relays that read from each other could wait
//! for each other's blocks for ever.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use robust_device::{Block, Copied, Copy, Way};

use super::Engine;
use super::copies::CopyEnd;
use super::fetch::Fetch;
use super::piece::Piece;
use super::wire::tokens_to_bytes;
use crate::buffer::OnDevice;
use crate::error::{BufferError, FetchError};
use crate::road::{LinkId, MessageKind};

/// Fetches into device memory.
#[derive(Default)]
pub(super) struct Landings {
    /// Fetches that want blocks, the next one first.
    starving: VecDeque<u64>,
    /// Fetches that ended while pieces were being copied.
    leaving: HashMap<u64, Leaving>,
}

struct Leaving {
    fetch: Fetch,
    result: Result<u64, FetchError>,
}

/// Whether a fetch's next piece was asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Asked,
    NoBlock,
    /// Its window is full, or nothing is left to ask for.
    Enough,
}

impl Engine {
    /// Lets a fetch into device memory ask for pieces when its turn comes.
    pub(super) fn starve(&mut self, id: u64) {
        if !self.landings.starving.contains(&id) {
            self.landings.starving.push_back(id);
        }
        self.feed_starving();
    }

    /// Blocks may have become free: one piece for each fetch in turn.
    pub(super) fn feed_starving(&mut self) {
        let mut dry = 0;
        while dry < self.landings.starving.len()
            && let Some(id) = self.landings.starving.pop_front()
        {
            match self.ask_next(id) {
                Ask::Asked => dry = 0,
                Ask::NoBlock => dry += 1,
                Ask::Enough => continue,
            }
            self.landings.starving.push_back(id);
        }
    }

    /// A piece is in its block.
    pub(super) fn copy_up(&mut self, id: u64, piece: Piece, block: Block) {
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return;
        };
        let Some(OnDevice { memory, staging }) = fetch.buffer().device().cloned() else {
            return;
        };
        fetch.landing += 1;
        let wanted = Arc::clone(&fetch.wanted);
        let told = self.copies.begin();
        staging.start(Copy {
            way: Way::Up,
            block,
            memory,
            range: piece.range(),
            wanted: Box::new(move || wanted.load(Ordering::Relaxed)),
            done: Box::new(move |block, copied| {
                // Free before anybody is told that it is.
                drop(block);
                told.tell(CopyEnd::Up {
                    fetch: id,
                    piece,
                    copied,
                });
            }),
        });
    }

    /// A piece is in the device's memory, or could not be copied.
    pub(super) fn on_landed(&mut self, id: u64, piece: &Piece, copied: Copied) {
        if let Some(leaving) = self.landings.leaving.get_mut(&id) {
            leaving.fetch.landing -= 1;
            return self.let_go(id);
        }
        let Some(fetch) = self.fetches.get_mut(&id) else {
            return;
        };
        fetch.landing -= 1;
        match copied {
            Copied::Done => self.count_piece(id, piece),
            Copied::Failed(error) => self.abandon(id, BufferError::Device(error).into()),
            // Only what ended is skipped.
            Copied::Skipped => {}
        }
    }

    /// Answers an ended fetch, once nothing is written into its buffer any more.
    pub(super) fn leave(&mut self, id: u64, fetch: Fetch, result: Result<u64, FetchError>) {
        self.landings.starving.retain(|other| *other != id);
        fetch.wanted.store(false, Ordering::Relaxed);
        self.landings.leaving.insert(id, Leaving { fetch, result });
        self.let_go(id);
    }

    fn let_go(&mut self, id: u64) {
        let through = |leaving: &Leaving| leaving.fetch.landing == 0;
        if self.landings.leaving.get(&id).is_some_and(through)
            && let Some(Leaving { fetch, result }) = self.landings.leaving.remove(&id)
        {
            fetch.answer(result);
        }
    }

    /// The source of these pieces waits for them itself: where others starve, they get the blocks.
    pub(super) fn lend_blocks(&mut self, link: LinkId, tokens: &[u64]) {
        let mut forgotten = Vec::new();
        for token in tokens {
            let Some(id) = self.asked.get(token).map(|asked| asked.fetch) else {
                continue;
            };
            let others_starve = self.landings.starving.iter().any(|other| *other != id);
            let of_device = |fetch: &&mut Fetch| {
                fetch.link == link && fetch.buffer().device().is_some() && others_starve
            };
            if let Some(fetch) = self.fetches.get_mut(&id).filter(of_device)
                && let Some(asked) = self.asked.remove(token)
            {
                fetch.asked -= 1;
                fetch.again.push_back(asked.piece);
                self.roads.unexpect(*token);
                forgotten.push((id, *token));
            }
        }
        if forgotten.is_empty() {
            return;
        }
        let tokens: Vec<u64> = forgotten.iter().map(|(_, token)| *token).collect();
        self.send(link, MessageKind::Forget, tokens_to_bytes(&tokens));
        for (id, _) in forgotten {
            self.starve(id);
        }
    }
}
