//! Text of tokens, for whoever reads what was generated: the store has their ids. The job's own tokenizer makes it, which is
//! read when somebody asks for text, and let go of when nobody does any more.
//!
//! ```text
//!  ids    1   2    3    4   5       each token has a piece; those that are only together a character
//!  pieces "3" "+"  ""   ""  "é"     have it at the last of them
//! ```
use crate::store::StoredTrajectory;
use robust_shared::job::Job;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokenizers::Tokenizer;

/// How long a tokenizer is kept that nobody asks for: a large vocabulary is many strings.
const KEPT: Duration = Duration::from_secs(60);
/// No character has more bytes, and a token has one at least: so many that make none together make none at all.
const OF_A_CHARACTER: usize = 4;
/// Tokens before the first one whose text is wanted. A blank before a word, or bytes of a character, are of those.
const BEFORE: usize = 8;

/// Makes text of a job's tokens.
#[derive(Clone, Debug)]
pub struct Texts(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// None: the job names no tokenizer.
    path: Option<PathBuf>,
    /// Held while it is read, which takes seconds for a large vocabulary.
    tokenizer: Mutex<Option<Arc<Tokenizer>>>,
    /// How often it was asked for.
    times: AtomicU64,
}

impl Texts {
    /// Those of a job: by the tokenizer of its data, or of a job without any by that of its model.
    pub fn of(job: &Job) -> Self {
        let path = match job.own_loop() {
            None => Some(job.data.tokenizer.clone()),
            Some(_) => job.model.path.as_ref().map(|at| at.join("tokenizer.json")),
        };
        Self(Arc::new(Inner {
            path,
            tokenizer: Mutex::default(),
            times: AtomicU64::default(),
        }))
    }

    /// A piece of text for each token of a trajectory after the first `known` ones: of its prompt, of each turn what was
    /// generated and what the tool answered, of the turn under way. Or why there is none. Blocks: the tokenizer may have
    /// to be read.
    pub fn pieces(&self, of: &StoredTrajectory, known: u64) -> Result<Vec<String>, String> {
        let ids: Vec<u32> = tokens(of).collect();
        let known = usize::try_from(known).unwrap_or(usize::MAX).min(ids.len());
        if known == ids.len() {
            return Ok(Vec::new());
        }
        let begin = known.saturating_sub(BEFORE);
        // What is not at its end may go on with the rest of a character.
        let is_whole = of.finished.is_some() || of.consumed_by.is_some();
        let tokenizer = self.tokenizer()?;
        let mut pieces = of_each(&tokenizer, &ids[begin..], is_whole);
        Ok(pieces.split_off(known - begin))
    }

    /// Lets go of the tokenizer unless somebody asks for text again for a while.
    pub async fn let_go_when_idle(self) {
        let times = self.0.times.fetch_add(1, Ordering::Relaxed) + 1;
        tokio::time::sleep(KEPT).await;
        if self.0.times.load(Ordering::Relaxed) != times {
            return;
        }
        // Where it is being read somebody asks for it, and comes here after this.
        if let Ok(mut tokenizer) = self.0.tokenizer.try_lock() {
            *tokenizer = None;
        }
    }

    fn tokenizer(&self) -> Result<Arc<Tokenizer>, String> {
        let Some(path) = &self.0.path else {
            return Err("the job names no tokenizer".to_owned());
        };
        let kept = &self.0.tokenizer;
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(tokenizer) = &*kept {
            return Ok(Arc::clone(tokenizer));
        }
        let tokenizer = Tokenizer::from_file(path)
            .map_err(|why| format!("tokenizer {}: {why}", path.display()))?;
        let tokenizer = Arc::new(tokenizer);
        *kept = Some(Arc::clone(&tokenizer));
        Ok(tokenizer)
    }
}

/// All of its tokens, in order.
fn tokens(of: &StoredTrajectory) -> impl Iterator<Item = u32> + '_ {
    let turns = of.turns.iter().flat_map(|turn| {
        let generated = turn.spans.iter().flat_map(|span| &span.ids);
        generated.chain(&turn.tool_ids)
    });
    let running = of.running.iter().flat_map(|span| &span.ids);
    of.prompt_ids.iter().chain(turns).chain(running).copied()
}

/// A piece for each token, special tokens written out.
fn of_each(tokenizer: &Tokenizer, ids: &[u32], is_whole: bool) -> Vec<String> {
    let known = |id: u32| tokenizer.id_to_token(id);
    let unknown = |id: u32| format!("<{id}?>");
    if tokenizer.get_decoder().is_none() {
        // Tokens are the text itself; the library would put blanks between them.
        let piece = |&id: &u32| known(id).unwrap_or_else(|| unknown(id));
        return ids.iter().map(piece).collect();
    }
    let text = |ids: &[u32]| tokenizer.decode(ids, false).unwrap_or_default();
    let mut stream = tokenizer.decode_stream(false);
    let (mut pieces, mut waiting) = (Vec::with_capacity(ids.len()), Vec::new());
    for &id in ids {
        if known(id).is_none() {
            pieces.push(unknown(id));
            continue;
        }
        waiting.push(id);
        let piece = match stream.step(id) {
            Ok(Some(piece)) => piece,
            Ok(None) if waiting.len() < OF_A_CHARACTER => {
                pieces.push(String::new());
                continue;
            }
            // Bytes that are no text. The stream would gather them without an end.
            Ok(None) | Err(_) => {
                stream = tokenizer.decode_stream(false);
                text(&waiting)
            }
        };
        waiting.clear();
        pieces.push(piece);
    }
    if is_whole
        && !waiting.is_empty()
        && let Some(last) = pieces.last_mut()
    {
        last.push_str(&text(&waiting));
    }
    pieces
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::store::Finish;
    use robust_proto::v1::{Span, Turn};
    use serde_json::json;
    use std::path::Path;
    use tempfile::TempDir;

    /// Bytes as tokens, as vocabularies of today have them: `a`, ` b`, and `é` in two.
    fn of_bytes(dir: &TempDir) -> Texts {
        let byte_level = json!({
            "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": false, "use_regex": false,
        });
        let text = json!({
            "version": "1.0", "truncation": null, "padding": null,
            "added_tokens": [{
                "id": 4, "content": "<|end|>", "single_word": false, "lstrip": false,
                "rstrip": false, "normalized": false, "special": true,
            }],
            "normalizer": null, "pre_tokenizer": byte_level, "post_processor": null,
            "decoder": byte_level,
            "model": {
                "type": "BPE", "vocab": {"a": 0, "\u{120}b": 1, "\u{c3}": 2, "\u{a9}": 3},
                "merges": [],
            },
        });
        let path = dir.path().join("tokenizer.json");
        std::fs::write(&path, text.to_string()).unwrap();
        named(&path)
    }

    fn named(path: &Path) -> Texts {
        let text = format!(
            "[data]\nprompts = \"p\"\ntokenizer = \"{}\"\n",
            path.display()
        );
        Texts::of(&Job::parse(&text, Path::new("job.toml")).unwrap())
    }

    fn generated(ids: &[u32]) -> StoredTrajectory {
        let span = Span {
            ids: ids.to_vec(),
            ..Span::default()
        };
        StoredTrajectory {
            running: vec![span],
            ..StoredTrajectory::default()
        }
    }

    fn pieces(texts: &Texts, ids: &[u32], known: u64) -> Vec<String> {
        texts.pieces(&generated(ids), known).unwrap()
    }

    #[test]
    fn each_token_has_its_piece_and_a_character_is_with_its_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let texts = of_bytes(&dir);
        let all = pieces(&texts, &[0, 1, 2, 3, 4], 0);
        assert_eq!(all, ["a", " b", "", "é", "<|end|>"]);
        assert_eq!(pieces(&texts, &[0, 99, 1], 0), ["a", "<99?>", " b"]);
    }

    #[test]
    fn what_comes_after_known_tokens_is_what_it_is_among_all_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let texts = of_bytes(&dir);
        let ids: Vec<u32> = (0..40).map(|n| [0, 1, 2, 3, 4][n % 5]).collect();
        let all = pieces(&texts, &ids, 0);
        for known in 0..=ids.len() {
            let rest = pieces(&texts, &ids, known as u64);
            assert_eq!(rest, all[known..], "after {known}");
        }
        assert_eq!(pieces(&texts, &ids, 1 << 40), [""; 0]);
    }

    #[test]
    fn bytes_that_are_no_text_cost_no_more_than_others_and_are_seen() {
        let dir = tempfile::tempdir().unwrap();
        let texts = of_bytes(&dir);
        let all = pieces(&texts, &[2; 9], 0);
        assert_eq!(all.concat(), "\u{fffd}".repeat(8), "the last one waits");
        let ended = StoredTrajectory {
            finished: Some(Finish::default()),
            ..generated(&[0, 2])
        };
        assert_eq!(texts.pieces(&ended, 0).unwrap(), ["a", "\u{fffd}"]);
    }

    #[test]
    fn prompt_turns_and_tools_follow_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let turn = |id: u32, tool: u32| Turn {
            spans: vec![Span {
                ids: vec![id],
                ..Span::default()
            }],
            tool_ids: vec![tool],
            ..Turn::default()
        };
        let of = StoredTrajectory {
            prompt_ids: vec![0],
            turns: vec![turn(1, 4), turn(0, 1)],
            ..generated(&[4])
        };
        let all = of_bytes(&dir).pieces(&of, 0).unwrap();
        assert_eq!(all, ["a", " b", "<|end|>", "a", " b", "<|end|>"]);
    }

    #[test]
    fn a_tokenizer_that_is_not_there_is_a_sentence_and_no_tokens_need_none() {
        let texts = named(Path::new("/nowhere/tokenizer.json"));
        let why = texts.pieces(&generated(&[1]), 0).unwrap_err();
        assert!(
            why.starts_with("tokenizer /nowhere/tokenizer.json: "),
            "{why}"
        );
        assert_eq!(texts.pieces(&generated(&[]), 0), Ok(Vec::new()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_tokenizer_that_nobody_asks_for_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let texts = of_bytes(&dir);
        let is_held = || texts.0.tokenizer.lock().unwrap().is_some();
        let first = tokio::spawn(texts.clone().let_go_when_idle());
        let _ = pieces(&texts, &[0], 0);
        tokio::time::sleep(KEPT / 2).await;
        let second = tokio::spawn(texts.clone().let_go_when_idle());
        first.await.unwrap();
        assert!(is_held(), "somebody asked since");
        second.await.unwrap();
        assert!(!is_held());
        assert_eq!(pieces(&texts, &[0], 0), ["a"], "it is read again");
    }
}
