//! What UCX offers on this machine.
use std::ptr;

use super::context::Context;
use super::devices::{self, NET_DEVICES};
use super::signals;
use crate::error::TransportError;

/// UCX as this process has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survey {
    /// Its version.
    pub version: String,
    /// Each transport with its device, as UCX writes it: `tcp/eth0`, `rc_mlx5/mlx5_0:1`.
    pub transports: Vec<String>,
    /// The network devices among them, sorted.
    pub devices: Vec<String>,
}

impl Survey {
    /// Opens contexts with all network devices and with none, otherwise as UCX's environment variables
    /// and its defaults say, looks, and closes them.
    pub fn take() -> Result<Survey, TransportError> {
        let with = |devices| Context::new(&[(NET_DEVICES, devices)]);
        let transports = transports(&with("all")?)?;
        // UCX does not say which devices are a network's: those that are gone when none is named.
        let local = devices::devices(&self::transports(&with("")?)?);
        let mut devices = devices::devices(&transports);
        devices.retain(|device| !local.contains(device));
        signals::restore_crash_signals();
        let (mut major, mut minor, mut release) = (0, 0, 0);
        // SAFETY: three valid out pointers.
        unsafe { ucx_sys::ucp_get_version(&raw mut major, &raw mut minor, &raw mut release) };
        Ok(Survey {
            version: format!("{major}.{minor}.{release}"),
            transports,
            devices,
        })
    }

    /// The names in a list of network devices, as `UCX_NET_DEVICES` takes it, that are not here.
    pub fn unknown(&self, list: &str) -> Vec<String> {
        devices::unknown(list, &self.devices)
    }
}

/// What a context has, as UCX writes it.
pub(super) fn transports(context: &Context) -> Result<Vec<String>, TransportError> {
    let printed = printed(context).map_err(|source| TransportError::Io {
        doing: "reading UCX's description of its context",
        source,
    })?;
    Ok(resources(&printed))
}

/// UCX's API has no list of transports that names them; it prints one.
fn printed(context: &Context) -> std::io::Result<String> {
    let (mut text, mut length) = (ptr::null_mut(), 0);
    // SAFETY: both out pointers outlive the stream, which is closed below.
    let stream = unsafe { libc::open_memstream(&raw mut text, &raw mut length) };
    if stream.is_null() {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: an open context and an open stream. After fclose the text is `length` bytes long and
    // ours to free.
    unsafe {
        ucx_sys::ucp_context_print_info(context.0, stream.cast());
        libc::fclose(stream);
        let bytes = std::slice::from_raw_parts(text.cast::<u8>(), length);
        let copy = String::from_utf8_lossy(bytes).into_owned();
        libc::free(text.cast());
        Ok(copy)
    }
}

/// `#      resource 2  :  md 1  dev 2  flags -- tcp/eth0`
fn resources(printed: &str) -> Vec<String> {
    let lines = printed
        .lines()
        .map(|line| line.trim_start_matches('#').trim());
    let resources = lines.filter(|line| line.starts_with("resource "));
    let last = resources.filter_map(|line| line.split_whitespace().last());
    last.filter(|word| word.contains('/'))
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn transports_are_read_from_what_ucx_prints() {
        let printed = "#\n# UCP context\n#     component 0  :  self\n\
                       #            md 1  :  component 1  tcp \n\
                       #      resource 1  :  md 1  dev 1  flags -- tcp/lo\n\
                       #      resource 12 :  md 4  dev 3  flags -s- rc_mlx5/mlx5_0:1\n#\n";
        assert_eq!(resources(printed), ["tcp/lo", "rc_mlx5/mlx5_0:1"]);
    }

    #[test]
    fn this_machine_has_loopback() {
        let found = Survey::take().unwrap();
        assert!(found.transports.iter().any(|t| t == "tcp/lo"), "{found:?}");
        assert!(found.devices.iter().any(|d| d == "lo"), "{found:?}");
        assert!(!found.devices.iter().any(|d| d == "memory"), "{found:?}");
        assert_eq!(found.unknown("lo,nic9"), ["nic9"]);
        let version: Vec<&str> = found.version.split('.').collect();
        assert_eq!(version.len(), 3, "{found:?}");
    }
}
