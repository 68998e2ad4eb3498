//! Where a daemon is found by those who are not told.
use std::ffi::OsString;
use std::path::PathBuf;

/// The socket of a controller that leads, in its state directory.
pub const CONTROL_SOCKET: &str = "control.sock";
/// That of a controller that follows another one: it answers every call with [`tonic::Code::Unavailable`], and says who
/// leads.
pub const FOLLOWER_SOCKET: &str = "follower.sock";
/// The header that every answer of a controller that follows has, at its socket and where it listens.
pub const FOLLOWER: &str = "robust-follower";
/// The header of such an answer that has the `HOST:PORT` at which the leader is reached, where it has one.
pub const LEADER_AT: &str = "robust-leader";

/// There is no folder of the user's own to be found. The text says how to name one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoFolder {
    /// For a job's state.
    #[error(
        "no folder for the job's state: neither XDG_RUNTIME_DIR, XDG_STATE_HOME nor HOME names one; name a folder of your \
         own with --state-dir or ROBUST_STATE_DIR"
    )]
    State,
    /// For what the daemons of several machines keep.
    #[error(
        "no folder for what the daemons keep on the machines: neither XDG_STATE_HOME nor HOME names one; name a folder of \
         your own with --local"
    )]
    Local,
    /// For what is made once and kept.
    #[error(
        "no folder for what is made once and kept: neither XDG_CACHE_HOME nor HOME names one; name a folder of your own \
         with ROBUST_CACHE"
    )]
    Cache,
}

/// The state directory of a daemon started without one: `$ROBUST_STATE_DIR`, else `$XDG_RUNTIME_DIR/robust`, else
/// `$XDG_STATE_HOME/robust`, else `~/.local/state/robust`. Nothing in a folder that others may write to: who makes a
/// name there first owns it.
///
/// # Errors
/// None of them is set.
pub fn default_state_dir() -> Result<PathBuf, NoFolder> {
    state_dir_by(&variable)
}

/// The folder for the state of several jobs by their names, on machines where the user has no session:
/// `$XDG_STATE_HOME/robust`, else `~/.local/state/robust`.
///
/// # Errors
/// None of them is set.
pub fn state_home() -> Result<PathBuf, NoFolder> {
    state_home_by(&variable).ok_or(NoFolder::Local)
}

/// The folder for what is made once and kept: `$ROBUST_CACHE`, else `$XDG_CACHE_HOME/robust`, else `~/.cache/robust`.
///
/// # Errors
/// None of them is set.
pub fn cache_dir() -> Result<PathBuf, NoFolder> {
    cache_dir_by(&variable)
}

/// Reads a variable of the environment.
type Variable<'a> = &'a dyn Fn(&str) -> Option<OsString>;

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

fn state_dir_by(variable: Variable<'_>) -> Result<PathBuf, NoFolder> {
    let runtime = || base(variable, "XDG_RUNTIME_DIR").map(|dir| dir.join("robust"));
    let named = set(variable, "ROBUST_STATE_DIR").or_else(runtime);
    let named = named.or_else(|| state_home_by(variable));
    named.ok_or(NoFolder::State)
}

fn state_home_by(variable: Variable<'_>) -> Option<PathBuf> {
    let at_home = || Some(base(variable, "HOME")?.join(".local/state"));
    let home = base(variable, "XDG_STATE_HOME").or_else(at_home);
    home.map(|home| home.join("robust"))
}

fn cache_dir_by(variable: Variable<'_>) -> Result<PathBuf, NoFolder> {
    let at_home = || Some(base(variable, "HOME")?.join(".cache"));
    let home = || base(variable, "XDG_CACHE_HOME").or_else(at_home);
    let named = set(variable, "ROBUST_CACHE").or_else(|| Some(home()?.join("robust")));
    named.ok_or(NoFolder::Cache)
}

fn set(variable: Variable<'_>, name: &str) -> Option<PathBuf> {
    let value = variable(name).filter(|value| !value.is_empty());
    value.map(PathBuf::from)
}

/// A folder by the XDG base directories' specification, which has relative ones ignored.
fn base(variable: Variable<'_>, name: &str) -> Option<PathBuf> {
    set(variable, name).filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    /// An environment with these variables and no other.
    fn with<'a>(set: &'a [(&'a str, &'a str)]) -> impl Fn(&str) -> Option<OsString> + 'a {
        move |name| {
            let found = set.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        }
    }

    #[test]
    fn the_state_lies_where_the_user_said_or_in_a_folder_of_the_users_own() {
        let all = [
            ("ROBUST_STATE_DIR", "here"),
            ("XDG_RUNTIME_DIR", "/run/user/1"),
            ("XDG_STATE_HOME", "/home/a/state"),
            ("HOME", "/home/a"),
        ];
        let expected = [
            "here",
            "/run/user/1/robust",
            "/home/a/state/robust",
            "/home/a/.local/state/robust",
        ];
        for (from, expected) in expected.into_iter().enumerate() {
            let found = state_dir_by(&with(&all[from..])).unwrap();
            assert_eq!(found, PathBuf::from(expected));
        }
        assert_eq!(
            state_home_by(&with(&all)),
            Some("/home/a/state/robust".into())
        );
    }

    #[test]
    fn the_cache_lies_where_the_user_said_or_in_a_folder_of_the_users_own() {
        let all = [
            ("ROBUST_CACHE", "/big/cache"),
            ("XDG_CACHE_HOME", "/home/a/cache"),
            ("HOME", "/home/a"),
        ];
        let expected = [
            "/big/cache",
            "/home/a/cache/robust",
            "/home/a/.cache/robust",
        ];
        for (from, expected) in expected.into_iter().enumerate() {
            let found = cache_dir_by(&with(&all[from..])).unwrap();
            assert_eq!(found, PathBuf::from(expected));
        }
    }

    #[test]
    fn without_a_home_nothing_is_put_where_others_may_write_and_it_is_said_what_to_name() {
        // Neither an empty value nor a relative one is a folder of the user's.
        for nothing in [&[][..], &[("HOME", ""), ("XDG_STATE_HOME", "state")]] {
            let (state, cache) = (state_dir_by(&with(nothing)), cache_dir_by(&with(nothing)));
            assert_eq!((state, cache), (Err(NoFolder::State), Err(NoFolder::Cache)));
            assert_eq!(state_home_by(&with(nothing)), None);
        }
        for (refusal, remedy) in [
            (NoFolder::State, "--state-dir"),
            (NoFolder::Local, "--local"),
            (NoFolder::Cache, "ROBUST_CACHE"),
        ] {
            assert!(refusal.to_string().contains(remedy), "{refusal}");
        }
    }
}
