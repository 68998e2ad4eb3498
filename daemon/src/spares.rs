//! Processes that wait on a node for a restart: which are wanted, and how they are shown. They are the launcher's
//! (`launcher/spares.rs`); when they are wanted the driver says (`driver/spares.rs`).
use crate::launcher::{Launcher, Parked, SpareSeen};
use crate::worker::WorkerPlan;
use robust_proto::v1;
use robust_shared::ids::Role;

/// What is to wait on a node: of which role, and how many.
pub type Wanted = Vec<(Role, u32)>;

/// Has these wait on this node, for lives that read this revision of the job; they are started beside the caller.
pub fn keep(launcher: &Launcher, plan: &WorkerPlan, revision: u32, wanted: &Wanted) {
    let parked = |(role, count): &(Role, u32)| Some((plan.parked(*role, revision)?, *count));
    let wanted: Vec<(Parked, u32)> = wanted.iter().filter_map(parked).collect();
    if launcher.has_spares(&wanted) {
        return;
    }
    let launcher = launcher.clone();
    tokio::task::spawn_blocking(move || launcher.keep_spares(&wanted));
}

/// One as it is shown, by its node itself.
pub fn shown(of: &SpareSeen) -> v1::SpareStatus {
    v1::SpareStatus {
        node: String::new(),
        role: of.role.name().to_owned(),
        pid: of.pid,
        ready: of.ready,
        memory_bytes: of.rss_bytes,
    }
}
