//! Reads again, every so often, what this process serves.
//!
//! Memory that fails after its bytes were verified is found by whoever pulls from it; but nobody may pull,
//! and the engine itself computes with what lies there. So a thread of the lowest share goes through it,
//! and says what it finds with each pass until somebody ends this process for it.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use robust_proto::v1::WeightsDamaged;
use robust_proto::v1::role_message::Body;
use robust_transport::Share;
use robust_weights::Slots;

use crate::{Link, StartError};

/// What part of a core it takes: generation beside it loses no more than that.
const PART: f64 = 0.05;

/// A process that has nothing to serve is looked at again so often for whether it ended.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Begins; it ends with the slots.
pub fn start(slots: &Arc<Slots>, every: Duration, link: Link) -> Result<(), StartError> {
    let slots = Arc::downgrade(slots);
    std::thread::Builder::new()
        .name("scrub".into())
        .spawn(move || run(&slots, every, &link))
        .map(drop)
        .map_err(|_| StartError::Thread("scrub"))
}

fn run(slots: &Weak<Slots>, every: Duration, link: &Link) {
    let share = Share::default();
    share.set(PART);
    let mut duty = share.duty();
    let mut begun = Instant::now();
    loop {
        let Some(there) = slots.upgrade() else { return };
        if begun.elapsed() < every {
            drop(there);
            std::thread::sleep(LOOK_EVERY.min(every - begun.elapsed().min(every)));
            continue;
        }
        begun = Instant::now();
        let Some(found) = there.scrub(&mut duty).filter(|found| found.wrong > 0) else {
            continue;
        };
        let version = found.version.0;
        tracing::error!(
            version,
            wrong = found.wrong,
            of = found.chunks,
            "what is served changed"
        );
        link.report(Body::Damaged(WeightsDamaged {
            version,
            chunks: found.wrong,
            chunks_total: found.chunks,
        }));
    }
}
