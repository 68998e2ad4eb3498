//! The job's own programs: engines and services.
use super::super::check::Check;
use super::super::facts::{CommandFacts, EngineFacts, Facts, Found, HiddenFacts, JobFacts};
use super::groups;
use super::machine::SNAPSHOTS;
use crate::format::bytes;
use robust_shared::job::{EngineKind, HideState, Isolate};

/// Of a model's weights an engine loads one version while the next one comes.
const VERSIONS: u64 = 2;

pub(super) fn all(facts: &Facts) -> Vec<Check> {
    let job = facts.job.as_ref().and_then(|job| job.as_ref().ok());
    let of_job = [job.and_then(environment), job.and_then(groups::check)];
    let mut checks: Vec<Check> = of_job.into_iter().flatten().collect();
    for command in job.into_iter().flat_map(|job| &job.commands) {
        checks.push(program(command));
        checks.push(variables(command));
        checks.extend(command.hidden.as_ref().map(|of| hidden(&command.at, of)));
        checks.extend(
            command
                .hidden
                .as_ref()
                .and_then(|of| readable(&command.at, of)),
        );
        let Some(engine) = &command.engine else {
            continue;
        };
        checks.extend(
            engine
                .kind
                .tested_version()
                .map(|tested| version(engine, tested)),
        );
        checks.extend(engine.fixed.map(|range| ports(engine, range, facts)));
        checks.extend(
            engine
                .version_bytes
                .map(|bytes| memory(engine, bytes, facts)),
        );
        checks.push(isolation(engine));
    }
    checks
}

/// Nobody misses a variable silently: what a role does not get is named.
fn environment(job: &JobFacts) -> Option<Check> {
    let held = job.held_back.join(", ");
    let found =
        format!("no role gets {held}; [job] pass_env and a command's inherit name what it should");
    (!held.is_empty()).then(|| Check::ok("environment", found))
}

fn program(command: &CommandFacts) -> Check {
    const NAME: &str = "program";
    let at = &command.at;
    match &command.program {
        Ok(path) => Check::ok(NAME, format!("{at}: {}", path.display())),
        Err(reason) => Check::fail(
            NAME,
            format!("{at}: {reason}"),
            format!("install it, or name it with its whole path in [{at}] argv"),
        ),
    }
}

fn variables(command: &CommandFacts) -> Check {
    const NAME: &str = "variables";
    let at = &command.at;
    match command.unset.as_slice() {
        [] => Check::ok(NAME, format!("{at}: those that it names are set")),
        unset => Check::fail(
            NAME,
            format!("{at}: not set: {}", unset.join(", ")),
            "export them where robustd is started",
        ),
    }
}

/// Engines change their routes from version to version.
fn version(engine: &EngineFacts, tested: &str) -> Check {
    const NAME: &str = "engine version";
    let kind = engine.kind.name();
    let fix = format!("install {kind} {tested}, or see that a drill with it passes");
    match &engine.version {
        None => Check::skipped(NAME, "the program is not there"),
        Some(Ok(version)) if is_tested(version, tested) => {
            Check::ok(NAME, format!("{kind} {version}, which is tested"))
        }
        Some(Ok(version)) => {
            Check::warn(NAME, format!("{kind} {version}; tested is {tested}"), fix)
        }
        Some(Err(reason)) => Check::warn(NAME, format!("unknown: {reason}"), fix),
    }
}

/// `0.32.0+cpu` is 0.32.0.
fn is_tested(version: &str, tested: &str) -> bool {
    version.split('+').next() == Some(tested)
}

fn ports(engine: &EngineFacts, (first, last): (u16, u16), facts: &Facts) -> Check {
    const NAME: &str = "engine ports";
    let range = match first == last {
        true => first.to_string(),
        false => format!("{first} to {last}"),
    };
    if !engine.taken.is_empty() {
        let each = engine.taken.iter().map(|p| p.at.port().to_string());
        let found = format!("{range}: taken: {}", each.collect::<Vec<_>>().join(", "));
        let fix =
            "choose others with [rollout.command] fixed, or end what listens there (ss -ltnp)";
        return Check::fail(NAME, found, fix);
    }
    match &facts.ephemeral {
        Some(Ok((from, to))) if first <= *to && last >= *from => Check::warn(
            NAME,
            format!("{range}: free, but {from} to {to} are handed out to any program"),
            format!("choose [rollout.command] fixed below {from}"),
        ),
        _ => Check::ok(NAME, format!("{range}: free")),
    }
}

fn memory(engine: &EngineFacts, version: u64, facts: &Facts) -> Check {
    const NAME: &str = "engine memory";
    let shm = match &facts.shm {
        None => return Check::skipped(NAME, super::NOT_ASKED),
        Some(Err(reason)) => return Check::skipped(NAME, reason),
        Some(Ok(shm)) => shm,
    };
    let count = u64::from(engine.replicas);
    let needed = version.saturating_mul(VERSIONS).saturating_mul(count);
    let state = match &facts.job {
        Some(Ok(job)) => job.state_bytes.unwrap_or(0),
        _ => 0,
    };
    let snapshots = state.saturating_mul(SNAPSHOTS);
    let found = format!(
        "{} free of {}; {VERSIONS} versions for {count} engines take {}, the job's snapshots {}",
        bytes(shm.free),
        bytes(shm.total),
        bytes(needed),
        bytes(snapshots)
    );
    match needed.saturating_add(snapshots) > shm.free {
        true => {
            let fix = "mount -o remount,size=SIZE /dev/shm (in a container: --shm-size), or set \
                       [rollout.command] dtype = \"bfloat16\"";
            Check::fail(NAME, found, fix)
        }
        false => Check::ok(NAME, found),
    }
}

/// Whether a program sees the job's secrets and the other roles' files.
fn hidden(at: &str, of: &HiddenFacts) -> Check {
    const NAME: &str = "state hidden";
    let sees =
        |why: &str| format!("{at} sees the state directory, and so the job's secrets: {why}");
    let permit = "permit user namespaces (sysctl user.max_user_namespaces), or start robustd as root and name a \
                  `user` in the command's table";
    match (&of.user, of.asked, of.root, &of.namespace) {
        (Some((name, Err(reason))), ..) => Check::fail(
            NAME,
            format!("{at} is to run as user `{name}`: {reason}"),
            format!("make the user, or name another in [{at}] user"),
        ),
        (Some((name, Ok(()))), _, false, _) => Check::fail(
            NAME,
            format!("{at} is to run as user `{name}`, and only root starts programs as others"),
            format!("start robustd as root, or leave [{at}] user out"),
        ),
        (Some((name, Ok(()))), _, true, Err(reason)) => Check::fail(
            NAME,
            format!(
                "{at} is to run as user `{name}`, and robustd may make no mounts here ({reason})"
            ),
            format!("give robustd CAP_SYS_ADMIN, or leave [{at}] user out"),
        ),
        (Some((name, Ok(()))), _, true, Ok(())) => Check::ok(
            NAME,
            format!("{at} runs as user `{name}` and sees its own folders alone"),
        ),
        (None, HideState::Off, ..) => Check::ok(NAME, sees("[job] hide_state is \"off\"")),
        (None, HideState::Require, true, _) => Check::fail(
            NAME,
            format!("[job] hide_state is \"require\", and {at} runs as root, who sees everything"),
            format!("name a `user` in [{at}]"),
        ),
        (None, HideState::Auto, true, _) => Check::warn(
            NAME,
            sees("it runs as root"),
            format!("name a `user` in [{at}], or start robustd as another user than root"),
        ),
        (None, _, false, Ok(())) => Check::ok(NAME, format!("{at} sees its own folders alone")),
        (None, HideState::Require, false, Err(reason)) => Check::fail(
            NAME,
            format!(
                "[job] hide_state is \"require\", and no user namespace is permitted ({reason})"
            ),
            permit,
        ),
        (None, HideState::Auto, false, Err(reason)) => Check::warn(
            NAME,
            sees(&format!("no user namespace is permitted ({reason})")),
            permit,
        ),
    }
}

/// Whether a program's user may read the model that it is given.
fn readable(at: &str, of: &HiddenFacts) -> Option<Check> {
    const NAME: &str = "model readable";
    let (user, _) = of.user.as_ref()?;
    let (model, read) = of.model.as_ref()?;
    let model = model.display();
    Some(match read {
        Ok(()) => Check::ok(
            NAME,
            format!("user `{user}` of {at} may read the model in {model}"),
        ),
        Err(reason) => Check::fail(
            NAME,
            format!("{at} runs as user `{user}` and is given the model in {model}: {reason}"),
            format!(
                "chmod -R o+rX {model}, and chmod o+x the folders on the way to it; or name another folder (model.path; \
                 for a model that robustd makes, ROBUST_CACHE)"
            ),
        ),
    })
}

/// Who may reach the port that the engine itself opens.
fn isolation(engine: &EngineFacts) -> Check {
    const NAME: &str = "engine isolation";
    let namespace = |found: &Found<()>| match found {
        Ok(()) => Check::ok(NAME, "in a network of its own: only the shim reaches it"),
        Err(reason) => open(
            engine,
            &format!("no network of its own is permitted ({reason}): "),
        ),
    };
    match (engine.isolate, engine.socket) {
        (Isolate::Uds, _) | (Isolate::Auto, true) => {
            Check::ok(NAME, "a Unix socket: only the shim reaches it")
        }
        (Isolate::Loopback, _) => open(engine, ""),
        (Isolate::Auto, false) => namespace(&engine.namespace),
        (Isolate::Netns, _) => match &engine.namespace {
            Ok(()) => namespace(&engine.namespace),
            Err(reason) => Check::fail(
                NAME,
                format!("no network of its own is permitted ({reason})"),
                "permit user namespaces (sysctl user.max_user_namespaces), or set [rollout.command] \
                 isolate to another way",
            ),
        },
    }
}

fn open(engine: &EngineFacts, why: &str) -> Check {
    let risk = match engine.kind {
        EngineKind::Vllm => {
            ", and vLLM's routes for weights and pauses ignore its API key: each of them may change \
             what it serves"
        }
        EngineKind::Sglang | EngineKind::Robust => "; without a key each of them may use it",
    };
    let fix = match engine.kind {
        EngineKind::Vllm => "pass it `--uds {uds}` in [rollout.command] argv",
        EngineKind::Sglang | EngineKind::Robust => {
            "permit user namespaces (sysctl user.max_user_namespaces), and leave isolate = \"auto\""
        }
    };
    let found = format!("{why}the engine's port is open to every user of this machine{risk}");
    Check::warn("engine isolation", found, fix)
}
