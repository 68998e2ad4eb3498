//! The device's memory as an engine has it that can give it back: by tags, and with or without a copy of
//! the weights elsewhere.
//!
//! Whoever touches what is given back dies of it, as on a device. What was done is written to stderr,
//! for who wants to know it from outside.

use crate::crash::Crash;
use crate::protocol::Dialect;
use crate::weights::Weights;
use std::collections::BTreeSet;

/// The tag of the parameters.
const WEIGHTS: &str = "weights";
/// The tag of keys and values.
const KV_CACHE: &str = "kv_cache";

/// Which memory is given back, and what is kept of it elsewhere.
#[derive(Debug, Default)]
pub struct Memory {
    gone: BTreeSet<String>,
    kept: Option<Weights>,
    wakes: u64,
}

impl Memory {
    /// Whether any of it is given back.
    pub fn is_asleep(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Dies where the parameters are not there.
    pub fn touch_weights(&self) -> Result<(), Crash> {
        match self.gone.contains(WEIGHTS) {
            true => Err(Crash("an illegal memory access was encountered")),
            false => Ok(()),
        }
    }

    /// Gives memory back, with a copy of the weights or without one.
    pub fn give_back(&mut self, tags: &[String], keeps: bool, weights: &Weights) {
        if tags.iter().any(|tag| tag == WEIGHTS) && !self.gone.contains(WEIGHTS) {
            self.kept = keeps.then(|| weights.clone());
        }
        self.gone.extend(tags.iter().cloned());
        eprintln!("fake-engine: gave back {}", tags.join(" "));
    }

    /// How often memory was taken again.
    pub fn wakes(&self) -> u64 {
        self.wakes
    }

    /// Takes memory again, without a tag all that is not there; whether all of it is there now. SGLang dies of a tag that was never given back.
    pub fn take(
        &mut self,
        tags: &[String],
        dialect: Dialect,
        forgets: bool,
        weights: &mut Weights,
    ) -> Result<bool, Crash> {
        self.wakes += 1;
        // vLLM looks at all tags before it does anything.
        let unknown = tags.iter().any(|tag| !self.gone.contains(tag));
        if unknown && dialect == Dialect::Vllm {
            return Ok(!self.is_asleep());
        }
        let all: Vec<String> = self.gone.iter().cloned().collect();
        let tags = if tags.is_empty() { &all } else { tags };
        let mut spoils = false;
        for tag in tags {
            let was_gone = self.gone.remove(tag);
            match (was_gone, tag.as_str()) {
                (false, _) if dialect == Dialect::Sglang => return Err(Crash("KeyError")),
                (true, WEIGHTS) => match self.kept.take() {
                    Some(kept) => *weights = kept,
                    None => weights.lose(),
                },
                (true, KV_CACHE) => spoils = forgets,
                _ => {}
            }
        }
        if spoils {
            weights.lose();
        }
        eprintln!("fake-engine: took {}", tags.join(" "));
        Ok(!self.is_asleep())
    }
}
