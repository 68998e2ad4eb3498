//! Bytes of weights that were pulled, counted from what pullers say of their progress.
use robust_proto::v1::pull_done::Result as PullResult;
use robust_proto::v1::role_message::Body;
use robust_shared::ids::Incarnation;
use std::collections::HashMap;

/// How far each puller was when it last said so.
#[derive(Debug, Default)]
pub(super) struct PullMeter {
    seen: HashMap<Incarnation, (u64, u64)>,
}

impl PullMeter {
    /// How many more bytes a message tells of.
    pub fn note(&mut self, incarnation: Incarnation, body: &Body) -> u64 {
        let (version, bytes) = match body {
            Body::PullProgress(p) => (p.version, p.bytes),
            Body::PullDone(done) => match &done.result {
                // The last progress may be missing: what is served is whole.
                Some(PullResult::Ok(served)) => (
                    done.version,
                    served.manifest.as_ref().map_or(0, |m| m.bytes),
                ),
                _ => return 0,
            },
            _ => return 0,
        };
        let seen = self.seen.entry(incarnation).or_default();
        let before = if seen.0 == version { seen.1 } else { 0 };
        *seen = (version, bytes.max(before));
        seen.1 - before
    }

    /// Its process ended.
    pub fn forget(&mut self, incarnation: Incarnation) {
        self.seen.remove(&incarnation);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use robust_proto::v1;

    #[test]
    fn every_byte_is_counted_once_whichever_progress_is_missing() {
        let mut meter = PullMeter::default();
        let progress = |version, bytes| {
            Body::PullProgress(v1::PullProgress {
                version,
                bytes,
                ..Default::default()
            })
        };
        let done = |version, bytes| {
            let manifest = Some(v1::Manifest {
                bytes,
                ..Default::default()
            });
            let served = v1::ServedVersion {
                manifest,
                ..Default::default()
            };
            Body::PullDone(v1::PullDone {
                version,
                result: Some(PullResult::Ok(served)),
            })
        };
        let told = [
            progress(1, 40),
            progress(1, 40),
            progress(1, 100),
            done(1, 100),
            done(2, 100),
            progress(3, 10),
            // A source died, and another one starts over.
            progress(3, 5),
            done(3, 100),
        ];
        let counted = told.map(|body| meter.note(Incarnation(7), &body));
        assert_eq!(counted, [40, 0, 60, 0, 100, 10, 0, 90]);
    }
}
