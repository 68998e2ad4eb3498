//! The chain of the audit log: what was changed in it, cut out of it or put in another order is found.
//!
//! ```text
//!  {"id":7,..,"n":12,"chain":"5f.."}      chain = BLAKE3(chain of line 11, this line without its own)
//!  {"id":7,..,"n":13,"chain":"c0.."}
//!                          head ──► the last line's n and chain, in a file of its own
//! ```
//! Line 1 is chained to the digest of all that was in the file before it, which are the lines of a build
//! without a chain. The chain needs no key: who can write to the state directory can write a whole new one.
//! It shows what was done to a log by who did not do that, and against a head that was noted elsewhere what
//! was done by who did.
#[cfg(test)]
mod tests;

use blake3::{Hash, Hasher};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The log in a state directory.
pub const FILE: &str = "audit.jsonl";
/// The file that notes the chain's end.
pub const HEAD: &str = "audit.head";

/// The name of an older part of the log; 1 is the oldest.
pub fn older_file(number: u64) -> String {
    format!("audit.{number}.jsonl")
}

/// The number of such a name.
pub fn older_number(name: &str) -> Option<u64> {
    let number = name.strip_prefix("audit.")?.strip_suffix(".jsonl")?;
    let number = number.parse().ok()?;
    (older_file(number) == name).then_some(number)
}

/// What comes before a line's chain.
const CHAIN: &str = ",\"chain\":\"";

/// The end of the chain after a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Lines of the chain so far.
    pub n: u64,
    /// The last one's link.
    pub chain: Hash,
}

impl Head {
    /// Before the first line: after these bytes, which have no chain.
    pub fn begin(before: &[u8]) -> Self {
        let chain = blake3::hash(before);
        Self { n: 0, chain }
    }

    /// An entry, a JSON object, as the chain's next line without a line end; and the head after it.
    pub fn seal(self, entry: &str) -> (String, Self) {
        let n = self.n + 1;
        let open = entry.trim_end().strip_suffix('}').unwrap_or(entry);
        let content = format!("{open},\"n\":{n}}}");
        let chain = link(self.chain, &content);
        let line = format!("{open},\"n\":{n}{CHAIN}{}\"}}", chain.to_hex());
        (line, Self { n, chain })
    }

    /// The head after a line, by the line's own word; none if it has no chain.
    pub fn after(line: &[u8]) -> Option<Self> {
        Some(Sealed::parse(line)?.head)
    }

    /// As its file has it; its length is always the same.
    pub fn text(self) -> String {
        format!("{:020} {}\n", self.n, self.chain.to_hex())
    }

    /// Reads that.
    pub fn parse(text: &str) -> Option<Self> {
        let (n, chain) = text.trim_end().split_once(' ')?;
        let (n, chain) = (n.parse().ok()?, Hash::from_hex(chain).ok()?);
        Some(Self { n, chain })
    }
}

fn link(before: Hash, content: &str) -> Hash {
    let mut hasher = Hasher::new();
    hasher.update(before.as_bytes());
    hasher.update(content.as_bytes());
    hasher.finalize()
}

/// A line of the chain.
struct Sealed {
    /// Without its chain.
    content: String,
    /// The request's number.
    id: u64,
    head: Head,
}

impl Sealed {
    fn parse(line: &[u8]) -> Option<Self> {
        #[derive(Deserialize)]
        struct Numbers {
            id: u64,
            n: u64,
        }
        let line = std::str::from_utf8(line).ok()?.trim_end();
        let (open, chain) = line.rsplit_once(CHAIN)?;
        let chain = Hash::from_hex(chain.strip_suffix("\"}")?).ok()?;
        let content = format!("{open}}}");
        let Numbers { id, n } = serde_json::from_str(&content).ok()?;
        let head = Head { n, chain };
        Some(Self { content, id, head })
    }
}

/// What is wrong with a log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The line in it, from 1; 0: of the file's end.
    pub line: u64,
    /// What happened there.
    #[serde(flatten)]
    pub kind: Kind,
}

/// What happened to a line, or to several.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Kind {
    /// It is not as it was written.
    Changed {
        /// The request's number.
        id: u64,
    },
    /// It has no chain, or none that can be read, amid lines that have one.
    Unsealed,
    /// Lines of the chain are not there.
    Cut {
        /// The first one's `n`.
        from: u64,
        /// The last one's.
        to: u64,
    },
    /// It belongs elsewhere.
    Moved {
        /// Its `n`.
        n: u64,
    },
    /// The lines before the chain are not as they were when it began.
    Former,
    /// The head that was noted is of another chain.
    Rewritten {
        /// Up to this `n`.
        n: u64,
    },
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: ", self.file)?,
            line => write!(f, "{} line {line}: ", self.file)?,
        }
        match self.kind {
            Kind::Changed { id } => write!(f, "changed since it was written (request {id})"),
            Kind::Unsealed => f.write_str("it was not written by a daemon"),
            Kind::Cut { from, to } if from == to => {
                write!(f, "line {from} of the chain is cut out")
            }
            Kind::Cut { from, to } => write!(f, "lines {from} to {to} of the chain are cut out"),
            Kind::Moved { n } => write!(f, "line {n} of the chain is out of order or there twice"),
            Kind::Former => f.write_str("lines before the chain were changed since it began"),
            Kind::Rewritten { n } => write!(f, "the chain up to line {n} was written anew"),
        }
    }
}

/// Reads a log line by line, oldest file first.
#[derive(Debug)]
pub struct Check {
    /// What was noted as the chain's end.
    noted: Option<Head>,
    /// Digest of the lines before the chain.
    before: Hasher,
    /// How many those are.
    plain: u64,
    /// Lines of the chain.
    lines: u64,
    /// Whether no older file was removed.
    is_whole: bool,
    last: Option<Head>,
    first: Option<u64>,
    moved: Vec<u64>,
    damage: Vec<Damage>,
}

/// What a log is found to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Found {
    /// Lines of the chain that are there.
    pub lines: u64,
    /// Lines of a build without a chain.
    pub without_chain: u64,
    /// The `n` of the oldest line that is there; above 1 when older files were removed, 0 without any.
    pub first: u64,
    /// The `n` of the newest line.
    pub last: u64,
    /// Its chain, hex: noted elsewhere, it shows later whether all was written anew.
    pub head: String,
    /// Whether the end that was noted beside the log could be compared.
    pub end_known: bool,
    /// What is wrong, in the order of the log.
    pub damage: Vec<Damage>,
}

impl Check {
    /// Of a log whose end was noted as this. `is_whole`: its first file is there.
    pub fn new(noted: Option<Head>, is_whole: bool) -> Self {
        Self {
            noted,
            before: Hasher::new(),
            plain: 0,
            lines: 0,
            is_whole,
            last: None,
            first: None,
            moved: Vec::new(),
            damage: Vec::new(),
        }
    }

    /// Takes in a line with its line end.
    pub fn line(&mut self, file: &str, number: u64, line: &[u8]) {
        let found = match Sealed::parse(line) {
            Some(sealed) => self.sealed(&sealed),
            None if self.last.is_some() => Some(Kind::Unsealed),
            None => {
                self.before.update(line);
                self.plain += 1;
                None
            }
        };
        let (file, line) = (file.to_owned(), number);
        self.damage
            .extend(found.map(|kind| Damage { file, line, kind }));
    }

    fn sealed(&mut self, line: &Sealed) -> Option<Kind> {
        let Sealed { content, id, head } = line;
        self.lines += 1;
        let Some(last) = self.last else {
            return self.begin(line);
        };
        if head.n <= last.n {
            self.moved.push(head.n);
            return Some(Kind::Moved { n: head.n });
        }
        self.last = Some(*head);
        if head.n > last.n + 1 {
            let (from, to) = (last.n + 1, head.n - 1);
            return Some(Kind::Cut { from, to });
        }
        if link(last.chain, content) != head.chain {
            return Some(Kind::Changed { id: *id });
        }
        self.compare(*head)
    }

    /// The first line of the chain that is there.
    fn begin(&mut self, line: &Sealed) -> Option<Kind> {
        let Sealed { content, id, head } = line;
        (self.first, self.last) = (Some(head.n), Some(*head));
        if !self.is_whole {
            // What it is chained to was removed with its file.
            return self.compare(*head);
        }
        if head.n > 1 {
            let (from, to) = (1, head.n - 1);
            return Some(Kind::Cut { from, to });
        }
        if link(self.before.finalize(), content) == head.chain {
            return self.compare(*head);
        }
        Some(match self.plain {
            0 => Kind::Changed { id: *id },
            _ => Kind::Former,
        })
    }

    fn compare(&self, head: Head) -> Option<Kind> {
        let noted = self.noted.filter(|noted| noted.n == head.n)?;
        (noted.chain != head.chain).then_some(Kind::Rewritten { n: head.n })
    }

    /// What was found; `file` is the newest.
    pub fn end(mut self, file: &str) -> Found {
        let last = self.last.map_or(0, |head| head.n);
        if let Some(noted) = self.noted.filter(|noted| noted.n > last) {
            let (from, to) = (last + 1, noted.n);
            self.damage.push(Damage {
                file: file.to_owned(),
                line: 0,
                kind: Kind::Cut { from, to },
            });
        }
        // What is elsewhere is not gone.
        let is_there = |from, to| (from..=to).all(|n| self.moved.contains(&n));
        let gone = |d: &Damage| match d.kind {
            Kind::Cut { from, to } if to - from < self.moved.len() as u64 => !is_there(from, to),
            _ => true,
        };
        let mut damage = self.damage;
        damage.retain(gone);
        Found {
            lines: self.lines,
            without_chain: self.plain,
            first: self.first.unwrap_or(0),
            last,
            head: self
                .last
                .map_or_else(String::new, |h| h.chain.to_hex().to_string()),
            end_known: self.noted.is_some() || self.last.is_none(),
            damage,
        }
    }
}
