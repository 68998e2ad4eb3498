//! What a replica says of itself to clients of SGLang.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use robust_engine::serve::{Facts, Figures};
use robust_shared::job::Job;

use super::engine::Standing;
use crate::memory;
use crate::model::config::Qwen3Config;
use crate::model::tokenizer::{Tokenizer, TokenizerError};

/// What does not change while a replica runs, and what it counts. Clones share the counts.
#[derive(Clone, Default)]
pub struct About {
    /// What it is.
    pub facts: Arc<Facts>,
    /// Turns ids into text; without it replies have no text.
    pub tokenizer: Option<Arc<Tokenizer>>,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    prompt_tokens: AtomicU64,
    generated_tokens: AtomicU64,
}

impl About {
    /// Of a job's replica, whose model lies in `folder`.
    pub fn of(job: &Job, folder: &Path, config: &Qwen3Config) -> Result<Self, TokenizerError> {
        let tokenizer = Tokenizer::of_job(job, folder)?;
        let facts = Facts {
            model_path: folder.display().to_string(),
            tokenizer_path: job.data.tokenizer.display().to_string(),
            context_len: memory::shape(config).context(job) as usize,
            max_running: job.rollout.max_running.max(1) as usize,
            robust_version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        Ok(Self {
            facts: Arc::new(facts),
            tokenizer: tokenizer.map(Arc::new),
            counts: Arc::default(),
        })
    }

    /// The tokens at which replies end that do not ignore them.
    pub fn eos(&self) -> &[i64] {
        let tokenizer = self.tokenizer.as_deref();
        tokenizer.map_or(&[], |tokenizer| &tokenizer.specials().eos)
    }

    /// The text of tokens.
    pub fn text(&self, ids: &[i64]) -> Option<String> {
        self.tokenizer.as_ref().map(|t| t.plain_text(ids))
    }

    /// A request was taken.
    pub(super) fn taken(&self, prompt_tokens: usize) {
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        let counted = &self.counts.prompt_tokens;
        counted.fetch_add(prompt_tokens as u64, Ordering::Relaxed);
    }

    /// Tokens were generated.
    pub(super) fn generated(&self, tokens: usize) {
        let counted = &self.counts.generated_tokens;
        counted.fetch_add(tokens as u64, Ordering::Relaxed);
    }

    /// The figures of a moment.
    pub(super) fn figures(&self, standing: &Standing) -> Figures {
        let counts = &self.counts;
        Figures {
            running: standing.running,
            waiting: standing.held,
            generated_tokens: counts.generated_tokens.load(Ordering::Relaxed),
            prompt_tokens: counts.prompt_tokens.load(Ordering::Relaxed),
            requests: counts.requests.load(Ordering::Relaxed),
        }
    }
}
