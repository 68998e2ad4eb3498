//! The state directory: who holds it and what lies where in it.
//!
//! ```text
//! STATE/                 0700
//!   lock                 held by the one daemon that has the store open
//!   job.json             the resolved job its roles read; job.N.json: revision N of it
//!   control.sock         0600, what operators' tools talk to
//!   roles.sock           0600, what role processes attach to
//!   token                0600, with --listen: the operators'
//!   authority.key        0600, the leader's alone: of it come the certificates of nodes and roles
//!   nodes.token          0600, with which machines become nodes, unless --token-file names it
//!   joins.json           0600, single-use tokens, and nodes that have a certificate
//!   persons.revoked      0600, ids of persons' tokens that were taken back
//!   node-key.json        0600, on a node: its key and its certificate
//!   router.key           0600, with --router: what its clients show
//!   clients.key          0600, with --router or --metrics on an address of the network: of it comes
//!   clients.pem          0600, by which clients of other machines know this daemon
//!   metrics.key          0600, with --metrics on such an address: what scrapers show
//!   engines.key          0600, with [rollout.command]: what clients show at an engine's own address
//!   run                  names this life of the job
//!   alone                of a job with [ha] that went on without etcd: where its log is
//!   services.json        the job's services: ports, lives, processes
//!   db/ ckpt/ logs/ services/
//! ```
mod job_file;
mod private;
mod shm;

pub use job_file::{JobFileError, WrittenJob, write_job};
pub use private::{Readers, make_private, make_private_dir, read_private, write_private};
pub use shm::{give_back, make_snapshots, own_name, remove_of_earlier_boots, snapshot_dir};

use crate::random;
use robust_proto::endpoint::{CONTROL_SOCKET, FOLLOWER_SOCKET};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// A file operation failed.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// With what.
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// Another user made it.
    #[error(
        "{path} belongs to uid {owner}, not to uid {us} that runs this: who owns it could change what is \
         believed of it; remove it, or name another with --state-dir (of shared memory: with ROBUST_SHM)"
    )]
    Foreign {
        /// The folder, link or file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// Others could write to it, or read a secret.
    #[error(
        "{path} is open to other users (mode {mode:o}): if nobody else wrote to it, close it with \
         `chmod {fix} {path}`; else name another with --state-dir"
    )]
    Open {
        /// The folder or file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
        /// What chmod is to be told.
        fix: &'static str,
    },
    /// A link where a file is to be.
    #[error("{path} is a link, and is not followed: put the file itself there")]
    Link {
        /// It.
        path: PathBuf,
    },
}

impl StateDirError {
    fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io {
            doing,
            path: path.to_owned(),
            source,
        }
    }
}

/// The record of what the job is made of.
pub const FILES_JSON: &str = "files.json";

/// A state directory. Whoever has the store open holds it.
#[derive(Clone, Debug)]
pub struct StateDir {
    root: PathBuf,
}

impl StateDir {
    /// Makes the directory where needed, for its owner alone.
    pub fn make(root: &Path) -> Result<Self, StateDirError> {
        make_private_dir(root)?;
        let root = root
            .canonicalize()
            .map_err(StateDirError::io("resolving", root))?;
        let dir = Self { root };
        for sub in [dir.logs(), dir.checkpoints()] {
            make_private_dir(&sub)?;
        }
        Ok(dir)
    }

    /// Removes sockets that a dead daemon left. For the holder only.
    pub fn remove_sockets(&self) -> Result<(), StateDirError> {
        remove_if_there(&self.control_socket())?;
        remove_if_there(&self.follower_socket())?;
        remove_if_there(&self.roles_socket())
    }

    /// Removes what an earlier job left, its logs excepted. For the holder only.
    pub fn clear(&self) -> Result<(), StateDirError> {
        give_back(&self.snapshots())?;
        for folder in [
            self.store(),
            self.checkpoints(),
            self.services(),
            self.files(),
        ] {
            remove_folder(&folder)?;
        }
        self.clear_revisions()?;
        remove_if_there(&self.job_json())?;
        remove_if_there(&self.run_file())?;
        remove_if_there(&self.alone())?;
        remove_if_there(&self.services_json())?;
        remove_if_there(&self.files_json())?;
        make_private_dir(&self.checkpoints())
    }

    /// Names this life of the job, from its first start to its end or `--fresh`: a number that is
    /// issued once in a job may be issued again in the next.
    pub fn run(&self, is_new: bool) -> Result<String, StateDirError> {
        let path = self.run_file();
        if let (false, Some(known)) = (is_new, read_private(&path, Readers::Owner)?) {
            return Ok(known.trim().to_owned());
        }
        let source = Path::new(random::SOURCE);
        let name = random::hex::<16>().map_err(StateDirError::io("reading", source))?;
        write_private(&path, name.as_bytes())?;
        Ok(name)
    }

    /// The name that the job's life has, if it was given one.
    pub fn known_run(&self) -> Option<String> {
        let known = read_private(&self.run_file(), Readers::Owner).ok()??;
        Some(known.trim().to_owned())
    }

    fn run_file(&self) -> PathBuf {
        self.root.join("run")
    }

    /// The directory itself, absolute.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// What clients of the router show.
    pub fn router_key(&self) -> PathBuf {
        self.root.join("router.key")
    }

    /// What [`Self::clients_authority`] is made of.
    pub fn clients_key(&self) -> PathBuf {
        self.root.join("clients.key")
    }

    /// By what clients of the router and of the metrics know this daemon, from other machines.
    pub fn clients_authority(&self) -> PathBuf {
        self.root.join("clients.pem")
    }

    /// What scrapers of other machines show.
    pub fn metrics_key(&self) -> PathBuf {
        self.root.join("metrics.key")
    }

    /// What clients of an engine of the user's show at its own address.
    pub fn engines_key(&self) -> PathBuf {
        self.root.join("engines.key")
    }

    /// The port of a router for which nobody said one.
    pub fn router_port(&self) -> PathBuf {
        self.root.join("router.port")
    }

    /// The resolved job.
    pub fn job_json(&self) -> PathBuf {
        self.root.join("job.json")
    }

    /// Digests of the job's files, as they were when they were read last.
    pub fn digests(&self) -> PathBuf {
        self.root.join("digests.json")
    }

    /// What the job is made of, by digest.
    pub fn files_json(&self) -> PathBuf {
        self.root.join(FILES_JSON)
    }

    /// Copies of the job's files: those that a node was given, or that a controller fetched.
    pub fn files(&self) -> PathBuf {
        self.root.join("files")
    }

    /// A revision of the job; 0 is the first.
    pub fn job_revision(&self, revision: u32) -> PathBuf {
        match revision {
            0 => self.job_json(),
            n => self.root.join(format!("job.{n}.json")),
        }
    }

    /// Removes all revisions but the first.
    pub fn clear_revisions(&self) -> Result<(), StateDirError> {
        let mut revisions = self.revisions()?.into_iter();
        revisions.try_for_each(|path| remove_if_there(&path))
    }

    /// All revisions but the first.
    fn revisions(&self) -> Result<Vec<PathBuf>, StateDirError> {
        let entries = fs::read_dir(&self.root).map_err(StateDirError::io("listing", &self.root))?;
        let is_revision = |entry: &fs::DirEntry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            let number = name
                .strip_prefix("job.")
                .and_then(|n| n.strip_suffix(".json"));
            number.is_some_and(|n| n.parse::<u32>().is_ok())
        };
        let revisions = entries.flatten().filter(is_revision);
        Ok(revisions.map(|entry| entry.path()).collect())
    }

    /// The job and all its revisions.
    fn all_jobs(&self) -> Result<Vec<PathBuf>, StateDirError> {
        Ok([vec![self.job_json()], self.revisions()?].concat())
    }

    /// Where operators' tools connect.
    pub fn control_socket(&self) -> PathBuf {
        self.root.join(CONTROL_SOCKET)
    }

    /// Where they are told who leads, as long as another controller does.
    pub fn follower_socket(&self) -> PathBuf {
        self.root.join(FOLLOWER_SOCKET)
    }

    /// Where role processes connect.
    pub fn roles_socket(&self) -> PathBuf {
        self.root.join("roles.sock")
    }

    /// The token for TCP clients.
    pub fn token(&self) -> PathBuf {
        self.root.join("token")
    }

    /// The leader's secret.
    pub fn authority_key(&self) -> PathBuf {
        self.root.join("authority.key")
    }

    /// The leader's secret before that, while it is taken too.
    pub fn authority_before_key(&self) -> PathBuf {
        self.root.join("authority.before.key")
    }

    /// What roles prove to each other, where it is not made of the secret that is in force.
    pub fn roles_token(&self) -> PathBuf {
        self.root.join("roles.token")
    }

    /// Who may become a node, and who did.
    pub fn joins(&self) -> PathBuf {
        self.root.join("joins.json")
    }

    /// Ids of persons' tokens that were taken back.
    pub fn revoked_persons(&self) -> PathBuf {
        self.root.join("persons.revoked")
    }

    /// A node's own key, with its certificate.
    pub fn node_key(&self) -> PathBuf {
        self.root.join("node-key.json")
    }

    /// A node's own key that has no certificate yet.
    pub fn next_node_key(&self) -> PathBuf {
        self.root.join("node-key.next.json")
    }

    /// With what machines become nodes.
    pub fn nodes_token(&self) -> PathBuf {
        self.root.join("nodes.token")
    }

    /// The database's folder.
    pub fn store(&self) -> PathBuf {
        self.root.join("db")
    }

    /// There while the job is made of its log.
    pub fn restoring(&self) -> PathBuf {
        self.root.join("restoring")
    }

    /// There once a job with `[ha]` has gone on without etcd, which knows nothing of what came since.
    pub fn alone(&self) -> PathBuf {
        self.root.join("alone")
    }

    /// Checkpoints on disk.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("ckpt")
    }

    /// Role processes' output.
    pub fn logs(&self) -> PathBuf {
        self.root.join("logs")
    }

    /// What is remembered of the job's services.
    pub fn services_json(&self) -> PathBuf {
        self.root.join("services.json")
    }

    /// A folder for each of their processes.
    pub fn services(&self) -> PathBuf {
        self.root.join("services")
    }

    /// Where the trainer keeps its snapshots: shared memory, named after this directory.
    pub fn snapshots(&self) -> PathBuf {
        snapshot_dir(&self.root)
    }
}

/// Removes a folder and all in it, if it is there.
pub fn remove_folder(path: &Path) -> Result<(), StateDirError> {
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(StateDirError::io("removing", path)(e))
        }
        _ => Ok(()),
    }
}

/// Removes a file, which may be gone already.
pub fn remove_if_there(path: &Path) -> Result<(), StateDirError> {
    match fs::remove_file(path) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => {
            Err(StateDirError::io("removing", path)(e))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn the_directory_and_private_files_are_for_the_owner_only() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::make(&temp.path().join("a/b")).unwrap();
        write_private(&dir.token(), b"x").unwrap();
        let mode = |p: &Path| fs::metadata(p).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(dir.root()), mode(&dir.token())), (0o700, 0o600));
    }

    #[test]
    fn checkpoints_that_others_could_have_written_are_not_taken() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::make(&temp.path().join("state")).unwrap();
        let elsewhere = temp.path().join("elsewhere");
        fs::create_dir_all(elsewhere.join("step-10")).unwrap();
        fs::remove_dir(dir.checkpoints()).unwrap();
        std::os::unix::fs::symlink(&elsewhere, dir.checkpoints()).unwrap();
        for (mode, taken) in [(0o770, false), (0o777, false), (0o755, true)] {
            fs::set_permissions(&elsewhere, fs::Permissions::from_mode(mode)).unwrap();
            let made = StateDir::make(dir.root());
            assert_eq!(made.is_ok(), taken, "{mode:o}");
            if let Err(refusal) = made {
                assert!(refusal.to_string().contains("/ckpt"), "{refusal}");
            }
        }
        // Nobody else looks into them from now on.
        assert_eq!(
            fs::metadata(&elsewhere).unwrap().permissions().mode() & 0o777,
            0o700
        );
    }

    #[test]
    fn a_life_of_the_job_has_one_name_and_the_next_another() {
        let temp = tempfile::tempdir().unwrap();
        let dir = StateDir::make(temp.path()).unwrap();
        let first = dir.run(true).unwrap();
        assert_eq!(dir.run(false).unwrap(), first);
        assert_ne!(dir.run(true).unwrap(), first);
    }

    #[test]
    fn sockets_of_a_dead_daemon_are_removed() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("control.sock"), b"").unwrap();
        let dir = StateDir::make(temp.path()).unwrap();
        dir.remove_sockets().unwrap();
        assert!(!dir.control_socket().exists());
    }
}
