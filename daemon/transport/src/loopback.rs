//! TCP between two processes of one machine.
use std::os::fd::AsFd;

use rustix::net::sockopt;

/// What the kernel lets wait to be sent on loopback, about 1.2 MiB: a piece and the beginning of the next.
/// By default it grows to some MiB for each peer. Nothing is under way there but what waits for a core,
/// and more of it than fits into the cache makes each of the kernel's copies wait for memory: a chain of
/// four rollouts took a quarter longer.
pub const LOOPBACK_SNDBUF: &str = "640k";
/// The same in bytes.
const LOOPBACK_SNDBUF_BYTES: usize = 640 << 10;
/// How a sender on loopback keeps from flooding a network that is not there: by Reno's rules, which every
/// kernel has and which let go what the window allows. BBR, which many systems choose, lets packets go by
/// timers: over it sealing, sending, opening and digesting a GB took 0.46 processor seconds of both sides,
/// and 0.36 over Reno.
const LOOPBACK_CONGESTION: &str = "reno";

/// Settings of a TCP socket whose peer is on this machine.
pub fn tune_for_loopback(socket: &impl AsFd) -> Result<(), rustix::io::Errno> {
    sockopt::set_socket_send_buffer_size(socket, LOOPBACK_SNDBUF_BYTES)?;
    // The system's choice works as well, if slower.
    let _ = sockopt::set_tcp_congestion(socket, LOOPBACK_CONGESTION);
    Ok(())
}
