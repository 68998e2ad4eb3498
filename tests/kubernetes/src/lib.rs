//! A real Kubernetes for tests: etcd, the API server, the controllers and the scheduler, as scripts/kubernetes.sh builds
//! them from Debian's source package, and machines with a small kubelet of this crate, which runs a pod's command as a
//! process.
//!
//! ```text
//!  ┌ loopback ────────────────────────┐    ┌ a namespace for each pod ─────────────────────┐
//!  │ etcd ◄─ API server ◄─ controllers │    │ process 1 = the command; its user, rights,    │
//!  │             ▲      ◄─ scheduler   │    │ root, volumes, /etc/hosts                     │
//!  └─────────────┼────────────────────┘    └──────eth0─────────────────────────────────────┘
//!     the test ──┴── machines' kubelets ── start, end ─┘└─ switch ─ what the test runs beside it
//! ```
//! Not as on a real machine: nothing is limited (cgroups, sizes of volumes), no seccomp filter is set, and a NetworkPolicy
//! is taken and does nothing. Names of services are in `/etc/hosts`, written from the Endpoints that the controllers make.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::geteuid;
use tempfile::TempDir;

mod api;
mod container;
mod control;
mod fleet;
mod papers;
mod pod;
mod programs;
mod switch;
mod text;
mod volumes;

pub use api::{Api, Refused};
pub use container::Image;

use control::{Control, tail};
use fleet::{Fleet, Shared, locked};
use switch::Switch;

/// Between two looks of the kubelets.
const LOOK: Duration = Duration::from_millis(200);

/// A cluster; all of it ends with this value.
#[derive(Debug)]
pub struct Kubernetes {
    api: Api,
    fleet: Shared,
    is_over: Arc<AtomicBool>,
    kubelets: Option<JoinHandle<()>>,
    control: Control,
    folder: TempDir,
    _memory: TempDir,
}

impl Kubernetes {
    /// Starts one with these machines, whose pods are of this image. None, which is said, where it was not built, or this
    /// is not root.
    ///
    /// # Panics
    /// Where it does not come up: what its programs wrote is in the message.
    #[must_use]
    pub fn start(machines: &[&str], image: Image) -> Option<Self> {
        let home = programs::home()?;
        can_unshare()?;
        let switch = Switch::make()?;
        let temporary = |below: &Path| {
            let mut named = tempfile::Builder::new();
            named.prefix("robust-kube-").tempdir_in(below).unwrap()
        };
        let folder = temporary(&std::env::temp_dir());
        let memory = temporary(Path::new("/dev/shm"));
        let control = Control::start(&home, folder.path())?;
        let logs = folder.path().join("logs");
        let fleet = Fleet::new(control.api(), image, &logs, memory.path(), switch);
        let fleet = Arc::new(Mutex::new(fleet));
        let is_over = Arc::new(AtomicBool::new(false));
        let (rounds, over) = (Arc::clone(&fleet), Arc::clone(&is_over));
        let kubelets = std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                if let Err(refused) = locked(&rounds).go_round() {
                    eprintln!("kubelet: {refused}");
                }
                std::thread::sleep(LOOK);
            }
        });
        let cluster = Self {
            api: control.api(),
            fleet,
            is_over,
            kubelets: Some(kubelets),
            control,
            folder,
            _memory: memory,
        };
        machines.iter().for_each(|machine| cluster.add(machine));
        Some(cluster)
    }

    /// A way to its API server.
    #[must_use]
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// A folder that goes with the cluster.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// An address that pods reach, of nine, for a program that [`Self::beside`] starts.
    #[must_use]
    pub fn address(last: u8) -> Ipv4Addr {
        Switch::beside(last)
    }

    /// What starts a program beside the switch.
    #[must_use]
    pub fn beside(&self) -> Vec<String> {
        locked(&self.fleet).switch.on()
    }

    /// A machine more.
    ///
    /// # Panics
    /// Where the API server refuses it.
    pub fn add(&self, machine: &str) {
        let added = locked(&self.fleet).add(machine);
        added.unwrap_or_else(|refused| panic!("a machine: {refused}\n{}", self.control.logs()));
    }

    /// Cuts a machine's power: all that runs there is gone, and nobody is told.
    ///
    /// # Panics
    /// Where there is no such machine.
    pub fn lose(&self, machine: &str) {
        locked(&self.fleet).lose(machine);
    }

    /// What a program says in a pod, as its user; none where the pod does not run.
    #[must_use]
    pub fn exec(&self, pod: &str, words: &[&str]) -> Option<Output> {
        let mut command = {
            let fleet = locked(&self.fleet);
            fleet.pod(pod)?.container()?.command(words)?
        };
        command.output().ok()
    }

    /// The processes of a pod, process 1 among them: numbers on this machine, and command lines.
    #[must_use]
    pub fn processes(&self, pod: &str) -> Vec<(i32, String)> {
        let fleet = locked(&self.fleet);
        let container = fleet.pod(pod).and_then(|pod| pod.container());
        container.map_or_else(Vec::new, container::Container::processes)
    }

    /// The machine that a pod runs on.
    #[must_use]
    pub fn machine_of(&self, pod: &str) -> Option<String> {
        let fleet = locked(&self.fleet);
        fleet.pod(pod).map(|pod| pod.machine().to_owned())
    }

    /// What a pod wrote.
    #[must_use]
    pub fn log(&self, pod: &str) -> String {
        let path = self.log_file(pod);
        std::fs::read_to_string(path).unwrap_or_default()
    }

    fn log_file(&self, pod: &str) -> PathBuf {
        self.folder.path().join("logs").join(format!("{pod}.log"))
    }

    /// The ends of all logs, for a failing test.
    #[must_use]
    pub fn logs(&self) -> String {
        let folder = std::fs::read_dir(self.folder.path().join("logs"));
        let files = folder.into_iter().flatten().flatten();
        let files = files.filter(|file| file.path().is_file());
        let each =
            files.map(|file| format!("--- {:?}\n{}\n", file.file_name(), tail(&file.path())));
        self.control.logs() + &each.collect::<String>()
    }
}

impl Drop for Kubernetes {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        locked(&self.fleet).end();
        if let Some(kubelets) = self.kubelets.take() {
            let _ = kubelets.join();
        }
    }
}

/// Whether containers can be made here; none, with the reason recorded, where not.
fn can_unshare() -> Option<()> {
    let mut command = Command::new("unshare");
    let made = command
        .args(["--mount", "--pid", "--ipc", "--uts", "--fork", "true"])
        .status();
    let may = geteuid().is_root() && made.is_ok_and(|status| status.success());
    if !may {
        robust_needs::skip(
            "no mount, process and network namespaces can be made, in which pods run",
            robust_needs::ROOT,
        );
    }
    may.then_some(())
}
