//! The programs that a job's commands name, tried as the daemon would start them.
use super::super::facts::{CommandFacts, EngineFacts, Found, HiddenFacts};
use super::{job, network};
use indicatif::ProgressBar;
use robust_proto::endpoint::cache_dir;
use robust_shared::ids::Role;
use robust_shared::job::{
    AgentCommand, Dtype, EngineKind, EngineWeights, Job, Placeholder, RolloutCommand, Service,
    Template, TrainerCommand,
};
use robust_tree::User;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::process::Command;

/// A Python program imports much before it says its version.
const PATIENCE: Duration = Duration::from_secs(20);
/// More than any line that names an interpreter.
const FIRST_LINE: usize = 256;

/// What all commands have in common.
struct Program<'a> {
    argv: &'a [String],
    env: &'a BTreeMap<String, String>,
    inherit: &'a [String],
    cwd: &'a Path,
    user: Option<&'a str>,
}

/// Looks at every command of a job; the bar says at which.
pub(super) async fn all(job: &Job, bar: &ProgressBar) -> Vec<CommandFacts> {
    let mut found = Vec::new();
    if let Some(command) = &job.rollout.command {
        let program = Program::of_rollout(command);
        let mut facts = program.look("rollout.command");
        facts.engine = Some(engine(job, command, &program, &facts.program, bar).await);
        found.push(facts);
    }
    if let Some(command) = &job.trainer.command {
        found.push(Program::of_trainer(command).look("trainer.command"));
    }
    if let Some(command) = &job.agent.command {
        found.push(Program::of_agent(command).look("agent.command"));
    }
    for (name, service) in &job.services {
        bar.set_message(format!("service {name}"));
        found.push(Program::of_service(service).look(&format!("service.{name}")));
    }
    for (facts, program) in found.iter_mut().zip(programs(job)) {
        let is_given = program.placeholders().contains(&Placeholder::Model);
        facts.hidden = Some(hidden(job, program.user, is_given).await);
    }
    found
}

/// The programs of a job, in the order in which they are looked at.
fn programs(job: &Job) -> Vec<Program<'_>> {
    let engine = job.rollout.command.as_ref().map(Program::of_rollout);
    let trainer = job.trainer.command.as_ref().map(Program::of_trainer);
    let agent = job.agent.command.as_ref().map(Program::of_agent);
    let services = job.services.values().map(Program::of_service);
    let roles = engine.into_iter().chain(trainer).chain(agent);
    roles.chain(services).collect()
}

/// How the state directory is kept from a program, as this user would start it.
async fn hidden(job: &Job, user: Option<&str>, given_model: bool) -> HiddenFacts {
    let named = match user {
        None => None,
        Some(name) => {
            let mut id = Command::new("id");
            id.args(["-u", "--", name]);
            let known = said(id, "id").await.map(|_| ());
            Some((name.to_owned(), known))
        }
    };
    let mut unshare = Command::new("unshare");
    // Below root it is another user who does not see the rest, and needs no user namespace for that.
    unshare.args(named.is_none().then_some("--user"));
    unshare.args(["--mount", "true"]);
    let of_user = named.as_ref().filter(|_| given_model);
    HiddenFacts {
        model: of_user.and_then(|(name, _)| readable(job, name)),
        user: named,
        root: rustix::process::geteuid().is_root(),
        asked: job.job.hide_state,
        namespace: said(unshare, "unshare").await.map(|_| ()),
    }
}

/// Whether this user may read the job's model, or the place where robustd will make one.
fn readable(job: &Job, user: &str) -> Option<(PathBuf, Found<()>)> {
    let user = User::find(user).ok()?;
    let made = || {
        let tokenizer = std::fs::read(&job.data.tokenizer).ok()?;
        Some(job.warmup_folder(&cache_dir().ok()?, &tokenizer))
    };
    let model = job.model.path.clone().or_else(made)?;
    let read = user.reads(&model).map_err(|error| error.to_string());
    Some((model, read))
}

async fn engine(
    job: &Job,
    command: &RolloutCommand,
    program: &Program<'_>,
    path: &Found<PathBuf>,
    bar: &ProgressBar,
) -> EngineFacts {
    let kind = command.kind;
    let version = match (path, kind.tested_version()) {
        (Ok(path), Some(_)) => {
            let wait = PATIENCE.as_secs();
            bar.set_message(format!("version of {} (up to {wait} s)", path.display()));
            Some(program.version(path, kind).await)
        }
        _ => None,
    };
    bar.set_message("isolation of engines");
    let socket = program.placeholders().contains(&Placeholder::Uds);
    let ports: Vec<u16> = (0..job.rollout.replicas)
        .filter_map(|index| command.fixed_port(index))
        .collect();
    let at = |port: &u16| SocketAddr::from((Ipv4Addr::UNSPECIFIED, *port));
    let tried = ports.iter().map(|port| network::port(at(port)));
    let bytes = match command.dtype {
        Dtype::Float32 => 4,
        Dtype::Bfloat16 => 2,
    };
    let loads = command.weights == EngineWeights::Disk;
    let parameters = loads.then(|| job::parameters(job)).flatten();
    EngineFacts {
        kind,
        version,
        fixed: ports.first().copied().zip(ports.last().copied()),
        taken: tried.filter(|port| port.free.is_err()).collect(),
        isolate: command.isolate,
        socket,
        namespace: namespace().await,
        version_bytes: parameters.map(|n| n.saturating_mul(bytes)),
        replicas: most_on_a_node(job),
    }
}

/// The most engines that one node has.
fn most_on_a_node(job: &Job) -> u32 {
    let places = job.placement().unwrap_or_default();
    let mut on: BTreeMap<&str, u32> = BTreeMap::new();
    for place in places.iter().filter(|p| p.id.role == Role::Rollout) {
        *on.entry(&place.node).or_default() += 1;
    }
    on.values().copied().max().unwrap_or(0)
}

/// Whether a process may have a network of its own here: as root, else as root of its own users.
async fn namespace() -> Found<()> {
    let mut last = Err("it was not tried".to_owned());
    for arguments in [&["--net"][..], &["--user", "--map-root-user", "--net"]] {
        let mut unshare = Command::new("unshare");
        unshare.args(arguments).arg("true");
        last = said(unshare, "unshare").await.map(|_| ());
        if last.is_ok() {
            break;
        }
    }
    last
}

impl<'a> Program<'a> {
    fn of_trainer(c: &'a TrainerCommand) -> Self {
        Self {
            argv: &c.argv,
            env: &c.env,
            inherit: &c.inherit,
            cwd: &c.cwd,
            user: c.user.as_deref(),
        }
    }

    fn of_agent(c: &'a AgentCommand) -> Self {
        Self {
            argv: &c.argv,
            env: &c.env,
            inherit: &c.inherit,
            cwd: &c.cwd,
            user: c.user.as_deref(),
        }
    }

    fn of_rollout(c: &'a RolloutCommand) -> Self {
        Self {
            argv: &c.argv,
            env: &c.env,
            inherit: &c.inherit,
            cwd: &c.cwd,
            user: c.user.as_deref(),
        }
    }

    fn of_service(s: &'a Service) -> Self {
        Self {
            argv: &s.argv,
            env: &s.env,
            inherit: &s.inherit,
            cwd: &s.cwd,
            user: s.user.as_deref(),
        }
    }

    fn look(&self, at: &str) -> CommandFacts {
        let unset = self.placeholders().into_iter().filter_map(|p| match p {
            Placeholder::Env(name) if std::env::var_os(&name).is_none() => Some(name),
            _ => None,
        });
        CommandFacts {
            at: at.to_owned(),
            program: self.found(),
            unset: unset.collect(),
            hidden: None,
            engine: None,
            tried: None,
        }
    }

    fn placeholders(&self) -> BTreeSet<Placeholder> {
        let texts = self.argv.iter().chain(self.env.values());
        let templates = texts.filter_map(|text| Template::parse(text).ok());
        let each = |t: Template| t.placeholders().cloned().collect::<Vec<_>>();
        templates.flat_map(each).collect()
    }

    /// Its environment, as far as that is known before it is started.
    fn environment(&self) -> BTreeMap<OsString, OsString> {
        let inherited = self.inherit.iter();
        let inherited = inherited.filter_map(|n| Some((n.into(), std::env::var_os(n)?)));
        let own = self.env.iter();
        let own = own.filter_map(|(n, text)| Some((n.into(), filled_in(text).ok()?.into())));
        inherited.chain(own).collect()
    }

    fn found(&self) -> Found<PathBuf> {
        let program = filled_in(self.argv.first().map_or("", String::as_str))?;
        if program.contains('/') {
            let path = self.cwd.join(&program);
            return match is_program(&path) {
                true => Ok(path),
                false => Err(format!("{} is no program", path.display())),
            };
        }
        let environment = self.environment();
        let Some(path) = environment.get(&OsString::from("PATH")) else {
            return Err(format!(
                "{program}: it gets no PATH (`inherit` does not name it)"
            ));
        };
        let mut all = std::env::split_paths(path).map(|folder| folder.join(&program));
        let found = all.find(|path| is_program(path));
        found.ok_or_else(|| format!("{program} is in no folder of PATH"))
    }

    async fn version(&self, path: &Path, kind: EngineKind) -> Found<String> {
        let as_module = self.argv.iter().any(|argument| argument == "-m");
        let python = match as_module {
            true => Some(path.to_owned()),
            false => interpreter(path),
        };
        let mut command = match python {
            Some(python) => {
                let mut command = Command::new(python);
                command.args(["-c", &asks_python(kind)]);
                command
            }
            None => {
                let mut command = Command::new(path);
                command.arg("--version");
                command
            }
        };
        command.env_clear().envs(self.environment());
        if self.cwd.is_dir() {
            command.current_dir(self.cwd);
        }
        let words = said(command, &path.display().to_string()).await?;
        let words = words.trim();
        let version = words.split_whitespace().rfind(|word| is_version(word));
        let version = version.map(|word| word.trim_start_matches('v').to_owned());
        version.ok_or_else(|| format!("{}: it says {words:?}", path.display()))
    }
}

/// What a program printed, within its time.
async fn said(mut command: Command, name: &str) -> Found<String> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(PATIENCE, command.output()).await {
        Ok(output) => output.map_err(|e| format!("{name}: {e}"))?,
        Err(_) => return Err(format!("{name}: no answer within {} s", PATIENCE.as_secs())),
    };
    let Output {
        status,
        stdout,
        stderr,
    } = output;
    let errors = String::from_utf8_lossy(&stderr);
    let last = errors.lines().rfind(|line| !line.trim().is_empty());
    match status.success() {
        true => Ok(String::from_utf8_lossy(&stdout).into_owned()),
        false => Err(format!(
            "{name}: {}",
            last.unwrap_or("it failed and said nothing")
        )),
    }
}

/// A text whose placeholders are all variables.
fn filled_in(text: &str) -> Found<String> {
    let template = Template::parse(text).map_err(|e| e.to_string())?;
    let variable = |p: &Placeholder| match p {
        Placeholder::Env(name) => std::env::var(name).ok(),
        _ => None,
    };
    template
        .expand(&variable)
        .map_err(|e| format!("{text}: {e}"))
}

fn is_program(path: &Path) -> bool {
    let found = std::fs::metadata(path);
    found.is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// The Python that runs a script: its packages say its version without a long import.
fn interpreter(script: &Path) -> Option<PathBuf> {
    use std::io::Read as _;
    let mut first = Vec::new();
    let file = std::fs::File::open(script).ok()?;
    file.take(FIRST_LINE as u64).read_to_end(&mut first).ok()?;
    let line = first.split(|byte| *byte == b'\n').next()?;
    let line = std::str::from_utf8(line).ok()?.strip_prefix("#!")?.trim();
    let path = Path::new(line);
    let name = path.file_name()?.to_str()?;
    (name.starts_with("python") && path.is_absolute()).then(|| path.to_owned())
}

/// vLLM for processors alone is a package of another name.
fn asks_python(kind: EngineKind) -> String {
    let name = kind.name();
    format!(
        "import importlib.metadata as m\nfor n in ('{name}', '{name}-cpu'):\n  try:\n    \
         print(m.version(n)); break\n  except m.PackageNotFoundError:\n    pass\nelse:\n  raise \
         SystemExit('no package {name} is installed')\n"
    )
}

fn is_version(word: &str) -> bool {
    let word = word.trim_start_matches('v');
    word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.')
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn script(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn job(argv: &str, more: &str) -> Job {
        let text = format!(
            "[data]\nprompts='p'\ntokenizer='t'\n[rollout.command]\nkind='vllm'\nargv=[{argv}]\n{more}"
        );
        Job::parse(&text, Path::new("job.toml")).unwrap()
    }

    async fn looked_at(argv: &str, more: &str) -> CommandFacts {
        let job = job(argv, more);
        all(&job, &ProgressBar::hidden()).await.remove(0)
    }

    #[tokio::test]
    async fn a_program_says_its_version_and_its_free_ports() {
        let dir = tempfile::tempdir().unwrap();
        let path = script(dir.path(), "engine", "#!/bin/sh\necho engine v0.32.0\n");
        let held = std::net::TcpListener::bind("0.0.0.0:0").unwrap();
        let port = held.local_addr().unwrap().port();
        let argv = format!("'{}', '--port', '{{port}}'", path.display());
        let more = format!("fixed={port}\n[rollout]\nreplicas=1\n");
        let facts = looked_at(&argv, &more).await;
        assert_eq!(facts.program, Ok(path));
        let engine = facts.engine.unwrap();
        assert_eq!(engine.version, Some(Ok("0.32.0".to_owned())));
        assert_eq!((engine.fixed, engine.taken.len()), (Some((port, port)), 1));
        assert_eq!((engine.socket, engine.replicas), (false, 1));
    }

    #[tokio::test]
    async fn a_script_of_python_is_asked_for_its_package() {
        let dir = tempfile::tempdir().unwrap();
        let says = "#!/bin/sh\n[ \"$1\" = -c ] && echo 0.31.0\n";
        let python = script(dir.path(), "python3.12", says);
        let line = format!("#!{}\nimport vllm\n", python.display());
        let path = script(dir.path(), "vllm", &line);
        assert_eq!(interpreter(&path), Some(python));
        let argv = format!("'{}', '--uds={{uds}}'", path.display());
        let engine = looked_at(&argv, "").await.engine.unwrap();
        assert_eq!(engine.version, Some(Ok("0.31.0".to_owned())));
        assert!(engine.socket && engine.taken.is_empty() && engine.fixed.is_none());
    }

    #[tokio::test]
    async fn what_is_not_there_is_named() {
        let more =
            "inherit=['HOME']\n[service.judge]\nargv=['./judge', '{env:NO_SUCH_VARIABLE_1}']\n";
        let job = job("'no-such-engine', '{port}'", more);
        let found = all(&job, &ProgressBar::hidden()).await;
        let why = found[0].program.clone().unwrap_err();
        assert_eq!(
            why,
            "no-such-engine: it gets no PATH (`inherit` does not name it)"
        );
        assert_eq!(found[0].engine.as_ref().unwrap().version, None);
        assert_eq!(
            (found[1].at.as_str(), found[1].program.is_err()),
            ("service.judge", true)
        );
        assert_eq!(found[1].unset, ["NO_SUCH_VARIABLE_1"]);
    }
}
