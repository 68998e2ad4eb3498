//! A check of everything that is stored, for operators' tools.
use super::words::unreadable;
use crate::store::{Checked, Store};
use robust_proto::v1;
use std::path::Path;
use tokio::sync::mpsc::Sender;
use tonic::Status;

/// Checks store and checkpoints, and tells how it goes. Blocks; goes on when nobody listens any more.
pub fn send(store: &Store, checkpoints: &Path, to: &Sender<Result<v1::StoreCheck, Status>>) {
    let mut word = |keys| {
        let word = v1::StoreCheck {
            keys,
            ..Default::default()
        };
        // Only progress: one that finds no room is left out.
        let _ = to.try_send(Ok(word));
    };
    let result = store.check(&mut word).map_err(unreadable);
    let result = result.and_then(|checked| all(checked, checkpoints).map_err(unreadable));
    // The reader may have left.
    let _ = to.blocking_send(result);
}

fn all(mut checked: Checked, folder: &Path) -> std::io::Result<v1::StoreCheck> {
    let (mut count, mut bytes) = (0, 0);
    for listed in robust_ckpt::list(folder)? {
        count += 1;
        let verified = listed
            .manifest
            .and_then(|checkpoint| robust_ckpt::verify(&checkpoint, &mut |n| bytes += n));
        // Else collected by the retention meanwhile, which takes the manifest first.
        if let Err(why) = verified
            && listed.dir.join(robust_ckpt::manifest::FILE).exists()
        {
            checked.problem(format!("checkpoint of step {}: {why}", listed.step));
        }
    }
    for aside in robust_ckpt::aside(folder)? {
        let (step, at) = (aside.step, aside.dir.display());
        let why = aside.reason;
        checked.problem(format!(
            "checkpoint of step {step} was set aside as {at}: {why}"
        ));
    }
    Ok(v1::StoreCheck {
        keys: checked.keys,
        done: true,
        bytes: checked.bytes,
        records: checked.records,
        committed: checked.committed,
        trajectories: checked.trajectories,
        turns: checked.turns,
        checkpoints: count,
        checkpoint_bytes: bytes,
        problems: checked.problems,
        problems_total: checked.problems_total,
    })
}
