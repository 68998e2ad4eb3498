//! A real Slurm for tests: one slurmctld and a slurmd for each machine, all on the loopback address, in a folder that goes
//! with them. A machine is lost by its name: its slurmd, its steps and all that these started are killed. Nothing that a
//! job of it started outlives the test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tempfile::TempDir;

/// The version that scripts/slurm.sh fetches.
const VERSION: &str = "22.05.8-4+deb12u3";
/// Until all machines are idle: two cores are shared with other tests.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// A port that was free may be taken when a daemon comes to it.
const TRIES: usize = 3;

/// A Slurm cluster; killed when this is dropped, with its jobs.
#[derive(Debug)]
pub struct Slurm {
    home: PathBuf,
    folder: TempDir,
    control: Option<Child>,
    machines: Vec<Option<Child>>,
}

impl Slurm {
    /// Starts one with so many machines, `n1` and so on, and waits until they are idle. None, which is said, where there is
    /// no Slurm.
    ///
    /// # Panics
    /// Where they are not idle in time: what they wrote is in the message.
    #[must_use]
    pub fn start(machines: usize) -> Option<Self> {
        let home = home()?;
        for _ in 1..TRIES {
            if let Ok(cluster) = Self::try_start(&home, machines) {
                return Some(cluster);
            }
        }
        let started = Self::try_start(&home, machines);
        Some(started.unwrap_or_else(|said| panic!("Slurm does not come up:\n{said}")))
    }

    fn try_start(home: &Path, machines: usize) -> Result<Self, String> {
        let folder = tempfile::Builder::new()
            .prefix("robust-slurm-")
            .tempdir()
            .unwrap();
        let cluster = Self {
            home: home.to_owned(),
            folder,
            control: None,
            machines: (0..machines).map(|_| None).collect(),
        };
        cluster.configure();
        let mut cluster = cluster;
        let mut control = cluster.daemon("slurmctld-wlm", "control");
        cluster.control = Some(spawn(control.arg("-f").arg(cluster.configuration())));
        for at in 0..machines {
            let name = format!("n{}", at + 1);
            let mut daemon = cluster.daemon("slurmd-wlm", &name);
            daemon
                .args(["-N", &name, "-f"])
                .arg(cluster.configuration());
            daemon
                .arg("-d")
                .arg(cluster.home.join("usr/sbin/slurmstepd-wlm"));
            cluster.machines[at] = Some(spawn(&mut daemon));
        }
        cluster.wait_until_idle()?;
        Ok(cluster)
    }

    /// A folder that all machines have, which goes with the cluster.
    #[must_use]
    pub fn shared(&self) -> &Path {
        self.folder.path()
    }

    /// A program as a user of the cluster runs it: with Slurm's commands on its search path.
    #[must_use]
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = [self.home.join("usr/bin")].into_iter();
        let path = std::env::join_paths(own.chain(std::env::split_paths(&path))).unwrap();
        let libraries = self.libraries();
        let plugins = libraries.join("slurm-wlm");
        let libraries = std::env::join_paths([libraries, plugins]).unwrap();
        let mut command = Command::new(program);
        command
            .env("PATH", path)
            .env("LD_LIBRARY_PATH", libraries)
            .env("SLURM_CONF", self.configuration())
            .stdin(Stdio::null());
        command
    }

    /// What one of Slurm's commands prints.
    ///
    /// # Panics
    /// Where it fails.
    #[must_use]
    pub fn asked(&self, program: &str, words: &[&str]) -> String {
        let out = self.command(self.home.join("usr/bin").join(program));
        let mut out = out;
        let out = out.args(words).output().unwrap();
        assert!(out.status.success(), "{program} {words:?}: {out:?}");
        String::from_utf8(out.stdout).unwrap()
    }

    /// Kills all that is on a machine, its slurmd first, as a power cut would. Slurm finds out in its own time.
    ///
    /// # Panics
    /// Where there is no such machine.
    pub fn lose(&mut self, name: &str) {
        let at: usize = name.strip_prefix('n').unwrap().parse().unwrap();
        end(&mut self.machines[at - 1]);
        while self.kill_on(name) > 0 {
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// What the daemons and the steps' daemons wrote, for a failing test.
    #[must_use]
    pub fn logs(&self) -> String {
        let logs = fs::read_dir(self.folder.path().join("log"))
            .unwrap()
            .flatten();
        let each = logs.map(|entry| {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let tail = lines[lines.len().saturating_sub(15)..].join("\n");
            format!("--- {}\n{tail}\n", entry.path().display())
        });
        each.collect()
    }

    fn libraries(&self) -> PathBuf {
        self.home.join("usr/lib/x86_64-linux-gnu")
    }

    fn configuration(&self) -> PathBuf {
        self.folder.path().join("slurm.conf")
    }

    fn configure(&self) {
        let folder = self.folder.path().display();
        for each in ["log", "state", "spool"] {
            fs::create_dir(self.folder.path().join(each)).unwrap();
        }
        let host = rustix::system::uname()
            .nodename()
            .to_string_lossy()
            .into_owned();
        let user = rustix::process::geteuid().as_raw();
        let ports = free_ports(self.machines.len() + 1);
        let machine = |(at, port): (usize, &u16)| {
            let name = at + 1;
            format!(
                "NodeName=n{name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=2 State=UNKNOWN\n"
            )
        };
        let machines: String = ports[1..].iter().enumerate().map(machine).collect();
        let text = format!(
            "ClusterName=test\n\
             SlurmctldHost={host}(127.0.0.1)\n\
             SlurmctldPort={}\n\
             AuthType=auth/none\nCredType=cred/none\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nSwitchType=switch/none\nMpiDefault=none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_Core\nJobAcctGatherType=jobacct_gather/none\n\
             SlurmUser={user}\nSlurmdUser={user}\n\
             StateSaveLocation={folder}/state\nSlurmdSpoolDir={folder}/spool/%n\n\
             SlurmctldPidFile={folder}/control.pid\nSlurmdPidFile={folder}/%n.pid\n\
             SlurmctldLogFile={folder}/log/control\nSlurmdLogFile={folder}/log/%n\n\
             PluginDir={}\nPlugStackConfig=/dev/null\n\
             SlurmdTimeout=10\nInactiveLimit=0\nKillWait=5\nReturnToService=2\n\
             SchedulerParameters=batch_sched_delay=0,sched_interval=2,sched_min_interval=0\n\
             {machines}\
             PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n",
            ports[0],
            self.libraries().join("slurm-wlm").display()
        );
        fs::write(self.configuration(), text).unwrap();
    }

    /// One of Slurm's daemons, in the foreground.
    fn daemon(&self, program: &str, name: &str) -> Command {
        let log = fs::File::create(self.folder.path().join(format!("{name}.out"))).unwrap();
        let mut command = self.command(self.home.join("usr/sbin").join(program));
        command
            .arg("-D")
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    fn wait_until_idle(&mut self) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let sinfo = self.home.join("usr/bin/sinfo");
            let mut sinfo = self.command(sinfo);
            let out = sinfo
                .args(["--noheader", "--Node", "--format=%T"])
                .output()
                .unwrap();
            let states = String::from_utf8_lossy(&out.stdout).into_owned();
            let idle = states.lines().filter(|line| *line == "idle").count();
            if idle == self.machines.len() {
                return Ok(());
            }
            let ended = |daemon: &mut Child| daemon.try_wait().unwrap().is_some();
            let machines = self.machines.iter_mut().flatten().any(ended);
            let control = self.control.as_mut().is_some_and(ended);
            if machines || control || begun.elapsed() > READY_WITHIN {
                return Err(format!("{states}{}", self.logs()));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Kills the steps of a machine and what they started; how many there were.
    fn kill_on(&self, name: &str) -> usize {
        // Stopped first, so that nothing is started between the look and the end.
        for pid in self.steps_on(name) {
            let _ = Pid::from_raw(pid).map(|pid| kill_process(pid, Signal::STOP));
        }
        let mut ends = self.steps_on(name);
        let parents: Vec<(i32, i32)> = processes();
        let mut at = 0;
        while let Some(parent) = ends.get(at).copied() {
            let children = parents.iter().filter(|(_, of)| *of == parent);
            let news: Vec<i32> = children.map(|(pid, _)| *pid).collect();
            ends.extend(
                news.into_iter()
                    .filter(|pid| !ends.contains(pid))
                    .collect::<Vec<_>>(),
            );
            at += 1;
        }
        for pid in &ends {
            let _ = Pid::from_raw(*pid).map(|pid| kill_process(pid, Signal::KILL));
        }
        ends.len()
    }

    fn steps_on(&self, name: &str) -> Vec<i32> {
        let mine = format!("SLURM_CONF={}", self.configuration().display());
        let there = format!("SLURMD_NODENAME={name}");
        let log = self.folder.path().join("log").join(name);
        let is_there = |pid: &i32| {
            let folder = PathBuf::from(format!("/proc/{pid}"));
            let environment = fs::read(folder.join("environ")).unwrap_or_default();
            let has = |word: &str| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|w| w == word.as_bytes())
            };
            // A step's own daemon writes over its environment, and keeps its machine's log open.
            (has(&mine) && has(&there)) || holds(&folder, &log)
        };
        processes()
            .into_iter()
            .map(|(pid, _)| pid)
            .filter(is_there)
            .collect()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        end(&mut self.control);
        for at in 0..self.machines.len() {
            self.lose(&format!("n{}", at + 1));
        }
    }
}

fn end(daemon: &mut Option<Child>) {
    if let Some(mut daemon) = daemon.take() {
        let _ = daemon.kill();
        let _ = daemon.wait();
    }
}

/// Those that have not ended, and their parents.
fn processes() -> Vec<(i32, i32)> {
    let parent = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut words = stat.rsplit(')').next()?.split_whitespace();
        let state = words.next()?;
        (!matches!(state, "Z" | "X")).then_some(())?;
        Some((pid, words.next()?.parse().ok()?))
    };
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_string_lossy().parse().ok());
    pids.filter_map(parent).collect()
}

/// Whether a process has a file open.
fn holds(process: &Path, file: &Path) -> bool {
    let open = fs::read_dir(process.join("fd"))
        .into_iter()
        .flatten()
        .flatten();
    open.into_iter()
        .any(|entry| fs::read_link(entry.path()).is_ok_and(|to| to == file))
}

fn home() -> Option<PathBuf> {
    let home = robust_needs::cache().join(format!("slurm-{VERSION}"));
    if robust_needs::is_program(&home.join("usr/sbin/slurmctld-wlm"))
        && home.join(".complete").exists()
    {
        return Some(home);
    }
    let missing = format!("there is no Slurm in {}", home.display());
    robust_needs::skip(missing, robust_needs::SETUP);
    None
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
