//! A trainer rank in miniature: serves a version, and the one before it.
use robust_transport::{Buffer, Transport};
use robust_weights::lines::{LinkLine, Told, Wish, hex, tell, wishes};
use robust_weights::made_up::{fill, step};
use robust_weights::{Layout, Publisher};

use super::NodeArgs;

/// Which bytes a source serves.
#[derive(clap::Args)]
pub(crate) struct SourceArgs {
    #[command(flatten)]
    node: NodeArgs,
    /// The version.
    #[arg(long, default_value_t = 1)]
    version: u64,
    /// Chunk size of its manifest.
    #[arg(long, default_value_t = robust_transport::PIECE_BYTES as usize)]
    chunk_bytes: usize,
    /// What its bytes are made from; equal seeds make equal bytes.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many chunks at the front are the same whatever the seed.
    #[arg(long, default_value_t = 0)]
    common_chunks: usize,
    /// Versions whose number is a multiple of it have no patches.
    #[arg(long, default_value_t = u64::MAX)]
    full_every: u64,
}

/// Serves until standard input closes.
pub(crate) fn source(args: &SourceArgs) -> anyhow::Result<()> {
    let transport = args.node.transport()?;
    let addr = transport.addr();
    tell(&Told::Listening { addr });
    let buffers = args.node.buffers()?;
    let layout = Layout {
        bytes: args.node.bytes,
        tensors: args.node.layout(),
        chunk_bytes: args.chunk_bytes as u64,
        ranks: 1,
        full_every: args.full_every,
    };
    let mut publisher = Publisher::over(&transport, layout, buffers.clone());
    let make = |seed| move |bytes: &mut [u8]| args.make(seed, bytes);
    publish(&mut publisher, args.version, make(args.seed))?;
    let mut last = args.version;
    wishes(|wish| {
        let buffer = &buffers[(last % 2) as usize];
        match wish {
            Wish::Publish {
                version,
                seed,
                replace: part,
            } => {
                publish(&mut publisher, version, |bytes| {
                    make(seed)(bytes);
                    replace(version, part, bytes);
                })?;
                last = version;
            }
            Wish::Step {
                version,
                seed,
                changed_ppm,
                replace: part,
            } => {
                let mut words = vec![0; buffer.len()];
                buffer.read_at(0, &mut words)?;
                publish(&mut publisher, version, |bytes| {
                    bytes.copy_from_slice(&words);
                    step(seed, changed_ppm, bytes);
                    replace(version, part, bytes);
                })?;
                last = version;
            }
            Wish::Corrupt { offset, len } => corrupt(buffer, offset, len)?,
            Wish::Stats => stats(&transport),
            Wish::Order(_) | Wish::Check | Wish::RawFetch(_) => {
                anyhow::bail!("a source only serves")
            }
        }
        Ok(())
    })
}

impl SourceArgs {
    /// The bytes of a version.
    fn make(&self, seed: u64, bytes: &mut [u8]) {
        for (chunk, bytes) in bytes.chunks_mut(self.chunk_bytes).enumerate() {
            let common = chunk < self.common_chunks;
            fill(if common { 0 } else { seed }, chunk as u64, bytes);
        }
    }
}

/// Makes bytes there that no seed makes.
fn replace(version: u64, part: Option<(usize, usize)>, bytes: &mut [u8]) {
    let part = part.and_then(|(offset, len)| bytes.get_mut(offset..)?.get_mut(..len));
    if let Some(part) = part {
        fill(u64::MAX - version, 0, part);
    }
}

fn publish(
    publisher: &mut Publisher,
    version: u64,
    make: impl FnOnce(&mut [u8]),
) -> anyhow::Result<()> {
    let served = publisher.publish(version, |to| {
        if to.device_memory().is_none() {
            return to.with_bytes_mut(make);
        }
        let mut bytes = vec![0; to.len()];
        make(&mut bytes);
        to.write_at(0, &bytes)
    })?;
    let patches = LinkLine::all(&served.patches);
    let key = hex(&served.key.to_bytes());
    tell(&Told::Manifest(served.manifest));
    tell(&Told::Started {
        version,
        key,
        patches,
    });
    Ok(())
}

/// Flips every bit of these bytes.
pub(super) fn corrupt(buffer: &Buffer, offset: usize, len: usize) -> anyhow::Result<()> {
    let mut bytes = vec![0; len];
    buffer.read_at(offset, &mut bytes)?;
    bytes.iter_mut().for_each(|byte| *byte ^= 0xff);
    buffer.write_at(offset, &bytes)?;
    tell(&Told::Corrupted {});
    Ok(())
}

pub(super) fn stats(transport: &Transport) {
    let fetched = transport.stats().bytes_fetched;
    tell(&Told::Stats { fetched });
}
