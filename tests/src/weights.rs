//! What rollouts really serve, and how to damage it.
use crate::{Daemon, roles};
use nix::sched::{CloneFlags, setns};
use robustd::nodes::JobSecret;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

const PAGE: usize = 4096;

impl Daemon {
    /// Waits until every rollout was seen to serve, byte for byte, a version as it was published.
    /// Their memory is read anew for that.
    pub fn until_all_serve_what_was_published(&mut self) -> Value {
        let (mut published, mut sound) = (BTreeMap::new(), BTreeSet::new());
        let state = self.state_dir();
        self.until("all rollouts to serve published bytes", |status| {
            let version = status["weight_version"].to_string();
            published.insert(version, status["weight_digest"].clone());
            for rollout in roles(status, "rollout") {
                let Some(served) = weights_digest(&state, rollout) else {
                    continue;
                };
                let version = served["weight_version"].as_str().unwrap_or_default();
                // None: it was published before this began; its next one will be known.
                if let Some(digest) = published.get(version) {
                    assert_eq!(&served["digest"], digest, "v{version} at {rollout}");
                    sound.insert(number(rollout, "incarnation"));
                }
            }
            let seen = |r: &&Value| sound.contains(&number(r, "incarnation"));
            roles(status, "rollout").iter().all(seen)
        })
    }

    /// Changes a bit of the weights in the memory of the rollout that serves them, without its
    /// knowing.
    pub fn flip_in_memory(&self, rollout: &Value) {
        let (pid, state) = (number(rollout, "pid"), self.state_dir());
        let begun = Instant::now();
        while begun.elapsed() < crate::PATIENCE {
            let Some(served) = weights_digest(&state, rollout) else {
                continue;
            };
            let chunk = served["chunk_bytes"].as_u64().unwrap_or_default() as usize;
            let digest = served["chunk_xxh3"][0].as_str().unwrap_or_default();
            let digest = u64::from_str_radix(digest, 16).expect("a digest");
            // None: the process went over to another version meanwhile.
            let Some(at) = find(pid, chunk, digest) else {
                continue;
            };
            flip(pid, at);
            let now = weights_digest(&state, rollout).expect("it serves");
            if now["weight_version"] == served["weight_version"] {
                assert_ne!(now["digest"], served["digest"], "it serves other memory");
                return;
            }
        }
        panic!("the weights are not found in the memory of {rollout}");
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_default()
}

/// What a rollout says of the memory it serves from; none while it serves nothing.
fn weights_digest(state: &Path, rollout: &Value) -> Option<Value> {
    let (pid, index) = (number(rollout, "pid"), number(rollout, "index"));
    let secret = std::fs::read_to_string(state.join("authority.key"));
    let secret = JobSecret::of(&secret.expect("the leader's secret"));
    let keys = secret.job_token().engines();
    let key = keys.of_engine(number(rollout, "incarnation")).bearer();
    let log = state.join(format!("logs/rollout-{index}.log"));
    let log = std::fs::read_to_string(log).ok()?;
    let (_, last) = log.rsplit_once("http_addr=")?;
    let addr = last.split_whitespace().next()?.parse().ok()?;
    // Its network may be another one than ours.
    let net = File::open(format!("/proc/{pid}/ns/net")).ok()?;
    let asking = std::thread::spawn(move || {
        // Without the right to, it is the same one.
        let _ = setns(net, CloneFlags::CLONE_NEWNET);
        ask(addr, &key)
    });
    asking.join().ok()?
}

fn ask(addr: SocketAddr, key: &str) -> Option<Value> {
    let limit = Duration::from_secs(2);
    let mut stream = TcpStream::connect_timeout(&addr, limit).ok()?;
    stream.set_read_timeout(Some(limit)).ok()?;
    let request =
        format!("GET /weights_digest HTTP/1.0\r\nHost: {addr}\r\nAuthorization: {key}\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    let (head, body) = reply.split_once("\r\n\r\n")?;
    let ok = head.lines().next()?.contains(" 200 ");
    ok.then(|| serde_json::from_str(body).ok())?
}

fn flip(pid: u64, at: u64) {
    let memory = File::options()
        .read(true)
        .write(true)
        .open(format!("/proc/{pid}/mem"))
        .expect("the memory of our own child");
    let mut byte = [0];
    memory.read_exact_at(&mut byte, at).expect("it is there");
    memory
        .write_all_at(&[byte[0] ^ 1], at)
        .expect("it is there");
}

/// Where in a process's memory a chunk begins.
fn find(pid: u64, chunk: usize, digest: u64) -> Option<u64> {
    let memory = File::open(format!("/proc/{pid}/mem")).ok()?;
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let range = |line: &str| {
        let mut fields = line.split_whitespace();
        let (range, rights) = (fields.next()?, fields.next()?);
        // Anonymous, as device memory that is played is, or a buffer's own.
        let name = fields.nth(3).unwrap_or("/memfd:robust-buffer");
        let buffer = rights.starts_with("rw") && name == "/memfd:robust-buffer";
        let (start, end) = range.split_once('-')?;
        let parse = |hex| u64::from_str_radix(hex, 16).ok();
        buffer.then_some((parse(start)?, parse(end)?))
    };
    for (start, end) in maps.lines().filter_map(range) {
        let mut bytes = vec![0; (end - start) as usize];
        if bytes.len() < chunk || memory.read_exact_at(&mut bytes, start).is_err() {
            continue;
        }
        let begins = (0..=bytes.len() - chunk).step_by(PAGE);
        // Most memory is zeros, which weights are not.
        let mut begins = begins.filter(|at| bytes[*at..at + 64].iter().any(|byte| *byte != 0));
        if let Some(at) = begins.find(|at| xxh3_64(&bytes[*at..at + chunk]) == digest) {
            return Some(start + at as u64);
        }
    }
    None
}
