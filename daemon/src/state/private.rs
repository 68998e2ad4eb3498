//! Folders and files that are trusted because nobody else can write to them. Whose they are is looked at
//! after they are opened: a name may mean something else a moment later.
//!
//! ```text
//! folder ── a link of another user's? ──► opened ── ours? ──► empty, or others may not write? ──► closed to them
//! ```
//! Names below `/tmp` and `/dev/shm` can be guessed, and another user may have made them first.
use super::{StateDirError, remove_if_there};
use rustix::process::geteuid;
use std::fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Rights of the group and of all others.
const OTHERS: u32 = 0o077;
/// Their rights to write.
const OTHERS_WRITE: u32 = 0o022;
/// The same as [`OTHERS`], but for the group's right to read.
const BUT_GROUP_READS: u32 = 0o037;

/// Makes a directory (and those above it) that only its owner can enter. One that is there has to be ours,
/// and is closed to others if they may look into it.
pub fn make_private_dir(path: &Path) -> Result<(), StateDirError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(StateDirError::io("creating", path))?;
    let named = fs::symlink_metadata(path).map_err(StateDirError::io("looking at", path))?;
    if named.is_symlink() && !is_trusted(&named) {
        return Err(foreign(path, &named));
    }
    let folder = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(path)
        .map_err(StateDirError::io("opening", path))?;
    let found = folder
        .metadata()
        .map_err(StateDirError::io("looking at", path))?;
    if found.uid() != geteuid().as_raw() {
        return Err(foreign(path, &found));
    }
    // Where others could write, what is there may be theirs; an empty folder, as mkdir makes it, has nothing.
    let is_doubtful = |found: &Metadata| found.mode() & OTHERS_WRITE != 0 && !is_empty(path);
    if is_doubtful(&found) {
        return Err(writable(path, &found, "700"));
    }
    if found.mode() & OTHERS != 0 {
        let mode = Permissions::from_mode(0o700);
        let closed = folder.set_permissions(mode);
        closed.map_err(StateDirError::io("closing to others", path))?;
        // Laid there in the moment before.
        if is_doubtful(&found) {
            return Err(writable(path, &found, "700"));
        }
    }
    Ok(())
}

fn is_empty(path: &Path) -> bool {
    fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none())
}

/// Who may read a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// Its owner: it is a secret, or lies in a folder of our own, where nobody else lays a link.
    Owner,
    /// Its owner and his group: it is a secret that somebody else laid where it is, perhaps as a link. So are Kubernetes'
    /// volumes, whose files are root's and of the pod's group.
    Group,
    /// Whoever its mode says: somebody else chose where it lies, perhaps as a link.
    Any,
}

/// Reads a file that is believed; none if it is not there. It has to be ours, or root's.
pub fn read_private(path: &Path, readers: Readers) -> Result<Option<String>, StateDirError> {
    let mut options = OpenOptions::new();
    // A pipe that somebody laid there is not waited for.
    let mut flags = libc::O_NONBLOCK;
    if readers == Readers::Owner {
        flags |= libc::O_NOFOLLOW;
    }
    let mut file = match options.read(true).custom_flags(flags).open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) if e.raw_os_error() == Some(libc::ELOOP) => {
            let path = path.to_owned();
            return Err(StateDirError::Link { path });
        }
        file => file.map_err(StateDirError::io("opening", path))?,
    };
    let found = file
        .metadata()
        .map_err(StateDirError::io("looking at", path))?;
    let (bad, mode) = match readers {
        Readers::Owner => (OTHERS, "600"),
        Readers::Group => (BUT_GROUP_READS, "640"),
        Readers::Any => (OTHERS_WRITE, "go-w"),
    };
    if !is_trusted(&found) {
        return Err(foreign(path, &found));
    }
    if found.mode() & bad != 0 {
        return Err(writable(path, &found, mode));
    }
    let mut text = String::new();
    file.read_to_string(&mut text)
        .map_err(StateDirError::io("reading", path))?;
    Ok(Some(text))
}

/// Ours, or root's, who can do everything anyway.
fn is_trusted(found: &Metadata) -> bool {
    found.uid() == geteuid().as_raw() || found.uid() == 0
}

fn foreign(path: &Path, found: &Metadata) -> StateDirError {
    StateDirError::Foreign {
        path: path.to_owned(),
        owner: found.uid(),
        us: geteuid().as_raw(),
    }
}

fn writable(path: &Path, found: &Metadata, fix: &'static str) -> StateDirError {
    StateDirError::Open {
        path: path.to_owned(),
        mode: found.mode() & 0o777,
        fix,
    }
}

/// Writes a file that only its owner can read, so that readers see the old text or the new.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StateDirError> {
    let temporary = path.with_extension("new");
    remove_if_there(&temporary)?;
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .map_err(StateDirError::io("creating", &temporary))?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(StateDirError::io("writing", &temporary))?;
    fs::rename(&temporary, path).map_err(StateDirError::io("renaming", path))?;
    // A name outlives a power cut only when its folder is written too.
    let folder = path.parent().unwrap_or(Path::new("."));
    let synced = File::open(folder).and_then(|folder| folder.sync_all());
    synced.map_err(StateDirError::io("syncing", folder))
}

/// Lets only the owner use a socket.
pub fn make_private(path: &Path) -> Result<(), StateDirError> {
    fs::set_permissions(path, Permissions::from_mode(0o600))
        .map_err(StateDirError::io("setting the mode of", path))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::{chown, lchown, symlink};

    /// Of no other use on a machine.
    const STRANGER: u32 = 65_534;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().mode() & 0o777
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn is_root() -> bool {
        if geteuid().is_root() {
            return true;
        }
        robust_needs::skip("only root can give a file away", robust_needs::ROOT);
        false
    }

    #[test]
    fn a_folder_of_ours_is_closed_to_others_and_refused_where_they_could_have_written() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("state");
        fs::create_dir(&path).unwrap();
        for open in [0o755, 0o775, 0o777] {
            set_mode(&path, open);
            make_private_dir(&path).unwrap();
            assert_eq!(mode(&path), 0o700);
        }
        fs::write(path.join("token"), "planted").unwrap();
        set_mode(&path, 0o755);
        make_private_dir(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        for bad in [0o770, 0o707, 0o777] {
            set_mode(&path, bad);
            let refusal = make_private_dir(&path).unwrap_err().to_string();
            let fix = format!("chmod 700 {}", path.display());
            assert!(refusal.contains(&format!("mode {bad:o}")), "{refusal}");
            assert!(refusal.contains(&fix), "{refusal}");
        }
        let link = temp.path().join("link");
        set_mode(&path, 0o700);
        symlink(&path, &link).unwrap();
        make_private_dir(&link).unwrap();
    }

    #[test]
    fn a_folder_or_a_link_that_another_user_made_first_is_refused() {
        if !is_root() {
            return;
        }
        let temp = tempfile::tempdir().unwrap();
        let planted = temp.path().join("robust-0");
        fs::create_dir(&planted).unwrap();
        set_mode(&planted, 0o700);
        chown(&planted, Some(STRANGER), None).unwrap();
        let refusal = make_private_dir(&planted).unwrap_err().to_string();
        assert!(
            refusal.contains("belongs to uid 65534, not to uid 0"),
            "{refusal}"
        );
        // Their link to a folder of ours is no better: it can point elsewhere tomorrow.
        let (ours, link) = (temp.path().join("ours"), temp.path().join("link"));
        make_private_dir(&ours).unwrap();
        symlink(&ours, &link).unwrap();
        lchown(&link, Some(STRANGER), None).unwrap();
        let refusal = make_private_dir(&link).unwrap_err().to_string();
        assert!(refusal.contains("belongs to uid 65534"), "{refusal}");
    }

    #[test]
    fn a_secret_that_is_planted_linked_or_open_to_others_is_not_read() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("token");
        assert_eq!(read_private(&path, Readers::Owner).unwrap(), None);
        write_private(&path, b"x").unwrap();
        assert_eq!(read_private(&path, Readers::Owner).unwrap().unwrap(), "x");
        set_mode(&path, 0o640);
        let refusal = read_private(&path, Readers::Owner).unwrap_err().to_string();
        assert!(refusal.contains("chmod 600"), "{refusal}");
        assert!(read_private(&path, Readers::Group).is_ok());
        assert!(read_private(&path, Readers::Any).is_ok());
        for open in [0o660, 0o644] {
            set_mode(&path, open);
            let refusal = read_private(&path, Readers::Group).unwrap_err().to_string();
            assert!(refusal.contains("chmod 640"), "{refusal}");
        }
        set_mode(&path, 0o602);
        let refusal = read_private(&path, Readers::Any).unwrap_err().to_string();
        assert!(refusal.contains("chmod go-w"), "{refusal}");
        set_mode(&path, 0o600);
        let link = temp.path().join("link");
        symlink(&path, &link).unwrap();
        let refusal = read_private(&link, Readers::Owner).unwrap_err().to_string();
        assert!(refusal.contains("is a link"), "{refusal}");
        assert!(read_private(&link, Readers::Group).is_ok());
        assert!(read_private(&link, Readers::Any).is_ok());
        if is_root() {
            chown(&path, Some(STRANGER), None).unwrap();
            let refusal = read_private(&path, Readers::Owner).unwrap_err().to_string();
            assert!(refusal.contains("belongs to uid 65534"), "{refusal}");
        }
    }
}
