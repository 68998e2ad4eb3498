//! What a user may read, before a program of that user fails for it.
use crate::hidden::User;
use rustix::process::{DumpableBehavior, dumpable_behavior, set_dumpable_behavior};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// A folder that a user may not read, or something in it.
#[derive(Debug, thiserror::Error)]
#[error("its user may not read {}: {source}", path.display())]
pub struct Unreadable {
    /// What cannot be opened.
    pub path: PathBuf,
    /// What the system says to that user.
    pub source: io::Error,
}

impl User {
    /// Whether this user may read a folder and the files in it: root tries it as that user, in a thread that ends with
    /// that, so that lists of access, groups and shares of the network count as they will for the program. One that is
    /// not there yet can be read if the way to it is open. Whoever is not root cannot try.
    pub fn reads(&self, folder: &Path) -> Result<(), Unreadable> {
        if !rustix::process::geteuid().is_root() {
            return Ok(());
        }
        let failed = |source| Unreadable {
            path: folder.to_owned(),
            source,
        };
        // The kernel closes a process in /proc of which a thread becomes somebody else, and leaves it so.
        let before = dumpable_behavior().unwrap_or(DumpableBehavior::Dumpable);
        let tried = std::thread::scope(|scope| {
            let tried = scope.spawn(|| {
                self.opens_files_here().map_err(failed)?;
                opened(folder)
            });
            tried.join()
        });
        let _ = set_dumpable_behavior(before);
        tried.unwrap_or_else(|_| Err(failed(io::Error::other("the thread that tried it ended"))))
    }
}

fn opened(folder: &Path) -> Result<(), Unreadable> {
    let failed = |path: &Path, source| Unreadable {
        path: path.to_owned(),
        source,
    };
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries.map_err(|error| failed(folder, error))?,
    };
    for entry in entries {
        let path = entry.map_err(|error| failed(folder, error))?.path();
        // Of a folder in it nothing is known, but that a model has none that is needed.
        if fs::metadata(&path).is_ok_and(|about| about.is_dir()) {
            continue;
        }
        File::open(&path).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn set(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn a_closed_folder_a_closed_file_and_a_closed_way_are_found_as_the_user_would_find_them() {
        if !rustix::process::geteuid().is_root() {
            return robust_needs::skip("no other user can be played", robust_needs::ROOT);
        }
        let user = User::find("nobody").unwrap();
        let way = tempfile::tempdir_in("/tmp").unwrap();
        let model = way.path().join("model");
        fs::create_dir(&model).unwrap();
        fs::write(model.join("config.json"), "{}").unwrap();
        let unreadable = || user.reads(&model).err().map(|error| error.path);
        set(way.path(), 0o700);
        set(&model, 0o755);
        assert_eq!(unreadable(), Some(model.clone()));
        set(way.path(), 0o711);
        assert_eq!(unreadable(), None);
        assert!(user.reads(&way.path().join("not-there-yet")).is_ok());
        set(&model, 0o700);
        assert_eq!(unreadable(), Some(model.clone()));
        set(&model, 0o755);
        set(&model.join("config.json"), 0o600);
        let error = user.reads(&model).unwrap_err().to_string();
        let file = model.join("config.json");
        let expected = format!(
            "its user may not read {}: Permission denied",
            file.display()
        );
        assert!(error.starts_with(&expected), "{error}");
        // This thread, and this process, are root's as before.
        assert!(fs::read(&file).is_ok() && rustix::process::geteuid().is_root());
    }
}
