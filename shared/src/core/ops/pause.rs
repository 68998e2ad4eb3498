//! Pause and resume: an operator's wish that nothing new is begun.
//!
//! ```text
//!            Pause               step N committed and published            Resume
//!  running ─────────► pausing ───────────────────────────────► paused ─────────────► running
//!                       │  Resume                                ▲
//!                       └────────────► running     a fault: recovered as ever, and still paused
//! ```
//! N is the step under way; where nothing of it was begun, the one before. While *pausing*, the job
//! does all that N needs and hands out no trajectory of a later batch; those of later batches that
//! run, run on. Once *paused*, rollouts freeze between turns: a turn under way ends and is stored,
//! the next one is not routed until the job is resumed. Agent workers keep their leases, so nothing
//! is generated twice (I-2). No process is stopped and none ends: all of them stay watched by their
//! own phase's rules, which ask nothing of one that waits (I-8); only `phase overrun`, which knows no
//! pauses, is silent. A pause is on record before it is answered and survives the daemon, and a job
//! that was stopped in a pause is still paused when it goes on. When N is the last step the job
//! completes.
use super::ask::Ask;
use crate::core::Core;
use crate::core::ops::refusal::{Refusal, Reply};
use crate::core::output::Severity;
use crate::core::state::JobState;
use crate::ids::{Role, Step};
use crate::time::Time;
use crate::wire::PauseState;
use serde::{Deserialize, Serialize};

/// A pause, wanted or reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// The last step that is begun.
    pub after: Step,
    /// When it was asked for.
    pub since: Time,
    /// That step is over; what fails from now on is recovered and waits again.
    pub reached: bool,
}

/// A pause as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PauseView {
    /// Whether nothing is begun any more; else the step under way is not over.
    pub reached: bool,
    /// The last step that is begun.
    pub after: Step,
    /// When it was asked for.
    pub since: Time,
}

impl PauseView {
    /// How far it is.
    pub fn state(&self) -> PauseState {
        match self.reached {
            true => PauseState::Paused,
            false => PauseState::Pausing,
        }
    }
}

impl From<Pause> for PauseView {
    fn from(pause: Pause) -> Self {
        Self {
            reached: pause.reached,
            after: pause.after,
            since: pause.since,
        }
    }
}

/// Whether the job may be paused, and the step before the pause. `true`: it is under way.
fn check_pause(ask: &Ask<'_>) -> Result<(Step, bool), Refusal> {
    ask.running_job()?;
    if ask.config.own_loop.is_some_and(|own| !own.commits) {
        return Err(Refusal::WrongRole {
            role: Role::Trainer,
            why: "the job cannot be paused: the trainer's loop is its own and tells no steps to pause after; \
                  a program that publishes or commits does (`trainer.command.level`)"
                .to_owned(),
        });
    }
    let s = ask.state;
    if let Some(pause) = s.orders.pause().map(PauseView::from) {
        let what = format!("the job is {} already", pause.state());
        return Err(Refusal::AlreadyThere { what });
    }
    let next = s.committed.next();
    let begun = s.gang.is_in_step() || s.work.requests.table().is_begun(next);
    Ok((if begun { next } else { s.committed }, begun))
}

fn check_resume(ask: &Ask<'_>) -> Result<(), Refusal> {
    ask.running_job()?;
    match ask.state.orders.pause() {
        Some(_) => Ok(()),
        None => Err(Refusal::AlreadyThere {
            what: "the job is not paused".to_owned(),
        }),
    }
}

impl Core {
    pub(super) fn on_pause(&mut self) -> Result<Reply, Refusal> {
        let (after, begun) = check_pause(&self.ask())?;
        self.s.orders.pause_after(Pause {
            after,
            since: self.now,
            reached: false,
        });
        // An agent worker without work is back at work then.
        self.s.recover.look_again();
        self.note_revision(0);
        let when = match begun {
            true => format!("when step {after} is committed and published"),
            false => "now".to_owned(),
        };
        let text = format!("the job is to pause: {when}");
        self.event(Severity::Info, "pause", None, text);
        let pause = self.pause();
        Ok(Reply::Paused { pause, when })
    }

    pub(super) fn on_resume(&mut self) -> Result<Reply, Refusal> {
        check_resume(&self.ask())?;
        self.s.orders.resume(self.now);
        // What a phase may take is counted from here.
        for role in Role::ALL {
            self.s.roster.touch_role(role);
        }
        self.note_revision(0);
        self.event(Severity::Info, "pause", None, "the job goes on".to_owned());
        let (pause, when) = (None, "now".to_owned());
        Ok(Reply::Paused { pause, when })
    }

    /// The pause that is wanted or reached.
    pub fn pause(&self) -> Option<PauseView> {
        self.s.orders.pause().map(PauseView::from)
    }

    /// Whether the job was begun and is not over.
    pub fn is_running(&self) -> bool {
        self.started && self.s.job == JobState::Running
    }

    /// Notices that the last step before the pause is over.
    pub(in crate::core) fn settle_pause(&mut self) {
        let committed = self.s.committed;
        let idle = self.s.gang.is_idle_after(committed);
        if self.s.orders.settle_pause(committed, idle) {
            self.note_revision(0);
            let text = format!("the job is paused after step {committed}");
            self.event(Severity::Info, "pause", None, text);
        }
    }
}
