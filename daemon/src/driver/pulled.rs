//! How pulls go, from what pullers say of their progress.
use robust_proto::v1;
use robust_proto::v1::pull_done::Result as PullResult;
use robust_proto::v1::role_message::Body;
use robust_shared::ids::Incarnation;
use std::collections::HashMap;

/// How far each puller was when it last said so.
#[derive(Debug, Default)]
pub(super) struct Pulls {
    seen: HashMap<Incarnation, Seen>,
}

/// A puller's last word, and who sent what it has.
#[derive(Clone, Debug, Default)]
struct Seen {
    progress: v1::PullProgress,
    source: String,
}

impl Pulls {
    /// How many more bytes a message tells of. `name` says who a source is.
    pub fn note(
        &mut self,
        incarnation: Incarnation,
        body: &Body,
        name: impl Fn(Incarnation) -> Option<String>,
    ) -> u64 {
        let Seen {
            progress: last,
            source,
        } = self.seen.entry(incarnation).or_default();
        let (version, bytes) = (last.version, last.bytes);
        match body {
            Body::PullProgress(progress) => {
                // Asked now: it may be gone when the status is.
                *source = name(Incarnation(progress.source)).unwrap_or(std::mem::take(source));
                last.clone_from(progress);
            }
            Body::PullDone(v1::PullDone {
                version,
                result: Some(PullResult::Ok(served)),
                ..
            }) => complete(last, *version, served),
            _ => return 0,
        }
        let had = if version == last.version { bytes } else { 0 };
        // What was refused after it was counted is counted once all the same.
        last.bytes = last.bytes.max(had);
        last.bytes - had
    }

    /// Adds to an instance's status what its last pull was like.
    pub fn show(&self, role: &mut v1::RoleStatus) {
        let Some(Seen {
            progress: p,
            source,
        }) = self.seen.get(&Incarnation(role.incarnation))
        else {
            return;
        };
        role.pull_source.clone_from(source);
        role.pull_road.clone_from(&p.road);
        (role.pull_chunks, role.pull_chunks_total) = (p.chunks, p.chunks_total);
        (role.pull_bytes_per_s, role.pull_fetched) = (p.bytes_per_s, p.fetched);
        (role.pull_patched, role.pull_changed_words) = (p.patched, p.changed_words);
        role.pull_wrong_patches = p.wrong_patches;
    }

    /// Its process ended.
    pub fn forget(&mut self, incarnation: Incarnation) {
        self.seen.remove(&incarnation);
    }
}

/// The last progress may be missing: what is served is whole.
fn complete(last: &mut v1::PullProgress, version: u64, served: &v1::ServedVersion) {
    if last.version != version {
        *last = v1::PullProgress {
            road: std::mem::take(&mut last.road),
            ..Default::default()
        };
    }
    let manifest = served.manifest.as_ref();
    let (bytes, chunks) = manifest.map_or((0, 0), |m| (m.bytes, m.chunk_xxh3.len() as u64));
    (last.version, last.bytes, last.total) = (version, bytes, bytes);
    (last.chunks, last.chunks_total) = (chunks, chunks);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const PULLER: Incarnation = Incarnation(7);

    fn progress(version: u64, bytes: u64) -> Body {
        Body::PullProgress(v1::PullProgress {
            version,
            bytes,
            ..Default::default()
        })
    }

    fn done(version: u64, bytes: u64) -> Body {
        let manifest = Some(v1::Manifest {
            bytes,
            chunk_xxh3: vec![0; 3],
            ..Default::default()
        });
        let served = v1::ServedVersion {
            version,
            manifest,
            region: None,
            canary: None,
        };
        Body::PullDone(v1::PullDone {
            version,
            order: 1,
            result: Some(PullResult::Ok(served)),
        })
    }

    #[test]
    fn every_byte_is_counted_once_whichever_progress_is_missing() {
        let mut pulls = Pulls::default();
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
        let counted = told.map(|body| pulls.note(PULLER, &body, |_| None));
        assert_eq!(counted, [40, 0, 60, 0, 100, 10, 0, 90]);
    }

    #[test]
    fn the_end_of_a_pull_is_shown_whole_and_keeps_whom_it_came_from() {
        let mut pulls = Pulls::default();
        let shown = |pulls: &Pulls| {
            let mut role = v1::RoleStatus {
                incarnation: PULLER.0,
                ..Default::default()
            };
            pulls.show(&mut role);
            role
        };
        let from = v1::PullProgress {
            version: 1,
            source: 4,
            bytes_per_s: 2e9,
            road: "shm".to_owned(),
            ..Default::default()
        };
        let name = |source: Incarnation| (source.0 == 4).then(|| "rollout-1".to_owned());
        pulls.note(PULLER, &Body::PullProgress(from), name);
        pulls.note(PULLER, &done(1, 100), |_| None);
        let role = shown(&pulls);
        assert_eq!(
            (&*role.pull_source, role.pull_bytes_per_s),
            ("rollout-1", 2e9)
        );
        assert_eq!((role.pull_chunks, role.pull_chunks_total), (3, 3));
        assert_eq!(role.pull_road, "shm");
        pulls.forget(PULLER);
        assert_eq!(shown(&pulls).pull_chunks, 0);
    }
}
