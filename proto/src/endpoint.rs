//! Where a daemon is found by those who are not told.
use std::path::PathBuf;

/// The socket of a controller that leads, in its state directory.
pub const CONTROL_SOCKET: &str = "control.sock";
/// That of a controller that follows another one: it answers every call with [`tonic::Code::Unavailable`], and says who
/// leads.
pub const FOLLOWER_SOCKET: &str = "follower.sock";
/// The header of such an answer that has the `HOST:PORT` at which the leader is reached, where it has one.
pub const LEADER_AT: &str = "robust-leader";

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
