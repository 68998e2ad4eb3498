//! A daemon with a state directory of its own, and scripts that stand for its roles.
use hyper_util::rt::TokioIo;
use robust_identity::Holders;
use robust_proto::v1;
use robust_proto::v1::control_client::ControlClient;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tonic::transport::{Channel, Endpoint, Uri};

pub struct Site {
    temp: tempfile::TempDir,
}

impl Site {
    pub fn new(steps: u64) -> Self {
        let site = Self {
            temp: tempfile::tempdir().unwrap(),
        };
        fs::write(
            site.file("data.jsonl"),
            "{\"prompt\":\"1+1=\",\"answer\":\"2\"}\n",
        )
        .unwrap();
        fs::write(site.file("tokenizer.json"), "{}").unwrap();
        fs::create_dir(site.file("model")).unwrap();
        for name in ["config.json", "model.safetensors"] {
            fs::write(site.file("model").join(name), "{}").unwrap();
        }
        site.write_job(steps);
        let exe = std::env::current_exe().unwrap();
        let script = format!(
            "#!/bin/sh\nFAKE_ROLE=\"$*\" exec {} --exact fake_role --ignored --nocapture\n",
            exe.display()
        );
        fs::write(site.file("worker"), script).unwrap();
        fs::set_permissions(site.file("worker"), fs::Permissions::from_mode(0o755)).unwrap();
        site
    }

    pub fn write_job(&self, steps: u64) {
        let job = format!(
            "[job]\nname = \"fake\"\nsteps = {steps}\npass_env = [\"FAKE_*\"]\n[model]\npath = \"model\"\n\
             [data]\nprompts = \"data.jsonl\"\ntokenizer = \"tokenizer.json\"\n\
             [batch]\nprompts = 2\nresponses = 2\n[checkpoint]\nevery = 2\n\
             [detect]\nsample_interval_ms = 50\n"
        );
        fs::write(self.file("job.toml"), job).unwrap();
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    pub fn state(&self) -> PathBuf {
        self.file("state")
    }

    pub fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_robustd"));
        command
            .arg("--job")
            .arg(self.file("job.toml"))
            .arg("--state-dir")
            .arg(self.state())
            .args(more)
            .env("ROBUST_WORKER", self.file("worker"))
            .env("RUST_LOG", "info")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    pub fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    pub fn start(&self) -> Daemon {
        self.start_with(&[])
    }

    pub fn start_with(&self, more: &[&str]) -> Daemon {
        self.start_command(self.command(more))
    }

    /// With these in the environment, and its printed lines nowhere.
    pub fn start_env(&self, env: &[(&str, &str)]) -> Daemon {
        let mut command = self.command(&[]);
        command.envs(env.iter().copied()).stdout(Stdio::null());
        self.start_command(command)
    }

    /// One of [`Self::command`], its log in this site's.
    pub fn start_command(&self, mut command: Command) -> Daemon {
        let child = command.stderr(self.open_log()).spawn();
        Daemon {
            child: child.unwrap(),
        }
    }

    pub fn open_log(&self) -> fs::File {
        let mut options = fs::OpenOptions::new();
        let log = options.create(true).append(true).open(self.file("log"));
        log.unwrap()
    }

    /// Role processes of this site that live, found by the socket they were given.
    pub fn roles(&self) -> Vec<i32> {
        self.roles_named("")
    }

    /// Those of a role.
    pub fn roles_named(&self, role: &str) -> Vec<i32> {
        let named = format!("FAKE_ROLE={role}");
        let socket = self.state().join("roles.sock").display().to_string();
        let of = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let environ = fs::read(entry.path().join("environ")).ok()?;
            let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
            let alive = !stat.rsplit(')').next()?.trim_start().starts_with('Z');
            let environ = String::from_utf8_lossy(&environ);
            (alive && environ.contains(&named) && environ.contains(&socket)).then_some(pid)
        };
        fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(of)
            .collect()
    }

    /// Living processes of this site's services: shims, and all that bear the mark of their folder.
    pub fn services(&self) -> Vec<i32> {
        let Ok(root) = self.state().canonicalize() else {
            // Nothing was ever started; an empty path would be in every command line.
            return Vec::new();
        };
        let root = root.display().to_string();
        let mark = format!("SERVICE_MARK={root}/services/");
        let of = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
            let text = |name: &str| String::from_utf8_lossy(&read(name)).replace('\0', " ");
            let line = text("cmdline");
            let is_shim = line.contains("robust-shim service") && line.contains(&root);
            (is_shim || text("environ").contains(&mark)).then_some(pid)
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(of).collect()
    }

    /// The address of `--listen`, by the daemon's log.
    pub fn listens_at(&self) -> String {
        let log = self.log();
        let at = log.split("control API on ").nth(1).unwrap();
        at.split(',').next().unwrap().to_owned()
    }

    /// A client at that address that has this token.
    pub async fn control_by(
        &self,
        token: &str,
    ) -> Result<ControlClient<Channel>, tonic::transport::Error> {
        let caller = Holders::of(token).unwrap().caller().unwrap();
        let at = self.listens_at();
        let dial = move |_: Uri| {
            let (caller, at) = (caller.clone(), at.clone());
            async move {
                let stream = tokio::net::TcpStream::connect(at).await?;
                caller.call(stream).await.map(TokioIo::new)
            }
        };
        let endpoint = Endpoint::from_static("http://control");
        let channel = endpoint.connect_with_connector(tower::service_fn(dial));
        channel.await.map(ControlClient::new)
    }

    pub async fn control(&self) -> ControlClient<Channel> {
        control_at(&self.state().join("control.sock")).await
    }

    pub async fn wait_for(&self, what: &str, when: impl Fn(&v1::Status) -> bool) -> v1::Status {
        let mut control = self.control().await;
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let status = control
                .get_status(v1::GetStatusRequest {})
                .await
                .unwrap()
                .into_inner();
            if when(&status) {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "no {what}: {status:#?}\n{}",
                self.log()
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The last lines of the log, for a failing test.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.file("log")).unwrap_or_default()
    }
}

pub struct Daemon {
    pub child: Child,
}

impl Daemon {
    pub fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    pub fn output(mut self) -> (i32, String) {
        let mut out = String::new();
        if let Some(mut printed) = self.child.stdout.take() {
            printed.read_to_string(&mut out).unwrap();
        }
        let status = self.child.wait().unwrap();
        (status.code().unwrap_or(-1), out)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Only after a failed assertion is it still there.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        for pid in [self.services(), self.roles()].concat() {
            let _ = nix::sys::signal::kill(
                nix::unistd::Pid::from_raw(pid),
                nix::sys::signal::Signal::SIGKILL,
            );
        }
        let _ = fs::remove_dir_all(robustd::state::snapshot_dir(&self.state()));
    }
}

pub fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub fn assert_ended_cleanly(site: &Site) {
    assert_eq!(site.roles(), [] as [i32; 0], "no role process stays");
    let state = fs::canonicalize(site.state()).unwrap();
    assert!(
        !robustd::state::snapshot_dir(&state).exists(),
        "no snapshot stays in memory"
    );
    assert!(!state.join("control.sock").exists());
}

pub fn steps_printed(out: &str) -> Vec<u64> {
    let number = |line: &str| {
        line.strip_prefix("step ")?
            .trim_start()
            .split('/')
            .next()?
            .parse()
            .ok()
    };
    out.lines().filter_map(number).collect()
}

/// A client at a daemon's socket, which may not be there yet.
pub async fn control_at(socket: &Path) -> ControlClient<Channel> {
    let socket = socket.to_owned();
    let dial = move |_: Uri| {
        let socket = socket.clone();
        async move {
            let stream = tokio::net::UnixStream::connect(socket).await;
            stream.map(TokioIo::new)
        }
    };
    let endpoint = Endpoint::from_static("http://control");
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        let channel = endpoint.connect_with_connector(tower::service_fn(dial.clone()));
        match channel.await {
            Ok(channel) => return ControlClient::new(channel),
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
