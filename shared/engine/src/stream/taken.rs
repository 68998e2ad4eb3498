//! What of a reply came so far, and what of a chunk is new.

use super::{Chunk, Event, Finish, Span};

/// The tokens that came.
#[derive(Debug)]
pub(super) struct Taken {
    ids: Vec<u32>,
    logprobs: bool,
    /// How a chunk is read that does not count: SGLang's default is to repeat.
    repeats: bool,
}

impl Taken {
    pub fn new(logprobs: bool, repeats: bool) -> Self {
        Self {
            ids: Vec::new(),
            logprobs,
            repeats,
        }
    }

    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// What a chunk says; the error is the event that ends the reply.
    pub fn chunk(&mut self, chunk: Chunk) -> Result<Vec<Event>, Event> {
        let mut events = Vec::new();
        match self.new_of(&chunk) {
            Ok((ids, _)) if ids.is_empty() => {}
            Ok((ids, logprobs)) => {
                self.ids.extend_from_slice(&ids);
                let version = chunk.version;
                events.push(Event::Tokens {
                    ids,
                    logprobs,
                    version,
                });
            }
            // What an abort repeats in its last chunk is no reason to call it something else.
            Err(_) if matches!(chunk.finish, Some(Finish::Abort(_))) => {}
            Err(reason) => return Err(Event::elsewhere(reason)),
        }
        if let Some(finish) = chunk.finish {
            let spans = chunk.spans.filter(|spans| !spans.is_empty());
            let spans = match (spans.map(|spans| self.exact(spans)), &finish) {
                (None, _) | (Some(Err(_)), Finish::Abort(_)) => None,
                (Some(Ok(spans)), _) => Some(spans),
                (Some(Err(reason)), _) => return Err(Event::elsewhere(reason)),
            };
            events.push(Event::End { finish, spans });
        }
        Ok(events)
    }

    /// The tokens and logprobs of a chunk that did not come before.
    fn new_of(&self, chunk: &Chunk) -> Result<(Vec<u32>, Vec<f32>), String> {
        let (had, count) = (self.ids.len(), chunk.ids.len());
        let total = match chunk.completion_tokens {
            Some(total) => total,
            None if self.repeats => count,
            None => had + count,
        };
        let new = total.checked_sub(had).ok_or_else(|| {
            format!("a chunk says that there are {total} tokens where {had} had come")
        })?;
        if new == 0 {
            // An aborted stream of deltas says its last token once more.
            return Ok(Default::default());
        }
        let ids = if count == new {
            chunk.ids.clone()
        } else if count >= total && chunk.ids[..had] == self.ids {
            // More than it counts may be there: SGLang writes the list as it is by then.
            chunk.ids[had..total].to_vec()
        } else {
            return Err(format!(
                "a chunk has {count} tokens and counts {total} where {had} had come"
            ));
        };
        let logprobs = self.logprobs_of(chunk, &ids, (had, total))?;
        Ok((ids, logprobs))
    }

    fn logprobs_of(
        &self,
        chunk: &Chunk,
        ids: &[u32],
        (had, total): (usize, usize),
    ) -> Result<Vec<f32>, String> {
        if !self.logprobs {
            return Ok(Vec::new());
        }
        let (got, new) = (chunk.logprobs.len(), ids.len());
        let entries = match got {
            _ if got == new => &chunk.logprobs[..],
            _ if got >= total => &chunk.logprobs[had..total],
            _ => return Err(format!("{got} logprobs for {new} tokens")),
        };
        if entries.iter().zip(ids).any(|(entry, id)| entry.1 != *id) {
            return Err("logprobs of other tokens than the chunk's".into());
        }
        Ok(entries.iter().map(|entry| entry.0).collect())
    }

    /// Spans that name every token once, in order.
    fn exact(&self, spans: Vec<Span>) -> Result<Vec<Span>, String> {
        let mut end = 0;
        for span in &spans {
            if span.start != end || span.end < span.start {
                return Err(format!(
                    "the weights' spans have a gap: one ends at {end}, the next is {}..{}",
                    span.start, span.end
                ));
            }
            end = span.end;
        }
        match self.ids.len() {
            tokens if tokens == end => Ok(spans),
            tokens => Err(format!("the weights' spans name {end} of {tokens} tokens")),
        }
    }
}
