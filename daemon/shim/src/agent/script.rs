//! What is known of a conversation: the turns that are stored, and the one that is not yet. No I/O.
//!
//! ```text
//!            generate(ids): ids go on from all so far
//!   stored turns left? ── yes ──► told from memory; what is added after each must be what was added then
//!        │ no
//!        ▼
//!   generated, kept ──► open: stored with what is added after it, at the next generate or the end
//! ```
//! An environment begins anew after a death, and comes to the same point by what it is told again: the model's
//! tokens and its tools' answers. One that goes another way then cannot go on from what is stored.

use robust_proto::v1::{Span, Turn};

use super::words::Recorded;

/// Why a step of a conversation is not taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// The program asked for what cannot be; it may ask for something else.
    Refused(String),
    /// It went another way than before.
    Diverged(String),
}

/// What comes next.
#[derive(Debug, Clone, PartialEq)]
pub enum Next {
    /// This turn is stored: it is told again.
    Stored(Vec<Span>),
    /// This turn is to be stored first, if one is open; then the next is generated on from these tokens.
    Generate {
        /// Complete by now.
        store: Option<Turn>,
        /// What is stored of the next turn already.
        begun: Vec<Span>,
    },
}

/// A conversation so far.
#[derive(Debug, Default)]
pub struct Script {
    /// Stored turns that were not told yet, the next one last.
    stored: Vec<Turn>,
    /// Stored of the turn after those.
    running: Vec<Span>,
    prompt: Option<Vec<u32>>,
    /// Prompt, turns, and what was added.
    context: Vec<u32>,
    /// The turn that was told last.
    last: Last,
    turns: u32,
}

#[derive(Debug, Default)]
enum Last {
    /// The model did not speak yet.
    #[default]
    None,
    /// It is stored with what was added after it.
    Stored(Vec<u32>),
    /// It is kept, and what comes after it is not known.
    Open(Vec<Span>),
}

impl Script {
    /// From what is stored.
    pub fn new(mut stored: Vec<Turn>, running: Vec<Span>) -> Self {
        stored.reverse();
        Self {
            stored,
            running,
            ..Self::default()
        }
    }

    /// What tools said, in order, as it is recorded.
    pub fn calls(&self) -> Vec<Recorded> {
        let texts = self.stored.iter().rev().map(|turn| &turn.tool_result);
        let of = |text: &String| serde_json::from_str::<Vec<Recorded>>(text).unwrap_or_default();
        texts.flat_map(of).collect()
    }

    /// The prompt; empty before the first turn.
    pub fn prompt(&self) -> &[u32] {
        self.prompt.as_deref().unwrap_or_default()
    }

    /// The number of the turn that is generated next.
    pub fn turn(&self) -> u32 {
        self.turns
    }

    /// The program wants the model to go on after these tokens; `calls` were made since it spoke last.
    pub fn go_on(&mut self, ids: &[u32], calls: &[Recorded]) -> Result<Next, Wrong> {
        let added = self.added(ids)?;
        let store = match std::mem::take(&mut self.last) {
            Last::None => None,
            Last::Stored(then) => {
                if then != added {
                    self.last = Last::Stored(then);
                    return Err(Wrong::Diverged(
                        "other tokens follow the model's than did before: what an environment adds must \
                         follow from the prompt, the model's tokens and what engine.tool() returned"
                            .to_owned(),
                    ));
                }
                None
            }
            Last::Open(spans) => Some(self.complete(spans, added, calls)),
        };
        if self.prompt.is_none() {
            self.prompt = Some(ids.to_vec());
        }
        self.context = ids.to_vec();
        if let Some(turn) = self.stored.pop() {
            self.context.extend(turn.spans.iter().flat_map(|s| &s.ids));
            self.turns += 1;
            self.last = Last::Stored(turn.tool_ids);
            return Ok(Next::Stored(turn.spans));
        }
        let begun = std::mem::take(&mut self.running);
        Ok(Next::Generate { store, begun })
    }

    /// The model spoke, and all of it is kept.
    pub fn spoke(&mut self, spans: Vec<Span>) {
        self.context.extend(spans.iter().flat_map(|s| &s.ids));
        self.turns += 1;
        self.last = Last::Open(spans);
    }

    /// The conversation is over: the turn that is to be stored first, if one is.
    pub fn end(&mut self) -> Result<Option<Turn>, Wrong> {
        if !self.stored.is_empty() || !self.running.is_empty() {
            return Err(Wrong::Diverged(
                "it ends before the turns that are stored of it".to_owned(),
            ));
        }
        match std::mem::take(&mut self.last) {
            Last::None => Err(Wrong::Refused(
                "a conversation without a turn of the model's is no sample; await engine.generate() \
                 at least once"
                    .to_owned(),
            )),
            Last::Stored(then) if !then.is_empty() => {
                Err(Wrong::Diverged("it ends where it went on before".to_owned()))
            }
            Last::Stored(_) => Ok(None),
            Last::Open(spans) => Ok(Some(self.complete(spans, Vec::new(), &[]))),
        }
    }

    /// What follows all tokens so far; of the first turn nothing, for its tokens are the prompt.
    fn added(&self, ids: &[u32]) -> Result<Vec<u32>, Wrong> {
        if ids.is_empty() {
            let reason = "engine.generate() was given no tokens; give it the prompt's";
            return Err(Wrong::Refused(reason.to_owned()));
        }
        if self.prompt.is_none() {
            return Ok(Vec::new());
        }
        match ids.strip_prefix(self.context.as_slice()) {
            Some([]) => Err(Wrong::Refused(
                "nothing was added after what the model said; raise max_new_tokens, or add tokens"
                    .to_owned(),
            )),
            Some(added) => Ok(added.to_vec()),
            None => Err(Wrong::Refused(format!(
                "the {} tokens do not begin with the {} so far (the prompt, what the model said and what \
                 was added): a conversation only grows",
                ids.len(),
                self.context.len()
            ))),
        }
    }

    /// The turn that was open, with what came after it.
    fn complete(&self, spans: Vec<Span>, added: Vec<u32>, calls: &[Recorded]) -> Turn {
        let names: Vec<&str> = calls.iter().map(|call| call.name.as_str()).collect();
        let recorded = match calls {
            [] => String::new(),
            calls => serde_json::to_string(calls).unwrap_or_default(),
        };
        Turn {
            index: self.turns - 1,
            spans,
            tool_call: names.join(", "),
            tool_result: recorded,
            tool_ids: added,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn span(ids: &[u32]) -> Span {
        Span {
            ids: ids.to_vec(),
            logprobs: vec![-0.5; ids.len()],
            version: 1,
        }
    }

    fn call(result: &str) -> Recorded {
        Recorded {
            name: "python".to_owned(),
            call: "[]".to_owned(),
            result: result.to_owned(),
        }
    }

    /// The prompt 1 2, the model's 3 4, a tool's 5, the model's 6.
    fn stored() -> [Turn; 2] {
        let mut script = Script::new(Vec::new(), Vec::new());
        script.go_on(&[1, 2], &[]).unwrap();
        script.spoke(vec![span(&[3, 4])]);
        let next = script.go_on(&[1, 2, 3, 4, 5], &[call("5")]).unwrap();
        let Next::Generate {
            store: Some(first), ..
        } = next
        else {
            unreachable!("{next:?}");
        };
        script.spoke(vec![span(&[6])]);
        [first, script.end().unwrap().unwrap()]
    }

    #[test]
    fn a_turn_is_stored_with_what_follows_it_when_that_is_known() {
        let [first, second] = stored();
        assert_eq!((first.index, &first.tool_ids[..]), (0, &[5][..]));
        assert_eq!(first.tool_call, "python");
        assert_eq!((second.index, second.tool_ids.len()), (1, 0));
        assert!(second.tool_result.is_empty());
    }

    #[test]
    fn what_is_stored_is_told_again_and_goes_on_from_there() {
        let [first, _] = stored();
        let mut script = Script::new(vec![first], vec![span(&[6])]);
        assert_eq!(script.calls(), [call("5")]);
        assert_eq!(
            script.go_on(&[1, 2], &[]),
            Ok(Next::Stored(vec![span(&[3, 4])]))
        );
        let next = Next::Generate {
            store: None,
            begun: vec![span(&[6])],
        };
        assert_eq!(script.go_on(&[1, 2, 3, 4, 5], &[call("5")]), Ok(next));
        assert_eq!(script.turn(), 1);
        script.spoke(vec![span(&[6, 7])]);
        let last = script.end().unwrap().unwrap();
        assert_eq!((last.index, last.spans), (1, vec![span(&[6, 7])]));
    }

    #[test]
    fn an_end_that_was_not_heard_of_is_told_again() {
        let mut script = Script::new(stored().to_vec(), Vec::new());
        script.go_on(&[1, 2], &[]).unwrap();
        script.go_on(&[1, 2, 3, 4, 5], &[]).unwrap();
        assert_eq!(script.end(), Ok(None));
    }

    #[test]
    fn one_that_goes_another_way_than_before_has_diverged() {
        let diverged = |wrong: Result<_, Wrong>| matches!(wrong, Err(Wrong::Diverged(_)));
        let begun = || {
            let mut script = Script::new(stored().to_vec(), Vec::new());
            script.go_on(&[1, 2], &[]).unwrap();
            script
        };
        assert!(diverged(begun().go_on(&[1, 2, 3, 4, 9], &[]).map(drop)));
        assert!(diverged(begun().end().map(drop)), "it ends too early");
        let mut later = Script::new(stored()[..1].to_vec(), Vec::new());
        later.go_on(&[1, 2], &[]).unwrap();
        assert!(diverged(later.end().map(drop)), "it went on before");
    }

    #[test]
    fn a_conversation_only_grows_and_has_a_turn() {
        let mut script = Script::new(Vec::new(), Vec::new());
        assert!(matches!(script.end(), Err(Wrong::Refused(_))));
        assert!(matches!(script.go_on(&[], &[]), Err(Wrong::Refused(_))));
        script.go_on(&[1, 2], &[]).unwrap();
        script.spoke(vec![span(&[3])]);
        for ids in [&[1, 2, 4][..], &[1, 2, 3], &[1]] {
            let wrong = script.go_on(ids, &[]);
            assert!(matches!(wrong, Err(Wrong::Refused(_))), "{ids:?} {wrong:?}");
        }
        assert!(script.go_on(&[1, 2, 3, 9], &[]).is_ok());
    }
}
