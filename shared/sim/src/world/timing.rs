//! How long things take in the world.
use robust_ahead::dice::Dice;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Milliseconds.
pub fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A duration drawn anew each time: `least`, up to `spread` more, and sometimes a long tail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Span {
    /// Never less.
    pub least: Duration,
    /// Up to so much more.
    pub spread: Duration,
    /// So many of a thousand are in the tail.
    pub tail_per_mille: u64,
    /// Those take up to so much more still.
    pub tail: Duration,
}

impl Span {
    /// Always the same.
    pub const fn always(least: Duration) -> Self {
        Self {
            least,
            spread: Duration::ZERO,
            tail_per_mille: 0,
            tail: Duration::ZERO,
        }
    }

    /// Evenly between two bounds.
    pub const fn between(least: Duration, most: Duration) -> Self {
        Self {
            least,
            spread: most.saturating_sub(least),
            tail_per_mille: 0,
            tail: Duration::ZERO,
        }
    }

    /// With a tail: so many of a thousand take up to `tail` longer.
    pub const fn with_tail(self, tail_per_mille: u64, tail: Duration) -> Self {
        Self {
            tail_per_mille,
            tail,
            ..self
        }
    }

    /// One of them.
    pub fn draw(&self, dice: &mut Dice) -> Duration {
        let mut takes = self.least;
        if !self.spread.is_zero() {
            takes += dice.up_to(self.spread);
        }
        if self.tail_per_mille > 0 && dice.chance(self.tail_per_mille) {
            takes += dice.up_to(self.tail);
        }
        takes
    }
}

/// How long everything takes; the default is a job whose step takes about half a second.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// A process from its spawn to its link: trainer rank.
    pub start_trainer: Span,
    /// The same: rollout.
    pub start_rollout: Span,
    /// The same: agent worker.
    pub start_agent: Span,
    /// A process from the signal that ends it to its end, as the operating system tells it.
    pub teardown: Span,
    /// From there to the daemon's hearing of it.
    pub told: Span,
    /// A process from the end of its link to the next try.
    pub relink: Span,
    /// A message on a link.
    pub message: Span,
    /// A write of records, from the first of a batch until all are durable.
    pub store: Span,
    /// The gang: restoring.
    pub restore: Span,
    /// A hybrid engine from the command to pause, or to go on, to its deed.
    pub switch: Span,
    /// The gang: logprobs before the update.
    pub old_logprob: Span,
    /// The gang: advantages.
    pub advantage: Span,
    /// The gang: the update.
    pub update: Span,
    /// The gang: the snapshot.
    pub snapshot: Span,
    /// The gang: publishing.
    pub publish: Span,
    /// A pull of one version.
    pub pull: Span,
    /// A puller waits so long for bytes before it reports its source.
    pub pull_deadline: Duration,
    /// One turn's generation. Drawn by trajectory and turn, so it is the same after every fault.
    pub turn: Span,
    /// A tool call between turns; drawn like the turn's.
    pub tool: Span,
    /// Turns of a trajectory, 1 to this many.
    pub turns: u32,
    /// The daemon from its death to its return.
    pub daemon_restart: Span,
    /// Telemetry's interval; zero: no samples at all.
    pub sample_every: Duration,
    /// Of a thousand messages that can come twice, so many do, the second time late.
    pub duplicate_per_mille: u64,
    /// Answers of all kinds come twice as often.
    pub answers_twice: bool,
    /// Of a thousand turns so many come from weights one to three versions older than the engine has.
    pub stale_per_mille: u64,
}

impl Default for Timing {
    fn default() -> Self {
        let start = Span::between(ms(300), ms(400));
        Self {
            start_trainer: start,
            start_rollout: start,
            start_agent: start,
            teardown: Span::always(ms(15)),
            told: Span::always(ms(5)),
            relink: Span::always(ms(60)),
            message: Span::default(),
            store: Span::default(),
            restore: Span::always(ms(50)),
            switch: Span::always(ms(5)),
            old_logprob: Span::always(ms(60)),
            advantage: Span::always(ms(10)),
            update: Span::always(ms(150)),
            snapshot: Span::always(ms(10)),
            publish: Span::always(ms(20)),
            pull: Span::between(ms(80), ms(160)),
            pull_deadline: Duration::from_secs(1),
            turn: Span::always(ms(60)),
            tool: Span::always(ms(30)),
            turns: 3,
            daemon_restart: Span::always(ms(300)),
            sample_every: ms(250),
            duplicate_per_mille: 0,
            answers_twice: false,
            stale_per_mille: 0,
        }
    }
}
