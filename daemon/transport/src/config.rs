//! Settings of a transport, and of UCX where it must differ from its defaults.
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How a [`crate::Transport`] listens and when it gives up.
#[derive(Debug, Clone)]
pub struct Config {
    /// Address to listen on; the port is chosen by the system. UCX gives every connected peer
    /// read access to the process's memory: use loopback or a trusted network.
    pub bind: IpAddr,
    /// A fetch that receives nothing for so long has a dead source.
    pub stall_timeout: Duration,
    /// How long a new connection may take until the peer's transport has answered.
    pub connect_timeout: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            stall_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
        }
    }
}

/// UCX settings given to `ucp_config_modify`, each only if the user has not set `UCX_<name>`.
const UCX_DEFAULTS: [(&str, &str); 4] = [
    // 8K/64K by default: a third of the bandwidth.
    ("TCP_TX_SEG_SIZE", "1m"),
    ("TCP_RX_SEG_SIZE", "1m"),
    // Without it, peer error handling silently excludes shared memory.
    ("MM_ERROR_HANDLING", "y"),
    // A restarted process may listen where connections of the old one linger.
    ("CM_REUSEADDR", "y"),
];

impl Config {
    pub(crate) fn ucx_settings(&self) -> Vec<(&'static str, &'static str)> {
        let mut settings = UCX_DEFAULTS.to_vec();
        if self.bind.is_loopback() {
            // UCX listens on every device it uses and serves reads there: a transport bound to
            // loopback must not open ports on the others.
            settings.push(("NET_DEVICES", "lo"));
        }
        settings.retain(|(name, _)| std::env::var_os(format!("UCX_{name}")).is_none());
        settings
    }
}
