//! What a transport's handle and its progress thread both have.
use crate::inbox::Inbox;
use crate::stats::Counters;

/// What the progress thread hands to callers without being asked.
#[derive(Default)]
pub(crate) struct Shared {
    pub inbox: Inbox,
    pub counters: Counters,
}
