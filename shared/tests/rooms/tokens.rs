//! A Rust file as words and signs: no comments, no texts, no lifetimes.
use std::iter::Peekable;
use std::str::CharIndices;

/// A word (`crate`, `mod`, a number) or a sign of one character; `::` is one as well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub fn is_word(&self) -> bool {
        self.text.starts_with(is_of_word)
    }
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Reads a file. A text is kept as one token with its quotes: an attribute may name a path in it.
pub fn read(text: &str) -> Vec<Token> {
    let mut reader = Reader {
        text,
        rest: text.char_indices().peekable(),
        line: 1,
    };
    std::iter::from_fn(|| reader.token()).collect()
}

struct Reader<'a> {
    text: &'a str,
    rest: Peekable<CharIndices<'a>>,
    line: usize,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<(usize, char)> {
        let next = self.rest.next()?;
        self.line += usize::from(next.1 == '\n');
        Some(next)
    }

    fn ahead(&mut self) -> &str {
        let at = self.rest.peek().map_or(self.text.len(), |(at, _)| *at);
        &self.text[at..]
    }

    fn skip(&mut self, chars: usize) {
        for _ in 0..chars {
            self.next();
        }
    }

    fn token(&mut self) -> Option<Token> {
        loop {
            let line = self.line;
            let (at, c) = self.next()?;
            match c {
                _ if c.is_whitespace() => {}
                '/' if self.ahead().starts_with('/') => {
                    while !self.ahead().starts_with('\n') && self.next().is_some() {}
                }
                '/' if self.ahead().starts_with('*') => self.block_comment(),
                '\'' if self.is_char() => self.quoted('\''),
                // A lifetime: its name is dropped with it.
                '\'' => self.word(),
                '"' => {
                    self.quoted('"');
                    return Some(self.token_from(at, line));
                }
                _ if is_of_word(c) => {
                    self.word();
                    let word = self.token_from(at, line);
                    match self.literal_after(&word.text) {
                        true => continue,
                        false => return Some(word),
                    }
                }
                ':' if self.ahead().starts_with(':') => {
                    self.skip(1);
                    return Some(self.token_from(at, line));
                }
                _ => return Some(self.token_from(at, line)),
            }
        }
    }

    fn token_from(&mut self, at: usize, line: usize) -> Token {
        let end = self.text.len() - self.ahead().len();
        let text = self.text[at..end].to_owned();
        Token { text, line }
    }

    fn word(&mut self) {
        while self.ahead().starts_with(is_of_word) {
            self.skip(1);
        }
    }

    /// Blocks of comment lie within each other.
    fn block_comment(&mut self) {
        self.skip(1);
        let mut depth = 1;
        while depth > 0 {
            let ahead = self.ahead();
            let (step, change) = match () {
                () if ahead.starts_with("/*") => (2, 1),
                () if ahead.starts_with("*/") => (2, -1),
                () => (1, 0),
            };
            depth += change;
            if self.next().is_none() {
                return;
            }
            self.skip(step - 1);
        }
    }

    /// Whether what begins with a quote is a character and no lifetime.
    fn is_char(&mut self) -> bool {
        let mut ahead = self.ahead().chars();
        let first = ahead.next();
        first == Some('\\') || ahead.next() == Some('\'')
    }

    /// Up to the quote that ends it.
    fn quoted(&mut self, quote: char) {
        while let Some((_, c)) = self.next() {
            match c {
                '\\' => self.skip(1),
                _ if c == quote => return,
                _ => {}
            }
        }
    }

    /// `r"..", br#".."#, b"..", c"..", b'.'`: whether the word was what such a one begins with, and it
    /// is skipped then.
    fn literal_after(&mut self, word: &str) -> bool {
        let ahead = self.ahead();
        let hashes = ahead.chars().take_while(|c| *c == '#').count();
        let quote = ahead[hashes..].chars().next();
        match (word, quote) {
            ("r" | "br" | "cr", Some('"')) => {
                let end = format!("\"{}", "#".repeat(hashes));
                self.skip(hashes + 1);
                while !self.ahead().starts_with(&end) && self.next().is_some() {}
                self.skip(end.len());
                true
            }
            ("b" | "c", Some(quote @ ('"' | '\''))) if hashes == 0 => {
                self.skip(1);
                self.quoted(quote);
                true
            }
            _ => false,
        }
    }
}
