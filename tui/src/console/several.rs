//! Several acts that were confirmed together: each is asked of the daemon after the one before, and all answers are told
//! at once.
//!
//! The daemon restarts one instance of a role at a time and refuses the next as long as the one before is under way. That is
//! soon over, unless no slot is free for it: the next one is asked for again for a while, and then its refusal is told.
use super::act::{Act, Whole};
use super::feed;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::steer::Steer;
use robust_proto::v1;
use robust_shared::core::UNDER_WAY;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// So long a restart is asked for that is refused for the sake of the one before.
const BUSY_FOR: Duration = Duration::from_secs(20);
/// Between two tries.
const AGAIN_AFTER: Duration = Duration::from_millis(250);

/// What came of each of several acts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// What was asked for, as a word or a few.
    verb: String,
    accepted: Vec<String>,
    /// Whom, and why not.
    refused: Vec<(String, String)>,
    /// So many were not asked for any more.
    left: usize,
}

impl Answers {
    /// Nothing was asked for yet.
    pub fn of(verb: impl Into<String>) -> Answers {
        Answers {
            verb: verb.into(),
            ..Answers::default()
        }
    }

    /// One was answered.
    pub fn take(&mut self, whom: String, answer: Result<(), String>) {
        match answer {
            Ok(()) => self.accepted.push(whom),
            Err(why) => self.refused.push((whom, why)),
        }
    }

    /// How many were accepted.
    pub fn accepted(&self) -> usize {
        self.accepted.len()
    }

    /// Whether all of them were.
    pub fn is_good(&self) -> bool {
        self.refused.is_empty() && self.left == 0
    }

    /// In a sentence.
    pub fn summary(&self) -> String {
        let all = self.accepted.len() + self.refused.len() + self.left;
        let (verb, accepted) = (&self.verb, self.accepted.len());
        match self.is_good() {
            true => format!("{verb}: all {all} were accepted"),
            false => format!("{verb}: {accepted} of {all} were accepted"),
        }
    }

    /// All that there is to say, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.summary()];
        if !self.refused.is_empty() {
            lines.extend([String::new(), "Not done:".to_owned()]);
            let refused = self.refused.iter();
            lines.extend(refused.map(|(whom, why)| format!("{whom}: {why}")));
        }
        if self.left > 0 {
            lines.push(format!("{} more were not asked for after that", self.left));
        }
        if !self.accepted.is_empty() {
            lines.extend([String::new(), "Accepted:".to_owned()]);
            lines.push(self.accepted.join(", "));
        }
        lines
    }
}

/// Asks for each of them. Once the daemon is gone no more are asked for.
pub async fn ask(endpoint: &Endpoint, verb: &str, acts: &[Act]) -> Answers {
    let mut answers = Answers::of(verb);
    let mut restarts = Restarts::default();
    for (at, act) in acts.iter().enumerate() {
        let answer = match act {
            Act::Restart(whole) => restarts.ask(endpoint, whole).await,
            act => feed::carry_out(endpoint, act.clone()).await.map(drop),
        };
        let is_lost = answer.as_ref().is_err_and(CliError::is_lost);
        answers.take(act.whom(), answer.map_err(|e| e.to_string()));
        if is_lost {
            answers.left = acts.len() - at - 1;
            break;
        }
    }
    answers
}

/// Nothing new on a node, then new places for what runs there; what came of those, once the node is cordoned.
pub async fn drain(endpoint: &Endpoint, node: &str, whom: Vec<Whole>) -> Result<Answers, CliError> {
    let request = v1::CordonRequest {
        node: node.to_owned(),
        out: true,
    };
    Steer::Cordon(request).ask(endpoint).await?;
    let acts: Vec<Act> = whom.into_iter().map(Act::Restart).collect();
    let verb = format!("{node} is cordoned; restarts of its instances");
    Ok(ask(endpoint, &verb, &acts).await)
}

/// Restarts that follow each other.
#[derive(Debug, Default)]
struct Restarts {
    /// Roles of which one is under way for longer than anybody waits.
    stuck: BTreeSet<String>,
}

impl Restarts {
    async fn ask(&mut self, endpoint: &Endpoint, whole: &Whole) -> Result<(), CliError> {
        let begun = Instant::now();
        loop {
            let request = whole.request();
            let role = request.role.clone();
            match Steer::Restart(request).ask(endpoint).await {
                Err(CliError::Refused(why)) if why.contains(UNDER_WAY) => {
                    if begun.elapsed() > BUSY_FOR || self.stuck.contains(&role) {
                        self.stuck.insert(role);
                        return Err(CliError::Refused(why));
                    }
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
                other => return other.map(drop),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_say_how_many_were_accepted_and_each_refusal_with_its_reason() {
        let mut answers = Answers::of("restart");
        answers.take("rollout-0".to_owned(), Ok(()));
        answers.take("rollout-1".to_owned(), Ok(()));
        assert!(answers.is_good());
        assert_eq!(answers.summary(), "restart: all 2 were accepted");
        let why = "agent-0 is not running (recovering)";
        answers.take("agent-0".to_owned(), Err(why.to_owned()));
        answers.left = 4;
        assert_eq!(answers.summary(), "restart: 2 of 7 were accepted");
        let lines = answers.lines();
        assert!(lines.contains(&format!("agent-0: {why}")), "{lines:?}");
        assert!(lines.contains(&"rollout-0, rollout-1".to_owned()));
        assert!(lines.contains(&"4 more were not asked for after that".to_owned()));
    }
}
