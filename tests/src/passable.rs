//! Ways that every user may pass, for one process: root's home is closed to others, and what a test builds lies in it.
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Puts folders that hold the same over closed ones, in a mount namespace of its own. The arguments are the closed
/// ones, the outer before the inner, `--`, and the command.
const OPEN: &str = r#"
while test "$1" != --; do
  closed=$1 held=$(mktemp -d); shift
  mount --bind "$closed" "$held" && mount -t tmpfs -o mode=755 passable "$closed" || exit 1
  for path in "$held"/* "$held"/.[!.]*; do
    name=${path##*/}
    if test -L "$path"; then cp -P "$path" "$closed/$name"; continue
    elif test -d "$path"; then mkdir "$closed/$name"
    elif test -e "$path"; then : > "$closed/$name"
    else continue; fi
    mount --bind "$path" "$closed/$name" || exit 1
  done
  umount "$held" && rmdir "$held" || exit 1
done
shift
exec "$@"
"#;

/// What is to stand before a command so that every user may pass the folders on the way to these.
pub(crate) fn passable(ways: &[&Path]) -> Vec<String> {
    let closed = |folder: &&Path| {
        let about = folder.metadata();
        about.is_ok_and(|about| about.is_dir() && about.permissions().mode() & 0o001 == 0)
    };
    let folders = ways.iter().flat_map(|way| way.ancestors().filter(closed));
    // Sorted, an outer folder stands before what it holds.
    let folders: BTreeSet<PathBuf> = folders.map(Path::to_owned).collect();
    if folders.is_empty() {
        return Vec::new();
    }
    let mut command = ["unshare", "--mount", "sh", "-c", OPEN, "sh"]
        .map(str::to_owned)
        .to_vec();
    command.extend(folders.iter().map(|folder| folder.display().to_string()));
    command.push("--".to_owned());
    command
}
