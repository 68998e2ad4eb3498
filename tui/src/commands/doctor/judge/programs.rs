//! The job file, the programs, and the libraries they found.
use super::super::check::Check;
use super::super::facts::{Facts, Found, JobFacts, Worker};

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let mut checks = vec![job(facts.job.as_ref()), worker(facts.worker.as_ref())];
    checks.push(versions(facts));
    checks.push(libtorch(facts));
    checks
}

fn job(job: Option<&Found<JobFacts>>) -> Check {
    const NAME: &str = "job file";
    match job {
        None => Check::skipped(NAME, "no --job was given"),
        Some(Err(reason)) => Check::fail(NAME, reason, "mend the job file"),
        Some(Ok(job)) => match job.missing.as_slice() {
            [] => Check::ok(
                NAME,
                format!(
                    "{}: {} instances, its files are there",
                    job.name, job.instances
                ),
            ),
            missing => {
                let each = missing.iter().map(|(key, why)| format!("{key}: {why}"));
                let found = each.collect::<Vec<_>>().join("; ");
                Check::fail(
                    NAME,
                    found,
                    "make the files, or name others in the job file",
                )
            }
        },
    }
}

fn worker(worker: Option<&Found<Worker>>) -> Check {
    const NAME: &str = "worker program";
    match worker {
        None => Check::skipped(NAME, super::NOT_ASKED),
        Some(Ok(worker)) => Check::ok(NAME, format!("robust-worker {}", worker.version)),
        Some(Err(reason)) => Check::fail(
            NAME,
            reason,
            "build it (make build) and put it beside robustctl and robustd, or name it with --worker",
        ),
    }
}

/// Programs of one version only know each other's messages.
fn versions(facts: &Facts) -> Check {
    const NAME: &str = "versions";
    let mut known = vec![("robustctl", facts.robustctl.as_str())];
    if let Some(Ok(robustd)) = &facts.robustd {
        known.push(("robustd", robustd));
    }
    if let Some(Ok(worker)) = &facts.worker {
        known.push(("robust-worker", &worker.version));
    }
    let peers = facts.peers.iter().filter_map(|peer| {
        let version = &peer.answer.as_ref().ok()?.version;
        Some((peer.at.to_string(), version.clone()))
    });
    let peers: Vec<_> = peers.collect();
    known.extend(
        peers
            .iter()
            .map(|(at, version)| (at.as_str(), version.as_str())),
    );
    let each: Vec<String> = known.iter().map(|(who, v)| format!("{who} {v}")).collect();
    let found = each.join(", ");
    if known.iter().any(|(_, version)| *version != facts.robustctl) {
        return Check::fail(
            NAME,
            found,
            "install the same version of all programs on all nodes",
        );
    }
    match &facts.robustd {
        Some(Err(reason)) => Check::warn(
            NAME,
            format!("{found}; robustd: {reason}"),
            "put robustd beside robustctl",
        ),
        _ => Check::ok(NAME, found),
    }
}

/// What the worker computes with, against what the driver runs.
fn libtorch(facts: &Facts) -> Check {
    const NAME: &str = "libtorch";
    let Some(Ok(worker)) = &facts.worker else {
        return Check::skipped(NAME, "the worker program did not answer");
    };
    let version = worker.torch.as_deref().unwrap_or("of an unknown version");
    let nvml = match &facts.driver.nvml {
        Some(Ok(nvml)) => Some(nvml),
        _ => None,
    };
    let newest = nvml.and_then(|nvml| nvml.cuda);
    match (cuda_of(version), newest) {
        // Within a major version an older driver will do.
        (Some(made_for), Some(newest)) if made_for.0 > newest.0 => {
            return Check::fail(
                NAME,
                format!(
                    "{version} is made for CUDA {}, the driver runs up to {}.{}",
                    made_for.0, newest.0, newest.1
                ),
                "install a newer driver, or build with a libtorch for an older CUDA",
            );
        }
        _ => {}
    }
    // Devices are for programs of the user's, which bring a torch of their own.
    let on = if worker.torch_cuda {
        "CUDA devices"
    } else {
        "processors"
    };
    Check::ok(NAME, format!("{version}, computes on {on}"))
}

/// `2.11.0+cu130` is made for CUDA 13.0.
fn cuda_of(version: &str) -> Option<(i32, i32)> {
    let (_, number) = version.split_once("+cu")?;
    let number: i32 = number.parse().ok()?;
    Some((number / 10, number % 10))
}
