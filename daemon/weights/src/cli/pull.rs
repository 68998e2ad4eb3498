//! A rollout in miniature: pulls, checks, serves.
use std::sync::Arc;
use std::time::Instant;

use robust_shared::ids::WeightVersion;
use robust_transport::{Buffer, Cancel, RegionKey, Transport};
use robust_weights::lines::{Done, LinkLine, Told, Wish, hex, tell, wishes};
use robust_weights::{
    Link, Observer, Order, Progress, PullError, Puller, Served, Slots, Source, SwapError,
};

use super::NodeArgs;
use super::source::{corrupt, stats};

/// How a puller is set up.
#[derive(clap::Args)]
pub(crate) struct PullArgs {
    #[command(flatten)]
    node: NodeArgs,
}

/// Tells all that it hears.
struct Teller;

impl Observer for Teller {
    fn started(&self, order: &Order, key: &RegionKey, patches: &[Link]) {
        tell(&Told::Started {
            version: order.version.0,
            key: hex(&key.to_bytes()),
            patches: LinkLine::all(patches),
        });
    }

    fn progress(&self, progress: Progress) {
        tell(&Told::Progress {
            version: progress.version.0,
            bytes: progress.bytes,
            chunks: progress.chunks,
            source: progress.source.map(|source| source.0),
            bytes_per_s: progress.bytes_per_s,
            fetched: progress.fetched,
            patched: progress.patched,
            wrong_patches: progress.wrong_patches,
        });
    }

    fn swap(&self, _: WeightVersion, _: &Arc<Buffer>) -> Result<(), SwapError> {
        Ok(())
    }

    fn done(&self, order: &Order, result: Result<Served, PullError>) {
        let version = order.version.0;
        tell(&Told::Done(match result {
            Ok(_) => Done {
                version,
                result: "ok".into(),
                source: None,
                reason: String::new(),
            },
            Err(error) => Done {
                version,
                result: error.kind.to_string(),
                source: error.source_id.map(|source| source.0),
                reason: error.reason,
            },
        }));
    }
}

/// Pulls until standard input closes.
pub(crate) fn pull(args: &PullArgs) -> anyhow::Result<()> {
    let transport = args.node.transport()?;
    let slots = Slots::over(&transport, args.node.buffers()?);
    let layout = args.node.layout();
    let puller = Puller::start(
        transport.clone(),
        Arc::clone(&slots),
        layout,
        Arc::new(Teller),
    )?;
    let addr = transport.addr();
    tell(&Told::Listening { addr });
    wishes(|wish| {
        match wish {
            Wish::Order(order) => puller.assign(order.order()?),
            Wish::Corrupt { offset, len } => corrupt(&slots.current(), offset, len)?,
            Wish::Check => check(&slots)?,
            Wish::Stats => stats(&transport),
            Wish::RawFetch(source) => raw_fetch(&transport, &slots, &source.source()?)?,
            Wish::Publish { .. } | Wish::Step { .. } => anyhow::bail!("a puller only pulls"),
        }
        Ok(())
    })
}

fn check(slots: &Slots) -> anyhow::Result<()> {
    let mut wrong = Vec::new();
    let served = slots.served();
    if let Some(served) = &served {
        let (manifest, buffer) = (&served.manifest, slots.current());
        for chunk in 0..manifest.chunks() {
            let range = manifest.chunk_range(chunk).unwrap_or_default();
            let digest = buffer.digest(range.start as usize..range.end as usize)?;
            let length = range.end - range.start;
            if manifest.verify_digest(chunk, length, || digest).is_err() {
                wrong.push(chunk);
            }
        }
    }
    let version = served.map(|served| served.version.0);
    tell(&Told::Checked { version, wrong });
    Ok(())
}

/// Fetches into the served buffer: the next version that is pulled replaces it.
fn raw_fetch(transport: &Transport, slots: &Slots, source: &Source) -> anyhow::Result<()> {
    let (into, cancel, parts) = (slots.current(), Cancel::new(), &source.parts);
    let started = Instant::now();
    transport.fetch(source.addr, &source.key, parts, &into, &cancel, |_| ())?;
    let time = started.elapsed();
    tell(&Told::RawFetched { time });
    Ok(())
}
