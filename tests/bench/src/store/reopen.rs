//! Opening again after SIGKILL: a store with a million turns and a hundred checkpoints beside it.
//!
//! Another process of this program fills the store and dies in the middle. Each round opens what it
//! left, as it left it: sled notes at an opening how far it read, and would read less the next time.
use super::{BenchError, Report, StoreArgs, appends};
use robust_ckpt::disk::RealDisk;
use robust_ckpt::{Checkpoint, folder_name, manifest};
use robust_shared::core::{EntryKey, Record, StepMetrics};
use robust_shared::ids::{Generation, Step, TrajectoryId};
use robust_shared::time::Time;
use robustd::store::keys::Key;
use robustd::store::{Finish, Options, Remembered, Store};
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Turns in the store.
const TURNS: u64 = 1_000_000;
/// Of a trajectory.
const TURNS_EACH: u32 = 8;
/// Of a batch, which one step consumes.
const BATCH: u64 = 256;
/// Checkpoints beside it.
const CHECKPOINTS: u64 = 100;

/// The part.
pub fn measure(args: &StoreArgs, dir: &Path, report: &mut Report) -> Result<(), BenchError> {
    let filled = dir.join("filled");
    fs::create_dir(&filled)?;
    let child = Command::new(std::env::current_exe()?)
        .arg("fill-store")
        .arg(&filled)
        .output()?;
    if child.status.signal() != Some(9) {
        let words = String::from_utf8_lossy(&child.stderr).into_owned();
        return Err(BenchError::Else(format!("filling the store: {words}")));
    }
    report.add(
        "reopen_store_mib",
        size(&filled.join("db"))? as f64 / f64::from(1 << 20),
    );
    for _ in 0..args.rounds {
        let copy = dir.join("reopened");
        copy_all(&filled, &copy)?;
        let began = Instant::now();
        let found = reopen(&copy)?;
        report.add("reopen_s", began.elapsed().as_secs_f64());
        if found != (CHECKPOINTS as usize, TURNS / u64::from(TURNS_EACH) / BATCH) {
            let words = format!("{} checkpoints, step {}", found.0, found.1);
            return Err(BenchError::Else(format!("opened, and found only {words}")));
        }
        fs::remove_dir_all(copy)?;
    }
    Ok(fs::remove_dir_all(filled)?)
}

/// What a daemon waits for before it goes on: the store, its state, the steps, the checkpoints'
/// manifests. How many checkpoints and steps there are.
fn reopen(dir: &Path) -> Result<(usize, u64), BenchError> {
    let (store, note) = Store::open(dir)?;
    if let Some(note) = note {
        return Err(BenchError::Else(note.to_string()));
    }
    let state = store.remembered()?;
    let steps = store.steps()?.len() as u64;
    store.finished_unconsumed(Step(steps))?;
    let checkpoints = robust_ckpt::list(&dir.join("ckpt"))?.len();
    match state.is_empty() {
        false => Ok((checkpoints, steps)),
        true => Err(BenchError::Else("the core's state is not there".to_owned())),
    }
}

/// Fills a store and never comes back.
pub fn fill(dir: &Path) -> Result<(), BenchError> {
    // A bench that is killed in the middle leaves nobody behind who goes on writing.
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL)
        .map_err(std::io::Error::from)?;
    checkpoints(&dir.join("ckpt"))?;
    // None is pruned: a job that keeps them all.
    let options = Options {
        keep_steps: TURNS,
        ..Options::default()
    };
    let (store, _) = Store::open_with(dir, options, |commit| commit)?;
    for step in 1..=TURNS / u64::from(TURNS_EACH) / BATCH {
        let batch: Vec<_> = (0..BATCH as u32)
            .map(|n| TrajectoryId {
                batch: step,
                group: n / 8,
                member: n % 8,
            })
            .collect();
        let mut written = Vec::new();
        for index in 0..TURNS_EACH {
            for id in &batch {
                written.push(store.append_turn(*id, vec![1; 16], appends::turn(index)));
            }
        }
        for answer in written {
            answer.wait()?;
        }
        let ends = batch.iter().map(|id| {
            let end = Finish {
                turns: TURNS_EACH,
                ..Finish::default()
            };
            store.finish(*id, end)
        });
        for answer in ends.collect::<Vec<_>>() {
            answer.wait()?;
        }
        let record = Record::Committed {
            step: Step(step),
            generation: Generation(1),
            trajectories: batch,
            metrics: StepMetrics::default(),
            provenance: None,
        };
        let changes = Remembered {
            puts: vec![(Key::Entry(EntryKey::Gang), vec![7; 20_000])],
            ..Remembered::default()
        };
        store.record(vec![record], changes).wait()?;
    }
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::KILL)
        .map_err(std::io::Error::from)?;
    Ok(())
}

fn checkpoints(dir: &Path) -> Result<(), BenchError> {
    for step in 1..=CHECKPOINTS {
        let dir = dir.join(folder_name(step));
        fs::create_dir_all(&dir)?;
        manifest::store(
            &RealDisk,
            &Checkpoint {
                step: Step(step),
                generation: Generation(1),
                dir: dir.clone(),
                shards: Vec::new(),
                consumed: Vec::new(),
                reward: None,
                at: Some(Time(step)),
                adam_step: Some(step),
                tensors: Vec::new(),
            },
        )?;
    }
    Ok(())
}

fn size(dir: &Path) -> std::io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(dir)? {
        bytes += entry?.metadata()?.len();
    }
    Ok(bytes)
}

fn copy_all(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy_all(&entry.path(), &target)?,
            false => fs::copy(entry.path(), target).map(drop)?,
        }
    }
    Ok(())
}
