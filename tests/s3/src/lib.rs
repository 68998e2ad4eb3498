//! A real S3 server for tests: moto's, in an environment that `setup.sh` beside this makes.
#![allow(clippy::unwrap_used, reason = "whoever tests sees what failed")]
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The bucket that there is at the beginning.
pub const BUCKET: &str = "robust";

/// The server; it ends with its input, and so with this value.
pub struct Server {
    process: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    url: String,
    address: String,
}

impl Server {
    /// None, with the reason recorded, where it cannot be had.
    pub fn start() -> Option<Self> {
        Self::start_on(&[], "127.0.0.1")
    }

    /// The same at an address of another network, where this command line starts a program.
    pub fn start_on(command: &[String], address: &str) -> Option<Self> {
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let setup = Command::new(here.join("setup.sh"))
            .arg(robust_needs::cache().join("tests"))
            .output();
        let python = match setup {
            Ok(out) if out.status.success() => String::from_utf8(out.stdout).unwrap(),
            Ok(out) => return cannot_be_had(&String::from_utf8_lossy(&out.stderr)),
            Err(error) => return cannot_be_had(&error.to_string()),
        };
        let python = python.trim().to_owned();
        let words = [command, &[python][..]].concat();
        let mut process = Command::new(&words[0])
            .args(&words[1..])
            .arg(here.join("server.py"))
            .arg(address)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let input = process.stdin.take();
        let mut server = Self {
            process,
            input,
            output,
            url: String::new(),
            address: address.to_owned(),
        };
        server.url = server.line();
        Some(server)
    }

    /// What an operator sets, so that `s3://` leads here: names and values of variables.
    pub fn environment(&self) -> [(&'static str, &str); 5] {
        [
            ("AWS_ENDPOINT", &self.url),
            ("AWS_ACCESS_KEY_ID", "test"),
            ("AWS_SECRET_ACCESS_KEY", "test"),
            ("AWS_REGION", "us-east-1"),
            ("NO_PROXY", &self.address),
        ]
    }

    /// The answer to a question that `server.py` knows.
    pub fn ask(&mut self, question: &str) -> String {
        writeln!(self.input.as_mut().unwrap(), "{question}").unwrap();
        self.line()
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim().to_owned()
    }

    /// It answers nobody any more, and closes nothing, until [`Self::thaw`].
    pub fn freeze(&self) {
        kill(self.pid(), Signal::SIGSTOP).unwrap();
    }

    /// It goes on where it stood still.
    pub fn thaw(&self) {
        kill(self.pid(), Signal::SIGCONT).unwrap();
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.process.id()).unwrap())
    }

    /// It is gone, as a store behind a cut wire is.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.input.take());
        // It ends by itself; a server that hangs is not waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn cannot_be_had(why: &str) -> Option<Server> {
    let lacks = format!("no S3 server to test against: {why}");
    robust_needs::skip(lacks, robust_needs::SETUP);
    None
}
