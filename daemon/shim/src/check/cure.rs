//! What a user can do about a program that is of no use.

use robust_shared::job::Placeholder;
use robust_shared::trial::Failure;
use robust_tree::{Died, How};

use crate::error::ShimError;
use crate::process;
use crate::ready::{self, NotReady};

/// Of one that is not up in time.
pub(super) const LATE: &str =
    "see the end of its log for what it waits for, or raise `ready.timeout_s`";

/// Why a program is of no use, and what to do about it.
pub(super) fn failure(reason: impl ToString, cure: &str) -> Failure {
    Failure {
        reason: reason.to_string(),
        cure: cure.to_owned(),
    }
}

/// What to do about an engine that is not ready.
pub(super) fn cure(error: &NotReady) -> String {
    match error {
        NotReady::Late { .. } => LATE.to_owned(),
        NotReady::NoGeneration { kind, .. } => {
            let flag = ready::flag(*kind);
            let flag = flag.map(|flag| format!("add \"{flag}\" to `rollout.command.argv`"));
            flag.unwrap_or_else(|| "see which of its options opens that route".to_owned())
        }
        NotReady::Other { found, .. } => {
            format!("write `rollout.command.kind = \"{}\"`", found.kind())
        }
    }
}

/// Of a program that did not even start.
pub(super) fn not_started(error: &ShimError) -> Failure {
    let cure = match error {
        ShimError::Start(process::StartError::Missing { source, .. }) => {
            match &source.placeholder {
                Placeholder::Env(name) => format!("export {name} where robustd is started"),
                Placeholder::Rollouts => {
                    "give the rollouts ports with `rollout.command.fixed`".to_owned()
                }
                _ => "take it out of the command".to_owned(),
            }
        }
        ShimError::Start(process::StartError::Child(_)) => {
            "install it, or name it with its whole path in `argv`; and see that `cwd` is there"
                .to_owned()
        }
        _ => "see the end of its log".to_owned(),
    };
    failure(error, &cure)
}

/// Of a program one of whose processes died.
pub(super) fn ended_itself(death: &Died) -> Failure {
    let cure = match death.how {
        How::Signal(_) => {
            "it was killed: by the kernel for want of memory (`dmesg`), or by somebody"
        }
        How::Exit(_) | How::Unknown => "see the end of its log for why",
    };
    failure(death, cure)
}
