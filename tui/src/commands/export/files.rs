//! Files and names that others read while they are written.
use std::fs::Permissions;
use std::io::{self, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// The longest name of a file that is made of a name of others, in bytes; systems allow 255.
const LONGEST: usize = 200;

/// Whole or not at all. Until it is whole it lies in the folder `beside`, on the same disk, where nobody looks for it.
pub fn replace(path: &Path, beside: &Path, bytes: &[u8]) -> io::Result<()> {
    // Readable for whom the umask lets: a viewer may run as somebody else.
    let readable = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .prefix(".robustctl-")
        .permissions(readable)
        .tempfile_in(beside)?;
    file.write_all(bytes)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

/// A name of others as the name of a file, which leads into no other folder.
pub fn file_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let safe = name.chars().map(|c| if fits(c) { c } else { '_' });
    let safe: String = safe.take(LONGEST).collect();
    // What begins with a point is hidden, or another folder.
    match safe.starts_with('.') || safe.is_empty() {
        true => format!("_{safe}"),
        false => safe,
    }
}
