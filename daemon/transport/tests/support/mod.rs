//! A peer process for the tests: the test binary itself, started again with one ignored test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, dead_code)]

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use robust_transport::{
    Address, Arrived, Buffer, Cancel, Config, FetchError, Identity, JobToken, Net, Part, RegionKey,
    Transport,
};

/// A started peer that exposes `len` patterned bytes. Killed when dropped.
pub struct Peer {
    child: Child,
    pub addr: Address,
    pub key: RegionKey,
}

/// Bytes that differ by position and by seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(len);
    out
}

/// The token of all processes of a test.
pub fn token() -> JobToken {
    JobToken::new(b"tests between processes")
}

/// The road that is tested: what the test binary's name begins with says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tested {
    Shm,
    Tls,
    Ucx,
}

/// Which one these tests are of.
pub fn tested() -> Tested {
    let program = std::env::current_exe().unwrap();
    let name = program.file_name().unwrap().to_string_lossy().into_owned();
    match name.split('_').next() {
        Some("shm") => Tested::Shm,
        Some("tls") => Tested::Tls,
        _ => Tested::Ucx,
    }
}

/// Who a process of these tests is to the others: a member certified by the authority of `secret`.
pub fn member(secret: &[u8]) -> Identity {
    let authority = robust_identity::Authority::of(secret, "tests").unwrap();
    let pem = authority
        .issue("role/1", robust_identity::Term::unbounded())
        .unwrap();
    Identity::from_pem(&pem).unwrap()
}

/// Settings for members of the job `token`, of the road that is tested.
pub fn config(token: JobToken) -> Config {
    let of_ucx = Config::new(token);
    match tested() {
        Tested::Ucx => of_ucx,
        Tested::Tls => Config {
            net: Some(Net::Tls(member(b"the job of the tests"))),
            ..of_ucx
        },
        Tested::Shm => Config {
            local: Some(concat!(env!("CARGO_TARGET_TMPDIR"), "/roads").into()),
            net: None,
            ..of_ucx
        },
    }
}

/// A transport for this process.
pub fn transport(stall: Duration) -> Transport {
    Transport::start(Config {
        stall_timeout: stall,
        ..config(token())
    })
    .unwrap()
}

/// All of `len` bytes, in parts of a mebibyte.
pub fn chunks(len: usize) -> Vec<Part> {
    let part = |at: usize| {
        let (at, len) = (at as u64, (len - at).min(1 << 20) as u64);
        Part {
            src: at,
            dst: at,
            len,
        }
    };
    (0..len).step_by(1 << 20).map(part).collect()
}

/// The whole of `len` bytes as one part.
pub fn whole(len: usize) -> [Part; 1] {
    [Part {
        src: 0,
        dst: 0,
        len: len as u64,
    }]
}

fn restart_self(test: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    let module = match tested() {
        Tested::Ucx => "",
        Tested::Shm | Tested::Tls => "tests::",
    };
    let test = format!("{module}{test}");
    command.args(["--exact", &test, "--ignored", "--nocapture"]);
    command
}

impl Peer {
    /// Starts a peer that serves `pattern(seed, len)`.
    pub fn serve(seed: u64, len: usize) -> Peer {
        let mut child = restart_self("peer_that_serves")
            .env("PEER_SEED", seed.to_string())
            .env("PEER_LEN", len.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = loop {
            let line = lines.next().expect("the peer ended early").unwrap();
            if let Some((_, rest)) = line.split_once("PEER ") {
                break rest.to_owned();
            }
        };
        let (addr, key) = line.split_once(' ').unwrap();
        let (addr, key) = (
            addr.parse().unwrap(),
            RegionKey::from_bytes(&unhex(key)).unwrap(),
        );
        Peer { child, addr, key }
    }

    /// Sends a signal to exactly this child.
    pub fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Body of the ignored test `peer_that_serves`: serves until its standard input closes.
pub fn serve_until_stdin_closes() {
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let (seed, len) = (number("PEER_SEED"), number("PEER_LEN") as usize);
    let transport = transport(Duration::from_secs(2));
    let buffer = Buffer::new(len).unwrap();
    buffer.write_at(0, &pattern(seed, len)).unwrap();
    let exposed = transport.expose(buffer).unwrap();
    let key = hex(&exposed.key().to_bytes());
    println!("PEER {} {key}", transport.addr());
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Body of the ignored test `peer_that_notifies`.
pub fn notify_in_order() {
    let to: Address = std::env::var("PEER_TO").unwrap().parse().unwrap();
    let count: u32 = std::env::var("PEER_COUNT").unwrap().parse().unwrap();
    let transport = transport(Duration::from_secs(2));
    for n in 0..count {
        let mut message = n.to_le_bytes().to_vec();
        message.resize(4 + (n as usize * 37) % 4000, n as u8);
        transport.notify(to, &message).unwrap();
    }
    // Closing by force would drop what is under way: wait until the test has all of it.
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A process that notifies `to`; ends when its standard input closes.
pub fn start_notifier(to: Address, count: u32) -> Child {
    restart_self("peer_that_notifies")
        .env("PEER_TO", to.to_string())
        .env("PEER_COUNT", count.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// True if the buffer holds `pattern(seed, len)`.
pub fn holds(buffer: &Arc<Buffer>, seed: u64) -> bool {
    buffer
        .with_bytes(|bytes| bytes == pattern(seed, bytes.len()))
        .unwrap()
}

/// Body of the ignored test `peer_that_pulls`: pulls all of a region again and again, until it is
/// refused, and says when bytes are neither zeros nor those of `pattern(3, ..)`.
pub fn pull_for_ever() {
    let addr: Address = std::env::var("PEER_FROM").unwrap().parse().unwrap();
    let key = RegionKey::from_bytes(&unhex(&std::env::var("PEER_KEY").unwrap())).unwrap();
    let transport = transport(Duration::from_secs(5));
    let lanes = std::env::var("PEER_LANES").map_or(1, |n| n.parse::<usize>().unwrap());
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            scope.spawn(|| pull_until_refused(&transport, addr, &key));
        }
    });
}

fn pull_until_refused(transport: &Transport, addr: Address, key: &RegionKey) {
    let len = key.len as usize;
    let (into, patterned) = (Buffer::new(len).unwrap(), pattern(3, len));
    loop {
        let mut first = true;
        let told = |arrived: Arrived<'_>| {
            if std::mem::take(&mut first) {
                println!("PULLING");
            }
            let from = arrived.part << 20;
            let bytes = arrived.bytes().unwrap();
            let expected = &patterned[from..from + bytes.len()];
            if bytes != expected && bytes.iter().any(|byte| *byte != 0) {
                println!("MIXED");
            }
        };
        match transport.fetch(addr, key, &chunks(len), &into, &Cancel::new(), told) {
            Ok(_) => {}
            Err(FetchError::Refused { .. }) => return println!("REFUSED"),
            Err(error) => panic!("{error}"),
        }
    }
}

/// A process that pulls `key` from `from` until it is killed; some bytes have arrived there.
pub fn start_puller(from: Address, key: &RegionKey) -> Child {
    start_pullers(from, key, 1)
}

/// The same with so many fetches at once.
pub fn start_pullers(from: Address, key: &RegionKey, lanes: usize) -> Child {
    let mut child = restart_self("peer_that_pulls")
        .env("PEER_LANES", lanes.to_string())
        // Stopped, it leaves what was asked for with the source, and not in the kernel's buffers.
        .env("UCX_TCP_RCVBUF", "128k")
        .env("PEER_FROM", from.to_string())
        .env("PEER_KEY", hex(&key.to_bytes()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    assert!(
        lines.any(|line| line.unwrap().contains("PULLING")),
        "the puller ended early"
    );
    child
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let pairs = (0..text.len() / 2).map(|i| &text[2 * i..2 * i + 2]);
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}
