//! Where a daemon is found by those who are not told.
use std::path::PathBuf;

/// The state directory of a daemon started without one: `$ROBUST_STATE_DIR`, else
/// `$XDG_RUNTIME_DIR/robust`, else `/tmp/robust-UID`.
pub fn default_state_dir() -> PathBuf {
    set("ROBUST_STATE_DIR")
        .or_else(|| set("XDG_RUNTIME_DIR").map(|dir| dir.join("robust")))
        .unwrap_or_else(|| {
            PathBuf::from(format!(
                "/tmp/robust-{}",
                rustix::process::getuid().as_raw()
            ))
        })
}

/// The folder for what is made once and kept: `$ROBUST_CACHE`, else `$XDG_CACHE_HOME/robust`, else
/// `~/.cache/robust`; none without a home.
pub fn named_cache_dir() -> Option<PathBuf> {
    let of_user = || {
        let home = || set("HOME").map(|home| home.join(".cache"));
        Some(set("XDG_CACHE_HOME").or_else(home)?.join("robust"))
    };
    set("ROBUST_CACHE").or_else(of_user)
}

fn set(name: &str) -> Option<PathBuf> {
    let value = std::env::var_os(name);
    value.filter(|value| !value.is_empty()).map(PathBuf::from)
}
