//! What this program has to work with, for `robustctl doctor`: that links neither libtorch nor UCX.

use std::path::{Path, PathBuf};

use robust_transport::Survey;
use serde_json::{Value, json};

/// Version, libtorch and UCX, or why UCX cannot be used; of this list of network devices, those that
/// it does not have.
pub fn report(net_devices: &str) -> Value {
    let ucx = match Survey::take() {
        Ok(found) => json!({"Ok": {
            "version": found.version,
            "transports": found.transports,
            "unknown": found.unknown(net_devices),
        }}),
        Err(error) => json!({"Err": error.to_string()}),
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "torch": torch_version(),
        "torch_cuda": tch::utils::has_cuda(),
        "ucx": ucx,
    })
}

/// libtorch has no call for it; the library's folder has a file.
fn torch_version() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let library = library(&maps)?;
    let root = library.parent()?.parent()?;
    let text = |file: &str| std::fs::read_to_string(root.join(file)).ok();
    text("build-version")
        .map(|v| v.trim().to_owned())
        .or_else(|| of_python(&text("version.py")?))
}

fn library(maps: &str) -> Option<PathBuf> {
    let paths = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5));
    let is_torch = |path: &&str| {
        Path::new(path)
            .file_name()
            .is_some_and(|n| n == "libtorch_cpu.so")
    };
    paths.into_iter().find(is_torch).map(PathBuf::from)
}

/// `__version__ = '2.11.0+cpu'`, where python's own libtorch is used.
fn of_python(text: &str) -> Option<String> {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix("__version__ = "))?;
    Some(line.trim_matches(['\'', '"']).to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_library_and_its_version_are_found() {
        let maps = "7f00-7f01 r--p 0000 fe:00 12 /opt/torch/lib/libtorch_cpu.so\n";
        assert_eq!(
            library(maps).unwrap(),
            Path::new("/opt/torch/lib/libtorch_cpu.so")
        );
        assert_eq!(
            of_python("x = 1\n__version__ = '2.11.0+cpu'\n").unwrap(),
            "2.11.0+cpu"
        );
        assert_eq!(library("7f00-7f01 r--p 0000 fe:00 12 /lib/libc.so\n"), None);
    }

    #[test]
    fn the_report_names_libtorch_and_a_transport() {
        let report = report("lo,nic9");
        assert!(
            report["torch"].as_str().unwrap().starts_with("2."),
            "{report}"
        );
        let transports = report["ucx"]["Ok"]["transports"].as_array().unwrap();
        assert!(transports.iter().any(|t| t == "tcp/lo"), "{report}");
        assert_eq!(report["ucx"]["Ok"]["unknown"], json!(["nic9"]), "{report}");
    }
}
