//! The files that a rank and its program share, where the program may be another user.
//!
//! ```text
//!  this process                                   the program
//!  SNAPSHOTS/trainer-0.slot1   ◄── copied ─────── given/state-1                 written
//!  SNAPSHOTS/trainer-1.slot0   ─── linked ──────► given/taken-1                 only read
//!  STATE/ckpt/step-4/..        ─── linked ──────► STATE/own/trainer-0/taken-0   only read
//!                                                 given/batch-0, given/version-1-0
//! ```
//! A program of robustd's own user works on snapshots and checkpoints in their places. One of another user must not
//! own such a file: robustd maps it, and who owns a file may cut it short, which ends whoever has it mapped. So what
//! it writes of a state is a file of its own, from which this process copies, and what it takes up is another name of
//! the file, which its group may read.
//!
//! The folder is this process's: the user can write into the files in it and put none there, so that no link of the
//! user's leads this process elsewhere.

use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, lchown};
use std::path::{Path, PathBuf};

use robust_tree::User;

/// Such files.
#[derive(Debug)]
pub struct Given {
    folder: PathBuf,
    /// The instance's own folder on the disk.
    disk: PathBuf,
    user: Option<User>,
    taken: Vec<PathBuf>,
}

impl Given {
    /// Makes the folder anew. `disk` is another one that the program sees, beside the checkpoints.
    pub fn new(folder: PathBuf, disk: PathBuf, user: Option<User>) -> io::Result<Self> {
        match fs::remove_dir_all(&folder) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        fs::DirBuilder::new().mode(0o700).create(&folder)?;
        if user.is_some() {
            fs::set_permissions(&folder, Permissions::from_mode(0o711))?;
        }
        for name in fs::read_dir(&disk)?
            .flatten()
            .map(|entry| entry.file_name())
        {
            // Of a life that was killed while its program took a state up.
            if is_taken(&name) {
                fs::remove_file(disk.join(name))?;
            }
        }
        Ok(Self {
            folder,
            disk,
            user,
            taken: Vec::new(),
        })
    }

    /// Whether states are copied: the program may not have the slots themselves.
    pub fn are_copied(&self) -> bool {
        self.user.is_some()
    }

    /// Where the file of this name is.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// A new, empty file that the program may write to. One of that name is gone; who has it open or mapped keeps it.
    pub fn make(&self, name: &str) -> io::Result<File> {
        self.remove(name)?;
        let path = self.path(name);
        let mut new = File::options();
        let new = new.read(true).write(true).create_new(true).mode(0o600);
        let file = new.open(&path)?;
        self.hand_over(name)?;
        Ok(file)
    }

    /// Removes the file of this name, if there is one.
    pub fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// The program may read and write the file of this name from now on.
    pub fn hand_over(&self, name: &str) -> io::Result<()> {
        match &self.user {
            Some(user) => lchown(self.path(name), Some(user.uid()), Some(user.gid())),
            None => Ok(()),
        }
    }

    /// Where the program may read a file of this process's, until [`Self::is_taken_up`].
    pub fn show(&mut self, path: &Path) -> io::Result<PathBuf> {
        let Some(user) = &self.user else {
            return Ok(path.to_owned());
        };
        let name = format!("{TAKEN}{}", self.taken.len());
        let file = File::open(path)?;
        let about = file.metadata()?;
        let lies_in = |folder: &Path| {
            let there = fs::metadata(folder);
            there.is_ok_and(|there| there.dev() == about.dev())
        };
        let folders = [&self.folder, &self.disk];
        let beside = folders.into_iter().find(|folder| lies_in(folder));
        let name = match beside {
            Some(folder) => {
                // Nobody but the program gets to it: the folders around its other name are closed.
                std::os::unix::fs::fchown(&file, None, Some(user.gid()))?;
                file.set_permissions(Permissions::from_mode(0o640))?;
                let name = folder.join(name);
                let _ = fs::remove_file(&name);
                fs::hard_link(path, &name)?;
                name
            }
            // A folder of checkpoints on a file system of its own.
            None => {
                let mut copy = self.make(&name)?;
                io::copy(&mut &file, &mut copy)?;
                self.path(&name)
            }
        };
        self.taken.push(name.clone());
        Ok(name)
    }

    /// The program has what it was to read, or another try begins.
    pub fn is_taken_up(&mut self) {
        for path in self.taken.drain(..) {
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!(path = %path.display(), %error, "what was taken up stays");
            }
        }
    }
}

/// How names of what is taken up begin.
const TAKEN: &str = "taken-";

fn is_taken(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(TAKEN))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::process::Command;

    /// Whether a process of this user can do this to the file.
    fn can(user: &User, what: &str, path: &Path) -> bool {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{what} 2> /dev/null"), "sh"]);
        std::os::unix::process::CommandExt::uid(&mut shell, user.uid());
        std::os::unix::process::CommandExt::gid(&mut shell, user.gid());
        shell.current_dir("/").arg(path).status().unwrap().success()
    }

    #[test]
    fn a_program_of_another_user_reads_a_state_and_can_neither_change_it_nor_put_a_link_in_its_place()
     {
        if !rustix::process::geteuid().is_root() {
            return robust_needs::skip("no other user can be played", robust_needs::ROOT);
        }
        let user = User::find("nobody").unwrap();
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o711)).unwrap();
        let (disk, slot) = (dir.path().join("disk"), dir.path().join("slot"));
        fs::create_dir(&disk).unwrap();
        fs::write(disk.join("taken-7"), "of a life before").unwrap();
        fs::write(&slot, "a state").unwrap();
        fs::set_permissions(&slot, Permissions::from_mode(0o600)).unwrap();
        let folder = dir.path().join("given");
        let mut given = Given::new(folder.clone(), disk.clone(), Some(user.clone())).unwrap();
        assert!(!disk.join("taken-7").exists());

        let seen = given.show(&slot).unwrap();
        assert!(can(&user, "grep -q state \"$1\"", &seen));
        assert!(!can(&user, ": >> \"$1\"", &seen));
        assert!(!can(&user, "chmod 0666 \"$1\"", &seen));
        assert!(!can(&user, "ln -s /etc/passwd \"$1/batch-1\"", &folder));
        assert!(!can(&user, "rm \"$1\"", &seen));
        given.is_taken_up();
        assert!(!seen.exists());
        assert_eq!(fs::read(&slot).unwrap(), b"a state");

        let own = given.make("state-1").unwrap();
        assert!(can(&user, "printf abc > \"$1\"", &given.path("state-1")));
        assert_eq!(own.metadata().unwrap().len(), 3);
        // What lay there is not written to: it may be a link that an earlier build let the user make.
        fs::remove_file(given.path("state-1")).unwrap();
        std::os::unix::fs::symlink(&slot, given.path("state-1")).unwrap();
        drop(given.make("state-1").unwrap());
        assert_eq!(fs::metadata(&slot).unwrap().uid(), 0);
    }
}
