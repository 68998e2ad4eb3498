//! What the machine can do without us: memcpy, TCP over loopback, UCX's own perf tool.
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use robust_transport::{LOOPBACK_SNDBUF, tune_for_loopback};

use super::node::Node;
use robust_weights::lines::{Told, tell};

/// Bytes at a time of the plain TCP copy.
const STEP: usize = 1 << 20;

/// A test of the perf tool that moves bulk data into a buffer of the receiver's, as a pull does.
///
/// `ucp_am_bw` as it is does not: below UCX's threshold for rendezvous its handler counts a message and
/// leaves it where it arrived (`am_data_handler` in UCX's `src/tools/perf/lib/ucp_tests.cc`; later
/// versions than 1.13 have a flag that copies). Calls of `memcpy` counted in the receiver, per byte
/// received in messages of 512 KiB with UCX 1.13.1 over TCP: `ucp_am_bw` 0.00, `tag_bw` 1.01,
/// `ucp_get` 0.91, `ucp_am_bw` by rendezvous 0.67.
#[derive(Clone, Copy)]
pub(crate) struct PerfTest {
    /// As the figures name it.
    pub name: &'static str,
    test: &'static str,
    /// A setting of UCX that it needs, or is given.
    setting: Option<(&'static str, &'static str)>,
}

/// Those that a pull is held against.
pub(crate) const PERF_TESTS: [PerfTest; 3] = [
    PerfTest::new("tag_bw", "tag_bw", None),
    PerfTest::new("ucp_get", "ucp_get", None),
    PerfTest::new(
        "ucp_am_bw_rndv",
        "ucp_am_bw",
        Some(("UCX_RNDV_THRESH", "0")),
    ),
];

/// One that is given the send buffer that ours sets on loopback, too: it shows how far the tool gets within the processor's cache.
pub(crate) const IN_CACHE: PerfTest = PerfTest::new(
    "tag_bw_sndbuf",
    "tag_bw",
    Some(("UCX_TCP_SNDBUF", LOOPBACK_SNDBUF)),
);

impl PerfTest {
    const fn new(
        name: &'static str,
        test: &'static str,
        setting: Option<(&'static str, &'static str)>,
    ) -> Self {
        Self {
            name,
            test,
            setting,
        }
    }

    /// The key of its figure for messages of a piece's size.
    pub fn figure(&self) -> String {
        format!("perftest_{}_gb_per_s", self.name)
    }

    /// The key of its figure for all bytes as one message.
    pub fn whole_figure(&self) -> String {
        format!("perftest_{}_whole_gb_per_s", self.name)
    }
}

/// Copies within memory, all pages there before; GB/s.
pub(crate) fn memcpy(from: &[u8], to: &mut [u8]) -> f64 {
    let started = Instant::now();
    to.copy_from_slice(from);
    gb_per_s(from.len() as u64, started.elapsed())
}

/// What a plain copy over TCP is made of.
#[derive(Debug, clap::Args)]
pub struct TcpSourceArgs {
    /// How many bytes everyone gets
    #[arg(long, value_name = "N")]
    bytes: usize,
    /// Over sockets that are set up as those of the TLS road are on loopback
    #[arg(long)]
    tuned: bool,
}

/// Sends the bytes to everyone who connects, until standard input closes; over sockets as the system
/// makes them, or `tuned` as those of the TLS road.
pub fn tcp_source(args: &TcpSourceArgs) -> anyhow::Result<()> {
    let tuned = args.tuned;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let content = vec![1_u8; args.bytes];
    let addr = listener.local_addr()?;
    tell(&Told::Listening { addr: addr.into() });
    std::thread::spawn(move || {
        for peer in listener.incoming().map_while(Result::ok) {
            // A puller that went away is no reason to end.
            let _ = match tuned {
                true => tune_for_loopback(&peer).map_err(std::io::Error::from),
                false => Ok(()),
            }
            .and_then(|()| send(peer, &content));
        }
    });
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

fn send(mut peer: TcpStream, content: &[u8]) -> std::io::Result<()> {
    content
        .chunks(STEP)
        .try_for_each(|step| peer.write_all(step))
}

/// Fills `to` from a [`tcp_source`] in another process; GB/s.
pub(crate) fn tcp_copy(source: &Node, to: &mut [u8]) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut peer = TcpStream::connect(source.addr.net().context("no address")?)?;
    for step in to.chunks_mut(STEP) {
        peer.read_exact(step)?;
    }
    Ok(gb_per_s(to.len() as u64, started.elapsed()))
}

/// Moves `bytes` bytes with UCX's perf tool over the transport that ours uses, in messages of
/// `message` bytes; GB/s. All pages are there before.
pub(crate) fn perftest(test: PerfTest, message: u64, bytes: u64) -> anyhow::Result<f64> {
    let port = free_port()?.to_string();
    let command = || {
        let mut command = Command::new("timeout");
        command.args(["60", "ucx_perftest", "-p", &port]);
        // Segments as `robust-transport` has them; else UCX's defaults.
        for (name, value) in [
            ("UCX_TLS", "tcp"),
            ("UCX_NET_DEVICES", "lo"),
            ("UCX_TCP_TX_SEG_SIZE", "1m"),
            ("UCX_TCP_RX_SEG_SIZE", "1m"),
        ] {
            command.env(name, value);
        }
        command.envs(test.setting);
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut server = command()
        .stdout(Stdio::null())
        .spawn()
        .context("ucx_perftest")?;
    let (size, count) = (message.to_string(), bytes / message);
    let (count, warm_up) = (count.to_string(), count.min(64).to_string());
    let mut output = None;
    // The server takes a moment to listen, and cannot be asked whether it does.
    for _ in 0..50 {
        std::thread::sleep(Duration::from_millis(100));
        let mut client = command();
        client.args(["127.0.0.1", "-t", test.test, "-s", &size, "-n", &count]);
        let done = client.args(["-w", &warm_up, "-f", "-v"]).output()?;
        if done.status.success() {
            output = Some(done.stdout);
            break;
        }
    }
    let _ = server.kill();
    server.wait()?;
    let output = String::from_utf8(output.context("ucx_perftest could not connect")?)?;
    let overall = output
        .trim()
        .lines()
        .last()
        .and_then(|l| l.split(',').nth(5));
    let mib: f64 = overall.context("no figures from ucx_perftest")?.parse()?;
    Ok(mib * f64::from(1 << 20) / 1e9)
}

/// Whether the perf tool is here.
pub(crate) fn has_perftest() -> bool {
    let version = Command::new("ucx_perftest").arg("-h").output();
    version.is_ok()
}

fn free_port() -> anyhow::Result<u16> {
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    Ok(TcpListener::bind(any)?.local_addr()?.port())
}

pub(crate) fn gb_per_s(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e9 / time.as_secs_f64()
}
