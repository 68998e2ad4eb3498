//! `[store] remote_log`: what is remembered, on other disks than this machine's.
use super::checks::Prepared;
use super::failure::Failure;
use crate::grouplog::{self, Attached, Carried, Logging};
use crate::state::{Readers, StateDir, read_private};
use crate::store::Store;
use robust_grouplog::{GroupLog, Seal};
use robust_remote::Remote;
use robust_shared::job::Job;

/// Makes the state of a job that ran on another machine.
pub(super) async fn restore(from: &str, job: &Job, state: &StateDir) -> Result<(), Failure> {
    let remote = Remote::open(from)?;
    let seal = seal(job)?;
    let restoring = grouplog::restore((&remote, &job.job.name), state, seal.as_ref());
    let restored = restoring.await?;
    tracing::info!(
        "the job `{}` was restored from {from}, up to {}",
        job.job.name,
        restored.at
    );
    Ok(())
}

/// Everything that is stored goes into the log from now on, where there is to be one; the files of the state directory
/// first.
pub(super) async fn begin(
    prepared: &Prepared,
    state: &StateDir,
    (store, logging): (&Store, &Logging),
    run: &str,
) -> Result<(), Failure> {
    let Some(remote) = &prepared.log else {
        return Ok(());
    };
    let seal = seal(&prepared.job)?;
    if seal.is_none() {
        tracing::warn!(
            "the log has no keys and tokens, as `store.secret_file` names no secret to seal them with: nodes have to be \
             enrolled anew with whoever goes on elsewhere"
        );
    }
    let log = GroupLog::new(remote, &prepared.job.job.name, run);
    let (epoch, at) = grouplog::begin(&log, store, remote.url()).await?;
    log.become_current()
        .await
        .map_err(grouplog::BeginError::Log)?;
    tracing::info!(
        "what is stored goes to {} as well, after {at}",
        remote.url()
    );
    let carried = Carried::new(state, seal);
    logging.attach(Attached::new(
        (log, epoch, at),
        None,
        carried,
        store.dumper(),
    ));
    Ok(store.sync().await?)
}

/// What secrets are sealed with.
fn seal(job: &Job) -> Result<Option<Seal>, Failure> {
    let Some(path) = &job.store.secret_file else {
        return Ok(None);
    };
    let unreadable = |source| Failure::Secret {
        path: path.clone(),
        source,
    };
    let secret = read_private(path, Readers::Owner)?;
    let secret = secret.ok_or_else(|| unreadable(std::io::ErrorKind::NotFound.into()))?;
    let sealed = Seal::new(secret.as_bytes());
    let seal = sealed.map_err(|e| unreadable(std::io::Error::other(e.to_string())))?;
    Ok(Some(seal))
}
