//! This instance's log, which the program writes to, too: the shim's standard error is that file.

use std::fs::File;
use std::os::unix::fs::FileExt;

use regex::Regex;

/// As much of a log is read to find its last line.
const LAST_LINE: u64 = 4096;
/// And to find one that says what went wrong.
const LAST_LINES: u64 = 256 << 10;
/// How the daemon begins the lines of a life, as text and as JSON.
const LIFE: [&str; 2] = ["=== ", r#"{"fields":{"message":"started"}"#];
/// So much is looked at in one go.
const PIECE: usize = 64 << 10;

/// The log, if it is a file.
fn file() -> Option<File> {
    let path = std::fs::read_link("/proc/self/fd/2").ok()?;
    let file = File::open(path).ok()?;
    file.metadata().is_ok_and(|m| m.is_file()).then_some(file)
}

/// The last line: the reason of an end that left no other.
pub fn last_line() -> Option<String> {
    let text = tail(&file()?, LAST_LINE)?;
    lines(&text).rev().find(|line| !line.is_empty())
}

/// What a program of Python's writes last of an exception: `ValueError: no such layer`, or the package's own,
/// `robustrl._wire.Refused: robustrl: a device was used`.
const EXCEPTION: &str = r"(^|[\s.])[A-Z]\w*(Error|Exception): |(^|\.)Refused: ";

/// The last exception that this life's program wrote of.
pub fn last_exception() -> Option<String> {
    last_line_of(&[Regex::new(EXCEPTION).ok()?])
}

/// What a program of C++ writes of an exception that nobody caught; a trace of its stack may follow, of many lines.
const UNCAUGHT: &str = r"^what\(\):\s*";

/// The last exception that nobody caught, of this life's program.
pub fn last_uncaught() -> Option<String> {
    let uncaught = Regex::new(UNCAUGHT).ok()?;
    let line = last_line_of(std::slice::from_ref(&uncaught))?;
    Some(uncaught.replace(&line, "").into_owned())
}

/// The line of a text that names an exception, the last one if there are several; else its last line. What follows that
/// line explains it: torch adds how to debug errors of a device.
pub fn exception_of(text: &str) -> Option<&str> {
    let expression = Regex::new(EXCEPTION).ok()?;
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let named = lines().rfind(|line| expression.is_match(line));
    named.or_else(|| lines().next_back())
}

/// The last line of this life that one of these finds.
pub fn last_line_of(expressions: &[Regex]) -> Option<String> {
    if expressions.is_empty() {
        return None;
    }
    last_found(&tail(&file()?, LAST_LINES)?, expressions)
}

fn last_found(text: &str, expressions: &[Regex]) -> Option<String> {
    lines(text)
        .rev()
        .take_while(|line| !LIFE.iter().any(|begin| line.starts_with(begin)))
        .find(|line| expressions.iter().any(|e| e.is_match(line)))
}

fn tail(file: &File, wanted: u64) -> Option<String> {
    let length = file.metadata().ok()?.len();
    let wanted = wanted.min(length);
    let mut tail = vec![0; wanted as usize];
    file.read_exact_at(&mut tail, length - wanted).ok()?;
    Some(String::from_utf8_lossy(&tail).into_owned())
}

/// Progress bars are drawn over by a return, and say nothing of an end.
fn lines(text: &str) -> impl DoubleEndedIterator<Item = String> + '_ {
    let last = |line: &str| plain(line.rsplit('\r').next().unwrap_or_default().trim());
    text.lines().map(last)
}

/// Without the escapes of colours.
fn plain(line: &str) -> String {
    let mut parts = line.split('\u{1b}');
    let first = parts.next().unwrap_or_default();
    let rest = parts.map(|part| part.split_once('m').map_or(part, |(_, text)| text));
    std::iter::once(first).chain(rest).collect()
}

/// Looks for a line of what is written from now on.
pub struct Watch {
    file: File,
    at: u64,
    /// The beginning of a line that was not written to its end yet.
    begun: Vec<u8>,
    expression: Regex,
}

impl Watch {
    /// From the log's present end on; none where it is no file.
    pub fn begin(expression: Regex) -> Option<Self> {
        Self::of(file()?, expression)
    }

    fn of(file: File, expression: Regex) -> Option<Self> {
        let at = file.metadata().ok()?.len();
        let begun = Vec::new();
        Some(Self {
            file,
            at,
            begun,
            expression,
        })
    }

    /// Whether a line was found among those written since the last look.
    pub fn found(&mut self) -> bool {
        let mut piece = vec![0; PIECE];
        while let Ok(read @ 1..) = self.file.read_at(&mut piece, self.at) {
            self.at += read as u64;
            self.begun.extend_from_slice(&piece[..read]);
            let Some(end) = self.begun.iter().rposition(|byte| *byte == b'\n') else {
                continue;
            };
            let rest = self.begun.split_off(end + 1);
            let whole = std::mem::replace(&mut self.begun, rest);
            if lines(&String::from_utf8_lossy(&whole)).any(|line| self.expression.is_match(&line)) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::io::Write;

    #[test]
    fn a_line_is_told_without_its_colours() {
        let line = "\u{1b}[33;1mWARN\u{1b}[0m no space left on m: 3";
        assert_eq!(plain(line), "WARN no space left on m: 3");
        assert_eq!(plain("as it is"), "as it is");
    }

    #[test]
    fn of_lines_that_say_what_went_wrong_the_last_one_is_told() {
        let text = "CUDA error: 1\nCUDA error: 2\r\n 3%\rfine\n";
        let found = |pattern| last_found(text, &[Regex::new(pattern).unwrap()]);
        assert_eq!(found("CUDA error").unwrap(), "CUDA error: 2");
        assert_eq!(found("^fine$").unwrap(), "fine");
        assert_eq!(found("NCCL"), None);
        let text = "CUDA error: 3\n=== trainer-0 incarnation 2 generation 2\nfine\n";
        assert_eq!(
            last_found(text, &[Regex::new("CUDA").unwrap()]),
            None,
            "an earlier life's"
        );
    }

    #[test]
    fn an_exception_is_known_by_its_last_line() {
        let exception = [Regex::new(EXCEPTION).unwrap()];
        for line in [
            "ValueError: no such layer",
            "robustrl._wire.Refused: robustrl: a device was used before attach()",
            "(APIServer pid=7) vllm.exceptions.VLLMValidationError: WordLevel error: Missing [UNK] token",
        ] {
            assert!(last_found(line, &exception).is_some(), "{line}");
        }
        for line in [
            "no error: fine",
            "Error handling is on",
            "INFO errors: 0",
            "connecting: Connection Refused: once more",
        ] {
            assert_eq!(last_found(line, &exception), None, "{line}");
        }
    }

    #[test]
    fn an_exception_that_nobody_caught_is_known_though_a_stack_follows() {
        let text = "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [Rank 0] Process group \
                    watchdog thread terminated with exception: CUDA error: device-side assert triggered\nException raised \
                    from c10_cuda_check_implementation at CUDAException.cpp:43 (most recent call first):\nframe #4: <unknown \
                    function> + 0x129ecc (0x7f6f in libc.so.6)\n";
        let uncaught = Regex::new(UNCAUGHT).unwrap();
        let found = last_found(text, std::slice::from_ref(&uncaught)).unwrap();
        assert!(
            found.ends_with("CUDA error: device-side assert triggered"),
            "{found}"
        );
        assert!(
            uncaught.replace(&found, "").starts_with("[Rank 0]"),
            "{found}"
        );
    }

    #[test]
    fn a_line_is_found_once_it_is_whole_and_only_if_it_is_new() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut writing = path.reopen().unwrap();
        writing.write_all(b"loaded before\n").unwrap();
        let expression = Regex::new("^loaded$").unwrap();
        let mut watch = Watch::of(path.reopen().unwrap(), expression).unwrap();
        for (part, found) in [
            ("loaded", false),
            (" 1 of 2\nlo", false),
            ("aded\nmore", true),
        ] {
            writing.write_all(part.as_bytes()).unwrap();
            assert_eq!(watch.found(), found, "{part}");
        }
    }
}
