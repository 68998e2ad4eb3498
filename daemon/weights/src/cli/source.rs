//! A trainer rank in miniature: serves one version.
use std::sync::Arc;

use robust_shared::ids::WeightVersion;
use robust_shared::weights::Manifest;
use robust_transport::{Buffer, Exposed, Transport};

use super::NodeArgs;
use super::lines::{Told, Wish, hex, tell, wishes};

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
}

/// Serves until standard input closes.
pub(crate) fn source(args: &SourceArgs) -> anyhow::Result<()> {
    let transport = args.node.transport()?;
    let addr = transport.addr();
    tell(&Told::Listening { addr });
    let [buffer] = args.node.buffers()?;
    let mut exposed = publish(args, &transport, &buffer, args.version, args.seed)?;
    wishes(|wish| {
        match wish {
            Wish::Publish { version, seed } => {
                drop(exposed.take());
                exposed = publish(args, &transport, &buffer, version, seed)?;
            }
            Wish::Corrupt { offset, len } => corrupt(&buffer, offset, len)?,
            Wish::Stats => stats(&transport),
            Wish::Order(_) | Wish::Check | Wish::RawFetch(_) => {
                anyhow::bail!("a source only serves")
            }
        }
        Ok(())
    })
}

fn publish(
    args: &SourceArgs,
    transport: &Transport,
    buffer: &Arc<Buffer>,
    version: u64,
    seed: u64,
) -> anyhow::Result<Option<Exposed>> {
    let make = |bytes: &mut [u8]| {
        for (chunk, bytes) in bytes.chunks_mut(args.chunk_bytes).enumerate() {
            let common = chunk < args.common_chunks;
            fill(if common { 0 } else { seed }, chunk as u64, bytes);
        }
        let (chunk_bytes, layout) = (args.chunk_bytes as u64, args.node.layout());
        Manifest::build(WeightVersion(version), bytes, chunk_bytes, layout)
    };
    let manifest = if buffer.device_memory().is_some() {
        let mut bytes = vec![0; buffer.len()];
        let manifest = make(&mut bytes)?;
        buffer.write_at(0, &bytes)?;
        manifest
    } else {
        buffer.with_bytes_mut(make)??
    };
    let exposed = transport.expose(Arc::clone(buffer))?;
    let key = hex(&exposed.key().to_bytes());
    tell(&Told::Manifest(Arc::new(manifest)));
    tell(&Told::Started { version, key });
    Ok(Some(exposed))
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

/// Bytes that differ by place and seed, quickly.
fn fill(seed: u64, chunk: u64, bytes: &mut [u8]) {
    let mut state = (seed << 32 ^ chunk).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for word in bytes.chunks_mut(8) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let len = word.len();
        word.copy_from_slice(&state.to_le_bytes()[..len]);
    }
}
