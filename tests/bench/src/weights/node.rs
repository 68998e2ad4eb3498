//! Sources and pullers as processes, for the measurements.
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::Context;
use robust_shared::weights::Manifest;
use robust_transport::Address;

use super::netns::Host;
use super::way::Way;
use crate::programs;
use robust_weights::lines::{LinkLine, OrderLine, SourceLine, Told, Wish};

/// Nothing measured takes so long.
const LIMIT: Duration = Duration::from_secs(60);

/// A process that is told and tells. It ends when this is dropped, or this process is gone.
pub(crate) struct Node {
    child: Child,
    told: Receiver<(Instant, Told)>,
    pub addr: Address,
    pub id: u64,
}

impl Node {
    /// Starts `robust-weights` with these words; on a host, or here.
    pub fn start(id: u64, host: Option<&Host>, words: &[&str]) -> anyhow::Result<Self> {
        Self::of(&programs::path("robust-weights")?, (id, host), words)
    }

    /// Starts this program with these words, as what sends bytes over plain TCP.
    pub fn tcp_source(words: &[&str]) -> anyhow::Result<Self> {
        let words = [&["tcp-source"][..], words].concat();
        Self::of(&std::env::current_exe()?, (0, None), &words)
    }

    fn of(
        program: &Path,
        (id, host): (u64, Option<&Host>),
        words: &[&str],
    ) -> anyhow::Result<Self> {
        let mut command = match host {
            None => Command::new(program),
            Some(host) => {
                let wrap = host.wrap();
                let mut command = Command::new(&wrap[0]);
                command.args(&wrap[1..]).arg(program);
                command
            }
        };
        command.args(words);
        if let Some(host) = host {
            command.args(["--bind", &host.ip]);
        }
        command.env("ROBUST_WEIGHTS_TOKEN", "bench");
        // UCX would write its warnings between the lines.
        command.env("UCX_LOG_FILE", "stderr");
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().context("starting a node")?;
        let out = child.stdout.take().context("no output")?;
        let (sender, told) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                let now = Instant::now();
                let Ok(told) = serde_json::from_str(&line) else {
                    return;
                };
                if sender.send((now, told)).is_err() {
                    return;
                }
            }
        });
        let addr = SocketAddr::from(([0, 0, 0, 0], 0)).into();
        let mut node = Node {
            child,
            told,
            addr,
            id,
        };
        node.addr = node.wait(|told| match told {
            Told::Listening { addr } => Some(*addr),
            _ => None,
        })?;
        Ok(node)
    }

    pub fn tell(&mut self, wish: &Wish) -> anyhow::Result<()> {
        let mut line = serde_json::to_vec(wish)?;
        line.push(b'\n');
        let stdin = self.child.stdin.as_mut().context("no input")?;
        stdin.write_all(&line)?;
        Ok(stdin.flush()?)
    }

    /// Waits for a line that `pick` takes; others are dropped.
    pub fn wait<T>(&mut self, mut pick: impl FnMut(&Told) -> Option<T>) -> anyhow::Result<T> {
        self.wait_at(|told, _| pick(told))
    }

    /// The same, with the time at which the line came.
    pub fn wait_at<T>(
        &mut self,
        mut pick: impl FnMut(&Told, Instant) -> Option<T>,
    ) -> anyhow::Result<T> {
        loop {
            let (at, told) = self.told.recv_timeout(LIMIT).context("a node is silent")?;
            if let Some(found) = pick(&told, at) {
                return Ok(found);
            }
        }
    }

    /// Waits for the end of the order for a version; when it came.
    pub fn wait_ok(&mut self, version: u64) -> anyhow::Result<Instant> {
        let done = |told: &Told, at| match told {
            Told::Done(done) if done.version == version => Some((at, done.reason.clone())),
            _ => None,
        };
        let (at, reason) = self.wait_at(done)?;
        anyhow::ensure!(reason.is_empty(), "a pull failed: {reason}");
        Ok(at)
    }

    /// Waits until a version can be read there: by this key, and what makes it of those before.
    fn wait_started(&mut self, version: u64) -> anyhow::Result<(String, Vec<LinkLine>)> {
        self.wait(|told| match told {
            Told::Started {
                version: of,
                key,
                patches,
            } if *of == version => Some((key.clone(), patches.clone())),
            _ => None,
        })
    }

    /// Bytes that came over the network so far.
    pub fn fetched(&mut self) -> anyhow::Result<u64> {
        self.tell(&Wish::Stats)?;
        self.wait(|told| match told {
            Told::Stats { fetched } => Some(*fetched),
            _ => None,
        })
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until no thread of its makes pages huge any more, or [`LIMIT`] is over.
    pub fn settle(&self) -> anyhow::Result<()> {
        let until = Instant::now() + LIMIT;
        while self.has_thread("huge-pages")? && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn has_thread(&self, name: &str) -> anyhow::Result<bool> {
        for task in std::fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            // One that is gone meanwhile is none.
            let comm = std::fs::read_to_string(task?.path().join("comm"));
            if comm.is_ok_and(|comm| comm.trim_end() == name) {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A trainer's ranks: each has all bytes and serves its run of them.
pub(crate) struct Trainer {
    pub ranks: Vec<Node>,
    /// Of each rank: the version, and what makes it of those before.
    keys: Vec<(String, Vec<LinkLine>)>,
    pub manifest: Arc<Manifest>,
    pub version: u64,
}

impl Trainer {
    /// Starts as many ranks as hosts are given.
    pub fn start(bytes: u64, hosts: &[Option<&Host>], way: &Way) -> anyhow::Result<Self> {
        let size = bytes.to_string();
        let words = [&["source"], &way.words(&size)[..]].concat();
        let start =
            |(at, host): (usize, &Option<&Host>)| Node::start(100 + at as u64, *host, &words);
        let ranks: anyhow::Result<Vec<Node>> = hosts.iter().enumerate().map(start).collect();
        let (ranks, keys) = (ranks?, Vec::new());
        let mut trainer = Trainer {
            ranks,
            keys,
            manifest: Arc::new(Manifest {
                version: Default::default(),
                bytes,
                chunk_bytes: 0,
                chunk_xxh3: Vec::new(),
                chunk_blake3: Vec::new(),
                tensors: Vec::new(),
                shards: Vec::new(),
            }),
            version: 1,
        };
        trainer.hear()?;
        Ok(trainer)
    }

    /// Other bytes as the next version.
    pub fn publish(&mut self) -> anyhow::Result<()> {
        self.version += 1;
        let (version, seed) = (self.version, self.version);
        for rank in &mut self.ranks {
            rank.tell(&Wish::Publish {
                version,
                seed,
                replace: None,
            })?;
        }
        self.hear()
    }

    /// The next version: this one, with so many of a million words moved by one.
    pub fn step(&mut self, changed_ppm: u32) -> anyhow::Result<()> {
        self.version += 1;
        let (version, seed) = (self.version, self.version);
        for rank in &mut self.ranks {
            rank.tell(&Wish::Step {
                version,
                seed,
                changed_ppm,
                replace: None,
            })?;
        }
        self.hear()
    }

    fn hear(&mut self) -> anyhow::Result<()> {
        self.keys.clear();
        for rank in &mut self.ranks {
            self.manifest = rank.wait(|told| match told {
                Told::Manifest(manifest) => Some(Arc::clone(manifest)),
                _ => None,
            })?;
            self.keys.push(rank.wait_started(self.version)?);
        }
        Ok(())
    }

    /// Each rank with its run of whole chunks.
    pub fn shares(&self) -> Vec<SourceLine> {
        let count = self.ranks.len() as u64;
        let cut = |at: u64| {
            let chunks = self.manifest.chunks() * at / count;
            (chunks * self.manifest.chunk_bytes).min(self.manifest.bytes)
        };
        let share = |at: usize| {
            let (start, end) = (cut(at as u64), cut(at as u64 + 1));
            let mut line = self.rank(at);
            line.parts = Some(vec![(start, start, end - start)]);
            line.starts = Vec::new();
            line
        };
        (0..self.ranks.len()).map(share).collect()
    }

    /// One rank with all its bytes.
    pub fn rank(&self, at: usize) -> SourceLine {
        let (node, (key, patches)) = (&self.ranks[at], self.keys[at].clone());
        let (id, addr, parts) = (node.id, node.addr, None);
        // Has everything already.
        let starts = vec![0];
        SourceLine {
            id,
            addr,
            key,
            parts,
            starts,
            patches,
        }
    }
}

/// Starts a puller for versions of this size.
pub(crate) fn rollout(id: u64, bytes: u64, host: Option<&Host>, way: &Way) -> anyhow::Result<Node> {
    let size = bytes.to_string();
    let words = [&["pull"], &way.words(&size)[..]].concat();
    Node::start(id, host, &words)
}

/// Orders a pull; answers with the puller as a source for others, once it is one.
pub(crate) fn order(
    node: &mut Node,
    trainer: &Trainer,
    sources: Vec<SourceLine>,
) -> anyhow::Result<SourceLine> {
    // As the control plane does it: who reads here follows the fronts of those that are read.
    let starts = match &sources[..] {
        [relay] if relay.parts.is_none() => relay.starts.clone(),
        ranks => ranks.iter().map(SourceLine::start).collect(),
    };
    let manifest = Arc::clone(&trainer.manifest);
    node.tell(&Wish::Order(OrderLine { manifest, sources }))?;
    let (key, patches) = node.wait_started(trainer.version)?;
    let (id, addr, parts) = (node.id, node.addr, None);
    Ok(SourceLine {
        id,
        addr,
        key,
        parts,
        starts,
        patches,
    })
}

/// One version down a chain of all these; the seconds until the last one serves it.
pub(crate) fn chain(trainer: &mut Trainer, rollouts: &mut [Node]) -> anyhow::Result<f64> {
    trainer.publish()?;
    follow(trainer, rollouts)
}

/// All pull what the trainer serves, in a chain; how long until the last one has it.
pub(crate) fn follow(trainer: &Trainer, rollouts: &mut [Node]) -> anyhow::Result<f64> {
    let started = Instant::now();
    let mut sources = trainer.shares();
    for rollout in rollouts.iter_mut() {
        sources = vec![order(rollout, trainer, sources)?];
    }
    let mut last = started;
    for rollout in rollouts {
        last = last.max(rollout.wait_ok(trainer.version)?);
    }
    Ok((last - started).as_secs_f64())
}
