//! The files that the job is made of, found and checked: where the job file has them, or where its log says what they are
//! ([`crate::files`]).
use super::checks::Prepared;
use super::failure::Failure;
use super::warmup::{WarmupError, is_complete};
use crate::control::{DatasetError, Prompts, read_dataset};
use crate::digests::Digests;
use crate::files::{Holder, Kind, Located, Manifest, Paths};
use crate::state::StateDir;
use robust_ckpt::WeightFiles;
use robust_grouplog::FileStore;
use robust_proto::endpoint::cache_dir;
use robust_remote::Remote;
use robust_shared::job::Job;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Reads what the job file names, all of which has to be there.
pub(super) fn read(prepared: &mut Prepared) -> Result<(), Failure> {
    let job = &prepared.job;
    let of_data = |key: &str| Kind::ALL.iter().any(|kind| kind.key() == key);
    for file in job.required_files() {
        if of_data(file.key) {
            File::open(&file.path).map_err(|source| Failure::Missing {
                key: file.key,
                job: prepared.job_file.clone(),
                path: file.path.clone(),
                source,
            })?;
        }
    }
    check_weights(prepared)?;
    prepared.prompts = prompts(&prepared.job)?;
    prepared.warmup = match prepared.job.model.path {
        Some(_) => None,
        None if prepared.job.has_model() => plan_warmup(&mut prepared.job, &prepared.job_file)?,
        None => None,
    };
    Ok(())
}

/// The same for one of several controllers: what is not there may come with the job's log, and what is there is to be
/// sound. So that it need not be read while nodes wait.
pub(super) fn read_ahead(prepared: &mut Prepared, state: &StateDir) -> Result<(), Failure> {
    let job = &prepared.job;
    if job.own_loop().is_some() {
        return Ok(());
    }
    // The digest before the bytes: a file that is replaced between is one of which this is not the digest.
    let digest = Digests::new(state.digests()).of(&job.data.prompts);
    match (prompts(job), digest) {
        (Ok(prompts), Ok((digest, _))) => {
            prepared.prompts = prompts;
            prepared.prompts_read = Some(digest);
            Ok(())
        }
        (Err(Failure::Dataset(DatasetError::Io { source, .. })), _)
            if source.kind() == io::ErrorKind::NotFound =>
        {
            Ok(())
        }
        (Err(error), _) => Err(error),
        (Ok(_), Err(_)) => Ok(()),
    }
}

/// What looks for the files, and fetches what is not here from this object store, if there is one.
pub(super) fn holder(prepared: &Prepared, state: &StateDir, remote: Option<&Remote>) -> Holder {
    let mut paths = prepared.paths.clone();
    let job = &prepared.job;
    if paths.made
        && job.has_model()
        && let (Ok(cache), Ok(tokenizer)) = (cache_dir(), fs::read(&job.data.tokenizer))
    {
        paths.model = Some(job.warmup_folder(&cache, &tokenizer));
    }
    Holder {
        state: state.clone(),
        paths,
        store: remote.map(|remote| FileStore::new(remote, &job.job.name)),
    }
}

/// Finds what the job is made of, as its log says; where that does not, it is what the job file names.
pub(super) async fn locate(
    prepared: &mut Prepared,
    state: &StateDir,
    remote: Option<&Remote>,
) -> Result<(), Failure> {
    let Some(manifest) = Manifest::read(state)? else {
        return read(prepared);
    };
    let holder = holder(prepared, state, remote);
    let located = holder.locate(&manifest).await?;
    say_where(&located, &holder.paths);
    set(&mut prepared.job, &located);
    check_weights(prepared)?;
    let of_prompts = manifest.of(Kind::Prompts).next();
    let is_read = of_prompts.is_some_and(|file| prepared.prompts_read == Some(file.blake3));
    if !is_read {
        prepared.prompts = prompts(&prepared.job)?;
    }
    prepared.located = Some(located);
    Ok(())
}

/// Names in a job where its files are on this machine.
pub(super) fn set(job: &mut Job, located: &Located) {
    if let Some(path) = &located.prompts {
        job.data.prompts.clone_from(path);
    }
    if let Some(path) = &located.tokenizer {
        job.data.tokenizer.clone_from(path);
    }
    if located.model.is_some() {
        job.model.path.clone_from(&located.model);
    }
}

fn say_where(located: &Located, paths: &Paths) {
    for (kind, at, named) in [
        (Kind::Prompts, &located.prompts, &paths.prompts),
        (Kind::Tokenizer, &located.tokenizer, &paths.tokenizer),
        (Kind::Model, &located.model, &paths.model),
    ] {
        if let Some(path) = at.as_ref().filter(|_| at != named) {
            tracing::info!("{} is the copy in {}", kind.key(), path.display());
        }
    }
}

fn check_weights(prepared: &Prepared) -> Result<(), Failure> {
    if let Some(folder) = &prepared.job.model.path {
        let there = WeightFiles::find(folder).and_then(|weights| weights.open());
        let job = prepared.job_file.clone();
        there.map_err(|source| Failure::Weights { job, source })?;
    }
    Ok(())
}

fn prompts(job: &Job) -> Result<Prompts, Failure> {
    Ok(match job.own_loop() {
        Some(_) => Prompts::default(),
        None => read_dataset(&job.data.prompts)?,
    })
}

/// Names the warm start's folder in the job; the job without it is returned if it must be made.
fn plan_warmup(job: &mut Job, job_file: &Path) -> Result<Option<Job>, Failure> {
    let tokenizer = fs::read(&job.data.tokenizer).map_err(|source| Failure::Missing {
        key: "data.tokenizer",
        job: job_file.to_owned(),
        path: job.data.tokenizer.clone(),
        source,
    })?;
    let folder = job.warmup_folder(&cache_dir().map_err(WarmupError::from)?, &tokenizer);
    let without = job.clone();
    job.model.path = Some(folder.clone());
    Ok((!is_complete(&folder)).then_some(without))
}
