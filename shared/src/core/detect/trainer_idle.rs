//! Trainer idle: a rank in a compute phase that uses no processor for the whole window hangs
//! (paper 5.1.1: zero tensor core activity; processor time where there is no accelerator).
//!
//! Applies to `ref_logprob`, `old_logprob`, `update`, and `loop` of a program that says no more, whose
//! window is `trainer.command.watch.silent_s`. A rank that stopped elsewhere (before it took
//! up its call, in a snapshot, while others pull from it) would hold the job up for ever, so in every
//! other phase a rank that uses *no processor time at all* while a call to the gang or a pull from it
//! is under way counts too. A living one wakes for its heartbeat, however long its phase rightly
//! takes, so nothing else is ever said of those phases (I-8).
//!
//! A rank without its link is not judged: it may have finished and cannot say so. When it links again
//! its window begins anew; one that hangs in earnest does not link, which is another rule's matter.
//!
//! Peers of a stopped rank wait for its gradient and fall idle as well. The verdict names the rank
//! that used nothing at all, and among equals the one idle longest; the others are mentioned.
use super::{ByPhase, Fall, Finding, Rule, Setting, Sight, Verdict, Watch, settings};
use crate::core::FaultKind;
use crate::core::roster::instance::Instance;
use crate::ids::Role;
use crate::phase::Phase;
use crate::time::Time;
use std::time::Duration;

/// A rank that stopped computing.
pub const RULE: Rule = Rule {
    name: "trainer idle",
    roles: &[Role::Trainer],
    // All that a rank can be in: where it does not compute, something has to wait for it.
    phases: &[
        Phase::Init,
        Phase::LoadCheckpoint,
        Phase::AwaitBatch,
        Phase::ContextSwitch,
        Phase::Reshard,
        Phase::RefLogprob,
        Phase::OldLogprob,
        Phase::Advantage,
        Phase::Update,
        Phase::Snapshot,
        Phase::Publish,
        Phase::Loop,
    ],
    signal: "no tensor core activity (processor time where there is no accelerator) in ref_logprob, \
             old_logprob, update and loop; in other phases, while a call or a pull waits for the \
             rank, no processor time at all",
    action: "collect evidence, restart the gang",
    kind: Some(FaultKind::Hang),
    event: None,
    watch: Some(Watch {
        due,
        fall: Fall::Judge(judge),
        is_learned: false,
    }),
};

settings! {
    /// What a job file may set of it.
    pub struct TrainerIdle {
        /// How long a rank may be idle.
        pub window: ByPhase<Duration> = Setting::window(300.0),
    }
}

/// Since when the rank counts as idle under this rule; none while the rule is silent.
fn idle_since(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    // One verdict is enough: it ends the whole gang. And what a rank without its link does now it cannot
    // say; it is watched for coming back.
    if i.id().role != Role::Trainer || !i.attached() || sight.gang_is_condemned {
        return None;
    }
    let since = if i.phase().is_trainer_compute() {
        i.phase_since().max(i.active_at())
    } else if wanted(sight) {
        i.phase_since()
            .max(i.moved_at())
            .max(sight.gang.called_at())
    } else {
        return None;
    };
    // Without a sample from the idle time nothing is known of it.
    (i.sampled_at() > since).then_some(since)
}

/// Whether anything waits for the gang: a call, or a pull from it that does not come along.
fn wanted(sight: &Sight<'_>) -> bool {
    sight.gang.is_called() || sight.weights.wait_for_ranks()
}

/// When the rule falls, if nothing moves.
pub fn due(sight: &Sight<'_>, i: &Instance) -> Option<Time> {
    let window = || {
        let rules = &sight.config.rules;
        rules.trainer_idle.window.at(Role::Trainer, i.phase())
    };
    idle_since(sight, i).map(|since| since + window())
}

/// The gang hangs where the one that is frozen longest is.
fn judge(sight: &Sight<'_>, _: &Instance) -> Option<Finding> {
    let ranks = sight.instances.role(Role::Trainer);
    // Frozen longest first: a waiting peer still used a little, a stopped process nothing.
    let idle = ranks.filter_map(|i| Some((i.moved_at(), idle_since(sight, i)?, i)));
    let mut idle: Vec<_> = idle.collect();
    idle.sort_by_key(|(moved, since, i)| (*moved, *since, i.id().index));
    let (moved, since, first) = idle.first()?;
    let seconds = |t: Time| sight.now.since(t).as_secs_f64();
    let mut reason = format!(
        "no activity in {} for {:.1} s, no processor time at all for {:.1} s",
        first.phase(),
        seconds(*since),
        seconds(*moved)
    );
    for (_, since, i) in idle.iter().skip(1) {
        reason += &format!(
            "; {} idle in {} for {:.1} s",
            i.id(),
            i.phase(),
            seconds(*since)
        );
    }
    let verdict = Verdict::new(first.id(), &RULE, reason).hanging();
    Some(Finding::Failed(verdict))
}
