//! `[store] remote_log`: what is remembered, on other disks than this machine's; `[ha]`: by several controllers.
use super::args::{Args, ExitCode};
use super::checks::Prepared;
use super::data;
use super::failure::Failure;
use super::following::Following;
use super::signals;
use crate::files::Manifest;
use crate::grouplog::{self, Attached, BeginError, Carried, Logging, Register};
use crate::ha::{Advert, Candidate, Followed, Lead, Setting};
use crate::state::{Readers, StateDir, read_private, write_private};
use crate::store::Store;
use robust_grouplog::{GroupLog, Position, Seal};
use robust_remote::Remote;
use robust_shared::job::Job;
use robust_shared::wire::{JobState, Word as _};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Makes the state of a job that ran on another machine.
pub(super) async fn restore(
    from: &str,
    prepared: &Prepared,
    state: &StateDir,
) -> Result<(), Failure> {
    let remote = Remote::open(from)?;
    let job = &prepared.job;
    let seal = seal(job)?;
    tracing::info!("restoring the job from {from}");
    let restoring = grouplog::restore((&remote, &job.job.name), state, seal.as_ref());
    let restored = restoring.await?;
    // Another store may keep what comes from now on.
    if let Some(manifest) = Manifest::read(state)? {
        data::holder(prepared, state, Some(&remote))
            .locate(&manifest)
            .await?;
    }
    grouplog::restored(state)?;
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
    (run, is_fresh, lead): (&str, bool, Option<&Arc<Lead>>),
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
    let job = prepared.job.job.name.as_str();
    let log = GroupLog::new(remote, job, run);
    let mut carried = Carried::new(state, seal, store.files()?);
    let (epoch, at) = match lead {
        Some(lead) => term(lead, (&log, remote, job), store, &mut carried).await?,
        None => {
            if !is_fresh {
                grouplog::no_other_life(remote, job, run).await?;
            }
            grouplog::begin(&log, store, &mut carried, remote.url()).await?
        }
    };
    if prepared.job.ha.is_some() && lead.is_none() {
        // What etcd knows of the job is older from now on, should it come back.
        write_private(&state.alone(), remote.url().as_bytes())?;
    }
    log.become_current().await.map_err(BeginError::Log)?;
    let url = remote.url();
    tracing::info!("what is stored goes to {url} as well, after {at}");
    let bases = log.bases().await.map_err(BeginError::Log)?;
    let base = bases.last().map_or(at.number, |base| base.at.number);
    let register = lead.map(|lead| Arc::clone(lead) as Arc<dyn Register>);
    let place = (log, epoch, at);
    logging.attach(Attached::new(
        place,
        base,
        register,
        carried,
        store.dumper(),
    ));
    Ok(store.sync().await?)
}

/// Where the log goes on in this term.
async fn term(
    lead: &Lead,
    (log, remote, job): (&GroupLog, &Remote, &str),
    store: &Store,
    carried: &mut Carried,
) -> Result<(u64, Position), Failure> {
    let Some(head) = lead.head() else {
        grouplog::no_life(remote, job).await?;
        let begun = grouplog::put_base((log, lead.epoch()), store, carried).await?;
        lead.begin(log.run(), begun.1).await;
        return Ok(begun);
    };
    let (here, _) = store.place_in_log()?;
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
    let secret = read_private(path, Readers::Group)?;
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

const NOT_ONE_OF_SEVERAL: &str = "--alone is for a job file with [ha]; this one has none, and its controller is alone anyway: leave --alone away";
const LED: &str = "etcd answers and knows how far the job's log counts, so that controllers with --candidate go on with it; \
                   --alone is for a job whose etcd was lost with its data, as two controllers would write one log. Where the \
                   job went on with --alone since, and that state directory is lost as well, what etcd knows is old: remove \
                   its keys below robust/JOB/, and start again";
const MOVES: &str = "somebody writes the job's log, so that another controller of the job leads: end all of them before one goes on \
                     with --alone, as two controllers would write one log";
const LEADS_TOO: &str = "etcd answers, and another controller leads the job with it, though this state directory went on alone: end one of \
                         the two, and go on with the one whose work is to be kept";
const WENT_ALONE: &str = "the job of this state directory has gone on without etcd, and what etcd knows of it, if anything, is older: \
                          start it with --alone again; there is no way back to several controllers";
/// How long the log is looked at before a controller leads without etcd, and how often. Whoever leads a job at work writes
/// several times in that time.
const LOOKED: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(1));
const ALONE: &str = "--candidate names one of several controllers, and the job file has no [ha]: add that, or leave \
                     --candidate away";
const FRESH: &str = "with [ha] a job does not begin anew over what it was, as whoever is started last would end it for \
                     all: give the job another name";
const RESTORED: &str = "with [ha] each controller follows the log by itself, without --restore-from; where etcd was lost with its data, one goes \
     on with --alone --restore-from";
const NO_NODES: &str = "with [ha] all roles run on nodes that join: add --listen-nodes ADDR";
const NO_SECRET: &str = "with [ha] all controllers have one secret: name it as `store.secret_file`";

/// Waits until this controller leads, where there are several.
pub(super) async fn place(
    args: &Args,
    prepared: &Prepared,
    state: &StateDir,
    logging: &Logging,
) -> Result<Place, Failure> {
    let job = &prepared.job;
    let (Some(ha), Some(remote)) = (&job.ha, &prepared.log) else {
        return match (&args.candidate, args.alone) {
            (Some(_), _) => Err(Failure::Candidate(ALONE)),
            (None, true) => Err(Failure::Candidate(NOT_ONE_OF_SEVERAL)),
            (None, false) => Ok(Place::Alone),
        };
    };
    for (is_wrong, why) in [
        (args.fresh, FRESH),
        (args.restore_from.is_some() && !args.alone, RESTORED),
        (prepared.nodes.is_none(), NO_NODES),
    ] {
        if is_wrong {
            return Err(Failure::Candidate(why));
        }
    }
    if !args.alone && state.alone().exists() {
        return Err(Failure::Candidate(WENT_ALONE));
    }
    let advert = Advert {
        name: args.candidate.clone().unwrap_or_else(host),
        nodes: args.listen_nodes.clone().unwrap_or_default(),
        control: args
            .listen
            .as_deref()
            .map_or_else(String::new, |at| control(at, args)),
    };
    let seal = seal(job)?.ok_or(Failure::Candidate(NO_SECRET))?;
    let holder = data::holder(prepared, state, Some(remote));
    let setting = Setting::new(ha, (&job.job.name, advert), holder, remote.clone())?;
    if args.alone {
        return alone(&setting, (remote, &job.job.name), state).await;
    }
    let candidate = Candidate::new(setting, seal, logging.under_way().clone());
    let following = Following::begin(prepared, state, candidate.stands()).await?;
    let mut ends = signals::first()?;
    let followed = tokio::select! {
        followed = candidate.follow() => followed?,
        code = ends.recv() => return Ok(Place::Over(code)),
    };
    following.end().await;
    Ok(match followed {
        Followed::Leads(lead) => Place::Leads(lead),
        Followed::Over(how) => {
            tracing::info!("the job is over: {how}");
            Place::Over(match JobState::known(&how) {
                Some(JobState::Completed) => ExitCode::Completed,
                _ => ExitCode::Failed,
            })
        }
    })
}

/// Leads without etcd, unless another controller may lead with it.
async fn alone(
    setting: &Setting,
    log: (&Remote, &str),
    state: &StateDir,
) -> Result<Place, Failure> {
    if state.alone().exists() {
        // It goes on again, whatever etcd holds of the time before, but not beside a controller that lives.
        if setting.is_led().await? {
            return Err(Failure::Candidate(LEADS_TOO));
        }
    } else {
        if setting.is_known_to_etcd().await? {
            return Err(Failure::Candidate(LED));
        }
        // It may be that etcd is only not reached from here.
        if grouplog::moves(log, LOOKED)
            .await
            .map_err(BeginError::Log)?
        {
            return Err(Failure::Candidate(MOVES));
        }
    }
    tracing::warn!(
        "this controller leads without etcd: no other controller of the job may run any more"
    );
    Ok(Place::Alone)
}

/// Where other machines reach what listens at `--listen`.
fn control(listen: &str, args: &Args) -> String {
    match listen.parse::<SocketAddr>() {
        Ok(at) if at.ip().is_unspecified() && at.port() != 0 => {
            let reached = args.advertise.map_or_else(host, |ip| match ip {
                IpAddr::V6(ip) => format!("[{ip}]"),
                IpAddr::V4(ip) => ip.to_string(),
            });
            format!("{reached}:{}", at.port())
        }
        // Which port that is nobody knows beforehand.
        Ok(at) if at.port() == 0 => String::new(),
        _ => listen.to_owned(),
    }
}

/// This machine's name, as a part of a key.
fn host() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().replace('/', "-")
}
