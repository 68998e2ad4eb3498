//! The invariants that can be seen from outside, checked on every status a test reads.
use robust_shared::core::Record;
use robust_shared::ids::{Step, TrajectoryId};
use robustd::store::Store;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// Remembers what was seen, to notice anything going back.
#[derive(Default)]
pub struct Watcher {
    step: u64,
    version: u64,
    incarnations: BTreeMap<(String, u64), u64>,
    serving: BTreeMap<u64, u64>,
}

impl Watcher {
    /// Checks I-1 and I-4 on this status and remembers it.
    pub fn check(&mut self, status: &Value) {
        if status["roles"].as_array().is_none_or(|r| r.is_empty()) {
            return; // the daemon has not read its own past yet
        }
        let (step, version) = (number(status, "step"), number(status, "weight_version"));
        assert!(
            step >= self.step,
            "I-3: the step went back from {} to {step}",
            self.step
        );
        assert!(
            version >= self.version,
            "I-4: v{} went back to v{version}",
            self.version
        );
        (self.step, self.version) = (step, version);

        let mut seen = BTreeMap::new();
        for role in status["roles"].as_array().into_iter().flatten() {
            let place = (
                role["role"].as_str().unwrap_or_default().to_owned(),
                number(role, "index"),
            );
            let incarnation = number(role, "incarnation");
            if incarnation == 0 {
                continue; // it waits for a slot or for its next life
            }
            assert!(
                seen.insert(place.clone(), incarnation).is_none(),
                "I-1: {place:?} is there twice: {status}"
            );
            let before = self
                .incarnations
                .insert(place.clone(), incarnation)
                .unwrap_or(0);
            assert!(
                incarnation >= before,
                "I-1: {place:?} #{before} went back to #{incarnation}"
            );
            // Of one that it has not heard since it began, a daemon shows what it had on record.
            let heard = role["state"] != "suspect";
            if heard && (place.0 == "rollout" || place.0 == "hybrid") {
                let serves = number(role, "weight_version");
                let before = self.serving.insert(incarnation, serves).unwrap_or(0);
                assert!(
                    serves >= before,
                    "I-4: {place:?} went back from v{before} to v{serves}"
                );
            }
        }
    }
}

/// I-3 from the journal of a job that is over: its steps are committed once each, in order, and each
/// of them consumed so many trajectories that no other did.
pub fn assert_consumed_once(state_dir: &Path, steps: u64, per_step: usize) {
    let (store, _) = Store::open(state_dir).expect("the daemon has ended");
    let consumed = consumed_once(&store, per_step);
    let last = consumed.values().max().map_or(0, |step| step.0);
    assert_eq!(last, steps, "I-3: every step is committed");
}

/// I-3 from the journal of a job that need not be over: which step each trajectory was consumed by.
pub fn consumed_once(store: &Store, per_step: usize) -> BTreeMap<TrajectoryId, Step> {
    let journal = store.journal_since(0, usize::MAX).expect("its journal");
    let committed = journal.into_iter().filter_map(|(_, record)| match record {
        Record::Committed {
            step, trajectories, ..
        } => Some((step, trajectories)),
        _ => None,
    });
    let (mut last, mut consumed) = (0, BTreeMap::new());
    for (step, trajectories) in committed {
        assert_eq!(step.0, last + 1, "I-3: steps are committed in order");
        last = step.0;
        assert_eq!(trajectories.len(), per_step, "I-3: step {step}");
        for trajectory in trajectories {
            let before = consumed.insert(trajectory, step);
            assert_eq!(before, None, "I-3: {trajectory} was used twice");
        }
    }
    consumed
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}
