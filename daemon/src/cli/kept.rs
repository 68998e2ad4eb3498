//! `[store] remote_log`: what is remembered, on other disks than this machine's; `[ha]`: by several controllers.
use super::args::{Args, ExitCode};
use super::checks::Prepared;
use super::failure::Failure;
use super::signals;
use crate::grouplog::{self, Attached, BeginError, Carried, Logging, Register};
use crate::ha::{Advert, Candidate, Followed, Lead, Setting};
use crate::state::{Readers, StateDir, read_private};
use crate::store::Store;
use robust_grouplog::{GroupLog, Position, Seal};
use robust_remote::Remote;
use robust_shared::job::Job;
use std::sync::Arc;

/// Makes the state of a job that ran on another machine.
pub(super) async fn restore(from: &str, job: &Job, state: &StateDir) -> Result<(), Failure> {
    let remote = Remote::open(from)?;
    let seal = seal(job)?;
    let restoring = grouplog::restore((&remote, &job.job.name), state, seal.as_ref());
    let restored = restoring.await?;
    let (name, at) = (&job.job.name, restored.at);
    tracing::info!("the job `{name}` was restored from {from}, up to {at}");
    Ok(())
}

/// Everything that is stored goes into the log from now on, where there is to be one; the files of the state directory
/// first.
pub(super) async fn begin(
    prepared: &Prepared,
    state: &StateDir,
    (store, logging): (&Store, &Logging),
    (run, lead): (&str, Option<&Arc<Lead>>),
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
    let (epoch, at) = match lead {
        Some(lead) => term(lead, &log, store).await?,
        None => grouplog::begin(&log, store, remote.url()).await?,
    };
    log.become_current().await.map_err(BeginError::Log)?;
    let url = remote.url();
    tracing::info!("what is stored goes to {url} as well, after {at}");
    let carried = Carried::new(state, seal);
    let register = lead.map(|lead| Arc::clone(lead) as Arc<dyn Register>);
    let place = (log, epoch, at);
    logging.attach(Attached::new(place, register, carried, store.dumper()));
    Ok(store.sync().await?)
}

/// Where the log goes on in this term.
async fn term(lead: &Lead, log: &GroupLog, store: &Store) -> Result<(u64, Position), Failure> {
    let (here, number) = store.place_in_log()?;
    let Some(head) = lead.head() else {
        let at = Position::of_base(log.run(), lead.epoch(), number);
        grouplog::put_base(log, store, at).await?;
        lead.begin(log.run(), at).await;
        return Ok((lead.epoch(), at));
    };
    match here == Some(head.at) && head.run == log.run() {
        true => Ok((lead.epoch(), head.at)),
        false => Err(Failure::Log(BeginError::Passed {
            tip: head.at,
            here: here.map_or_else(|| "no place in it".to_owned(), |at| at.to_string()),
        })),
    }
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

/// Who this controller is to the job.
pub(super) enum Place {
    /// The only one.
    Alone,
    /// The one that leads, of several.
    Leads(Arc<Lead>),
    /// One that followed until the job was over.
    Over(ExitCode),
}

const ALONE: &str = "--candidate names one of several controllers, and the job file has no [ha]: add that, or leave \
                     --candidate away";
const FRESH: &str = "with [ha] a job does not begin anew over what it was, as whoever is started last would end it for \
                     all: give the job another name, or remove its keys from etcd (etcdctl del --prefix robust/JOB/)";
const RESTORED: &str =
    "--restore-from is for a controller without [ha]; with it each one follows the log by itself";
const NO_NODES: &str = "with [ha] all roles run on nodes that join: add --listen-nodes ADDR";
const NO_SECRET: &str = "with [ha] all controllers have one secret: name it as `store.secret_file`";

/// Waits until this controller leads, where there are several.
pub(super) async fn place(
    args: &Args,
    prepared: &Prepared,
    state: &StateDir,
) -> Result<Place, Failure> {
    let job = &prepared.job;
    let (Some(ha), Some(remote)) = (&job.ha, &prepared.log) else {
        return match args.candidate {
            Some(_) => Err(Failure::Candidate(ALONE)),
            None => Ok(Place::Alone),
        };
    };
    for (is_wrong, why) in [
        (args.fresh, FRESH),
        (args.restore_from.is_some(), RESTORED),
        (prepared.nodes.is_none(), NO_NODES),
    ] {
        if is_wrong {
            return Err(Failure::Candidate(why));
        }
    }
    let advert = Advert {
        name: args.candidate.clone().unwrap_or_else(host),
        nodes: args.listen_nodes.clone().unwrap_or_default(),
        control: args.listen.clone().unwrap_or_default(),
    };
    let seal = seal(job)?.ok_or(Failure::Candidate(NO_SECRET))?;
    let setting = Setting::new(ha, (&job.job.name, advert), state, remote.clone())?;
    let candidate = Candidate::new(setting, seal);
    let mut ends = signals::first()?;
    let followed = tokio::select! {
        followed = candidate.follow() => followed?,
        code = ends.recv() => return Ok(Place::Over(code)),
    };
    Ok(match followed {
        Followed::Leads(lead) => Place::Leads(Arc::new(lead)),
        Followed::Over(how) => {
            tracing::info!("the job is over: {how}");
            Place::Over(match how.as_str() {
                "completed" => ExitCode::Completed,
                _ => ExitCode::Failed,
            })
        }
    })
}

/// This machine's name, as a part of a key.
fn host() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().replace('/', "-")
}
