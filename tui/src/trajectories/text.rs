//! A trajectory's tokens in their order, whose each is, and their text.
//!
//! ```text
//!  prompt │ turn 0: generated │ what the tool answered │ turn 1: generated │ ...
//! ```
use robust_proto::v1;
use std::ops::Range;

/// Who wrote a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Whoever gave the task.
    Prompt,
    /// The model, in this turn.
    Model(u32),
    /// A tool, or the environment, after this turn.
    Tool(u32),
}

/// What one of them wrote at once.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// Whose it is.
    pub whose: Whose,
    /// Its tokens, counted from the first of the trajectory.
    pub tokens: Range<usize>,
    /// What the model wanted of the tool; empty where it is none, or was not told.
    pub call: String,
    /// What the tool answered, as it is on record beside its tokens.
    pub result: String,
}

/// A token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// Its number in the vocabulary.
    pub id: u32,
    /// The weights that generated it; none: nobody did.
    pub version: Option<u64>,
    /// How likely it was, where that is kept.
    pub logprob: Option<f32>,
}

/// The tokens of a trajectory with their text.
#[derive(Debug, Default)]
pub struct Text {
    parts: Vec<Part>,
    tokens: Vec<Token>,
    pieces: Vec<String>,
    /// From the oldest on.
    versions: Vec<u64>,
}

impl Text {
    /// Of one that was told with its content. A piece for each token from the first one on; those of the last ones may be missing.
    pub fn of(t: &v1::Trajectory, pieces: Vec<String>) -> Self {
        let mut text = Self {
            pieces,
            ..Self::default()
        };
        text.add(Whose::Prompt, given(&t.prompt_ids));
        for turn in &t.turns {
            text.add(Whose::Model(turn.index), generated(&turn.spans));
            if turn.tool_ids.is_empty() && turn.tool_call.is_empty() && turn.tool_result.is_empty()
            {
                continue;
            }
            text.add(Whose::Tool(turn.index), given(&turn.tool_ids));
            if let Some(part) = text.parts.last_mut() {
                part.call.clone_from(&turn.tool_call);
                part.result.clone_from(&turn.tool_result);
            }
        }
        if !t.running.is_empty() {
            let turn = t.turns.last().map_or(0, |turn| turn.index + 1);
            text.add(Whose::Model(turn), generated(&t.running));
        }
        let mut versions: Vec<u64> = text.tokens.iter().filter_map(|t| t.version).collect();
        versions.sort_unstable();
        versions.dedup();
        text.versions = versions;
        text
    }

    fn add(&mut self, whose: Whose, tokens: impl Iterator<Item = Token>) {
        let begin = self.tokens.len();
        self.tokens.extend(tokens);
        self.parts.push(Part {
            whose,
            tokens: begin..self.tokens.len(),
            call: String::new(),
            result: String::new(),
        });
    }

    /// Its parts, in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// A token.
    pub fn token(&self, at: usize) -> Option<&Token> {
        self.tokens.get(at)
    }

    /// All of them.
    pub fn tokens(&self) -> &[Token] {
        &self.tokens
    }

    /// The text of a token, where it is known.
    pub fn piece(&self, at: usize) -> Option<&str> {
        self.pieces.get(at).map(String::as_str)
    }

    /// The versions of the weights that generated any of it, from the oldest on.
    pub fn versions(&self) -> &[u64] {
        &self.versions
    }

    /// Whether it is kept of any token how likely it was.
    pub fn has_logprobs(&self) -> bool {
        self.tokens.iter().any(|token| token.logprob.is_some())
    }

    /// Of so many tokens the text is known.
    pub fn known(&self) -> u64 {
        self.pieces.len() as u64
    }

    /// Whether its first tokens, so many, are those of this one too.
    pub fn begins_as(&self, t: &v1::Trajectory, tokens: usize) -> bool {
        let Some(ours) = self.tokens.get(..tokens) else {
            return false;
        };
        let mut theirs = ids(t);
        ours.iter().all(|token| theirs.next() == Some(token.id))
    }

    /// The pieces, to be gone on with.
    pub fn into_pieces(self) -> Vec<String> {
        self.pieces
    }

    /// All that somebody wrote at once; none where the text of any of it is not known.
    pub fn words(&self, whose: Whose) -> Option<String> {
        let part = self.parts.iter().find(|part| part.whose == whose)?;
        let pieces = self.pieces.get(part.tokens.clone())?;
        Some(pieces.concat())
    }
}

/// The numbers of all of its tokens, in the order that [`Text`] has them in.
fn ids(t: &v1::Trajectory) -> impl Iterator<Item = u32> + '_ {
    let turns = t.turns.iter().flat_map(|turn| {
        let generated = turn.spans.iter().flat_map(|span| &span.ids);
        generated.chain(&turn.tool_ids)
    });
    let running = t.running.iter().flat_map(|span| &span.ids);
    t.prompt_ids.iter().chain(turns).chain(running).copied()
}

fn given(ids: &[u32]) -> impl Iterator<Item = Token> + '_ {
    ids.iter().map(|&id| Token {
        id,
        version: None,
        logprob: None,
    })
}

fn generated(spans: &[v1::Span]) -> impl Iterator<Item = Token> + '_ {
    spans.iter().flat_map(|span| {
        let token = move |(at, &id): (usize, &u32)| Token {
            id,
            version: Some(span.version),
            logprob: span.logprobs.get(at).copied(),
        };
        span.ids.iter().enumerate().map(token)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(ids: &[u32], version: u64) -> v1::Span {
        v1::Span {
            ids: ids.to_vec(),
            logprobs: vec![-0.25; ids.len()],
            version,
        }
    }

    /// A prompt, a turn with a call whose tokens two weights generated, and a turn under way.
    fn trajectory() -> v1::Trajectory {
        let turn = v1::Turn {
            spans: vec![span(&[3, 4], 8), span(&[5], 7)],
            tool_call: "1+1".into(),
            tool_result: "2".into(),
            tool_ids: vec![6],
            ..Default::default()
        };
        v1::Trajectory {
            prompt_ids: vec![1, 2],
            turns: vec![turn],
            running: vec![span(&[7], 9)],
            ..Default::default()
        }
    }

    fn pieces(n: usize) -> Vec<String> {
        (0..n).map(|n| n.to_string()).collect()
    }

    #[test]
    fn parts_follow_each_other_without_a_gap_and_each_is_somebodys() {
        let t = trajectory();
        let text = Text::of(&t, pieces(7));
        let parts: Vec<_> = text
            .parts()
            .iter()
            .map(|p| (p.whose, p.tokens.clone()))
            .collect();
        assert_eq!(
            parts,
            [
                (Whose::Prompt, 0..2),
                (Whose::Model(0), 2..5),
                (Whose::Tool(0), 5..6),
                (Whose::Model(1), 6..7),
            ]
        );
        let tokens: Vec<u32> = text.tokens().iter().map(|token| token.id).collect();
        assert_eq!(tokens, ids(&t).collect::<Vec<_>>());
        assert_eq!(text.parts()[2].call, "1+1");
        assert_eq!(text.words(Whose::Model(0)).as_deref(), Some("234"));
    }

    #[test]
    fn only_what_was_generated_has_weights_and_likelihoods() {
        let text = Text::of(&trajectory(), Vec::new());
        let versions: Vec<_> = text.tokens().iter().map(|token| token.version).collect();
        let generated = [None, None, Some(8), Some(8), Some(7), None, Some(9)];
        assert_eq!(versions, generated);
        assert_eq!(text.versions(), [7, 8, 9]);
        assert_eq!(text.token(2).and_then(|token| token.logprob), Some(-0.25));
        assert!(text.has_logprobs());
        let mut none = trajectory();
        for span in none.turns[0].spans.iter_mut().chain(&mut none.running) {
            span.logprobs.clear();
        }
        assert!(!Text::of(&none, Vec::new()).has_logprobs());
    }

    #[test]
    fn one_that_was_generated_again_does_not_begin_as_it_did() {
        let t = trajectory();
        let text = Text::of(&t, pieces(4));
        assert_eq!(text.known(), 4);
        let mut again = trajectory();
        again.turns[0].spans[0].ids[1] = 99;
        assert!(text.begins_as(&t, 4) && text.begins_as(&t, 7));
        assert!(text.begins_as(&again, 3) && !text.begins_as(&again, 4));
        let shorter = v1::Trajectory {
            running: Vec::new(),
            ..trajectory()
        };
        assert!(!text.begins_as(&shorter, 7), "it has six");
        assert!(!text.begins_as(&t, 8), "nobody knows eight");
        assert!(Text::default().begins_as(&t, 0));
    }

    #[test]
    fn a_part_whose_text_is_not_all_known_has_none() {
        let text = Text::of(&trajectory(), pieces(4));
        assert_eq!(text.words(Whose::Prompt).as_deref(), Some("01"));
        assert_eq!(text.words(Whose::Model(0)), None);
        assert_eq!((text.piece(3), text.piece(4)), (Some("3"), None));
    }
}
