//! Daemons that have names: `contexts.toml` in the user's folder of settings.
//!
//! ```toml
//! [prod]
//! connect = "head.example:7070"
//! token_file = "prod.token"
//!
//! [here]
//! state_dir = "~/runs/demo"
//! ```
//! Relative paths begin at the file's folder.
use crate::cli::Global;
use crate::endpoint::Endpoint;
use crate::error::CliError;
use robust_proto::endpoint::CONTROL_SOCKET;
use robust_shared::nearest::instead_of;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::sync::Semaphore;

/// One daemon.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    state_dir: Option<PathBuf>,
    connect: Option<String>,
    token_file: Option<PathBuf>,
}

/// What one lacks that is not complete.
const INCOMPLETE: &str = "needs state_dir, or connect and token_file";

impl Context {
    /// What its disk holds of it, read in a thread that may wait for that disk.
    fn read(&self, name: &str) -> Result<Endpoint, CliError> {
        if !self.is_complete() {
            return Err(CliError::Usage(format!("[{name}] {INCOMPLETE}")));
        }
        if let Some(folder) = &self.state_dir {
            // What is not there is said by whoever connects; a disk that hangs is waited for here, and not again there.
            let _ = std::fs::metadata(folder.join(CONTROL_SOCKET));
        }
        Endpoint::resolve(
            self.state_dir.as_deref(),
            self.connect.as_deref(),
            self.token_file.as_deref(),
        )
    }

    fn is_complete(&self) -> bool {
        matches!(
            (&self.state_dir, &self.connect, &self.token_file),
            (Some(_), None, None) | (None, Some(_), Some(_))
        )
    }

    /// With paths that begin at this folder, or at the user's.
    fn at(self, folder: &Path, home: Option<&OsString>) -> Context {
        let path = |given: PathBuf| match (given.strip_prefix("~"), home) {
            (Ok(below), Some(home)) => Path::new(home).join(below),
            _ => folder.join(given),
        };
        Context {
            state_dir: self.state_dir.map(path),
            connect: self.connect,
            token_file: self.token_file.map(path),
        }
    }
}

/// A daemon with its name.
#[derive(Clone, Debug)]
pub struct Named {
    name: String,
    context: Context,
    /// One look at its disk at a time: a thread that waits for a disk that hangs cannot be ended.
    looks: Arc<Semaphore>,
}

impl Named {
    fn new(name: String, context: Context) -> Named {
        let looks = Arc::new(Semaphore::new(1));
        Named {
            name,
            context,
            looks,
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where it is, in words.
    pub fn place(&self) -> String {
        match (&self.context.connect, &self.context.state_dir) {
            (Some(at), _) => at.clone(),
            (None, Some(folder)) => folder.display().to_string(),
            (None, None) => "-".to_owned(),
        }
    }

    /// Where to reach it. Its token is read now, beside whatever else is done: its disk may hang. As long as an earlier
    /// look waits for that disk, also one that nobody wants any more, the next one is not begun.
    pub async fn endpoint(&self) -> Result<Endpoint, CliError> {
        let ended = |e: &dyn std::fmt::Display| {
            CliError::Failed(format!("the context cannot be read: {e}"))
        };
        let looks = Arc::clone(&self.looks).acquire_owned().await;
        let look = looks.map_err(|e| ended(&e))?;
        let Named { name, context, .. } = self.clone();
        let found = tokio::task::spawn_blocking(move || {
            let found = context.read(&name);
            drop(look);
            found
        });
        found.await.map_err(|e| ended(&e))?
    }
}

/// Contexts that are looked at together.
#[derive(Clone, Debug)]
pub struct Contexts {
    /// Where they are written down.
    pub file: PathBuf,
    /// By name, or in the order in which they were named.
    pub all: Vec<Named>,
}

impl Contexts {
    /// These, which are named with commas between; all that there are where none is named. Where none is written down
    /// there is none.
    pub fn named(names: &str) -> Result<Contexts, CliError> {
        let home = std::env::var_os("HOME");
        let file = file(std::env::var_os("XDG_CONFIG_HOME"), home.as_ref()).ok_or_else(|| {
            CliError::Usage("contexts need HOME or XDG_CONFIG_HOME to be found".to_owned())
        })?;
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(e) if e.kind() == ErrorKind::NotFound => String::new(),
            Err(e) => return Err(CliError::Usage(format!("{}: {e}", file.display()))),
        };
        let all = choose(&text, names, &file, home.as_ref())?;
        Ok(Contexts { file, all })
    }
}

impl Global {
    /// With what the context says that was named, if one was.
    pub fn in_context(self) -> Result<Self, CliError> {
        let Some(name) = &self.context else {
            return Ok(self);
        };
        let home = std::env::var_os("HOME");
        let file = file(std::env::var_os("XDG_CONFIG_HOME"), home.as_ref())
            .ok_or_else(|| CliError::Usage("--context needs HOME or XDG_CONFIG_HOME".to_owned()))?;
        let text = std::fs::read_to_string(&file)
            .map_err(|e| CliError::Usage(format!("--context {name}: {}: {e}", file.display())))?;
        let context = find(&text, name, &file)?.at(folder(&file), home.as_ref());
        Ok(Self {
            state_dir: context.state_dir,
            connect: context.connect,
            token_file: context.token_file,
            ..self
        })
    }

    /// No daemon is named, for `--contexts` names those that are meant.
    pub fn names_no_daemon(&self) -> Result<(), CliError> {
        let named = [
            self.context.is_some(),
            self.state_dir.is_some(),
            self.connect.is_some(),
        ];
        match named.contains(&true) {
            true => Err(CliError::Usage(
                "--contexts looks at the daemons of contexts.toml; leave --context, --state-dir and --connect out"
                    .to_owned(),
            )),
            false => Ok(()),
        }
    }
}

/// Where contexts are written down.
fn file(config: Option<OsString>, home: Option<&OsString>) -> Option<PathBuf> {
    let config = config.filter(|c| !c.is_empty()).map(PathBuf::from);
    let folder = config.or_else(|| Some(Path::new(home?).join(".config")))?;
    Some(folder.join("robust/contexts.toml"))
}

fn folder(file: &Path) -> &Path {
    file.parent().unwrap_or(Path::new(""))
}

fn usage(file: &Path, what: &str) -> CliError {
    CliError::Usage(format!("{}: {what}", file.display()))
}

fn parse(text: &str, file: &Path) -> Result<BTreeMap<String, Context>, CliError> {
    toml::from_str(text).map_err(|e| usage(file, &e.to_string()))
}

fn find(text: &str, name: &str, file: &Path) -> Result<Context, CliError> {
    let mut all = parse(text, file)?;
    let Some(context) = all.remove(name) else {
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        let instead = instead_of(name, &names, "the contexts are");
        let text = format!("there is no context `{name}`; {instead}");
        return Err(usage(file, &text));
    };
    match context.is_complete() {
        true => Ok(context),
        false => Err(usage(file, &format!("[{name}] {INCOMPLETE}"))),
    }
}

/// Those that are named, or all. One of all that is not complete is there, and says so when it is asked.
fn choose(
    text: &str,
    names: &str,
    file: &Path,
    home: Option<&OsString>,
) -> Result<Vec<Named>, CliError> {
    let mut named = Vec::new();
    for name in names.split(',').map(str::trim).filter(|n| !n.is_empty()) {
        if !named.iter().any(|other: &Named| other.name == name) {
            let context = find(text, name, file)?.at(folder(file), home);
            named.push(Named::new(name.to_owned(), context));
        }
    }
    if named.is_empty() {
        let of =
            |(name, context): (String, Context)| Named::new(name, context.at(folder(file), home));
        named.extend(parse(text, file)?.into_iter().map(of));
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    const TEXT: &str = "[prod]\nconnect = \"head:7070\"\ntoken_file = \"prod.token\"\n\
                        [here]\nstate_dir = \"~/runs\"\n[half]\nconnect = \"head:7070\"\n";

    fn refused(text: &str, name: &str) -> String {
        let error = find(text, name, Path::new("contexts.toml")).unwrap_err();
        error.to_string()
    }

    #[test]
    fn a_context_is_found_by_its_name_and_a_misspelt_one_is_told_the_nearest() {
        let prod = find(TEXT, "prod", Path::new("f")).unwrap();
        assert_eq!(prod.connect.as_deref(), Some("head:7070"));
        assert!(refused(TEXT, "prd").contains("did you mean `prod`?"));
        assert!(refused(TEXT, "half").contains("connect and token_file"));
        assert!(refused("[prod]\nport = 1\n", "prod").contains("unknown field `port`"));
    }

    #[test]
    fn contexts_lie_where_a_users_settings_do() {
        let (config, home) = (Some("/c".into()), OsString::from("/h"));
        let at = |config, home| file(config, home).unwrap();
        assert_eq!(
            at(config, Some(&home)),
            Path::new("/c/robust/contexts.toml")
        );
        let of_home = Path::new("/h/.config/robust/contexts.toml");
        assert_eq!(at(None, Some(&home)), of_home);
        assert_eq!(file(None, None), None);
    }

    #[test]
    fn all_contexts_are_looked_at_or_those_that_are_named_in_their_order() {
        let names = |names: &str| {
            let chosen = choose(TEXT, names, Path::new("/c/contexts.toml"), None).unwrap();
            let names = chosen.into_iter().map(|named| named.name);
            names.collect::<Vec<_>>()
        };
        assert_eq!(names(""), ["half", "here", "prod"]);
        assert_eq!(names("prod, here,prod"), ["prod", "here"]);
        let error = choose(TEXT, "prd", Path::new("f"), None).unwrap_err();
        assert!(error.to_string().contains("did you mean `prod`?"));
        assert!(choose("", "", Path::new("f"), None).unwrap().is_empty());
    }

    #[test]
    fn a_context_says_where_it_is_with_paths_that_begin_at_its_file() {
        let home = OsString::from("/h");
        let file = Path::new("/c/robust/contexts.toml");
        let all = choose(TEXT, "", file, Some(&home)).unwrap();
        let places: Vec<String> = all.iter().map(Named::place).collect();
        assert_eq!(places, ["head:7070", "/h/runs", "head:7070"]);
        let token = all[2].context.token_file.as_deref();
        assert_eq!(token, Some(Path::new("/c/robust/prod.token")));
    }

    /// Threads of this name in the process.
    fn threads(name: &str) -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let named =
            tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        named.filter(|comm| comm.trim_end() == name).count()
    }

    #[test]
    fn a_disk_that_hangs_keeps_one_thread_waiting_however_often_it_is_asked() {
        const NAME: &str = "on-a-dead-disk";
        let folder = tempfile::tempdir().unwrap();
        let token = folder.path().join("token");
        // Whoever opens it to read waits until somebody writes there.
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &token,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        let context = Context {
            connect: Some("127.0.0.1:1".to_owned()),
            token_file: Some(token.clone()),
            ..Context::default()
        };
        let named = Named::new("far".to_owned(), context);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .thread_name(NAME)
            .build()
            .unwrap();
        runtime.block_on(async {
            for _ in 0..3 {
                let soon = std::time::Duration::from_millis(50);
                let looked = tokio::time::timeout(soon, named.endpoint()).await;
                assert!(looked.is_err(), "{:?}", looked.map(|found| found.is_ok()));
            }
            // Whoever reads it waits for the end of what is written.
            let writer = std::fs::OpenOptions::new().write(true).open(&token);
            assert_eq!(threads(NAME), 1);
            std::fs::remove_file(&token).unwrap();
            std::fs::write(&token, "5c".repeat(32)).unwrap();
            drop(writer.unwrap());
            assert!(named.endpoint().await.is_ok());
        });
    }
}
