//! Looking at the machine. Everything here may hang on a sick driver, disk or network, so each look
//! has a thread and a time of its own, and a look that takes longer is a finding too.
mod commands;
mod devices;
mod disk;
mod folders;
mod groups;
mod job;
mod network;
mod peers;
mod processes;
mod programs;
mod roles;
mod slots;

use super::facts::{Facts, Found, Limit};
use crate::cli::DoctorArgs;
use indicatif::ProgressBar;
use rustix::process::{Resource, getrlimit};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A healthy machine answers within this, also under load.
const PATIENCE: Duration = Duration::from_secs(20);

/// Looks at everything that the command line asks for; the bar says at what.
pub async fn facts(args: &DoctorArgs, state_dir: PathBuf, bar: &ProgressBar, json: bool) -> Facts {
    let mut facts = Facts {
        robustctl: env!("CARGO_PKG_VERSION").to_owned(),
        rdma: programs::rdma(),
        files: Some(limit(Resource::Nofile)),
        memlock: Some(limit(Resource::Memlock)),
        ephemeral: Some(network::ephemeral()),
        kernel_tls: Some(network::kernel_tls()),
        ports: args.listen.iter().map(|at| network::port(*at)).collect(),
        ..Facts::default()
    };
    if let Some(path) = args.job.clone() {
        bar.set_message("job file");
        let read = path.clone();
        facts.job = Some(within(move || job::read(&read)).await);
        if let (Some(Ok(found)), Ok(job)) = (&mut facts.job, job::load(&path)) {
            found.commands = commands::all(&job, bar).await;
        }
    }
    bar.set_message("programs");
    let named = args.worker.clone();
    let job = facts.job.as_ref().and_then(|job| job.as_ref().ok());
    let devices = job.map(|job| job.net_devices.clone());
    facts.worker = Some(within(move || programs::worker(named, devices)).await);
    facts.robustd = Some(within(programs::robustd).await);
    bar.set_message("accelerators");
    let library = args.nvml_lib.clone();
    (facts.driver.nodes, facts.driver.module) = devices::kernel();
    match within(move || devices::nvml(&library)).await {
        Ok((nvml, holders)) => {
            facts.driver.nvml = Some(Ok(nvml));
            facts.processes = processes::of(&holders);
        }
        Err(reason) => {
            facts.driver.nvml = Some(Err(reason));
            facts.processes = processes::of(&[]);
        }
    }
    if let (Some(Ok(found)), Some(path)) = (&mut facts.job, &args.job)
        && let Ok(job) = job::load(path)
    {
        let devices = slots::devices(&job, &facts.driver);
        found.devices = devices.as_ref().map(|of| slots::assigned(&job, of));
        if args.check_roles {
            let devices = devices.and_then(Result::ok).unwrap_or_default();
            let teller = roles::Teller { bar, json };
            let of = roles::Of {
                job: &job,
                worker: args.worker.as_deref(),
                devices: &devices,
            };
            roles::try_all(of, &mut found.commands, teller).await;
        }
    }
    folders_and_disk(&mut facts, args, state_dir, bar).await;
    bar.set_message("addresses");
    let (peers, advertise) = (args.peer.clone(), args.advertise);
    let found = within(move || Ok(network::addresses(advertise, &peers))).await;
    facts.addresses = found.unwrap_or_default();
    for at in &args.peer {
        bar.set_message(format!("peer {at}"));
        // Named with --peer, the command line sees to it.
        let token_file = args.token_file.as_deref().unwrap_or(Path::new(""));
        facts.peers.push(peers::ask(*at, token_file).await);
    }
    facts
}

async fn folders_and_disk(
    facts: &mut Facts,
    args: &DoctorArgs,
    state_dir: PathBuf,
    bar: &ProgressBar,
) {
    bar.set_message("disks");
    facts.memory = Some(within(folders::memory).await);
    facts.shm = Some(within(|| folders::look("/dev/shm".into())).await);
    facts.tmp = Some(within(|| folders::look(std::env::temp_dir())).await);
    let dir = state_dir.clone();
    facts.state = Some(within(move || folders::look(dir)).await);
    if args.disk_mib > 0 {
        bar.set_message(format!("disk speed ({} MiB)", args.disk_mib));
        let bytes = u64::from(args.disk_mib) << 20;
        facts.disk = Some(within(move || disk::measure(&state_dir, bytes)).await);
    }
}

async fn within<T: Send + 'static>(look: impl FnOnce() -> Found<T> + Send + 'static) -> Found<T> {
    let looking = tokio::task::spawn_blocking(look);
    match tokio::time::timeout(PATIENCE, looking).await {
        Ok(Ok(found)) => found,
        Ok(Err(e)) => Err(e.to_string()),
        Err(_) => Err(format!("did not answer within {} s", PATIENCE.as_secs())),
    }
}

fn limit(resource: Resource) -> Found<Limit> {
    let limit = getrlimit(resource);
    Ok(Limit {
        soft: limit.current,
        hard: limit.maximum,
    })
}
