//! Settings of a transport, and of UCX where it must differ from its defaults.
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use crate::loopback::LOOPBACK_SNDBUF;
use crate::road::RoadKind;
use crate::share::Share;
use crate::tls::Identity;
use crate::token::JobToken;
use crate::ucx::NET_DEVICES;

/// How a [`crate::Transport`] listens and when it gives up.
#[derive(Debug, Clone)]
pub struct Config {
    /// A folder of the job's own, in which transports of this machine find each other; none: they go
    /// over the network. It is made, for this user only, where it is not there.
    pub local: Option<PathBuf>,
    /// How transports of other machines are reached; none: they are not, and no port is opened.
    pub net: Option<Net>,
    /// A second road between machines, taken where the peer has it, too, and leads there.
    pub rdma: Option<Rdma>,
    /// Address to listen on for other machines; the port is chosen by the system.
    pub bind: IpAddr,
    /// A fetch on whose link no whole piece (to 1023 KiB) comes for so long has a dead source: with
    /// two seconds, links must do 0.5 MiB/s. The same for all members: a source whose bytes are not
    /// there yet says so four times in this time.
    pub stall_timeout: Duration,
    /// How long a new connection may take until the peer's transport has answered.
    pub connect_timeout: Duration,
    /// Only transports with the same token talk to each other.
    pub token: JobToken,
    /// What part of a core it may take, now: all, until something else is set.
    pub share: Share,
}

/// A road between machines.
#[derive(Debug, Clone)]
pub enum Net {
    /// TCP with TLS 1.3, as this member of the job.
    Tls(Identity),
    /// UCX, over the network devices that its environment names.
    Ucx,
}

/// UCX over devices of RDMA, beside another road.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rdma {
    /// As `UCX_NET_DEVICES` takes them: `mlx5_0:1,mlx5_1:1`.
    pub devices: String,
    /// As `UCX_TLS` takes them.
    pub transports: String,
    /// How connections are made, as `UCX_SOCKADDR_TLS_PRIORITY` takes it.
    pub managers: String,
}

impl Rdma {
    /// UCX's transports over RDMA. By UD whoever can send packets on the fabric can write to a role's memory
    /// (`uct_ud_ep_process_rx` takes a put to any address), so nobody gets it who did not ask for it.
    pub const TRANSPORTS: &str = "rc,dc,ud,self";

    /// Over these devices. UCX would by itself listen by TCP, too, where every stranger's bytes are parsed and
    /// which leads to no device of RDMA.
    pub fn over(devices: String) -> Rdma {
        Rdma {
            devices,
            transports: Rdma::TRANSPORTS.to_owned(),
            managers: "rdmacm".to_owned(),
        }
    }
}

impl Net {
    /// Which road it is.
    pub(crate) fn kind(&self) -> RoadKind {
        match self {
            Net::Tls(_) => RoadKind::Tls,
            Net::Ucx => RoadKind::Ucx,
        }
    }
}

impl Config {
    /// UCX on loopback and two seconds each, for members of the job `token`.
    pub fn new(token: JobToken) -> Config {
        Config {
            local: None,
            net: Some(Net::Ucx),
            rdma: None,
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            stall_timeout: Duration::from_secs(2),
            connect_timeout: Duration::from_secs(2),
            token,
            share: Share::default(),
        }
    }
}

/// UCX settings that differ from its defaults: the user's variable, which wins; the key that
/// `ucp_config_modify` takes (the variable's name without the component's prefix, except for
/// shared tables such as `MM_` and `CM_`); the value.
///
/// Not among them, on purpose: `UCX_MM_ERROR_HANDLING=y`, which would bring shared memory back.
/// With it, after a peer was stopped in the middle, the worker sometimes heard nobody any more (1
/// of 8 runs of the test with a stopped peer; none of 8 over TCP). The likely cause: all senders
/// share one receive queue, and one that halts while it fills its slot blocks those behind it.
const UCX_DEFAULTS: [(&str, &str, &str); 4] = [
    // 8K/64K by default: a third of the bandwidth.
    ("UCX_TCP_TX_SEG_SIZE", "TX_SEG_SIZE", "1m"),
    ("UCX_TCP_RX_SEG_SIZE", "RX_SEG_SIZE", "1m"),
    // Where connect() waits, UCX ends the whole process (seen with 1.13, the lines are the same in 1.22) when
    // a peer dies between the handshake and the first word to it: it tries again, marks the endpoint as
    // failed, and then hands it out as usable. It also waits as long as the kernel for a host that is cut off.
    ("UCX_TCP_CONN_NB", "CONN_NB", "y"),
    // A restarted process may listen where connections of the old one linger.
    ("UCX_CM_REUSEADDR", "CM_REUSEADDR", "y"),
];

/// Where all peers are on this machine.
const ON_LOOPBACK: [(&str, &str, &str); 2] = [
    // UCX listens on every device it uses: it must not open ports on the others.
    ("UCX_NET_DEVICES", NET_DEVICES, "lo"),
    ("UCX_TCP_SNDBUF", "SNDBUF", LOOPBACK_SNDBUF),
];

impl Rdma {
    /// Keys and values for `ucp_config_modify`. Of the devices and transports the environment, which is
    /// that of a road over everything, says nothing here.
    pub(crate) fn ucx_settings(&self) -> Vec<(&'static str, &str)> {
        let unset = UCX_DEFAULTS.into_iter();
        let unset = unset.filter(|(variable, ..)| std::env::var_os(variable).is_none());
        let ours = [
            (NET_DEVICES, &*self.devices),
            ("TLS", &*self.transports),
            ("SOCKADDR_TLS_PRIORITY", &*self.managers),
        ];
        unset
            .map(|(_, key, value)| (key, value))
            .chain(ours)
            .collect()
    }
}

impl Config {
    /// Keys and values for `ucp_config_modify`.
    pub(crate) fn ucx_settings(&self) -> Vec<(&'static str, &'static str)> {
        let on_loopback = self.bind.is_loopback().then_some(ON_LOOPBACK);
        let settings = UCX_DEFAULTS
            .into_iter()
            .chain(on_loopback.into_iter().flatten());
        let unset = settings.filter(|(variable, ..)| std::env::var_os(variable).is_none());
        unset.map(|(_, key, value)| (key, value)).collect()
    }
}
