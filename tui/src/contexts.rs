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
use crate::error::CliError;
use robust_shared::nearest::instead_of;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// One daemon.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    state_dir: Option<PathBuf>,
    connect: Option<String>,
    token_file: Option<PathBuf>,
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
        let context = find(&text, name, &file)?;
        let folder = file.parent().unwrap_or(Path::new(""));
        let path = |given: PathBuf| match (given.strip_prefix("~"), &home) {
            (Ok(below), Some(home)) => Path::new(home).join(below),
            _ => folder.join(given),
        };
        Ok(Self {
            state_dir: context.state_dir.map(path),
            connect: context.connect,
            token_file: context.token_file.map(path),
            ..self
        })
    }
}

/// Where contexts are written down.
fn file(config: Option<OsString>, home: Option<&OsString>) -> Option<PathBuf> {
    let config = config.filter(|c| !c.is_empty()).map(PathBuf::from);
    let folder = config.or_else(|| Some(Path::new(home?).join(".config")))?;
    Some(folder.join("robust/contexts.toml"))
}

fn find(text: &str, name: &str, file: &Path) -> Result<Context, CliError> {
    let usage = |what: String| CliError::Usage(format!("{}: {what}", file.display()));
    let mut all: BTreeMap<String, Context> =
        toml::from_str(text).map_err(|e| usage(e.to_string()))?;
    let Some(context) = all.remove(name) else {
        let names: Vec<&str> = all.keys().map(String::as_str).collect();
        let instead = instead_of(name, &names, "the contexts are");
        return Err(usage(format!("there is no context `{name}`; {instead}")));
    };
    match (&context.state_dir, &context.connect, &context.token_file) {
        (Some(_), None, None) | (None, Some(_), Some(_)) => Ok(context),
        _ => Err(usage(format!(
            "[{name}] needs state_dir, or connect and token_file"
        ))),
    }
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
}
