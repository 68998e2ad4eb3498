//! Which devices of RDMA this machine has, and whether they are up.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

use robust_transport::Rdma;

/// Where the kernel tells of them.
pub(crate) const DEVICES: &str = "/sys/class/infiniband";

/// UCX over all ports that are up; none where there is none.
pub(crate) fn active(devices: impl AsRef<Path>) -> Option<Rdma> {
    let mut ports: Vec<String> = entries(devices.as_ref())
        .flat_map(|device| {
            let up = entries(&device.join("ports")).filter(|port| is_up(port));
            up.filter_map(move |port| named(&device, &port))
        })
        .collect();
    ports.sort();
    (!ports.is_empty()).then(|| Rdma {
        devices: ports.join(","),
        transports: Rdma::TRANSPORTS.to_owned(),
    })
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
fn named(device: &Path, port: &Path) -> Option<String> {
    let (device, port) = (device.file_name()?.to_str()?, port.file_name()?.to_str()?);
    Some(format!("{device}:{port}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_ports_that_are_up_are_named_as_ucx_names_them() {
        let sys = tempfile::tempdir().unwrap();
        assert_eq!(active(sys.path()), None);
        for (port, state) in [
            ("mlx5_1/ports/1", "4: ACTIVE\n"),
            ("mlx5_0/ports/2", "4: ACTIVE\n"),
            ("mlx5_0/ports/1", "1: DOWN\n"),
        ] {
            let port = sys.path().join(port);
            std::fs::create_dir_all(&port).unwrap();
            std::fs::write(port.join("state"), state).unwrap();
        }
        let found = active(sys.path()).unwrap();
        assert_eq!(found.devices, "mlx5_0:2,mlx5_1:1");
        assert_eq!(found.transports, "rc,dc,ud,self");
        assert_eq!(active(sys.path().join("nothing")), None);
    }
}
