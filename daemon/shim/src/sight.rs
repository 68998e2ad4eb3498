//! What a program of the user's sees of the job's own files, and what it is given of them.
//!
//! ```text
//!  STATE/          authority.key, db, sockets ..    hidden
//!    own/agent-0/  its folder                       seen
//!    ckpt/         checkpoints                      seen by ranks alone: they restore from them
//!  SNAPSHOTS/      other engines' folders           hidden, but from ranks: they write their snapshots there
//!    engine-trainer-0/given/                        files for ranks that are another user, who sees no others
//!    engine-agent-0/                                seen; keys that it is to read are copied into it
//! ```
//! A program of robustd's own user is put into a user namespace for it, one of another user sees them as that user.
//! A rank of another user sees neither checkpoints nor snapshots: robustd maps both, and who may write to a file may
//! also cut it short under who maps it. What it takes up and what it writes are files of their own (`trainer::given`).
//! Folders that are still this process's are made that user's before its first program starts.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use robust_proto::{ENGINES_KEY_VARIABLE, ROUTER_KEY_VARIABLE};
use robust_role::RoleArgs;
use robust_shared::job::HideState;
use robust_tree::{Hidden, User};

use crate::home::Home;

/// Variables that name a file with a key, which lies in the state directory.
const KEY_FILES: [&str; 2] = [ENGINES_KEY_VARIABLE, ROUTER_KEY_VARIABLE];
/// Checkpoints, in the state directory.
const CHECKPOINTS: &str = "ckpt";

/// What a program is to see cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum SightError {
    /// The job file wants the state directory hidden, or another user, and that cannot be had here.
    #[error(
        "the state directory cannot be hidden from the program: {0}; as root name a `user` in the command's table \
         (robustd has to be permitted to mount, CAP_SYS_ADMIN), as another user permit user namespaces (sysctl \
         user.max_user_namespaces), or leave `user` out and set job.hide_state"
    )]
    NotHidden(#[from] robust_tree::NotHidden),
    /// The state directory lies where the user does not come.
    #[error(
        "its user may not pass {}, which is on the way to its folders: name another folder with --state-dir, or open \
         that one to passing (chmod o+x)",
        path.display()
    )]
    Closed {
        /// The folder on the way.
        path: PathBuf,
    },
    /// The model that its command names lies where the user does not come, or is not its to read.
    #[error(
        "it is given the model in {}, and {source}: open the folder to reading and those on the way to passing (chmod -R \
         o+rX, chmod o+x), or name another one (model.path; for a model that robustd makes, ROBUST_CACHE)",
        model.display()
    )]
    Model {
        /// The folder.
        model: PathBuf,
        /// What of it cannot be read.
        source: robust_tree::Unreadable,
    },
    /// It would not find itself.
    #[error(
        "it starts in {}, which is hidden from it with the state directory: keep programs and state directory apart",
        path.display()
    )]
    HiddenFolder {
        /// Where it starts.
        path: PathBuf,
    },
    /// A folder of its own cannot be given to it.
    #[error("its folder {}: {source}", path.display())]
    Folder {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

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
    /// The folder of the job's model, if it has one.
    pub model: Option<&'a Path>,
    /// Whether it is a trainer's rank.
    pub rank: bool,
}

impl<'a> Sight<'a> {
    /// Of a role's program.
    pub fn of(args: &'a RoleArgs, home: &'a Home, folder: &'a Path) -> Self {
        Self {
            hide: args.job.job.hide_state,
            socket: Some(&args.host_socket),
            home,
            folder,
            model: args.job.model.path.as_deref(),
            rank: false,
        }
    }

    /// Which is a trainer's rank.
    pub fn of_rank(self) -> Self {
        Self { rank: true, ..self }
    }
}

impl Sight<'_> {
    /// What is hidden from a program that starts in `cwd`, as `user`. The keys that its environment names are
    /// copied to where it can read them.
    pub(crate) fn hidden(
        &self,
        user: Option<&User>,
        cwd: &Path,
        env: &mut [(OsString, OsString)],
    ) -> Result<Option<Hidden>, SightError> {
        let sees_states = self.rank && user.is_none();
        let hidden = Hidden {
            covered: self.covered(sees_states),
            kept: self.kept(sees_states),
            user: user.cloned(),
        };
        if let Some(user) = user {
            let closed = hidden.covered.iter().find_map(|of| closed_to(of, user));
            if let Some(path) = closed {
                return Err(SightError::Closed { path });
            }
            self.give(user)?;
        } else if self.hide == HideState::Off {
            return Ok(None);
        }
        let must = user.is_some() || self.hide == HideState::Require;
        let Some(hidden) = permitted(hidden, cwd, must)? else {
            return Ok(None);
        };
        for (name, path) in env {
            if KEY_FILES.iter().any(|key| name == key) {
                *path = self.copied(Path::new(path), user)?.into();
            }
        }
        Ok(Some(hidden))
    }

    /// Whether a program of this user may read the model, if one of the texts that it gets names that.
    pub(crate) fn lets_read<'t>(
        &self,
        user: &User,
        mut texts: impl Iterator<Item = &'t OsStr>,
    ) -> Result<(), SightError> {
        let Some(model) = self.model else {
            return Ok(());
        };
        let name = model.as_os_str().as_bytes();
        let names = |text: &OsStr| text.as_bytes().windows(name.len()).any(|part| part == name);
        if name.is_empty() || !texts.any(names) {
            return Ok(());
        }
        user.reads(model).map_err(|source| SightError::Model {
            model: model.to_owned(),
            source,
        })
    }

    fn covered(&self, sees_states: bool) -> Vec<PathBuf> {
        let state = self.socket.and_then(Path::parent).map(Path::to_owned);
        let snapshots = self.home.root().parent().map(Path::to_owned);
        state
            .into_iter()
            .chain(snapshots.filter(|_| !sees_states))
            .collect()
    }

    fn kept(&self, sees_states: bool) -> Vec<PathBuf> {
        let mut kept = vec![self.home.root().to_owned(), self.folder.to_owned()];
        if sees_states {
            let state = self.socket.and_then(Path::parent);
            let checkpoints = state.map(|state| state.join(CHECKPOINTS));
            kept.extend(checkpoints.filter(|path| path.is_dir()));
            kept.extend(self.home.root().parent().map(Path::to_owned));
        }
        kept
    }

    /// Makes its folders the user's. In the one around them it may write nothing: what lies there is this process's.
    fn give(&self, user: &User) -> Result<(), SightError> {
        let given = |path: &Path, done: io::Result<()>| {
            done.map_err(|source| SightError::Folder {
                path: path.to_owned(),
                source,
            })
        };
        let (root, run) = (self.home.root(), self.home.run());
        let passable = fs::set_permissions(root, fs::Permissions::from_mode(0o711));
        given(root, passable)?;
        given(&run, give_all(&run, user))?;
        given(self.folder, give_all(self.folder, user))?;
        // Some programs open their output again, by its name in /proc; a terminal is not theirs.
        if let Ok(log) = io::stderr().as_fd().try_clone_to_owned().map(File::from)
            && log.metadata().is_ok_and(|about| about.is_file())
        {
            let _ = std::os::unix::fs::fchown(&log, Some(user.uid()), Some(user.gid()));
        }
        Ok(())
    }

    /// A copy of a file with a key, in the program's folder.
    fn copied(&self, key: &Path, user: Option<&User>) -> Result<PathBuf, SightError> {
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
        copied().map_err(|source| SightError::Folder {
            path: copy.clone(),
            source,
        })?;
        Ok(copy)
    }
}

/// What is hidden from a rank's program that waits until it is known which rank it is: it sees what each of them may,
/// whose folders are given. No key is copied for it: who waits has none.
pub(crate) fn hidden_from_waiting(
    hide: HideState,
    (state, snapshots): (&Path, &Path),
    folders: Vec<PathBuf>,
    cwd: &Path,
) -> Result<Option<Hidden>, SightError> {
    if hide == HideState::Off {
        return Ok(None);
    }
    let checkpoints = Some(state.join(CHECKPOINTS)).filter(|path| path.is_dir());
    let snapshots = Some(snapshots.to_owned());
    let hidden = Hidden {
        covered: vec![state.to_owned()],
        kept: folders
            .into_iter()
            .chain(checkpoints)
            .chain(snapshots)
            .collect(),
        user: None,
    };
    permitted(hidden, cwd, hide == HideState::Require)
}

/// This, if it can be hidden from a program that starts in `cwd`. If not, that is an error where it must.
fn permitted(hidden: Hidden, cwd: &Path, must: bool) -> Result<Option<Hidden>, SightError> {
    let refused = match sees_its_folder(&hidden, cwd) {
        true => hidden.permitted().err().map(SightError::from),
        false => Some(SightError::HiddenFolder {
            path: cwd.to_owned(),
        }),
    };
    match refused {
        None => Ok(Some(hidden)),
        Some(error) if must => Err(error),
        Some(error) => {
            tracing::info!("the state directory is not hidden from the program: {error}");
            Ok(None)
        }
    }
}

/// Whether a program still sees the folder that it starts in.
fn sees_its_folder(hidden: &Hidden, cwd: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let cwd = real(cwd);
    let within = |folders: &[PathBuf]| folders.iter().any(|of| cwd.starts_with(real(of)));
    within(&hidden.kept) || !within(&hidden.covered)
}

/// Gives a folder of this process and all in it to a user. One that is his by now is left as it is: what he may
/// have put there is not followed.
fn give_all(path: &Path, user: &User) -> io::Result<()> {
    let about = fs::symlink_metadata(path)?;
    let us = rustix::process::geteuid().as_raw();
    match about.uid() {
        owner if owner == user.uid() => return Ok(()),
        owner if owner == us && about.is_dir() => {}
        owner => {
            return Err(io::Error::other(format!(
                "it belongs to uid {owner}: an earlier `user` of this program; give it to the one of now, or remove it"
            )));
        }
    }
    // Nobody else gets into it before it is given itself, at last.
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
    let mut left: Vec<PathBuf> = entries(path)?;
    while let Some(path) = left.pop() {
        if fs::symlink_metadata(&path)?.is_dir() {
            left.extend(entries(&path)?);
        }
        lchown(&path, Some(user.uid()), Some(user.gid()))?;
    }
    lchown(path, Some(user.uid()), Some(user.gid()))
}

fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?;
    entries.map(|entry| Ok(entry?.path())).collect()
}

/// A folder on the way to this one that the user may not pass.
fn closed_to(path: &Path, user: &User) -> Option<PathBuf> {
    let passes = |folder: &&Path| {
        let Ok(about) = fs::metadata(folder) else {
            return false;
        };
        let mode = about.mode();
        let own = about.uid() == user.uid() && mode & 0o100 != 0;
        own || mode & 0o001 != 0 || (about.gid() == user.gid() && mode & 0o010 != 0)
    };
    let mut around = path.ancestors().skip(1);
    around.find(|folder| !passes(folder)).map(Path::to_owned)
}
