//! The lines.
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use robust_shared::ids::Incarnation;
use robust_shared::weights::Manifest;
use robust_transport::{Address, Part, RegionKey};
use robust_weights::{Link, Order, Source};
use serde::{Deserialize, Serialize};

/// What a process is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Wish {
    /// Pull this.
    Order(OrderLine),
    /// Flip every bit of these bytes of what is served.
    Corrupt { offset: usize, len: usize },
    /// Serve these bytes as this version from now on; the one before the last is withdrawn.
    Publish {
        version: u64,
        seed: u64,
        /// A part, by offset and length, that is like nothing before.
        #[serde(default)]
        replace: Option<(usize, usize)>,
    },
    /// The same of the bytes of the version before, so many of a million words of two bytes moved by one.
    Step {
        version: u64,
        seed: u64,
        changed_ppm: u32,
        #[serde(default)]
        replace: Option<(usize, usize)>,
    },
    /// Compare what is served with its manifest.
    Check,
    /// Tell the transport's counters.
    Stats,
    /// Fetch all bytes of this source without looking at them.
    RawFetch(SourceLine),
}

/// What a process tells.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Told {
    /// It listens.
    Listening {
        addr: Address,
    },
    /// A version can be read here.
    Started {
        version: u64,
        key: String,
        patches: Vec<LinkLine>,
    },
    /// What the source's version consists of.
    Manifest(Arc<Manifest>),
    Progress {
        version: u64,
        bytes: u64,
        chunks: u64,
        source: Option<u64>,
        bytes_per_s: u64,
        fetched: u64,
        patched: u64,
        wrong_patches: u64,
    },
    Done(Done),
    Corrupted {},
    /// The version served, and its chunks that are not what the manifest says.
    Checked {
        version: Option<u64>,
        wrong: Vec<u64>,
    },
    RawFetched {
        time: Duration,
    },
    /// Bytes that came over the network.
    Stats {
        fetched: u64,
    },
}

/// How an order ended.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Done {
    pub version: u64,
    /// `ok`, or the kind of error.
    pub result: String,
    pub source: Option<u64>,
    pub reason: String,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct OrderLine {
    pub manifest: Arc<Manifest>,
    pub sources: Vec<SourceLine>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SourceLine {
    pub id: u64,
    pub addr: Address,
    /// Hexadecimal.
    pub key: String,
    /// Source offset, own offset, length; none: all of it.
    pub parts: Option<Vec<(u64, u64, u64)>>,
    /// Where a relay's own sources begin; none: not known.
    #[serde(default)]
    pub starts: Vec<u64>,
    /// What makes the version of those before, the oldest first.
    #[serde(default)]
    pub patches: Vec<LinkLine>,
}

/// Patches that make a version of the one before, in hexadecimal.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct LinkLine {
    pub base: String,
    pub key: String,
}

impl LinkLine {
    pub fn all(links: &[Link]) -> Vec<Self> {
        let line = |link: &Link| {
            let (base, key) = (hex(&link.base), hex(&link.key.to_bytes()));
            Self { base, key }
        };
        links.iter().map(line).collect()
    }

    fn link(&self) -> anyhow::Result<Link> {
        let base = unhex(&self.base)?.try_into();
        Ok(Link {
            base: base.map_err(|_| anyhow::anyhow!("a base has 32 bytes"))?,
            key: RegionKey::from_bytes(&unhex(&self.key)?)?,
        })
    }
}

impl OrderLine {
    /// As the puller wants it.
    pub fn order(self) -> anyhow::Result<Order> {
        let sources: anyhow::Result<_> = self.sources.into_iter().map(SourceLine::source).collect();
        Ok(Order {
            number: 0,
            version: self.manifest.version,
            manifest: self.manifest,
            sources: sources?,
        })
    }
}

impl SourceLine {
    /// Where its bytes begin in the puller's buffer.
    pub fn start(&self) -> u64 {
        let parts = self.parts.iter().flatten();
        parts.map(|&(_, dst, _)| dst).min().unwrap_or(0)
    }

    pub fn source(self) -> anyhow::Result<Source> {
        let key = RegionKey::from_bytes(&unhex(&self.key)?)?;
        let mut source = Source::relay(Incarnation(self.id), self.addr, key);
        source.starts = self.starts;
        source.patches = self
            .patches
            .iter()
            .map(LinkLine::link)
            .collect::<anyhow::Result<_>>()?;
        if let Some(parts) = self.parts {
            let part = |(src, dst, len)| Part { src, dst, len };
            source.parts = parts.into_iter().map(part).collect();
        }
        Ok(source)
    }
}

/// Writes one line and makes sure that it is on its way.
pub(crate) fn tell(told: &Told) {
    let Ok(mut line) = serde_json::to_vec(told) else {
        return;
    };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    // Nobody reads any more: standard input closes too, and that ends the process.
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

/// Reads wishes until standard input closes.
pub(crate) fn wishes(mut handle: impl FnMut(Wish) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        handle(serde_json::from_str(&line).with_context(|| line.clone())?)?;
    }
    Ok(())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> anyhow::Result<Vec<u8>> {
    let digits = |at| {
        text.get(at..at + 2)
            .context("a key is pairs of hexadecimal digits")
    };
    let byte = |at| Ok(u8::from_str_radix(digits(at)?, 16)?);
    (0..text.len()).step_by(2).map(byte).collect()
}
