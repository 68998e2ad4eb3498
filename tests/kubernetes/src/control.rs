//! The control plane: an etcd of its own, the API server, the controllers and the scheduler, on the loopback address.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use robust_etcd::{Cluster as Etcd, Wire};
use serde_json::json;

use crate::api::Api;
use crate::papers::Papers;
use crate::programs::{program, spawn};

/// Until the API server is ready: two cores are shared with other tests.
const READY_WITHIN: Duration = Duration::from_secs(90);
/// A port that was free may be taken when the API server comes to it.
const TRIES: usize = 3;

/// Killed with this value.
#[derive(Debug)]
pub(crate) struct Control {
    folder: PathBuf,
    papers: Papers,
    port: u16,
    programs: Vec<Child>,
    etcd: Etcd,
}

impl Control {
    /// Starts it in this folder; none, which is said, where there is no etcd.
    pub fn start(home: &Path, folder: &Path) -> Option<Self> {
        let mut control = Self {
            folder: folder.to_owned(),
            papers: Papers::make(folder),
            port: 0,
            programs: Vec::new(),
            etcd: Etcd::start(1, Wire::Plain)?,
        };
        for left in (0..TRIES).rev() {
            match control.serve(home) {
                Ok(()) => break,
                Err(said) => assert!(left > 0, "the API server does not come up:\n{said}"),
            }
        }
        control.work(home);
        Some(control)
    }

    /// A way to the API server of one's own.
    pub fn api(&self) -> Api {
        Api::new(self.port, &self.papers)
    }

    fn log(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.log"))
    }

    fn serve(&mut self, home: &Path) -> Result<(), String> {
        self.port = free_port();
        let log = self.log("kube-apiserver");
        let mut server = program(home, "kube-apiserver", &log);
        let papers = &self.papers;
        server
            .arg(format!(
                "--etcd-servers={}",
                self.etcd.endpoints().join(",")
            ))
            .arg(format!("--secure-port={}", self.port))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .args(["--endpoint-reconciler-type=none", "--anonymous-auth=false"])
            .arg("--service-cluster-ip-range=10.96.0.0/24")
            .arg("--service-account-issuer=https://kubernetes.default.svc")
            .arg("--authorization-mode=RBAC");
        let files = [
            ("cert-dir", &self.folder),
            ("tls-cert-file", &papers.certificate),
            ("tls-private-key-file", &papers.key),
            ("token-auth-file", &papers.users),
            ("service-account-signing-key-file", &papers.signing),
            ("service-account-key-file", &papers.checking),
        ];
        set(&mut server, &files);
        let mut child = spawn(&mut server);
        let (begun, api) = (Instant::now(), self.api());
        while api.get("/readyz").is_err() {
            let ended = child.try_wait().unwrap().is_some();
            if ended || begun.elapsed() > READY_WITHIN {
                end(&mut child);
                return Err(tail(&log));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        self.programs.push(child);
        Ok(())
    }

    /// Starts the controllers and the scheduler.
    fn work(&mut self, home: &Path) {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {
                "server": format!("https://127.0.0.1:{}", self.port),
                "certificate-authority": self.papers.authority,
            }}],
            "users": [{"name": "test", "user": {"token": self.papers.token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        });
        let path = self.folder.join("kubeconfig.json");
        fs::write(&path, config.to_string()).unwrap();
        let alone = ["--leader-elect=false", "--port=0", "--secure-port=0"];
        let log = self.log("kube-controller-manager");
        let mut controllers = program(home, "kube-controller-manager", &log);
        controllers
            .args(alone)
            // A machine is NotReady 6 s after it fell silent, where it would be 40 s: a test waits for it.
            .args(["--node-monitor-period=1s", "--node-monitor-grace-period=6s"]);
        let files = [
            ("kubeconfig", &path),
            ("root-ca-file", &self.papers.authority),
            ("service-account-private-key-file", &self.papers.signing),
        ];
        set(&mut controllers, &files);
        let log = self.log("kube-scheduler");
        let mut scheduler = program(home, "kube-scheduler", &log);
        set(scheduler.args(alone), &[("kubeconfig", &path)]);
        self.programs.push(spawn(&mut controllers));
        self.programs.push(spawn(&mut scheduler));
    }

    /// The ends of what they wrote.
    pub fn logs(&self) -> String {
        let names = [
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        ];
        let each = names.map(|name| format!("--- {name}\n{}\n", tail(&self.log(name))));
        each.concat()
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.programs.iter_mut().rev().for_each(end);
    }
}

fn set(command: &mut Command, files: &[(&str, &PathBuf)]) {
    for (name, path) in files {
        command.arg(format!("--{name}={}", path.display()));
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

/// The last lines of a log.
pub(crate) fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(25)..].join("\n")
}

fn free_port() -> u16 {
    let held = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    held.local_addr().unwrap().port()
}
