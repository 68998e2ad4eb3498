//! The leader's side of its children.

use super::{BOOT, ROLE, scaled};
use crate::protocol::{Boot, Dialect};
use crate::shm;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{PipeReader, PipeWriter};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::Sender;

/// A tree that cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The files in shared memory cannot be made.
    #[error("cannot make the files in /dev/shm: {0}")]
    Shared(std::io::Error),
    /// A child cannot be started.
    #[error("cannot start {name}: {source}")]
    Spawn {
        name: &'static str,
        source: std::io::Error,
    },
}

/// The leader's children; they end with `end`, and not when this is dropped.
pub struct Tree {
    boot: Boot,
    children: Mutex<Vec<Pid>>,
}

impl Tree {
    /// Starts the children; gives the pipe that takes commands and the one that has reports. `died`
    /// hears the name of every direct child that ends.
    pub fn start(
        boot: &mut Boot,
        died: Sender<String>,
    ) -> Result<(Self, PipeWriter, PipeReader), TreeError> {
        boot.shared = shm::create(boot.dialect).map_err(TreeError::Shared)?;
        let tree = Self {
            boot: boot.clone(),
            children: Mutex::default(),
        };
        let fail = |name| move |source| TreeError::Spawn { name, source };
        let (their_commands, commands) = std::io::pipe().map_err(fail("a pipe"))?;
        let (reports, their_reports) = std::io::pipe().map_err(fail("a pipe"))?;
        let start = |name: &'static str, role, stdin, stdout| {
            let mut child = spawn(name, role, boot, stdin, stdout).map_err(fail(name))?;
            // Where it is ours it is the tracker's, and open as long as this process lives.
            std::mem::forget(child.stdin.take());
            tree.watch(name, child, died.clone());
            Ok(())
        };
        start("resource_tracker", "tracker", Stdio::piped(), Stdio::null())?;
        match boot.dialect {
            Dialect::Vllm => {
                start(
                    "VLLM::EngineCore",
                    "core",
                    their_commands.into(),
                    their_reports.into(),
                )?;
            }
            Dialect::Sglang => {
                let (from, to) = std::io::pipe().map_err(fail("a pipe"))?;
                start(
                    "sglang::scheduler",
                    "worker",
                    their_commands.into(),
                    to.into(),
                )?;
                start(
                    "sglang::detokenizer",
                    "detokenizer",
                    from.into(),
                    their_reports.into(),
                )?;
            }
        }
        Ok((tree, commands, reports))
    }

    fn watch(&self, name: &'static str, mut child: Child, died: Sender<String>) {
        let pid = Pid::from_raw(child.id().cast_signed());
        if let Ok(mut children) = self.children.lock() {
            children.push(pid);
        }
        std::thread::spawn(move || {
            let _ = child.wait();
            let _ = died.send(name.to_owned());
        });
    }

    /// Ends the children, unless they are to live on, and removes their files if asked to.
    pub fn end(&self, removes_files: bool) {
        if self.boot.quirks.orphan_children {
            return;
        }
        for pid in self.children.lock().iter().flat_map(|c| c.iter()) {
            let _ = kill(*pid, Signal::SIGKILL);
        }
        // A semaphore is gone in every orderly end, SGLang's file of loads in none.
        let removed =
            |path: &&std::path::PathBuf| removes_files || path.to_string_lossy().contains("/sem.");
        shm::remove(self.boot.shared.iter().filter(removed));
    }

    /// What a time of the real engine is here.
    pub fn scaled(&self, seconds: f64) -> std::time::Duration {
        scaled(&self.boot, seconds)
    }
}

/// Starts this program again as a child of the given name.
pub fn spawn(
    title: &str,
    role: &str,
    boot: &Boot,
    stdin: Stdio,
    stdout: Stdio,
) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    if role == "tracker" {
        command.arg0("python").args([
            "-c",
            "from multiprocessing.resource_tracker import main;main(5)",
        ]);
    } else {
        command.arg0(title);
    }
    command
        .env(ROLE, role)
        .env(BOOT, serde_json::to_string(boot)?);
    command.stdin(stdin).stdout(stdout).spawn()
}
