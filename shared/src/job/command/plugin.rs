//! What an engine must be started with so that the receiver of weights within it is there: an engine without
//! it refuses the first version, or ends.
use super::super::error::Problem;
use super::super::sections::EngineKind;
use super::super::validate::bad;
use super::super::{EngineWeights, RolloutCommand};

impl EngineKind {
    /// What the command line says of the plugin, and the arguments that say it; none where there is none.
    fn plugin(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Vllm => {
                let arguments = r#""--weight-transfer-config", "{{\"backend\": \"robustrl\"}}""#;
                Some(("robustrl", arguments))
            }
            Self::Sglang => {
                let arguments = r#""--custom-weight-loader", "robustrl.sglang.load""#;
                Some(("robustrl.sglang.load", arguments))
            }
            Self::Robust => None,
        }
    }
}

/// Refuses a plugin that is not there.
pub(super) fn check_plugin(c: &RolloutCommand) -> Result<(), Problem> {
    if c.weights != EngineWeights::Plugin {
        return Ok(());
    }
    let Some((word, arguments)) = c.kind.plugin() else {
        let must = "a program of kind \"robust\" has no plugin of ours; write \"disk\", \"theirs\" or \
                    \"none\"";
        return Err(bad("rollout.command.weights", "\"plugin\"", must));
    };
    // A file that the engine reads may say it, too.
    let says = |text: &String| text.contains(word) || text.starts_with("--config");
    match c.argv.iter().any(says) {
        true => Ok(()),
        false => {
            let must = format!("`weights = \"plugin\"` needs {arguments} in it");
            let what = format!("without `{word}`");
            Err(bad("rollout.command.argv", what, must))
        }
    }
}
