//! The engine's processes: from the job file's command to a tree that is watched.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use robust_role::RoleArgs;
use robust_shared::job::{
    Isolate, Missing, Placeholder, RolloutCommand, StopSignal, Template, TemplateError,
};
use robust_tree::{Child, ChildSpec, EndPlan, Signal, Way, permitted};

use crate::connect::Address;
use crate::home::{ENGINE_VARIABLE, Home};

/// How long killed processes may take to go.
const KILLED: Duration = Duration::from_secs(10);

/// The engine could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A text of the command is no template; the job file is checked, so it was changed since.
    #[error("rollout.command: {0}")]
    Template(#[from] TemplateError),
    /// A placeholder has no value here.
    #[error("rollout.command: {0}")]
    Missing(#[from] Missing),
    /// There is no free port.
    #[error("no port can be lent to the engine: {0}")]
    Ports(#[source] io::Error),
    /// The job file wants a network of its own for the engine, which may not be made here.
    #[error(
        "rollout.command.isolate is \"netns\", and {0}; run robustd as root, or write \"auto\""
    )]
    NotIsolated(#[from] robust_tree::NotPermitted),
    /// The job file wants a Unix socket, and the command does not say where.
    #[error("rollout.command.isolate is \"uds\", and no argument has `{{uds}}`")]
    NoSocket,
    /// The output of the engine has nowhere to go.
    #[error("the engine's output: {0}")]
    Output(#[source] io::Error),
    /// The program does not start.
    #[error(transparent)]
    Child(#[from] robust_tree::StartError),
}

/// What is started, and where it will listen.
#[derive(Debug)]
pub struct Command {
    argv: Vec<String>,
    env: Vec<(OsString, OsString)>,
    cwd: PathBuf,
    network: Option<Way>,
    address: Reached,
}

/// Where the engine listens.
#[derive(Debug, Clone)]
enum Reached {
    Port(u16),
    Socket(PathBuf),
}

impl Command {
    /// Fills the command of the job file in for this incarnation.
    pub fn of(args: &RoleArgs, command: &RolloutCommand, home: &Home) -> Result<Self, StartError> {
        let uses_socket = command.argv.iter().any(|text| text.contains("{uds}"));
        let network = match command.isolate {
            Isolate::Uds if !uses_socket => return Err(StartError::NoSocket),
            Isolate::Netns => Some(permitted()?),
            Isolate::Auto if !uses_socket => permitted().ok(),
            _ => None,
        };
        let ports = lend(command.ports.max(1)).map_err(StartError::Ports)?;
        let value = |placeholder: &Placeholder| value(placeholder, args, command, home, &ports);
        let expand = |text: &String| -> Result<String, StartError> {
            Ok(Template::parse(text)?.expand(&value)?)
        };
        let argv = command.argv.iter().map(expand).collect::<Result<_, _>>()?;
        let mut set = BTreeMap::new();
        for (name, text) in &command.env {
            set.insert(name.clone(), expand(text)?);
        }
        let inherited = |name: &String| Some((name.into(), std::env::var_os(name)?));
        let mut env: Vec<(OsString, OsString)> =
            command.inherit.iter().filter_map(inherited).collect();
        env.extend(
            set.into_iter()
                .map(|(name, text)| (name.into(), text.into())),
        );
        env.push((ENGINE_VARIABLE.into(), home.owner().to_owned()));
        Ok(Self {
            argv,
            env,
            cwd: command.cwd.clone(),
            network,
            address: match uses_socket {
                true => Reached::Socket(home.socket()),
                false => Reached::Port(ports[0]),
            },
        })
    }

    /// Starts it. Its output goes where this process's errors go: to the instance's log.
    pub fn start(self) -> Result<(Child, Address), StartError> {
        let log = || io::stderr().as_fd().try_clone_to_owned();
        let (stdout, stderr) = log()
            .and_then(|out| Ok((out, log()?)))
            .map_err(StartError::Output)?;
        tracing::info!(argv = ?self.argv, network = ?self.network, "starting the engine");
        let mut child = Child::start(ChildSpec {
            argv: self.argv,
            env: self.env,
            cwd: self.cwd,
            stdout,
            stderr,
            network: self.network,
        })?;
        let local = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let address = match (self.address, child.take_namespace()) {
            (Reached::Socket(path), _) => Address::Unix(path),
            (Reached::Port(port), Some(network)) => {
                Address::Namespace(Arc::new(network), local(port))
            }
            (Reached::Port(port), None) => Address::Tcp(local(port)),
        };
        Ok((child, address))
    }
}

/// How the engine is ended when nothing is wrong with it.
pub fn gently(command: &RolloutCommand) -> EndPlan {
    EndPlan {
        signal: match command.stop.signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
            StopSignal::Hup => Signal::HUP,
            StopSignal::Usr1 => Signal::USR1,
            StopSignal::Usr2 => Signal::USR2,
            StopSignal::Kill => Signal::KILL,
        },
        grace: command.stop.grace(),
        bound: KILLED,
    }
}

/// Ports that are free now. Nobody keeps them for the engine; the kernel lends others first.
fn lend(count: u32) -> io::Result<Vec<u16>> {
    let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 0);
    let held = (0..count)
        .map(|_| TcpListener::bind(local))
        .collect::<io::Result<Vec<_>>>()?;
    held.iter()
        .map(|held| Ok(held.local_addr()?.port()))
        .collect()
}

fn value(
    placeholder: &Placeholder,
    args: &RoleArgs,
    command: &RolloutCommand,
    home: &Home,
    ports: &[u16],
) -> Option<String> {
    let shown = |path: PathBuf| Some(path.display().to_string());
    match placeholder {
        Placeholder::Index => Some(args.index.to_string()),
        Placeholder::Incarnation => Some(args.incarnation.to_string()),
        Placeholder::Slots => Some(command.slots.to_string()),
        Placeholder::Devices => Some(std::env::var("CUDA_VISIBLE_DEVICES").unwrap_or_default()),
        Placeholder::Port(number) => ports.get(*number as usize).map(u16::to_string),
        // The engine itself is reached by its shim only.
        Placeholder::Bind => Some(Ipv4Addr::LOCALHOST.to_string()),
        Placeholder::Advertise => Some(args.bind.to_string()),
        Placeholder::Model => shown(args.job.model.path.clone()?),
        Placeholder::Job => Some(args.job.job.name.clone()),
        Placeholder::State | Placeholder::Shm => shown(home.run()),
        Placeholder::Uds => shown(home.socket()),
        Placeholder::Env(name) => std::env::var(name).ok(),
        _ => None,
    }
}
