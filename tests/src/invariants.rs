//! The invariants that can be seen from outside, checked on every status a test reads.
use serde_json::Value;
use std::collections::BTreeMap;

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
            if place.0 == "rollout" || place.0 == "hybrid" {
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

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or(0)
}
