//! How the shim of a service's process is started.
use crate::launcher::{SERVICE_VARIABLE, SpawnSpec};
use crate::worker::WorkerPlan;
use robust_proto::SERVICES_VARIABLE;
use robust_shared::ids::Incarnation;
use robust_shared::job::{DEVICES_VARIABLE, ServicePlace};
use robust_shared::service::ServiceId;
use std::path::PathBuf;

/// The number of a service's life, beside [`SERVICE_VARIABLE`] in its shim's environment.
pub(super) const LIFE_VARIABLE: &str = "ROBUST_SERVICE_LIFE";

/// The name of an instance's log and folder.
pub(super) fn file_name(id: &ServiceId) -> String {
    format!("service-{}-{}", id.name, id.index)
}

/// Where its output goes, whatever its life.
pub(super) fn log_path(plan: &WorkerPlan, id: &ServiceId) -> PathBuf {
    plan.state.logs().join(format!("{}.log", file_name(id)))
}

/// The folder in shared memory that marks its processes.
pub(super) fn home(plan: &WorkerPlan, id: &ServiceId) -> PathBuf {
    plan.state.snapshots().join(file_name(id))
}

/// What to start for a life, in its slots if it has some.
pub(super) fn spec(
    plan: &WorkerPlan,
    id: &ServiceId,
    life: Incarnation,
    ports: &[u16],
    addresses: &str,
    place: Option<&ServicePlace>,
) -> SpawnSpec {
    let text = |path: PathBuf| path.display().to_string();
    let mut argv = vec![text(plan.program.shim()), "service".to_owned()];
    let options = [
        ("--job", text(plan.state.job_json())),
        ("--name", id.name.clone()),
        ("--index", id.index.to_string()),
        ("--incarnation", life.0.to_string()),
        ("--host-socket", text(plan.state.roles_socket())),
        ("--snapshot-dir", text(plan.state.snapshots())),
        ("--folder", text(plan.state.services().join(file_name(id)))),
        ("--bind", plan.bind.to_string()),
    ];
    let ports = ports.iter().map(|port| ("--port", port.to_string()));
    for (name, value) in options.into_iter().chain(ports) {
        argv.extend([name.to_owned(), value]);
    }
    let mut env = vec![
        (
            SERVICE_VARIABLE.to_owned(),
            text(plan.state.root().to_owned()),
        ),
        (LIFE_VARIABLE.to_owned(), life.0.to_string()),
        (SERVICES_VARIABLE.to_owned(), addresses.to_owned()),
        plan.program.logs.variable(),
    ];
    env.extend(plan.engines_key());
    let devices = place.and_then(|place| {
        let slots = place.slot..place.slot.saturating_add(place.slots);
        plan.devices.of_slots(&place.pool, slots)
    });
    env.extend(devices.map(|of| (DEVICES_VARIABLE.to_owned(), of)));
    SpawnSpec {
        parked: None,
        incarnation: life,
        argv,
        passed: plan.passes.to_service(&id.name),
        env,
        log_path: log_path(plan, id),
        header: format!("=== {id} life {}", life.0),
        group: plan.grouping.of_service(id, life),
    }
}
