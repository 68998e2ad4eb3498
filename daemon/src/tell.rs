//! The way from a source of events to whoever decides.
//!
//! ```text
//!  links ──── Tell<LinkEvent> ───┐
//!  nodes ──── Tell<NodeLinkEvent>├─► wrapped once ─► one channel, in order ─► the decision loop
//!  services ─ Tell<ServiceEvent> ┘
//! ```
//! A source knows its own events and nobody who listens to them.
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc::UnboundedSender;

/// Tells of one source's events. Telling never waits: whoever tells something may hold a lease that the
/// next holder waits for.
pub struct Tell<E>(Arc<dyn Fn(E) -> Result<(), NobodyListens> + Send + Sync>);

/// Whoever decided is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nobody listens any more")]
pub struct NobodyListens;

impl<E: Send + 'static> Tell<E> {
    /// Into this channel, as what the channel carries.
    pub fn into_channel<W: From<E> + Send + 'static>(channel: &UnboundedSender<W>) -> Self {
        let channel = channel.clone();
        Self(Arc::new(move |event: E| {
            channel.send(event.into()).map_err(|_| NobodyListens)
        }))
    }

    /// Tells it.
    pub fn tell(&self, event: E) -> Result<(), NobodyListens> {
        (self.0)(event)
    }
}

impl<E> Clone for Tell<E> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<E> fmt::Debug for Tell<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use tokio::sync::mpsc::unbounded_channel;

    #[derive(Debug, PartialEq)]
    enum Any {
        Number(u32),
        Word(&'static str),
    }

    impl From<u32> for Any {
        fn from(number: u32) -> Self {
            Self::Number(number)
        }
    }

    impl From<&'static str> for Any {
        fn from(word: &'static str) -> Self {
            Self::Word(word)
        }
    }

    #[test]
    fn what_several_sources_tell_comes_in_the_order_in_which_it_was_told() {
        let (channel, mut told) = unbounded_channel::<Any>();
        let (numbers, words) = (Tell::into_channel(&channel), Tell::into_channel(&channel));
        numbers.tell(1_u32).unwrap();
        words.tell("two").unwrap();
        numbers.clone().tell(3).unwrap();
        let order: Vec<Any> = std::iter::from_fn(|| told.try_recv().ok()).collect();
        assert_eq!(order, [Any::Number(1), Any::Word("two"), Any::Number(3)]);
        drop(told);
        assert_eq!(numbers.tell(4), Err(NobodyListens));
    }
}
