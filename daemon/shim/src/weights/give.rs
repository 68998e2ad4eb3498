//! What is said to the engine so that it serves a version, and what it answers.

use std::path::Path;
use std::time::Duration;

use robust_engine::{Call, Dialect, Label, Load, PauseMode};
use robust_shared::job::{EngineKind, EngineWeights, Flush};

use super::error::LoadError;
use super::load::Loader;
use super::plugin::Given;
use super::verify::{NotVerified, Published, Verifier};

/// How long a pause, and going on after it, may take: SGLang looks at its queue once a second.
pub(crate) const PAUSE: Duration = Duration::from_secs(30);
/// Pause between looks at the version that somebody else's trainer sends.
const LOOK: Duration = Duration::from_millis(100);

impl Loader {
    /// Has the engine load a version's folder; `keep_pause` is for one that is paused and is to stay so.
    pub(super) async fn load(
        &self,
        dialect: &Dialect,
        version: u64,
        folder: &Path,
        keep_pause: bool,
    ) -> Result<(), LoadError> {
        let limit = self.settings.command.load();
        let flush = self.settings.command.flush != Flush::Never;
        match self.settings.command.weights {
            EngineWeights::None => Ok(()),
            EngineWeights::Theirs => self.wait_for(dialect, version, limit).await,
            EngineWeights::Disk => {
                let load = Load {
                    folder: folder.display().to_string(),
                    format: None,
                    version: Label::Number(version),
                    keep_pause,
                    flush,
                };
                for call in dialect.load_from_folder(&load) {
                    self.order(&call, limit).await?;
                }
                Ok(())
            }
            EngineWeights::Plugin => {
                let command = &self.settings.command;
                let given = Given {
                    version,
                    folder,
                    flush,
                    ranks: command.slots,
                };
                for call in self.plugin.calls(command.kind, &given) {
                    self.order(&call, limit).await?;
                }
                // SGLang flushes as it loads.
                match flush && command.kind != EngineKind::Sglang {
                    true => self.order(&dialect.flush(), limit).await,
                    false => Ok(()),
                }
            }
        }
    }

    /// Waits until the version is there that somebody else's trainer sends by itself.
    async fn wait_for(
        &self,
        dialect: &Dialect,
        version: u64,
        limit: Duration,
    ) -> Result<(), LoadError> {
        let arrived = async {
            loop {
                let served = self.served(dialect).await?;
                if served.number() >= Some(version) {
                    return Ok(());
                }
                tokio::time::sleep(LOOK).await;
            }
        };
        let late = || LoadError::NotSent { version, limit };
        tokio::time::timeout(limit, arrived)
            .await
            .map_err(|_| late())?
    }

    /// The version that the engine says it serves.
    async fn served(&self, dialect: &Dialect) -> Result<Label, LoadError> {
        let reply = self.client.ask(&dialect.version_served(), PAUSE).await?;
        let label = dialect
            .read_version(&reply.body)
            .map_err(NotVerified::from)?;
        Ok(label)
    }

    /// Whether the engine serves what was published.
    pub(super) async fn verify(
        &self,
        dialect: &Dialect,
        published: &Published<'_>,
    ) -> Result<(), LoadError> {
        if self.settings.command.weights == EngineWeights::None {
            return Ok(());
        }
        // A paused engine answers no canary; whoever paused it lets it go on.
        self.gate.is_not_paused().await;
        let verifier = Verifier {
            client: &self.client,
            dialect,
            command: &self.settings.command,
        };
        Ok(verifier.verify(published).await?)
    }

    /// Gives an order and judges the reply.
    pub(crate) async fn order(&self, call: &Call, limit: Duration) -> Result<(), LoadError> {
        let reply = self.client.ask(&call.request, limit).await?;
        let judged = call.judge(reply.status, &reply.body);
        judged.map_err(|refused| LoadError::Refused {
            order: call.request.to_string(),
            refused,
        })
    }

    pub(super) fn pause_mode(&self) -> PauseMode {
        use robust_shared::job::PauseMode as Said;
        match self.settings.command.pause_mode() {
            Said::Abort => PauseMode::Abort,
            Said::Retract => PauseMode::Retract,
            Said::Wait => PauseMode::Wait,
            Said::InPlace | Said::Keep => PauseMode::Keep,
        }
    }

    /// The error with what cures it, where that is known.
    pub(crate) fn explained(&self, error: &LoadError) -> String {
        let LoadError::NotVerified(not_verified) = error else {
            return error.to_string();
        };
        match not_verified.cure(&self.settings.command) {
            Some(cure) => format!("{not_verified}; {cure}"),
            None => not_verified.to_string(),
        }
    }
}
