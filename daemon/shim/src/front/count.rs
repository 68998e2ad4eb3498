//! Tokens in replies that are passed on unread.

use robust_engine::Lines;
use serde_json::Value;

/// Longest whole reply that is looked into; a longer one counts as one token.
const MAX_WHOLE_BYTES: usize = 4 << 20;

/// Counts the tokens of one reply, streamed or whole, of any of the engines' routes.
#[derive(Debug, Default)]
pub(super) struct Counter {
    lines: Lines,
    whole: Vec<u8>,
    streams: bool,
    counted: usize,
}

impl Counter {
    /// How many more tokens these bytes of the reply tell of.
    pub fn feed(&mut self, bytes: &[u8]) -> usize {
        // What cannot be cut into events is only not counted.
        let events = self.lines.feed(bytes).unwrap_or_default();
        self.streams |= !events.is_empty();
        if !self.streams && self.whole.len() < MAX_WHOLE_BYTES {
            self.whole.extend_from_slice(bytes);
        }
        events.iter().map(|event| self.take(event)).sum()
    }

    /// How many more tokens a reply has that came in one piece.
    pub fn closed(&mut self) -> usize {
        let whole = std::mem::take(&mut self.whole);
        match self.streams {
            true => 0,
            false => self.take(&String::from_utf8_lossy(&whole)),
        }
    }

    fn take(&mut self, text: &str) -> usize {
        let Ok(reply) = serde_json::from_str::<Value>(text) else {
            return 0;
        };
        let replies = match &reply {
            Value::Array(all) => all.as_slice(),
            one => std::slice::from_ref(one),
        };
        let known: Option<usize> = replies.iter().map(completed).sum();
        match known {
            // The count so far, in this chunk or at the end.
            Some(all) => {
                let more = all.saturating_sub(self.counted);
                self.counted += more;
                more
            }
            None => {
                let more = replies.iter().map(new_ones).sum();
                self.counted += more;
                more
            }
        }
    }
}

/// SGLang says so in every chunk, OpenAI's routes at the end.
fn completed(reply: &Value) -> Option<usize> {
    let said = [
        &reply["meta_info"]["completion_tokens"],
        &reply["usage"]["completion_tokens"],
    ];
    let said = said.into_iter().find_map(Value::as_u64)?;
    usize::try_from(said).ok()
}

/// The tokens of a chunk that gives no count: those it names, else one for each choice that says
/// something.
fn new_ones(reply: &Value) -> usize {
    let choices = reply["choices"].as_array().map_or(&[][..], Vec::as_slice);
    let of = |choice: &Value| match choice["token_ids"].as_array() {
        Some(ids) => ids.len(),
        None => usize::from(!choice.is_null()),
    };
    choices.iter().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> usize {
        let mut counter = Counter::default();
        let fed = text
            .as_bytes()
            .chunks(7)
            .map(|part| counter.feed(part))
            .sum::<usize>();
        fed + counter.closed()
    }

    #[test]
    fn tokens_are_counted_once_whether_chunks_repeat_them_or_not() {
        let sglang = "data: {\"meta_info\": {\"completion_tokens\": 1}}\n\n\
                      data: {\"meta_info\": {\"completion_tokens\": 3}}\n\ndata: [DONE]\n\n";
        assert_eq!(count(sglang), 3);
        let vllm = "data: {\"choices\": [{\"token_ids\": [1, 2]}]}\n\n\
                    data: {\"choices\": [{\"token_ids\": [3]}]}\n\ndata: [DONE]\n\n";
        assert_eq!(count(vllm), 3);
        let openai = "data: {\"choices\": [{\"text\": \"a\"}]}\n\n\
                      data: {\"choices\": [{\"text\": \"b\"}], \"usage\": {\"completion_tokens\": 5}}\n\n";
        assert_eq!(count(openai), 5);
    }

    #[test]
    fn a_whole_reply_is_counted_when_it_has_come() {
        assert_eq!(count("{\"choices\": [{\"token_ids\": [1, 2, 3]}]}"), 3);
        assert_eq!(
            count(
                "[{\"meta_info\": {\"completion_tokens\": 2}}, {\"meta_info\": {\"completion_tokens\": 4}}]"
            ),
            6
        );
        assert_eq!(count("not json"), 0);
        assert_eq!(count(""), 0);
    }
}
