//! What the program `robust-weights` is told and tells: a line of JSON each, on its standard input and output.
//!
//! A source and a puller begin with [`Told::Listening`]. They end when standard input closes.
use std::io::{BufRead, Write};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use robust_shared::ids::Incarnation;
use robust_shared::weights::Manifest;
use robust_transport::{Address, Part, RegionKey};
use serde::{Deserialize, Serialize};

use crate::types::{Link, Order, Source};

/// What a process is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// Pull this.
    Order(OrderLine),
    /// Flip every bit of these bytes of what is served.
    Corrupt {
        /// Where they begin.
        offset: usize,
        /// How many they are.
        len: usize,
    },
    /// Serve these bytes as this version from now on; the one before the last is withdrawn.
    Publish {
        /// The version's number.
        version: u64,
        /// What its bytes are made from; equal seeds make equal bytes.
        seed: u64,
        /// A part, by offset and length, that is like nothing before.
        #[serde(default)]
        replace: Option<(usize, usize)>,
    },
    /// The same of the bytes of the version before, so many of a million words of two bytes moved by one.
    Step {
        /// The version's number.
        version: u64,
        /// Decides which words are moved.
        seed: u64,
        /// How many of a million words are moved.
        changed_ppm: u32,
        /// A part, by offset and length, that is like nothing before.
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
pub enum Told {
    /// It listens.
    Listening {
        /// Where.
        addr: Address,
    },
    /// A version can be read here.
    Started {
        /// The version's number.
        version: u64,
        /// The region to read it from, in hexadecimal.
        key: String,
        /// What makes it of those before, the oldest first.
        patches: Vec<LinkLine>,
    },
    /// What the source's version consists of.
    Manifest(Arc<Manifest>),
    /// How far a pull is.
    Progress {
        /// The version that is pulled.
        version: u64,
        /// Bytes that are here.
        bytes: u64,
        /// Chunks that are verified.
        chunks: u64,
        /// Who sent the last bytes.
        source: Option<u64>,
        /// Bytes a second, of late.
        bytes_per_s: u64,
        /// Bytes that came over the network.
        fetched: u64,
        /// Bytes that were made by patches.
        patched: u64,
        /// Patches that made wrong bytes.
        wrong_patches: u64,
    },
    /// An order ended.
    Done(Done),
    /// The bytes of [`Wish::Corrupt`] are flipped.
    Corrupted {},
    /// The version served, and its chunks that are not what the manifest says.
    Checked {
        /// The version's number; none: nothing is served.
        version: Option<u64>,
        /// The chunks.
        wrong: Vec<u64>,
    },
    /// The bytes of [`Wish::RawFetch`] are here.
    RawFetched {
        /// How long that took.
        time: Duration,
    },
    /// The transport's counters.
    Stats {
        /// Bytes that came over the network.
        fetched: u64,
    },
}

/// How an order ended.
#[derive(Debug, Serialize, Deserialize)]
pub struct Done {
    /// The version that was ordered.
    pub version: u64,
    /// `ok`, or the kind of error.
    pub result: String,
    /// The source that failed, where one did.
    pub source: Option<u64>,
    /// Why, in words; empty when it is `ok`.
    pub reason: String,
}

/// Pull this version from these.
#[derive(Debug, Serialize, Deserialize)]
pub struct OrderLine {
    /// What the version consists of.
    pub manifest: Arc<Manifest>,
    /// Who has it.
    pub sources: Vec<SourceLine>,
}

/// Somebody who has bytes of a version.
#[derive(Debug, Serialize, Deserialize)]
pub struct SourceLine {
    /// A number by which errors name it.
    pub id: u64,
    /// Where it listens.
    pub addr: Address,
    /// The region to read from, in hexadecimal.
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
pub struct LinkLine {
    /// The digest of the version that they are applied to.
    pub base: String,
    /// The region of their index.
    pub key: String,
}

impl LinkLine {
    /// Of these links, in their order.
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
    ///
    /// # Errors
    /// When a key or a digest is not what it should be.
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

    /// As the puller wants it.
    ///
    /// # Errors
    /// When its key, or a link, is not what it should be.
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
pub fn tell(told: &Told) {
    let Ok(mut line) = serde_json::to_vec(told) else {
        return;
    };
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    // Nobody reads any more: standard input closes too, and that ends the process.
    let _ = out.write_all(&line).and_then(|()| out.flush());
}

/// Reads wishes until standard input closes.
///
/// # Errors
/// When a line is no wish, or is one that cannot be fulfilled.
pub fn wishes(mut handle: impl FnMut(Wish) -> anyhow::Result<()>) -> anyhow::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        handle(serde_json::from_str(&line).with_context(|| line.clone())?)?;
    }
    Ok(())
}

/// Bytes as pairs of hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
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
