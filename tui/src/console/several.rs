//! Several acts that were confirmed together: each is asked of the daemon after the one before, and all answers are told
//! at once.
//!
//! The daemon is done with the restart of one instance as soon as that has a new process, and does not wait until it serves:
//! restarts that follow each other take their instances down together. Only a restart that waits for a slot is under way for
//! longer, and the next one of its role is refused as long as it is: that one is asked for again for a while, and then its
//! refusal is told.
use super::act::{Act, Whole};
use super::feed;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use crate::steer::Steer;
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
    /// Whom, and why nobody knows: a request without an answer may have been carried out.
    unknown: Vec<(String, String)>,
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

    /// One was answered, or the daemon was lost over it.
    pub fn take(&mut self, whom: String, answer: Result<(), CliError>) {
        match answer {
            Ok(()) => self.accepted.push(whom),
            Err(CliError::NoDaemon { reason, .. }) => self.unknown.push((whom, reason)),
            Err(e) => self.refused.push((whom, e.to_string())),
        }
    }

    /// Whether all of them were accepted.
    pub fn is_good(&self) -> bool {
        self.refused.is_empty() && self.unknown.is_empty() && self.left == 0
    }

    /// In a sentence.
    pub fn summary(&self) -> String {
        let failed = self.refused.len() + self.unknown.len();
        let all = self.accepted.len() + failed + self.left;
        let (verb, accepted) = (&self.verb, self.accepted.len());
        match self.is_good() {
            true => format!("{verb}: all {all} were accepted"),
            false => format!("{verb}: {accepted} of {all} were accepted"),
        }
    }

    /// All that there is to say, a line each.
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![self.summary()];
        let headed = [
            ("Not done:", &self.refused),
            ("Not known whether done:", &self.unknown),
        ];
        for (heading, those) in headed.into_iter().filter(|(_, those)| !those.is_empty()) {
            lines.extend([String::new(), heading.to_owned()]);
            lines.extend(those.iter().map(|(whom, why)| format!("{whom}: {why}")));
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

/// Asks for each of them. Once the daemon is gone no more are asked for, and nobody is moved from nodes of which one is not
/// cordoned.
pub async fn ask(endpoint: &Endpoint, verb: &str, acts: &[Act]) -> Answers {
    let mut answers = Answers::of(verb);
    let mut restarts = Restarts::default();
    let mut is_open = false;
    for (at, act) in acts.iter().enumerate() {
        if is_open && matches!(act, Act::Restart(_)) {
            answers.left = acts.len() - at;
            break;
        }
        let answer = match act {
            Act::Restart(whole) => restarts.ask(endpoint, whole).await,
            act => feed::carry_out(endpoint, act.clone()).await.map(drop),
        };
        let is_lost = answer.as_ref().is_err_and(CliError::is_lost);
        is_open |= answer.is_err() && matches!(act, Act::Cordon { out: true, .. });
        answers.take(act.whom(), answer);
        if is_lost {
            answers.left = acts.len() - at - 1;
            break;
        }
    }
    answers
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
        let refused = CliError::Refused(why.to_owned());
        answers.take("agent-0".to_owned(), Err(refused));
        answers.left = 4;
        assert_eq!(answers.summary(), "restart: 2 of 7 were accepted");
        let lines = answers.lines();
        let refused = format!("agent-0: refused: {why}");
        assert!(lines.contains(&refused), "{lines:?}");
        assert!(lines.contains(&"rollout-0, rollout-1".to_owned()));
        assert!(lines.contains(&"4 more were not asked for after that".to_owned()));
    }

    #[test]
    fn an_act_over_which_the_daemon_was_lost_may_have_been_done() {
        let mut answers = Answers::of("kill");
        let lost = CliError::NoDaemon {
            place: "unix socket s".to_owned(),
            reason: "it did not answer within 10 s".to_owned(),
            fix: "look at its log".to_owned(),
        };
        answers.take("rollout-0".to_owned(), Err(lost));
        assert!(!answers.is_good());
        assert_eq!(answers.summary(), "kill: 0 of 1 were accepted");
        let expected = [
            "kill: 0 of 1 were accepted",
            "",
            "Not known whether done:",
            "rollout-0: it did not answer within 10 s",
        ];
        assert_eq!(answers.lines(), expected);
    }
}
