//! From snapshots to disk and back, against plain writes and reads of the same bytes.
use super::disk::{plain_write, used};
use super::memory::{Memory, peak_above};
use super::snapshot::{Rank, restore};
use super::{BenchError, Report, StoreArgs};
use robust_ckpt::{Retention, disk, manifest, newest_complete};
use robust_shared::dispatch::calls::Shard;
use robust_shared::ids::{Generation, Step};
use robustd::ckpt::{Checkpointer, CkptEvent, Config, Offer, Request};
use robustd::store::Store;
use rustix::fs::{Advice, fadvise};
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Instant;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Checkpoints that stay.
const KEPT: usize = 2;

struct Writer {
    checkpointer: Checkpointer,
    events: UnboundedReceiver<CkptEvent>,
}

impl Writer {
    fn start(dir: &Path) -> Result<Self, BenchError> {
        let (store, _) = Store::open(dir)?;
        let (sender, events) = unbounded_channel();
        let config = Config {
            dir: dir.join("ckpt"),
            keep: Retention {
                last: KEPT,
                every: 0,
                best: 0,
            },
            disk: disk::real(),
        };
        let checkpointer = Checkpointer::start(config, store, sender)?;
        Ok(Self {
            checkpointer,
            events,
        })
    }

    /// From the offer until the checkpoint exists.
    fn write(&mut self, request: Request) -> Result<CkptEvent, BenchError> {
        if self.checkpointer.offer(request) != Offer::Taken {
            return Err(BenchError::Else("the writer is busy".to_owned()));
        }
        let event = self.events.blocking_recv();
        event.ok_or_else(|| BenchError::Else("the writer ended".to_owned()))
    }
}

pub(super) fn measure(args: &StoreArgs, dir: &Path, report: &mut Report) -> Result<(), BenchError> {
    let mut rank = Rank::new(args.mib << 20)?;
    let mut to = Memory::new(rank.bytes().len());
    let mut writer = Writer::start(dir)?;
    let (plain, ckpt) = (dir.join("plain"), dir.join("ckpt"));
    for step in 1..=args.rounds as u64 {
        rank.train(step);
        let seconds = plain_write(&plain, rank.bytes())?;
        report.add("plain_write_s", seconds);
        report.add("plain_read_s", plain_read(&plain, to.bytes_mut())?);
        std::fs::remove_file(&plain)?;
        let (path, taken, _) = rank.snapshot(step)?;
        let request = Request {
            step: Step(step),
            generation: Generation(1),
            shards: vec![Shard {
                step: Step(step),
                path: path.to_string_lossy().into_owned(),
                bytes: taken.bytes,
                xxh3: None,
                generation: Generation(1),
                adam_step: Some(step),
            }],
            consumed: Vec::new(),
            reward: None,
            tensors: Vec::new(),
        };
        let (written, above) = peak_above(|| writer.write(request))?;
        let CkptEvent::Written { took, .. } = written? else {
            return Err(BenchError::Else("it was not written".to_owned()));
        };
        report.add("persist_s", took.as_secs_f64());
        report.add("persist_rss_mib", above as f64 / f64::from(1 << 20));
        let shard = ckpt
            .join(robust_ckpt::folder_name(step))
            .join(manifest::shard_file(0));
        forget(&shard)?;
        report.add("disk_restore_s", restore(&shard, taken, to.bytes_mut())?);
        let kept = KEPT.min(step as usize) as u64 * taken.bytes;
        report.add("disk_over_kept", used(&ckpt)? as f64 / kept as f64);
    }
    report.ratio("persist_over_plain", "plain_write_s", "persist_s");
    report.ratio("disk_restore_over_plain", "plain_read_s", "disk_restore_s");
    let found = newest_complete(&ckpt)?;
    match found
        .checkpoint
        .is_some_and(|c| c.step.0 == args.rounds as u64)
    {
        true => Ok(()),
        false => Err(BenchError::Else(
            "the last checkpoint does not verify".to_owned(),
        )),
    }
}

/// Nothing of the file is in memory: the next read is the disk's.
fn forget(path: &Path) -> Result<(), BenchError> {
    let file = File::open(path)?;
    file.sync_all()?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(std::io::Error::from)?;
    Ok(())
}

fn plain_read(path: &Path, to: &mut [u8]) -> Result<f64, BenchError> {
    forget(path)?;
    let started = Instant::now();
    File::open(path)?.read_exact(to)?;
    Ok(started.elapsed().as_secs_f64())
}
