//! What a program of the user's sees of the job's own files, and what it is given of them.
//!
//! ```text
//!  STATE/          authority.key, db, sockets ..    hidden
//!    own/agent-0/  its folder                       seen
//!    ckpt/         checkpoints                      seen by ranks alone: they restore from them
//!  SNAPSHOTS/      other engines' folders           hidden, but from ranks: they write their snapshots there
//!    engine-agent-0/                                seen; keys that it is to read are copied into it
//! ```
//! A program of robustd's own user is put into a user namespace for it, one of another user sees them as that user.
//! Whatever its user, the folders that it gets are made its own before it starts, while nothing of it lives.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use robust_proto::{ENGINES_KEY_VARIABLE, ROUTER_KEY_VARIABLE};
use robust_shared::job::HideState;
use robust_tree::{Hidden, User};

use crate::home::Home;
use crate::process::StartError;

/// Variables that name a file with a key, which lies in the state directory.
const KEY_FILES: [&str; 2] = [ENGINES_KEY_VARIABLE, ROUTER_KEY_VARIABLE];
/// Checkpoints, in the state directory.
const CHECKPOINTS: &str = "ckpt";

/// What there is to be hidden, and from whom.
#[derive(Debug, Clone, Copy)]
pub struct Sight<'a> {
    /// Whether it is to be hidden.
    pub hide: HideState,
    /// The daemon's socket in the state directory. None: there is no daemon.
    pub socket: Option<&'a Path>,
    /// The program's folder in shared memory.
    pub home: &'a Home,
    /// Its folder on the disk.
    pub folder: &'a Path,
    /// Whether it is a trainer's rank.
    pub rank: bool,
}

impl Sight<'_> {
    /// What is hidden from a program that starts in `cwd`, as `user`. The keys that its environment names are
    /// copied to where it can read them.
    pub(crate) fn hidden(
        &self,
        user: Option<&User>,
        cwd: &Path,
        env: &mut [(OsString, OsString)],
    ) -> Result<Option<Hidden>, StartError> {
        let hidden = Hidden {
            covered: self.covered(),
            kept: self.kept(),
            user: user.cloned(),
        };
        if let Some(user) = user {
            self.give(user)?;
        } else if self.hide == HideState::Off {
            return Ok(None);
        }
        let refused = match sees_its_folder(&hidden, cwd) {
            true => hidden.permitted().err().map(StartError::from),
            false => Some(StartError::HiddenFolder {
                path: cwd.to_owned(),
            }),
        };
        match refused {
            None => {}
            Some(error) if user.is_some() || self.hide == HideState::Require => return Err(error),
            Some(error) => {
                tracing::info!("the state directory is not hidden from the program: {error}");
                return Ok(None);
            }
        }
        for (name, path) in env {
            if KEY_FILES.iter().any(|key| name == key) {
                *path = self.copied(Path::new(path), user)?.into();
            }
        }
        Ok(Some(hidden))
    }

    fn covered(&self) -> Vec<PathBuf> {
        let state = self.socket.and_then(Path::parent).map(Path::to_owned);
        let snapshots = self.home.root().parent().map(Path::to_owned);
        state
            .into_iter()
            .chain(snapshots.filter(|_| !self.rank))
            .collect()
    }

    fn kept(&self) -> Vec<PathBuf> {
        let mut kept = vec![self.home.root().to_owned(), self.folder.to_owned()];
        if self.rank {
            let state = self.socket.and_then(Path::parent);
            let checkpoints = state.map(|state| state.join(CHECKPOINTS));
            kept.extend(checkpoints.filter(|path| path.is_dir()));
            kept.extend(self.home.root().parent().map(Path::to_owned));
        }
        kept
    }

    /// Makes its folders the user's. In the one around them it may write nothing: what lies there is this process's.
    fn give(&self, user: &User) -> Result<(), StartError> {
        let given = |path: &Path, done: io::Result<()>| {
            done.map_err(|source| StartError::Folder {
                path: path.to_owned(),
                source,
            })
        };
        let (root, run) = (self.home.root(), self.home.run());
        let passable = fs::set_permissions(root, fs::Permissions::from_mode(0o711));
        given(root, passable)?;
        given(&run, own_all(&run, user))?;
        given(self.folder, own_all(self.folder, user))?;
        // Some programs open their output again, by its name in /proc.
        let log = io::stderr();
        let (uid, gid) = (
            rustix::fs::Uid::from_raw(user.uid()),
            rustix::fs::Gid::from_raw(user.gid()),
        );
        let _ = rustix::fs::fchown(log.as_fd(), Some(uid), Some(gid));
        Ok(())
    }

    /// A copy of a file with a key, in the program's folder.
    fn copied(&self, key: &Path, user: Option<&User>) -> Result<PathBuf, StartError> {
        let name = key.file_name().unwrap_or_default();
        let copy = self.home.root().join(name);
        let copied = || {
            let text = fs::read(key)?;
            match fs::remove_file(&copy) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = File::options();
            let mut file = file.write(true).create_new(true).mode(0o600).open(&copy)?;
            file.write_all(&text)?;
            match user {
                Some(user) => std::os::unix::fs::fchown(&file, Some(user.uid()), Some(user.gid())),
                None => Ok(()),
            }
        };
        copied().map_err(|source| StartError::Folder {
            path: copy.clone(),
            source,
        })?;
        Ok(copy)
    }
}

/// Whether a program still sees the folder that it starts in.
fn sees_its_folder(hidden: &Hidden, cwd: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let cwd = real(cwd);
    let within = |folders: &[PathBuf]| folders.iter().any(|of| cwd.starts_with(real(of)));
    within(&hidden.kept) || !within(&hidden.covered)
}

/// Gives a folder and all in it to a user, if it is not his yet. Links are given, not followed.
fn own_all(path: &Path, user: &User) -> io::Result<()> {
    let device = fs::symlink_metadata(path)?.dev();
    let mut left = vec![path.to_owned()];
    while let Some(path) = left.pop() {
        let about = fs::symlink_metadata(&path)?;
        if about.dev() != device {
            continue;
        }
        if about.is_dir() {
            for entry in fs::read_dir(&path)? {
                left.push(entry?.path());
            }
        }
        lchown(&path, Some(user.uid()), Some(user.gid()))?;
    }
    Ok(())
}
