//! The user's processes: from the job file's command to a program that runs.

mod rank;

pub use rank::{AsStarted, OfTrainer};

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use robust_proto::ENGINES_KEY_VARIABLE;
use robust_shared::ids::InstanceId;
use robust_shared::job::{
    AgentCommand, DEVICES_VARIABLE, Isolate, Job, Missing, Placeholder, RolloutCommand, Service,
    Stop, StopSignal, Template, TemplateError,
};
use robust_tree::{
    Child, ChildSpec, ENGINE_VARIABLE, EndPlan, Hidden, Signal, User, UserError, Way, lend_ports,
    permitted,
};

use crate::connect::Address;
use crate::gang::{Member, UNTIL_ATTACHED};
use crate::home::Home;
use crate::sight::{Sight, SightError};

/// How long killed processes may take to go.
const KILLED: Duration = Duration::from_secs(10);

/// The program could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A text of the command is no template; the job file is checked, so it was changed since.
    #[error("{at}: {source}")]
    Template {
        /// The table of the job file.
        at: String,
        /// What is wrong with the text.
        source: TemplateError,
    },
    /// A placeholder has no value here.
    #[error("{at}: {source}")]
    Missing {
        /// The table of the job file.
        at: String,
        /// Which.
        source: Missing,
    },
    /// There is no free port.
    #[error("no port can be lent to the engine: {0}")]
    Ports(#[source] io::Error),
    /// The job file wants a network of its own for the engine, which may not be made here.
    #[error(
        "rollout.command.isolate is \"netns\", and {0}; run robustd as root, or write \"auto\""
    )]
    NotIsolated(#[from] robust_tree::NotPermitted),
    /// The job file wants the environment to reach nothing, and a network of its own may not be made here.
    #[error(
        "agent.command.network is false, and {0}; run robustd as root, or let the program reach the network"
    )]
    NotCutOff(#[source] robust_tree::NotPermitted),
    /// The job file wants a Unix socket, and the command does not say where.
    #[error("rollout.command.isolate is \"uds\", and no argument has `{{uds}}`")]
    NoSocket,
    /// The folder of its own cannot be made.
    #[error("its folder {}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no such user.
    #[error("{at}.user: {source}")]
    User {
        /// The table of the job file.
        at: String,
        /// Why not.
        source: UserError,
    },
    /// What it is to see cannot be had.
    #[error(transparent)]
    Sight(#[from] SightError),
    /// The output of the program has nowhere to go.
    #[error("the program's output: {0}")]
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
    address: Option<Reached>,
    user: Option<User>,
    hidden: Option<Hidden>,
}

/// A program as a table of the job file describes it.
struct Program<'a> {
    at: String,
    argv: &'a [String],
    env: &'a BTreeMap<String, String>,
    inherit: &'a [String],
    cwd: &'a PathBuf,
    user: Option<&'a String>,
}

/// What the placeholders of a command say.
struct Values<'a> {
    job: &'a Job,
    index: u32,
    incarnation: u64,
    slots: u32,
    ports: &'a [u16],
    bind: IpAddr,
    advertise: IpAddr,
    state: PathBuf,
    shm: PathBuf,
    socket: Option<PathBuf>,
    rollouts: Option<String>,
    /// Those of its slots, else those that robustd was given.
    devices: Option<String>,
    /// A rank's place in its gang.
    member: Option<&'a Member>,
    generation: u64,
    /// Its place is not known yet: nothing of it has a value.
    waits: bool,
}

/// A life of an engine or of an agent worker, as its shim was told of it.
#[derive(Debug, Clone, Copy)]
pub struct OfReplica<'a> {
    /// The job.
    pub job: &'a Job,
    /// Which of its kind.
    pub index: u32,
    /// Which life of it.
    pub incarnation: u64,
    /// A folder of its own on the disk.
    pub folder: &'a Path,
    /// Where others reach its shim.
    pub advertise: IpAddr,
}

/// A service's process, as its shim was told of it.
#[derive(Debug, Clone, Copy)]
pub struct OfService<'a> {
    /// The job.
    pub job: &'a Job,
    /// The service's name.
    pub name: &'a str,
    /// Which of its processes.
    pub index: u32,
    /// Which life of it.
    pub incarnation: u64,
    /// The ports that it was lent.
    pub ports: &'a [u16],
    /// Where it listens, and others reach it.
    pub bind: IpAddr,
    /// A folder of its own on the disk.
    pub folder: &'a PathBuf,
}

/// Where the program listens.
#[derive(Debug, Clone)]
enum Reached {
    Port(u16),
    Socket(PathBuf),
}

impl Command {
    /// Fills the command of the job file in for this incarnation.
    pub fn of(
        of: &OfReplica<'_>,
        command: &RolloutCommand,
        home: &Home,
    ) -> Result<Self, StartError> {
        let uses_socket = command.argv.iter().any(|text| text.contains("{uds}"));
        let network = match command.isolate {
            Isolate::Uds if !uses_socket => return Err(StartError::NoSocket),
            Isolate::Netns => Some(permitted()?),
            Isolate::Auto if !uses_socket => permitted().ok(),
            _ => None,
        };
        let ports = lend_ports(command.ports.max(1), Ipv4Addr::LOCALHOST.into())
            .map_err(StartError::Ports)?;
        let values = Values {
            job: of.job,
            index: of.index,
            incarnation: of.incarnation,
            slots: command.slots,
            ports: &ports,
            // The engine itself is reached by its shim only.
            bind: Ipv4Addr::LOCALHOST.into(),
            advertise: of.advertise,
            state: of.folder.to_owned(),
            shm: home.run(),
            socket: Some(home.socket()),
            rollouts: None,
            devices: devices(),
            member: None,
            generation: 0,
            waits: false,
        };
        let program = Program {
            at: "rollout.command".to_owned(),
            argv: &command.argv,
            env: &command.env,
            inherit: &command.inherit,
            cwd: &command.cwd,
            user: command.user.as_ref(),
        };
        let address = Some(match uses_socket {
            true => Reached::Socket(home.socket()),
            false => Reached::Port(ports[0]),
        });
        Self::fill(&program, &values, (network, address), home)
    }

    /// Fills the command of the agents in for a life of one of the workers.
    pub fn of_agent(
        of: &OfReplica<'_>,
        command: &AgentCommand,
        home: &Home,
    ) -> Result<Self, StartError> {
        let values = Values {
            job: of.job,
            index: of.index,
            incarnation: of.incarnation,
            slots: 1,
            ports: &[],
            bind: of.advertise,
            advertise: of.advertise,
            state: of.folder.to_owned(),
            shm: home.run(),
            socket: None,
            rollouts: None,
            devices: devices(),
            member: None,
            generation: 0,
            waits: false,
        };
        let program = Program {
            at: "agent.command".to_owned(),
            argv: &command.argv,
            env: &command.env,
            inherit: &command.inherit,
            cwd: &command.cwd,
            user: command.user.as_ref(),
        };
        // One in which nothing else is: what the program says goes through the socket, which is a file.
        let network = match command.network {
            true => None,
            false => Some(permitted().map_err(StartError::NotCutOff)?),
        };
        let mut filled = Self::fill(&program, &values, (network, None), home)?;
        let own = [
            ("PYTHONUNBUFFERED", "1".to_owned()),
            ("ROBUST_SOCKET", home.socket().display().to_string()),
            ("ROBUST_INDEX", of.index.to_string()),
            ("ROBUST_INCARNATION", of.incarnation.to_string()),
        ];
        let own = own.map(|(key, text)| (key.into(), text.into()));
        // Before its own: who says otherwise in `env` is heard.
        filled.env.splice(0..0, own);
        Ok(filled)
    }

    /// Fills the command of a service in for a life of one of its processes.
    pub fn of_service(
        of: &OfService<'_>,
        service: &Service,
        home: &Home,
    ) -> Result<Self, StartError> {
        let values = Values {
            job: of.job,
            index: of.index,
            incarnation: of.incarnation,
            slots: service.slots,
            ports: of.ports,
            bind: of.bind,
            advertise: of.bind,
            state: of.folder.clone(),
            shm: home.run(),
            socket: None,
            rollouts: rollouts(of.job, of.bind),
            devices: devices(),
            member: None,
            generation: 0,
            waits: false,
        };
        let program = Program {
            at: format!("service.{}", of.name),
            argv: &service.argv,
            env: &service.env,
            inherit: &service.inherit,
            cwd: &service.cwd,
            user: service.user.as_ref(),
        };
        Self::fill(&program, &values, (None, None), home)
    }

    /// The user that the command in this table of the job file runs as, where it names one.
    pub fn user_of(at: &str, name: Option<&String>) -> Result<Option<User>, StartError> {
        let user = name.map(|name| User::find(name)).transpose();
        user.map_err(|source| StartError::User {
            at: at.to_owned(),
            source,
        })
    }

    fn fill(
        program: &Program<'_>,
        values: &Values<'_>,
        (network, address): (Option<Way>, Option<Reached>),
        home: &Home,
    ) -> Result<Self, StartError> {
        let addresses = addresses();
        let expand = |text: &String| -> Result<String, StartError> {
            let at = || program.at.clone();
            let template = Template::parse(text);
            let template = template.map_err(|source| StartError::Template { at: at(), source })?;
            if values.waits && !template.placeholders().all(Placeholder::is_common) {
                return Ok(UNTIL_ATTACHED.to_owned());
            }
            let filled = template.expand(&|placeholder| values.of(placeholder, &addresses));
            filled.map_err(|source| StartError::Missing { at: at(), source })
        };
        let argv = program.argv.iter().map(expand).collect::<Result<_, _>>()?;
        let mut set = BTreeMap::new();
        for (name, text) in program.env {
            set.insert(name.clone(), expand(text)?);
        }
        let inherited = |name: &String| Some((name.into(), std::env::var_os(name)?));
        let mut env: Vec<(OsString, OsString)> =
            program.inherit.iter().filter_map(inherited).collect();
        let user = Self::user_of(&program.at, program.user)?;
        // Before its own: who says otherwise in `env` is heard.
        env.extend(user.iter().flat_map(User::environment));
        let devices = values.devices.as_ref();
        env.extend(devices.map(|of| (DEVICES_VARIABLE.into(), of.into())));
        let engines = std::env::var_os(ENGINES_KEY_VARIABLE).map(|path| match values.waits {
            true => OsString::from(UNTIL_ATTACHED),
            false => path,
        });
        env.extend(engines.map(|path| (ENGINES_KEY_VARIABLE.into(), path)));
        env.extend(
            set.into_iter()
                .map(|(name, text)| (name.into(), text.into())),
        );
        env.push((ENGINE_VARIABLE.into(), home.owner().to_owned()));
        Ok(Self {
            argv,
            env,
            cwd: program.cwd.clone(),
            network,
            address,
            user,
            hidden: None,
        })
    }

    /// With what it does not see of the job's files, and as whom it runs.
    pub fn with(mut self, sight: &Sight<'_>) -> Result<Self, StartError> {
        self.hidden = sight.hidden(self.user.as_ref(), &self.cwd, &mut self.env)?;
        if let Some(user) = &self.user {
            let env = self.env.iter().map(|(_, value)| value.as_os_str());
            sight.lets_read(user, self.argv.iter().map(OsStr::new).chain(env))?;
        }
        Ok(self)
    }

    /// Starts it, and says where it listens, if the shim is to know. Its output goes where this
    /// process's errors go: to the instance's log.
    pub fn start(self) -> Result<(Child, Option<Address>), StartError> {
        self.start_with(None)
    }

    /// The same with a descriptor that it inherits.
    fn start_with(self, beside: Option<OwnedFd>) -> Result<(Child, Option<Address>), StartError> {
        let log = || io::stderr().as_fd().try_clone_to_owned();
        let (stdout, stderr) = log()
            .and_then(|out| Ok((out, log()?)))
            .map_err(StartError::Output)?;
        tracing::info!(
            argv = ?self.argv,
            network = ?self.network,
            state_hidden = self.hidden.is_some(),
            "starting the program"
        );
        let mut child = Child::start(ChildSpec {
            argv: self.argv,
            env: self.env,
            cwd: self.cwd,
            stdout,
            stderr,
            network: self.network,
            hidden: self.hidden,
            beside,
        })?;
        let local = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
        let network = child.take_namespace();
        let address = self.address.map(|reached| match (reached, network) {
            (Reached::Socket(path), _) => Address::Unix(path),
            (Reached::Port(port), Some(network)) => {
                Address::Namespace(Arc::new(network), local(port))
            }
            (Reached::Port(port), None) => Address::Tcp(local(port)),
        });
        Ok((child, address))
    }
}

/// A folder on the disk that is this instance's own over all its lives, beside the socket of the daemon.
pub fn own_folder(socket: &Path, id: InstanceId) -> Result<PathBuf, StartError> {
    folder_of(socket.parent().unwrap_or(Path::new(".")), id)
}

/// The same in this state directory.
pub fn folder_of(state: &Path, id: InstanceId) -> Result<PathBuf, StartError> {
    let folder = state.join("own").join(id.to_string());
    let mut private = std::fs::DirBuilder::new();
    let made = private.recursive(true).mode(0o700).create(&folder);
    made.map_err(|source| StartError::Folder {
        path: folder.clone(),
        source,
    })?;
    Ok(folder)
}

/// How a program is ended when nothing is wrong with it.
pub fn gently(stop: &Stop) -> EndPlan {
    EndPlan {
        signal: match stop.signal {
            StopSignal::Term => Signal::TERM,
            StopSignal::Int => Signal::INT,
            StopSignal::Quit => Signal::QUIT,
            StopSignal::Hup => Signal::HUP,
            StopSignal::Usr1 => Signal::USR1,
            StopSignal::Usr2 => Signal::USR2,
            StopSignal::Kill => Signal::KILL,
        },
        grace: stop.grace(),
        bound: KILLED,
    }
}

/// How what is left of a broken program is ended.
pub fn at_once() -> EndPlan {
    EndPlan {
        grace: Duration::ZERO,
        bound: KILLED,
        ..EndPlan::default()
    }
}

/// The devices that this process was given: its program gets them whatever `inherit` says.
pub(crate) fn devices() -> Option<String> {
    robust_role::spare::variable(DEVICES_VARIABLE)
}

/// The addresses of the job's services by name, as the daemon tells them.
fn addresses() -> BTreeMap<String, String> {
    let told = std::env::var(robust_proto::SERVICES_VARIABLE).unwrap_or_default();
    serde_json::from_str(&told).unwrap_or_default()
}

/// The addresses of all rollouts for clients, where the job fixes them.
fn rollouts(job: &Job, host: IpAddr) -> Option<String> {
    let command = job.rollout.command.as_ref()?;
    let address = |index| Some(SocketAddr::new(host, command.fixed_port(index)?).to_string());
    let all: Option<Vec<String>> = (0..job.rollout.replicas).map(address).collect();
    Some(all?.join(","))
}

impl Values<'_> {
    fn of(&self, placeholder: &Placeholder, services: &BTreeMap<String, String>) -> Option<String> {
        let shown = |path: &PathBuf| path.display().to_string();
        match placeholder {
            Placeholder::Index => Some(self.index.to_string()),
            Placeholder::Incarnation => Some(self.incarnation.to_string()),
            Placeholder::Generation => Some(self.generation.to_string()),
            Placeholder::Rank => self.member.map(|m| m.rank.to_string()),
            Placeholder::WorldSize => self.member.map(|m| m.world_size.to_string()),
            Placeholder::LocalRank => self.member.map(|m| m.local_rank.to_string()),
            Placeholder::MasterAddr => self.member.map(|m| m.master.ip().to_string()),
            Placeholder::MasterPort => self.member.map(|m| m.master.port().to_string()),
            Placeholder::Slots => Some(self.slots.to_string()),
            Placeholder::Devices => Some(self.devices.clone().unwrap_or_default()),
            Placeholder::Port(number) => self.ports.get(*number as usize).map(u16::to_string),
            Placeholder::Bind => Some(self.bind.to_string()),
            Placeholder::Advertise => Some(self.advertise.to_string()),
            Placeholder::Model => self.job.model.path.as_ref().map(shown),
            Placeholder::Job => Some(self.job.job.name.clone()),
            Placeholder::State => Some(shown(&self.state)),
            Placeholder::Shm => Some(shown(&self.shm)),
            Placeholder::Uds => self.socket.as_ref().map(shown),
            Placeholder::Service(name) => services.get(name).cloned(),
            Placeholder::Rollouts => self.rollouts.clone(),
            Placeholder::Env(name) => std::env::var(name).ok(),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::path::Path;

    #[test]
    fn a_services_command_is_filled_in_with_its_own_ports_and_the_rollouts_fixed_ones() {
        let text = "[data]\nprompts='p'\ntokenizer='t'\n[job]\nname='j'\n\
                    [rollout]\nreplicas=2\n\
                    [rollout.command]\nkind='robust'\nargv=['e', '{port}']\nfixed=31000\n\
                    [service.judge]\nports=2\ninherit=[]\n\
                    argv=['j', '{bind}:{port}', '{port1}', '{index}/{incarnation}', '{rollouts}', '{state}']\n\
                    env={ A='{job}' }\n";
        let job = Job::parse(text, Path::new("job.toml")).unwrap();
        let home = Home::of(Path::new("/snapshots"), "service-judge-0");
        let of = OfService {
            job: &job,
            name: "judge",
            index: 1,
            incarnation: 7,
            ports: &[20001, 20002],
            bind: Ipv4Addr::LOCALHOST.into(),
            folder: &PathBuf::from("/own"),
        };
        let filled = Command::of_service(&of, &job.services["judge"], &home).unwrap();
        assert_eq!(
            filled.argv,
            [
                "j",
                "127.0.0.1:20001",
                "20002",
                "1/7",
                "127.0.0.1:31000,127.0.0.1:31001",
                "/own"
            ]
        );
        assert_eq!(filled.env[0], ("A".into(), "j".into()));
        let mut service = job.services["judge"].clone();
        service.argv.push("{service.other}".to_owned());
        let refused = Command::of_service(&of, &service, &home).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "service.judge: there is no value for `{service.other}`"
        );
    }
}
