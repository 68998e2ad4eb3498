//! What memory the built-in roles take, before they take it.
//!
//! An estimate from the model's shape and the job's settings: exact for weights, optimiser, keys and
//! values and what is published, which are nearly all of it; rough for the work of a step. It is the
//! worst case of the job file: sequences of the longest context, as many at once as may be.
use crate::job::{Dtype, Job};
use std::fmt;

/// Bytes of a float32, in which the trainer computes and keeps its state.
const SINGLE: u64 = 4;
/// Versions of the weights that a rollout holds, and a trainer publishes: one is read, one is written.
const VERSIONS: u64 = 2;
/// What changed in a version has at most so many of its bytes (`robust_weights`).
const CHANGES: u64 = 4;
/// Slots of a rank's snapshot in shared memory.
const SNAPSHOTS: u64 = 2;
/// A process with libtorch, without a model.
const PROGRAM: u64 = 128 << 20;
/// Rows that a rollout computes at once.
const ROWS: u64 = 64;
/// Numbers of the vocabulary's width that a trained token keeps: logits, logprobs, their gradients.
const KEPT_PER_LOGIT: u64 = 6;

/// A model's numbers that decide about memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// Width of the residual stream.
    pub hidden: u64,
    /// Decoder layers.
    pub layers: u64,
    /// Query heads.
    pub heads: u64,
    /// Key and value heads.
    pub kv_heads: u64,
    /// Width of a head.
    pub head: u64,
    /// Width of the gated feed-forward layer.
    pub inner: u64,
    /// Number of tokens.
    pub vocabulary: u64,
    /// Longest sequence that the model knows positions for, in tokens.
    pub positions: u64,
    /// Whether the output layer is the embedding itself.
    pub tied: bool,
}

/// A part of what is needed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// What it is, in words.
    pub what: String,
    /// How much.
    pub bytes: u64,
}

/// What a process needs; its [`fmt::Display`] lists the parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The parts, in order.
    pub parts: Vec<Part>,
    /// Bytes that each token of the longest context adds.
    per_token: u64,
    /// That context, in tokens.
    context: u64,
    /// The key of the job file that says how many sequences there are at once.
    together: &'static str,
}

/// A load that cannot fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{who} of this model needs {} of memory ({need}), and {} is available ({from}); {}",
    gib(need.total()), gib(*available), remedy(need, *available))]
pub struct TooLarge {
    /// Which role.
    pub who: &'static str,
    /// What it needs.
    pub need: Need,
    /// Bytes that there are.
    pub available: u64,
    /// Where that number is from.
    pub from: String,
}

impl Shape {
    /// Numbers of the weights.
    pub fn parameters(&self) -> u64 {
        let attention = 2 * self.hidden * self.head * (self.heads + self.kv_heads) + 2 * self.head;
        let layer = attention + 3 * self.hidden * self.inner + 2 * self.hidden;
        let tables = if self.tied { 1 } else { 2 };
        self.layers * layer + self.hidden * (tables * self.vocabulary + 1)
    }

    /// Longest sequence of a job, in tokens: `rollout.max_context`, or what the model knows.
    pub fn context(&self, job: &Job) -> u64 {
        let bound = job.rollout.max_context.map_or(self.positions, u64::from);
        bound.min(self.positions)
    }

    /// Keys and values of one token, in bytes.
    fn cached_token(&self) -> u64 {
        2 * self.layers * self.kv_heads * self.head * SINGLE
    }

    /// What a forward and backward pass keeps of one token, in bytes.
    fn trained_token(&self) -> u64 {
        let heads = self.head * (self.heads + 2 * self.kv_heads);
        let layer = 8 * self.hidden + 8 * heads + 5 * self.inner;
        (self.layers * layer + KEPT_PER_LOGIT * self.vocabulary) * SINGLE
    }

    /// What a row of a rollout's step takes besides what grows with the context, in bytes.
    fn sampled_row(&self) -> u64 {
        (2 * self.vocabulary + 4 * self.inner + 8 * self.hidden) * SINGLE
    }
}

impl Need {
    /// What a rollout needs.
    pub fn of_rollout(shape: &Shape, job: &Job) -> Self {
        let weights = shape.parameters() * bytes_of(job.wire());
        let (context, running) = (shape.context(job), u64::from(job.rollout.max_running));
        let cache = (running + 1) * shape.cached_token();
        // Each row reads the keys and values of its whole context, a layer at a time.
        let read = ROWS * (shape.cached_token() / shape.layers.max(1) + shape.heads * SINGLE * 2);
        let largest = shape.vocabulary * shape.hidden * SINGLE;
        let widened = match job.wire() {
            Dtype::Float32 => 0,
            Dtype::Bfloat16 => largest,
        };
        let mut need = Self {
            per_token: cache + read,
            context,
            together: "rollout.max_running",
            ..Self::default()
        };
        need.add("the program", PROGRAM);
        need.add("two versions of the weights", VERSIONS * weights);
        if job.sends_changes() {
            need.add("what changed in both", VERSIONS * weights / CHANGES);
        }
        let what = format!("keys and values of {running} sequences of {context} tokens");
        need.add(what, cache * context);
        need.add(
            "a step",
            read * context + ROWS * shape.sampled_row() + widened,
        );
        need
    }

    /// What a rank needs, of whose snapshots this many bytes lie in memory already.
    pub fn of_trainer(shape: &Shape, job: &Job, snapshots: u64) -> Self {
        let (weights, ranks) = (
            shape.parameters() * SINGLE,
            u64::from(job.trainer.ranks.max(1)),
        );
        let published = VERSIONS * shape.parameters() * bytes_of(job.wire());
        let context = shape.context(job);
        let micro_batch =
            u64::from(job.train.micro_batch.max(1)).min(job.samples_per_step() / ranks);
        let per_token = micro_batch.max(1) * shape.trained_token();
        let largest = shape.vocabulary * shape.hidden * SINGLE;
        let mut need = Self {
            per_token,
            context,
            together: "train.micro_batch",
            ..Self::default()
        };
        need.add("the program", PROGRAM);
        need.add("weights and Adam's two moments in float32", 3 * weights);
        need.add("the gradient", weights + 2 * largest);
        if ranks > 1 {
            let others = 2 + (ranks - 1) + 1;
            need.add("gradients of other ranks", others * weights);
        }
        if job.train.kl_coef != 0.0 {
            need.add("the reference policy", weights);
        }
        need.add("two published versions", published);
        if job.sends_changes() {
            need.add("what changed in both", published / CHANGES);
        }
        let slots = SNAPSHOTS * 3 * weights / ranks;
        need.add(
            "two snapshots in shared memory",
            slots.saturating_sub(snapshots),
        );
        let what = format!("a micro batch of {} x {context} tokens", micro_batch.max(1));
        need.add(what, per_token * context);
        need
    }

    /// Bytes of all parts.
    pub fn total(&self) -> u64 {
        let bytes = self.parts.iter().map(|part| part.bytes);
        bytes.fold(0, u64::saturating_add)
    }

    /// Refuses what is more than there is; `from` says where that number is from.
    pub fn fits(self, who: &'static str, available: u64, from: &str) -> Result<(), TooLarge> {
        if self.total() <= available {
            return Ok(());
        }
        let from = from.to_owned();
        Err(TooLarge {
            who,
            need: self,
            available,
            from,
        })
    }

    /// The longest context that fits, in tokens; none where not even the rest does.
    fn longest(&self, available: u64) -> Option<u64> {
        let growing = self.per_token.saturating_mul(self.context);
        let rest = self.total().checked_sub(growing)?;
        let tokens = available.checked_sub(rest)? / self.per_token.max(1);
        (tokens > 1).then_some(tokens)
    }

    fn add(&mut self, what: impl Into<String>, bytes: u64) {
        let what = what.into();
        self.parts.push(Part { what, bytes });
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, part) in self.parts.iter().enumerate() {
            let comma = if n == 0 { "" } else { ", " };
            write!(f, "{comma}{} {}", part.what, gib(part.bytes))?;
        }
        Ok(())
    }
}

fn remedy(need: &Need, available: u64) -> String {
    match need.longest(available) {
        Some(tokens) => format!(
            "set rollout.max_context to at most {tokens} (it is {}), or lower {}",
            need.context, need.together
        ),
        None => "not even the weights and what must stand beside them fit: take a smaller model, \
                 rollout.dtype = \"bfloat16\", or a machine with more memory"
            .to_owned(),
    }
}

fn bytes_of(dtype: Dtype) -> u64 {
    match dtype {
        Dtype::Float32 => SINGLE,
        Dtype::Bfloat16 => SINGLE / 2,
    }
}

fn gib(bytes: u64) -> String {
    format!("{:.2} GiB", bytes as f64 / f64::from(1 << 30))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    /// Qwen3-0.6B as it is published.
    const QWEN3_06B: Shape = Shape {
        hidden: 1024,
        layers: 28,
        heads: 16,
        kv_heads: 8,
        head: 128,
        inner: 3072,
        vocabulary: 151_936,
        positions: 40_960,
        tied: true,
    };
    const GIB: u64 = 1 << 30;

    fn job(text: &str) -> Job {
        let data = "[data]\nprompts = \"p\"\ntokenizer = \"t\"\n[trainer]\nranks = 1\n[model]\npath = \"m\"\n";
        Job::parse(&format!("{data}{text}"), Path::new("j.toml")).unwrap()
    }

    #[test]
    fn a_published_models_parameters_are_counted() {
        assert_eq!(QWEN3_06B.parameters(), 596_049_920);
    }

    #[test]
    fn what_changed_takes_half_a_version_where_it_is_sent_and_nothing_elsewhere() {
        let total = |text: &str| Need::of_rollout(&QWEN3_06B, &job(text)).total();
        let bfloat16 = "[rollout]\ndtype = \"bfloat16\"\n";
        let tls = format!("{bfloat16}[weights]\ntransport = \"tls\"\n");
        assert_eq!(total(&tls) - total(bfloat16), QWEN3_06B.parameters());
        let whole = format!("{tls}full_every = 1\n");
        assert_eq!(total(&whole), total(bfloat16));
    }

    #[test]
    fn a_load_of_310_gb_is_refused_with_its_numbers_and_the_key_to_change() {
        let need = Need::of_rollout(&QWEN3_06B, &job(""));
        let refused = need.fits("a rollout", 22 * GIB, "MemAvailable");
        let words = refused.unwrap_err().to_string();
        assert!(
            words.starts_with("a rollout of this model needs 313.71 GiB"),
            "{words}"
        );
        let keys = "keys and values of 32 sequences of 40960 tokens 288.75 GiB";
        assert!(words.contains(keys), "{words}");
        let remedy = "22.00 GiB is available (MemAvailable); set rollout.max_context to at most 2300 \
                      (it is 40960), or lower rollout.max_running";
        assert!(words.ends_with(remedy), "{words}");
    }

    #[test]
    fn the_context_that_a_refusal_names_fits() {
        let job_of = |tokens: u64| job(&format!("[rollout]\nmax_context = {tokens}\n"));
        let need = Need::of_rollout(&QWEN3_06B, &job(""));
        let longest = need.longest(22 * GIB).unwrap();
        let total = |tokens| Need::of_rollout(&QWEN3_06B, &job_of(tokens)).total();
        assert!(total(longest) <= 22 * GIB && total(longest + 1) > 22 * GIB);
    }

    #[test]
    fn a_model_whose_weights_do_not_fit_is_not_helped_by_a_shorter_context() {
        let need = Need::of_trainer(&QWEN3_06B, &job("[rollout]\nmax_context = 64\n"), 0);
        let words = need
            .fits("a rank", 8 * GIB, "MemAvailable")
            .unwrap_err()
            .to_string();
        assert!(words.contains("not even the weights"), "{words}");
    }

    #[test]
    fn snapshots_that_are_there_are_not_needed_again() {
        let job = job("[rollout]\nmax_context = 64\n");
        let fresh = Need::of_trainer(&QWEN3_06B, &job, 0).total();
        let slots = 24 * QWEN3_06B.parameters();
        assert_eq!(
            fresh - Need::of_trainer(&QWEN3_06B, &job, slots).total(),
            slots
        );
    }

    #[test]
    fn bfloat16_halves_what_a_rollout_holds_of_the_weights() {
        let of = |dtype| {
            let text = format!("[rollout]\nmax_context = 64\ndtype = \"{dtype}\"\n");
            Need::of_rollout(&QWEN3_06B, &job(&text)).parts[1].bytes
        };
        assert_eq!(of("float32"), 2 * of("bfloat16"));
    }
}
