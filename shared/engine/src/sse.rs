//! Server-sent events out of a byte stream.

/// Longest line that is waited for, in bytes: a cumulative chunk repeats the whole turn, which is
/// some thirty bytes a token.
const MAX_LINE_BYTES: usize = 16 << 20;

/// A line that has no end within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a line of the stream has more than {MAX_LINE_BYTES} bytes")]
pub struct TooLong;

/// Cuts a byte stream into the data of its events, wherever the bytes were cut on their way. Every
/// `data:` line is an event, as engines write them.
#[derive(Debug, Default)]
pub struct Lines {
    rest: Vec<u8>,
    /// How much of the rest is known to have no end of a line.
    searched: usize,
}

impl Lines {
    /// The data that these bytes complete, in order.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLong> {
        self.rest.extend_from_slice(bytes);
        let (mut data, mut begin) = (Vec::new(), 0);
        while let Some(length) = self.rest[self.searched..].iter().position(|b| *b == b'\n') {
            let end = self.searched + length;
            data.extend(payload(&self.rest[begin..end]));
            begin = end + 1;
            self.searched = begin;
        }
        self.rest.drain(..begin);
        self.searched = self.rest.len();
        if self.rest.len() > MAX_LINE_BYTES {
            return Err(TooLong);
        }
        Ok(data)
    }
}

fn payload(line: &[u8]) -> Option<String> {
    let line = String::from_utf8_lossy(line);
    let data = line.trim_end().strip_prefix("data:")?;
    Some(data.trim_start().to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn events_are_found_however_the_stream_is_cut() {
        let text =
            b": hello\r\ndata: {\"a\":1}\r\n\r\nevent: x\ndata:{\"b\":2}\n\ndata: [DONE]\n\n";
        for cut in 0..text.len() {
            let mut lines = Lines::default();
            let mut data = Vec::new();
            for part in [&text[..cut], &text[cut..]] {
                data.extend(lines.feed(part).unwrap());
            }
            assert_eq!(data, ["{\"a\":1}", "{\"b\":2}", "[DONE]"], "cut at {cut}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut lines = Lines::default();
        let part = vec![b'x'; 1 << 20];
        let refused = (0..20).any(|_| lines.feed(&part).is_err());
        assert!(refused);
    }
}
