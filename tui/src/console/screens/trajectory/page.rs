//! The text of a trajectory as lines of a width: which token is where. Lines break at blanks, where the text has a line end, and
//! where other weights go on, so that a line is of one version. They are made once for a text and a width; a frame draws
//! those that are in sight.
use crate::console::ui::look::Look;
use crate::trajectories::{Part, Text, Whose};
use ratatui::text::Span;
use robust_shared::printable;

/// Characters without a width that a cell may take on; more are no writing of anybody's.
const MARKS: usize = 4;

/// A line of the page.
#[derive(Clone, Debug, PartialEq)]
pub enum Row {
    /// Who wrote what follows, and how much.
    Head(String),
    /// Words beside the tokens: a call, an answer that has no tokens.
    Words(String),
    /// Tokens.
    Tokens(Line),
}

/// Tokens beside each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The token with which it begins.
    pub first: usize,
    /// Other weights go on here, or somebody else.
    pub is_new: bool,
    /// What is shown of each.
    pub runs: Vec<Run>,
}

/// What a line shows of a token.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Which.
    pub token: usize,
    /// Of its text.
    pub text: String,
}

/// The lines of a text.
#[derive(Clone, Debug)]
pub struct Page {
    width: u16,
    rows: Vec<Row>,
}

impl Page {
    /// A text in lines of so many cells.
    pub fn of(text: &Text, width: u16, look: Look) -> Page {
        let mut setting = Setting {
            room: usize::from(width.max(1)),
            ascii: look.ascii,
            rows: Vec::new(),
            line: Vec::new(),
            used: 0,
            marks: 0,
            is_new: true,
            first: 0,
        };
        for part in text.parts() {
            setting.part(text, part);
        }
        Page {
            width,
            rows: setting.rows,
        }
    }

    /// The cells that its lines are made for.
    pub fn width(&self) -> u16 {
        self.width
    }

    /// All lines.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The token that the line of this number, or one after it, begins with.
    pub fn token_at(&self, row: usize) -> Option<usize> {
        let rest = self.rows.get(row..)?;
        rest.iter().find_map(|row| match row {
            Row::Tokens(line) => Some(line.first),
            Row::Head(_) | Row::Words(_) => None,
        })
    }

    /// The line that has a token.
    pub fn row_of(&self, token: usize) -> usize {
        let has_begun = |row: &Row| matches!(row, Row::Tokens(line) if line.first <= token);
        self.rows.iter().rposition(has_begun).unwrap_or(0)
    }
}

/// A character in the line that is being set.
struct Set {
    character: char,
    width: usize,
    token: usize,
}

/// A page that is being made.
struct Setting {
    room: usize,
    ascii: bool,
    rows: Vec<Row>,
    line: Vec<Set>,
    used: usize,
    /// Characters without a width since the last one with one.
    marks: usize,
    /// The next line is the first one of its weights.
    is_new: bool,
    /// The token with which the next line begins, where it has none of its own.
    first: usize,
}

impl Setting {
    fn part(&mut self, text: &Text, part: &Part) {
        let tokens = part.tokens.len();
        self.rows.push(Row::Head(heading(part.whose, tokens)));
        self.words("call", &part.call);
        let is_told = part.tokens.clone().all(|at| text.piece(at).is_some());
        // What the tokens say is not said twice.
        if tokens == 0 || !is_told {
            self.words("answer", &part.result);
        }
        let mut version = None;
        for at in part.tokens.clone() {
            let by = text.token(at).and_then(|token| token.version);
            if version != Some(by) {
                self.end_line();
                (version, self.is_new) = (Some(by), true);
            }
            self.first = at;
            match (text.piece(at), text.token(at)) {
                (Some(piece), _) => self.token(at, piece),
                (None, Some(token)) => self.token(at, &format!("{} ", token.id)),
                (None, None) => {}
            }
        }
        self.end_line();
    }

    /// Words of others, after what they are.
    fn words(&mut self, what: &str, words: &str) {
        if words.is_empty() {
            return;
        }
        let ascii = self.ascii;
        let shown = words.chars().map(|c| shown(c, ascii));
        let mut line = format!("{what}: ");
        let mut used = line.len();
        for c in shown {
            let width = width(c);
            if used + width > self.room {
                self.rows.push(Row::Words(std::mem::take(&mut line)));
                used = 0;
            }
            // One without a width is left out: there is no telling what it belongs to.
            if width > 0 {
                line.push(c);
                used += width;
            }
        }
        self.rows.push(Row::Words(line));
    }

    fn token(&mut self, token: usize, piece: &str) {
        for c in piece.chars() {
            match c {
                '\n' => self.put_line(self.line.len()),
                '\r' => {}
                '\t' => (0..2).for_each(|_| self.put(token, ' ')),
                c => self.put(token, shown(c, self.ascii)),
            }
        }
    }

    fn put(&mut self, token: usize, character: char) {
        let width = width(character);
        match width {
            0 if self.marks == MARKS || self.line.is_empty() => return,
            0 => self.marks += 1,
            _ => self.marks = 0,
        }
        if self.used + width > self.room && !self.line.is_empty() {
            self.put_line(self.break_at());
        }
        self.used += width;
        self.line.push(Set {
            character,
            width,
            token,
        });
    }

    /// Where a full line is broken: after its last blank, unless that leaves half of it empty.
    fn break_at(&self) -> usize {
        let blank = self.line.iter().rposition(|set| set.character == ' ');
        match blank.map(|at| at + 1) {
            Some(after) if after > self.line.len() / 2 => after,
            _ => self.line.len(),
        }
    }

    /// The line as far as it goes, where there is anything in it.
    fn end_line(&mut self) {
        if !self.line.is_empty() {
            self.put_line(self.line.len());
        }
    }

    /// The first characters are a line, the others begin the next.
    fn put_line(&mut self, characters: usize) {
        let rest = self.line.split_off(characters);
        let line = std::mem::replace(&mut self.line, rest);
        self.used = self.line.iter().map(|set| set.width).sum();
        self.marks = 0;
        let mut runs: Vec<Run> = Vec::new();
        for set in &line {
            match runs.last_mut() {
                Some(run) if run.token == set.token => run.text.push(set.character),
                _ => runs.push(Run {
                    token: set.token,
                    text: set.character.to_string(),
                }),
            }
        }
        self.rows.push(Row::Tokens(Line {
            first: runs.first().map_or(self.first, |run| run.token),
            is_new: std::mem::take(&mut self.is_new),
            runs,
        }));
    }
}

/// Who wrote it.
fn heading(whose: Whose, tokens: usize) -> String {
    let plural = if tokens == 1 { "" } else { "s" };
    let who = match whose {
        Whose::Prompt => "prompt".to_owned(),
        Whose::Model(turn) => format!("turn {turn}"),
        Whose::Tool(turn) => format!("answer to turn {turn}"),
    };
    format!("{who}, {tokens} token{plural}")
}

/// What a terminal may have of a character.
fn shown(c: char, ascii: bool) -> char {
    match printable::character(c) {
        c if ascii && !c.is_ascii() => '?',
        c => c,
    }
}

fn width(c: char) -> usize {
    match c {
        ' '..='~' => 1,
        c => Span::raw(&*c.encode_utf8(&mut [0; 4])).width(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::ThemeName;
    use robust_proto::v1;

    fn look(ascii: bool) -> Look {
        Look::new(ThemeName::Dark, true, ascii)
    }

    fn span(tokens: u32, version: u64) -> v1::Span {
        v1::Span {
            ids: (0..tokens).collect(),
            logprobs: Vec::new(),
            version,
        }
    }

    /// Generated in one turn under way by weights of these versions, so many tokens each.
    fn text(by: &[(u32, u64)], pieces: &[&str]) -> Text {
        let t = v1::Trajectory {
            running: by.iter().map(|&(n, version)| span(n, version)).collect(),
            ..Default::default()
        };
        Text::of(&t, pieces.iter().map(|&p| p.to_owned()).collect())
    }

    fn page(text: &Text, width: u16) -> Page {
        Page::of(text, width, look(false))
    }

    /// Lines of tokens: their words, and an asterisk at those that begin something.
    fn lines(page: &Page) -> Vec<String> {
        let lines = page.rows().iter().filter_map(|row| match row {
            Row::Tokens(line) => Some(line),
            Row::Head(_) | Row::Words(_) => None,
        });
        let line = |line: &Line| {
            let words: String = line.runs.iter().map(|run| run.text.as_str()).collect();
            let sign = if line.is_new { "*" } else { "" };
            format!("{sign}{words}")
        };
        lines.map(line).collect()
    }

    #[test]
    fn lines_break_at_blanks_at_line_ends_and_where_nothing_else_is_left() {
        let pieces = [
            "one",
            " two",
            " three",
            "\n\n",
            "longlonglonglong",
            "\r\n",
            "x",
        ];
        let text = text(&[(7, 4)], &pieces);
        let all = lines(&page(&text, 10));
        let expected = ["*one two ", "three", "", "longlonglo", "nglong", "x"];
        assert_eq!(all, expected);
    }

    #[test]
    fn other_weights_begin_a_line_and_each_character_is_its_tokens() {
        let text = text(&[(2, 4), (1, 5)], &["ab", "cd", "ef"]);
        let page = page(&text, 10);
        assert_eq!(lines(&page), ["*abcd", "*ef"]);
        let run = |token, text: &str| Run {
            token,
            text: text.to_owned(),
        };
        let first = Row::Tokens(Line {
            first: 0,
            is_new: true,
            runs: vec![run(0, "ab"), run(1, "cd")],
        });
        assert_eq!(
            page.rows()[2],
            first,
            "after the headings of prompt and turn"
        );
        assert_eq!((page.row_of(2), page.token_at(3)), (3, Some(2)));
        assert_eq!((page.row_of(1), page.token_at(9)), (2, None));
    }

    #[test]
    fn wide_characters_take_two_cells_and_marks_without_a_width_are_bounded() {
        let evil = format!("e{}", "\u{301}".repeat(1_000));
        let text = text(&[(3, 4)], &["漢字", "漢", evil.as_str()]);
        let all = lines(&page(&text, 5));
        assert_eq!(all[0], "*漢字");
        assert_eq!(all[1], format!("漢e{}", "\u{301}".repeat(MARKS)));
    }

    #[test]
    fn what_a_terminal_would_obey_is_not_in_any_line() {
        let t = v1::Trajectory {
            turns: vec![v1::Turn {
                spans: vec![span(2, 1)],
                tool_call: "\u{1b}]0;x\u{7}".into(),
                tool_result: "\u{202e}\u{9b}2J".into(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let pieces = ["\u{1b}", "[2J\u{202e}\r\u{8}ok"].map(str::to_owned);
        for ascii in [false, true] {
            let text = Text::of(&t, pieces.to_vec());
            let page = Page::of(&text, 20, look(ascii));
            let shown = format!("{:?}", lines(&page));
            assert!(shown.contains("[2J") && shown.contains("ok"), "{shown}");
            for row in page.rows() {
                let words = match row {
                    Row::Head(words) | Row::Words(words) => words.clone(),
                    Row::Tokens(line) => line.runs.iter().map(|run| run.text.as_str()).collect(),
                };
                let obeyed = |c: char| c.is_control() || c == '\u{202e}';
                assert!(!words.contains(obeyed), "{words:?}");
                assert!(!ascii || words.is_ascii(), "{words:?}");
            }
        }
    }

    #[test]
    fn without_text_the_numbers_of_the_tokens_stand_there_and_what_the_tool_answered() {
        let t = v1::Trajectory {
            prompt_ids: vec![11, 12],
            turns: vec![v1::Turn {
                tool_call: "1+1".into(),
                tool_result: "2".into(),
                tool_ids: vec![7],
                ..Default::default()
            }],
            ..Default::default()
        };
        let page = page(&Text::of(&t, Vec::new()), 40);
        assert_eq!(lines(&page), ["*11 12 ", "*7 "]);
        for words in ["call: 1+1", "answer: 2"] {
            assert!(
                page.rows().contains(&Row::Words(words.to_owned())),
                "{words}"
            );
        }
    }

    #[test]
    fn a_page_of_no_width_ends() {
        let text = text(&[(2, 1)], &["漢", "ab"]);
        assert_eq!(lines(&page(&text, 0)).concat(), "*漢ab");
    }
}
