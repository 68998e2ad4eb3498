//! Limits, memory and disks.
use super::super::check::Check;
use super::super::facts::{Facts, Folder, Found, JobFacts, Limit, RoleMemory, Written};
use crate::format::bytes;

/// File systems whose files lie on another machine.
const NETWORK: [&str; 14] = [
    "nfs",
    "nfs4",
    "cifs",
    "smb3",
    "smbfs",
    "lustre",
    "gpfs",
    "beegfs",
    "ceph",
    "glusterfs",
    "9p",
    "afs",
    "fuse.sshfs",
    "fuse.glusterfs",
];
/// Descriptors of the daemon itself.
const FILES: u64 = 1024;
/// And for each role: its link, its log, its watch.
const FILES_PER_INSTANCE: u64 = 8;
/// Less shared memory than this holds no snapshot of any model worth training.
const SHM: u64 = 1 << 30;
/// Slots of a rank's snapshot.
pub(super) const SNAPSHOTS: u64 = 2;
/// A full disk stops the job, so something is to be left.
const SPARE: u64 = 1 << 30;
/// Below this a disk cannot be meant.
const CRAWLING_MB_S: f64 = 20.0;
/// Below this checkpoints take long.
const SLOW_MB_S: f64 = 200.0;

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let job = facts.job.as_ref().and_then(|job| job.as_ref().ok());
    let mut checks = Vec::from_iter(job.and_then(|job| memory(facts.memory.as_ref(), &job.roles)));
    checks.extend([
        shared_memory(facts.shm.as_ref(), job),
        open_files(facts.files.as_ref(), job),
        memlock(facts.memlock.as_ref(), &facts.rdma, facts.driver.nodes),
        local("state directory", facts.state.as_ref(), "--state-dir"),
        disk_space(facts.state.as_ref(), job),
        disk_speed(facts.disk.as_ref(), job),
        temporary(facts.tmp.as_ref()),
    ]);
    checks
}

/// Whether the built-in roles fit beside each other; none where it is not known what they take.
fn memory(available: Option<&Found<u64>>, roles: &[RoleMemory]) -> Option<Check> {
    const NAME: &str = "memory";
    if roles.is_empty() {
        return None;
    }
    let available = match have(NAME, available) {
        Ok(available) => *available,
        Err(check) => return Some(check),
    };
    let each = roles
        .iter()
        .map(|of| of.bytes.saturating_mul(of.count.into()));
    let needed = each.fold(0, u64::saturating_add);
    let named = roles
        .iter()
        .map(|of| format!("{} {} {}", of.count, of.role, bytes(of.bytes)));
    let found = format!(
        "{} available; the job's roles take at most {}: {}",
        bytes(available),
        bytes(needed),
        named.collect::<Vec<_>>().join(", ")
    );
    if needed <= available {
        return Some(Check::ok(NAME, found));
    }
    let largest = roles.iter().max_by_key(|of| of.bytes)?;
    let found = format!("{found}; of these a {} has {}", largest.role, largest.parts);
    let fix = "lower rollout.max_context, rollout.max_running or train.micro_batch, set rollout.dtype = \
               \"bfloat16\", or spread the roles over nodes";
    Some(Check::fail(NAME, found, fix))
}

fn have<'a, T>(name: &'static str, fact: Option<&'a Found<T>>) -> Result<&'a T, Check> {
    match fact {
        None => Err(Check::skipped(name, super::NOT_ASKED)),
        Some(Err(reason)) => Err(Check::skipped(name, reason)),
        Some(Ok(fact)) => Ok(fact),
    }
}

fn shared_memory(shm: Option<&Found<Folder>>, job: Option<&JobFacts>) -> Check {
    const NAME: &str = "shared memory";
    let shm = match have(NAME, shm) {
        Ok(shm) => shm,
        Err(check) => return check,
    };
    let found = format!("{} free of {}", bytes(shm.free), bytes(shm.total));
    let fix = "mount -o remount,size=SIZE /dev/shm (in a container: --shm-size)";
    let needed = job
        .and_then(|job| job.state_bytes)
        .map(|state| state * SNAPSHOTS);
    match needed {
        _ if shm.fs != "tmpfs" => Check::warn(
            NAME,
            format!("{} is {}, not memory", shm.path.display(), shm.fs),
            "mount a tmpfs there: the trainer waits for every byte of its snapshot",
        ),
        Some(needed) if needed > shm.free => {
            let needed = bytes(needed);
            Check::fail(
                NAME,
                format!("{found}; the job's snapshots take {needed}"),
                fix,
            )
        }
        Some(needed) => {
            let needed = bytes(needed);
            Check::ok(NAME, format!("{found}; the job's snapshots take {needed}"))
        }
        None if shm.free < SHM => Check::warn(NAME, found, fix),
        None => Check::ok(NAME, found),
    }
}

fn limit_in_words(limit: Option<u64>) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |n| n.to_string())
}

fn open_files(files: Option<&Found<Limit>>, job: Option<&JobFacts>) -> Check {
    const NAME: &str = "file descriptors";
    let files = match have(NAME, files) {
        Ok(files) => files,
        Err(check) => return check,
    };
    let instances = job.map_or(0, |job| u64::from(job.instances));
    let needed = FILES + FILES_PER_INSTANCE * instances;
    let (soft, hard) = (limit_in_words(files.soft), limit_in_words(files.hard));
    let found = format!("{soft}, can be raised to {hard}; {needed} are wanted");
    let enough = |limit: Option<u64>| limit.is_none_or(|n| n >= needed);
    if enough(files.soft) {
        Check::ok(NAME, found)
    } else if enough(files.hard) {
        let fix = format!("ulimit -n {needed} in the shell that starts robustd");
        Check::warn(NAME, found, fix)
    } else {
        let fix = "raise nofile in /etc/security/limits.conf, or LimitNOFILE in the service";
        Check::fail(NAME, found, fix)
    }
}

/// Memory must be locked to be registered with an RDMA device or pinned for an accelerator.
fn memlock(memlock: Option<&Found<Limit>>, rdma: &[String], accelerators: u32) -> Check {
    const NAME: &str = "locked memory";
    let limit = match have(NAME, memlock) {
        Ok(limit) => limit,
        Err(check) => return check,
    };
    let found = match limit.soft {
        None => "unlimited".to_owned(),
        Some(n) => bytes(n),
    };
    match (limit.soft, rdma, accelerators) {
        (None, ..) => Check::ok(NAME, found),
        (Some(_), [], 0) => Check::ok(
            NAME,
            format!("{found}; nothing here needs more (no RDMA device, no accelerator)"),
        ),
        (Some(_), [], _) => Check::ok(NAME, format!("{found}; the driver pins memory without it")),
        (Some(_), devices, _) => Check::warn(
            NAME,
            format!("{found}, and {} registers memory", devices.join(", ")),
            "memlock unlimited in /etc/security/limits.conf, or LimitMEMLOCK=infinity in the service",
        ),
    }
}

fn is_network(fs: &str) -> bool {
    NETWORK.contains(&fs)
}

fn local(name: &'static str, folder: Option<&Found<Folder>>, option: &str) -> Check {
    let folder = match have(name, folder) {
        Ok(folder) => folder,
        Err(check) => return check,
    };
    let found = format!("{} on {}", folder.path.display(), folder.fs);
    if is_network(&folder.fs) {
        let found = format!(
            "{found}, mounted at {}: over a network",
            folder.mount.display()
        );
        let fix = format!(
            "name a folder on a local disk with {option}: sockets, locks and the store \
                           need one"
        );
        return Check::fail(name, found, fix);
    }
    match folder.fs.as_str() {
        "tmpfs" | "ramfs" => Check::warn(
            name,
            format!("{found}: memory, gone with the machine"),
            format!("name a folder on a disk with {option}"),
        ),
        _ => Check::ok(name, found),
    }
}

fn disk_space(state: Option<&Found<Folder>>, job: Option<&JobFacts>) -> Check {
    const NAME: &str = "disk space";
    let state = match have(NAME, state) {
        Ok(state) => state,
        Err(check) => return check,
    };
    let found = format!("{} free of {}", bytes(state.free), bytes(state.total));
    let kept = job.and_then(|job| Some(job.state_bytes? * u64::from(job.checkpoints)));
    let needed = kept.unwrap_or(0) + SPARE;
    let found = match kept {
        Some(kept) => format!("{found}; the job's checkpoints take up to {}", bytes(kept)),
        None => found,
    };
    let fix = "make room, keep fewer checkpoints ([checkpoint] keep), or name another disk with \
               --state-dir";
    match state.free {
        free if free < needed => Check::fail(NAME, found, fix),
        free if free < needed * 2 || free < state.total / 20 => Check::warn(NAME, found, fix),
        _ => Check::ok(NAME, found),
    }
}

fn disk_speed(disk: Option<&Found<Written>>, job: Option<&JobFacts>) -> Check {
    const NAME: &str = "disk speed";
    let disk = match have(NAME, disk) {
        Ok(disk) => disk,
        Err(check) => return check,
    };
    let speed = disk.mb_per_s();
    let how = match disk.direct {
        true => "past the cache",
        false => "through the cache, flushed",
    };
    let mut found = format!("{speed:.0} MB/s, {} written {how}", bytes(disk.bytes));
    if let Some(state) = job.and_then(|job| job.state_bytes) {
        let seconds = state as f64 / 1e6 / speed.max(1e-3);
        found += &format!("; a checkpoint of {} takes {seconds:.1} s", bytes(state));
    }
    let fix = "name a folder on a faster disk with --state-dir";
    match speed {
        s if s < CRAWLING_MB_S => Check::fail(NAME, found, fix),
        s if s < SLOW_MB_S => Check::warn(NAME, found, fix),
        _ => Check::ok(NAME, found),
    }
}

/// UCX and CUDA make sockets and maps there.
fn temporary(tmp: Option<&Found<Folder>>) -> Check {
    const NAME: &str = "TMPDIR";
    match have(NAME, tmp) {
        Ok(tmp) if is_network(&tmp.fs) => Check::fail(
            NAME,
            format!(
                "{} on {}, mounted at {}: over a network",
                tmp.path.display(),
                tmp.fs,
                tmp.mount.display()
            ),
            "export TMPDIR=/tmp, or another folder on a local disk",
        ),
        Ok(tmp) if tmp.free < SPARE / 16 => Check::warn(
            NAME,
            format!("{}: only {} free", tmp.path.display(), bytes(tmp.free)),
            "make room there, or export TMPDIR to another local folder",
        ),
        Ok(tmp) => Check::ok(NAME, format!("{} on {}", tmp.path.display(), tmp.fs)),
        Err(check) => check,
    }
}
