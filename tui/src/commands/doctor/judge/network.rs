//! Transports, ports, addresses and clocks.
use super::super::check::Check;
use super::super::facts::{Address, Answer, Facts, Found, Peer, Port, Worker};
use robust_shared::job::WeightTransport;

/// Roles take ports of their own: links, engines, weights.
const PORTS: u16 = 1024;
/// Timestamps of nodes are compared with each other; leases and timeouts are not.
const CLOCK_WARN_MS: f64 = 100.0;
/// Beyond this events of two nodes are told in the wrong order.
const CLOCK_FAIL_MS: f64 = 2_000.0;

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![
        ucx(facts),
        roads(facts),
        ephemeral(facts.ephemeral.as_ref()),
    ];
    checks.extend(facts.ports.iter().map(port));
    checks.push(addresses(
        &facts.addresses,
        !facts.peers.is_empty() || is_spread(facts),
    ));
    match facts.peers.is_empty() {
        true => checks.push(Check::skipped("clock", "no --peer was given")),
        false => checks.extend(facts.peers.iter().map(peer)),
    }
    checks
}

fn is_spread(facts: &Facts) -> bool {
    matches!(&facts.job, Some(Ok(job)) if job.nodes > 1)
}

fn ucx(facts: &Facts) -> Check {
    const NAME: &str = "UCX transports";
    let ucx = match &facts.worker {
        Some(Ok(Worker { ucx: Ok(ucx), .. })) => ucx,
        Some(Ok(Worker {
            ucx: Err(reason), ..
        })) => {
            let fix = "install libucx0 (1.13 or newer), and unset UCX_TLS";
            return Check::fail(NAME, reason, fix);
        }
        _ => return Check::skipped(NAME, "the worker program did not answer"),
    };
    let found = format!("UCX {}: {}", ucx.version, ucx.transports.join(", "));
    let has = |name: &str| ucx.transports.iter().any(|t| is_of(t, name));
    if !has("tcp") && !has("rc") {
        let fix = "unset UCX_TLS, or add tcp to it: weights move over tcp or rc";
        return Check::fail(NAME, found, fix);
    }
    // A word of ours, for all devices of RDMA.
    let unknown = ucx.unknown.iter().filter(|name| *name != "rdma");
    let unknown: Vec<&str> = unknown.map(String::as_str).collect();
    if !unknown.is_empty() {
        let unknown = unknown.join(", ");
        let found = format!("{found}; the job's [weights] net_devices names {unknown}");
        return Check::fail(NAME, found, "name a device that UCX lists here");
    }
    if !facts.rdma.is_empty() && !has("rc") {
        let devices = facts.rdma.join(", ");
        return Check::warn(
            NAME,
            format!("{found}; {devices} is there and not used"),
            "install UCX with its InfiniBand part (ibverbs, rdmacm)",
        );
    }
    Check::ok(NAME, found)
}

/// Which way the job's weights go, and who could get at them.
fn roads(facts: &Facts) -> Check {
    const NAME: &str = "weights' road";
    let Some(Ok(job)) = &facts.job else {
        return Check::skipped(NAME, "no --job was given");
    };
    let ucx = match &facts.worker {
        Some(Ok(Worker { ucx: Ok(ucx), .. })) => Some(ucx),
        _ => None,
    };
    let of_rdma = |name: &&String| ["rc", "dc", "ud"].iter().any(|rdma| is_of(name, rdma));
    let rdma = ucx.and_then(|ucx| ucx.transports.iter().find(of_rdma));
    match (job.transport, job.nodes > 1) {
        (WeightTransport::Auto | WeightTransport::Shm, false) => {
            Check::ok(NAME, "shared memory; roles open no port for weights")
        }
        (transport, _) if transport.takes_rdma(&job.net_devices) => match rdma {
            Some(name) => Check::ok(
                NAME,
                format!(
                    "UCX's RDMA: {name}; not encrypted, and whoever can send packets to the device can \
                     write to a role's memory"
                ),
            ),
            None if transport == WeightTransport::Auto => {
                let found =
                    "the job names RDMA, and UCX has none here: weights take TCP with TLS 1.3";
                let fix =
                    "install UCX with its InfiniBand part, or name no devices in `net_devices`";
                Check::warn(NAME, found, fix)
            }
            None => {
                let found = "the job asks for RDMA, and UCX has none here";
                let fix =
                    "leave `[weights] transport` out, and devices with a port out of `net_devices`";
                Check::fail(NAME, found, fix)
            }
        },
        (WeightTransport::UcxTcpUnsafe, _) => {
            let found = "UCX over TCP: whoever reaches a role's port can write to its memory";
            let fix = "leave `[weights] transport` out, or let nobody else reach those ports";
            Check::warn(NAME, found, fix)
        }
        (WeightTransport::Auto | WeightTransport::Shm, true) => {
            let found =
                "shared memory on a node; between nodes TCP with TLS 1.3, certified by the job";
            Check::ok(NAME, format!("{found}{}", sealed(facts)))
        }
        (WeightTransport::Tls | WeightTransport::Ucx, _) => {
            let found = "TCP with TLS 1.3, certified by the job, on one machine too";
            Check::ok(NAME, format!("{found}{}", sealed(facts)))
        }
    }
}

/// Who seals what goes over TLS, if it was looked at.
fn sealed(facts: &Facts) -> &'static str {
    match &facts.kernel_tls {
        Some(Ok(true)) => "; sealed by the kernel (its module tls is loaded)",
        Some(Ok(false)) => "; sealed by the roles, unless they may load the kernel's module tls",
        Some(Err(_)) | None => "",
    }
}

/// `rc_mlx5/mlx5_0:1` is of `rc`.
fn is_of(transport: &str, name: &str) -> bool {
    let tl = transport.split('/').next().unwrap_or_default();
    tl == name
        || tl
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('_'))
}

fn ephemeral(range: Option<&Found<(u16, u16)>>) -> Check {
    const NAME: &str = "ports of roles";
    match range {
        None => Check::skipped(NAME, super::NOT_ASKED),
        Some(Err(reason)) => Check::skipped(NAME, reason),
        Some(Ok((first, last))) => {
            let found = format!("{first} to {last} are handed out");
            match last.saturating_sub(*first) < PORTS {
                true => Check::warn(
                    NAME,
                    found,
                    "sysctl -w net.ipv4.ip_local_port_range=\"32768 60999\"",
                ),
                false => Check::ok(NAME, found),
            }
        }
    }
}

fn port(port: &Port) -> Check {
    const NAME: &str = "port";
    match &port.free {
        Ok(()) => Check::ok(NAME, format!("{} is free", port.at)),
        Err(reason) => Check::fail(
            NAME,
            format!("{}: {reason}", port.at),
            "choose another port, or end what listens there (ss -ltnp)",
        ),
    }
}

/// What others are told must lead back here. A name that means 127.0.1.1, or an address of another
/// machine, makes every node wait for itself at the start.
fn addresses(addresses: &[Address], spread: bool) -> Check {
    const NAME: &str = "own address";
    if addresses.is_empty() {
        return Check::skipped(
            NAME,
            "this machine's name has no address, and no --peer was given",
        );
    }
    let each = addresses.iter().map(|a| format!("{} ({})", a.ip, a.from));
    let found = each.collect::<Vec<_>>().join(", ");
    let broken = addresses
        .iter()
        .find_map(|a| Some((a, a.to_itself.as_ref().err()?)));
    if let Some((address, reason)) = broken {
        let fix = format!(
            "mend {} in /etc/hosts or DNS, or name the right address with robustd --advertise",
            address.from
        );
        let found = format!(
            "{} ({}) does not lead back here: {reason}",
            address.ip, address.from
        );
        return match spread {
            true => Check::fail(NAME, found, fix),
            false => Check::warn(NAME, found, fix),
        };
    }
    if spread && addresses.iter().all(|a| a.ip.is_loopback()) {
        let found = format!("{found}: loopback; other nodes would call themselves");
        let fix = "name the address by which they reach this one with robustd --advertise";
        return Check::fail(NAME, found, fix);
    }
    Check::ok(NAME, format!("{found}: leads back here"))
}

fn peer(peer: &Peer) -> Check {
    const NAME: &str = "clock";
    match &peer.answer {
        Ok(answer) => clock(NAME, peer, answer),
        Err(reason) => Check::fail(
            "peer",
            format!("{}: {reason}", peer.at),
            "is robustd running there with --listen-nodes, and does a firewall let this through?",
        ),
    }
}

fn clock(name: &'static str, peer: &Peer, answer: &Answer) -> Check {
    let (ahead, within) = (answer.ahead_ms, answer.within_ms);
    let direction = if ahead < 0.0 { "behind" } else { "ahead" };
    let seen = answer.seen_as;
    let seen = seen.map_or_else(String::new, |ip| format!("; it sees us as {ip}"));
    let found = format!(
        "{} is {:.1} ms {direction}, give or take {within:.1} ms{seen}",
        peer.at,
        ahead.abs()
    );
    // What the way may explain is not held against the clock.
    let least = (ahead.abs() - within).max(0.0);
    let fix = "let chrony or ntpd set both clocks";
    match least {
        ms if ms > CLOCK_FAIL_MS => Check::fail(name, found, fix),
        ms if ms > CLOCK_WARN_MS => Check::warn(name, found, fix),
        _ => Check::ok(name, found),
    }
}
