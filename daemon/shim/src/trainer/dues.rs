//! What the daemon asked of a rank and waits for, and what a rank says.

use std::collections::BTreeMap;

use robust_proto::v1::call::Body;
use robust_proto::v1::call_reply::Result as Reply;
use robust_proto::v1::{
    Call, CallReply, OwnStepReply, Restore, RestoreReply, ServedVersion, SnapshotReply, Train,
    UpdateReply,
};
use robust_role::DaemonEpoch;
use robust_role::calls::{Asked, Begun, Calls, Failure};

use super::words::Answer;

/// What a rank says.
#[derive(Debug, Clone, PartialEq)]
pub enum Said {
    /// To the daemon.
    Reply(DaemonEpoch, Box<CallReply>),
    /// To its program.
    Answer(Answer),
}

/// Numbers as texts, by name, as a program tells them.
pub type Figures = BTreeMap<String, String>;

/// A call that waits.
#[derive(Debug, Clone)]
struct Due<T> {
    epoch: DaemonEpoch,
    asked: Asked,
    body: T,
}

/// A step that is asked for.
#[derive(Debug, Clone)]
pub enum Step {
    /// Of this batch.
    Batch(Train),
    /// The next one of the program's own loop.
    Own(u64),
}

impl Step {
    /// Which.
    pub fn number(&self) -> u64 {
        match self {
            Self::Batch(train) => train.step,
            Self::Own(step) => *step,
        }
    }
}

/// What came of a call.
pub enum News {
    /// It has its answer already.
    Said(Said),
    /// It waits; this step is on record, or no more than before is known.
    Due(Option<u64>),
}

/// Calls that wait, at most one of a kind.
pub struct Dues {
    calls: Calls,
    restore: Option<Due<Restore>>,
    step: Option<Due<Step>>,
    snapshot: Option<Due<u64>>,
    publish: Option<Due<u64>>,
}

impl Dues {
    /// None yet, of a gang of this generation.
    pub fn new(generation: u64) -> Self {
        Self {
            calls: Calls::of(generation),
            restore: None,
            step: None,
            snapshot: None,
            publish: None,
        }
    }

    /// Takes a call in. A version is asked for, or another step, only once the step before is on record.
    pub fn take_in(&mut self, epoch: DaemonEpoch, call: Call) -> News {
        let (asked, body) = match self.calls.begin(call) {
            Begun::Answered(reply) => return News::Said(Said::Reply(epoch, reply)),
            Begun::New(asked, body) => (asked, body),
        };
        macro_rules! due {
            ($body:expr) => {
                Some(Due {
                    epoch,
                    asked,
                    body: $body,
                })
            };
        }
        let mut on_record = None;
        match body {
            Body::Restore(restore) => self.restore = due!(restore),
            Body::Snapshot(snapshot) => self.snapshot = due!(snapshot.step),
            Body::Train(train) => {
                on_record = Some(train.step.saturating_sub(1));
                self.step = due!(Step::Batch(train));
            }
            Body::OwnStep(own) => {
                on_record = Some(own.step.saturating_sub(1));
                self.step = due!(Step::Own(own.step));
            }
            Body::Publish(publish) => {
                on_record = Some(publish.version);
                self.publish = due!(publish.version);
            }
            Body::OldLogprobs(_) | Body::Update(_) => {
                let reason = "this rank is a program of the user's, which is given whole steps";
                let failure = Failure::of_the_call(reason);
                let reply = self.calls.end(asked, Err(failure));
                return News::Said(Said::Reply(epoch, Box::new(reply)));
            }
        }
        News::Due(on_record)
    }

    /// The state to be taken up.
    pub fn restore(&self) -> Option<&Restore> {
        self.restore.as_ref().map(|due| &due.body)
    }

    /// The step to be done.
    pub fn step(&self) -> Option<&Step> {
        self.step.as_ref().map(|due| &due.body)
    }

    /// Whether the state of this step is to be kept.
    pub fn wants_snapshot(&self, step: u64) -> bool {
        self.snapshot.as_ref().is_some_and(|due| due.body == step)
    }

    /// The version to be published.
    pub fn publish(&self) -> Option<u64> {
        self.publish.as_ref().map(|due| due.body)
    }

    /// The state was taken up, or could not be.
    pub fn end_restore(&mut self, result: Result<u64, String>) -> Option<Said> {
        let due = self.restore.take()?;
        let result = result.map(|step| Reply::Restore(RestoreReply { step }));
        Some(self.end(due, result.map_err(Failure::of_the_call)))
    }

    /// The step was done with these figures; none: there was none left to do.
    pub fn end_step(&mut self, result: Result<Option<&Figures>, Failure>) -> Option<Said> {
        let due = self.step.take()?;
        let own = matches!(due.body, Step::Own(_));
        let result = result.map(|figures| match own {
            true => Reply::OwnStep(own_step(figures)),
            false => Reply::Update(update(figures.unwrap_or(&Figures::new()))),
        });
        Some(self.end(due, result))
    }

    /// The state is kept, or could not be.
    pub fn end_snapshot(&mut self, result: Result<SnapshotReply, String>) -> Option<Said> {
        let due = self.snapshot.take()?;
        let result = result.map(Reply::Snapshot);
        Some(self.end(due, result.map_err(Failure::of_the_call)))
    }

    /// This version is served, or cannot be; nothing where another one is waited for.
    pub fn end_publish(
        &mut self,
        version: u64,
        result: Result<ServedVersion, String>,
    ) -> Option<Said> {
        let due = self.publish.take_if(|due| due.body == version)?;
        let result = result.map(Reply::Publish);
        Some(self.end(due, result.map_err(Failure::of_the_call)))
    }

    fn end<T>(&mut self, due: Due<T>, result: Result<Reply, Failure>) -> Said {
        let reply = self.calls.end(due.asked, result);
        Said::Reply(due.epoch, Box::new(reply))
    }
}

/// A figure with this value fails the step.
pub fn numeric(name: &str, value: &str) -> Failure {
    Failure {
        reason: format!("numeric fault: {name} is {value}"),
        numeric: true,
    }
}

/// The failure of the first figure that is no finite number.
pub fn not_finite(figures: &Figures) -> Option<Failure> {
    let wrong = figures
        .iter()
        .find(|(_, text)| !text.parse::<f64>().is_ok_and(f64::is_finite));
    wrong.map(|(name, text)| numeric(name, text))
}

/// A figure, if the program told it.
fn told(figures: &Figures, name: &str) -> Option<f64> {
    figures.get(name).and_then(|text| text.parse().ok())
}

/// One that the program did not tell is 0.
fn figure(figures: &Figures, name: &str) -> f64 {
    told(figures, name).unwrap_or(0.0)
}

fn update(figures: &Figures) -> UpdateReply {
    let of = |name| figure(figures, name);
    UpdateReply {
        loss: of("loss"),
        grad_norm: of("grad_norm"),
        clip_fraction: told(figures, "clip_fraction"),
        entropy: told(figures, "entropy"),
        kl: told(figures, "kl"),
    }
}

fn own_step(figures: Option<&Figures>) -> OwnStepReply {
    match figures {
        None => OwnStepReply {
            over: true,
            ..OwnStepReply::default()
        },
        Some(figures) => OwnStepReply {
            figures: Some(update(figures)),
            reward: figure(figures, "reward"),
            tokens: figure(figures, "tokens") as u64,
            over: false,
        },
    }
}
