//! Which of a job's devices of RDMA this machine has, and whether they are up.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use robust_transport::Rdma;

/// Where the kernel tells of them.
pub(crate) const DEVICES: &str = "/sys/class/infiniband";
/// Through which connections over them are made.
pub(crate) const MANAGER: &str = "/dev/infiniband/rdma_cm";
/// In a job file: all that are up.
const ALL: &str = "rdma";

/// UCX over those of the named ports that are up; none where there is none, or no connection can be made.
pub(crate) fn active(named: &str, devices: &Path, manager: &Path) -> Option<Rdma> {
    let wanted = |port: &String| named.split(',').any(|name| name == ALL || name == port);
    let ports = entries(devices).flat_map(|device| {
        let up = entries(&device.join("ports")).filter(|port| is_up(port));
        up.filter_map(move |port| name_of(&device, &port))
    });
    let mut ports: Vec<String> = ports.filter(wanted).collect();
    ports.sort();
    (manager.exists() && !ports.is_empty()).then(|| Rdma::over(ports.join(",")))
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    entries.filter_map(|entry| Some(entry.ok()?.path()))
}

/// `state` is `4: ACTIVE` where packets go through (`Documentation/ABI/stable/sysfs-class-infiniband`).
fn is_up(port: &Path) -> bool {
    let state = read_to_string(port.join("state"));
    state.is_ok_and(|state| state.starts_with("4:"))
}

/// As UCX names a port: `mlx5_0:1`.
fn name_of(device: &Path, port: &Path) -> Option<String> {
    let (device, port) = (device.file_name()?.to_str()?, port.file_name()?.to_str()?);
    Some(format!("{device}:{port}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn of_the_ports_that_the_job_names_those_that_are_up_are_taken() {
        let sys = tempfile::tempdir().unwrap();
        let manager = sys.path().join("rdma_cm");
        let found = |named: &str| active(named, sys.path(), &manager).map(|rdma| rdma.devices);
        std::fs::write(&manager, "").unwrap();
        assert_eq!(found("rdma"), None);
        for (port, state) in [
            ("mlx5_1/ports/1", "4: ACTIVE\n"),
            ("mlx5_0/ports/2", "4: ACTIVE\n"),
            ("mlx5_0/ports/1", "1: DOWN\n"),
        ] {
            let port = sys.path().join(port);
            std::fs::create_dir_all(&port).unwrap();
            std::fs::write(port.join("state"), state).unwrap();
        }
        assert_eq!(found("rdma").unwrap(), "mlx5_0:2,mlx5_1:1");
        assert_eq!(found("mlx5_1:1,mlx5_0:1").unwrap(), "mlx5_1:1");
        assert_eq!(found("mlx5_0:1"), None);
        assert_eq!(found("lo"), None);
        std::fs::remove_file(&manager).unwrap();
        assert_eq!(found("rdma"), None, "nobody could connect");
    }
}
