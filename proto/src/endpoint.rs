//! Where a daemon is found by those who are not told.
use std::path::PathBuf;

/// The state directory of a daemon started without one: `$ROBUST_STATE_DIR`, else
/// `$XDG_RUNTIME_DIR/robust`, else `/tmp/robust-UID`.
pub fn default_state_dir() -> PathBuf {
    let set = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    set("ROBUST_STATE_DIR")
        .or_else(|| set("XDG_RUNTIME_DIR").map(|dir| dir.join("robust")))
        .unwrap_or_else(|| {
            PathBuf::from(format!(
                "/tmp/robust-{}",
                rustix::process::getuid().as_raw()
            ))
        })
}
