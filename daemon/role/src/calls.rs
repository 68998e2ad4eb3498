//! The calls of the driver, each done once.
//!
//! ```text
//!   Call ──► key known? ── yes ──────────────────────────► the answer kept under it
//!               │ no
//!               ▼
//!            of this generation? ── no ──► refused (I-1)
//!               │ yes
//!               ▼
//!            performed ── failed ──► the reason; nothing is kept, it may be tried again
//!               └─ done ──► answer kept under its key
//! ```
//! A daemon that was restarted repeats the calls whose answers it does not know.

use std::collections::VecDeque;

use robust_proto::v1::call::Body;
use robust_proto::v1::call_reply::Result as Answer;
use robust_proto::v1::{Call, CallReply};

/// Answers kept: far more than one step's calls, and a driver repeats only those of its last.
const REMEMBERED: usize = 32;

/// Why a call failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// In words, for the driver.
    pub reason: String,
    /// Whether loss or gradient were no numbers; the state is then unchanged.
    pub numeric: bool,
}

impl Failure {
    /// A failure of the call itself, whose numbers are not to blame.
    pub fn of_the_call(reason: impl Into<String>) -> Self {
        let (reason, numeric) = (reason.into(), false);
        Self { reason, numeric }
    }
}

/// A call that waits for its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    call_id: u64,
    /// The same when the same work is asked for again.
    pub key: String,
}

impl Asked {
    fn reply(self, result: Result<Answer, Failure>) -> CallReply {
        if let Err(failure) = &result {
            tracing::error!(key = self.key, error = failure.reason, "call failed");
        }
        let (result, failure) = match result {
            Ok(answer) => (Some(answer), None),
            Err(failure) => (None, Some(failure)),
        };
        CallReply {
            call_id: self.call_id,
            numeric: failure.as_ref().is_some_and(|failure| failure.numeric),
            error: failure.map_or(String::new(), |failure| failure.reason),
            result,
        }
    }
}

/// What becomes of a call that was taken up.
#[derive(Debug)]
pub enum Begun {
    /// There is nothing to do.
    Answered(Box<CallReply>),
    /// This is to be done, and [`Calls::end`] called with what came of it.
    New(Asked, Body),
}

/// Answers calls of one generation, repeated ones from memory.
#[derive(Debug)]
pub struct Calls {
    generation: u64,
    /// The last answers with their keys.
    kept: VecDeque<(String, Answer)>,
}

impl Calls {
    /// No call was answered yet; calls of other generations than this one are refused.
    pub fn of(generation: u64) -> Self {
        let kept = VecDeque::new();
        Self { generation, kept }
    }

    /// Performs a call, or remembers having done it. A call that fails must have changed nothing
    /// that would keep it from being tried again.
    pub fn answer(
        &mut self,
        call: Call,
        perform: impl FnOnce(Body) -> Result<Answer, Failure>,
    ) -> CallReply {
        match self.begin(call) {
            Begun::Answered(reply) => *reply,
            Begun::New(asked, body) => self.end(asked, perform(body)),
        }
    }

    /// Takes a call up whose answer takes its time: what there is to do, or the reply at once where
    /// the call was answered before or is not for this generation.
    pub fn begin(&self, call: Call) -> Begun {
        let asked = Asked {
            call_id: call.call_id,
            key: call.key.clone(),
        };
        if let Some(answer) = self.known(&asked.key) {
            tracing::debug!(key = asked.key, "call answered from memory");
            return Begun::Answered(Box::new(asked.reply(Ok(answer))));
        }
        match self.admit(call) {
            Ok(body) => Begun::New(asked, body),
            Err(failure) => Begun::Answered(Box::new(asked.reply(Err(failure)))),
        }
    }

    /// The reply to a call that was taken up; its answer is kept under the call's key.
    pub fn end(&mut self, asked: Asked, result: Result<Answer, Failure>) -> CallReply {
        if let Ok(answer) = &result {
            self.keep(asked.key.clone(), answer.clone());
        }
        tracing::debug!(key = asked.key, "call answered");
        asked.reply(result)
    }

    fn known(&self, key: &str) -> Option<Answer> {
        let kept = self.kept.iter().find(|(known, _)| known == key);
        kept.map(|(_, answer)| answer.clone())
    }

    /// What is to be done, if it is this life of the gang that is asked.
    fn admit(&self, call: Call) -> Result<Body, Failure> {
        let (asked, own) = (call.generation, self.generation);
        if asked != own {
            let reason = format!("the call is for generation {asked}, this is generation {own}");
            return Err(Failure::of_the_call(reason));
        }
        // A body that this version does not know is read as none.
        call.body
            .ok_or_else(|| Failure::of_the_call("unknown call"))
    }

    fn keep(&mut self, key: String, answer: Answer) {
        if self.kept.len() >= REMEMBERED {
            self.kept.pop_front();
        }
        self.kept.push_back((key, answer));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use robust_proto::v1::{Restore, RestoreReply};

    use super::*;

    const GENERATION: u64 = 3;

    fn call(call_id: u64, key: &str) -> Call {
        Call {
            call_id,
            key: key.to_owned(),
            generation: GENERATION,
            body: Some(Body::Restore(Restore::default())),
        }
    }

    fn answer(step: u64) -> Answer {
        Answer::Restore(RestoreReply { step })
    }

    fn never(_: Body) -> Result<Answer, Failure> {
        unreachable!("it is not to be performed")
    }

    #[test]
    fn a_repeated_call_is_answered_from_memory() {
        let mut calls = Calls::of(GENERATION);
        let first = calls.answer(call(1, "restore"), |_| Ok(answer(7)));
        let again = calls.answer(call(2, "restore"), never);
        assert_eq!((first.call_id, again.call_id), (1, 2));
        assert_eq!(again.result, Some(answer(7)));
        assert_eq!(again.result, first.result);
        assert_eq!(again.error, "");
    }

    #[test]
    fn a_call_that_failed_is_tried_again() {
        let mut calls = Calls::of(GENERATION);
        let failure = Failure {
            reason: "NaN".to_owned(),
            numeric: true,
        };
        let failed = calls.answer(call(1, "update"), |_| Err(failure));
        assert_eq!((failed.error.as_str(), failed.numeric), ("NaN", true));
        assert_eq!(failed.result, None);
        let done = calls.answer(call(2, "update"), |_| Ok(answer(1)));
        assert_eq!((done.error.as_str(), done.numeric), ("", false));
        assert_eq!(done.result, Some(answer(1)));
    }

    #[test]
    fn calls_of_another_generation_and_of_no_known_kind_are_refused() {
        let mut calls = Calls::of(GENERATION);
        let old = Call {
            generation: 2,
            ..call(1, "old")
        };
        let reply = calls.answer(old, never);
        assert_eq!(
            reply.error,
            "the call is for generation 2, this is generation 3"
        );
        let unknown = Call {
            body: None,
            ..call(2, "unknown")
        };
        assert_eq!(calls.answer(unknown, never).error, "unknown call");
    }

    #[test]
    fn the_last_answers_are_kept_and_older_ones_are_forgotten() {
        let mut calls = Calls::of(GENERATION);
        for step in 0..=REMEMBERED as u64 {
            calls.answer(call(step, &step.to_string()), |_| Ok(answer(step)));
        }
        assert_eq!(calls.answer(call(90, "1"), never).result, Some(answer(1)));
        let forgotten = calls.answer(call(91, "0"), |_| Ok(answer(90)));
        assert_eq!(forgotten.result, Some(answer(90)));
    }
}
