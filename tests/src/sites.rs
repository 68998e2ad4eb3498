//! Controllers whose machines have other disks: each has a folder of its own with its job file, whose paths are relative to
//! it, and only some of them have what the job is made of.
use crate::controllers::{Controllers, Node, free};
use crate::{JobFile, bin, programs};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use robust_etcd::{Cluster as Etcd, Wire};
use robust_shared::job::Job;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of a job's files beside its job file.
const FILES: &str = "files";

/// The same job, of files that it names: its warm start is a model like any other.
#[must_use]
pub fn of_files(job: &JobFile) -> JobFile {
    let named = |key: &str| format!("{FILES}/{key}");
    job.clone()
        .without("model")
        .set("model", "path", named("model"))
        .set("data", "prompts", named("arith.jsonl"))
        .set("data", "tokenizer", named("arith.json"))
}

/// Lays the files of a job there, as [`of_files`] names them beside a job file in this folder.
pub fn lay_files(job: &JobFile, folder: &Path) {
    let files = folder.join(FILES);
    std::fs::create_dir_all(files.join("model")).expect("a folder");
    let copy = |from: &Path, name: &str| {
        std::fs::copy(from, files.join(name)).expect("it is copied");
    };
    copy(Path::new(&job.text_of("data", "prompts")), "arith.jsonl");
    copy(Path::new(&job.text_of("data", "tokenizer")), "arith.json");
    let model = warm_start(job);
    for name in ["config.json", "model.safetensors"] {
        copy(&model.join(name), &format!("model/{name}"));
    }
}

/// The job's warm start, made if no test has made it yet.
fn warm_start(job: &JobFile) -> PathBuf {
    let mut job = Job::parse(&job.text(), Path::new("job.toml")).expect("a job");
    job.resolve(Path::new("/"));
    let tokenizer = std::fs::read(&job.data.tokenizer).expect("its tokenizer");
    let folder = job.warmup_folder(&programs::cache(), &tokenizer);
    if !folder.join("model.safetensors").is_file() {
        std::fs::create_dir_all(folder.parent().expect("a folder")).expect("a folder");
        let scratch = tempfile::tempdir_in(folder.parent().expect("a folder")).expect("a folder");
        let (text, out) = (scratch.path().join("job.json"), scratch.path().join("out"));
        std::fs::write(&text, serde_json::to_vec(&job).expect("a job")).expect("it is written");
        let made = Command::new(bin("robust-worker"))
            .arg("warmup")
            .arg("--job")
            .arg(&text)
            .arg("--out")
            .arg(&out)
            .stdin(Stdio::null())
            .output();
        assert!(made.expect("it runs").status.success(), "no warm start");
        // Another test may have made the same meanwhile.
        drop(std::fs::rename(&out, &folder));
    }
    folder
}

impl Controllers {
    /// Starts so many controllers, of which these have the job's files; none, which is said, where there is no etcd.
    pub fn apart(job: &JobFile, count: usize, with_files: &[usize]) -> Option<Self> {
        let etcd = Etcd::start(3, Wire::Plain)?;
        let addresses = (0..count).map(|_| free()).collect();
        let mut all = Self::prepared(&of_files(job), (etcd, None), None, addresses);
        for which in 0..count {
            let site = all.site(which);
            std::fs::create_dir_all(&site).expect("a folder");
            let path = site.join("job.toml");
            std::fs::copy(&all.jobs[which], &path).expect("it is copied");
            all.jobs[which] = path;
            if with_files.contains(&which) {
                all.lay_files(job, which);
            }
        }
        for which in 0..count {
            all.launch(which);
        }
        Some(all)
    }

    /// Etcd is lost, every controller is killed, and their disks are lost: the first one goes on from the log, alone.
    pub fn goes_on_alone(&mut self) {
        for member in 0..self.etcd.endpoints().len() {
            self.etcd.kill(member);
        }
        for which in 0..self.count() {
            self.signal(which, Signal::SIGKILL);
            std::fs::remove_dir_all(self.state_dir(which)).expect("its state");
        }
        let from = format!("--restore-from=file://{}", self.log_folder().display());
        self.launch_alone(0, &[&from]);
    }

    /// Starts a controller that is to lead without etcd, with these arguments besides.
    pub fn launch_alone(&mut self, which: usize, more: &[&str]) {
        let child = self
            .robustd(which, &format!("control-{which}"))
            .arg("--alone")
            .args(more)
            .arg("--job")
            .arg(&self.jobs[which])
            .args(["--listen-nodes", &self.addresses[which]])
            .arg("--state-dir")
            .arg(self.state_dir(which))
            .spawn();
        self.daemons[which] = Some(child.expect("robustd starts"));
    }

    /// From its next start on a controller looks for etcd where nobody is.
    pub fn lose_way_to_etcd(&mut self, which: usize) {
        let mut text = std::fs::read_to_string(&self.jobs[which]).expect("its job file");
        for endpoint in self.etcd.endpoints() {
            text = text.replace(endpoint.trim_end_matches('/'), "http://127.0.0.1:1");
        }
        let path = self.dir.path().join(format!("cut-{which}.toml"));
        std::fs::write(&path, text).expect("it is written");
        self.jobs[which] = path;
    }

    /// The folder that a controller's job file is in.
    pub fn site(&self, which: usize) -> PathBuf {
        self.dir.path().join(format!("site-{which}"))
    }

    /// Lays the job's files where this controller's job file names them.
    pub fn lay_files(&self, job: &JobFile, which: usize) {
        lay_files(job, &self.site(which));
    }

    /// The machine of a controller that was killed is gone with its disk.
    pub fn burn(&self, which: usize) {
        assert!(!self.runs(which), "it runs");
        std::fs::remove_dir_all(self.site(which)).expect("its folder");
        std::fs::remove_dir_all(self.state_dir(which)).expect("its state");
    }

    /// The daemon of a node dies, and begins again without its copies of the job's files; its roles live on.
    pub fn restart_node_without_files(&mut self, node: &str) {
        let daemon: &Node = self
            .nodes
            .iter()
            .find(|n| n.name == node)
            .expect("it was started");
        let pid = i32::try_from(daemon.child.id()).expect("a pid");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
        self.bury_node(node);
        std::fs::remove_dir_all(self.node_dir(node).join("files")).expect("its copies");
        self.join(node);
    }

    /// Kills a role process of a node; its command line.
    pub fn kill_role(&self, node: &str, role: &str) -> String {
        let roles = self.roles_of(node).into_iter();
        let mut of_role = roles.filter(|(_, line)| line.contains(&format!(" {role} ")));
        let (pid, line) = of_role.next().expect("it runs there");
        kill(Pid::from_raw(pid), Signal::SIGKILL).expect("it runs");
        line
    }
}
