//! Folders that a child does not see, and the user that it runs as.
//!
//! ```text
//!  outside                         within
//!  STATE/authority.key             STATE/              empty, and nobody can write to it
//!  STATE/own/agent-0/  ─ kept ───► STATE/own/agent-0/  the same folder
//! ```
//! An unprivileged caller's child has a user namespace of its own. So it may not look into the caller's processes
//! either, in whose `/proc/PID/root` the folders are still to be seen, though they have the same user. Root can look
//! everywhere: root's child has to become another user. It then gets a user namespace too, where that user may make
//! one, for other children are the same user and have folders of their own.
use crate::maps::Maps;
use crate::netns::Way;
use nix::unistd::{Gid, Uid, User as Known, getgrouplist, setfsgid, setfsuid};
use rustix::fd::OwnedFd;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change,
    mount_remount, move_mount, open_tree,
};
use rustix::process::chdir;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use rustix::thread::{
    UnshareFlags, set_thread_groups, set_thread_res_gid, set_thread_res_uid, unshare_unsafe,
};
use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What a child does not see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hidden {
    /// Folders of which the child sees nothing.
    pub covered: Vec<PathBuf>,
    /// But for these folders and files in them, which are there when it starts.
    pub kept: Vec<PathBuf>,
    /// Who the child is. Root names one, and only root may.
    pub user: Option<User>,
}

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    name: String,
    home: PathBuf,
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

/// Why there is no such user.
#[derive(Debug, thiserror::Error)]
pub enum UserError {
    /// Nobody has this name or number.
    #[error("this machine has no user `{0}`")]
    Unknown(String),
    /// It is root.
    #[error("user `{0}` is root, from whom nothing can be hidden")]
    Root(String),
    /// The system's list cannot be read.
    #[error("looking user `{name}` up: {source}")]
    List {
        /// Whom.
        name: String,
        /// The system's words.
        source: io::Error,
    },
}

/// Why nothing can be hidden here.
#[derive(Debug, thiserror::Error)]
pub enum NotHidden {
    /// Root sees everything.
    #[error("root sees everything: it has to name another user")]
    Root,
    /// The system refuses.
    #[error("the system permits no {} here: {source}", match way {
        Way::Privileged => "mount namespace and no other user",
        Way::UserNamespace => "user namespace with mounts of its own",
    })]
    Refused {
        /// The way that was tried.
        way: Way,
        /// Its words.
        source: io::Error,
    },
}

impl User {
    /// By name, or by number.
    pub fn find(name: &str) -> Result<Self, UserError> {
        let failed = |errno: nix::Error| UserError::List {
            name: name.to_owned(),
            source: errno.into(),
        };
        let found = match name.parse::<u32>() {
            Ok(number) => Known::from_uid(number.into()),
            Err(_) => Known::from_name(name),
        };
        let found = found.map_err(failed)?;
        let found = found.ok_or_else(|| UserError::Unknown(name.to_owned()))?;
        if found.uid.is_root() {
            return Err(UserError::Root(name.to_owned()));
        }
        let text = CString::new(found.name.as_bytes()).unwrap_or_default();
        let groups = getgrouplist(&text, found.gid).map_err(failed)?;
        Ok(Self {
            name: found.name,
            home: found.dir,
            uid: found.uid.as_raw(),
            gid: found.gid.as_raw(),
            groups: groups.into_iter().map(Gid::as_raw).collect(),
        })
    }

    /// Its number.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// The number of its group.
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// This thread opens files as this user from now on, with no right of root's. In all else it stays who it is, so
    /// that no process of the user's may stop it or look into it.
    pub(crate) fn opens_files_here(&self) -> io::Result<()> {
        let groups = self
            .groups
            .iter()
            .copied()
            .map(rustix::process::Gid::from_raw);
        set_thread_groups(&groups.collect::<Vec<_>>())?;
        setfsgid(Gid::from_raw(self.gid));
        setfsuid(Uid::from_raw(self.uid));
        Ok(())
    }

    /// What its programs expect in their environment.
    pub fn environment(&self) -> [(OsString, OsString); 3] {
        [
            ("HOME".into(), self.home.clone().into()),
            ("USER".into(), self.name.clone().into()),
            ("LOGNAME".into(), self.name.clone().into()),
        ]
    }
}

impl Hidden {
    /// In which way it is hidden. None where that is impossible for this caller.
    pub(crate) fn way(&self) -> Option<Way> {
        let root = rustix::process::geteuid().is_root();
        match (&self.user, root) {
            (Some(_), _) => Some(Way::Privileged),
            (None, false) => Some(Way::UserNamespace),
            (None, true) => None,
        }
    }
}

/// The same, made before the fork.
pub(crate) struct Plan {
    covered: Vec<CString>,
    kept: Vec<Kept>,
    /// Room for a descriptor of each.
    open: Vec<OwnedFd>,
    cwd: CString,
    user: Option<(rustix::fs::Uid, rustix::fs::Gid, Vec<rustix::fs::Gid>)>,
    maps: Maps,
}

struct Kept {
    path: CString,
    /// The folders that lead to it, from the covered one on.
    parents: Vec<CString>,
    folder: bool,
}

impl Plan {
    pub fn new(hidden: &Hidden, cwd: &Path) -> io::Result<Self> {
        let covered = outermost(&hidden.covered)?;
        let mut kept = Vec::new();
        for path in outermost(&hidden.kept)? {
            let below = covered
                .iter()
                .find(|folder| path.starts_with(folder) && path != **folder);
            if let Some(folder) = below {
                kept.push(Kept::new(folder, &path)?);
            }
        }
        let gid = rustix::fs::Gid::from_raw;
        Ok(Self {
            covered: covered.iter().map(|p| text(p)).collect::<Result<_, _>>()?,
            open: Vec::with_capacity(kept.len()),
            kept,
            cwd: text(cwd)?,
            maps: match &hidden.user {
                Some(user) => Maps::of(user.uid, user.gid),
                None => Maps::default(),
            },
            user: hidden.user.as_ref().map(|user| {
                let groups = user.groups.iter().map(|&group| gid(group));
                let uid = rustix::fs::Uid::from_raw(user.uid);
                (uid, gid(user.gid), groups.collect())
            }),
        })
    }

    /// In the namespaces of the child's own. Async-signal-safe.
    pub fn enter(&mut self) -> io::Result<()> {
        let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change(c"/", private)?;
        for kept in &self.kept {
            let tree = OpenTreeFlags::OPEN_TREE_CLONE
                | OpenTreeFlags::OPEN_TREE_CLOEXEC
                | OpenTreeFlags::AT_RECURSIVE;
            // There is room for it: nothing is allocated.
            self.open.push(open_tree(CWD, kept.path.as_c_str(), tree)?);
        }
        let bare = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        for folder in &self.covered {
            mount(c"robust", folder.as_c_str(), c"tmpfs", bare, c"mode=0755")?;
        }
        for (kept, open) in self.kept.iter().zip(&self.open) {
            kept.show(open)?;
        }
        for folder in &self.covered {
            let only_read = bare | MountFlags::BIND | MountFlags::RDONLY;
            mount_remount(folder.as_c_str(), only_read, c"")?;
        }
        // Where it is now is a folder of the view before: it may be one that is covered.
        chdir(self.cwd.as_c_str())?;
        if let Some((uid, gid, groups)) = &self.user {
            set_thread_groups(groups)?;
            set_thread_res_gid(*gid, *gid, *gid)?;
            set_thread_res_uid(*uid, *uid, *uid)?;
            self.apart_from_the_same_user()?;
        }
        Ok(())
    }

    /// Into a user namespace, from which other processes of this user cannot be looked into. Where it may make none it
    /// stays among them.
    #[allow(unsafe_code)]
    fn apart_from_the_same_user(&self) -> io::Result<()> {
        // SAFETY: the descriptor table stays shared with nobody: `FILES` is not among the flags.
        if unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.is_err() {
            return Ok(());
        }
        // Who has changed its user may not write to its own files in /proc, but for this moment: what is in its memory
        // is still the caller's.
        set_dumpable_behavior(DumpableBehavior::Dumpable)?;
        let opened = Maps::open();
        set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        self.maps.write(&opened?)
    }
}

impl Kept {
    fn new(covered: &Path, path: &Path) -> io::Result<Self> {
        let leading = path.ancestors().skip(1);
        let leading = leading.take_while(|parent| *parent != covered);
        let mut parents = leading.map(text).collect::<io::Result<Vec<_>>>()?;
        parents.reverse();
        Ok(Self {
            path: text(path)?,
            parents,
            folder: path.is_dir(),
        })
    }

    /// Makes the place for it, and puts it there.
    fn show(&self, open: &OwnedFd) -> io::Result<()> {
        let mode = Mode::from_raw_mode(0o755);
        let make = |path: &CString| match mkdirat(CWD, path.as_c_str(), mode) {
            // Another one that is kept has it, too.
            Err(rustix::io::Errno::EXIST) => Ok(()),
            made => made,
        };
        self.parents.iter().try_for_each(make)?;
        match self.folder {
            true => make(&self.path)?,
            false => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                drop(openat(CWD, self.path.as_c_str(), flags, mode)?);
            }
        }
        let from_itself = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        Ok(move_mount(
            open,
            c"",
            CWD,
            self.path.as_c_str(),
            from_itself,
        )?)
    }
}

/// These as they are called without links, without those that lie in another.
fn outermost(paths: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut all = Vec::new();
    for path in paths {
        all.push(path.canonicalize()?);
    }
    all.sort();
    // Sorted by components, a folder stands right before what it holds.
    let mut outermost: Vec<PathBuf> = Vec::new();
    for path in all {
        if outermost
            .last()
            .is_none_or(|outer| !path.starts_with(outer))
        {
            outermost.push(path);
        }
    }
    Ok(outermost)
}

fn text(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)
}
