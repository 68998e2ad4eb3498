//! The folder of one instance's engine in shared memory, and what earlier incarnations left.
//!
//! ```text
//!   SNAPSHOTS/engine-rollout-0/   weights/   versions as model folders
//!                                 given/     files that a rank's program is given
//!                                 run/       engine.sock, and what else the program and its shim share
//!                                 shm-*.json what the engine holds in /dev/shm
//!                                 waited     the mark of a program that waited to become this instance's
//! ```
//! An engine may outlive a shim that was killed: it made a session of its own. So before another is
//! started, whatever bears this instance's mark is killed and its memory given back: two engines on one
//! slot would fight for the device's memory.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use robust_tree::{ENGINE_VARIABLE, Leftover, WAITED_FILE, leftovers, sweep};

/// How long killed processes of an earlier incarnation may take: a device's memory is given back slowly.
const CLEARED: Duration = Duration::from_secs(60);
/// Pause between looks at whether they are gone.
const LOOK: Duration = Duration::from_millis(20);

/// The folder could not be made, or an earlier incarnation does not go.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The system refused.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With which file or folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Processes of an earlier incarnation do not even end when they are killed.
    #[error("an earlier engine of {owner} does not end: {names} (uninterruptible in the kernel?)")]
    Occupied {
        /// Whose.
        owner: String,
        /// Its processes.
        names: String,
    },
}

/// The folder.
#[derive(Debug, Clone)]
pub struct Home {
    root: PathBuf,
    owner: String,
}

impl Home {
    /// The folder of this name, which no other instance has, below that of the job's snapshots.
    pub fn of(snapshots: &Path, name: &str) -> Self {
        let root = snapshots.join(name);
        let owner = root.display().to_string();
        Self { root, owner }
    }

    /// Ends what earlier incarnations left, and makes the folder.
    pub fn take(&self) -> Result<(), HomeError> {
        self.clear()?;
        let _ = fs::remove_file(self.waited());
        let run = self.run();
        // What an earlier program left: none of it is followed or kept.
        match fs::remove_dir_all(&run) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(failed("removing", &run)(error));
            }
            _ => {}
        }
        let mut private = fs::DirBuilder::new();
        private.recursive(true).mode(0o700);
        private.create(&run).map_err(failed("making", &run))?;
        match sweep(&self.root) {
            Ok(swept) if !swept.removed.is_empty() => tracing::info!(
                files = swept.removed.len(),
                bytes = swept.bytes(),
                "removed what an earlier engine left in shared memory"
            ),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "what earlier engines left stays"),
        }
        Ok(())
    }

    /// What marks this instance's engine.
    pub fn owner(&self) -> &OsStr {
        OsStr::new(&self.owner)
    }

    /// The folder itself.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where versions lie.
    pub fn weights(&self) -> PathBuf {
        self.root.join("weights")
    }

    /// A folder of the engine's own.
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// Where files lie that a rank's program is given.
    pub fn given(&self) -> PathBuf {
        self.root.join("given")
    }

    /// Where an engine listens that can listen on a Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.run().join("engine.sock")
    }

    /// Writes down the mark of a program that becomes this instance's: its processes keep it, and one that outlives this
    /// life is found by it.
    pub fn note_waited(&self, mark: &OsStr) -> io::Result<()> {
        fs::write(self.waited(), mark.as_bytes())
    }

    fn waited(&self) -> PathBuf {
        self.root.join(WAITED_FILE)
    }

    fn left(&self) -> Vec<Leftover> {
        let mut left = leftovers(&[(ENGINE_VARIABLE, self.owner())]);
        if let Ok(mark) = fs::read(self.waited()) {
            left.extend(leftovers(&[(ENGINE_VARIABLE, OsStr::from_bytes(&mark))]));
        }
        left
    }

    fn clear(&self) -> Result<(), HomeError> {
        let until = Instant::now() + CLEARED;
        loop {
            let left = self.left();
            if left.is_empty() {
                return Ok(());
            }
            let names: Vec<&str> = left.iter().map(|process| process.name.as_str()).collect();
            let names = names.join(", ");
            if Instant::now() > until {
                let owner = self.owner.clone();
                return Err(HomeError::Occupied { owner, names });
            }
            tracing::warn!(%names, "killing what an earlier engine left");
            for process in &left {
                if let Err(error) = process.kill() {
                    tracing::warn!(pid = process.pid, %error, "killing it");
                }
            }
            std::thread::sleep(LOOK);
        }
    }
}

fn failed<'a>(doing: &'static str, path: &'a Path) -> impl FnOnce(io::Error) -> HomeError + 'a {
    move |source| HomeError::Io {
        doing,
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};

    /// A process of that owner, once this home finds it.
    fn left_of(home: &Home, owner: &OsStr) -> Child {
        let mut command = Command::new("sleep");
        command.arg("600").env(ENGINE_VARIABLE, owner);
        command.process_group(0).stdin(Stdio::null());
        let orphan = command.spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(10);
        while home.left().is_empty() && Instant::now() < until {
            // Between fork and exec it has this test's environment.
            std::thread::sleep(LOOK);
        }
        orphan
    }

    #[test]
    fn what_an_earlier_engine_left_running_is_ended_before_the_next_starts() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::of(dir.path(), "engine-rollout-0");
        let mut orphan = left_of(&home, home.owner());
        assert_eq!(home.left().len(), 1);
        let waited = std::thread::spawn(move || orphan.wait().unwrap());
        home.take().unwrap();
        assert!(!waited.join().unwrap().success());
        assert!(home.run().is_dir());
    }

    #[test]
    fn what_is_left_of_a_program_that_waited_before_it_was_this_instances_is_ended_too() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::of(dir.path(), "engine-trainer-0");
        let spare = Home::of(dir.path(), "spare-7");
        home.take().unwrap();
        home.note_waited(spare.owner()).unwrap();
        let mut orphan = left_of(&home, spare.owner());
        let waited = std::thread::spawn(move || orphan.wait().unwrap());
        home.take().unwrap();
        assert!(!waited.join().unwrap().success());
        // Another one with that mark would be nobody's: it is forgotten with the processes.
        assert!(!home.waited().exists());
    }
}
