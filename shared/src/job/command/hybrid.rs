//! What hybrid engines of the user's must be: an engine that cannot give its memory back says that it
//! did, and its rank would find the device full.
use super::super::error::Problem;
use super::super::validate::bad;
use super::super::{HybridMode, Job, RolloutCommand};

const KEY: &str = "rollout.command.hybrid";

impl Job {
    /// Refuses what a hybrid engine could not do when its rank's turn comes.
    pub(super) fn check_hybrid(&self, c: &RolloutCommand) -> Result<(), Problem> {
        let said = |mode: HybridMode| format!("{:?}", mode.name());
        if !self.hybrid() {
            let Some(mode) = c.hybrid else {
                return Ok(());
            };
            let must = "the job has no hybrid engines: remove it, or set `trainer.hybrid = true`";
            return Err(bad(KEY, said(mode), must));
        }
        if c.hybrid_mode() == HybridMode::Pause {
            return Ok(());
        }
        let value = said(HybridMode::Sleep);
        let Some(argument) = c.kind.sleeps_with() else {
            let must =
                "a program of kind \"robust\" keeps its memory; write \"pause\", or remove it";
            return Err(bad(KEY, value, must));
        };
        if !c.weights.are_loaded() {
            let must = format!(
                "with `weights = {:?}` nobody could give the engine its weights again when it wakes; \
                 write \"pause\", and it keeps its memory",
                c.weights.name()
            );
            return Err(bad(KEY, value, must));
        }
        match c.argv.iter().any(|text| names(text, argument)) {
            true => Ok(()),
            false => {
                let must = format!(
                    "hybrid engines give their memory back while the ranks train, and without it \
                     {} keeps its own and does not say so: pass it `{argument}`, or write \
                     `hybrid = \"pause\"`",
                    c.kind.name()
                );
                let what = format!("without `{argument}`");
                Err(bad("rollout.command.argv", what, must))
            }
        }
    }
}

/// Whether a text of the command line is this argument: vLLM takes `_` for `-`, and `=true` after it.
fn names(text: &str, argument: &str) -> bool {
    let name = text.split('=').next().unwrap_or(text);
    name.replace('_', "-") == argument
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::names;
    use crate::core::CoreConfig;
    use crate::ids::Role;
    use crate::job::{HybridMode, Job};
    use std::path::Path;

    fn job(more: &str) -> Job {
        let text = format!(
            "[data]\nprompts='p'\ntokenizer='t'\n[job]\nmode='semi-sync'\n[rollout.command]\n{more}"
        );
        Job::parse(&text, Path::new("job.toml")).unwrap()
    }

    const SGLANG: &str = "kind='sglang'\nargv=['x','{port}','--enable-memory-saver']\n";

    #[test]
    fn a_flag_is_known_in_every_way_in_which_it_can_be_written() {
        for text in [
            "--enable-sleep-mode",
            "--enable_sleep_mode",
            "--enable-sleep-mode=true",
        ] {
            assert!(names(text, "--enable-sleep-mode"), "{text}");
        }
        assert!(!names("--enable-sleep-modes", "--enable-sleep-mode"));
    }

    #[test]
    fn an_engine_sleeps_where_its_weights_can_be_given_to_it_again() {
        let mode = |more: &str| job(more).rollout.command.unwrap().hybrid_mode();
        assert_eq!(mode(SGLANG), HybridMode::Sleep);
        let awake = "kind='sglang'\nargv=['x','{port}']\n";
        for more in ["hybrid='pause'\n", "weights='theirs'\n"] {
            assert_eq!(mode(&format!("{awake}{more}")), HybridMode::Pause, "{more}");
        }
        let ours = "kind='robust'\nargv=['x','{port}']\n";
        assert_eq!(mode(ours), HybridMode::Pause);
    }

    #[test]
    fn a_switch_of_an_engine_may_take_as_long_as_loading_its_weights_and_the_users_word_counts() {
        let window = |more: &str| {
            let config = CoreConfig::from(&job(&format!("{SGLANG}load_s=40\n{more}")));
            config
                .rules
                .context_switch
                .window
                .of(Role::Hybrid)
                .as_secs()
        };
        assert_eq!(window(""), 50);
        assert_eq!(window("[detect]\ncontext_switch={window_s=7}\n"), 7);
    }
}
