//! Real members of etcd for tests: on free ports of the loopback address or in network namespaces, in a folder that goes
//! with them. A test kills them, freezes them and starts them again by their index, and none outlives the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, kill_process, set_parent_process_death_signal, waitid,
};
use tempfile::TempDir;

mod papers;

pub use papers::Papers;

/// The version that scripts/etcd.sh fetches.
const VERSION: &str = "3.4.23-4+b4";
/// Until all members answer: two cores are shared with other tests.
const HEALTHY_WITHIN: Duration = Duration::from_secs(30);
/// A port that was free may be taken when a member comes to it.
const TRIES: usize = 3;

/// The programs, as scripts/etcd.sh lays them.
#[derive(Clone, Debug)]
struct Programs {
    etcd: PathBuf,
    etcdctl: PathBuf,
}

/// What is spoken with the members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    /// `http://`
    Plain,
    /// `https://`, and both sides show a certificate of one authority.
    Certified,
}

/// A machine with a network of its own, on which a member runs.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Its address.
    pub address: String,
    /// What starts a program on it.
    pub command: Vec<String>,
}

/// The members of one etcd, killed when this is dropped.
#[derive(Debug)]
pub struct Cluster {
    programs: Programs,
    folder: TempDir,
    papers: Option<Papers>,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    address: String,
    client: u16,
    peer: u16,
    /// What starts a program where it runs.
    command: Vec<String>,
    process: Option<Child>,
}

impl Cluster {
    /// Starts so many members, and waits until they answer. None, which is said, where etcd is not there.
    ///
    /// # Panics
    /// Where they do not answer in time: what they wrote is in the message.
    #[must_use]
    pub fn start(members: usize, wire: Wire) -> Option<Self> {
        let programs = programs()?;
        for _ in 1..TRIES {
            if let Ok(cluster) = Self::try_start(&programs, members, wire) {
                return Some(cluster);
            }
        }
        let started = Self::try_start(&programs, members, wire);
        Some(started.unwrap_or_else(|said| panic!("etcd does not come up:\n{said}")))
    }

    /// Starts a member on each of these machines, without certificates, and waits until they answer. None, which is said,
    /// where etcd is not there.
    ///
    /// # Panics
    /// Where they do not answer in time: what they wrote is in the message.
    #[must_use]
    pub fn start_on(machines: &[Machine]) -> Option<Self> {
        Self::started_on(machines, None)
    }

    /// The same with certificates, for the machines' addresses and these names.
    ///
    /// # Panics
    /// Where they do not answer in time: what they wrote is in the message.
    #[must_use]
    pub fn start_certified_on(machines: &[Machine], names: &[String]) -> Option<Self> {
        let addresses = machines.iter().map(|machine| machine.address.clone());
        let names: Vec<String> = addresses.chain(names.iter().cloned()).collect();
        Self::started_on(machines, Some(&names))
    }

    fn started_on(machines: &[Machine], certified: Option<&[String]>) -> Option<Self> {
        let programs = programs()?;
        let members = machines.iter().map(|machine| Member {
            address: machine.address.clone(),
            // Nobody else has ports there.
            client: 2379,
            peer: 2380,
            command: machine.command.clone(),
            process: None,
        });
        let started = Self::start_members(&programs, members.collect(), certified);
        Some(started.unwrap_or_else(|said| panic!("etcd does not come up:\n{said}")))
    }

    fn try_start(programs: &Programs, members: usize, wire: Wire) -> Result<Self, String> {
        let ports = free_ports(2 * members);
        let members = ports.chunks(2).map(|pair| Member {
            address: Ipv4Addr::LOCALHOST.to_string(),
            client: pair[0],
            peer: pair[1],
            command: Vec::new(),
            process: None,
        });
        let names = papers::HERE.map(str::to_owned);
        let certified = (wire == Wire::Certified).then_some(&names[..]);
        Self::start_members(programs, members.collect(), certified)
    }

    fn start_members(
        programs: &Programs,
        members: Vec<Member>,
        certified: Option<&[String]>,
    ) -> Result<Self, String> {
        let folder = tempfile::Builder::new()
            .prefix("robust-etcd-")
            .tempdir()
            .unwrap();
        let mut cluster = Self {
            programs: programs.clone(),
            papers: certified.map(|names| Papers::make(folder.path(), "etcd", names)),
            members,
            folder,
        };
        for index in 0..cluster.members.len() {
            cluster.run(index);
        }
        cluster.wait_until_healthy()?;
        Ok(cluster)
    }

    /// Where clients find the members, by their index.
    #[must_use]
    pub fn endpoints(&self) -> Vec<String> {
        let each = self.members.iter().map(|member| self.url(member));
        each.collect()
    }

    /// With what a client proves itself, where that is asked for.
    #[must_use]
    pub fn papers(&self) -> Option<&Papers> {
        self.papers.as_ref()
    }

    /// The same by an authority that the members do not know, except that theirs is believed.
    #[must_use]
    pub fn foreign_papers(&self) -> Option<Papers> {
        let ours = self.papers.as_ref()?;
        let names = papers::HERE.map(str::to_owned);
        let foreign = Papers::make(self.folder.path(), "foreign", &names);
        Some(Papers {
            authority: ours.authority.clone(),
            ..foreign
        })
    }

    /// Kills a member, as a power cut would except that what it wrote is not lost.
    pub fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill().unwrap();
            process.wait().unwrap();
        }
    }

    /// Starts a member that was killed, with what it had written. Returns at once.
    pub fn restart(&mut self, index: usize) {
        self.kill(index);
        self.run(index);
    }

    /// Stops a member in the middle of whatever it does. Returns once it does nothing any more: on a busy machine its
    /// threads go on for a while after the signal.
    ///
    /// # Panics
    /// Where it does not stop, as one that has ended.
    pub fn freeze(&self, index: usize) {
        self.signal(index, Signal::STOP);
        let process = self.members[index].process.as_ref().unwrap();
        let begun = Instant::now();
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::NOHANG;
        while waitid(WaitId::Pid(Pid::from_child(process)), stopped)
            .unwrap()
            .is_none()
        {
            assert!(begun.elapsed() < HEALTHY_WITHIN, "a member does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Lets a frozen member go on.
    pub fn thaw(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    /// Which member leads the others.
    ///
    /// # Panics
    /// Where none does within a time.
    #[must_use]
    pub fn leader(&self) -> usize {
        let begun = Instant::now();
        while begun.elapsed() < HEALTHY_WITHIN {
            let found = (0..self.members.len()).find(|index| self.leads(*index));
            if let Some(found) = found {
                return found;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("no member leads the others");
    }

    /// Forgets what was before a revision.
    ///
    /// # Panics
    /// Where that does not work.
    pub fn compact(&self, revision: i64) {
        let done = self.control(0, &self.endpoints(), &["compact", &revision.to_string()]);
        assert!(done.status.success(), "{done:?}");
    }

    fn leads(&self, index: usize) -> bool {
        let endpoint = self.url(&self.members[index]);
        let status = self.control(
            index,
            &[endpoint],
            &["endpoint", "status", "--write-out=simple"],
        );
        // endpoint, id, version, size, whether it leads, ..
        let said = String::from_utf8_lossy(&status.stdout).into_owned();
        said.split(", ").nth(4) == Some("true")
    }

    fn url(&self, member: &Member) -> String {
        let scheme = self.papers.as_ref().map_or("http", |_| "https");
        format!("{scheme}://{}:{}", member.address, member.client)
    }

    fn signal(&self, index: usize, signal: Signal) {
        if let Some(process) = &self.members[index].process {
            kill_process(Pid::from_child(process), signal).unwrap();
        }
    }

    fn log(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("m{index}.log"))
    }

    fn run(&mut self, index: usize) {
        let member = &self.members[index];
        let peers = self.members.iter().enumerate();
        let at = |m: &Member| format!("http://{}:{}", m.address, m.peer);
        let peers = peers.map(|(n, m)| format!("m{n}={}", at(m)));
        let (client, peer) = (self.url(member), at(member));
        let log = std::fs::File::options()
            .append(true)
            .create(true)
            .open(self.log(index));
        let log = log.unwrap();
        let mut command = started_by(&member.command, &self.programs.etcd);
        command
            .args(["--name", &format!("m{index}"), "--data-dir"])
            .arg(self.folder.path().join(format!("m{index}")))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--initial-cluster", &peers.collect::<Vec<_>>().join(",")])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(["--log-level", "warn", "--logger", "zap"])
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        if let Some(papers) = &self.papers {
            command
                .arg("--cert-file")
                .arg(&papers.certificate)
                .arg("--key-file")
                .arg(&papers.key)
                .arg("--trusted-ca-file")
                .arg(&papers.authority)
                .arg("--client-cert-auth");
        }
        self.members[index].process = Some(spawn(&mut command));
    }

    fn wait_until_healthy(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let health = self.control(0, &self.endpoints(), &["endpoint", "health"]);
            if health.status.success() {
                return Ok(());
            }
            let mut all = self.members.iter_mut();
            let ended = all.any(|m| {
                m.process
                    .as_mut()
                    .is_some_and(|p| p.try_wait().unwrap().is_some())
            });
            if ended || begun.elapsed() > HEALTHY_WITHIN {
                let logs = (0..self.members.len()).map(|index| self.log(index));
                let logs = logs.map(|log| std::fs::read_to_string(log).unwrap_or_default());
                return Err(logs.collect());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What etcdctl says where this member runs.
    fn control(&self, from: usize, endpoints: &[String], arguments: &[&str]) -> Output {
        let mut command = started_by(&self.members[from].command, &self.programs.etcdctl);
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints.join(","), "--dial-timeout", "2s"])
            .args(["--command-timeout", "2s"]);
        if let Some(papers) = &self.papers {
            command
                .arg("--cert")
                .arg(&papers.certificate)
                .arg("--key")
                .arg(&papers.key)
                .arg("--cacert")
                .arg(&papers.authority);
        }
        command.args(arguments).output().unwrap()
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for index in 0..self.members.len() {
            self.kill(index);
        }
    }
}

/// A program that is started by this command line, or by itself where that is empty.
fn started_by(command: &[String], program: &Path) -> Command {
    let Some((first, rest)) = command.split_first() else {
        return Command::new(program);
    };
    let mut started = Command::new(first);
    started.args(rest).arg(program);
    started
}

fn programs() -> Option<Programs> {
    let folder = robust_needs::cache().join(format!("etcd-{VERSION}"));
    let programs = Programs {
        etcd: folder.join("etcd"),
        etcdctl: folder.join("etcdctl"),
    };
    let there = [&programs.etcd, &programs.etcdctl];
    if there
        .into_iter()
        .all(|program| robust_needs::is_program(program))
    {
        return Some(programs);
    }
    let missing = format!("there is no etcd in {}", display(&folder));
    robust_needs::skip(missing, robust_needs::SETUP);
    None
}

fn display(path: &Path) -> String {
    path.display().to_string()
}

/// All of them held until the last one is found, so that no two are the same.
fn free_ports(count: usize) -> Vec<u16> {
    let held = (0..count).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let held: Vec<_> = held.collect();
    held.iter()
        .map(|held| held.local_addr().unwrap().port())
        .collect()
}

/// A child that ends with the thread that started it, whatever becomes of that.
fn spawn(command: &mut Command) -> Child {
    let die_with_this = || Ok(set_parent_process_death_signal(Some(Signal::KILL))?);
    // SAFETY: one system call, nothing is allocated.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(die_with_this);
    }
    command.spawn().unwrap()
}
